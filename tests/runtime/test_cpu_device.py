"""Compiling for the CPU: what is done again when a program is called again."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.scalars import F64, I64
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Name, add, integer, load, operation
from tilewright.runtime import cpu_device
from tilewright.runtime.cpu_jit import Optimisation, assembly


@tw.program
def scaled(xs: tw.f64["n"], factor: tw.f64) -> Any:
    twice = 2 * factor  # a scalar that the host computes: such calls are not recorded
    return tw.map(lambda x: twice * x, xs)


def test_a_kernel_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []

    def printing(kernel: Any, cpu: Any, _print: Any = cpu_device.llvm_text) -> str:
        printed.append(kernel.name)
        text: str = _print(kernel, cpu)
        return text

    monkeypatch.setattr(cpu_device, "llvm_text", printing)
    for factor in (1.0, 2.0, 3.0):
        assert scaled(np.ones(5), factor).tolist() == [2 * factor] * 5
    assert len(printed) == 1


@pytest.mark.parametrize("expression", ["ijabc,ijbac->", "ij,ij->"])
def test_tests_stay_inside_deep_nests(monkeypatch: pytest.MonkeyPatch, expression: str) -> None:
    """Only of these: taking a test out of a nest copies it, once for each loop that it is taken out of."""
    found: dict[str, int] = {}

    def noting(kernel: Any, _optimisation_of: Any = cpu_device.optimisation_of) -> Any:
        found[_optimisation_of(kernel)] = cpu_device.loop_depth(kernel.body)
        return _optimisation_of(kernel)

    monkeypatch.setattr(cpu_device, "optimisation_of", noting)
    operands = expression.removesuffix("->").split(",")
    arrays = [
        np.random.default_rng(number).uniform(1, 2, (*[6] * (len(one) - 1), 12))[..., ::2]  # with gaps: a general fold
        for number, one in enumerate(operands)
    ]
    # A sum of positive products in any order.
    np.testing.assert_allclose(tw.einsum(expression, *arrays), np.einsum(expression, *arrays), rtol=1e-12)
    assert all((depth >= cpu_device.DEEP) == (optimisation == "deep") for optimisation, depth in found.items())
    assert ("deep" in found) == (expression == "ijabc,ijbac->")


def sums(count: int) -> ir.Kernel:
    """So many sums of an array, one after the other."""
    x, total = Buffer("x", F64), Name("total", F64)
    loops = tuple(
        ir.For(
            f"i{n}",
            integer(0),
            Name("n", I64),
            (ir.Assign("total", operation("add", total, load(x, Name(f"i{n}", I64)))),),
        )
        for n in range(count)
    )
    body = (ir.Declare("total", Constant(0.0, F64)), *loops, ir.Store(x, add(integer(0), integer(0)), total))
    return ir.Kernel("sums", (x,), (ir.ScalarParameter("n", I64),), (), body)


def test_nothing_is_unrolled_in_kernels_of_very_many_loops() -> None:
    kinds: list[Optimisation] = [cpu_device.optimisation_of(sums(cpu_device.LARGE + more)) for more in (-1, 0)]
    assert kinds == ["full", "large"]
    unrolled, plain = (assembly(sums(1), kind).count("addsd") for kind in kinds)
    assert unrolled > plain > 0
