"""`tilewright.einsum_tree`: contraction trees that say themselves in which order to contract; and plans of them.

>>> import numpy as np
>>> a, b, c = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 1))
>>> einsum_tree("[[0,1],[1,2]->[0,2]],[2,3]->[3,0]", [2, 2, 2, 1], [a, b, c]).tolist()
[[3.0, 7.0]]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontend.einsum_arrays import Array, as_arrays
from tilewright.frontend.einsum_quick import with_first
from tilewright.frontend.scalar_constants import type_named
from tilewright.frontend.torch_tensors import are_there, on_arrays
from tilewright.frontend.tree_parse import Leaf, Node, check_tree, leaves, parse_tree, sizes_of
from tilewright.frontend.tree_plan import TreePlan, make_plan, memory_order
from tilewright.frontend.tree_steps import ResolvedTree, resolve_tree
from tilewright.ir.scalars import ScalarType, scalar_type_of
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.environment import read_environment
from tilewright.runtime.messages import value_text

if TYPE_CHECKING:  # imported when a call is repeated
    from tilewright.runtime.cpu_entry import NativeEntry

Sizes = Mapping[Any, int] | Sequence[int]

_PLANS: MemoryCache[Hashable, TreePlan] = MemoryCache(capacity=1024)
_RECENT: dict[Hashable, tuple[NativeEntry, ...]] = {}  # by tree and options: short cuts of the forms met last
_MOST_RECENT = 1024
_TARGET = b"TILEWRIGHT_TARGET"


def einsum_tree(
    tree: str | Node,
    sizes: Sizes | None,
    arrays: Sequence[Any],
    *,
    out: Array | None = None,
    dtype: Any = None,
    target: str | Device | None = None,
    memory_limit: int | None = None,
) -> Any:
    """Evaluate a contraction tree.

    Args:
        tree: in bracket notation, `"[[0,1],[1,2]->[0,2]],[2,3]->[0,3]"`; a node is `operands->[indices]`, with one or
            two operands, each of them `[indices]` of an input or an inner node in brackets. Indices are numbers or
            names. `r` after a node's indices applies a ReLU.
        sizes: the size of each index, a mapping or (entry i for index i) a sequence; None takes them from the arrays.
        arrays: the inputs, from left to right.
        out: an array for the result, which is returned.
        dtype: the type to compute in (default: `numpy.result_type` of the inputs). f16 and bf16 are carried in f32
            through all steps and rounded once.
        target: the device: "cpu", "opencl", "cuda:1", a `Device`; default the variable TILEWRIGHT_TARGET, or the CPU.
        memory_limit: bytes that intermediates and the result (if it is not `out`) may take; where that is too little
            for the whole, slices of some indices are computed one after another.

    Returns:
        `out`, a new row-major array, or for a result without dimensions a NumPy scalar.

    Raises:
        TreeError: for a tree or sizes that are wrong; a ValueError.
        ValueError: for arrays that do not fit the tree, naming input and sizes.
        TypeError: for dtypes that are not supported.
        MemoryError: if the limit cannot be met; it says the least that could.

    Example:
        >>> import numpy as np
        >>> x, w = np.array([[1.0, -1.0]]), np.array([[2.0, 0.0], [0.0, 2.0]])
        >>> einsum_tree("[b,i],[i,o]->[b,o]r", None, [x, w]).tolist()
        [[2.0, 0.0]]
    """
    place = read_environment(_TARGET) if target is None else target
    form = None if out is None else getattr(out, "strides", None)  # in whose order the result is computed
    recent: Hashable = (tree, tuple(sizes) if type(sizes) is list else sizes, form, dtype, place, memory_limit)
    try:
        for entry in _RECENT.get(recent, ()):
            found = entry(*arrays, out)
            if found is not None:
                return found
    except TypeError:  # sizes that cannot be hashed
        recent = None
    if are_there(arrays, out):
        return on_arrays(
            lambda *given, out=None: einsum_tree(
                tree, sizes, given, out=out, dtype=dtype, target=target, memory_limit=memory_limit
            ),
            "einsum_tree: input", arrays, out,
        )  # fmt: skip
    given = as_arrays(arrays, "einsum_tree", "input")
    if out is not None and not isinstance(out, np.ndarray):
        raise TypeError(f"einsum_tree: out must be a NumPy array, not {value_text(out)}")
    signature = tuple((one.dtype, one.shape, one.strides) for one in given)
    given_form = None if out is None else (out.shape, out.strides)
    key = (tree, _hashable(sizes), signature, given_form, dtype, place, memory_limit)
    plan = _PLANS.get_or_build(key, lambda: _plan_for(tree, sizes, given, out, dtype, target, memory_limit))
    native = [
        array if array.dtype == element.numpy and array.dtype.isnative else array.astype(element.numpy)
        for array, element in zip(given, plan.inputs, strict=True)
    ]
    result = plan(*native, out=out)
    if recent is not None and plan.quick is not None and plan.quick.entries:
        if len(_RECENT) >= _MOST_RECENT:
            _RECENT.clear()
        _RECENT[recent] = with_first(plan.quick.entries[0], _RECENT.get(recent, ()))
    return result


def plan_tree(
    tree: str | Node,
    sizes: Sizes,
    *,
    dtype: Any = "f64",
    target: str | Device | None = None,
    memory_limit: int | None = None,
) -> TreePlan:
    """Compile a contraction tree for row-major inputs of one dtype.

    Args:
        tree, sizes, target, memory_limit: as for `einsum_tree`.
        dtype: of the inputs and of the computation.

    Returns:
        A callable of the inputs. Its `repr` prints the tree with sizes, the order in memory of each intermediate,
        flops, the order of evaluation, slices, and the peak memory.

    Raises:
        TreeError, TypeError, MemoryError: as `einsum_tree` does.

    Example:
        >>> plan = plan_tree("[[0,1],[1,2]->[0,2]],[2,3]->[0,3]", [4, 5, 6, 7], dtype="f32")
        >>> plan.flops, plan.peak_bytes
        (576, 208)
    """
    resolved = _resolved(tree, sizes)
    element = type_named(dtype)
    inputs = (element,) * len(resolved.inputs)
    return make_plan(resolved, inputs, resolved.inputs, element, device_for(target), limit=_checked_limit(memory_limit))


def _plan_for(
    tree: str | Node,
    sizes: Sizes | None,
    arrays: Sequence[Array],
    out: Array | None,
    dtype: Any,
    target: str | Device | None,
    memory_limit: int | None,
) -> TreePlan:
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
    return make_plan(
        resolved, elements, orders, computed, device_for(target),
        output_order=order, given=out is not None, limit=_checked_limit(memory_limit),
    )  # fmt: skip


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
        return tuple(elements), scalar_type_of(np.result_type(*(one.dtype for one in arrays)))
    computed = type_named(dtype)
    for number, array in enumerate(arrays):
        if not np.can_cast(array.dtype, computed.numpy, "same_kind"):
            raise TypeError(f"tree {node}: input {number} of dtype {array.dtype} cannot become {computed}")
    return tuple(elements), computed


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 0):
        raise ValueError(f"memory_limit must be a number of bytes, not {limit!r}")
    return limit


def _hashable(sizes: Sizes | None) -> Hashable:
    if isinstance(sizes, Mapping):
        return tuple(sizes.items())
    if sizes is None:
        return None
    if isinstance(sizes, str) or getattr(sizes, "ndim", 1) != 1 or not isinstance(sizes, Iterable):
        raise TypeError(
            f"einsum_tree: sizes must be None or give the size of each index, in a mapping or a sequence; it is "
            f"{value_text(sizes)}"
        )
    return ("sequence", *sizes)
