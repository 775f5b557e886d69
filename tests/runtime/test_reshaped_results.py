"""Results that are made in one shape and given in another."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.recording import RecordedLaunch, flattened


@tw.program
def tiled(xs: tw.f32["n"], count: tw.i64) -> Any:
    return tw.reshape(tw.replicate(count, xs), -1)


@tw.program
def repeated(xs: tw.f32["n"], count: tw.i64) -> Any:
    return tw.reshape(tw.map(lambda x: tw.replicate(count, x), xs), -1)


@tw.program
def both_ways(xs: tw.f32["n", "m"]) -> Any:
    doubled = tw.map(lambda row: tw.map(lambda x: 2 * x, row), xs)
    return tw.reshape(doubled, -1), doubled


@tw.program
def both_ways_round(xs: tw.f32["n", "m"]) -> Any:
    doubled = tw.map(lambda row: tw.map(lambda x: 2 * x, row), xs)
    return doubled, tw.reshape(doubled, -1)


@tw.program
def of_an_argument(xs: tw.f32["n", "m"]) -> Any:
    return tw.reshape(xs, -1)


@tw.program
def in_rounds(xs: tw.f32["n", "m"]) -> Any:
    grown = tw.loop(3, xs, lambda i, now: tw.map(lambda row: tw.map(lambda x: x + 1, row), now))
    return tw.reshape(grown, -1)


XS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(("program", "expected"), [(tiled, np.tile(XS[0], 5)), (repeated, np.repeat(XS[0], 5))])
def test_they_are_made_by_one_launch(program: Any, expected: Any) -> None:
    for _ in range(3):
        found = program(XS[0], 5, target="cpu")
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
    executable = program._executable(program._elements((XS[0], 5)), "cpu")[0]
    ((_, plan),) = executable._plans.values()
    assert sum(isinstance(one, RecordedLaunch) for one in flattened(plan.recording.records)) == 1


@pytest.mark.parametrize("size", [1, 2000])
def test_two_results_of_one_array_have_memory_of_their_own(size: int) -> None:
    xs = np.arange(3 * size, dtype=np.float32).reshape(3, size)
    for _ in range(3):
        flat, same = both_ways(xs, target="cpu")
        again, line = both_ways_round(xs, target="cpu")
        for one in (flat, line):
            np.testing.assert_array_equal(one, 2 * xs.ravel())
        for one in (same, again):
            np.testing.assert_array_equal(one, 2 * xs)
        assert not np.shares_memory(flat, same)
        assert not np.shares_memory(again, line)


def test_arguments_and_rounds_and_given_arrays() -> None:
    for _ in range(3):
        found = of_an_argument(XS, target="cpu")
        np.testing.assert_array_equal(found, XS.ravel())
        assert not np.shares_memory(found, XS)
        np.testing.assert_array_equal(in_rounds(XS, target="cpu"), XS.ravel() + 3)
        out = np.empty(20, np.float32)
        assert tiled(XS[0], 5, out=out, target="cpu") is out
        np.testing.assert_array_equal(out, np.tile(XS[0], 5))
    assert tiled(np.zeros(0, np.float32), 5, target="cpu").shape == (0,)
