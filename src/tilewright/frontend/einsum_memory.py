"""`einsum` within a limit of memory: the path as a contraction tree, computed in slices where it is too large.

>>> import numpy as np
>>> a, b, c = np.ones((30, 40)), np.ones((40, 50)), np.ones((50, 20))
>>> float(einsum_within("ij,jk,kl->", (a, b, c), memory_limit=2000)[()])  # ik would take 12000 bytes
1200000.0
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from tilewright.frontend.einsum_arrays import Array, as_arrays
from tilewright.frontend.einsum_calls import parsed_expression
from tilewright.frontend.einsum_layout import PlainView
from tilewright.frontend.einsum_options import EinsumOptions, check_options
from tilewright.frontend.einsum_parse import Labels, ResolvedEinsum, resolve
from tilewright.frontend.einsum_path import contraction_path, distinct, hashable_optimize, steps_of
from tilewright.frontend.tree import einsum_tree
from tilewright.frontend.tree_parse import Leaf, Node, Tree, leaves
from tilewright.runtime.devices import Device

_DEFAULTS = {"casting": "safe", "semiring": "plus_times", "epilogue": None, "epilogue_operands": (), "alpha": 1,
             "beta": 0, "tiles": None}  # fmt: skip


def einsum_within(
    expression: Hashable,
    operands: Sequence[Any],
    *,
    memory_limit: int,
    out: Array | None = None,
    dtype: Any = None,
    order: str | None = None,
    optimize: Any = True,
    target: str | Device | None = None,
    others: Mapping[str, Any] | None = None,
) -> Any:
    """`einsum` with `memory_limit` (which see). `others` are the options that must have their default values here.

    Raises:
        ValueError: for other options, an output index that repeats, and all that `einsum` refuses.
        MemoryError: if no slices keep the limit, with the expression's peak and the least that slices reach.
    """
    arrays = as_arrays(operands)
    resolved = resolve(parsed_expression(expression), [one.shape for one in arrays])
    text = resolved.expression
    for name, value in (others or {}).items():
        default = _DEFAULTS[name]
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
    ordered = [views[leaf.position](arrays[leaf.position]) for leaf in leaves(tree)]
    try:
        result = einsum_tree(tree, sizes, ordered, out=out, dtype=dtype, target=target, memory_limit=memory_limit)
    except MemoryError as error:
        raise MemoryError(f"einsum {text!r}: {error}") from error
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
