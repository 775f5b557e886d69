"""Folds of arrays whose sizes are below zero: no row is read, not one before the array's first element either."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]


@tw.program
def scaled(xs: tw.f64["n"], k: tw.i64) -> Any:
    """Sums of products that no contraction is made for, as their index is computed."""
    return tw.map(lambda v: tw.reduce("add", 0.0, tw.map(lambda j: xs[j] * v, tw.iota(k))), xs)


@tw.program
def weighted(xs: tw.f64["n"], k: tw.i64) -> Any:
    rows = tw.map(lambda x: tw.map(lambda y: x - y, xs), xs)
    return tw.map(lambda r: tw.reduce("add", 0.0, tw.map(lambda j, a: xs[j] * a, tw.iota(k), r[:k])), rows)


@tw.program
def before(xs: tw.f64["n"], k: tw.i64) -> Any:
    """As many rows as a point's number says, less some: few points have fewer than none."""
    less = tw.minimum(k, 0)
    return tw.map(
        lambda i: tw.reduce("add", 0.0, tw.map(lambda j: xs[j] + 1.0, tw.iota(i + less))), tw.iota(xs.shape[0])
    )


@tw.program
def greatest(xs: tw.f64["n"], k: tw.i64) -> Any:
    return tw.map(lambda v: tw.reduce("max", -9.0, tw.map(lambda j: xs[j] - v, tw.iota(k))), xs)


@tw.program
def first_of(xs: tw.f64["n"], k: tw.i64) -> Any:
    """An operator that is not commutative."""
    pick = lambda a, b: tw.where(a != 0, a, b)  # noqa: E731
    return tw.map(lambda v: tw.reduce(pick, 0, tw.map(lambda j: (xs[j] * v).astype("int64"), tw.iota(k))), xs)


@tw.program
def columns(xs: tw.f64["n"], k: tw.i64) -> Any:
    """Rows are folded, element by element."""
    rows = tw.map(lambda j: tw.map(lambda x: x * xs[j], xs), tw.iota(k))
    zeros = tw.replicate(xs.shape[0], 0.0)
    return tw.reduce(lambda a, b: tw.map(lambda p, q: p + q, a, b), zeros, rows)


@tw.program
def columns_of_each(xs: tw.f64["n"], k: tw.i64) -> Any:
    def one(v: Any) -> Any:
        rows = tw.map(lambda j: tw.map(lambda x: x * xs[j] + v, xs[:5]), tw.iota(k))
        return tw.reduce(lambda a, b: tw.map(lambda p, q: p + q, a, b), tw.replicate(5, 0.0), rows)

    return tw.map(one, xs)


@tw.program
def alone(xs: tw.f64["n"], k: tw.i64) -> Any:
    """Sums and the place of the least, of the whole program."""
    values = tw.map(lambda j: xs[j] * 2.0, tw.iota(k))
    best = tw.reduce(
        lambda a, i, b, j: (tw.where(b < a, b, a), tw.where(b < a, j, i)), (np.inf, -1), values, tw.iota(k)
    )
    return tw.reduce("add", 0.0, values), tw.reduce("max", -1.0, values), best[0], best[1]


@tw.program
def counted(xs: tw.f64["n"], k: tw.i64) -> Any:
    def rounds(v: Any) -> Any:
        return tw.loop(2, v, lambda _, s: s / 2 + tw.reduce("add", 0.0, tw.map(lambda j: xs[j] * s, tw.iota(k))))

    return tw.map(rounds, xs)


PROGRAMS = (scaled, weighted, before, greatest, first_of, columns, columns_of_each, alone, counted)


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.function.__name__)
@settings(max_examples=8)
@given(n=st.sampled_from([5, 8, 20, 40]), k=st.sampled_from([-1, -2, -3, -5, -8, -9, -15, -17, -33, -300, 0, 1, 4]))
def test_folds_of_fewer_rows_than_none(program: Callable[..., Any], target: str, n: int, k: int) -> None:
    """In memory that does not begin with the array, so that what lies before it is another number than 0."""
    around = np.full(n + 700, 1e30)
    xs = around[650 : 650 + n]
    xs[:] = np.arange(n) / 8
    got = program(xs, k, target=target)
    expected = interpret(program.trace(), (xs, np.int64(k)))  # type: ignore[attr-defined]
    for one, other in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
