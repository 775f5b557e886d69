"""Functions of vectors that fill several registers: as those of one register, register by register."""

from __future__ import annotations

import re

import numpy as np
import pytest
from named_cpus import processor_at_hand, region_of

from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Operation, Store, integer, load, multiply
from tilewright.kernel.llvm import llvm_text
from tilewright.runtime.cpu_jit import CpuTarget

ARGUMENTS = {"exp": 1, "log": 1, "rsqrt": 1, "pow": 2}
AVX512 = CpuTarget("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512vl,+avx512dq,+avx512bw", ())


def function_of(name: str, scalar: ScalarType, lanes: int) -> Kernel:
    sources = [Buffer(f"source_{number}", scalar, read_only=True) for number in range(ARGUMENTS[name])]
    target, at = Buffer("target", scalar), multiply(BlockIndex(), integer(lanes))
    values = tuple(load(one, at, lanes) for one in sources)
    return Kernel("k", (*sources, target), (), (), (Store(target, at, Operation(name, values, values[0].type)),))


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
@pytest.mark.parametrize("scalar", [F32, F64])
@pytest.mark.parametrize("registers", [2, 4])
def test_as_register_by_register(name: str, scalar: ScalarType, registers: int) -> None:
    width = 64 // scalar.bytes
    random = np.random.default_rng(0)
    operands = [random.uniform(0.1, 9, 64 * width).astype(scalar.numpy) for _ in range(ARGUMENTS[name])]
    operands[0][:6] = [0, -0.0, np.inf, np.nan, -1, 1e-40]
    found = []
    for lanes in (width, registers * width):
        out = np.empty_like(operands[0])
        regions = [*map(region_of, operands), region_of(out)]
        processor_at_hand("znver4").run(function_of(name, scalar, lanes), "none", regions, (), out.size // lanes)
        found.append(out)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["exp", "pow"])
@pytest.mark.parametrize(("lanes", "registers"), [(16, 1), (32, 2), (48, 0), (24, 0)])
def test_each_register_is_scaled_by_one_instruction(name: str, lanes: int, registers: int) -> None:
    text = llvm_text(function_of(name, F32, lanes), AVX512)
    assert len(re.findall(r"call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512", text)) == registers
