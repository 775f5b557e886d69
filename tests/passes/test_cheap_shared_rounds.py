"""A nest is opened to get at rounds of a loop that share something dear, not for an index that is compared."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import tilewright as tw


def eliminated(shared: Any) -> Any:
    """Solves of small systems, whose rounds share what `shared` makes of a pivot and the rows' numbers."""

    @tw.program
    def solve(matrices: tw.f64["n", "m", "m"], sides: tw.f64["n", "m"]) -> Any:
        def one(matrix: Any, side: Any) -> Any:
            def step(pivot: Any, rows: Any, side: Any) -> Any:
                row, value = rows[pivot] / rows[pivot, pivot], side[pivot] / rows[pivot, pivot]
                is_pivot, factors = shared(tw.iota(matrix.shape[0]), pivot), rows[:, pivot]
                others = rows - factors[:, None] * row
                return np.where(is_pivot[:, None], row, others), np.where(is_pivot, value, side - factors * value)

            return tw.loop(matrix.shape[0], (matrix, side), step)[1]

        return tw.map(one, matrices, sides)

    return solve


def test_many_small_systems_run_as_they_are_written() -> None:
    solve = eliminated(lambda rows, pivot: rows == pivot)
    assert 0 < solve.thresholds()["outer_0"] < inf
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((9_000, 6, 6)) + 9 * np.eye(6)  # more than 2^18 points in all: versions pay
    sides = rng.standard_normal((9_000, 6))
    np.testing.assert_allclose(solve(matrices, sides), np.linalg.solve(matrices, sides[..., None])[..., 0], rtol=1e-9)


@pytest.mark.parametrize("function", [tw.exp, lambda x: tw.scan("add", 0.0, x)], ids=["exp", "scan"])
def test_rounds_that_share_something_dear_are_laid_bare(function: Any) -> None:
    solve = eliminated(lambda rows, pivot: function((rows - pivot).astype(tw.f64)) == 1.0)
    assert solve.thresholds()["outer_0"] == inf
