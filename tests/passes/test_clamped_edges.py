"""Arrays padded by indices clamped to their edges: checked only where they are empty, so in parts and in vectors."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import For, Kernel
from tilewright.kernel.traversal import expressions, walk
from tilewright.runtime import cpu_device


def clamped(index: Any, extent: Any) -> Any:
    return tw.minimum(tw.maximum(index, 0), extent - 1)


@tw.program
def padded(xs: tw.f64["n"], before: tw.i64, after: tw.i64) -> Any:
    n = xs.shape[0]
    return tw.map(lambda i: xs[clamped(i - before, n)], tw.iota(n + before + after))


@tw.program
def padded_twice(xs: tw.f64["n", "m"], width: tw.i64) -> Any:
    n, m = xs.shape

    def row(i: Any) -> Any:
        return tw.map(lambda j: xs[clamped(i - width, n), clamped(j - width, m)], tw.iota(m + 2 * width))

    return tw.map(row, tw.iota(n + 2 * width))


@tw.program
def partly_clamped(xs: tw.f64["n"], places: tw.i64["m"], start: tw.i64) -> Any:
    """Of two indices one is clamped and the other one has to be checked."""
    n = xs.shape[0]
    return tw.map(lambda i, place: xs[clamped(i + start, n)] + xs[place], tw.iota(places.shape[0]), places)


@given(st.integers(1, 200), st.integers(0, 70), st.integers(0, 70))
def test_padding_repeats_the_edges(n: int, before: int, after: int) -> None:
    xs = np.random.default_rng(n).random(n)
    np.testing.assert_array_equal(padded(xs, before, after, target="cpu"), np.pad(xs, (before, after), mode="edge"))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 90), st.integers(0, 40))
def test_padding_of_two_dimensions(n: int, m: int, width: int) -> None:
    xs = np.random.default_rng(n).random((n, m))
    np.testing.assert_array_equal(padded_twice(xs, width, target="cpu"), np.pad(xs, width, mode="edge"))


def test_there_is_no_edge_of_nothing() -> None:
    assert padded(np.zeros(0), 0, 0, target="cpu").shape == (0,)
    with pytest.raises(IndexError, match="index -1 of"):
        padded(np.zeros(0), 3, 2, target="cpu")
    for shape in ((0, 4), (4, 0), (0, 0)):
        with pytest.raises(IndexError, match="index -1 of"):
            padded_twice(np.zeros(shape), 1, target="cpu")
        assert padded_twice(np.zeros(shape), 0, target="cpu").shape == shape


@given(st.integers(1, 9), st.lists(st.integers(-2, 10), max_size=90), st.integers(-100, 100))
def test_other_indices_are_checked_still(n: int, places: list[int], start: int) -> None:
    xs, at = np.random.default_rng(n).random(n), np.array(places, np.int64)
    bad = at[(at < 0) | (at >= n)]
    if bad.size:
        with pytest.raises(IndexError, match=f"index {bad[0]} of"):
            partly_clamped(xs, at, start, target="cpu")
    else:
        expected = xs[np.clip(np.arange(at.size) + start, 0, n - 1)] + xs[at]
        np.testing.assert_array_equal(partly_clamped(xs, at, start, target="cpu"), expected)


def test_the_middle_is_read_at_consecutive_places(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[Kernel] = []
    compiled = cpu_device._compile
    monkeypatch.setattr(cpu_device, "_compile", lambda kernel: kernels.append(kernel) or compiled(kernel))

    @tw.program
    def padded_anew(xs: tw.f32["n"], width: tw.i64) -> Any:
        n = xs.shape[0]
        return tw.map(lambda i: xs[clamped(i - width, n)], tw.iota(n + 2 * width))

    padded_anew(np.zeros(50, np.float32), 3, target="cpu")
    (kernel,) = kernels
    names = {one.name for one in walk(kernel.body) if hasattr(one, "name")}
    assert not any(name.startswith("any_bad") for name in names), "all points are checked"
    loops = [one for one in walk(kernel.body) if isinstance(one, For) and one.independent]
    bare = [one for one in loops if not any(node for node in _clamps(one))]
    assert bare, "no loop is without clamps"


def _clamps(loop: For) -> list[Any]:
    return [
        node
        for statement in walk(loop.body)
        for top in expressions(statement)
        for node in _all(top)
        if getattr(node, "operator", "") in ("min", "max", "select")
    ]


def _all(node: Any) -> Any:
    yield node
    for one in getattr(node, "operands", ()):
        yield from _all(one)
