"""Folds by operators that do not commute, which a CPU folds in vectors as trees of neighbours, against NumPy."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.passes.points.lower_order import BLOCK, SHORT

DEVICES = ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)]
LENGTHS = [0, 1, SHORT - 1, SHORT, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 77, 70_000]


def nearer(one: Any, two: Any) -> Any:
    first = (one[0] < two[0]) | ((one[0] == two[0]) & (one[1] < two[1]))
    return tw.where(first, one[0], two[0]), tw.where(first, one[1], two[1])


def latter_of_equals(one: Any, two: Any) -> Any:
    return tw.where(one[0] > two[0], one[0], two[0]), tw.where(one[0] > two[0], one[1], two[1])


@tw.program
def smallest(x: tw.f32["n"]) -> Any:
    return tw.reduce(nearer, (np.inf, 2**62), x, tw.iota(x.shape[0]))


@tw.program
def last_largest(x: tw.f64["n"]) -> Any:
    return tw.reduce(latter_of_equals, (-np.inf, -1), x, tw.iota(x.shape[0]))


@tw.program
def smallest_of_rows(x: tw.f32["n", "m"]) -> Any:
    return tw.map(lambda row: tw.reduce(nearer, (np.inf, 2**62), row, tw.iota(x.shape[1])), x)


@tw.program
def affine(slope: tw.u32["n"], offset: tw.u32["n"]) -> Any:
    return tw.reduce(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (1, 0), slope, offset)


@tw.program
def first_set(x: tw.bool_["n"], y: tw.i16["n"]) -> Any:
    def former(one: Any, two: Any) -> Any:
        return one[0] | two[0], tw.where(one[0], one[1], two[1])

    return tw.reduce(former, (False, 0), x, y)


@tw.program
def log_of_exponentials(x: tw.f32["n"]) -> Any:
    def both(one: Any, two: Any) -> Any:
        largest = tw.maximum(one[0], two[0])
        return largest, one[1] * tw.exp(one[0] - largest) + two[1] * tw.exp(two[0] - largest)

    return tw.reduce(both, (-1e30, 0.0), x, tw.map(lambda _: 1.0, x))


def on(device: str, threads: int, program: Any, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    before = tw.get_num_threads()
    tw.set_num_threads(threads)
    try:
        return tuple(np.asarray(one) for one in program(*arrays, target=device))
    finally:
        tw.set_num_threads(before)


def places(device: str, lengths: list[int]) -> Any:
    """(length, step, threads, seed) of examples."""
    return st.tuples(st.sampled_from(lengths), st.sampled_from([1, 2, -1]), st.sampled_from([1, 2]), st.integers(0, 99))


@pytest.mark.parametrize("device", DEVICES)
def test_places_of_extremes(device: str) -> None:
    @settings(max_examples=examples(25 if device == "cpu" else 6))
    @given(places(device, LENGTHS))
    def run(where: tuple[int, int, int, int]) -> None:
        length, step, threads, seed = where
        x = np.random.default_rng(seed).integers(0, max(2, length // 4), length * abs(step)).astype("f4")[::step]
        value, at = on(device, threads, smallest, x)
        expected = (x.min(), x.argmin()) if length else (np.inf, 2**62)
        assert (value, at) == expected
        value, at = on(device, threads, last_largest, x.astype("f8"))
        expected = (x.max(), length - 1 - x[::-1].argmax()) if length else (-np.inf, -1)
        assert (value, at) == expected

    run()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [1, BLOCK, 2 * BLOCK + 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_places_in_rows(device: str, length: int, order: Any) -> None:
    x = np.asarray(np.random.default_rng(length).integers(0, 50, (9, length)), "f4", order=order)
    value, at = on(device, 2, smallest_of_rows, x)
    np.testing.assert_array_equal(value, x.min(axis=1))
    np.testing.assert_array_equal(at, x.argmin(axis=1))


@pytest.mark.parametrize("device", DEVICES)
def test_operators_that_do_not_commute(device: str) -> None:
    @settings(max_examples=examples(20 if device == "cpu" else 5))
    @given(places(device, LENGTHS[:-1]))
    def run(where: tuple[int, int, int, int]) -> None:
        length, step, threads, seed = where
        random = np.random.default_rng(seed)
        a, b = (random.integers(0, 2**32, length * abs(step)).astype("u4")[::step] for _ in range(2))
        slope, offset = 1, 0
        for f, g in zip(a.tolist(), b.tolist(), strict=True):
            slope, offset = slope * f % 2**32, (offset * f + g) % 2**32
        assert on(device, threads, affine, a, b) == (slope, offset)
        x, y = random.random(len(a)) < 0.01, random.integers(1, 999, len(a)).astype("i2")
        found, value = on(device, threads, first_set, x, y)
        assert bool(found) == x.any() and (not x.any() or value == y[x.argmax()])

    run()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_of_exponentials(device: str, length: int) -> None:
    x = (np.random.default_rng(length).random(length) * 20 - 10).astype("f4")
    largest, total = on(device, 1, log_of_exponentials, x)
    assert largest == (x.max() if length else np.float32(-1e30))
    exact = np.exp(x.astype("f8") - largest).sum()
    # Each row is multiplied and added up to once for each of the others; an exponential is good to 4 units here.
    assert abs(total - exact) <= 8 * (length + 1) * np.finfo("f4").eps * exact
