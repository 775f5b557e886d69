"""Loops whose iterations stay out of vector lanes."""

from __future__ import annotations

import numpy as np
import pytest
from test_llvm import X86, kernel_of, run

from tilewright.ir.scalars import F32, I64
from tilewright.kernel.ir import Buffer, Constant, For, Kernel, Name, ScalarParameter, Store, integer, load, operation
from tilewright.kernel.llvm import llvm_text
from tilewright.report.kernel_text import kernel_text
from tilewright.runtime.cpu_jit import assembly, host_cpu


def doubled(scalar: bool) -> Kernel:
    x, y, i = Buffer("x", F32, read_only=True), Buffer("y", F32), Name("i", I64)
    value = operation("mul", load(x, i), Constant(2.0, F32))
    loop = For("i", integer(0), Name("n", I64), (Store(y, i, value),), scalar=scalar)
    return kernel_of((x, y), (loop,), (ScalarParameter("n", I64),), name="doubled")


@pytest.mark.parametrize("scalar", [False, True])
def test_scalar_loops_are_not_vectorised(scalar: bool) -> None:
    x, y = np.arange(37, dtype=np.float32), np.ones(37, np.float32)
    run(doubled(scalar), [x, y], (37,), 1, "full")
    np.testing.assert_array_equal(y, 2 * np.arange(37))
    assert ("llvm.loop.vectorize.enable" in llvm_text(doubled(scalar), X86)) == scalar
    assert ("below n scalar" in kernel_text(doubled(scalar))) == scalar
    if host_cpu().is_x86:
        assert ("ps\t" in assembly(doubled(scalar), "full")) != scalar
