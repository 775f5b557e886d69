"""Folds of the rows of matrices that read through indices, of few rows and of many, against NumPy."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.points.scan_strips import STRIP
from tilewright.passes.points.short_folds import MOST_ROWS


@tw.program
def picked(weights: tw.i64["n", "w"], columns: tw.i32["n", "w"], x: tw.i64["m"]) -> Any:
    def row(entries: Any, places: Any) -> Any:
        return tw.reduce("add", 0, tw.map(lambda value, column: value * x[column], entries, places))

    return tw.map(row, weights, columns)


@tw.program
def last_known(flags: tw.i32["n", "w"], columns: tw.i32["n", "w"], x: tw.i32["m"]) -> Any:
    """In each row the value at the last flag: an operator that does not commute; -1 is no value."""

    def row(marks: Any, places: Any) -> Any:
        values = tw.map(lambda mark, column: tw.where(mark > 0, x[column], -1), marks, places)
        return tw.reduce(lambda one, two: tw.where(two == -1, one, two), -1, values)

    return tw.map(row, flags, columns)


def last_reference(flags: np.ndarray, columns: np.ndarray, x: np.ndarray) -> np.ndarray:
    found = np.full(len(flags), -1, np.int32)
    for i, (marks, places) in enumerate(zip(flags, columns, strict=True)):
        if np.any(marks > 0):
            found[i] = x[places[np.flatnonzero(marks > 0)[-1]]]
    return found


def arguments(random: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return random.integers(-9, 9, shape), random.integers(0, 30, shape).astype("i4"), random.integers(0, 99, 30)


def check(weights: np.ndarray, columns: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_array_equal(picked(weights, columns, x), np.sum(weights * x[columns], axis=1))
    flags, values = weights.astype("i4"), x.astype("i4")
    np.testing.assert_array_equal(last_known(flags, columns, values), last_reference(flags, columns, values))


@given(
    st.integers(0, 70), st.sampled_from([0, 1, 2, 7, 15, 16, 17, 33, MOST_ROWS - 1, MOST_ROWS, 200]), st.integers(0, 99)
)
@settings(deadline=None, max_examples=60)
def test_rows_of_any_length(rows: int, width: int, seed: int) -> None:
    check(*arguments(np.random.default_rng(seed), (rows, width)))


@given(st.integers(0, 9), st.sampled_from(["columns first", "every second row", "every second column"]))
@settings(deadline=None, max_examples=20)
def test_rows_that_do_not_lie_together(seed: int, layout: str) -> None:
    weights, columns, x = arguments(np.random.default_rng(seed), (40, 12))
    if layout == "columns first":
        check(np.asfortranarray(weights), columns, x)
    elif layout == "every second row":
        check(weights[::2], columns[::2], x)
    else:
        check(weights[:, ::2], columns[:, ::2], x)


def test_many_rows(threads: int) -> None:
    check(*arguments(np.random.default_rng(1), (20_000, 9)))
    check(*arguments(np.random.default_rng(2), (STRIP + 3, STRIP // 5)))


def test_an_index_out_of_range_is_reported() -> None:
    weights, columns, x = arguments(np.random.default_rng(3), (50, 6))
    columns[33, 2] = -4
    for _ in range(2):
        with pytest.raises(IndexError, match="index -4 of x is out of range in dimension 0 of extent 30"):
            picked(weights, columns, x)


@tw.program
def above(rows: tw.f64["n", "w"], limits: tw.f64["n"]) -> Any:
    def row(values: Any, limit: Any) -> Any:
        return tw.reduce("max", -np.inf, tw.map(lambda x: tw.where(x > limit, x, limit), values))

    return tw.map(row, rows, limits)


@pytest.mark.parametrize("shape", [(5, 3), (3, 0), (4, 200)])
def test_the_rows_use_a_scalar_of_the_point(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    rows, limits = random.normal(size=shape), random.normal(size=shape[0])
    expected = np.max(np.maximum(rows, limits[:, None]), axis=1, initial=-np.inf)
    np.testing.assert_array_equal(above(rows, limits), expected)


def test_a_contraction_over_nothing_uses_a_scalar_of_the_point() -> None:
    empty = tw.einsum("ba,a->a", np.ones((0, 2)), np.ones(2), semiring="min_plus")
    np.testing.assert_array_equal(empty, [np.inf, np.inf])
