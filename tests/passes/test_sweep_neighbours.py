"""Scans whose rows read neighbours by checked indices: strips of them are read in vectors, and errors are told."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.i64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw


@tw.program
def run_ends(x: tw.i64["n"]) -> Any:
    """The value and the end of each run of equal numbers, and how many runs end up to each place."""
    (n,) = x.shape
    ends = tw.map(lambda i: (i == n - 1) | (x[i] != x[tw.minimum(i + 1, n - 1)]), tw.iota(n))
    place = tw.scan("add", 0, tw.where(ends, 1, 0))
    at = tw.where(ends, place - 1, -1)
    nothing = tw.replicate(n, 0)
    return tw.scatter(nothing, at, x), tw.scatter(nothing, at, tw.iota(n)), place


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 5000), st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([1, 2]))
def test_runs(n: int, values: int, seed: int, threads: int) -> None:
    x = np.sort(np.random.default_rng(seed).integers(0, values, n))
    before = tw.get_num_threads()
    tw.set_num_threads(threads)
    try:
        found = run_ends(x, target="cpu")
    finally:
        tw.set_num_threads(before)
    ends = np.append(x[1:] != x[:-1], True)[:n]
    expected = np.zeros((2, n), np.int64)
    expected[0, : ends.sum()], expected[1, : ends.sum()] = x[ends], np.flatnonzero(ends)
    for one, wanted in zip(found, (*expected, np.cumsum(ends)), strict=True):
        np.testing.assert_array_equal(one, wanted)


@tw.program
def summed(x: tw.f64["n"], at: tw.i64["m"]) -> Any:
    return tw.scan("add", 0.0, tw.map(lambda i: 2.0 * x[i], at))


@pytest.mark.parametrize("wrong", [None, 0, 511, 600, 1299])
def test_indices_out_of_range(wrong: int | None) -> None:
    random = np.random.default_rng(0)
    x, at = random.random(50), random.integers(0, 50, 1300)
    if wrong is None:
        np.testing.assert_allclose(summed(x, at, target="cpu"), np.cumsum(2 * x[at]))
        return
    at[wrong] = 50 + wrong
    with pytest.raises(IndexError, match=f"{50 + wrong}"):
        summed(x, at, target="cpu")


@tw.program
def counted(n: tw.i64) -> Any:
    """Rows of no array but numbers."""
    return tw.scan("add", 0, tw.map(lambda i: tw.where(i % 3 == 0, i, 1), tw.iota(n)))


def test_rows_of_numbers_alone() -> None:
    rows = np.arange(1000)
    np.testing.assert_array_equal(counted(1000, target="cpu"), np.cumsum(np.where(rows % 3 == 0, rows, 1)))
