"""How many lines of the next block one turn asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.kernel.ir import For, If, Prefetch, Statement, While
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.packed.ahead import MOST_TOGETHER, TOGETHER
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

MACHINE = replace(CPU_AVX512, cores=1, l1_bytes=48 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)


def form_of(block: int, scalar: ScalarType) -> PackedForm:
    sizes = dict(a=68, b=68, c=68, d=68, e=68)
    form = make_packed_form(normalise(einsum_contraction("ceda,dbe->cba", sizes, scalar)), MACHINE)
    return replace(form, vectors=2, vector_block=block)


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("halves", [4, 8, 12, 16, 32])
def test_a_block_of_few_lines_is_asked_for_in_one_turn(scalar: ScalarType, halves: int) -> None:
    form = form_of(halves * 32 // scalar.bytes, scalar)
    assert form.asks_vectors
    expected = halves if TOGETHER < halves <= MOST_TOGETHER else TOGETHER
    assert expected in _prefetches(write_packed_kernel(form).kernel.body)


def _prefetches(body: Iterable[Statement]) -> set[int]:
    """How many lines of the vector side are brought to the second cache by each list of statements."""
    found = {sum(isinstance(one, Prefetch) and one.level == 2 and "vector" in one.buffer.name for one in body)}
    for one in body:
        if isinstance(one, For | While):
            found |= _prefetches(one.body)
        elif isinstance(one, If):
            found |= _prefetches(one.then) | _prefetches(one.otherwise)
    return found - {0}


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize("block", [64, 80, 96, 128])
def test_results_are_right(scalar: ScalarType, block: int) -> None:
    contraction = einsum_contraction("cka,kb->cba", dict(a=33, b=7, c=9, k=90), scalar)
    form = make_packed_form(normalise(contraction), replace(host_machine(), cores=1))
    if form.lanes > 1 and form.levels == 0 and not form.buffered and form.boxes is None:
        block = -(-block // form.vector_tile) * form.vector_tile
        form = replace(form, far=True, scalar_far=True, vector_block=block, depth=min(form.depth, 32))
    buffers = random_buffers(contraction, 5)
    assert_close(contraction, run_cpu(write_packed_kernel(form), buffers, {}), buffers, {})
