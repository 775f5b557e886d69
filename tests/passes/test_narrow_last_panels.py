"""The last panel of the packed form's vector side, of which only the vectors that hold elements are computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, I32, ScalarType
from tilewright.machine.detect import host_machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.contractions.form_choice import packed_cycles
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.kernel import write_packed_kernel

HOST = host_machine()


@given(
    text=st.sampled_from(("aq,qb->ab", "qa,bq->ab", "zaq,zqb->zab", "qxa,bq->abx", "aq,qb->ba")),
    scalar=st.sampled_from((F32, F64, I32, C64)), b=st.integers(17, 150), q=st.integers(1, 40),
    tile=st.sampled_from(((2, 12), (3, 8), (4, 6), (6, 4))), threads=st.integers(1, 2),
)  # fmt: skip
def test_results_are_the_same(
    text: str, scalar: ScalarType, b: int, q: int, tile: tuple[int, int], threads: int
) -> None:
    sizes = {"a": 13, "b": b, "q": q, "x": 3, "z": 2}
    contraction = einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)
    form = make_packed_form(normalise(contraction), replace(HOST, cores=threads))
    if form.boxes is None and not scalar.is_complex:
        block = tile[0] * form.lanes * 2
        form = replace(form, vectors=tile[0], rows=tile[1], vector_block=block, scalar_block=2 * tile[1])
        form = replace(form, vector_chunk=max(form.vector_chunk, block) // block * block)
    buffers = random_buffers(contraction, 11)
    got = run_cpu(write_packed_kernel(form), buffers, {}, threads)
    assert_close(contraction, got, buffers, {})


def test_padding_is_not_computed_where_that_saves_something() -> None:
    form = make_packed_form(normalise(einsum_contraction("aq,qb->ab", dict(a=188, b=200, q=700), F32)), CPU_AVX512)
    form = replace(form, vectors=2, rows=12)
    assert form.tail == 1  # the thirteenth vector of sixteen
    wide = make_packed_form(normalise(einsum_contraction("aq,qb->ab", dict(a=188, b=224, q=700), F32)), CPU_AVX512)
    wide = replace(wide, vectors=2, rows=12, vector_block=form.vector_block, scalar_block=form.scalar_block)
    assert wide.tail == 2
    assert packed_cycles(form, CPU_AVX512) < 0.98 * packed_cycles(wide, CPU_AVX512)


@pytest.mark.parametrize("size", [1000, 2000])
def test_long_sides_have_one_loop(size: int) -> None:
    contraction = normalise(einsum_contraction("aq,qb->ab", dict(a=188, b=size, q=700), F32))
    form = replace(make_packed_form(contraction, CPU_AVX512), vectors=2, rows=12)
    assert form.tail == form.vectors
