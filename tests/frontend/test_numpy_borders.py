"""Borders around traced arrays whose sizes only the call knows, and weighted means, against NumPy."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret

PERIODIC = ("reflect", "symmetric", "wrap")


@tw.program
def around(x: tw.f64["n"], before: tw.i64, after: tw.i64) -> Any:
    return tuple(np.pad(x, (before, after), mode) for mode in PERIODIC)


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
@given(st.integers(1, 7), st.integers(0, 20), st.integers(0, 20))
@settings(max_examples=40, deadline=None)
@example(1, 3, 1)
@example(2, 0, 9)
def test_borders_of_any_width_repeat_what_there_is(target: str, extent: int, before: int, after: int) -> None:
    x = np.arange(1.0, extent + 1)
    wanted = [np.pad(x, (before, after), mode) for mode in PERIODIC]  # type: ignore[call-overload]
    for found in (around(x, before, after, target=target), interpret(around.trace(), [x, before, after])):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", PERIODIC)
@pytest.mark.parametrize("width", [1, 2, 5])
def test_constant_widths_around_matrices_of_any_size(mode: Any, width: int) -> None:
    @tw.program
    def padded(x: tw.f64["n", "m"]) -> Any:
        return np.pad(x, ((width, 0), (1, width)), mode)

    for shape in ((1, 1), (2, 1), (3, 2), (9, 8)):
        x = np.arange(float(np.prod(shape))).reshape(shape)
        np.testing.assert_array_equal(padded(x), np.pad(x, ((width, 0), (1, width)), mode))


def test_wide_borders_of_constant_sizes() -> None:
    @tw.program
    def padded(x: tw.f64[2, 3]) -> Any:
        return tuple(np.pad(x, ((7, 0), (2, 5)), mode) for mode in PERIODIC)

    x = np.arange(6.0).reshape(2, 3)
    for found, mode in zip(padded(x), PERIODIC, strict=True):
        np.testing.assert_array_equal(found, np.pad(x, ((7, 0), (2, 5)), mode))  # type: ignore[call-overload]


def test_there_is_nothing_to_put_around_no_elements() -> None:
    @tw.program
    def padded(x: tw.f64["n"]) -> Any:
        return np.pad(x[:0], 1, "reflect")

    with pytest.raises(ValueError, match="'reflect' has nothing to put around a dimension of size 0"):
        padded(np.ones(3))
    with pytest.raises(IndexError):
        around(np.ones(0), 2, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_ramps_end_at_their_values(dtype: Any) -> None:
    @tw.program
    def ramps(x: tw.any_["n", "m"], last: tw.i64) -> Any:
        return np.pad(x, ((2, last), (0, 3)), "linear_ramp", end_values=((5, -1), (0, 2))), np.pad(
            x, 1, mode="linear_ramp"
        )

    x = np.array([[1, 2.5, 3], [-4, 5, 0.125]], dtype)
    for last in (0, 1, 6):
        wanted = np.pad(x, ((2, last), (0, 3)), "linear_ramp", end_values=((5, -1), (0, 2)))
        found, by_one = ramps(x, last)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(by_one, np.pad(x, 1, mode="linear_ramp"))


def test_ramps_of_integers_say_how_they_are_written() -> None:
    @tw.program
    def ramps(x: tw.i64["n"]) -> Any:
        return np.pad(x, 2, "linear_ramp")

    with pytest.raises(TypeError, match=r"of i64: convert it with .astype\(tw.f64\), then back"):
        ramps(np.arange(3))


def test_averages_are_those_of_numpy() -> None:
    @tw.program
    def averages(x: tw.f64["n", "m"], counts: tw.i64["n", "m"], rows: tw.f32["n"], single: tw.f32["m"]) -> Any:
        return (
            np.average(x), np.average(x, axis=1), np.average(x, weights=counts),
            np.average(x, 0, rows), np.average(x, axis=-1, weights=single, keepdims=True),
            np.average(counts, axis=0, weights=counts), np.average(single, weights=single), np.average(counts, (0, 1)),
        )  # fmt: skip

    x, counts = np.arange(6.0).reshape(2, 3), np.array([[1, 2, 3], [4, 5, 6]])
    rows, single = np.array([1, 3], np.float32), np.array([0.5, 1, 4], np.float32)
    for one, other in zip(averages(x, counts, rows, single), averages.function(x, counts, rows, single), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=1e-7)


@pytest.mark.parametrize("weights", ["vector", "number"])
def test_weights_that_lie_along_no_axis_are_refused(weights: str) -> None:
    @tw.program
    def averages(x: tw.f64["n", "m"], w: tw.f64["m"]) -> Any:
        return np.average(x, weights=w) if weights == "vector" else np.average(x, weights=2.0)

    with pytest.raises(TypeError, match="weights are an array of 2 dimensions, or a vector along one axis"):
        averages(np.ones((2, 3)), np.ones(3))
