"""Integers that kernels compute count rounds of loops inside of later kernels, and the ends of slices there."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated_device import emulated_device
from program_checks import opencl_or_skip

import tilewright as tw

COUNTED, VECTOR = np.array([1, 2]), np.arange(7.0) + 1
ROWS = np.random.default_rng(1).integers(-4, 5, (5, 7)).astype(np.float64)


def count(v: Any) -> Any:
    return tw.reduce("add", 0, v)


def doubled(k: Any, values: Any) -> Any:
    return tw.loop(k, values, lambda _, one: one * 2)


def product(rows: Any) -> Any:
    return rows @ rows.T


PROGRAMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "loops in rows": (lambda v, c, x: tw.map(lambda row: doubled(count(v), row), x), ROWS * 8),
    "a count of the host": (lambda v, c, x: doubled(count(v), x), ROWS * 8),
    "an element": (lambda v, c, x: tw.map(lambda row: doubled(v[1], row), x), ROWS * 4),
    "one more than an element": (lambda v, c, x: tw.map(lambda one: doubled(v[0] + 1, one), c), VECTOR * 4),
    "limited": (lambda v, c, x: tw.map(lambda one: doubled(tw.minimum(count(v), 2), one), c), VECTOR * 4),
    "sums of the first": (lambda v, c, x: x[:, : count(v)].sum(axis=1), ROWS[:, :3].sum(1)),
    "greatest of the last": (
        lambda v, c, x: tw.map(lambda row: tw.reduce("max", -np.inf, row[count(v) :]), x), ROWS[:, 3:].max(1),
    ),
    "products of slices": (lambda v, c, x: product(x[:, : count(v)]), ROWS[:, :3] @ ROWS[:, :3].T),
    "of each element a sum": (
        lambda v, c, x: tw.map(lambda one: tw.reduce("add", 0, tw.map(lambda y: y + one, c[: count(v)])), c),
        VECTOR[:3].sum() + 3 * VECTOR,
    ),
    "a value and a count": (
        lambda v, c, x: tw.map(lambda one: tw.loop(count(v), one, lambda i, y: y + i) * count(v), c), (VECTOR + 3) * 3,
    ),
    "in a fold": (lambda v, c, x: tw.reduce("add", 0, tw.map(lambda one: doubled(count(v), one), c)), VECTOR.sum() * 8),
    "in rounds": (
        lambda v, c, x: tw.while_loop(
            lambda y, i: i < 2, (x, 0), lambda y, i: (tw.map(lambda row: doubled(count(v) + i, row), y), i + 1)
        )[0],
        ROWS * 8 * 16,
    ),
    "in a branch": (
        lambda v, c, x: tw.cond(count(v) > 2, lambda: tw.map(lambda row: doubled(count(v), row), x), lambda: x),
        ROWS * 8,
    ),
}  # fmt: skip


def check(name: str, target: Any, flattening: Any) -> None:
    function, expected = PROGRAMS[name]

    @tw.program(flattening=flattening)
    def counting(v: tw.i64["m"], c: tw.f64["n"], x: tw.f64["b", "n"]) -> Any:
        return function(v, c, x)

    for _ in range(2):
        np.testing.assert_array_equal(counting(COUNTED, VECTOR, ROWS, target=target), expected)


@pytest.mark.parametrize("flattening", ["incremental", None])
@pytest.mark.parametrize("name", PROGRAMS)
def test_computed_counts(name: str, flattening: Any) -> None:
    check(name, "cpu", flattening)


@pytest.mark.parametrize("name", PROGRAMS)
def test_computed_counts_on_opencl(name: str) -> None:
    opencl_or_skip()
    check(name, "opencl", "incremental")


@pytest.mark.parametrize("name", ["loops in rows", "greatest of the last", "a value and a count"])
def test_computed_counts_on_an_emulated_gpu(name: str) -> None:
    with emulated_device() as (device, _):
        check(name, device, "incremental")


def test_counts_are_those_of_each_call() -> None:
    @tw.program
    def counting(v: tw.i64["m"], x: tw.f64["n"]) -> Any:
        return tw.map(lambda one: doubled(count(v), one), x)

    for total in (3, 0, 5, -2, 1):
        found = counting(np.array([total - 7, 7]), VECTOR)
        np.testing.assert_array_equal(found, VECTOR * 2 ** max(total, 0))


@pytest.mark.parametrize("of_type", [np.array, np.int64, int])
def test_scalars_in_arrays_of_no_dimension_have_values_of_their_own(of_type: Any) -> None:
    """As `np.copy` of a scalar is: a call must not repeat what one with another value did."""

    @tw.program
    def hundredfold(count: tw.i64, x: tw.f64["n"]) -> Any:
        return count * 100, x[:count]

    for number in (3, 3, 3, 3, 2, 5, 3, 1):
        found, part = hundredfold(of_type(number), VECTOR)
        assert found == number * 100 and part.tolist() == VECTOR[:number].tolist()
