"""Reshapes and slices of what may be empty: NumPy's results, or an error where there are other numbers of elements.

Inside of maps they are part of kernels, which read outside of the arrays.
"""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.kinds import FLATTENINGS
from tilewright.runtime.devices import device_for

each_device = pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])

INSIDE: dict[str, Callable[[Any], Any]] = {
    "flat": lambda q: q[1:-1, 1:-1].reshape(-1),
    "ravel": lambda q: np.ravel(q[2:, 1:-1] + 1),
    "turned": lambda q: q[1:-1, 1:-1].T.reshape(-1),
    "one row": lambda q: q[1:-1, 1:-1].reshape(1, -1),
    "backwards": lambda q: q[1:-1, 1:-1][::-1].reshape(-1),
    "again": lambda q: q[1:, 1:-1][1:].reshape(-1),
    "twice": lambda q: q[1:-1, 1:-1].reshape(-1).reshape(q[1:-1, 1:-1].shape),
    "tiled": lambda q: np.tile(q[1:-1, 1:-1], (2, 2)),
    "repeated": lambda q: np.repeat(q[1:-1, 1:-1], 2),
    "summed": lambda q: np.cumsum(q[1:-1, 1:-1]),
    "best": lambda q: (q[1:-1, 1:-1] + 1).reshape(-1).sum(),
    "copies": lambda q: np.stack([q[1:-1, 1:-1]] * 2).reshape(-1),
    "long": lambda q: q[1:-1, 1:-1][None].reshape(-1),
}
SHAPES = [(3, 1, 1), (3, 0, 1), (2, 1, 4), (2, 4, 1), (2, 2, 1), (2, 3, 4), (2, 2, 2), (0, 1, 1)]


@each_device
@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reshapes_of_what_is_left_are_those_of_numpy(name: str, shape: tuple[int, ...], target: str) -> None:
    function = INSIDE[name]

    @tw.program
    def whole(q: tw.f64["n", "m"]) -> Any:
        return function(q)

    @tw.program
    def rows(x: tw.f64["k", "n", "m"]) -> Any:
        return tw.map(function, x)

    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    if shape[0]:
        expected = function(x[0])
        for _ in range(2):
            found = whole(x[0], target=target)
            assert np.shape(found) == np.shape(expected)
            np.testing.assert_array_equal(found, expected)
        together = np.stack([function(one) for one in x])
        found = rows(x, target=target)
        assert found.shape == together.shape
        np.testing.assert_array_equal(found, together)
    else:
        assert rows(x, target=target).size == 0


@pytest.mark.parametrize("flattening", FLATTENINGS)
def test_each_flattening_gives_them(flattening: Any) -> None:
    @tw.program
    def rows(x: tw.f64["k", "n", "m"]) -> Any:
        return tw.map(lambda q: tw.scan("add", 0, q[1:-1, 1:-1].reshape(-1)), x)

    executable = compile_program(rows.trace(), device_for("cpu"), flattening=flattening)
    for shape in SHAPES:
        x = np.ones(shape)
        expected = interpret(rows.trace(), [x])[0]
        for setting in ({}, dict.fromkeys(executable.thresholds, 0), dict.fromkeys(executable.thresholds, np.inf)):
            found = executable.with_thresholds(setting)(x)
            assert found.shape == expected.shape
            np.testing.assert_array_equal(found, expected)


def into(row: Any, a: Any, b: Any) -> Any:
    return tw.reshape(row, (a, b)) + 1


def summed(row: Any, a: Any, b: Any) -> Any:
    return tw.reduce("add", 0, tw.reshape(row, a * b))


def in_a_loop(row: Any, a: Any, b: Any) -> Any:
    return tw.loop(2, 0.0, lambda _, total: total + tw.reduce("add", 0, tw.reshape(tw.reshape(row, (a, b)), (a * b,))))


def chosen(row: Any, a: Any, b: Any) -> Any:
    return tw.cond(row[0] > 0, lambda: tw.reshape(row[::-1], (a, b)).sum(), lambda: 0.0)


@each_device
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("function", "a", "b"),
    [
        *((one, a, b) for one in (into, summed, in_a_loop, chosen) for a, b in ((3, 3), (1, 1), (40, 100))),
        *((one, a, b) for one in (in_a_loop, chosen) for a, b in ((-2, -2), (-1, 4))),
    ],
)
def test_other_numbers_of_elements_are_refused(
    function: Callable[..., Any], a: int, b: int, threads: int, target: str
) -> None:
    @tw.program
    def rows(x: tw.f64["k", "m"], a: tw.i64, b: tw.i64) -> Any:
        return tw.map(lambda row: function(row, a, b), x)

    x = np.arange(1.0, 13.0).reshape(3, 4)
    with tw.num_threads(threads):
        for _ in range(2):
            with pytest.raises(ValueError, match=r"rows: .* cannot be reshaped to"):
                rows(x, a, b, target=target)
        np.testing.assert_array_equal(rows(x, 2, 2, target=target), interpret(rows.trace(), [x, 2, 2])[0])


