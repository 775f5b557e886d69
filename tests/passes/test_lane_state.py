"""Points that loop with arrays of their own, or go through their rows in every round: side by side in lanes."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.lanes.lane_loops import LANES

POINTS = st.sampled_from([1, LANES - 1, LANES, LANES + 3, 3 * LANES])


@tw.program
def sometimes(rows: tw.f64["m", "n"], t: tw.i64) -> Any:
    """Rounds over a row on one side of a choice alone; what follows reads the row, too."""

    def point(row: Any) -> Any:
        def rounds() -> Any:
            return tw.loop(
                t,
                tw.replicate(3, 0.0),
                lambda k, now: tw.map(lambda old: old + tw.reduce("add", 0.0, row * tw.cast(k + 1, "f64")), now),
            )

        state = tw.cond(row[0] > 0, rounds, lambda: tw.replicate(3, 1.0))
        again = tw.loop(t, state, lambda k, now: tw.map(lambda old: old * 0.5 + row[1], now))
        return again, tw.reduce("add", 0.0, row)

    return tw.map(point, rows)


@pytest.mark.parametrize("m", [5, LANES, 2 * LANES + 7])
@pytest.mark.parametrize("t", [0, 1, 4])
def test_a_row_that_only_one_side_goes_through(m: int, t: int) -> None:
    rows = np.random.default_rng(m + t).uniform(-1, 1, (m, 6))
    rows[0, 0], rows[-1, 0] = -0.5, 0.5
    totals = rows.sum(1)
    state = np.where(rows[:, 0] > 0, totals * t * (t + 1) / 2, 1.0)
    for _ in range(t):
        state = state * 0.5 + rows[:, 1]
    found = sometimes(rows, t, target="cpu")
    np.testing.assert_allclose(found[0], np.repeat(state[:, None], 3, 1), atol=1e-12)
    np.testing.assert_allclose(found[1], totals, atol=1e-12)


@tw.program
def relaxed(start: tw.f64["m", "n", "n"], matrices: tw.f64["m", "n", "n"], t: tw.i64) -> Any:
    """Rounds that write a matrix anew, after rounds of another kind that write a vector of it in place."""

    def point(first: Any, matrix: Any) -> Any:
        n = first.shape[0]

        def step(_: Any, now: Any) -> Any:
            return tw.map(lambda row: tw.map(lambda c: tw.reduce("add", 0.0, row * c), tw.transpose(matrix)), now)

        last = tw.loop(t, first, step)
        sums = tw.loop(n, last[0], lambda k, v: tw.update(v, k, v[n - 1 - k] + matrix[k, k]))
        return last, sums

    return tw.map(point, start, matrices)


@settings(deadline=None, max_examples=15)
@given(POINTS, st.integers(1, 10), st.integers(0, 4))
def test_matrices_that_take_turns(m: int, n: int, t: int) -> None:
    random = np.random.default_rng(m * 100 + n)
    now, matrices = random.uniform(-1, 1, (m, n, n)), random.uniform(-1, 1, (m, n, n)) / n
    found = relaxed(now, matrices, t, target="cpu")
    for _ in range(t):
        now = now @ matrices
    sums = now[:, 0].copy()
    for k in range(n):
        sums[:, k] = sums[:, n - 1 - k] + matrices[:, k, k]
    np.testing.assert_allclose(found[0], now, atol=1e-12)
    np.testing.assert_allclose(found[1], sums, atol=1e-12)


@tw.program
def solved(matrices: tw.f64["m", "n", "n"], right: tw.f64["m", "n"]) -> Any:
    """Conjugate gradients: two vectors that rounds change where they lie, and one that they make anew from both."""

    def point(matrix: Any, b: Any) -> Any:
        def step(_: Any, x: Any, left: Any, way: Any, size: Any) -> Any:
            along = tw.map(lambda row: tw.reduce("add", 0.0, row * way), matrix)
            far = size / tw.maximum(tw.reduce("add", 0.0, way * along), 1e-300)
            x, left = x + far * way, left - far * along
            now = tw.reduce("add", 0.0, left * left)
            return x, left, left + now / tw.maximum(size, 1e-300) * way, now

        return tw.loop(2 * b.shape[0], (b * 0.0, b, b, tw.reduce("add", 0.0, b * b)), step)[0]

    return tw.map(point, matrices, right)


@settings(deadline=None, max_examples=15)
@given(POINTS, st.integers(1, 12), st.integers(0, 2**16))
def test_arrays_in_place_beside_ones_that_take_turns(m: int, n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    factors = random.uniform(-1, 1, (m, n, n)) / n
    matrices, right = factors @ factors.transpose(0, 2, 1) + np.eye(n), random.uniform(-1, 1, (m, n))
    expected = np.linalg.solve(matrices, right[:, :, None])[:, :, 0]
    np.testing.assert_allclose(solved(matrices, right, target="cpu"), expected, atol=1e-9)
