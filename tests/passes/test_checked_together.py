"""Indices that are checked for many points together: right results, and errors for just those that are out of range."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import For, If, Kernel
from tilewright.kernel.traversal import walk
from tilewright.runtime import cpu_device


@tw.program
def gathered(xs: tw.f64["n"], places: tw.i64["m"]) -> Any:
    return tw.map(lambda place: 2 * xs[place], places)


@tw.program
def twice_gathered(xs: tw.f64["n"], places: tw.i64["m"]) -> Any:
    return tw.map(lambda place: xs[places[place]], places)


@tw.program
def guarded(xs: tw.f64["n"], places: tw.i64["m"]) -> Any:
    """Places from 1000 on are not read."""
    return tw.map(lambda place: tw.cond(place < 1000, lambda: xs[place], lambda: -1.0), places)


@tw.program
def sums(weights: tw.f64["r", "w"], places: tw.i64["r", "w"], xs: tw.f64["n"]) -> Any:
    def row(entries: Any, columns: Any) -> Any:
        return tw.reduce("add", 0, tw.map(lambda weight, place: weight * xs[place], entries, columns))

    return tw.map(row, weights, places)


@tw.program
def guarded_sums(weights: tw.f64["r", "w"], places: tw.i64["r", "w"], xs: tw.f64["n"]) -> Any:
    def row(entries: Any, columns: Any) -> Any:
        def term(weight: Any, place: Any) -> Any:
            return weight * tw.cond(place < 1000, lambda: xs[place], lambda: 0.0)

        return tw.reduce("add", 0, tw.map(term, entries, columns))

    return tw.map(row, weights, places)


@tw.program
def walked(xs: tw.f64["n"], places: tw.i64["m"]) -> Any:
    """Steps of 1 from a place on until something negative is found; every place has one behind it."""
    return tw.map(lambda place: tw.while_loop(lambda at: xs[at] >= 0, place, lambda at: at + 1), places)


@tw.program
def changed(table: tw.f64["n"], places: tw.i64["m"]) -> Any:
    return tw.map(lambda place: tw.reduce("add", 0, tw.update(table, place, 100.0)), places)


def check(call: Any, bad: np.ndarray, expected: Any) -> None:
    """The call's result is as expected; if indices are bad it is an error with one of them."""
    if bad.size:
        with pytest.raises(IndexError, match="index") as raised:
            call()
        found = re.search(r"index (-?\d+) of", str(raised.value))
        assert found is not None and int(found[1]) in bad
    else:
        np.testing.assert_allclose(call(), expected(), rtol=1e-12)


sizes = st.integers(1, 5)
mistakes = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from([-1, -(2**63), 2**62, "end"])), max_size=2)


def with_mistakes(places: np.ndarray, n: int, made: list[Any]) -> np.ndarray:
    for at, wrong in made:
        if places.size:
            places.flat[at % places.size] = n if wrong == "end" else wrong
    return places


def outside(places: np.ndarray, n: int) -> np.ndarray:
    return places[(places < 0) | (places >= n)]


@given(sizes, st.integers(0, 70), mistakes, st.integers(0, 99))
def test_elements(n: int, m: int, made: list[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    xs, places = rng.random(n), with_mistakes(rng.integers(0, n, m), n, made)
    bad = outside(places, n)
    check(lambda: gathered(xs, places, target="cpu"), bad, lambda: 2 * xs[places])
    later = np.where((places >= 0) & (places < n), places, places % 7 + 1000)
    check(lambda: guarded(xs, later, target="cpu"), bad[:0], lambda: np.where(later < 1000, xs[later % n], -1.0))


@given(sizes, st.integers(1, 70), mistakes, st.integers(0, 99))
def test_indices_that_are_read_by_indices(n: int, m: int, made: list[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    xs, places = rng.random(n), with_mistakes(rng.integers(0, min(n, m), m), n, made)
    inner = places[places[(places >= 0) & (places < m)]]
    bad = np.concatenate([outside(places, m), outside(inner, n)])
    check(lambda: twice_gathered(xs, places, target="cpu"), bad, lambda: xs[places[places]])


@given(st.integers(1, 6), st.sampled_from([0, 1, 3, 4, 7, 16, 33, 129, 300]), sizes, mistakes, st.integers(0, 99))
def test_sums_of_rows(r: int, w: int, n: int, made: list[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, xs = rng.random((r, w)), rng.random(n)
    places = with_mistakes(rng.integers(0, n, (r, w)), n, made)
    bad = outside(places, n)
    check(lambda: sums(weights, places, xs, target="cpu"), bad, lambda: np.sum(weights * xs[places], axis=1))
    later = np.where((places >= 0) & (places < n), places, places % 7 + 1000)
    terms = np.where(later < 1000, xs[later % n], 0.0)
    check(lambda: guarded_sums(weights, later, xs, target="cpu"), bad[:0], lambda: np.sum(weights * terms, axis=1))


def test_a_walk_that_leaves_the_array_ends() -> None:
    xs = np.array([1.0, 2, -1, 4, -5])
    assert walked(xs, np.array([0, 1, 3, 4]), target="cpu").tolist() == [2, 2, 4, 4]
    with pytest.raises(IndexError, match="index 4 of xs"):
        walked(xs[:4], np.array([0, 1, 3]), target="cpu")
    with pytest.raises(IndexError, match="index 0 of xs"):
        walked(xs[:0], np.array([0]), target="cpu")


def test_nothing_is_written_out_of_range() -> None:
    table = np.arange(3.0)
    assert changed(table, np.array([0, 2]), target="cpu").tolist() == [103, 101]
    for places in ([3], [0, -1, 1]):
        with pytest.raises(IndexError, match="table"):
            changed(table, np.array(places), target="cpu")
    with pytest.raises(IndexError, match="index 0 of table"):
        changed(table[:0], np.array([0]), target="cpu")


def test_the_first_of_a_worker_is_told() -> None:
    places = np.array([0, 5, 1, 7, 2])
    with tw.num_threads(1), pytest.raises(IndexError, match="index 5 of xs"):
        gathered(np.ones(3), places, target="cpu")


def test_loops_without_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Kernel] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        found.append(kernel)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)

    @tw.program
    def shifted(xs: tw.f32["n"], places: tw.i32["m"]) -> Any:
        return tw.map(lambda place: xs[place] + 1, places)

    assert shifted(np.ones(3, np.float32), np.array([0, 2], np.int32), target="cpu").tolist() == [2, 2]
    loops = [one for one in walk(found[-1].body) if isinstance(one, For) and one.independent]
    assert loops and not any(isinstance(one, If) for one in walk(loops[0].body))