@each_device
def test_what_is_computed_may_be_below_zero(target: str) -> None:
    """The product of two such sizes is not."""

    @tw.program
    def corners(x: tw.f64["k", "n", "m"], c: tw.i64["k"]) -> Any:
        def corner(q: Any, size: Any) -> Any:
            part = q[:size, :size]
            return tw.reduce("add", 0, tw.reshape(part, part.shape[0] * part.shape[1]))

        return tw.map(corner, x, c)

    x = np.ones((3, 2, 2))
    assert corners(x, np.array([1, 2, 0]), target=target).tolist() == [1, 4, 0]
    with pytest.raises(ValueError, match=r"corners: .* cannot be reshaped to"):
        corners(x, np.array([1, -3, 0]), target=target)


@each_device
@pytest.mark.parametrize("ends", [(2, 40), (-2, 3), (0, 5)])
def test_slices_in_products_stay_within_the_rows(ends: tuple[int, int], target: str) -> None:
    """Such nests are contractions, which did not check slices."""

    @tw.program
    def products(x: tw.f64["n", "k"], y: tw.f64["m", "k"], a: tw.i64, b: tw.i64) -> Any:
        return tw.map(lambda r: tw.map(lambda c: tw.reduce("add", 0, r[a:b] * c[a:b]), y), x)

    x, y = np.random.default_rng(0).random((2, 3, 4))
    with pytest.raises(IndexError, match="is out of range in dimension 0 of extent 4"):
        products(x, y, *ends, target=target)
    for a, b in ((1, 3), (0, 4), (4, 4), (3, 1)):
        np.testing.assert_allclose(products(x, y, a, b, target=target), x[:, a:b] @ y[:, a:b].T)


@each_device
def test_reshapes_in_products_fit(target: str) -> None:
    @tw.program
    def products(x: tw.f64["n", "k"], y: tw.f64["m", "k"], a: tw.i64) -> Any:
        return tw.map(lambda r: tw.map(lambda c: tw.reduce("add", 0, tw.reshape(r, a) * tw.reshape(c, a)), y), x)

    x, y = np.random.default_rng(0).random((2, 3, 4))
    np.testing.assert_allclose(products(x, y, 4, target=target), x @ y.T)
    with pytest.raises(ValueError, match="cannot be reshaped"):
        products(x, y, 40, target=target)


@each_device
def test_rows_refuse_parts_below_zero(target: str) -> None:
    """What a map joins in its rows was shorter than its parts."""

    @tw.program
    def stencil(x: tw.f64["k", "n"]) -> Any:
        return tw.map(lambda r: tw.concat(r[:1], r[1:-1] * 2, r[-1:]), x)

    assert stencil(np.ones((2, 3)), target=target).tolist() == [[1, 2, 1]] * 2
    assert stencil(np.ones((2, 2)), target=target).tolist() == [[1, 1]] * 2
    for _ in range(2):
        with pytest.raises(ValueError, match=r"stencil: part 1 of a concatenation \(\w+\) has size -1 in dimension 0"):
            stencil(np.ones((2, 1)), target=target)
    assert stencil(np.ones((0, 1)), target=target).size == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4), st.integers(0, 4), st.sampled_from(sorted(INSIDE)), st.integers(-3, 2))
def test_parts_of_parts_are_those_of_numpy(n: int, m: int, name: str, start: int) -> None:
    function = INSIDE[name]

    @tw.program
    def rows(x: tw.f64["k", "n", "m"]) -> Any:
        return tw.map(lambda q: function(q[:, ::-1] * 2 if start < 0 else q), x)

    x = np.arange(2.0 * n * m).reshape(2, n, m)
    expected = np.stack([function(one[:, ::-1] * 2 if start < 0 else one) for one in x])
    found = rows(x)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_sizes_and_means_of_what_is_left_are_those_of_numpy() -> None:
    @tw.program
    def sizes(x: tw.f64["n", "m"]) -> Any:
        part = x[1:-1, 1:-1]
        return part.size, part.mean(), x[1:-1].mean()

    size, mean, other = sizes(np.ones((1, 1)))
    assert size == 0 and np.isnan(mean) and np.isnan(other)
    assert [float(one) for one in sizes(np.ones((3, 4)))] == [2, 1, 1]


@pytest.mark.parametrize("flattening", FLATTENINGS)
def test_scatters_in_maps_over_nothing_give_nothing(flattening: Any) -> None:
    """Their flat destination had as many elements as the product of two sizes below 0."""

    @tw.program
    def written(x: tw.f64["n", "m"], at: tw.i64["n", "k"], v: tw.f64["n", "k"]) -> Any:
        return tw.map(lambda r, a, w: tw.scatter(r[1:-1], a[1:-1], w[1:-1]), x[1:-1], at[1:-1], v[1:-1])

    executable = compile_program(written.trace(), device_for("cpu"), flattening=flattening)
    for shape in ((1, 1), (3, 4), (1, 4), (4, 1)):
        arguments = np.ones(shape), np.zeros(shape, np.int64), np.full(shape, 2.0)
        expected = interpret(written.trace(), arguments)[0]
        for setting in (0, np.inf):
            found = executable.with_thresholds(dict.fromkeys(executable.thresholds, setting))(*arguments)
            assert found.shape == expected.shape
            np.testing.assert_array_equal(found, expected)
