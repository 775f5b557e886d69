"""Packed results that go past the caches: whole vectors, and halves of them that fill cache lines together; packing of
operands in main memory, and of runs that panels share.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, ScalarType
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Prefetch, Store, VectorType
from tilewright.kernel.traversal import walk
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel

ZEN4 = replace(CPU_AVX512, cores=1, l1_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25)
SIZES = dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24)


def run(contraction: Contraction, form: PackedForm, threads: int = 1) -> None:
    buffers = random_buffers(contraction, 3)
    for aligned in (False, True):
        got = run_cpu(write_packed_kernel(form), buffers, {}, threads, aligned)
        assert_close(contraction, got, buffers, {})


def form_of(text: str, sizes: dict[str, int], scalar: ScalarType = F32) -> PackedForm:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN4)


def lanes_past_the_caches(form: PackedForm) -> set[int]:
    stores = [one for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, Store) and one.nontemporal]
    return {one.value.type.lanes for one in stores if isinstance(one.value.type, VectorType)}


@pytest.mark.parametrize("text", ["bgfd,caeg->fedcba", "cadg,bgfe->fedcba", "cafg,bged->fedcba"])
def test_rows_of_one_and_a_half_vectors_go_past_the_caches_in_halves(text: str) -> None:
    form = form_of(text, {**SIZES, "e": 24 if "cadg" in text else 16})
    assert form.nontemporal
    assert form.in_halves
    assert lanes_past_the_caches(form) == {8, 16}  # in halves; whole lines of two if the output begins within one
    small = einsum_contraction(text, dict(a=24, b=8, c=8, d=2, e=2, f=2, g=5), F32)
    cut = replace(make_packed_form(normalise(small), ZEN4), vectors=6, rows=4, vector_block=96, scalar_block=8)
    cut = replace(cut, nontemporal=True, buffered=False)
    assert cut.in_halves
    run(small, cut, threads=2)
    run(small, replace(cut, vector_chunk=96, scalar_chunk=12), threads=2)


def test_rows_of_whole_vectors_go_past_the_caches_as_they_are() -> None:
    assert lanes_past_the_caches(form_of("bgfd,caeg->fedcba", SIZES, F64)) == {8}
    assert lanes_past_the_caches(form_of("bgfd,caeg->fedcba", {**SIZES, "a": 32})) == {16}
    assert not form_of("bgfd,caeg->fedcba", {**SIZES, "a": 20}).in_halves
    assert not form_of("bgfd,caeg->fedcba", {**SIZES, "b": 15}).in_halves


@pytest.mark.parametrize(("text", "sizes", "together"), [
    ("bgfd,caeg->fedcba", SIZES, 3),  # rows of one and a half vectors: the next row follows
    ("cefg,gdba->fedbac", dict.fromkeys("abcdefg", 16), 1),  # rows of one vector, the next of which is the next run
    ("cefg,gdba->fedcba", dict.fromkeys("abcdefg", 16), 4),  # rows of 256 vectors
])  # fmt: skip
def test_stores_past_the_caches_are_in_the_order_of_memory(text: str, sizes: dict[str, int], together: int) -> None:
    form = form_of(text, sizes)
    assert form.nontemporal
    assert form.stored_together(form.lanes // 2 if form.in_halves else form.lanes) == together


def test_where_addresses_are_hashed_rows_a_power_of_two_apart_are_written_one_after_another() -> None:
    contraction = normalise(einsum_contraction("cefg,gdba->fedcba", dict.fromkeys("abcdefg", 16), F32))
    hashed = replace(ZEN4, pace=replace(ZEN4.pace, channels=math.inf))
    assert make_packed_form(contraction, hashed).scalar_inner
    assert not make_packed_form(contraction, ZEN4).scalar_inner


def test_tiles_that_begin_within_a_line_ask_for_their_rows() -> None:
    """They go through the caches, which read these lines first."""
    text, sizes = "cefg,gdba->fedcba", dict.fromkeys("abcdefg", 4) | {"a": 16}
    form = replace(form_of(text, sizes), nontemporal=True, buffered=False)
    asked = [one for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, Prefetch)]
    assert asked
    assert all(one.buffer.name.startswith("out") for one in asked)
    run(einsum_contraction(text, sizes, F32), form)


@settings(max_examples=examples(15))
@given(data=st.data())
def test_outputs_in_whole_lines_wherever_they_begin(data: st.DataObject) -> None:
    """Where each vector of the output is a line, that is asked of the output's first element only."""
    scalar = data.draw(st.sampled_from([F32, F64]))
    line = 64 // scalar.bytes
    text = data.draw(st.sampled_from(["bqa,dcq->dcba", "bqa,dcq->bdca", "ebqa,ecq->ebca"]))
    sizes = {one: data.draw(st.integers(1, 7)) for one in "bcdeq"}
    sizes["a"] = line * data.draw(st.sampled_from([1, 2, 3])) + data.draw(st.sampled_from([0, 0, 0, line // 2]))
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    start = data.draw(st.sampled_from([0, 0, line, 4]))
    contraction = replace(contraction, out=replace(contraction.out, offset=size(start)))
    form = replace(make_packed_form(contraction, ZEN4), nontemporal=True, buffered=False)
    whole = form.vector_dimensions[-1].size % line == 0
    assert form.in_whole_lines == (whole and sizes["a"] % line == 0)
    run(contraction, form, threads=data.draw(st.integers(1, 2)))
    run(contraction, replace(form, vector_chunk=form.vector_tile, scalar_chunk=form.rows))


@pytest.mark.parametrize("n", [5, 96, 70, 128])
@pytest.mark.parametrize("length", [1, 11, 40])
@pytest.mark.parametrize("scalar", [F32, F64])
def test_operands_in_main_memory(n: int, length: int, scalar: ScalarType) -> None:
    contraction = einsum_contraction("qa,bq->ba", dict(a=n, b=9, q=length), scalar)
    form = replace(make_packed_form(normalise(contraction), ZEN4), far=True)
    run(contraction, form)
    run(contraction, replace(form, vector_block=form.vector_tile, depth=7, nontemporal=False))
    asked = {one.buffer.name for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, Prefetch)}
    assert "vector_side_1" in asked


def in_place(text: str, sizes: dict[str, int], scalar: ScalarType = F32) -> bool:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN4).scalar_in_place


def test_rows_along_which_the_sum_runs_are_read_in_place() -> None:
    sizes = dict(a=70, b=160, q=100, r=6)
    assert in_place("aq,qb->ab", sizes)
    assert in_place("aqr,qrb->ab", sizes)  # one sum
    assert not in_place("arq,qrb->ab", {**sizes, "a": 24})  # two, and no run of both
    assert not in_place("qa,qb->ab", sizes)
    assert not in_place("aq,qb->ab", sizes, C64)


@pytest.mark.parametrize(("a", "b", "q"), [(13, 70, 300), (5, 33, 1030), (6, 64, 1)])
@pytest.mark.parametrize("scalar", [F32, F64])
@pytest.mark.parametrize("depth", [7, 64, 2000])
def test_in_place_or_in_panels(a: int, b: int, q: int, scalar: ScalarType, depth: int) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=a, b=b, q=q), scalar)
    form = make_packed_form(normalise(contraction), ZEN4)
    for here in (True, False):
        changed = replace(form, scalar_in_place=here, scalar_rows=True, depth=min(depth, q), scalar_far=depth == 64)
        run(contraction, replace(changed, scalar_block=3 * form.rows))
        written = {one.buffer.name for one in walk(write_packed_kernel(changed).kernel.body) if isinstance(one, Store)}
        assert any(name.startswith("s_panels") for name in written) != here


def test_only_large_operands_are_asked_for() -> None:
    sizes = dict(a=512, b=512)
    assert [form_of("qa,bq->ba", {**sizes, "q": length}).far for length in (256, 4096)] == [False, True]


@pytest.mark.parametrize(("b", "rows"), [(32, {4, 8}), (24, {4, 6, 8, 12}), (25, {4, 5, 6, 8})])
def test_panels_end_with_runs_of_the_operand_where_that_costs_little(b: int, rows: set[int]) -> None:
    contraction = einsum_contraction("cae,edb->dcba", dict(a=32, b=b, c=4, d=4, e=12), F32)
    form = make_packed_form(normalise(contraction), ZEN4)
    assert not form.scalar_rows
    assert form.rows in rows
    run(contraction, form)
    for other in (4, 6, 8):
        vectors = min(form.vectors, 31 // (other + 1))
        cut = replace(form, rows=other, vectors=vectors, scalar_block=other * 9, vector_block=vectors * 16)
        run(contraction, replace(cut, vector_chunk=128, scalar_chunk=100))
