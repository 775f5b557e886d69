"""Maps inside of rounds whose points fold in order what lies beside that of their neighbours: in vectors of points."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.kernel.ir import Kernel, VectorType
from tilewright.kernel.traversal import expressions_in, walk
from tilewright.passes.points import point_kernels

STATES = st.sampled_from([1, 2, 3, 4, 7, 8, 9, 16, 17, 33])
VALUES = st.sampled_from([0.0, 1.0, 2.0, -3.0, np.inf, -np.inf, np.nan])


def rounds_of(best: Any) -> Any:
    """Rounds that keep the greatest sum to each state, and from which state it comes."""

    def program(steps: tw.f64["s", "s"], shown: tw.f64["s", "o"], seen: tw.i64["t"], first: tw.f64["s"]) -> Any:
        def step(t: Any, now: Any, back: Any) -> Any:
            values, places = best(now, steps, shown, seen[t])
            return values, tw.update(back, t, places)

        rounds, states = seen.shape[0], first.shape[0]
        return tw.loop(rounds, (first, tw.replicate(rounds, tw.replicate(states, 0))), step)

    return tw.program(program)


def by_columns(now: Any, steps: Any, shown: Any, here: Any) -> Any:
    sums = now[:, None] + steps
    return sums.max(axis=0) + shown[:, here], sums.argmax(axis=0)


def by_reading(now: Any, steps: Any, shown: Any, here: Any) -> Any:
    states = tw.iota(now.shape[0])

    def state(j: Any) -> Any:
        sums = tw.map(lambda i: now[i] + steps[i, j], states)
        return tw.reduce("max", -np.inf, sums) + shown[j, here], np.argmax(sums)

    return tw.map(state, states)


def by_pairs(now: Any, steps: Any, shown: Any, here: Any) -> Any:
    """A nan is never taken."""
    states = tw.iota(now.shape[0])

    def first(one: Any, two: Any) -> Any:
        more = two[0] > one[0]
        return tw.where(more, two[0], one[0]), tw.where(more, two[1], one[1])

    def state(j: Any) -> Any:
        sums = tw.map(lambda i: now[i] + steps[i, j], states)
        value, place = tw.reduce(first, (-np.inf, 0), sums, states)
        return value + shown[j, here], place

    return tw.map(state, states)


PROGRAMS = {best: rounds_of(best) for best in (by_columns, by_reading, by_pairs)}


@pytest.mark.parametrize("best", PROGRAMS)
@settings(deadline=None, max_examples=examples(20))
@given(s=STATES, t=st.integers(0, 4), seed=st.integers(0, 99), data=st.data())
def test_the_greatest_and_whence(best: Any, s: int, t: int, seed: int, data: Any) -> None:
    random = np.random.default_rng(seed)
    values = data.draw(st.lists(VALUES, min_size=1, max_size=7))
    steps, first = random.choice(values, (s, s)), random.choice(values, s)
    shown, seen = random.integers(-2, 3, (s, 3)).astype(float), random.integers(0, 3, t)
    found = PROGRAMS[best](steps, shown, seen, first, target="cpu")
    now, back = first, np.zeros((t, s), int)
    with np.errstate(invalid="ignore"):
        for k in range(t):
            sums = now[:, None] + steps
            if best is by_pairs:
                sums = np.where(np.isnan(sums), -np.inf, sums)
            back[k], now = sums.argmax(axis=0), sums.max(axis=0) + shown[:, seen[k]]
    np.testing.assert_array_equal(found[0], now)
    np.testing.assert_array_equal(found[1], back)


@tw.program
def composed(slopes: tw.f64["k", "n"], steps: tw.f64["k", "n"], rounds: tw.i64) -> Any:
    """In each round, for each column, straight lines one after another: an operator that does not commute."""
    points = tw.iota(slopes.shape[1])

    def then(one: Any, two: Any) -> Any:
        return one[0] * two[0], two[0] * one[1] + two[1]

    def step(_: Any, now: Any) -> Any:
        def column(j: Any) -> Any:
            rows = tw.iota(slopes.shape[0])
            lines = tw.map(lambda k: slopes[k, j], rows), tw.map(lambda k: steps[k, j], rows)
            slope, start = tw.reduce(then, (1.0, 0.0), *lines)
            return slope * now[j] + start

        return tw.map(column, points)

    return tw.loop(rounds, tw.replicate(slopes.shape[1], 1.0), step)


@settings(deadline=None, max_examples=examples(20))
@given(k=st.integers(0, 9), n=STATES, rounds=st.integers(0, 3), seed=st.integers(0, 99))
def test_lines_one_after_another(k: int, n: int, rounds: int, seed: int) -> None:
    """Of whole numbers, which are exact."""
    random = np.random.default_rng(seed)
    slopes, steps = random.integers(-1, 2, (k, n)).astype(float), random.integers(-3, 4, (k, n)).astype(float)
    now = np.ones(n)
    for _ in range(rounds):
        for slope, more in zip(slopes, steps, strict=True):
            now = slope * now + more
    np.testing.assert_array_equal(composed(slopes, steps, rounds, target="cpu"), now)


@pytest.mark.parametrize("best", PROGRAMS)
def test_states_go_in_vectors(best: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[Kernel] = []
    plan = point_kernels._plan

    def seen(*values: Any) -> Any:
        kernels.append(plan(*values).kernel)
        return plan(*values)

    monkeypatch.setattr(point_kernels, "_plan", seen)
    rounds_of(best)(np.ones((8, 8)), np.ones((8, 1)), np.zeros(3, int), np.ones(8), target="cpu")
    whole = [statement for one in kernels if one.name.endswith("whole") for statement in walk(one.body)]
    compared = [one for one in expressions_in(whole) if getattr(one, "operator", "") == "select"]
    assert any(isinstance(one.type, VectorType) for one in compared)
