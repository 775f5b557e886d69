"""The greatest beside its place is one fold, which goes through the rows once."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.ir.nodes import Redomap, Reduce
from tilewright.ir.traversal import all_statements
from tilewright.passes.core.fuse import fuse
from tilewright.passes.core.simplify import simplify


@tw.program
def whole(x: tw.any_["n"]) -> Any:
    return x.max(), x.argmax()


@tw.program
def rows(x: tw.any_["n", "m"]) -> Any:
    return x.argmin(axis=1), x.min(axis=1)


@tw.program
def columns(x: tw.any_["n", "m"]) -> Any:
    """What is computed of the greatest stands beside the place, too."""
    return 2 * x.max(axis=0), x.argmax(axis=0)


@tw.program
def paired(now: tw.f64["s"], steps: tw.f64["s", "s"]) -> Any:
    """Of sums, which are then not stored."""

    def best(column: Any) -> Any:
        sums = tw.map(lambda a, b: a + b, now, column)
        return tw.reduce("max", -np.inf, sums), np.argmax(sums)

    return tw.map(best, tw.transpose(steps))


@tw.program
def other_rows(x: tw.any_["n"]) -> Any:
    return x.max(), x[::-1].argmax()


@tw.program
def other_order(x: tw.any_["n"]) -> Any:
    return x.max(), x.argmin()


@tw.program
def from_elsewhere(x: tw.any_["n"]) -> Any:
    return tw.reduce("max", 0.5, x), x.argmax()


@tw.program
def nan_is_never_best(x: tw.any_["n"]) -> Any:
    def first(one: Any, two: Any) -> Any:
        more = two[0] > one[0]
        return tw.where(more, two[0], one[0]), tw.where(more, two[1], one[1])

    return x.max(), tw.reduce(first, (-np.inf, 0), x, tw.iota(x.shape[0]))[1]


@tw.program
def needed_between(x: tw.any_["n"]) -> Any:
    """The place is looked for among numbers that the greatest is in."""
    most = x.max()
    return most, tw.map(lambda one: one - most, x).argmax()


def folds(program: Any, *kinds: str) -> int:
    found = all_statements(fuse(simplify(program.trace(*kinds))).body)
    return sum(isinstance(one.expression, Reduce | Redomap) for one in found)


@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "u1"])
@pytest.mark.parametrize("program", [whole, rows, columns])
def test_one_fold_finds_both(program: Any, kind: str) -> None:
    assert folds(program, kind) == 1


def test_sums_are_folded_once() -> None:
    assert folds(paired) == 1


@pytest.mark.parametrize("program", [other_rows, other_order, from_elsewhere, nan_is_never_best, needed_between])
def test_others_stay_two(program: Any) -> None:
    assert folds(program, "f8") == 2


VALUES = st.sampled_from([0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan])


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(1, 20), st.integers(1, 5), st.sampled_from(["f2", "f4", "f8", "i8", "u1"]), st.data())
def test_as_numpy(n: int, m: int, kind: str, data: Any) -> None:
    """The first of the greatest; a nan is greater than all, and less."""
    floats = kind[0] == "f"
    numbers = data.draw(st.lists(VALUES if floats else st.integers(0, 3), min_size=n * m, max_size=n * m))
    x = np.array(numbers).astype(kind).reshape(n, m)
    column = np.ascontiguousarray(x[:, 0])
    for found, wanted in (
        (whole(column, target="cpu"), (column.max(), column.argmax())),
        (rows(x, target="cpu"), (x.argmin(axis=1), x.min(axis=1))),
        (columns(x, target="cpu"), (2 * x.max(axis=0), x.argmax(axis=0))),
    ):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@tw.program
def likeliest(seen: tw.i64["t"], steps: tw.f64["s", "s"], shown: tw.f64["s", "o"], first: tw.f64["s"]) -> Any:
    """Viterbi's rounds, with the ways back."""

    def step(t: Any, now: Any, back: Any) -> Any:
        sums = now[:, None] + steps
        return sums.max(axis=0) + shown[:, seen[t]], tw.update(back, t, sums.argmax(axis=0))

    states = first.shape[0]
    return tw.loop(seen.shape[0], (first, tw.replicate(seen.shape[0], tw.replicate(states, 0))), step)


@pytest.mark.parametrize("states", [1, 4, 8, 33])
def test_ways_back(states: int) -> None:
    random = np.random.default_rng(states)
    seen, steps = random.integers(0, 3, 40), random.integers(-9, 9, (states, states)).astype(float)
    shown, now = random.integers(-9, 9, (states, 3)).astype(float), random.integers(-9, 9, states).astype(float)
    found = likeliest(seen, steps, shown, now, target="cpu")
    back = np.zeros((40, states), int)
    for t in range(40):
        sums = now[:, None] + steps
        back[t], now = sums.argmax(axis=0), sums.max(axis=0) + shown[:, seen[t]]
    np.testing.assert_array_equal(found[0], now)
    np.testing.assert_array_equal(found[1], back)


def test_sums_of_rounds_are_folded_once() -> None:
    assert folds(likeliest) == 1
