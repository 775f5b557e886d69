"""Which loops read neighbours, and so run in vectors of half a cache line."""

from __future__ import annotations

import pytest

from tilewright.ir.scalars import F32, I64
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, Statement, add, integer, multiply
from tilewright.kernel.llvm import llvm_text
from tilewright.kernel.llvm_emitter import CpuTarget
from tilewright.kernel.neighbours import vector_bits

X, Y = Buffer("x", F32, read_only=True), Buffer("y", F32)
INDEX, K = Name("i", I64), Name("k", I64)
ROW = multiply(ir.BlockIndex(), integer(100))


def kernel(index: Expression, *before: Statement, independent: bool = True) -> ir.Kernel:
    """y[i] = x[index] for all i below 90."""
    body = (*before, ir.Store(Y, INDEX, ir.Load(X, index, F32)))
    loop = ir.For("i", integer(0), integer(90), body, independent=independent)
    return ir.Kernel("reads", (X, Y), (), (), (loop,))


@pytest.mark.parametrize(
    ("reads", "bits"),
    [
        (kernel(add(INDEX, integer(-1))), 256),
        (kernel(add(ROW, K), ir.Let("k", add(INDEX, integer(1)))), 256),
        (kernel(Name("at", I64), ir.Let("k", add(INDEX, integer(1))), ir.Let("at", add(ROW, K))), 256),
        (kernel(add(ROW, INDEX)), 512),
        (kernel(INDEX), 512),
        (kernel(multiply(INDEX, integer(3))), 512),
        (kernel(INDEX, ir.Let("k", add(INDEX, integer(1)))), 512),
        (kernel(add(INDEX, integer(-1)), independent=False), 512),
    ],
)
def test_bits(reads: ir.Kernel, bits: int) -> None:
    assert vector_bits(reads, 512) == bits
    assert vector_bits(reads, 128) == 128
    target = CpuTarget("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512vl,+avx512vbmi2")
    assert target.preferred_vector_bits == 512
    assert f'"prefer-vector-width"="{bits}"' in llvm_text(reads, target)


def test_a_kernel_with_vectors_of_its_own_keeps_them() -> None:
    wide = ir.Let("v", ir.Broadcast(Constant(0.0, F32), ir.VectorType(F32, 16)))
    assert vector_bits(kernel(add(INDEX, integer(-1)), wide), 512) == 512
