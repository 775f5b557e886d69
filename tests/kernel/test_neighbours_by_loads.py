"""Vectors of half a cache line are for cores that load one whole line in a cycle, and no others."""

from __future__ import annotations

import pytest

from tilewright.ir.scalars import F32, I64
from tilewright.kernel.ir import Buffer, For, Kernel, Load, Name, Store, add, integer
from tilewright.kernel.llvm import llvm_text
from tilewright.kernel.llvm_emitter import CpuTarget
from tilewright.kernel.neighbours import vector_bits

X, Y = Buffer("x", F32, read_only=True), Buffer("y", F32)
INDEX = Name("i", I64)
LOOP = For("i", integer(1), integer(90), (Store(Y, INDEX, Load(X, add(INDEX, integer(-1)), F32)),), independent=True)
READS = Kernel("reads", (X, Y), (), (), (LOOP,))
WIDE, NARROW = "+avx512f,+avx512vl,+avx512vbmi2", "+avx,+avx2,+fma"


@pytest.mark.parametrize(
    ("name", "features", "bits"),
    [("znver4", WIDE, 256), ("znver5", WIDE, 512), ("sapphirerapids", WIDE, 512), ("", NARROW, 256),
     ("skylake-avx512", "+avx512f,+avx512vl", 256)],
)  # fmt: skip
def test_bits_by_processor(name: str, features: str, bits: int) -> None:
    target = CpuTarget("x86_64-unknown-linux-gnu", name, features)
    assert f'"prefer-vector-width"="{bits}"' in llvm_text(READS, target)


def test_what_is_preferred_is_the_most() -> None:
    assert [vector_bits(READS, 512, two) for two in (False, True)] == [256, 512]
    assert vector_bits(READS, 256, loads_two_lines=True) == 256
