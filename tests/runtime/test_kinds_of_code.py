"""How much LLVM makes of which kernel, beside its vectors: addresses that it searches for, tests out of loops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.scalars import F64, I64
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Name, add, integer, load, multiply, operation
from tilewright.runtime import cpu_device, cpu_jit
from tilewright.runtime.cpu_jit import MANY_LOOPS, Optimisation, assembly
from tilewright.runtime.host import ERRORS_BUFFER

N = Name("n", I64)


def columns(count: int, errors: bool = False) -> ir.Kernel:
    """So many loops that each add a column of one matrix to one of another: steps of a run-time stride."""
    x, y = Buffer("x", F64), Buffer("y", F64)
    body = []
    for number in range(count):
        at = add(multiply(Name(f"i{number}", I64), N), integer(number))
        sum_ = operation("add", load(x, at), load(y, at))
        body.append(ir.For(f"i{number}", integer(0), N, (ir.Store(y, at, sum_),)))
    further = (Buffer(ERRORS_BUFFER, I64),) if errors else ()
    return ir.Kernel("columns", (x, y, *further), (ir.ScalarParameter("n", I64),), (), tuple(body))


def loops_with_tests(count: int) -> ir.Kernel:
    """So many loops with a test that is the same in all of a loop's rounds."""
    x = Buffer("x", F64)
    body = []
    for number in range(count):
        at = Name(f"i{number}", I64)
        test = operation("gt", N, Constant(1000 + number, I64))
        inner = ir.If(test, (ir.Store(x, at, Constant(1.0, F64)),), (ir.Store(x, multiply(at, at), load(x, at)),))
        body.append(ir.For(f"i{number}", integer(0), N, (inner,)))
    return ir.Kernel("loops_with_tests", (x,), (ir.ScalarParameter("n", I64),), (), tuple(body))


def options_set(monkeypatch: pytest.MonkeyPatch, optimisation: Optimisation) -> list[str]:
    """The options with which code of a kind is made."""
    binding = cpu_jit._binding()
    found: list[str] = []

    def noting(name: str, option: str, _set: Any = binding.set_option) -> None:
        found.append(option)
        _set(name, option)

    monkeypatch.setattr(binding, "set_option", noting)
    with cpu_jit._emitting(optimisation):
        inside = list(found)
    monkeypatch.undo()
    assert len(found) == 2 * len(inside), "each is put back"
    return inside


def x86() -> bool:
    return cpu_jit.host_cpu().is_x86


@pytest.mark.parametrize("optimisation", ["none", "large", "deep", "checked", "full"])
def test_addresses_are_searched_for_where_that_pays(
    monkeypatch: pytest.MonkeyPatch, optimisation: Optimisation
) -> None:
    searched = "-disable-lsr=1" not in options_set(monkeypatch, optimisation)
    assert searched == (not x86() or optimisation in ("none", "checked"))


def test_kernels_that_check_indices_are_known() -> None:
    assert cpu_device.optimisation_of(columns(1, errors=True)) == "checked"
    assert cpu_device.optimisation_of(columns(1)) == "full"
    assert cpu_device.optimisation_of(columns(MANY_LOOPS, errors=True)) == "full"


@pytest.mark.skipif(not x86(), reason="the search is left out on x86 only")
def test_code_is_another_where_addresses_are_searched_for() -> None:
    def text(optimisation: Optimisation) -> str:
        return re.sub(r"\.L\w+", "", assembly(columns(2), optimisation))

    assert text("full") != text("checked")
    assert text("full") == text("full"), "the options are put back after each"


def test_a_program_that_checks_indices_is_compiled_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[str] = []

    def noting(kernel: Any, _optimisation_of: Any = cpu_device.optimisation_of) -> Any:
        kinds.append(_optimisation_of(kernel))
        return kinds[-1]

    monkeypatch.setattr(cpu_device, "optimisation_of", noting)

    @tw.program
    def picked_sums(xs: tw.f64["n"], at: tw.i64["m", "k"]) -> Any:  # noqa: F821, UP037
        return tw.map(lambda row: tw.reduce("add", 0, tw.map(lambda i: xs[i] * 3, row)), at)

    xs, at = np.arange(7.0), np.array([[6, 0, 3], [2, 2, 5]])
    assert picked_sums(xs, at).tolist() == (3 * xs[at].sum(1)).tolist()
    assert "checked" in kinds


@pytest.mark.parametrize(("count", "copied"), [(MANY_LOOPS // 2, True), (MANY_LOOPS + 4, False)])
def test_tests_stay_inside_loops_where_these_are_many(count: int, copied: bool) -> None:
    kernel = loops_with_tests(count)
    assert cpu_device.optimisation_of(kernel) == "full"
    assert (assembly(kernel, "full") != assembly(kernel, "deep")) == copied
