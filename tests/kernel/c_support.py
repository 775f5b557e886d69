"""What the tests of the C-family printers share: special values, ulps, and kernels that apply operators to arrays."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from opencl_runner import cpu_queue

from tilewright.ir.scalars import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, ScalarType

REALS = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.3, -3.7, 7.0, 88.0, -104.0, 1e-3, 1e30, -1e30,
           float("inf"), float("-inf"), float("nan"))  # fmt: skip


@functools.cache
def has_opencl() -> bool:
    return cpu_queue() is not None


needs_opencl = pytest.mark.opencl


def values_of(type_: ScalarType) -> np.ndarray:
    """The values at which an operator may go wrong."""
    if type_ == BOOL:
        return np.array([False, True])
    if type_.is_float:
        return np.array(_FLOATS).astype(type_.numpy)
    limits = np.iinfo(type_.numpy)
    numbers = {limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 3, 0, 1, 2, 3, 5, 7, 8}
    numbers |= {-1, -2, -3, -7, limits.min // 2} if limits.min < 0 else {limits.max // 2 + 1}
    return np.array(sorted(numbers), type_.numpy)


def operands_of(type_: ScalarType, multiple: int = 1) -> list[np.ndarray]:
    """Three arrays: all pairs of special values, and a third that runs through them; a multiple of so many."""
    values = values_of(type_)
    left, right = map(np.array, zip(*itertools.product(values, values), strict=True))
    size = -(-left.size // multiple) * multiple
    return [np.resize(array, size) for array in (left, right, values[::-1])]


def ulps(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many units in the last place of the expected values two arrays are apart; nan is equal to nan."""
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    with np.errstate(all="ignore"):
        distance = np.abs(found.astype(np.longdouble) - expected.astype(np.longdouble))
        smallest = np.finfo(found.dtype).smallest_subnormal
        unit = np.maximum(np.spacing(np.abs(expected.astype(found.dtype))), smallest).astype(np.longdouble)
        apart = distance / unit
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))
