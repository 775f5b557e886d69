"""Needleman-Wunsch: the score of the best alignment of two sequences, row by row.

    python examples/needleman.py --size medium

Within a row, h[j] = max(b[j], h[j - 1] - gap) is a scan: h[j] + gap j is the largest b[i] + gap i so far.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, exactly, main

import tilewright as tw

_SIZES = {"tiny": 17, "small": 200, "medium": 2_000, "large": 8_000}
_MATCH, _MISMATCH = 3, -2


@tw.program
def needleman(one: tw.i32["n"], two: tw.i32["m"], gap: tw.i32) -> Any:
    places = tw.map(lambda j: (j + 1).astype("i32"), tw.iota(two.shape[0]))
    first = tw.map(lambda j: -gap * j, places)

    def step(i: Any, above: Any) -> Any:
        letter, row = one[i], i.astype("i32")

        def best(j: Any, other: Any, up: Any) -> Any:
            diagonal = tw.cond(j == 1, lambda: -gap * row, lambda: above[j.astype("i64") - 2])
            score = tw.where(letter == other, _MATCH, _MISMATCH)
            below_edge = tw.where(j == 1, -gap * (row + 1) - gap, diagonal + score)
            return tw.maximum(tw.maximum(diagonal + score, up - gap), below_edge) + gap * j

        largest = tw.scan("max", -(2**31), tw.map(best, places, two, above))
        return tw.map(lambda j, value: value - gap * j, places, largest)

    return tw.loop(one.shape[0], first, step)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(size) for name, size in _SIZES.items()}


def _arguments(size: int) -> Arguments:
    rng = np.random.default_rng(9)
    one, two = (rng.integers(0, 4, length).astype(np.int32) for length in (size, size + 5))
    return one, two, np.int32(1)


def work(one: Any, two: Any, gap: Any) -> dict[str, float]:
    """Five operations for a cell."""
    return {"flops": 5.0 * len(one) * len(two)}


def reference(one: Any, two: Any, gap: Any) -> Any:
    """The last row of the table, computed along its anti-diagonals, which shows another way through it."""
    n, m = len(one), len(two)
    table = np.zeros((n + 1, m + 1), np.int64)
    table[0], table[:, 0] = -int(gap) * np.arange(m + 1), -int(gap) * np.arange(n + 1)
    for diagonal in range(2, n + m + 1):
        i = np.arange(max(1, diagonal - m), min(n, diagonal - 1) + 1)
        j = diagonal - i
        score = np.where(one[i - 1] == two[j - 1], _MATCH, _MISMATCH)
        side = np.maximum(table[i - 1, j], table[i, j - 1]) - int(gap)
        table[i, j] = np.maximum(table[i - 1, j - 1] + score, side)
    return exactly(table[n, 1:])


references = {"needleman": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
