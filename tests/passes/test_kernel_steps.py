"""Scalars that are computed from a program's scalar arguments are computed in the kernels that use them."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.passes.compile import program_block
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime.devices import device_for
from tilewright.runtime.host import KernelStep


@tw.program
def scaled(xs: tw.f32["n"], a: tw.f32, b: tw.f32) -> Any:
    slope, shift = 2 * a + b, tw.exp(-b)
    return tw.map(lambda x: slope * x + shift, xs)


@tw.program
def sums(xs: tw.f64["n"], ys: tw.f64["m"], a: tw.f64) -> Any:
    """A nest of streams, and a fold."""
    twice = a * 2
    inside = tw.map(lambda x: tw.reduce("add", 0, tw.map(lambda y: twice * x * y, ys)), xs)
    return inside, tw.reduce("add", 0, tw.map(lambda x: twice - x, xs))


@tw.program
def halves(xs: tw.f16["n"], a: tw.f16) -> Any:
    third = a / 3
    return tw.map(lambda x: x * third, xs)


@pytest.mark.parametrize("device", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_results_follow_the_arguments(device: str) -> None:
    xs, ys = np.arange(100, dtype=np.float32), np.arange(5.0)
    for call in range(12):  # the first calls are recorded, later ones repeat them
        a, b = np.float32(call), np.float32(0.5 - call / 8)
        expected = (2 * a + b) * xs + np.exp(-b)
        np.testing.assert_allclose(scaled(xs, a, b, target=device), expected, rtol=1e-6, atol=1e-5)
        inside, total = sums(xs.astype(np.float64), ys, np.float64(call), target=device)
        np.testing.assert_allclose(inside, 2 * call * xs.astype(np.float64) * ys.sum())
        np.testing.assert_allclose(total, (2.0 * call - xs).sum())


def test_f16() -> None:
    """Right to two units in the last place: one rounding of the factor, one of the product."""
    xs = np.linspace(0, 3, 40).astype(np.float16)
    for a in (np.float16(1), np.float16(0.3)):
        np.testing.assert_allclose(halves(xs, a, target="cpu"), xs.astype(float) * float(a) / 3, rtol=2 * 2.0**-10)


def test_kernels_are_given_the_arguments() -> None:
    block, _ = program_block(run_pipeline(scaled.trace()), device_for("cpu"))
    (kernel,) = (step for step in block.steps if isinstance(step, KernelStep))
    assert {one.name for one in kernel.reads if not one.type.rank} == {"a", "b"}


def test_scalars_that_sizes_depend_on_stay_with_the_host() -> None:
    text = """def f (xs: [n]f32, k: i64) =
      let (twice: i64) = k * 2i64
      let (is: [twice]i64) = iota twice i64
      let (r: [twice]f32) = map twice (\\(i: i64) -> let (z: f32) = xs[i] in (z)) is
      in (r)"""
    block, _ = program_block(parse_program(text), device_for("cpu"))
    kernels = [step for step in block.steps if isinstance(step, KernelStep)]
    assert all("k" not in {one.name for one in step.reads} for step in kernels)
