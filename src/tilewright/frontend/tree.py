"""`tilewright.einsum_tree`: contraction trees that say themselves in which order to contract; and plans of them.

>>> import numpy as np
>>> a, b, c = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 1))
>>> einsum_tree("[[0,1],[1,2]->[0,2]],[2,3]->[3,0]", [2, 2, 2, 1], [a, b, c]).tolist()
[[3.0, 7.0]]
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from tilewright.frontend.einsum_arrays import Array, as_arrays
from tilewright.frontend.einsum_quick import with_first
from tilewright.frontend.torch_tensors import are_there, on_arrays
from tilewright.frontend.tree_stored import StoredTree, record_of, store_tree, stored_tree
from tilewright.runtime.cache import MemoryCache
from tilewright.runtime.collecting import collection_later, imported
from tilewright.runtime.environment import read_environment
from tilewright.runtime.result_arrays import check_is_array

if TYPE_CHECKING:  # imported when a tree is planned
    from tilewright.frontend.tree_parse import Node
    from tilewright.frontend.tree_plan import TreePlan
    from tilewright.runtime.cpu_entry import NativeEntry
    from tilewright.runtime.devices import Device

Sizes = Mapping[Any, int] | Sequence[int]

_PLANS: MemoryCache[Hashable, TreePlan | StoredTree] = MemoryCache(capacity=1024)
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
        arrays: the inputs, from left to right, in a list or tuple.
        out: an array for the result, which is returned. One of foreign byte order is filled from a new array, which
            then counts as the result.
        dtype: the type to compute in (default: `numpy.result_type` of the inputs). f16 and bf16 are carried in f32
            through all steps and rounded once.
        target: the device: "cpu", "opencl", "cuda:1", a `Device`; default the variable TILEWRIGHT_TARGET, or the CPU.
        memory_limit: bytes that intermediates and the result (if it is not `out`) may take; where that is too little
            for the whole, slices of some indices are computed one after another. What a kernel keeps while it runs is
            not counted: panels, and copies (of operands 64 MB at most, of results 256 MB) where arrays lie in very
            different orders.

    Returns:
        `out`, a new row-major array, or for a result without dimensions a NumPy scalar.

    Raises:
        TreeError: for a tree or sizes that are wrong; a ValueError.
        ValueError: for arrays that do not fit the tree, naming input and sizes.
        TypeError: for dtypes that are not supported, and inputs that are in no list.
        MemoryError: if the limit cannot be met; it says the least that could. If the host has too little memory.

    Example:
        >>> import numpy as np
        >>> x, w = np.array([[1.0, -1.0]]), np.array([[2.0, 0.0], [0.0, 2.0]])
        >>> einsum_tree("[b,i],[i,o]->[b,o]r", None, [x, w]).tolist()
        [[2.0, 0.0]]
    """
    if type(arrays) is not list and type(arrays) is not tuple:
        _hashable(sizes)  # arrays that are given as to `einsum` are told of at the first one
        arrays = _listed(arrays)
    if memory_limit is not None and type(memory_limit) is not int:
        memory_limit = _number_of_bytes(memory_limit)
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
    if out is not None:
        check_is_array(out, "einsum_tree")
    plan, record = planned(tree, sizes, given, out, dtype=dtype, target=target, memory_limit=memory_limit)
    native = given if isinstance(plan, StoredTree) else plan.native(given)
    result = plan(*native, out=out)
    if record is not None and not isinstance(plan, StoredTree) and all(map(operator.is_, native, given)):
        store_tree(record, plan, given, result)
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
    given, options = imported("tilewright.frontend.tree_call").of_sizes(tree, sizes, dtype, target, memory_limit)
    return make_plan(*given, **options)


def planned(
    tree: str | Node,
    sizes: Sizes | None,
    arrays: Sequence[Array],
    out: Array | None,
    *,
    dtype: Any,
    target: str | Device | None,
    memory_limit: int | None,
) -> tuple[TreePlan | StoredTree, tuple[str, ...] | None]:
    """What runs calls with arrays of these forms, and the key under which it is to be left on the disk, if at all.

    Raises:
        TreeError, ValueError, TypeError, MemoryError: as `einsum_tree` does.
    """
    place = read_environment(_TARGET) if target is None else target
    signature = tuple((one.dtype, one.shape, one.strides) for one in arrays)
    given_form = None if out is None else (out.dtype, out.shape, out.strides)
    known = _hashable(sizes)
    record: tuple[str, ...] | None = None

    def compiled() -> TreePlan:
        given, options = imported("tilewright.frontend.tree_call").of_arrays(
            tree, sizes, arrays, out, dtype, target, memory_limit
        )
        return make_plan(*given, **options)

    def build() -> TreePlan | StoredTree:
        nonlocal record
        with collection_later():
            record = record_of("tree", (tree, known, memory_limit), arrays, out, dtype, place)
            found = None if record is None else stored_tree(record, compiled)
        return found or compiled()

    key = (tree, known, signature, given_form, dtype, place, memory_limit)
    return _PLANS.get_or_build(key, build), record


def make_plan(*given: Any, **options: Any) -> TreePlan:
    """`tree_plan.make_plan`, which is imported when a tree is planned."""
    plan: TreePlan = imported("tilewright.frontend.tree_plan").make_plan(*given, **options)
    return plan


def _number_of_bytes(limit: Any) -> int:
    """A limit that is no plain integer: those of NumPy are; what equals one but is none finds no plan made before."""
    checked: int = imported("tilewright.frontend.tree_call").check_limit(limit)
    return int(checked)


def _listed(arrays: Any) -> Sequence[Any]:
    """The inputs of what is neither a list nor a tuple. A single array is none of them, nor its rows the inputs."""
    single = hasattr(arrays, "__array__") or hasattr(arrays, "__dlpack__")
    if single or isinstance(arrays, str | bytes | Mapping | Set) or not isinstance(arrays, Iterable):
        shape = getattr(arrays, "shape", None)
        told = _value_text(arrays) if shape is None else f"a single array of shape {tuple(shape)}"
        raise TypeError(f"einsum_tree: arrays must be a list of the inputs, from left to right; it is {told}")
    return tuple(arrays)


def _value_text(value: Any) -> str:
    from tilewright.runtime.messages import value_text  # calls from the disk do without

    return value_text(value)


def _hashable(sizes: Sizes | None) -> Hashable:
    if isinstance(sizes, Mapping):
        return tuple(sizes.items())
    if sizes is None:
        return None
    if isinstance(sizes, str) or getattr(sizes, "ndim", 1) != 1 or not isinstance(sizes, Iterable):
        raise TypeError(
            f"einsum_tree: sizes must be None or give the size of each index, in a mapping or a sequence; it is "
            f"{_value_text(sizes)}"
        )
    return ("sequence", *sizes)
