"""An einsum within a limit of memory as a contraction tree, computed in slices where it is too large."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, check_out
from tilewright.frontend.einsum_bind import check_result, is_view
from tilewright.frontend.einsum_calls import parsed_expression
from tilewright.frontend.einsum_layout import PlainView, Signature, output_axes, signature_of
from tilewright.frontend.einsum_options import EinsumOptions, check_options
from tilewright.frontend.einsum_parse import Labels, ResolvedEinsum, resolve
from tilewright.frontend.einsum_path import contraction_path, distinct, hashable_optimize, steps_of
from tilewright.frontend.einsum_types import check_stored, computed_dtype
from tilewright.frontend.torch_tensors import DEFAULTS
from tilewright.frontend.tree import einsum_tree, planned
from tilewright.frontend.tree_call import check_limit
from tilewright.frontend.tree_parse import Leaf, Node, Tree, leaves
from tilewright.frontend.tree_stored import StoredTree, store_tree
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.result_arrays import check_is_array


def computed(
    expression: Hashable,
    arrays: Sequence[Array],
    memory_limit: int,
    out: Array | None,
    record: tuple[str, ...] | None,
    *,
    dtype: Any = None,
    order: str | None = None,
    casting: str = "safe",
    optimize: Any = True,
    target: str | Device | None = None,
    **others: Any,
) -> Any:
    """`einsum_memory.einsum_within`, compiled.

    Args:
        expression, arrays, memory_limit, out: of the call.
        record: the key under which it may be left on the disk.
        dtype, order, casting, optimize, target: as of `einsum`.
        others: the options that must have their default values here.

    Raises:
        ValueError, TypeError, MemoryError: as `einsum_within`.
    """
    resolved = resolve(parsed_expression(expression), [one.shape for one in arrays])
    text = resolved.expression
    _refuse_options(text, casting, others)
    options = EinsumOptions(dtype=dtype, order=order, casting=casting)
    check_options(options)
    check_limit(memory_limit)
    spec, signatures = resolved.spec, [signature_of(one) for one in arrays]
    met, form = _checked_dtype(resolved, arrays, signatures, out, options)
    layout = "any" if order is None else order.upper()
    if is_view(spec, signatures[0], met, form, options, layout):
        if target is not None:
            device_for(target)  # which refuses what is no device, though none is needed
        view = PlainView(spec.inputs[0], spec.output)(arrays[0])
        return view if view.ndim else view[()]
    if len(set(spec.output)) != len(spec.output):
        raise ValueError(f"einsum {text!r}: memory_limit does not go with an output index that repeats")
    views = [PlainView(labels) for labels in spec.inputs]
    path = contraction_path(spec, resolved.sizes, hashable_optimize(optimize))
    axes = output_axes(layout, list(zip(signatures, spec.inputs, strict=True)), spec.output)
    turned = out is None and axes != tuple(range(len(axes)))
    tree = _tree(resolved, path, [view.labels for view in views], axes if turned else None)
    sizes = {name: resolved.sizes[label] for label, name in enumerate(_names(resolved))}
    positions = [leaf.position for leaf in leaves(tree)]
    ordered = [views[one](arrays[one]) for one in positions]
    asked: dict[str, Any] = {"dtype": met, "target": target, "memory_limit": memory_limit}
    try:
        result = einsum_tree(tree, sizes, ordered, out=out, **asked)
    except MemoryError as error:
        raise MemoryError(f"einsum {text!r}: {error}") from error
    whole = all(arrays[one] is view for one, view in zip(positions, ordered, strict=True))
    if record is not None and whole and not turned:
        plan, _ = planned(tree, sizes, ordered, out, **asked)
        if not isinstance(plan, StoredTree) and all(map(operator.is_, plan.native(ordered), ordered)):
            store_tree(record, plan, ordered, result, positions)
    return result.transpose([axes.index(axis) for axis in range(len(axes))]) if turned else result


def _refuse_options(text: str, casting: str, others: Mapping[str, Any]) -> None:
    """Refuse values of options that do not go with a limit. ValueError with the option."""
    for name, value in others.items():
        default = DEFAULTS[name]
        if value is not default and not (type(value) is type(default) and value == default) and value != []:
            raise ValueError(f"einsum {text!r}: memory_limit does not go with {name} = {value!r}")
    if casting == "unsafe":  # trees cast to what holds numbers of the same kind
        raise ValueError(f"einsum {text!r}: memory_limit does not go with casting = {casting!r}")


def _checked_dtype(
    resolved: ResolvedEinsum,
    arrays: Sequence[Array],
    signatures: Sequence[Signature],
    out: Array | None,
    options: EinsumOptions,
) -> tuple[np.dtype[Any], Signature | None]:
    """The dtype that is computed in, and the form of `out`, which must be for the result and of that dtype."""
    text = resolved.expression
    form = _form_of_out(text, out)
    met, _ = computed_dtype(text, signatures, options, form)
    check_result(text, resolved.output_shape, met, form)
    if out is not None and form is not None:
        check_stored(text, met, form.dtype, options.casting)
        if form.dtype.newbyteorder("=") != met:
            raise ValueError(
                f"einsum {text!r}: memory_limit does not go with an out of dtype {form.dtype}, for the result is "
                f"computed in {met}; give out that dtype, or compute in another (dtype=)"
            )
        check_out(out, arrays, len(arrays))
    return met, form


def _form_of_out(text: str, out: Any) -> Signature | None:
    if out is None:
        return None
    check_is_array(out, f"einsum {text!r}")
    return signature_of(out)


def _names(resolved: ResolvedEinsum) -> tuple[str | int, ...]:
    """What the tree calls the indices: as the user does, or by number where a tree has no such name."""
    names = resolved.names
    if len(set(names)) == len(names) and all(one.isidentifier() for one in names):
        return names
    if len({int(one) for one in names if one.isdecimal()}) == len(names):
        return tuple(map(int, names))
    return tuple(range(len(names)))


def _tree(
    resolved: ResolvedEinsum, path: tuple[tuple[int, ...], ...], inputs: Sequence[Labels], axes: Sequence[int] | None
) -> Node:
    """The path as nodes of one or two operands; more than two at once are taken pair by pair, from the left.

    The `position` of a leaf is the number of its operand. `axes`: of the output, in the order of the tree's result.
    """
    names = _names(resolved)
    spec = resolved.spec
    output = spec.output if axes is None else tuple(spec.output[axis] for axis in axes)

    def node(operands: tuple[Tree, ...], labels: Labels) -> Node:
        return Node(operands, tuple(names[label] for label in labels))

    values: list[tuple[Tree, Labels]] = [
        (Leaf(tuple(names[one] for one in labels), number), labels) for number, labels in enumerate(inputs)
    ]
    for number, step in enumerate(steps_of(spec, path)):
        chosen = [values[position] for position in step.positions]
        values = [one for position, one in enumerate(values) if position not in step.positions]
        wanted = output if number == len(path) - 1 else step.output
        (tree, labels), *rest = chosen
        if not rest:
            tree, labels = node((tree,), wanted), wanted
        for count, (other, more) in enumerate(rest, start=1):
            needed = {*wanted, *(label for _, later in rest[count:] for label in later)}
            kept = wanted if count == len(rest) else tuple(one for one in distinct((*labels, *more)) if one in needed)
            tree, labels = node((tree, other), kept), kept
        values.append((tree, labels))
    ((root, _),) = values
    assert isinstance(root, Node)
    return root
