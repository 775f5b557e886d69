"""Loops of the host that run as one kernel while their rounds are small."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import Kernel
from tilewright.passes.items import whole_loops
from tilewright.runtime import cpu_device, steps


@tw.program
def smoothed(xs: tw.f64["n"], rounds: tw.i64) -> Any:
    (n,) = xs.shape

    def step(number: Any, now: Any, largest: Any) -> Any:
        def point(i: Any) -> Any:
            return now[tw.maximum(i - 1, 0)] + now[tw.minimum(i + 1, n - 1)] + number

        after = tw.map(point, tw.iota(n))
        return tw.scan("max", -np.inf, after), tw.maximum(largest, tw.reduce("max", -np.inf, after))

    return tw.loop(rounds, (xs, xs[0]), step)


@tw.program
def halved(xs: tw.f64["n"], limit: tw.f64) -> Any:
    def too_large(now: Any, count: Any) -> Any:
        return tw.reduce("add", 0, now) > limit

    return tw.while_loop(too_large, (xs, 0), lambda now, count: (tw.map(lambda x: x / 2, now), count + 1))


def reference(xs: np.ndarray, rounds: int) -> tuple[np.ndarray, float]:
    now, largest, places = xs, xs[0], np.arange(len(xs))
    for number in range(rounds):
        after = now[np.maximum(places - 1, 0)] + now[np.minimum(places + 1, len(xs) - 1)] + number
        now, largest = np.maximum.accumulate(after), max(largest, after.max())
    return now, largest


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(whole_loops).failed == 0


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30), st.integers(0, 6), st.sampled_from([0, 1 << 15]))
def test_both_ways_of_a_loop_agree(values: list[int], rounds: int, limit: int) -> None:
    xs = np.array(values, float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "LARGEST_SEQUENTIAL_ROUND", limit)
        program = tw.program(smoothed.function)  # a fresh one: recorded calls keep their choice
        for given_xs in (xs, xs, xs[::-1], xs):
            now, largest = program(given_xs, rounds, target="cpu")
            expected, most = reference(given_xs, rounds)
            np.testing.assert_array_equal(now, expected)
            assert largest == most


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30), st.sampled_from([0, 1 << 15]))
def test_while_loops(values: list[int], limit: int) -> None:
    xs = np.array(values, float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "LARGEST_SEQUENTIAL_ROUND", limit)
        now, count = tw.program(halved.function)(xs, 3.0, target="cpu")
    expected, rounds = xs, 0
    while expected.sum() > 3:
        expected, rounds = expected / 2, rounds + 1
    np.testing.assert_array_equal(now, expected)
    assert count == rounds


@pytest.mark.parametrize(("size", "whole"), [(100, True), (100_000, False)])
def test_the_size_of_a_round_decides(size: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        compiled.append(kernel.name)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    tw.program(smoothed.function)(np.ones(size), 3, target="cpu")
    assert any("whole" in name for name in compiled) == whole


def test_the_choice_is_explained() -> None:
    assert "run by the host; small rounds (26*n + 10) as one sequential kernel" in smoothed.explain(target="cpu")


def test_what_loops_in_a_round_replace_is_no_work_of_its_size() -> None:
    @tw.program
    def running(xs: tw.f64["n"], rounds: tw.i64) -> Any:
        def step(_: Any, now: Any) -> Any:
            doubled = tw.map(lambda x: 2.0 * x, now)
            return tw.loop(xs.shape[0], doubled, lambda i, ys: tw.update(ys, i, ys[i] + 1.0))

        return tw.loop(rounds, xs, step)

    explained = running.explain(target="cpu")
    assert "small rounds (" in explained and "n*n" not in explained
    np.testing.assert_array_equal(running(np.arange(3.0), 2, target="cpu"), [3, 7, 11])


def test_results_go_where_they_are_asked_for() -> None:
    out, largest = np.zeros(4), np.zeros(())
    smoothed(np.arange(4.0), 2, out=(out, largest), target="cpu")
    expected, most = reference(np.arange(4.0), 2)
    np.testing.assert_array_equal(out, expected)
    assert largest == most


def test_work_that_is_not_known_before() -> None:
    @tw.program
    def growing(xs: tw.f64["n"], counts: tw.i64["n"]) -> Any:
        def step(i: Any, total: Any) -> Any:
            return total + tw.reduce("add", 0, tw.map(lambda x: x * 1.0, xs[: counts[i]]))

        return tw.loop(xs.shape[0], 0.0, step)

    assert "small rounds" not in growing.explain(target="cpu")
    assert growing(np.ones(4), np.array([1, 4, 0, 2]), target="cpu") == 7
