"""Scatters that compute their indices and values, against NumPy."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Map, Sweep
from tilewright.passes.last_rewrites import sweep
from tilewright.passes.pipelines import run_pipeline


@tw.program
def turned(x: tw.f32["n"], room: tw.f32["m"], shift: tw.i64) -> Any:
    """Every second place, from the end; some lie outside."""
    count = x.shape[0]
    places = tw.map(lambda i: 2 * (count - 1 - i) + shift, tw.iota(count))
    return tw.scatter(room, places, tw.map(lambda e: e * e, x))


@tw.program
def kept(x: tw.i64["n"], room: tw.i64["m"]) -> Any:
    """The indices are asked for too."""
    places = tw.map(lambda e: e * 3, x)
    return tw.scatter(room, places, tw.map(lambda e: e + 1, x)), places


@tw.program
def both(x: tw.i64["n"], room: tw.i64["m"], table: tw.i64["k"]) -> Any:
    """One map gives indices and values, and reads through indices."""
    places, values = tw.map(lambda e: (table[e], e + 100), x)
    return tw.scatter(room, places, values)


def scattered(room: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    found, inside = room.copy(), (places >= 0) & (places < len(room))
    found[places[inside]] = values[inside]
    return found


@given(st.integers(0, 80), st.integers(0, 100), st.integers(-5, 5), st.integers(0, 9))
@settings(deadline=None, max_examples=60)
def test_places_inside_and_outside(count: int, room: int, shift: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, before = random.random(count).astype("f4"), random.random(room).astype("f4")
    places = 2 * (count - 1 - np.arange(count)) + shift
    np.testing.assert_array_equal(turned(x, before, np.int64(shift)), scattered(before, places, x * x))


@given(st.integers(0, 60), st.integers(0, 9))
@settings(deadline=None, max_examples=30)
def test_maps_that_are_used_elsewhere_or_give_both(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, before = random.permutation(count), random.integers(0, 9, 90)
    found, places = kept(x, before)
    np.testing.assert_array_equal(places, 3 * x)
    np.testing.assert_array_equal(found, scattered(before, 3 * x, x + 1))
    table = random.permutation(count) - 1
    np.testing.assert_array_equal(both(x, before, table), scattered(before, table[x], x + 100))


def test_the_forms_are_found() -> None:
    """Where a map gives something that is asked for too, it is not computed twice."""
    for program, wanted in ((turned, 1), (kept, 0), (both, 1)):
        found = [one.expression for one in sweep(run_pipeline(program.trace())).body.statements]
        assert sum(isinstance(one, Sweep) for one in found) == wanted
        assert not wanted or not any(isinstance(one, Map) for one in found)


def test_the_interpreter_agrees() -> None:
    x, room = np.arange(20), np.zeros(50, np.int64)
    for one, other in zip(interpret(kept.trace(), (x, room)), kept(x, room), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_index_out_of_range_is_reported() -> None:
    with pytest.raises(IndexError, match="index 7 of table is out of range in dimension 0 of extent 7"):
        both(np.array([1, 7]), np.zeros(5, np.int64), np.zeros(7, np.int64))
