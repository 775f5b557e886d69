"""How the packed form is shared out: neighbouring blocks that one call computes, and how many of them there are."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, I64
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Let, Name, Store, add, load, operation
from tilewright.kernel.launch import Launch
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.packed.blocks import choose_chunks, number_of_shares
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.runtime import cpu_pool
from tilewright.runtime.cpu_jit import compile_kernel

ZEN4 = replace(CPU_AVX512, cores=2, l1_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25)
TEXTS = ["ij,jk->ik", "bij,bjk->bik", "cfea,debf->dcba"]


def run_parts(launch: Launch, buffers: dict[str, np.ndarray], cuts: list[int]) -> np.ndarray:
    """The output after one call for the blocks between every two neighbouring cuts."""
    native = compile_kernel(launch.kernel, "none")
    data = b"".join(struct.pack("<q", buffers[name].ctypes.data) for name in launch.buffers)
    data += b"".join(struct.pack("<q", value) for value in launch.scalars)
    block = (ctypes.c_char * len(data)).from_buffer_copy(data)
    workspace = (ctypes.c_char * (native.workspace_bytes + 64))()
    aligned = -(-ctypes.addressof(workspace) // 64) * 64
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, pointer, number, number, pointer)(native.address)
    for first, after in pairwise(cuts):
        function(ctypes.addressof(block), first, after, aligned)
    return buffers[launch.buffers[2]]


def in_chunks(form: PackedForm, vector: int, scalar: int) -> PackedForm:
    return replace(form, vector_chunk=vector * form.vector_tile, scalar_chunk=scalar * form.rows)


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data(), text=st.sampled_from(TEXTS), scalar=st.sampled_from([F32, F64]))
def test_any_blocks_together_give_the_same_bits(data: st.DataObject, text: str, scalar: object) -> None:
    """Calls for any ranges of blocks, also such as end within a row of blocks, begin in one, and cover several."""
    sizes = {one: data.draw(st.integers(1, 90 if text == TEXTS[0] else 9)) for one in "abcdefijk"}
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    form = make_packed_form(contraction, ZEN4)
    form = in_chunks(form, data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3)))
    launch, buffers = write_packed_kernel(form), random_buffers(contraction, 3)
    expected = run_cpu(launch, buffers, {})
    assert_close(contraction, expected, buffers, {})
    inner = data.draw(st.sets(st.integers(0, launch.blocks), max_size=6))
    got = run_parts(launch, {name: one.copy() for name, one in buffers.items()}, sorted({0, launch.blocks, *inner}))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("terms", "joins"), [(20, True), (700_000, False)])
def test_trees_of_partial_sums_are_computed_block_by_block(terms: int, joins: bool) -> None:
    contraction = normalise(einsum_contraction("ik,kj->ij", dict(i=300, j=300, k=terms), F32))
    form = make_packed_form(contraction, ZEN4)
    kernel = write_packed_kernel(in_chunks(form, 1, 4)).kernel
    asked = any(isinstance(one, Let) and one.value == BlockIndex(after=True) for one in kernel.body)
    assert (form.joins_blocks, asked) == (joins, joins)


@pytest.mark.parametrize("blocks", [2, 5, 16, 33, 257])
def test_shares_are_counted_as_threads_take_them(blocks: int) -> None:
    """A kernel that marks the first block of each call."""
    marks = Buffer("marks", I64)
    after = Name("after", I64)
    body = (
        Let("after", BlockIndex(after=True)),
        Store(marks, BlockIndex(), add(load(marks, BlockIndex()), operation("sub", after, BlockIndex()))),
    )
    native = compile_kernel(Kernel("marking", (marks,), (), (), body), "none")
    out = np.zeros(blocks, np.int64)
    cpu_pool.launch(native, (ctypes.c_int64 * 1)(out.ctypes.data), blocks, 2)
    assert out.sum() == blocks
    assert np.count_nonzero(out) == number_of_shares(blocks, 2)


@pytest.mark.parametrize(("threads", "totals", "joined", "least"), [
    (2, (1024, 1024), True, 32), (2, (1024, 1024), False, 8), (1, (1024, 1024), True, 1), (2, (40, 40), True, 1),
])  # fmt: skip
def test_there_are_more_blocks_where_they_are_joined(
    threads: int, totals: tuple[int, int], joined: bool, least: int
) -> None:
    """The last blocks, which are taken one by one, are then small and cost little."""
    vector, scalar = choose_chunks(threads, 1, totals, (64, 6), 16, 20 if totals[0] < 99 else 1024, joined)
    blocks = -(-totals[0] // vector) * -(-totals[1] // scalar)
    assert least <= blocks
    assert blocks == 1 or least > 1
    assert vector % 64 == 0 or vector == totals[0]
    assert scalar % 6 == 0 or scalar == totals[1]
