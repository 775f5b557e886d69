"""Columns folded together where the fold has several values, or reads what all columns share: places of the best."""

# ruff: noqa: F821  # sizes in annotations are text: tw.f32["n"]

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.passes.compile import compile_program
from tilewright.passes.items.lower_columns import LEAST_COLUMNS, column_fold
from tilewright.runtime.devices import device_for

SHAPES = st.tuples(
    st.sampled_from([0, 1, 2, 7, 130, 300]), st.sampled_from([1, LEAST_COLUMNS - 1, LEAST_COLUMNS, 37, 520])
)


@tw.program
def places(x: tw.any_["n", "m"]):
    return x.argmax(axis=0), x.argmin(axis=0)


@tw.program
def best_and_place(x: tw.f32["n", "m"]):
    """Both values of the fold, in another order than the fold's."""

    def column(values: Any) -> Any:
        def smaller(a: Any, b: Any) -> Any:
            second = b[0] < a[0]
            return tw.where(second, b[0], a[0]), tw.where(second, b[1], a[1])

        least, place = tw.reduce(smaller, (np.inf, -1), values, tw.iota(x.shape[0]))
        return place, least

    return tw.map(column, tw.transpose(x))


@given(SHAPES, st.sampled_from(["f4", "f8", "i4", "i8", "u1"]), st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_places_of_the_best_of_columns(shape: tuple[int, int], kind: str, seed: int) -> None:
    """Rows in order, many of which are equal, or nan."""
    random = np.random.default_rng(seed)
    x = random.integers(0, 4, (max(shape[0], 1), shape[1])).astype(kind)
    if x.dtype.kind == "f":
        x[random.random(x.shape) < 0.05] = np.nan
    for found, wanted in zip(places(x), (x.argmax(axis=0), x.argmin(axis=0)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@given(SHAPES, st.booleans(), st.integers(0, 999))
@settings(deadline=None, max_examples=20)
def test_both_values_in_another_order(shape: tuple[int, int], turned: bool, seed: int) -> None:
    """A fold of no rows gives its neutral element; columns that lie apart are folded one by one."""
    x = np.random.default_rng(seed).integers(0, 9, shape).astype("f4")
    x = np.asfortranarray(x) if turned else x
    place, least = best_and_place(x)
    if shape[0]:
        np.testing.assert_array_equal(place, x.argmin(axis=0))
        np.testing.assert_array_equal(least, x.min(axis=0))
    else:
        assert (place == -1).all() and np.isinf(least).all()


SHARED = """
def weighted (x: [m][n]f64, w: [n]f64) =
  let (r: [m]f64) = map m (\\(column: [n]f64) ->
    let (s: f64) = redomap n (\\(a: f64, b: f64) -> let (c: f64) = a + b in (c)) (0.0f64)
      (\\(e: f64, f: f64) -> let (g: f64) = exp(e) let (h: f64) = g * f in (h)) column w
    in (s)) x
  in (r)"""


@pytest.mark.parametrize("rows", [1, 100, 1000])
@pytest.mark.parametrize("columns", [3, 40, 600])
def test_sums_that_read_what_columns_share(rows: int, columns: int) -> None:
    program = parse_program(SHARED)
    nest: Any = program.body.statements[0].expression
    assert column_fold(nest.function) is not None
    random = np.random.default_rng(rows)
    arguments = random.random((rows, columns)).T, random.random(rows)
    wanted = (np.exp(arguments[0]) * arguments[1]).sum(axis=1)
    found = compile_program(program, device_for("cpu"))(*arguments)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
