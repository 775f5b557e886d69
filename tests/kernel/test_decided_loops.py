"""Loops of branches that a launch does not take count for more than other statements: compilers copy them."""

# ruff: noqa: F821

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.scalars import I64
from tilewright.kernel.decided import LARGE, LOOP, as_decided, questions_of
from tilewright.kernel.ir import Buffer, For, If, Kernel, Name, ScalarParameter, Store, integer, operation
from tilewright.kernel.traversal import walk
from tilewright.passes.compile import compile_program
from tilewright.runtime import cpu_device
from tilewright.runtime.cpu_device import compile_for_cpu
from tilewright.runtime.devices import device_for

OUT = Buffer("out", I64)


def _filled(name):
    return For(name, integer(0), Name("n", I64), (Store(OUT, Name(name, I64), integer(1)),))


@pytest.mark.parametrize("loops", [1, 2])
def test_loops_make_a_branch_large(loops):
    asked = If(operation("ge", Name("n", I64), integer(10)), tuple(_filled(f"i{k}") for k in range(loops)))
    kernel = Kernel("k", (OUT,), (ScalarParameter("n", I64),), (), (asked,))
    assert (loops * (LOOP + 1) >= LARGE) == (loops == 2)
    less = as_decided(kernel, questions_of(kernel).answers({"n": 3}))
    assert any(isinstance(one, For) for one in walk(less.body)) == (loops == 1)


@tw.program
def scaled(xs: tw.f32["n"], factor: tw.f32):
    return tw.map(lambda x: x * factor, xs)


def test_maps_within_the_caches_are_compiled_without_the_way_past_them(monkeypatch):
    compiled = []
    monkeypatch.setattr(cpu_device, "compile_for_cpu", lambda one: compiled.append(one) or compile_for_cpu(one))
    executable = compile_program(scaled.trace(), device_for("cpu"))
    xs = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(executable(xs, np.float32(2)), 2 * xs)
    assert sum(isinstance(one, For) for one in walk(compiled[0].body)) <= 2
