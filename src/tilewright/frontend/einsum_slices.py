"""An einsum within a limit of memory as a contraction tree, computed in slices where it is too large."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any

from tilewright.frontend.einsum_arrays import Array
from tilewright.frontend.einsum_calls import parsed_expression
from tilewright.frontend.einsum_layout import PlainView
from tilewright.frontend.einsum_options import EinsumOptions, check_options
from tilewright.frontend.einsum_parse import Labels, ResolvedEinsum, resolve
from tilewright.frontend.einsum_path import contraction_path, distinct, hashable_optimize, steps_of
from tilewright.frontend.torch_tensors import DEFAULTS
from tilewright.frontend.tree import einsum_tree, planned
from tilewright.frontend.tree_parse import Leaf, Node, Tree, leaves
from tilewright.frontend.tree_stored import StoredTree, store_tree
from tilewright.runtime.devices import Device


def computed(
    expression: Hashable,
    arrays: Sequence[Array],
    memory_limit: int,
    out: Array | None,
    record: tuple[str, ...] | None,
    *,
    dtype: Any = None,
    order: str | None = None,
    optimize: Any = True,
    target: str | Device | None = None,
    **others: Any,
) -> Any:
    """`einsum_memory.einsum_within`, compiled.

    Args:
        expression, arrays, memory_limit, out: of the call.
        record: the key under which it may be left on the disk.
        dtype, order, optimize, target: as of `einsum`.
        others: the options that must have their default values here.

    Raises:
        ValueError, MemoryError: as `einsum_within`.
    """
    resolved = resolve(parsed_expression(expression), [one.shape for one in arrays])
    text = resolved.expression
    for name, value in others.items():
        default = DEFAULTS[name]
        if value is not default and not (type(value) is type(default) and value == default) and value != []:
            raise ValueError(f"einsum {text!r}: memory_limit does not go with {name} = {value!r}")
    check_options(EinsumOptions(order=order))
    spec = resolved.spec
    if len(set(spec.output)) != len(spec.output):
        raise ValueError(f"einsum {text!r}: memory_limit does not go with an output index that repeats")
    views = [PlainView(labels) for labels in spec.inputs]
    path = contraction_path(spec, resolved.sizes, hashable_optimize(optimize))
    turned = out is None and order is not None and order.upper() == "F"
    tree = _tree(resolved, path, [view.labels for view in views], turned)
    sizes = {name: resolved.sizes[label] for label, name in enumerate(_names(resolved))}
    positions = [leaf.position for leaf in leaves(tree)]
    ordered = [views[one](arrays[one]) for one in positions]
    options: dict[str, Any] = {"dtype": dtype, "target": target, "memory_limit": memory_limit}
    try:
        result = einsum_tree(tree, sizes, ordered, out=out, **options)
    except MemoryError as error:
        raise MemoryError(f"einsum {text!r}: {error}") from error
    whole = all(arrays[one] is view for one, view in zip(positions, ordered, strict=True))
    if record is not None and whole and not turned:
        plan, _ = planned(tree, sizes, ordered, out, **options)
        if not isinstance(plan, StoredTree) and all(map(operator.is_, plan.native(ordered), ordered)):
            store_tree(record, plan, ordered, result, positions)
    return result.T if turned else result


def _names(resolved: ResolvedEinsum) -> tuple[str | int, ...]:
    """What the tree calls the indices: as the user does, or by number where a tree has no such name."""
    names = resolved.names
    if len(set(names)) == len(names) and all(one.isidentifier() for one in names):
        return names
    if len({int(one) for one in names if one.isdecimal()}) == len(names):
        return tuple(map(int, names))
    return tuple(range(len(names)))


def _tree(resolved: ResolvedEinsum, path: tuple[tuple[int, ...], ...], inputs: Sequence[Labels], turned: bool) -> Node:
    """The path as nodes of one or two operands; more than two at once are taken pair by pair, from the left.

    The `position` of a leaf is the number of its operand.
    """
    names = _names(resolved)
    spec = resolved.spec
    output = distinct(spec.output)[:: -1 if turned else 1]

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
