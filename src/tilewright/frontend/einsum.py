"""`tilewright.einsum`: NumPy's einsum, compiled, over any semiring, with fused epilogues; and plans of it.

>>> import numpy as np
>>> einsum("ij,jk->ik", np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
[[1.0, 2.0], [3.0, 4.0]]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.frontend.einsum_bind import BoundEinsum, bind
from tilewright.frontend.einsum_layout import Array, overlap, signature_of
from tilewright.frontend.einsum_options import EinsumOptions, hashable_tiles
from tilewright.frontend.einsum_parse import (
    Label,
    ParsedEinsum,
    interleaved_key,
    parse_interleaved,
    parse_string,
    read_term,
)
from tilewright.frontend.einsum_path import hashable_optimize
from tilewright.frontend.einsum_quick import with_first
from tilewright.frontend.semiring import Semiring
from tilewright.runtime.devices import Device

if TYPE_CHECKING:  # imported with the compiler, when something is compiled
    from tilewright.runtime.cpu_entry import NativeEntry

_CALLS: dict[Hashable, BoundEinsum] = {}
_LARGEST_CALL_CACHE = 4096
_RECENT: dict[Hashable, tuple[NativeEntry, ...]] = {}  # by expression and options: short cuts of the forms met last
_NDARRAY = np.ndarray


def einsum(
    *operands: Any,
    out: Array | None = None,
    dtype: Any = None,
    order: str | None = None,
    casting: str = "safe",
    optimize: Any = True,
    semiring: str | Semiring = "plus_times",
    epilogue: Callable[..., Any] | None = None,
    epilogue_operands: Sequence[Any] = (),
    alpha: int | float | complex = 1,
    beta: int | float | complex = 0,
    target: str | Device | None = None,
    tiles: Mapping[Any, Any] | None = None,
) -> Any:
    """Contract arrays as an index expression says.

    Everything that `numpy.einsum` accepts, and more: any letters and any hashable labels, output indices that repeat
    ("i->ii" writes a diagonal), other semirings, an epilogue that is computed before results are stored.

    Args:
        *operands: an expression and its operands, `einsum("ij,jk->ik", a, b)`, or operands and label lists in turns,
            `einsum(a, [0, 1], b, [1, 2], [0, 2])`. Operands are NumPy arrays of any strides, numbers, lists, or objects
            with `__array__` or `__dlpack__`. A dimension of size 1 goes with any size of its index; "..." stands for
            the dimensions that are not named.
        out: an array for the result, which is returned; it must have the result's shape and share no memory with the
            operands.
        dtype: the type to compute in (default: `numpy.result_type` of the operands). f16 and bf16 accumulate in f32
            and are rounded once.
        order: memory order of the result, "C", "F", "A" or "K", as in NumPy. By default a new array is C-ordered
            (NumPy's default is "K", which follows the operands), and a view stays a view.
        casting: which casts of operands to `dtype` and of the result to `out` are allowed, as in `numpy.can_cast`.
        optimize: the order of contraction of three and more operands: True, False (one loop nest), a method of
            opt_einsum ("greedy", "optimal", "dp", ...), or a path as `numpy.einsum_path` gives.
        semiring: what multiplies and adds: "plus_times", "min_plus", "max_plus", "max_times", "or_and", "log_sum_exp",
            or a `Semiring`.
        epilogue: a Python function that is traced once: of an element of the (alpha times) result, and one of each
            epilogue operand, giving the element to store.
        epilogue_operands: arrays, broadcast against the result as in NumPy, or pairs (array, indices), such as
            `(bias, "j")`, with indices of the output.
        alpha: factor of the contraction (a compile-time constant).
        beta: factor of what `out` held: out = epilogue(alpha * contraction) + beta * out.
        target: the device: "cpu", "opencl", "cuda:1", a `Device`; default the variable TILEWRIGHT_TARGET, or the CPU.
        tiles: tile sizes for devices with thread blocks, by index: (T, R) = threads and registers of an index of the
            output, Q = piece of a contracted one; indices that are left out get (1, 1), or at most 16. By default the
            cost model chooses.

    Returns:
        `out`; a new array; for a result without dimensions a NumPy scalar; and where one operand's dimensions are only
        picked and permuted ("ij->ji", "ii->i"), a writeable view of it, as in NumPy.

    Raises:
        ValueError: for expressions, shapes, paths, and option values that do not fit, naming the operand, the index
            and the sizes.
        TypeError: for dtypes that are not supported, casts that are not allowed, arguments of a wrong type.

    Example:
        >>> import numpy as np
        >>> distances = np.array([[0.0, 3.0], [1.0, 0.0]])
        >>> einsum("ij,jk->ik", distances, distances, semiring="min_plus").tolist()
        [[0.0, 3.0], [1.0, 0.0]]
        >>> bias = np.array([10.0, -10.0])
        >>> einsum("ij,jk->ik", distances, distances, epilogue=lambda c, b: np.maximum(c + b, 0),
        ...        epilogue_operands=[(bias, "k")]).tolist()
        [[13.0, 0.0], [10.0, 0.0]]
    """
    place = os.environ.get("TILEWRIGHT_TARGET") if target is None else target
    recent: Hashable = None
    if type(epilogue_operands) is tuple and not epilogue_operands and operands and type(operands[0]) is str:
        recent = (operands[0], dtype, order, casting, optimize, semiring, epilogue, alpha, beta, place, tiles)
        try:
            entries = _RECENT.get(recent, ())
        except TypeError:  # options that cannot be hashed
            recent, entries = None, ()
        for entry in entries:
            found = entry(*operands[1:], out)
            if found is not None:
                return found
    if operands and type(operands[0]) is str:
        expression: Hashable = operands[0]
        arrays = operands[1:]
    else:
        expression, arrays = _interleaved(operands)
    for one in arrays:
        if type(one) is not _NDARRAY:
            arrays = tuple(map(as_array, arrays))
            break
    labels: tuple[tuple[Label, ...] | None, ...] = ()
    operand_count = len(arrays)
    if type(epilogue_operands) is not tuple or epilogue_operands:
        extra, labels = _epilogue_operands(epilogue_operands)
        arrays = (*arrays, *extra)
    if out is None and beta:
        raise ValueError(f"einsum: beta = {beta} needs out, whose elements it multiplies")
    if out is not None and not isinstance(out, _NDARRAY):
        raise TypeError(f"einsum: out must be a NumPy array, not {out!r} of type {type(out).__name__}")
    key: Hashable = (
        expression, operand_count, *[(one.dtype, one.shape, one.strides) for one in arrays],
        None if out is None else (out.dtype, out.shape, out.strides),
        dtype, order, casting, optimize, semiring, epilogue, labels, alpha, beta, place,
        hashable_tiles(tiles),
    )  # fmt: skip
    try:
        bound = _CALLS.get(key)
    except TypeError:  # optimize may be a list; everything else that cannot be hashed is refused below
        key, bound = None, None
    if bound is None:
        options = EinsumOptions(
            dtype, order, casting, hashable_optimize(optimize), semiring, epilogue, labels, alpha, beta, target,
            hashable_tiles(tiles),
        )  # fmt: skip
        bound = _bound(expression, arrays, operand_count, out, options)
        if key is not None:
            _remember(key, bound)
    if out is None:
        result = bound.run(arrays, None)
    else:
        check_out(out, arrays)
        result = bound.run((*arrays, out) if beta else arrays, out)
    if recent is not None and bound.quick is not None and bound.quick.entries:
        if len(_RECENT) >= _LARGEST_CALL_CACHE:
            _RECENT.clear()
        _RECENT[recent] = with_first(bound.quick.entries[0], _RECENT.get(recent, ()))
    return result


def _interleaved(operands: Sequence[Any]) -> tuple[Hashable, tuple[Any, ...]]:
    if not operands:
        raise ValueError("einsum needs an expression and operands, or operands and their indices")
    if len(operands) == 1:
        raise TypeError(f"einsum needs an expression or indices; it was given only {operands[0]!r}")
    return interleaved_key(operands), tuple(operands[0 : len(operands) - len(operands) % 2 : 2])


def as_array(operand: Any) -> Array:
    """An operand as a plain NumPy array, without a copy where it can be had: arrays, numbers, lists, DLPack."""
    if isinstance(operand, _NDARRAY):
        return np.asarray(operand)
    if hasattr(operand, "__dlpack__") and not hasattr(operand, "__array__"):
        return np.from_dlpack(operand)
    array = np.asarray(operand)
    if array.dtype == object and not hasattr(operand, "__array__"):
        raise TypeError(f"einsum: {operand!r} of type {type(operand).__name__} is no array of numbers")
    return array


def _epilogue_operands(given: Sequence[Any]) -> tuple[list[Array], tuple[tuple[Label, ...] | None, ...]]:
    if isinstance(given, _NDARRAY) or not isinstance(given, Sequence):
        raise TypeError("epilogue_operands must be a list of arrays or of pairs (array, indices)")
    arrays: list[Array] = []
    labels: list[tuple[Label, ...] | None] = []
    for one in given:
        pair = isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], str | list | tuple)
        arrays.append(as_array(one[0] if pair else one))
        if not pair:
            labels.append(None)
        else:
            labels.append(read_term(one[1], one[1]) if isinstance(one[1], str) else tuple(one[1]))
    return arrays, tuple(labels)


def _bound(
    expression: Hashable, arrays: Sequence[Array], operand_count: int, out: Array | None, options: EinsumOptions
) -> BoundEinsum:
    signatures = [signature_of(one) for one in arrays]
    return bind(
        parsed_expression(expression),
        signatures[:operand_count],
        signatures[operand_count:],
        None if out is None else signature_of(out),
        options,
    )


def parsed_expression(expression: Any) -> ParsedEinsum:
    """An expression string, or label lists as `interleaved_key` gives them, parsed."""
    return parse_string(expression) if isinstance(expression, str) else parse_interleaved(*expression)


def _remember(key: Hashable, bound: BoundEinsum) -> None:
    if len(_CALLS) >= _LARGEST_CALL_CACHE:
        _CALLS.clear()
    _CALLS[key] = bound


def check_out(out: Array, arrays: Sequence[Array]) -> None:
    """Refuse an `out` that cannot be written while the operands are read.

    Raises:
        ValueError: if it is read-only or shares memory with an operand, naming that.
    """
    if not out.flags.writeable:
        raise ValueError("einsum: out is read-only")
    for number, one in enumerate(arrays):
        if overlap(out, one):
            raise ValueError(
                f"einsum: out shares memory with operand {number}, which is still read while out is written; "
                "give another array, or a copy of the operand"
            )
