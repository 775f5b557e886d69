"""What a call of `einsum_tree` or `plan_tree` asks for, read: the arguments of `tree_plan.make_plan`.

Imported when a tree is planned.

>>> given, options = of_sizes("[0,1],[1,2]->[0,2]", [4, 5, 6], "f32", "cpu", None)
>>> given[0].inputs, options["limit"]
(((0, 2), (2, 1)), None)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array
from tilewright.frontend.einsum_types import met_dtype
from tilewright.frontend.named_types import type_named
from tilewright.frontend.tree_parse import Leaf, Node, check_tree, leaves, parse_tree, sizes_of
from tilewright.frontend.tree_plan import memory_order
from tilewright.frontend.tree_steps import ResolvedTree, resolve_tree
from tilewright.ir.scalars import ScalarType, scalar_type_of
from tilewright.runtime.devices import Device, device_for

Sizes = Mapping[Any, int] | Sequence[int]


def of_sizes(
    tree: str | Node, sizes: Sizes, dtype: Any, target: str | Device | None, memory_limit: int | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Those for row-major inputs of one dtype.

    Raises:
        TreeError, TypeError, ValueError: as `plan_tree` does.
    """
    resolved = _resolved(tree, sizes)
    element = type_named(dtype, f"tree {tree}")
    inputs = (element,) * len(resolved.inputs)
    given = resolved, inputs, resolved.inputs, element, device_for(target)
    return given, {"limit": check_limit(memory_limit)}


def of_arrays(
    tree: str | Node,
    sizes: Sizes | None,
    arrays: Sequence[Array],
    out: Array | None,
    dtype: Any,
    target: str | Device | None,
    memory_limit: int | None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Those for a call.

    Raises:
        TreeError, TypeError, ValueError: as `einsum_tree` does.
    """
    node = _node(tree)
    inputs = leaves(node)
    if len(arrays) != len(inputs):
        raise ValueError(f"tree {node} has {len(inputs)} inputs; {len(arrays)} arrays were given")
    for number, (leaf, array) in enumerate(zip(inputs, arrays, strict=True)):
        if array.ndim != len(leaf.labels):
            raise ValueError(f"tree {node}: input {number} {leaf} has {array.ndim} dimensions (shape {array.shape})")
    resolved = _resolved(node, _sizes_from(node, inputs, arrays) if sizes is None else sizes)
    for number, (labels, array) in enumerate(zip(resolved.inputs, arrays, strict=True)):
        wanted = tuple(resolved.sizes[label] for label in labels)
        if array.shape != wanted:
            raise ValueError(
                f"tree {node}: input {number} {inputs[number]} has shape {array.shape}, the sizes of its indices are "
                f"{wanted}"
            )
    elements, computed = _types(node, arrays, dtype)
    orders = [memory_order(array, labels) for array, labels in zip(arrays, resolved.inputs, strict=True)]
    fits = out is not None and out.shape == tuple(resolved.sizes[label] for label in resolved.output)
    order = memory_order(out, resolved.output) if out is not None and fits else None
    asked = resolved, elements, orders, computed, device_for(target)
    given = out is not None and out.dtype.isnative  # else the result is made, and then copied
    return asked, {"output_order": order, "given": given, "limit": check_limit(memory_limit)}


def _node(tree: str | Node) -> Node:
    if not isinstance(tree, Node):
        return parse_tree(tree)
    check_tree(tree)
    return tree


def _resolved(tree: str | Node, sizes: Sizes) -> ResolvedTree:
    node = _node(tree)
    return resolve_tree(node, sizes_of(node, sizes))


def _sizes_from(node: Node, inputs: Sequence[Leaf], arrays: Sequence[Array]) -> dict[Any, int]:
    sizes: dict[Any, int] = {}
    for number, (leaf, array) in enumerate(zip(inputs, arrays, strict=True)):
        for label, extent in zip(leaf.labels, array.shape, strict=True):
            if sizes.setdefault(label, extent) != extent:
                raise ValueError(
                    f"tree {node}: index {label} has size {extent} in input {number} {leaf}, but {sizes[label]} before"
                )
    return sizes


def _types(node: Node, arrays: Sequence[Array], dtype: Any) -> tuple[tuple[ScalarType, ...], ScalarType]:
    """The inputs' element types, and the one to compute in."""
    elements = []
    for number, array in enumerate(arrays):
        try:
            elements.append(scalar_type_of(array.dtype))
        except TypeError as error:
            raise TypeError(f"tree {node}: input {number}: {error}") from error
    if dtype is None:
        meeting = [(f"input {number}", one.dtype) for number, one in enumerate(arrays)]
        return tuple(elements), scalar_type_of(met_dtype(f"tree {node}", meeting))
    computed = type_named(dtype, f"tree {node}")
    for number, array in enumerate(arrays):
        if not np.can_cast(array.dtype, computed.numpy, "same_kind"):
            raise TypeError(f"tree {node}: input {number} of dtype {array.dtype} cannot become {computed}")
    return tuple(elements), computed


def check_limit(limit: int | None) -> int | None:
    """A limit of memory as it was given. ValueError for one that is no number of bytes."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 0):
        raise ValueError(f"memory_limit must be a number of bytes, not {limit!r}")
    return limit
