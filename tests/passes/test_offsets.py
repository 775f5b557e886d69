"""Folds of rows between offsets, written as a scan that starts anew: with offsets that ascend, and with others."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Iota, OffsetFolds
from tilewright.passes.last_rewrites import sweep
from tilewright.passes.pipelines import run_pipeline
from tilewright.passes.points.scan_strips import STRIP


@tw.program
def sums(values: tw.i64["e"], columns: tw.i32["e"], starts: tw.i64["r"], x: tw.i64["n"], rows: tw.i8["q"]) -> Any:
    """For each of q rows the sum of its products, and -7 for an empty one."""
    products = tw.map(lambda value, column: value * x[column], values, columns)
    first = tw.scatter(tw.replicate(values.shape[0], False), starts, True)

    def add(one: Any, two: Any) -> Any:
        return tw.where(two[1], two[0], one[0] + two[0]), one[1] | two[1]

    found, _ = tw.scan(add, (0, False), products, first)

    def row(i: Any) -> Any:
        start, end = starts[i], starts[i + 1]
        return tw.cond(end > start, lambda: 2 * found[end - 1] + i, -7)

    return tw.map(row, tw.iota(rows.shape[0]))


@tw.program
def largest(values: tw.f32["e"], starts: tw.i64["r"], rows: tw.i8["q"]) -> Any:
    first = tw.scatter(tw.replicate(values.shape[0], False), starts, True)

    def combine(one: Any, two: Any) -> Any:
        return tw.where(two[1], two[0], tw.maximum(one[0], two[0])), one[1] | two[1]

    found, _ = tw.scan(combine, (-np.inf, False), values, first)

    def row(i: Any) -> Any:
        start, end = starts[i], starts[i + 1]
        return tw.cond(start < end, lambda: found[end - 1], -np.inf)

    return tw.map(row, tw.iota(rows.shape[0]))


def scanned(values: np.ndarray, starts: np.ndarray, combine: Any, neutral: Any) -> list[Any]:
    """The scan as it is written."""
    first = np.zeros(len(values), bool)
    first[starts[(starts >= 0) & (starts < len(values))]] = True
    found, running = [], neutral
    for value, begins in zip(values, first, strict=True):
        running = value if begins else combine(running, value)
        found.append(running)
    return found


def sums_reference(values: Any, columns: Any, starts: Any, x: Any, rows: Any) -> np.ndarray:
    found = scanned(values * x[columns], starts, lambda a, b: a + b, 0)
    wanted = []
    for i in range(len(rows)):
        inside = starts[i + 1] > starts[i]
        if inside and not 0 < starts[i + 1] <= len(values):
            raise IndexError
        wanted.append(2 * found[starts[i + 1] - 1] + i if inside else -7)
    return np.array(wanted, np.int64)


def offsets_of(random: np.random.Generator, rows: int, longest: int) -> np.ndarray:
    lengths = random.integers(0, longest + 1, rows) * (random.random(rows) < 0.8)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def arguments(random: np.random.Generator, starts: np.ndarray, rows: int, behind: int = 0) -> tuple[Any, ...]:
    entries = int(max(0, starts.max())) + behind
    x = random.integers(-9, 9, 50)
    columns = random.integers(0, 50, entries).astype(np.int32)
    return random.integers(-9, 9, entries), columns, starts, x, np.zeros(rows, np.int8)


def test_the_form_is_found() -> None:
    for program in (sums, largest):
        found = [type(one.expression) for one in sweep(run_pipeline(program.trace())).body.statements]
        assert found == [Iota, OffsetFolds]


@given(st.integers(0, 60), st.sampled_from([0, 1, 5, 16, 40]), st.integers(0, 3), st.integers(0, 2), st.integers(0, 99))
@settings(deadline=None, max_examples=80)
def test_offsets_that_ascend(rows: int, longest: int, more: int, behind: int, seed: int) -> None:
    """There may be more offsets than are asked for, and values behind the last one."""
    random = np.random.default_rng(seed)
    given_arrays = arguments(random, offsets_of(random, rows + more, longest), rows, behind)
    np.testing.assert_array_equal(sums(*given_arrays), sums_reference(*given_arrays))


@given(st.integers(1, 30), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_any_offsets(rows: int, seed: int) -> None:
    """Offsets that do not ascend, and some outside: flags and scan say what it means; ends outside are errors."""
    random = np.random.default_rng(seed)
    starts = random.integers(-2, 40, rows + 1)
    starts[-1] = 40
    given_arrays = arguments(random, starts, rows)
    try:
        wanted = sums_reference(*given_arrays)
    except IndexError:
        with pytest.raises(IndexError):
            sums(*given_arrays)
    else:
        np.testing.assert_array_equal(sums(*given_arrays), wanted)


def test_rows_longer_than_strips(threads: int) -> None:
    random = np.random.default_rng(5)
    lengths = [3, STRIP - 3, 2 * STRIP + 7, 0, STRIP, 1, 5 * STRIP, 15, 16, 17]
    given_arrays = arguments(random, np.concatenate([[0], np.cumsum(lengths)]), len(lengths))
    np.testing.assert_array_equal(sums(*given_arrays), sums_reference(*given_arrays))


def test_many_rows(threads: int) -> None:
    random = np.random.default_rng(6)
    starts = offsets_of(random, 5000, 20)
    given_arrays = arguments(random, starts, 5000)
    np.testing.assert_array_equal(sums(*given_arrays), sums_reference(*given_arrays))
    values = random.standard_normal(starts[-1]).astype("f4")
    values[100] = np.nan
    wanted = [np.max(values[a:b], initial=-np.inf) for a, b in pairwise(starts)]
    np.testing.assert_array_equal(largest(values, starts, np.zeros(5000, "i1")), np.array(wanted, "f4"))


def test_a_repeated_call_looks_at_its_own_offsets() -> None:
    random = np.random.default_rng(7)
    good = arguments(random, offsets_of(random, 30, 9), 30)
    swapped = good[2].copy()
    swapped[3:20] = swapped[3:20][::-1]
    bad = (*good[:2], swapped, *good[3:])
    for one in (good, good, bad, good, bad, bad, good):
        np.testing.assert_array_equal(sums(*one), sums_reference(*one))


def test_errors_are_those_of_the_program() -> None:
    random = np.random.default_rng(8)
    values, columns, starts, x, rows = arguments(random, offsets_of(random, 20, 9), 20)
    wrong = columns.copy()
    wrong[7] = 50
    for _ in range(3):
        with pytest.raises(IndexError, match="index 50 of x is out of range in dimension 0 of extent 50"):
            sums(values, wrong, starts, x, rows)
        with pytest.raises(IndexError, match="index 20 of starts is out of range in dimension 0 of extent 20"):
            sums(values, columns, starts[:-1], x, rows)
        np.testing.assert_array_equal(
            sums(values, columns, starts, x, rows), sums_reference(values, columns, starts, x, rows)
        )


def test_the_interpreter_agrees() -> None:
    random = np.random.default_rng(9)
    given_arrays = arguments(random, offsets_of(random, 12, 5), 12)
    (found,) = interpret(sums.trace(), given_arrays)
    np.testing.assert_array_equal(found, sums_reference(*given_arrays))


@pytest.mark.opencl
def test_on_opencl() -> None:
    random = np.random.default_rng(10)
    given_arrays = arguments(random, offsets_of(random, 300, 9), 300)
    np.testing.assert_array_equal(sums(*given_arrays, target="opencl"), sums_reference(*given_arrays))
