"""Rounds of folds whose points read what lies beside what their neighbours read: vectors of points."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw


@tw.program
def likely(seen: tw.i64["t"], steps: tw.f64["s", "s"], shown: tw.f64["s", "o"], first: tw.f64["s"]) -> Any:
    """The most likely ways of a hidden Markov model to each of its states [Viterbi 1967]."""
    states = tw.iota(first.shape[0])

    def step(t: Any, now: Any) -> Any:
        def best(j: Any) -> Any:
            return tw.reduce("max", -np.inf, tw.map(lambda i: now[i] + steps[i, j], states)) + shown[j, seen[t]]

        return tw.map(best, states)

    return tw.loop(seen.shape[0], first, step)


def likely_by_numpy(seen: np.ndarray, steps: np.ndarray, shown: np.ndarray, first: np.ndarray) -> np.ndarray:
    for one in seen:
        first = (first[:, None] + steps).max(axis=0) + shown[:, one]
    return first


def model(states: int, rounds: int, seed: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    chances = random.random((states, states)), random.random((states, 3)), random.random(states)
    return random.integers(0, 3, rounds), *chances


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_likely_ways(states: int, rounds: int, seed: int) -> None:
    given_ = model(states, rounds, seed)
    np.testing.assert_allclose(likely(*given_, target="cpu"), likely_by_numpy(*given_), rtol=1e-12)


@pytest.mark.parametrize("states", [3, 20])
def test_nan_is_kept(states: int) -> None:
    given_ = model(states, 5, 0)
    given_[1][1, 2] = np.nan
    np.testing.assert_array_equal(np.isnan(likely(*given_, target="cpu")), np.isnan(likely_by_numpy(*given_)))


@pytest.mark.parametrize("states", [3, 20])
def test_an_index_out_of_range_is_told(states: int) -> None:
    given_ = model(states, 5, 0)
    given_[0][3] = 7
    with pytest.raises(IndexError, match="7"):
        likely(*given_, target="cpu")


@tw.program
def mixed(steps: tw.f32["n", "m"], first: tw.f32["m"], t: tw.i64) -> Any:
    """Sums down the columns, and sums along the rows, of which only the first lie beside each other."""
    n, m = steps.shape

    def step(k: Any, now: Any, rows: Any) -> Any:
        columns = tw.map(
            lambda j: tw.reduce("add", 0.0, tw.map(lambda i: rows[i] * steps[i, j], tw.iota(n))) / (now[j] + n),
            tw.iota(m),
        )
        along = tw.map(lambda i: tw.reduce("add", 0.0, tw.map(lambda j: now[j] * steps[i, j], tw.iota(m))), tw.iota(n))
        return columns, along

    return tw.loop(t, (first, tw.replicate(n, tw.cast(1, "f32"))), step)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (5, 3), (300, 7), (7, 40), (33, 64)])
def test_sums_both_ways(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    steps, now = random.random(shape, np.float32) / shape[0] / shape[1], random.random(shape[1], np.float32)
    found = mixed(steps, now, 4, target="cpu")
    rows = np.ones(shape[0], np.float32)
    for _ in range(4):
        now, rows = rows @ steps / (now + shape[0]), steps @ now
    np.testing.assert_allclose(found[0], now, rtol=1e-4)
    np.testing.assert_allclose(found[1], rows, rtol=1e-4)
