"""The size of a slice that ends before it begins: 0 as a number, and in what is computed with it."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.interpreter import interpret


@tw.program
def told(x: tw.f64["n"]) -> Any:
    inner = x[1:-1]
    count = inner.shape[0]
    return count, count + 1, 3 - 2 * count, count / 2, inner.sum() * count, len_of(inner), tw.replicate(count, 1.0)


def len_of(x: Any) -> Any:
    return x.shape[0] // 2 + x.shape[0] % 2


@pytest.mark.parametrize("extent", [0, 1, 2, 3, 6])
def test_counts_of_elements_are_not_below_zero(extent: int) -> None:
    x = np.arange(float(extent))
    count = max(0, extent - 2)
    expected = (count, count + 1, 3 - 2 * count, count / 2, x[1:-1].sum() * count, count // 2 + count % 2)
    for found in (told(x), interpret(told.trace(), [x])):
        np.testing.assert_array_equal([float(one) for one in found[:-1]], expected)
        assert found[-1].shape == (count,)


def test_in_rows_as_well() -> None:
    @tw.program
    def counts(begins: tw.i64["k"], x: tw.f64["n"]) -> Any:
        return tw.map(lambda begin: x[begin:3].shape[0], begins)

    np.testing.assert_array_equal(counts(np.array([0, 2, 3, 5]), np.arange(6.0)), [3, 1, 0, 0])


def test_sizes_are_still_compared_while_tracing() -> None:
    @tw.program
    def joined(x: tw.f64["n"]) -> Any:
        assert x[1:-1].shape[0] == x.shape[0] - 2
        return tw.map(lambda a, i: a * i, x[1:-1], tw.iota(x.shape[0] - 2)) + x[: x[1:-1].shape[0]]

    np.testing.assert_array_equal(joined(np.arange(5.0)), [0, 3, 8])


@pytest.mark.parametrize("extent", [0, 1, 2, 5])
def test_what_is_written_where_slices_are_not_cut_off(extent: int) -> None:
    @tw.program
    def ends(x: tw.f64["n"], b: tw.i64) -> Any:
        return x[: tw.minimum(3, x.shape[0])], x[tw.maximum(x.shape[0] - 2, 0) :], x[:b]

    @tw.program
    def from_the_end(x: tw.f64["n"], b: tw.i64) -> Any:
        return x[: tw.where(b < 0, b + x.shape[0], b)]

    x = np.arange(float(extent))
    for found in (ends(x, -1), interpret(ends.trace(), [x, -1])):
        for one, expected in zip(found, (x[:3], x[-2:], x[:0]), strict=True):
            np.testing.assert_array_equal(one, expected)
    np.testing.assert_array_equal(from_the_end(x, -1), x[:-1])
