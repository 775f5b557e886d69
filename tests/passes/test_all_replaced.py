"""Loops that replace every element of what they carry: what that begins as is neither made nor copied."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.passes.compile import prepare_program
from tilewright.passes.items.all_replaced import all_replaced
from tilewright.runtime.devices import device_for


def loop(body: str, bound: str = "n", result: str = "b") -> str:
    return f"""def f (x: [n]f64, z: [n]f64, m: i64) =
  let (y: [n]f64, s: f64) = loop (a: [n]f64, t: f64) = (x, 0.0f64) for i: i64 < {bound} do
    let (e: f64) = z[i]
    let (u: f64) = t + e
{body}
    in ({result}, u)
  in (y, s)"""


def places(text: str) -> frozenset[int]:
    return all_replaced(parse_program(text).body.statements[0].expression)


FORWARD = "    let (b: [n]f64) = a with [i] = u"
BACKWARD = """    let (n1: i64) = size(n - 1)
    let (k: i64) = n1 - i
    let (b: [n]f64) = a with [k] = u"""


@pytest.mark.parametrize("body", [FORWARD, BACKWARD])
def test_each_element_is_replaced(body: str) -> None:
    text = loop(body)
    assert places(text) == {0}
    check(text, (np.full(5, np.nan), np.arange(5.0), np.int64(3)))


@pytest.mark.parametrize(
    ("body", "bound", "result"),
    [
        (FORWARD, "n - 1", "b"),  # the last one stays
        ("    let (k: i64) = size(i + 1)\n    let (b: [n]f64) = a with [k] = u", "n - 1", "b"),
        ("    let (k: i64) = i * i\n    let (b: [n]f64) = a with [k] = u", "min(n, 1)", "b"),
        ("    let (r: f64) = a[i]\n    let (v: f64) = u + r\n    let (b: [n]f64) = a with [i] = v", "n", "b"),
        (
            "    let (c: bool) = u > 2.0f64\n    let (b: [n]f64) = if c then\n"
            "        let (d: [n]f64) = a with [i] = u\n        in (d)\n      else (a)",
            "n", "b",
        ),
        ("    let (b: [n]f64) = x with [i] = u", "n", "b"),  # of what the loop does not carry
        ("    let (b: [n]f64) = a with [i] = u\n    let (d: [n]f64) = b with [m] = e", "n", "d"),
    ],
)  # fmt: skip
def test_what_is_seen_of_the_array_is_there(body: str, bound: str, result: str) -> None:
    text = loop(body, bound, result)
    assert places(text) == frozenset()
    check(text, (np.arange(6.0, 12.0), np.arange(6.0), np.int64(2)))


@tw.program
def filtered(x: tw.f64["n"], a: tw.f64, b: tw.f64) -> Any:
    """A recursive filter, and its states in the opposite order."""
    (n,) = x.shape
    zeros = tw.replicate(n, 0.0)

    def step(i: Any, y: Any, states: Any, state: Any) -> Any:
        value = a * x[i] + state
        return tw.update(y, i, value), tw.update(states, n - 1 - i, state), b * value

    return tw.loop(n, (zeros, zeros, 0.0), step)[:2]


def filtered_by_numpy(x: np.ndarray, a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    y, states, state = np.empty_like(x), np.empty_like(x), 0.0
    for i, one in enumerate(x):
        y[i], states[x.size - 1 - i] = a * one + state, state
        state = b * y[i]
    return y, states


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_filters(n: int, seed: int) -> None:
    x = np.random.default_rng(seed).random(n)
    for found, expected in zip(filtered(x, 0.5, 0.25, target="cpu"), filtered_by_numpy(x, 0.5, 0.25), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_no_step_makes_what_nobody_sees() -> None:
    written, _ = prepare_program(filtered.trace(), device_for("cpu"))
    assert written is not None and len(written.block.steps) == 1
    assert not any("replicate" in line for line in written.lines)


@tw.program
def filtered_rows(xs: tw.f64["m", "n"], a: tw.f64) -> Any:
    """The same inside of points, whose arrays are their own."""

    def row(x: Any) -> Any:
        (n,) = x.shape

        def step(i: Any, y: Any, state: Any) -> Any:
            value = x[i] + a * state
            return tw.update(y, i, value), value

        return tw.loop(n, (tw.replicate(n, 7.0), 0.0), step)[0]

    return tw.map(row, xs)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 5), (40, 17)])
def test_rows_of_points(shape: tuple[int, int]) -> None:
    xs = np.random.default_rng(0).random(shape)
    expected, state = np.empty(shape), np.zeros(shape[0])
    for i in range(shape[1]):
        state = expected[:, i] = xs[:, i] + 0.5 * state
    np.testing.assert_allclose(filtered_rows(xs, 0.5, target="cpu"), expected, rtol=1e-12)
