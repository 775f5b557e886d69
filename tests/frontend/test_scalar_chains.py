"""Scalars that are computed one from the other, from results of kernels, are computed by one kernel."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from program_checks import check, opencl_or_skip

import tilewright as tw
from tilewright.passes.known import LONGEST_CHAIN

XS = np.linspace(0.5, 2.0, 40, dtype=np.float32)


@pytest.fixture(params=["cpu", "opencl"])
def target(request: pytest.FixtureRequest) -> str:
    if request.param == "opencl":
        opencl_or_skip()
    return str(request.param)


def _checked(function: Callable[[Any], Any], target: str, xs: Any = XS) -> int:
    """The result is the function's of NumPy's arrays; how many kernels for scalars there are."""

    @tw.program
    def traced(xs: tw.array["n"]) -> Any:
        return function(xs)

    check(traced, (xs,), function(xs), (target,))
    return traced.explain(xs.dtype, target=target).count("a sequential kernel")


def test_a_chain_is_one_kernel(target: str) -> None:
    assert _checked(lambda xs: np.sqrt(xs[0] * xs[1] + xs[2]) / (xs[3] + 1), target) == 1


def test_what_is_a_result_has_a_kernel_of_its_own(target: str) -> None:
    def several(xs: Any) -> Any:
        total = np.sum(xs)
        mean = total / 40
        return mean, mean * mean, xs - np.sqrt(mean * mean + 1)

    assert _checked(several, target) == 3


def test_long_chains_are_a_few_kernels(target: str) -> None:
    def long(xs: Any) -> Any:
        found = xs[0]
        for i in range(1, 3 * LONGEST_CHAIN):
            found = found + xs[i % 40]
        return found

    assert 3 <= _checked(long, target) <= 4


def test_arrays_that_are_written_over_meanwhile(target: str) -> None:
    def step(i: Any, ys: Any) -> Any:
        first = ys[0] + ys[1]
        if isinstance(ys, np.ndarray):
            changed = ys.copy()
            changed[0] = first * 0.5
        else:
            changed = tw.update(ys, 0, first * 0.5)
        return changed - (first * first) * 0.125

    def rounds(xs: Any) -> Any:
        if not isinstance(xs, np.ndarray):
            return tw.loop(5, xs, step)
        for i in range(5):
            xs = step(i, xs)
        return xs

    _checked(rounds, target)


def test_halves_are_rounded_at_each_step(target: str) -> None:
    def halves(xs: Any) -> Any:
        found = xs[0]
        for i in range(1, 9):
            found = found * xs[i] + xs[i + 1]
        return found

    xs = (1 + XS / 3).astype(np.float16)

    @tw.program
    def traced(xs: tw.f16["n"]) -> Any:
        return halves(xs)

    assert traced(xs, target=target) == halves(xs)


def test_rounds_of_loops(target: str) -> None:
    def steps(xs: Any) -> Any:
        def step(i: Any, ys: Any) -> Any:
            scale = np.sqrt(np.sum(ys * ys) + 1) * 2
            return ys / scale + ys[0] * ys[1]

        if isinstance(xs, np.ndarray):
            for i in range(5):
                xs = step(i, xs)
            return xs
        return tw.loop(5, xs, step)

    _checked(steps, target)


def test_conditions_on_scalars(target: str) -> None:
    def chosen(xs: Any) -> Any:
        scale = (xs[0] + xs[1]) * xs[2]
        if isinstance(xs, np.ndarray):
            return xs if scale > 3 else xs * scale
        return tw.cond(scale > 3, lambda: xs, lambda: xs * scale)

    _checked(chosen, target)
