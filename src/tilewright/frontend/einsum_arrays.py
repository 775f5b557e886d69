"""Operands and results of an einsum as NumPy arrays: taking them, making them, and whether they share memory.

The first call imports this and little else, so that it imports nothing of the compiler.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tilewright.frontend.torch_tensors import array_of, is_tensor
from tilewright.runtime.recycling import LARGE
from tilewright.runtime.result_arrays import is_masked, share_elements

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Strides: TypeAlias = tuple[int, ...]


def as_arrays(operands: Iterable[Any], caller: str = "einsum", kind: str = "operand") -> tuple[Array, ...]:
    """Operands as plain NumPy arrays; what cannot be one is refused with its number."""
    return tuple(as_array(one, caller, f" ({kind} {number})") for number, one in enumerate(operands))


def as_array(operand: Any, caller: str = "einsum", which: str = "") -> Array:
    """An operand as a plain NumPy array, without a copy where it can be had: arrays, numbers, lists, DLPack.

    Raises:
        TypeError, ValueError, RuntimeError: for what cannot be one, beginning with the caller, ending with which it is.
    """
    if isinstance(operand, np.ndarray):
        if is_masked(operand):
            raise TypeError(
                f"{caller}: a masked array's mask would be lost (the array of shape {operand.shape}); give its .data, "
                f"or .filled() with a value{which}"
            )
        return np.asarray(operand)
    try:
        if hasattr(operand, "__dlpack__"):
            if not hasattr(operand, "__array__"):
                return np.from_dlpack(operand)
            operand = readable(operand)
        array = np.asarray(operand)
    except (RuntimeError, TypeError) as error:  # of torch, for tensors that require a gradient, say
        kind = TypeError if isinstance(error, TypeError) else RuntimeError
        raise kind(f"{caller}: an operand of type {type(operand).__name__}: {error}{which}") from error
    except ValueError as error:
        from tilewright.runtime.messages import brief

        raise ValueError(
            f"{caller}: {brief(operand)} is no array: its rows are of different lengths or depths{which}"
        ) from error
    if array.dtype == object and not hasattr(operand, "__array__"):
        from tilewright.runtime.messages import value_text  # calls from the disk do without

        if all(isinstance(one, int | float | complex | np.number) for one in array.flat):  # which NumPy has as objects
            raise TypeError(
                f"{caller}: {value_text(operand)} has an integer that 64 bits cannot hold; write it as a float{which}"
            )
        raise TypeError(f"{caller}: {value_text(operand)} is no array of numbers{which}")
    return array


def readable(tensor: Any) -> Any:
    """A tensor that NumPy can read: torch gives its bf16 to nobody but as integers of the same bits."""
    if is_tensor(tensor):
        return array_of(tensor, "a tensor")
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    if isinstance(tracer, type) and isinstance(tensor, tracer):
        raise TypeError(
            "jax traces this array, whose elements are not known yet; have jax call the function with arrays: "
            "jax.pure_callback(function, jax.ShapeDtypeStruct(shape, dtype), *arrays), which has no gradient"
        )
    if str(getattr(tensor, "dtype", "")) != "torch.bfloat16" or tensor.requires_grad:
        return tensor
    from tilewright.ir.scalars import BF16

    return tensor.view(sys.modules["torch"].int16).numpy().view(BF16.numpy)


def row_major_strides(shape: Sequence[int], itemsize: int) -> Strides:
    """The strides of a new array in C order."""
    strides: list[int] = []
    for extent in reversed(shape):
        strides.insert(0, itemsize)
        itemsize *= max(extent, 1)
    return tuple(strides)


def can_exist(shape: Sequence[int], itemsize: int) -> bool:
    """Whether an array may have this shape: as in NumPy, its extents above 0 count, and the bytes fit 64 bits.

    >>> can_exist((2**31, 2**31), 1), can_exist((0, 2**63), 1), can_exist((-1,), 8)
    (True, False, False)
    """
    return min(shape, default=0) >= 0 and math.prod(max(1, one) for one in shape) * itemsize < 2**63


def fresh_strides(shape: Sequence[int], itemsize: int, axes: Sequence[int]) -> Strides:
    """The strides of what `empty_result` makes."""
    inner = row_major_strides([shape[axis] for axis in axes], itemsize)
    return tuple(inner[axes.index(axis)] for axis in range(len(axes)))


def large_result(shape: tuple[int, ...], dtype: np.dtype[Any], axes: tuple[int, ...]) -> Callable[[], Array] | None:
    """What makes such a result, if its memory is recycled: short kernels wait for every function on the way."""
    if not _is_large(shape, dtype):
        return None
    if axes != tuple(range(len(shape))):
        return partial(empty_result, shape, dtype, axes)
    from tilewright.runtime.memory import aligned_empty

    return partial(aligned_empty, shape, dtype, "the result")


def empty_result(shape: tuple[int, ...], dtype: np.dtype[Any], axes: Sequence[int]) -> Array:
    """A new array whose axes lie in memory in the given order, outermost first."""
    if tuple(axes) == tuple(range(len(shape))):
        return _empty(shape, dtype)
    inner = _empty(tuple(shape[axis] for axis in axes), dtype)
    return inner.transpose([axes.index(axis) for axis in range(len(axes))])


def held_by(out: Array) -> Array:
    """A copy of what an array holds, in native byte order; its axes lie in memory as those of the array do."""
    dtype = out.dtype.newbyteorder("=")
    if not _is_large(out.shape, dtype):
        return out.astype(dtype, "K")
    copy = empty_result(out.shape, dtype, sorted(range(out.ndim), key=lambda axis: -abs(out.strides[axis])))
    np.copyto(copy, out)
    return copy


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if not _is_large(shape, dtype):
        return np.empty(shape, dtype)
    from tilewright.runtime.memory import aligned_empty

    return aligned_empty(shape, dtype, "the result")


def _is_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return math.prod(shape) * dtype.itemsize >= LARGE


def check_factors(**factors: Any) -> None:
    """Refuse factors of a result that are not numbers.

    Raises:
        TypeError: naming the argument.
    """
    for name, value in factors.items():
        if not isinstance(value, int | float | complex | np.number | np.bool_):
            from tilewright.runtime.messages import value_text  # calls from the disk do without

            raise TypeError(f"einsum: {name} must be a number, not {value_text(value)}")


def check_out(out: Array, arrays: Sequence[Array], operand_count: int) -> None:
    """Refuse an `out` that cannot be written while the operands are read; the epilogue's follow so many of them.

    Raises:
        ValueError: if it is read-only or shares memory with an operand, naming that.
    """
    if not out.flags.writeable:
        raise ValueError(f"einsum: out is read-only (shape {out.shape}); give an array that can be written")
    for number, one in enumerate(arrays):
        if share_elements(out, one):
            is_extra = number >= operand_count
            which = f"epilogue operand {number - operand_count}" if is_extra else f"operand {number}"
            raise ValueError(
                f"einsum: out shares memory with {which}, which is still read while out is written; "
                "give another array, or a copy of the operand"
            )
