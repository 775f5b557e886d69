"""Sparse matrix times vector: rows padded to one length, and compressed rows by a segmented scan.

python examples/spmv.py --size large
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": (20, 4), "small": (1_000, 8), "medium": (50_000, 16), "large": (500_000, 16)}  # rows, most in a row


@tw.program
def padded(
    padded_values: tw.f32["n", "w"], padded_columns: tw.i32["n", "w"], values: tw.f32["e"], columns: tw.i32["e"],
    starts: tw.i64["r"], x: tw.f32["n"],
) -> Any:  # fmt: skip
    def row(entries: Any, places: Any) -> Any:
        return tw.reduce("add", 0, tw.map(lambda value, column: value * x[column], entries, places))

    return tw.map(row, padded_values, padded_columns)


@tw.program
def segmented(
    padded_values: tw.f32["n", "w"], padded_columns: tw.i32["n", "w"], values: tw.f32["e"], columns: tw.i32["e"],
    starts: tw.i64["r"], x: tw.f32["n"],
) -> Any:  # fmt: skip
    """Where a row begins, a flag makes the scan of all products start anew; a row's sum is at its last entry."""
    (count,) = values.shape
    products = tw.map(lambda value, column: value * x[column], values, columns)
    first = tw.scatter(tw.replicate(count, False), starts, True)

    def add(one: Any, two: Any) -> Any:
        return tw.where(two[1], two[0], one[0] + two[0]), one[1] | two[1]

    sums, _ = tw.scan(add, (0.0, False), products, first)

    def row(i: Any) -> Any:
        start, end = starts[i], starts[i + 1]
        return tw.cond(end > start, lambda: sums[end - 1], 0.0)

    return tw.map(row, tw.iota(x.shape[0]))


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(rows: int, widest: int) -> Arguments:
    """Random rows of one half to all of `widest` entries, around the diagonal; a row may also be empty."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(widest // 2, widest + 1, rows) * (rng.random(rows) < 0.95)
    present = np.arange(widest) < lengths[:, None]
    places = (np.arange(rows)[:, None] + rng.integers(-1000, 1001, (rows, widest))) % rows
    entries = np.where(present, rng.standard_normal((rows, widest)), 0).astype(np.float32)
    places = np.where(present, places, 0).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    x = rng.standard_normal(rows).astype(np.float32)
    return entries, places, entries[present], places[present], starts.astype(np.int64), x


def work(padded_values: Any, padded_columns: Any, values: Any, *_: Any) -> dict[str, float]:
    return {"flops": 2.0 * values.size}


def reference(padded_values: Any, padded_columns: Any, *rest: Any) -> Any:
    """In double precision; the bound is that of a row's own sum, for the scan adds within the rows only."""
    products = padded_values.astype(np.float64) * rest[-1][padded_columns]
    allowed = rounding(padded_values.shape[1] + 1, np.float32) * np.sum(np.abs(products), axis=1)
    return [(np.sum(products, axis=1), allowed)]


references = {"padded": reference, "segmented": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
