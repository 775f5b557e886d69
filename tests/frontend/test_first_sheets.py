"""What a first exercise sheet meets: loops that carry several values, borders from lists, indices that nobody reads."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw


def test_bodies_that_take_a_tuple_are_told_what_they_are_given() -> None:
    @tw.program
    def fibonacci(n: tw.i64) -> Any:
        return tw.loop(n, (0, 1), lambda i, pair: (pair[1], pair[0] + pair[1]))[0]

    @tw.program
    def halvings(n: tw.i64) -> Any:
        return tw.while_loop(lambda state: state[0] > 1, (n, 0), lambda k, c: (k // 2, c + 1))[1]

    with pytest.raises(TypeError, match=r"lambda\(i, pair\) is called with 3 arguments, the index and each carried"):
        fibonacci(5)
    with pytest.raises(TypeError, match=r"while_loop: the lambda\(state\) is called with 2 arguments, each carried"):
        halvings(5)


def test_lists_of_scalars_are_joined_to_arrays() -> None:
    @tw.program
    def averages(x: tw.f64["n"], w: tw.i64) -> Any:
        sums = np.concatenate([[0], np.cumsum(x)])
        return (sums[w:] - sums[: sums.shape[0] - w]) / w, tw.concat([x[0], 1.5], x)

    x = np.arange(6.0)
    found, joined = averages(x, 3)
    np.testing.assert_allclose(found, np.convolve(x, np.ones(3) / 3, "valid"))
    np.testing.assert_array_equal(joined, [0.0, 1.5, *x])


@pytest.mark.parametrize("part", [slice(None, -1), slice(-1, None), slice(None, -1, -1)])
def test_computed_ends_do_not_count_from_the_end(part: slice) -> None:
    @tw.program
    def short(x: tw.f64["n"], w: tw.i64) -> Any:
        return x[slice(*(w * one if one else None for one in (part.start, part.stop)), part.step)]

    with pytest.raises(TypeError, match="of x: -w is computed, and so counts from 0; from the end on it is n - w"):
        short(np.ones(5), 2)


def test_nested_lists_are_no_vectors() -> None:
    @tw.program
    def joined(x: tw.f64["n"]) -> Any:
        return tw.concat([[1.0]], x)

    with pytest.raises(TypeError, match="concat: argument 0 must be an array"):
        joined(np.ones(2))


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_indices_of_a_product_are_not_stored(target: str) -> None:
    @tw.program
    def products(x: tw.f64["n"], y: tw.f64["m"]) -> Any:
        return tw.map(lambda i: tw.map(lambda j: x[i] * y[j], tw.iota(y.shape[0])), tw.iota(x.shape[0]))

    x, y = np.arange(3.0), np.arange(4.0)
    np.testing.assert_array_equal(products(x, y, target=target), np.outer(x, y))
    assert "iota" not in products.explain(target=target)


def test_bounds_of_clip_may_be_missing_or_named() -> None:
    @tw.program
    def clipped(x: tw.f64["n"]) -> Any:
        return np.clip(x, 1, None), np.clip(x, a_min=0, a_max=1), x.clip(max=2), np.clip(x, min=x[1]), x.clip(0, 1)

    x = np.array([-1.0, 0.5, 3.0, np.nan])
    for found, wanted in zip(clipped(x), clipped.function(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_questions_about_sizes_name_them() -> None:
    @tw.program
    def short(x: tw.f64["n"]) -> Any:
        return x if x.shape[0] - 1 > 3 else x * 2

    with pytest.raises(TypeError, match="the value of \\(n - 1\\) > 3 is not known"):
        short(np.ones(3))


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_rows_of_constant_length_are_as_many_as_fit(target: str) -> None:
    @tw.program
    def pairs(x: tw.f64["n"], y: tw.f64["m", "n"]) -> Any:
        return x.reshape(-1, 2).sum(axis=1), tw.map(lambda row: row.reshape(2, -1, 3).sum(axis=0), y), x.reshape(-1, 6)

    x, y = np.arange(12.0), np.arange(24.0).reshape(2, 12)
    sums, blocks, six = pairs(x, y, target=target)
    np.testing.assert_array_equal(sums, x.reshape(-1, 2).sum(axis=1))
    np.testing.assert_array_equal(blocks, y.reshape(2, 2, -1, 3).sum(axis=1))
    np.testing.assert_array_equal(six, x.reshape(-1, 6))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"pairs: .*reshape"):
            pairs(np.arange(9.0), np.ones((2, 9)), target=target)


def test_shapes_of_other_numbers_of_elements_are_refused_at_once() -> None:
    @tw.program
    def pairs(x: tw.f64[7]) -> Any:
        return x.reshape(-1, 2)

    with pytest.raises(TypeError, match="what -1 stands for cannot be said"):
        pairs(np.ones(7))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (lambda k, b: (k + 1, -1), "to (k + 1, -1): what -1 stands for cannot be said (n elements in k + 1 parts)"),
        (lambda k, b: (2, -1, b), "to (2, -1, b): what -1 stands for cannot be said (n elements in 2 by b parts)"),
        (lambda k, b: (-1, 2, -1), "-1 stands for one size only"),
    ],
)
def test_shapes_that_leave_a_size_are_told_as_they_are_written(shape: Callable[[Any, Any], Any], message: str) -> None:
    @tw.program
    def parts(x: tw.f64["n"], k: tw.i64, b: tw.u8) -> Any:
        return x.reshape(shape(k, b))

    with pytest.raises(TypeError, match=re.escape(message)):
        parts(np.ones(6), 1, 2)


def test_integers_meet_complex_constants_in_the_complex_type() -> None:
    @tw.program
    def transform(x: tw.c128["n"], small: tw.i8["n"]) -> Any:
        n, k = x.shape[0], tw.iota(x.shape[0])
        return tw.map(lambda a: (x * np.exp(-2j * np.pi * a * k / n)).sum(), k), small * 1j

    x, small = np.arange(8.0) + 0j, np.arange(8, dtype=np.int8)
    found, turned = transform(x, small)
    np.testing.assert_allclose(found, np.fft.fft(x), atol=1e-12)
    assert turned.dtype == np.complex128
    np.testing.assert_array_equal(turned, small * 1j)
