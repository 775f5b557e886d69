"""Loops that carry arrays: begun, swapped, made anew, written where they lie, nested, read after new ones are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.passes.lanes.lane_loops import LANES

KINDS = ("both", "near", "far", "put", "sum")
PICKS = st.integers(0, 7)
STEPS = st.tuples(st.sampled_from(KINDS), PICKS, PICKS)


def loops(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What each of one to three arrays starts as, the steps of a round, and which arrays it gives."""

    def of(count: int) -> st.SearchStrategy[Any]:
        picks = st.lists(PICKS, min_size=count, max_size=count)
        return st.tuples(picks, st.lists(inner, min_size=1, max_size=4), picks)

    return st.integers(1, 3).flatmap(of)


LOOPS = loops(st.one_of(STEPS, STEPS, loops(STEPS)))


def clamped(value: Any) -> Any:
    return tw.minimum(tw.maximum(value, -9.0), 9.0)


def made_by(step: Sequence[Any], arrays: Sequence[Any], places: Any, number: Any) -> Any:
    """An array made of one or two others."""
    kind, first, second = step
    one, two = arrays[first % len(arrays)], arrays[second % len(arrays)]
    n = one.shape[0]
    if kind == "both":
        return tw.map(lambda a, b: clamped(a - 2.0 * b), one, two)
    if kind == "near":
        return tw.map(lambda j, a: clamped(a + two[tw.maximum(j - 1, 0)]), tw.iota(n), one)
    if kind == "far":
        return tw.map(lambda j, a: clamped(two[places[j]] - a), tw.iota(n), one)
    if kind == "put":
        return tw.update(one, number % n, clamped(two[n - 1] + 1.0))
    total = clamped(tw.reduce("add", 0.0, two))
    return tw.map(lambda a: clamped(a + total), one)


def looped(loop: Sequence[Any], arrays: Sequence[Any], places: Any, rounds: Any) -> tuple[Any, ...]:
    """The loop, which starts from some of the arrays."""
    starts, steps, given_back = loop

    def body(number: Any, *carried: Any) -> Any:
        made = list(carried)
        for step in steps:
            is_loop = not isinstance(step[0], str)
            made += looped(step, made, places, rounds) if is_loop else [made_by(step, made, places, number)]
        return tuple(made[-1 - pick % len(made)] for pick in given_back)

    found = tw.loop(rounds, tuple(arrays[pick % len(arrays)] for pick in starts), body)
    return found if isinstance(found, tuple) else (found,)


def program_of(loop: Sequence[Any], length: int | str, points: bool) -> Any:
    """The loop over two vectors, or over two rows of each point; what follows reads one of them once more."""

    def one(x: Any, y: Any, places: Any, rounds: Any) -> Any:
        found = looped(loop, (x, y), places, rounds)
        return *found, tw.map(lambda a, b: a + b, found[0], x)

    def alone(x: Any, y: Any, places: Any, rounds: Any) -> Any:
        return one(x, y, places, rounds)

    def each(x: Any, y: Any, places: Any, rounds: Any) -> Any:
        return tw.map(lambda a, b: one(a, b, places, rounds), x, y)

    function: Callable[..., Any] = each if points else alone
    array = tw.f64["m", length] if points else tw.f64[length]
    function.__annotations__ = {"x": array, "y": array, "places": tw.i64[length], "rounds": tw.i64}
    return tw.program(function)


def check(loop: Sequence[Any], n: int, known: bool, points: int | None, rounds: int) -> None:
    random = np.random.default_rng(n)
    shape = (n,) if points is None else (points, n)
    x, y = (random.integers(-9, 10, shape).astype("f8") for _ in range(2))
    program = program_of(loop, n if known else "n", points is not None)
    arguments = (x, y, random.integers(0, n, n), rounds)
    wanted = interpret(program.trace(), arguments)
    for found, one in zip(program(*arguments, target="cpu"), wanted, strict=True):
        np.testing.assert_array_equal(found, one)


@settings(deadline=None, max_examples=examples(60))
@given(
    loop=LOOPS,
    n=st.sampled_from([1, 2, 3, 8, 17]),
    known=st.booleans(),
    points=st.sampled_from([None, LANES - 1, LANES, 2 * LANES + 3]),
    rounds=st.integers(0, 3),
)
def test_loops_over_arrays(loop: Any, n: int, known: bool, points: int | None, rounds: int) -> None:
    check(loop, n, known, points, rounds)


BOTH_WAYS = [
    (("sum", 0, 1), ("far", 1, 1)),
    (("put", 0, 0), ("sum", 1, 1), ("far", 3, 1)),
    (("put", 0, 1), ("near", 1, 1)),
]
"""Steps of which the first is written where the first array lies, and the last needs memory of its own."""


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("points", [None, LANES, 2 * LANES + 3])
@pytest.mark.parametrize("n", [3, 17])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("steps", BOTH_WAYS)
def test_arrays_begin_whether_they_stay_or_take_turns(
    steps: Sequence[Any], known: bool, n: int, points: int | None, rounds: int
) -> None:
    """Without rounds, the results are the starts."""
    check(((0, 1), steps, (len(steps) - 1, 0)), n, known, points, rounds)
