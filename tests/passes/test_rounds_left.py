"""Loops as one kernel whose rounds read slices of any length: of neighbours, and of none that are not there."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import Kernel
from tilewright.kernel.llvm import llvm_text
from tilewright.runtime import cpu_device
from tilewright.runtime.cpu_jit import host_cpu


@tw.program
def adapted(x: tw.float_["n"], wanted: tw.float_["m"], weights: tw.float_["t"], rate: tw.f64) -> Any:
    """The weights of a filter of t taps after m steps of least mean squares [Widrow and Hoff, 1960]."""
    (taps,) = weights.shape

    def step(i: Any, weights: Any) -> Any:
        seen = x[i : i + taps]
        error = wanted[i] - tw.reduce("add", 0.0, weights * seen)
        return weights + (rate * error).astype(x.dtype) * seen

    return tw.loop(wanted.shape[0], weights, step)


def adapted_by_numpy(x: np.ndarray, wanted: np.ndarray, weights: np.ndarray, rate: float) -> np.ndarray:
    x, wanted, weights = (one.astype(np.float64) for one in (x, wanted, weights))
    for i in range(wanted.size):
        seen = x[i : i + weights.size]
        weights = weights + rate * (wanted[i] - weights @ seen) * seen
    return weights


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([np.float32, np.float64]), st.integers(0, 20), st.integers(0, 70) | st.integers(500, 1100))
def test_adaptive_filters(dtype: type, rounds: int, taps: int) -> None:
    random = np.random.default_rng(taps)
    x, wanted = random.standard_normal(rounds + taps).astype(dtype), random.standard_normal(rounds).astype(dtype)
    weights, rate = random.standard_normal(taps).astype(dtype), 0.5 / (1 + taps)
    found = adapted(x, wanted, weights, rate, target="cpu")
    # Errors of some thousand roundings, each of numbers below a hundred.
    tolerance = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, adapted_by_numpy(x, wanted, weights, rate), rtol=tolerance, atol=tolerance)


def test_slices_are_read_as_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    text: list[str] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        text.append(llvm_text(kernel, host_cpu()))
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    x = np.arange(40, dtype=np.float64)
    tw.program(adapted.function)(x, x[:3], x[:37], 0.1, target="cpu")
    (loop,) = (one for one in text if "_whole" in one)
    assert "fadd contract <" in loop and "masked.load" in loop
    assert "gather" not in loop


FAR = 10**12
"""Elements away from an array there is no memory that a process has."""


@pytest.mark.parametrize("taps", [3, 20, 600])
@pytest.mark.parametrize("factor", [FAR, -FAR])
def test_rounds_after_a_slice_that_is_out_of_range_read_nothing(taps: int, factor: int) -> None:
    @tw.program
    def sums(x: tw.f64["n"], counts: tw.f64["t"], factor: tw.i64) -> Any:
        (taps,) = counts.shape

        def step(i: Any, total: Any, kept: Any) -> Any:
            first = factor * i
            part = x[first : first + taps]
            more = tw.loop(2, total, lambda j, sum_: sum_ + tw.reduce("add", 0.0, x[first + j : first + j + taps]))
            return more + tw.reduce("add", 0.0, part * kept), kept + part

        return tw.loop(4, (0.0, counts), step)

    x, counts = np.arange(700.0), np.ones(taps)
    total, kept = sums(x, counts, 1, target="cpu")
    expected, weights = 0.0, counts
    for i in range(4):
        expected += x[i : i + taps].sum() + x[i + 1 : i + 1 + taps].sum() + weights @ x[i : i + taps]
        weights = weights + x[i : i + taps]
    np.testing.assert_allclose(total, expected, rtol=1e-12)
    np.testing.assert_allclose(kept, weights)
    with pytest.raises(IndexError, match=str(FAR)):
        sums(x, counts, factor, target="cpu")
    assert sums(x, counts, 0, target="cpu")[0] > 0  # the kernel goes on being right


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-30, 30), min_size=1, max_size=5), st.integers(1, 30), st.sampled_from([1, -1, 2, -3]))
def test_slices_with_steps_are_in_range_or_an_error(starts: list[int], taps: int, step: int) -> None:
    @tw.program
    def sums(x: tw.f64["n"], starts: tw.i64["m"], taps: tw.i64) -> Any:
        def one(i: Any, total: Any) -> Any:
            first = starts[i] + 0
            return total * 0.5 + tw.reduce("add", 0.0, x[first : first + taps * step : step])

        return tw.loop(starts.shape[0], 0.0, one)

    x = np.arange(30.0)
    places = [start + step * k for start in starts for k in (0, taps - 1)]
    if not all(0 <= place < x.size for place in places):
        with pytest.raises(IndexError):
            sums(x, np.array(starts), taps, target="cpu")
        return
    expected = 0.0
    for start in starts:
        expected = expected * 0.5 + x[start + step * np.arange(taps)].sum()
    np.testing.assert_allclose(sums(x, np.array(starts), taps, target="cpu"), expected, rtol=1e-12)
