"""Products that rounds do not wait for are rounded apart from the sums that rounds wait for."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.scalars import F64, I64
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Name, Statement, integer, load, operation
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.traversal import walk
from tilewright.passes.points.products_apart import all_products_apart, with_products_apart
from tilewright.runtime import cpu_device

S, V, X, T, U = (Name(one, F64) for one in "svxtu")
I = Name("i", I64)  # noqa: E741  # the index, as kernels print it
Y = Buffer("y", F64)


def filter_of_two_poles() -> tw.TracedProgram:
    @tw.program
    def filtered(x: tw.f64["n"], b0: tw.f64, b1: tw.f64, b2: tw.f64, a1: tw.f64, a2: tw.f64) -> Any:
        def step(i: Any, y: Any, s1: Any, s2: Any) -> Any:
            v = b0 * x[i] + s1
            return tw.update(y, i, v), b1 * x[i] - a1 * v + s2, b2 * x[i] - a2 * v

        return tw.loop(x.shape[0], (tw.replicate(x.shape[0], 0.0, "f64"), 0.0, 0.0), step)[0]

    return filtered


FILTERED = filter_of_two_poles()


def apart(body: tuple[Statement, ...]) -> list[str]:
    return [
        one.name
        for one in walk(body)
        if isinstance(one, ir.Let) and isinstance(one.value, ir.Operation) and one.value.operator == "mul_apart"
    ]


def test_of_two_products_the_one_that_is_waited_for_stays() -> None:
    body = (
        ir.Let("x", operation("mul", load(Y, I), load(Y, I))),
        ir.Let("t", operation("mul", V, V)),
        ir.Assign("v", operation("sub", X, T)),
    )
    assert apart(with_products_apart(body, "i")) == ["x"]


def test_products_that_are_used_otherwise_stay() -> None:
    """A sum of two products that nothing waits for is contracted."""
    known = (ir.Let("x", operation("mul", load(Y, I), load(Y, I))), ir.Let("t", operation("add", X, X)))
    assert apart(with_products_apart((*known, ir.Assign("s", operation("add", S, T))), "i")) == []
    twice = (
        known[0],
        ir.Let("t", operation("add", S, X)),
        ir.Let("u", operation("add", X, X)),
        ir.Assign("s", T),
        ir.Store(Y, I, U),
    )
    assert apart(with_products_apart(twice, "i")) == []


def test_independent_rounds_stay_and_branches_are_searched() -> None:
    body = (ir.Let("x", operation("mul", load(Y, I), load(Y, I))), ir.Assign("s", operation("add", S, X)))
    loop = ir.For("i", integer(0), integer(9), body)
    condition = operation("lt", Name("n", I64), integer(3))
    assert apart(all_products_apart((ir.If(condition, (loop,), (loop,)),))) == ["x", "x"]
    assert apart(all_products_apart((ir.For("i", integer(0), integer(9), body, independent=True),))) == []


def test_products_apart_are_not_contracted_by_llvm() -> None:
    body = (
        ir.Declare("s", load(Y, integer(0))),
        ir.For("i", integer(0), integer(9), (
            ir.Let("x", operation("mul", load(Y, I), load(Y, I))), ir.Assign("s", operation("add", S, X)),
        )),
        ir.Store(Y, integer(0), S),
    )  # fmt: skip
    text = llvm_text(ir.Kernel("sums", (Y,), (), (), all_products_apart(body)), CpuTarget("x86_64"))
    assert "fmul double" in text
    assert "fadd contract double" in text


def test_the_filter_waits_for_no_product_of_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ir.Kernel] = []

    def compiling(kernel: ir.Kernel, _compile: Any = cpu_device._compile) -> Any:
        found.append(kernel)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    filter_of_two_poles()(np.ones(5), 0.1, 0.2, 0.3, 0.4, 0.5)
    assert sum(len(apart(one.body)) for one in found) == 3  # of x; those of v are contracted


@given(st.integers(0, 40), st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_filters_give_what_they_gave(n: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, (b0, b1, b2, a1, a2) = generator.normal(size=n), generator.normal(size=5) / 3
    y, s1, s2 = np.empty(n), 0.0, 0.0
    for i in range(n):
        y[i] = b0 * x[i] + s1
        s1, s2 = b1 * x[i] - a1 * y[i] + s2, b2 * x[i] - a2 * y[i]
    np.testing.assert_allclose(FILTERED(x, b0, b1, b2, a1, a2), y, rtol=1e-12, atol=1e-12)
