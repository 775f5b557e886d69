"""Sums of products that are written out in a reduction: which are dimensions of a contraction, and what they give."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw


def windows(x: Any, rows: int, columns: int) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, (rows, columns), (2, 3))


def convolution(rows: int, columns: int, order: Any = None, apart: int = 1) -> Any:
    """A convolution of images with a window that is written out, in some order of its terms."""
    places = [(a, b) for a in range(rows) for b in range(columns)]
    places = places if order is None else [places[one] for one in order]

    @tw.program
    def program(x: tw.float_["n", "c", "h", "w"], k: tw.float_["o", "c", "rows", "columns"]) -> Any:
        _, _, h, w = x.shape
        high, wide = h - apart * (rows - 1), w - apart * (columns - 1)

        def at(image: Any, window: Any, y: Any, z: Any) -> Any:
            def channel(p: Any, q: Any) -> Any:
                return sum(p[y + apart * a, z + apart * b] * q[a, b] for a, b in places)

            return tw.reduce("add", 0, tw.map(channel, image, window))

        def filtered(image: Any, window: Any) -> Any:
            rows_ = tw.iota(high)
            return tw.map(lambda y: tw.map(lambda z: at(image, window, y, z), tw.iota(wide)), rows_)

        return tw.map(lambda image: tw.map(lambda window: filtered(image, window), k), x)

    return program


def is_contraction(program: Any, *dtypes: str) -> bool:
    return "a contraction over" in program.explain(*dtypes)


def given_arrays(rows: int, columns: int, dtype: str = "f4") -> tuple[Any, Any]:
    random = np.random.default_rng(rows + columns)
    x, k = random.integers(-3, 4, (2, 3, 9, 11)), random.integers(-3, 4, (4, 3, rows, columns))
    return x.astype(dtype), k.astype(dtype)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), st.sampled_from(["f4", "f8"]))
@settings(max_examples=8, deadline=None)
def test_windows_that_are_written_out_are_dimensions(rows: int, columns: int, apart: int, dtype: str) -> None:
    x, k = given_arrays(rows, columns, dtype)
    program = convolution(rows, columns, apart=apart)
    found = program(x, k, target="cpu")
    seen = windows(x, apart * (rows - 1) + 1, apart * (columns - 1) + 1)[..., ::apart, ::apart]
    np.testing.assert_array_equal(found, np.einsum("ncyzab,ocab->noyz", seen, k))
    assert is_contraction(program, dtype, dtype) == (rows * columns == 1 or rows * columns >= 4)


def test_terms_that_form_no_grid_stay_as_they_are() -> None:
    x, k = given_arrays(2, 3)
    expected = np.einsum("ncyzab,ocab->noyz", windows(x, 2, 3), k)
    grids = [None, (5, 4, 3, 2, 1, 0), (0, 3, 1, 4, 2, 5)]
    for order, is_grid in (*((one, True) for one in grids), ((0, 1, 2, 4, 3, 5), False)):
        program = convolution(2, 3, order)
        np.testing.assert_array_equal(program(x, k, target="cpu"), expected)
        assert is_contraction(program, "f4", "f4") == is_grid


def test_windows_at_least_distances_are_contractions_of_their_own_operator() -> None:
    @tw.program
    def nearest(x: tw.f32["c", "n"], k: tw.f32["o", "c", 4]) -> Any:
        def at(window: Any, z: Any) -> Any:
            def channel(p: Any, q: Any) -> Any:
                found = p[z] + q[0]
                for b in range(1, 4):
                    found = tw.minimum(found, p[z + b] + q[b])
                return found

            return tw.reduce("min", np.inf, tw.map(channel, x, window))

        return tw.map(lambda window: tw.map(lambda z: at(window, z), tw.iota(x.shape[1] - 3)), k)

    random = np.random.default_rng(0)
    x, k = random.random((3, 40), np.float32), random.random((5, 3, 4), np.float32)
    seen = np.lib.stride_tricks.sliding_window_view(x, 4, 1)
    wanted = (seen[None] + k[:, :, None]).min((1, 3))
    np.testing.assert_array_equal(nearest(x, k, target="cpu"), wanted)
    assert is_contraction(nearest)


def test_different_terms_and_elements_used_once_stay_as_they_are() -> None:
    @tw.program
    def different(x: tw.f64["c", "n"], k: tw.f64["o", "c", 4]) -> Any:
        def at(window: Any, z: Any) -> Any:
            def channel(p: Any, q: Any) -> Any:
                return p[z] * q[0] + p[z + 1] * q[1] + p[z + 2] * q[2] + p[z + 3] * q[3] * 2

            return tw.reduce("add", 0, tw.map(channel, x, window))

        return tw.map(lambda window: tw.map(lambda z: at(window, z), tw.iota(x.shape[1] - 3)), k)

    @tw.program
    def one_window(x: tw.f64["c", "n"], k: tw.f64["c", 4]) -> Any:
        def at(z: Any) -> Any:
            return tw.reduce("add", 0, tw.map(lambda p, q: sum(p[z + b] * q[b] for b in range(4)), x, k))

        return tw.map(at, tw.iota(x.shape[1] - 3))

    random = np.random.default_rng(0)
    x, k = (random.integers(-3, 4, shape).astype(np.float64) for shape in ((3, 20), (5, 3, 4)))
    seen = np.lib.stride_tricks.sliding_window_view(x, 4, 1)
    doubled = k * np.array([1, 1, 1, 2])
    np.testing.assert_array_equal(different(x, k, target="cpu"), np.einsum("czb,ocb->oz", seen, doubled))
    np.testing.assert_array_equal(one_window(x, k[0], target="cpu"), np.einsum("czb,cb->z", seen, k[0]))
    assert not is_contraction(different)
    assert not is_contraction(one_window)


@pytest.mark.parametrize("columns", [12, 14])
def test_indices_out_of_range_are_still_found(columns: int) -> None:
    @tw.program
    def beyond(x: tw.f64["c", "n"], k: tw.f64["o", "c", 4], m: tw.i64) -> Any:
        def at(window: Any, z: Any) -> Any:
            return tw.reduce("add", 0, tw.map(lambda p, q: sum(p[z + b] * q[b] for b in range(4)), x, window))

        return tw.map(lambda window: tw.map(lambda z: at(window, z), tw.iota(m)), k)

    x, k = np.ones((3, 15)), np.ones((5, 3, 4))
    if columns == 12:
        np.testing.assert_array_equal(beyond(x, k, columns, target="cpu"), np.full((5, 12), 12.0))
    else:
        with pytest.raises(IndexError):
            beyond(x, k, columns, target="cpu")
