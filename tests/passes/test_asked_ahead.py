"""Places that arrays hold, asked for ahead: the same results and errors, and only where arrays are large."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.scalars import F64, I64
from tilewright.kernel.ir import (
    Assign,
    Buffer,
    Constant,
    Declare,
    For,
    Kernel,
    Let,
    Name,
    Prefetch,
    Store,
    add,
    integer,
    load,
)  # fmt: skip
from tilewright.kernel.traversal import walk
from tilewright.passes.points import asked_ahead, point_kernels


def gathered(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
    return tw.map(lambda a, e: x[a] + e, at, v)


def scattered(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
    return tw.scatter(x, at, v)


def computed(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
    return tw.scatter(x, tw.map(lambda a: a + 1, at), tw.map(lambda e: e * 2, v))


def of_matrix(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
    pairs = tw.reshape(x, (x.shape[0] // 2, 2))
    return tw.map(lambda a, e: pairs[a // 2, a % 2] * e, at, v)


def in_two_arrays(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
    return tw.map(lambda a, e: tw.where(e > 0, x[a], 0.0) + v[a % v.shape[0]], at, v)


FUNCTIONS = [gathered, scattered, computed, of_matrix, in_two_arrays]


def wanted(function: Any, x: Any, at: Any, v: Any) -> Any:
    if function in (gathered, of_matrix):
        return x[at] + v if function is gathered else x[at] * v
    if function is in_two_arrays:
        return np.where(v > 0, x[at], 0.0) + v[at % len(v)]
    result, places = x.copy(), at + (function is computed)
    inside = (places >= 0) & (places < len(x))
    result[places[inside]] = v[inside] * (1 + (function is computed))
    return result


def made(function: Any, *arguments: Any, far: bool = True) -> tuple[Any, list[Kernel]]:
    """What a fresh program gives where all arrays count as large, and the kernels that its call makes."""
    found: list[Kernel] = []
    plan = point_kernels._plan

    def seen(*values: Any) -> Any:
        result = plan(*values)
        found.append(result.kernel)
        return result

    with pytest.MonkeyPatch.context() as patch:
        if far:
            for name, value in (("WRITTEN_BYTES", -1), ("READ_BYTES", -1), ("FEWEST", 0), ("AHEAD", 4)):
                patch.setattr(asked_ahead, name, value)
        patch.setattr(point_kernels, "_plan", seen)
        result = tw.program(function, flattening=None)(*arguments, target="cpu")
    return result, found


def asks(kernels: list[Kernel]) -> bool:
    return any(isinstance(one, Prefetch) for kernel in kernels for one in walk(kernel.body))


@settings(max_examples=25)
@given(
    st.sampled_from(FUNCTIONS), st.sampled_from([2, 8, 50]), st.sampled_from([0, 1, 3, 5, 33, 500]), st.integers(0, 99)
)  # fmt: skip
def test_results_are_the_same(function: Any, n: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    at = random.permutation(max(n, k))[:k] % n if function in (gathered, of_matrix, in_two_arrays) else None
    at = random.permutation(max(2 * n, k))[:k] - 3 if at is None else at
    x, v = random.random(n), random.random(k) - 0.5
    result, kernels = made(function, x, at, v)
    np.testing.assert_array_equal(result, wanted(function, x, at, v))
    assert asks(kernels) or function is in_two_arrays  # whose points go on in lanes


@pytest.mark.parametrize("function", FUNCTIONS)
def test_only_large_arrays_are_asked_for(function: Any) -> None:
    random = np.random.default_rng(0)
    for n, k in ((1 << 12, 1 << 16), (1 << 17, 1 << 12), (1 << 21, 1 << 16)):
        x, at, v = random.random(n), random.permutation(max(n, k))[:k] % (n - 1), random.random(k)
        at = np.unique(at)
        result, _ = made(function, x, at, v[: len(at)], far=False)
        np.testing.assert_array_equal(result, wanted(function, x, at, v[: len(at)]))


@pytest.mark.parametrize("function", [gathered, of_matrix, in_two_arrays])
@pytest.mark.parametrize("wrong", [60, -70])
@pytest.mark.parametrize("place", [0, 20, 39])
def test_places_out_of_range_are_told(function: Any, wrong: int, place: int) -> None:
    x, at, v = np.arange(50.0), np.arange(40), np.ones(40)
    at[place] = wrong
    told = wrong // 2 if function is of_matrix else wrong
    with pytest.raises(IndexError, match=f"index {told} "):
        made(function, x, at, v)


def test_what_points_count_through_is_not_asked_for() -> None:
    def shifted(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        return tw.map(lambda i, e: x[i] * e, tw.iota(v.shape[0]), v)

    x, at, v = np.arange(50.0), np.arange(40), np.ones(40)
    result, kernels = made(shifted, x, at, v)
    np.testing.assert_array_equal(result, x[:40])
    assert not asks(kernels)


def test_places_that_choices_and_loops_make_are_not_asked_for() -> None:
    def chosen(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        def point(a: Any, e: Any) -> Any:
            place = tw.cond(e > 0, lambda: at[a % v.shape[0]], lambda: tw.where(a > 3, a - 1, 0))
            return x[(place + a) // 2] + x[a] - e

        return tw.map(point, at, v)

    def rows(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        pairs = tw.reshape(x, (x.shape[0] // 2, 2))
        values = tw.map(lambda e: tw.map(lambda i: e + i.astype("f64"), tw.iota(2)), v)
        return tw.scatter(pairs, tw.map(lambda a: a // 2, at), values), pairs[at // 2]

    random = np.random.default_rng(0)
    x, at, v = random.random(50), 2 * random.permutation(25), random.random(25) - 0.5
    result, _ = made(chosen, x, at, v)
    place = np.where(v > 0, at[at % 25], np.where(at > 3, at - 1, 0))
    np.testing.assert_array_equal(result, x[(place + at) // 2] + x[at] - v)
    (pairs, picked), _ = made(rows, x, at, v)
    expected = x.reshape(25, 2).copy()
    expected[at // 2] = v[:, None] + np.arange(2)
    np.testing.assert_array_equal(pairs, expected)
    np.testing.assert_array_equal(picked, x.reshape(25, 2)[at // 2])


def test_a_place_that_a_variable_is_part_of_is_none_that_a_later_point_could_know() -> None:
    x, at = Buffer("x", F64), Buffer("at", I64)
    j, e, t, var = (Name(name, I64) for name in ("j", "e", "t", "var"))
    read, reads_x = Let("e", load(at, j)), Let("value", load(x, t))
    known = [read, Let("t", add(e, integer(1))), reads_x]
    assert asked_ahead._places(known) == [(x, t)]
    changing = [read, Declare("var", integer(0)), Assign("var", e), Let("t", add(e, var)), reads_x]
    assert asked_ahead._places(changing) == []
    inside = For("i", integer(0), e, (Store(x, add(e, Name("i", I64)), Constant(0.0, F64)),))
    assert asked_ahead._places([read, inside]) == []
