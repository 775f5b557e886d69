"""Sizes that are below zero for the arguments of a call: such arrays are empty, as in Python's slices and ranges."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.interpreter import interpret

VECTOR = np.arange(1.0, 5.0)


@tw.program
def repeated(xs: tw.f64["n"], k: tw.i64) -> Any:
    return tw.replicate(k, xs)


@tw.program
def middle(xs: tw.f64["n"], k: tw.i64) -> Any:
    return tw.map(lambda x: x + k, xs[3 : xs.shape[0] - 3])


@tw.program
def rows_in_bins(xs: tw.f64["n"], k: tw.i64) -> Any:
    """The kernel wrote before the memory of its bins, in front of a result without elements."""
    rows = tw.map(lambda x: tw.map(lambda i: x + i, tw.iota(5)), xs)
    places = tw.map(lambda i: i * 0, tw.iota(xs.shape[0]))
    return tw.hist(lambda one, two: tw.map("add", one, two), 0, k, places, rows)


@tw.program
def product(xs: tw.f64["n"], k: tw.i64) -> Any:
    """(n x k) (k x n) and (n x n) (n x k), which are empty, and a sum of no products, which is not."""
    left = tw.map(lambda x: tw.map(lambda i: x + i, tw.iota(k)), xs)
    right = tw.map(lambda i: tw.map(lambda x: x - i, xs), tw.iota(k))

    def times(one: Any, two: Any) -> Any:
        def dot(row: Any, column: Any) -> Any:
            return tw.reduce("add", 0, tw.map(lambda a, b: a * b, row, column))

        return tw.map(lambda row: tw.map(lambda column: dot(row, column), tw.transpose(two)), one)

    square = times(left, right)
    return square, times(square, left)


@pytest.mark.parametrize("program", [repeated, middle, rows_in_bins, product])
@pytest.mark.parametrize("k", [-1, -7])
def test_sizes_below_zero_are_zero(program: Any, k: int) -> None:
    for _ in range(2):
        results = program(VECTOR, k)
        expected = interpret(program.trace(), [VECTOR, k])
        for one, other in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
            assert one.shape == other.shape
            assert np.array_equal(one, other)


def test_concatenations_refuse_parts_below_zero() -> None:
    """The result is as long as its parts together, and so would be shorter than those that are written to it."""

    @tw.program
    def joined(xs: tw.f64["n"], k: tw.i64) -> Any:
        return tw.concat([xs, tw.map(lambda i: tw.cast(i, "f64"), tw.iota(k)), xs])

    with pytest.raises(ValueError, match=r"joined: part 1 of a concatenation \(t_2\) has size -3 in dimension 0"):
        joined(VECTOR, -3)
    assert joined(VECTOR, 1).tolist() == [1, 2, 3, 4, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("use", [lambda all: tw.map(lambda x: 2 * x, all), lambda all: tw.reduce("add", 0, all)])
@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_concatenations_that_maps_take_apart_refuse_them_too(use: Any, target: str) -> None:
    """No concatenation was left to refuse it, and the result was too short."""

    @tw.program
    def joined(xs: tw.f64["n"], a: tw.i64, b: tw.i64) -> Any:
        return use(tw.concat(xs[a:b], xs))

    for _ in range(2):
        expected = use_numpy(np.concatenate([VECTOR[1:3], VECTOR]), use)
        np.testing.assert_array_equal(joined(VECTOR, 1, 3, target=target), expected)
        with pytest.raises(ValueError, match=r"joined: part 0 of a concatenation \(\w+\) has size -2 in dimension 0"):
            joined(VECTOR, 3, 1, target=target)
    with pytest.raises(ValueError, match=r"part 0 of a concatenation .* has size -2"):
        interpret(joined.trace(), [VECTOR, 3, 1])


def use_numpy(array: Any, use: Any) -> Any:
    """What a use of the whole array gives, by a program in which nothing is joined."""

    @tw.program
    def used(xs: tw.f64["n"]) -> Any:
        return use(xs)

    return used(array)


def test_parts_of_rows_stay_within_them() -> None:
    """What a map joins in its rows is written by a kernel, which cannot refuse it: no more than the rows is written."""

    @tw.program
    def ends(xss: tw.f64["m", "n"], k: tw.i64) -> Any:
        def row(xs: Any) -> Any:
            sums = tw.scan("add", 0, xs)
            return tw.scan("add", 0, tw.concat([sums, tw.replicate(k, 1.0), sums]))

        return tw.map(row, xss)

    rows = np.ones((3, 4))
    assert ends(rows, 1)[0].tolist() == [1, 3, 6, 10, 11, 12, 14, 17, 21]
    for k in (-3, -7):
        whole = np.zeros((5, 8 + k))
        ends(rows, k, out=whole[:3])
        assert whole[3:].sum() == 0
        assert whole[0, 0] == 1
