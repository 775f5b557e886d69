"""Kernels with loops on vectors of their own beside loops that LLVM shall put into vectors: what LLVM is told."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.scalars import F32, I64
from tilewright.kernel.ir import Buffer, For, Kernel, Let, Name, Store, VectorType, add, integer, load
from tilewright.kernel.llvm import llvm_text
from tilewright.runtime.cpu_jit import host_cpu

X, Y = Buffer("x", F32, read_only=True), Buffer("y", F32)


def _vectors(index: str) -> For:
    at = Name(index, I64)
    value = Let(f"{index}_v", load(X, at, 8))
    return For(index, integer(0), integer(64), (value, Store(Y, at, Name(value.name, VectorType(F32, 8)))), integer(8))


def _scalars(index: str) -> For:
    at = Name(index, I64)
    return For(index, integer(64), integer(99), (Store(Y, at, add(load(X, at), load(X, at))),))


def _kernel(*body: For) -> Kernel:
    return Kernel("mixed", (X, Y), (), (), body, scalar_loops=True)


def test_only_loops_on_vectors_of_a_mixed_kernel_stay_as_they_are() -> None:
    mixed = _kernel(_vectors("a"), _scalars("b"))
    text = llvm_text(mixed, host_cpu())
    assert text.count("llvm.loop.unroll.disable") == 1
    (latch,) = (line for line in text.splitlines() if "br i1" in line and "!llvm.loop" in line)
    assert "for.a" in latch
    assert "llvm.loop.unroll.disable" not in llvm_text(replace(mixed, scalar_loops=False), host_cpu())
