"""Passes over rows (maps, a scan, maps and scatters of it) against NumPy and the interpreter, by one thread and two."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Sweep
from tilewright.passes.last_rewrites import sweep
from tilewright.passes.pipelines import run_pipeline
from tilewright.passes.points.scan_strips import STRIP
from tilewright.passes.segments.choice import ROWS_OF_ONE_PASS
from tilewright.passes.sweeps.form import sweep_form

EXTENTS = sorted({0, 1, 2, 15, 16, 17, 31, 32, 33, *(STRIP + d for d in (-1, 0, 1)), 2 * STRIP, 1300})
LONG = [ROWS_OF_ONE_PASS + 1, ROWS_OF_ONE_PASS + STRIP + 77]


@tw.program
def positives(x: tw.f32["n"]) -> Any:
    """The positive values in their order, and how many they are."""
    flags = tw.map(lambda e: e > 0, x)
    ones = tw.map(lambda flag: flag.astype("i64"), flags)
    places = tw.map(lambda flag, place: tw.where(flag, place - 1, -1), flags, tw.scan("add", 0, ones))
    return tw.scatter(tw.replicate(x.shape[0], 7, "f32"), places, x), tw.reduce("add", 0, ones)


@tw.program
def odd_pairs(keys: tw.i64["n"], values: tw.f64["n"], small: tw.i8["n"], kept: tw.i8["n"]) -> Any:
    """Three arrays of rows picked by one flag; one of them goes on as another array was."""
    flags = tw.map(lambda key: key % 2 == 1, keys)
    prefixes = tw.scan("add", 0, tw.map(lambda flag: flag.astype("i64"), flags))
    places = tw.map(lambda flag, place: tw.where(flag, place - 1, -1), flags, prefixes)
    count = keys.shape[0]
    return (
        tw.scatter(tw.replicate(count, 0), places, tw.map(lambda key: 2 * key, keys)),
        tw.scatter(tw.replicate(count, -1.0, "f64"), places, values),
        tw.scatter(kept, places, small),
        flags,
    )


@tw.program
def spread(weights: tw.i64["n"], x: tw.f32["n"], room: tw.f32["m"]) -> Any:
    """Values at the sums of the weights before them: no filter, for the indices have gaps and may lie outside."""
    ends = tw.scan("add", 0, weights)
    places = tw.map(lambda end, weight: end - weight, ends, weights)
    return tw.scatter(room, places, x), tw.map(lambda end: end * 3, ends)


@tw.program
def smoothed(x: tw.f64["n"], y: tw.f64["n"]) -> Any:
    """A map after a scan of what a map gives, which is also asked for."""
    shifted = tw.map(lambda a: a + 0.5, x)
    largest = tw.scan("max", -np.inf, shifted)
    return tw.map(lambda top, a, b: tw.maximum(top, b) - a, largest, shifted, y), shifted, largest


def arguments(name: str, random: np.random.Generator, n: int) -> tuple[Any, ...]:
    floats = random.standard_normal(n)
    match name:
        case "positives":
            return (floats.astype("f4"),)
        case "odd_pairs":
            small = random.integers(-99, 99, (2, n)).astype("i1")
            return random.integers(0, 99, n), floats, small[0], small[1]
        case "spread":
            weights = random.integers(1, 3, n)
            return weights, floats.astype("f4"), random.random(max(1, n + n // 4)).astype("f4")
    return floats, random.standard_normal(n)


def reference(name: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
    match name:
        case "positives":
            (x,) = given
            picked = x[x > 0]
            return np.concatenate([picked, np.full(len(x) - len(picked), 7, "f4")]), np.int64(len(picked))
        case "odd_pairs":
            keys, values, small, kept = given
            flags = keys % 2 == 1
            rest = np.count_nonzero(flags)
            behind = (np.zeros(len(keys) - rest, "i8"), np.full(len(keys) - rest, -1.0), kept[rest:])
            parts = (2 * keys, values, small)
            return (*(np.concatenate([a[flags], b]) for a, b in zip(parts, behind, strict=True)), flags)
        case "spread":
            weights, x, room = given
            ends = np.cumsum(weights)
            places = ends - weights
            inside = places < len(room)
            found = room.copy()
            found[places[inside]] = x[inside]
            return found, 3 * ends
    x, y = given
    largest = np.maximum.accumulate(x + 0.5)
    return np.maximum(largest, y) - (x + 0.5), x + 0.5, largest


PROGRAMS = {"positives": positives, "odd_pairs": odd_pairs, "spread": spread, "smoothed": smoothed}


def check(name: str, given_arrays: tuple[Any, ...]) -> None:
    wanted = reference(name, given_arrays)
    for one, other in zip(PROGRAMS[name](*given_arrays), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", PROGRAMS)
@given(st.sampled_from(EXTENTS), st.integers(0, 99), st.sampled_from([1, 2, -1]))
@settings(deadline=None, max_examples=40)
def test_short_rows(name: str, extent: int, seed: int, step: int) -> None:
    made = arguments(name, np.random.default_rng(seed), extent * abs(step))
    check(name, tuple(one[::step] if len(one) == extent * abs(step) else one for one in made))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("extent", LONG)
def test_long_rows(name: str, extent: int, threads: int) -> None:
    check(name, arguments(name, np.random.default_rng(extent), extent))


@pytest.mark.parametrize("value", [np.nan, 1.0, -1.0])
@pytest.mark.parametrize("extent", [40, LONG[0]])
def test_all_rows_or_none(value: float, extent: int, threads: int) -> None:
    """A comparison with nan picks nothing."""
    check("positives", (np.full(extent, value, "f4"),))


def test_results_into_strided_arrays() -> None:
    x = np.random.default_rng(0).standard_normal(100).astype("f4")
    out = np.zeros(200, "f4")
    positives(x, out=(out[::2], None))
    np.testing.assert_array_equal(out[::2], reference("positives", (x,))[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_agrees(name: str) -> None:
    made = arguments(name, np.random.default_rng(3), 45)
    for one, other in zip(interpret(PROGRAMS[name].trace(), made), reference(name, made), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_pass_is_found(name: str) -> None:
    found = sweep(run_pipeline(PROGRAMS[name].trace())).body.statements
    (statement,) = (one for one in found if isinstance(one.expression, Sweep))
    assert isinstance(statement.expression, Sweep)
    form = sweep_form(statement.targets, statement.expression)
    assert form is not None and (form.picks is not None) == (name in ("positives", "odd_pairs"))
    if name == "positives":
        assert statement.expression.totals and len(found) == 2  # beside it only the filling of the destination


def test_a_filter_by_flags_that_are_given() -> None:
    @tw.program
    def picked(flags: tw.bool_["n"], x: tw.f32["n"]) -> Any:
        ones = tw.map(lambda flag: flag.astype("i64"), flags)
        at = tw.map(lambda flag, place: tw.where(flag, place - 1, -1), flags, tw.scan("add", 0, ones))
        return tw.scatter(tw.replicate(x.shape[0], 0.0, "f32"), at, x)

    random = np.random.default_rng(4)
    flags, x = random.random(200) < 0.3, random.random(200).astype("f4")
    rest = np.zeros(200 - np.count_nonzero(flags), "f4")
    np.testing.assert_array_equal(picked(flags, x), np.concatenate([x[flags], rest]))
    assert "a filter: one pass over n rows" in picked.explain(target="cpu")


def test_a_result_needed_in_between_keeps_the_statements_apart() -> None:
    @tw.program
    def sorted_out(x: tw.i64["n"]) -> Any:
        ends = tw.scan("add", 0, x)
        last = tw.reduce("max", 0, ends)
        return tw.map(lambda end: end * last, ends)

    x = np.arange(100)
    np.testing.assert_array_equal(sorted_out(x), np.cumsum(x) * 4950)


@pytest.mark.opencl
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("extent", [0, 1, 33, 3000])
def test_on_opencl(name: str, extent: int) -> None:
    made = arguments(name, np.random.default_rng(extent), extent)
    for one, other in zip(PROGRAMS[name](*made, target="opencl"), reference(name, made), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_rewrite_of_a_pass_is_told() -> None:
    @tw.program
    def filtered(xs: tw.f32["n"]):
        picked = tw.map(lambda x: x > 0, xs)
        places = tw.scan("add", 0, tw.map(lambda b: b.astype(tw.i64), picked))
        at = tw.map(lambda b, z: tw.where(b, z - 1, -1), picked, places)
        return tw.scatter(tw.replicate(xs.shape[0], 0.0, "f32"), at, xs)

    told = filtered.explain(target="cpu")
    assert "by sweep_scan: ys = map f xs; zs = scan op ne ys; " in told
    assert "=> out = sweep f op ne g dest xs, that is, for each row: y = f x;" in told
