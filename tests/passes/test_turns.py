"""Rounds that make their arrays anew: two memories of an array take turns, whatever the number of rounds."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw


@tw.program
def probable(steps: tw.f64["s", "s"], seen: tw.f64["t", "s"], first: tw.f64["s"]) -> Any:
    """The states of a hidden Markov model after some rounds, and the round before the last."""

    def step(t: Any, now: Any, before: Any) -> Any:
        new = tw.map(lambda column, one: (now * column).sum() * one, tw.transpose(steps), seen[t])
        return new / new.sum(), now

    return tw.loop(seen.shape[0], (first, first), step)


def probable_by_numpy(steps: np.ndarray, seen: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    now = before = first
    for one in seen:
        new = now @ steps * one
        now, before = new / new.sum(), now
    return now, before


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 20), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_rounds_of_folds(states: int, rounds: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    given_ = random.random((states, states)), random.random((rounds, states)), random.random(states)
    for found, expected in zip(probable(*given_, target="cpu"), probable_by_numpy(*given_), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@tw.program
def swapped(a: tw.f64["n"], b: tw.f64["n"], t: tw.i64) -> Any:
    """Two arrays that change places, one of them with what is folded of the other."""

    def step(i: Any, a: Any, b: Any) -> Any:
        return b, tw.map(lambda x: x + b.max(), a)

    return tw.loop(t, (a, b), step)


@pytest.mark.parametrize("rounds", range(5))
@pytest.mark.parametrize("n", [1, 3, 16, 17])
def test_arrays_that_change_places(n: int, rounds: int) -> None:
    a, b = np.random.default_rng(n).random((2, n))
    found = swapped(a, b, rounds, target="cpu")
    for _ in range(rounds):
        a, b = b, a + b.max()
    np.testing.assert_allclose(found[0], a)
    np.testing.assert_allclose(found[1], b)


@tw.program
def nested(x: tw.f64["n", "m"], t: tw.i64) -> Any:
    """Loops in a loop, whose arrays are views of those of the rounds around them."""

    def outer(i: Any, x: Any) -> Any:
        def inner(j: Any, row: Any) -> Any:
            total = row.sum()
            return tw.map(lambda e: 0.5 * e + total, row)

        return tw.map(lambda row: tw.loop(i, row, inner), x)

    return tw.loop(t, x, outer)


@pytest.mark.parametrize("rounds", range(4))
@pytest.mark.parametrize("shape", [(2, 3), (20, 5), (3, 40)])
def test_loops_in_loops(shape: tuple[int, int], rounds: int) -> None:
    x = np.random.default_rng(1).random(shape)
    found = nested(x, rounds, target="cpu")
    for i in range(rounds):
        for _ in range(i):
            x = 0.5 * x + x.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, x, rtol=1e-10)
