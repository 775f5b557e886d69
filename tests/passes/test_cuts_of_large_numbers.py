"""Comparisons and clamps of indices with numbers near the ends of i64, which are there in place of "no limit"."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

LEAST, MOST = -(2**63), 2**63 - 1
N = 300
NUMBERS = (LEAST, LEAST + 5, MOST, MOST - 1, MOST - 298, -5, 0, 3, 299, 1000)


@tw.program
def below(xs: tw.f64["n"], shift: tw.i64, limit: tw.i64) -> Any:
    return tw.map(lambda i, x: tw.where(i + shift < limit, x, -x), tw.iota(xs.shape[0]), xs)


@tw.program
def mirrored(xs: tw.f64["n"], shift: tw.i64, limit: tw.i64) -> Any:
    return tw.map(lambda i, x: tw.where(shift - i <= limit, x, -x), tw.iota(xs.shape[0]), xs)


@tw.program
def clamped(xs: tw.f64["n"], shift: tw.i64) -> Any:
    n = xs.shape[0]
    return tw.map(lambda i: xs[tw.minimum(tw.maximum(i + shift, 0), n - 1)], tw.iota(n))


def wrapped(numbers: Any) -> Any:
    """Integers as i64 has them."""
    return [(int(one) - LEAST) % 2**64 + LEAST for one in numbers]


@pytest.mark.parametrize("limit", NUMBERS)
@pytest.mark.parametrize("shift", NUMBERS)
def test_comparisons(shift: int, limit: int) -> None:
    xs = np.arange(1.0, N + 1)
    up, down = wrapped(i + shift for i in range(N)), wrapped(shift - i for i in range(N))
    np.testing.assert_array_equal(below(xs, shift, limit, target="cpu"), np.where([one < limit for one in up], xs, -xs))
    np.testing.assert_array_equal(
        mirrored(xs, shift, limit, target="cpu"), np.where([one <= limit for one in down], xs, -xs)
    )


@pytest.mark.parametrize("shift", NUMBERS)
def test_clamps(shift: int) -> None:
    xs = np.arange(1.0, N + 1)
    places = [min(max(one, 0), N - 1) for one in wrapped(i + shift for i in range(N))]
    np.testing.assert_array_equal(clamped(xs, shift, target="cpu"), xs[places])
