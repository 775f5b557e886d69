"""Folds of elements that are read where an array says, on machines that gather vectors of them and on others."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.executable import Executable


def products(values: tw.f32["n", "w"], places: tw.i32["n", "w"], x: tw.f32["m"]) -> Any:
    return tw.map(lambda row, at: tw.reduce("add", 0, tw.map(lambda v, k: v * x[k], row, at)), values, places)


def least(values: tw.f32["n", "w"], places: tw.i32["n", "w"], x: tw.f32["m"]) -> Any:
    return tw.map(lambda row, at: tw.reduce("min", np.inf, tw.map(lambda v, k: x[k] - v, row, at)), values, places)


def chosen(values: tw.f32["n", "w"], places: tw.i32["n", "w"], x: tw.f32["m"]) -> Any:
    """Places of values below 0 are not looked at."""

    def one(v: Any, k: Any) -> Any:
        return tw.cond(v < 0, 0.0, lambda: v * x[k])

    return tw.map(lambda row, at: tw.reduce("add", 0, tw.map(one, row, at)), values, places)


def in_double(values: tw.f32["n", "w"], places: tw.i32["n", "w"], x: tw.f32["m"]) -> Any:
    def one(v: Any, k: Any) -> Any:
        return tw.cast(v, "f64") * tw.cast(x[k], "f64")

    return tw.map(lambda row, at: tw.reduce("add", 0, tw.map(one, row, at)), values, places)


def expected(name: str, values: np.ndarray, places: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The results in double precision, and the sums of the magnitudes."""
    found, values = x.astype(np.float64)[places], values.astype(np.float64)
    if name == "least":
        return np.min(found - values, axis=1, initial=np.inf), np.max(np.abs(found) + np.abs(values), axis=1, initial=0)
    terms = np.where(values < 0, 0, values * found) if name == "chosen" else values * found
    return terms.sum(axis=1), np.abs(terms).sum(axis=1)


PROGRAMS: dict[str, Callable[..., Any]] = {one.__name__: one for one in (products, least, chosen, in_double)}
# A value goes through three levels of 16 additions, those of the lanes, a product, and what is left of the rows.
ROUNDINGS = 3 * 16 + 5 + 1 + 2


def compiled(name: str, gathers: bool) -> Executable:
    host = device_for("cpu")
    machine = dataclasses.replace(host.machine, pace=dataclasses.replace(host.machine.pace, gathers=gathers))
    return compile_program(tw.program(PROGRAMS[name]).trace(), Device("cpu", machine, host.description))


def arguments(n: int, w: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, w), dtype=np.float32)
    return values, rng.integers(0, 50, (n, w), dtype=np.int32), rng.standard_normal(50, dtype=np.float32)


@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_rows_of_all_lengths(name: str, gathers: bool) -> None:
    run = compiled(name, gathers)

    @settings(max_examples=examples(25))
    @given(n=st.integers(0, 5), w=st.one_of(st.integers(0, 70), st.sampled_from([255, 256, 257, 700, 5000])),
           seed=st.integers(0, 99))  # fmt: skip
    def rows(n: int, w: int, seed: int) -> None:
        given_ = arguments(n, w, seed)
        wanted, sizes = expected(name, *given_)
        unit = 2.0**-53 if name == "in_double" else 2.0**-24
        found = run(*given_)
        if not w:
            np.testing.assert_array_equal(found, wanted)
            return
        assert np.all(np.abs(found - wanted) <= ROUNDINGS * unit * sizes)

    rows()


@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("w", [3, 16, 40, 300])
def test_a_place_out_of_range_is_told(name: str, gathers: bool, w: int) -> None:
    values, places, x = arguments(4, w, 1)
    places[2, w - 1], values[2, w - 1] = 50, 1
    with pytest.raises(IndexError, match="50"):
        compiled(name, gathers)(values, places, x)
    places[2, w - 1] = -1
    with pytest.raises(IndexError, match="-1"):
        compiled(name, gathers)(values, places, x)


@pytest.mark.parametrize("w", [3, 16, 40])
def test_a_place_that_is_not_looked_at_may_be_out_of_range(w: int) -> None:
    values, places, x = arguments(4, w, 1)
    places[2, w - 1], values[2, w - 1] = 50, -1
    wanted, sizes = expected("chosen", values, np.where(values < 0, 0, places), x)
    assert np.all(np.abs(compiled("chosen", True)(values, places, x) - wanted) <= ROUNDINGS * 2.0**-24 * sizes)
