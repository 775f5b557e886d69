"""Sums of products of narrow elements as LLVM: which instruction, on which vectors, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from llvmlite import binding

from tilewright.ir.scalars import BF16, F32, I8, I16, I32, U8, U32, ScalarType
from tilewright.kernel.dots import Bits, Dot
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Store, VectorType, load
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.opencl import opencl_text
from tilewright.machine.processors import named_processor

ZEN_4 = named_processor("znver4")
TARGET = CpuTarget(ZEN_4.triple, ZEN_4.name, ZEN_4.features)
WITHOUT = CpuTarget(ZEN_4.triple, "skylake-avx512", named_processor("skylake-avx512").features)
ALDER_LAKE = CpuTarget(ZEN_4.triple, "alderlake", named_processor("x86-64-v3").features + ",+avxvnni")


def kernel(elements: tuple[ScalarType, ScalarType], total: ScalarType, lanes: int) -> Kernel:
    x, y, sums = Buffer("x", U32, read_only=True), Buffer("y", U32, read_only=True), Buffer("sums", total)
    at = BlockIndex()
    held = load(sums, at, lanes)
    dot = Dot((load(x, at, lanes), load(y, at, lanes), held), elements, VectorType(total, lanes))
    return Kernel("dots", (x, y, sums), (), (), (Store(sums, at, dot),))


def assembly(text: str, target: CpuTarget) -> str:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.name, features=target.features, opt=2
    )
    return str(machine.emit_assembly(binding.parse_assembly(text)))


@pytest.mark.parametrize(
    ("elements", "total", "lanes", "instruction"),
    [
        ((BF16, BF16), F32, 16, "vdpbf16ps"),
        ((BF16, BF16), F32, 8, "vdpbf16ps"),
        ((U8, I8), I32, 16, "vpdpbusd"),
        ((U8, I8), U32, 16, "vpdpbusd"),
        ((I16, I16), I32, 16, "vpdpwssd"),
    ],
)
def test_one_instruction(
    elements: tuple[ScalarType, ScalarType], total: ScalarType, lanes: int, instruction: str
) -> None:
    text = assembly(llvm_text(kernel(elements, total, lanes), TARGET), TARGET)
    assert text.count(f"{instruction}\t") == 1
    assert ("%zmm" in text) == (lanes == 16)


def test_processors_without_avx512() -> None:
    assert "vpdpbusd" in assembly(llvm_text(kernel((U8, I8), I32, 8), ALDER_LAKE), ALDER_LAKE)
    assert replace(named_processor("x86-64-v3"), features=ALDER_LAKE.features).dots == ("i16", "i8")


def test_what_is_refused() -> None:
    for elements, total, lanes in (((I8, I8), I32, 16), ((BF16, BF16), I32, 16), ((U8, I8), I32, 32)):
        with pytest.raises(TypeError, match="no instruction adds products"):
            llvm_text(kernel(elements, total, lanes), TARGET)
    for elements, total in (((BF16, BF16), F32), ((U8, I8), I32)):  # which LLVM would end the process for
        for target in (CpuTarget("aarch64-unknown-linux-gnu"), WITHOUT):
            with pytest.raises(TypeError, match="no instruction adds products"):
                llvm_text(kernel(elements, total, 4), target)
    with pytest.raises(TypeError, match="in CPU kernels only"):
        opencl_text(kernel((U8, I8), I32, 4))


def test_bits_of_another_size_are_refused() -> None:
    x, y = Buffer("x", U8, read_only=True), Buffer("y", U32)
    bits = Bits((load(x, BlockIndex(), 8),), VectorType(U32, 4))
    with pytest.raises(TypeError, match="the sizes differ"):
        llvm_text(Kernel("bits", (x, y), (), (), (Store(y, BlockIndex(), bits),)), TARGET)


def test_processors_that_have_them() -> None:
    assert ZEN_4.dots == ("bf16", "i16", "i8")
    for name in ("x86-64-v3", "x86-64-v4", "skylake-avx512", "neoverse-n1"):
        assert named_processor(name).dots == ()
