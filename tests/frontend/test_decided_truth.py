"""Comparisons that are decided while a function is traced are bools of the program, and Python may branch on them."""

# ruff: noqa: F821, UP037, PLR0124  # sizes in annotations are text: tw.f64["n"]; sizes against themselves
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from program_checks import check

import tilewright as tw

A = np.arange(6.0).reshape(2, 3)


def test_they_are_converted_and_meet_arrays() -> None:
    @tw.program
    def traced(xs: tw.f64["n", 3], s: tw.i64) -> Any:
        n, m = xs.shape
        same = s == s
        return (n == n).astype(tw.f32), (xs > 1) & (m == 3), ~(m == 3) | (xs > 1), ~same, tw.where(same, xs, 0)

    check(traced, (A, np.int64(0)), (np.float32(1), A > 1, A > 1, np.bool_(False), A))


def test_in_arithmetic_they_are_what_they_are_in_numpy() -> None:
    """Sizes are compared to bools of Python, which take the type of what they meet; parameters to those of NumPy."""

    def several(xs: Any, s: Any) -> Any:
        n = xs.shape[0]
        return xs * (n == n), (n == n) * 2.0 * xs, xs * (s == s), (s == s) * 2.0 * xs, (s == s) + (s == s), (n == n) + 1

    @tw.program
    def traced(xs: tw.f32["n"], s: tw.i64) -> Any:
        return several(xs, s)

    xs = np.arange(3, dtype=np.float32)
    expected = several(xs, np.int64(5))
    found = traced(xs, 5)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=isinstance(theirs, np.ndarray))
    assert found[4].dtype == np.bool_


def test_python_goes_by_them() -> None:
    @tw.program
    def traced(xs: tw.f64["n", 3, 1], s: tw.i64) -> Any:
        n, *others = xs.shape
        assert sum(one > 1 for one in others) == 1
        assert [one == 3 for one in others] == [True, False]
        assert n <= n
        assert (others[0] == 3) & (others[1] == 1)
        assert not ((others[0] == 3) ^ True)
        assert f"{others[0] == 3}" == "True"
        assert xs.shape == (n, 3, 1)
        assert ["no", "yes"][s == s] == "yes"
        return tw.cond(s == s, lambda: xs, lambda: -xs), tw.map(lambda row: n == n, xs), tw.loop(2, s != s, _other)

    cube = A.reshape(2, 3, 1)
    check(traced, (cube, np.int64(1)), (cube, np.array([True, True]), np.bool_(False)))


def _other(_: Any, now: Any) -> Any:
    return ~now


def test_functions_of_numpy_and_ours_take_them() -> None:
    @tw.program
    def traced(xs: tw.f32["n"], s: tw.i64) -> Any:
        size, same = xs.shape[0] == xs.shape[0], s == s
        assert np.any(size)
        assert np.all([size, same])
        assert np.logical_and(size, same)
        return np.where(size, xs, -xs), np.full_like(xs, same), np.maximum(xs, same), np.fmod(size, 2), tw.sqrt(same)

    xs = np.arange(3, dtype=np.float32)
    found = traced(xs, 1)
    for ours, theirs in zip(found, (xs, np.ones(3), np.maximum(xs, 1), 1, 1), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [one.dtype.name for one in found[:3]] == ["float32", "float32", "float32"]
    assert found[4].dtype == np.float64  # as that of every integer


def test_a_loop_without_end_is_refused() -> None:
    @tw.program
    def endless(s: tw.i64) -> Any:
        return tw.while_loop(lambda _: s == s, 0, lambda a: a + 1)

    with pytest.raises(TypeError, match=r"must give a traced bool, not .*True"):
        endless(1)
