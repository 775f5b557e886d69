"""Folds and running sums of matrices as plain loops for numba; columns are folded row after row.

Rows are shared out between threads where there are several; `numba.set_num_threads` says how many.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np

_rows = partial(numba.njit, cache=True, fastmath=True, parallel=True)
_columns = partial(numba.njit, cache=True, fastmath=True)


@_rows()
def sum_rows(x: Any) -> Any:
    found = np.empty(x.shape[0], x.dtype)
    for i in numba.prange(x.shape[0]):
        total = x.dtype.type(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        found[i] = total
    return found


@_rows()
def max_rows(x: Any) -> Any:
    found = np.empty(x.shape[0], x.dtype)
    for i in numba.prange(x.shape[0]):
        best = x[i, 0]
        for j in range(1, x.shape[1]):
            best = max(best, x[i, j])
        found[i] = best
    return found


@_rows()
def softmax_rows(x: Any) -> Any:
    found = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        best = x[i, 0]
        for j in range(1, x.shape[1]):
            best = max(best, x[i, j])
        total = x.dtype.type(0)
        for j in range(x.shape[1]):
            found[i, j] = np.exp(x[i, j] - best)
            total += found[i, j]
        for j in range(x.shape[1]):
            found[i, j] /= total
    return found


@_rows()
def cumsum_rows(x: Any) -> Any:
    found = np.empty_like(x)
    for i in numba.prange(x.shape[0]):
        total = x.dtype.type(0)
        for j in range(x.shape[1]):
            total += x[i, j]
            found[i, j] = total
    return found


@_columns()
def sum_columns(x: Any) -> Any:
    found = np.zeros(x.shape[1], x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            found[j] += x[i, j]
    return found


@_columns()
def max_columns(x: Any) -> Any:
    found = x[0].copy()
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            found[j] = max(found[j], x[i, j])
    return found


@_columns()
def argmax_columns(x: Any) -> Any:
    best, found = x[0].copy(), np.zeros(x.shape[1], np.int64)
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > best[j]:
                best[j], found[j] = x[i, j], i
    return found


@_columns()
def cumsum_columns(x: Any) -> Any:
    found = np.empty_like(x)
    found[0] = x[0]
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            found[i, j] = found[i - 1, j] + x[i, j]
    return found


LOOPS = {
    "sum rows": sum_rows, "max rows": max_rows, "softmax rows": softmax_rows, "cumsum rows": cumsum_rows,
    "sum columns": sum_columns, "max columns": max_columns, "argmax columns": argmax_columns,
    "cumsum columns": cumsum_columns,
}  # fmt: skip
