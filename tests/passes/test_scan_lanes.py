"""Scans in vectors against NumPy: operators that do not commute, extents around strips and chunks, nan, threads."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.points.scan_lanes import LEAST_ROWS
from tilewright.passes.points.scan_strips import FAN, STRIP

EXTENTS = sorted({0, 1, 2, 15, 16, 17, *(LEAST_ROWS + d for d in (-1, 0, 1)), *(STRIP + d for d in (-1, 0, 1)), 1300})


@tw.program
def added(x: tw.f32["n"]) -> Any:
    return tw.scan("add", 0, x)


@tw.program
def added_integers(x: tw.i32["n"]) -> Any:
    return tw.scan("add", 0, x)


@tw.program
def largest(x: tw.f64["n"]) -> Any:
    return tw.scan("max", -np.inf, x)


@tw.program
def affine(slope: tw.i64["n"], shift: tw.i64["n"]) -> Any:
    """The composition of functions x -> slope x + shift, the first one innermost: it does not commute."""
    return tw.scan(lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]), (1, 0), slope, shift)


@tw.program
def restarted(x: tw.i64["n"], begins: tw.bool_["n"]) -> Any:
    def add(one: Any, two: Any) -> Any:
        return tw.where(two[1], two[0], one[0] + two[0]), one[1] | two[1]

    return tw.scan(add, (0, False), x, begins)


@tw.program
def gathered(at: tw.i64["n"], x: tw.f64["m"]) -> Any:
    """Rows that are read through indices, some only on one side of a condition."""

    def row(i: Any, k: Any) -> Any:
        return tw.cond(k == 0, lambda: 0.5, lambda: x[i] + x[k - 1])

    return tw.scan("min", np.inf, tw.map(row, at, tw.iota(at.shape[0])))


def affine_reference(slope: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b, found = np.int64(1), np.int64(0), []
    with np.errstate(over="ignore"):
        for c, d in zip(slope, shift, strict=True):
            a, b = a * c, c * b + d
            found.append((a, b))
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def restarted_reference(x: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total, found = 0, []
    for value, new in zip(x, begins, strict=True):
        total = value if new else total + value
        found.append(total)
    return np.array(found, np.int64), np.logical_or.accumulate(begins)


CASES: dict[str, tuple[Any, Callable[[np.random.Generator, int], tuple[np.ndarray, ...]], Callable[..., Any]]] = {
    "integers": (
        added_integers, lambda r, n: (r.integers(-99, 99, n).astype("i4"),), lambda x: np.cumsum(x, dtype="i4"),
    ),
    "maximum": (largest, lambda r, n: (r.standard_normal(n),), np.maximum.accumulate),
    "affine": (affine, lambda r, n: (r.integers(-9, 9, n), r.integers(-9, 9, n)), affine_reference),
    "restarted": (restarted, lambda r, n: (r.integers(-9, 9, n), r.random(n) < 0.1), restarted_reference),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@given(st.sampled_from(EXTENTS), st.integers(0, 9), st.sampled_from([1, 2, -1]))
@settings(deadline=None, max_examples=40)
def test_exact_operators(name: str, extent: int, seed: int, step: int) -> None:
    program, make, reference = CASES[name]
    arrays = make(np.random.default_rng(seed), extent * abs(step))
    arrays = tuple(one[::step] for one in arrays)
    found, wanted = program(*arrays), reference(*arrays)
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("extent", [(1 << 16) - 1, 1 << 16, (1 << 16) + 1, 3 * (1 << 16) + STRIP + 5])
def test_chunks(name: str, extent: int, threads: int) -> None:
    program, make, reference = CASES[name]
    arrays = make(np.random.default_rng(extent), extent)
    found, wanted = program(*arrays), reference(*arrays)
    for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        np.testing.assert_array_equal(one, other)


@given(st.sampled_from([*EXTENTS, 100_000, 3_000_000]), st.integers(0, 9), st.booleans())
@settings(deadline=None, max_examples=30)
def test_sums_err_as_trees_do(extent: int, seed: int, equal: bool) -> None:
    """A term goes through at most log2(16) + 2 additions in its vectors, one for each pair of these in a strip, FAN on
    each level of the tree of strips, one for each of 16 chunks, and a few between these; each result of a tree of n
    additions errs by n units of the sum of magnitudes [Higham, section 4.2].
    """
    x = np.random.default_rng(seed).standard_normal(extent).astype("f4")
    if equal:
        x = np.full(extent, 0.1, "f4")
    additions = 6 + STRIP / 32 + 2 * FAN + 16 + 6 if extent >= LEAST_ROWS else extent
    bound = additions * 2.0**-24 * 1.01 * np.cumsum(np.abs(x), dtype="f8")
    assert np.all(np.abs(added(x) - np.cumsum(x, dtype="f8")) <= bound)


def test_nan_spreads_from_its_row_on(threads: int) -> None:
    for extent, where in ((50, 7), (STRIP + 40, STRIP + 3), (1 << 17, 70_000)):
        x = np.random.default_rng(1).standard_normal(extent)
        x[where] = np.nan
        found = largest(x)
        np.testing.assert_array_equal(found[:where], np.maximum.accumulate(x[:where]))
        assert np.all(np.isnan(found[where:]))
        sums = added(x.astype("f4"))
        assert not np.any(np.isnan(sums[:where])) and np.all(np.isnan(sums[where:]))


@given(st.sampled_from(EXTENTS[1:]), st.integers(0, 9))
@settings(deadline=None, max_examples=30)
def test_rows_read_through_indices(extent: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, at = random.random(extent), random.integers(0, extent, extent)
    rows = np.concatenate([[0.5], x[at[1:]] + x[: extent - 1]])
    np.testing.assert_array_equal(gathered(at, x), np.minimum.accumulate(rows))


@pytest.mark.parametrize("extent", [5, 40, STRIP + 9])
@pytest.mark.parametrize("wrong", [-1, 1 << 40])
def test_an_index_out_of_range_is_reported(extent: int, wrong: int) -> None:
    x, at = np.zeros(extent), np.zeros(extent, np.int64)
    at[0] = wrong  # the row that does not read it
    gathered(at, x)
    at[extent - 2] = wrong
    with pytest.raises(IndexError, match=rf"index {wrong} of x is out of range in dimension 0 of extent {extent}"):
        gathered(at, x)


def test_scans_inside_maps(threads: int) -> None:
    @tw.program
    def rows(x: tw.i64["n", "m"]) -> Any:
        return tw.map(lambda row: tw.scan("add", 0, row), x)

    for shape in ((3, 40), (40, 3), (2, STRIP + 1), (0, 5), (5, 0)):
        x = np.random.default_rng(3).integers(-9, 9, shape)
        np.testing.assert_array_equal(rows(x), np.cumsum(x, 1))
        np.testing.assert_array_equal(rows(np.asfortranarray(x)), np.cumsum(x, 1))
