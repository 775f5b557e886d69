"""Loops over the few points at the edges of arrays are marked, so that compilers do not copy them; others are not."""

# ruff: noqa: F821

import numpy as np
import pytest

import tilewright as tw
from tilewright.kernel.ir import For
from tilewright.kernel.llvm import llvm_text
from tilewright.kernel.traversal import walk
from tilewright.passes.compile import compile_program
from tilewright.runtime import cpu_device
from tilewright.runtime.cpu_device import compile_for_cpu
from tilewright.runtime.cpu_jit import host_cpu
from tilewright.runtime.devices import device_for


def _shifted(shift):
    """A program of neighbours that are so far away."""

    def shifted(xs: tw.f32["n", "m"]):
        n, m = xs.shape

        def point(i, j):
            left = tw.cond(j >= shift, lambda: xs[i, j - shift], lambda: 0.0)
            right = tw.cond(j < m - shift, lambda: xs[i, j + shift], lambda: 0.0)
            return left + 2 * right + xs[i, j]

        return tw.map(lambda i: tw.map(lambda j: point(i, j), tw.iota(m)), tw.iota(n))

    shifted.__annotations__ = {"xs": tw.f32["n", "m"]}
    return tw.program(shifted)


def _expected(xs, shift):
    left, right = np.zeros_like(xs), np.zeros_like(xs)
    left[:, shift:], right[:, : max(xs.shape[1] - shift, 0)] = xs[:, :-shift], xs[:, shift:]
    return left + 2 * right + xs


def _compiled(monkeypatch, program, *shapes, shift):
    kernels = []
    monkeypatch.setattr(cpu_device, "compile_for_cpu", lambda one: kernels.append(one) or compile_for_cpu(one))
    executable = compile_program(program.trace(), device_for("cpu"))
    for shape in shapes:
        xs = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
        np.testing.assert_allclose(executable(xs), _expected(xs, shift), rtol=1e-6)
    return kernels


def _marks(kernels):
    return [one.few for kernel in kernels for one in walk(kernel.body) if isinstance(one, For) and one.independent]


@pytest.mark.parametrize("shift, is_few", [(1, True), (4, True), (5, False), (40, False)])
def test_few_points_are_marked(monkeypatch, shift, is_few):
    kernels = _compiled(monkeypatch, _shifted(shift), (7, 100), (3, 41), (2, 47), shift=shift)
    marks = _marks(kernels)
    assert any(marks) == is_few
    assert not all(marks)


def test_llvm_is_asked_not_to_copy_them(monkeypatch):
    (kernel, *_) = _compiled(monkeypatch, _shifted(1), (7, 100), shift=1)
    text = llvm_text(kernel, host_cpu())
    assert '"llvm.loop.unroll.disable"' in text
    assert '"llvm.loop.vectorize.enable", i1 false' in text
