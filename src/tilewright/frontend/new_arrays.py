"""Arrays of the caller's own for results: `empty`."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Literal, SupportsIndex

import numpy as np

from tilewright.frontend.einsum_arrays import Array, can_exist
from tilewright.frontend.named_types import type_named
from tilewright.runtime.memory import aligned_empty


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = "f64", order: Literal["C", "F"] = "C") -> Array:
    """A new NumPy array with undefined content, in memory that suits results: for `out=`, and for operands.

    It begins with a cache line. NumPy's large arrays begin 16 bytes behind one, so that no vector of results which are
    larger than the caches is a line, as it had best be (docs/performance.md has figures). From 1 MiB on the memory is
    that of arrays no longer used, if there is any, which the system need not give and clear again, and lies in huge
    pages where there are such; it is given back for further arrays when this one is no longer used.

    Args:
        shape: the extents, or one of them.
        dtype: of the elements, in the machine's byte order; a dtype of NumPy or one of this package's names (`"f32"`).
            "i8" and "u8" are refused, which are eight bytes in NumPy and eight bits as `tw.i8` and `tw.u8`.
        order: the last index changes fastest in memory ("C"), or the first one ("F").

    Raises:
        ValueError: for a negative extent, a size of 2**63 bytes or more, an order that is neither, and the names "i8"
            and "u8".
        TypeError: for extents that are no integers, and a dtype that is not supported.
        MemoryError: if the host cannot serve it.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> result = tw.empty((300, 200), "f32")
        >>> left, right = np.ones((300, 8), np.float32), np.ones((8, 200), np.float32)
        >>> bool((tw.einsum("iq,qj->ij", left, right, out=result) == 8).all())
        True
        >>> result.ctypes.data % 64
        0
    """
    extents = _extents(shape)
    if order not in ("C", "F"):
        raise ValueError(f"empty: order must be 'C' or 'F', not {order!r}")
    element = type_named(dtype, "empty").numpy
    if not can_exist(extents, element.itemsize):
        raise ValueError(f"empty: no array can have the shape {extents} with elements of {element.itemsize} bytes")
    if order == "F":
        return aligned_empty(extents[::-1], element, f"an array of shape {extents}").T
    return aligned_empty(extents, element, f"an array of shape {extents}")


def _extents(shape: Any) -> tuple[int, ...]:
    try:
        several = shape if isinstance(shape, list | tuple) or np.ndim(shape) else (shape,)
        return tuple(map(operator.index, several))
    except TypeError as error:
        raise TypeError(f"empty: a shape is an integer or several of them, not {shape!r}") from error
