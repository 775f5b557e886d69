"""Boxes: results of the packed form that are assembled in the first cache, since rows are no whole vectors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import C64, F32, F64, I32, ScalarType
from tilewright.kernel.ir import Store, VectorType
from tilewright.kernel.traversal import walk
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.passes.packed.boxes import LONGEST_SUM, choose_boxes, with_boxes
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.report.cpu_text import packed_results

CACHES = dict(cores=1, l1_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25)
ZEN4 = replace(CPU_AVX512, **CACHES)
SIZES = dict(a=20, b=14, c=14, d=20, e=14, f=14, g=20)
TRIPLES = ["cafg,bged->fedcba", "bgfd,caeg->fedcba", "baeg,cgfd->fedcba", "cged,bafg->fedcba"]


def form_of(contraction: Contraction, machine: Machine = ZEN4) -> PackedForm:
    """The form as if the output were larger than the caches."""
    return with_boxes(replace(make_packed_form(normalise(contraction), machine), buffered=False), machine)


def check(contraction: Contraction, form: PackedForm, seed: int = 3) -> None:
    buffers = random_buffers(contraction, seed)
    for aligned, threads in ((False, 1), (True, 2)):
        got = run_cpu(write_packed_kernel(form), buffers, {}, threads, aligned)
        assert_close(contraction, got, buffers, {})


def stored_past_the_caches(form: PackedForm) -> set[int]:
    stores = [one for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, Store) and one.nontemporal]
    return {one.value.type.lanes for one in stores if isinstance(one.value.type, VectorType)}


@pytest.mark.parametrize(("text", "scalar"), [*((one, F32) for one in TRIPLES), *((one, F64) for one in TRIPLES[:2])])
def test_rows_of_a_vector_and_a_quarter_go_past_the_caches(text: str, scalar: ScalarType) -> None:
    form = make_packed_form(normalise(einsum_contraction(text, SIZES, scalar)), ZEN4)
    assert form.boxes is not None
    assert stored_past_the_caches(form) == {form.lanes}
    assert "in boxes of" in packed_results(form)
    elements = form.boxes.vector * form.boxes.scalar
    assert 2 * elements * scalar.bytes <= ZEN4.l1_bytes
    computed = form.vector_tiles * form.vector_tile * form.scalar_tiles * form.rows
    useful = math.prod(SIZES[one] for one in "abcdef")
    assert useful <= computed <= 1.1 * useful


@pytest.mark.parametrize(
    ("text", "sizes", "scalar"),
    [
        (TRIPLES[0], dict(SIZES, a=32), F32),  # rows of whole lines
        (TRIPLES[2], SIZES, F64),  # of two dimensions
        (TRIPLES[0], dict(SIZES, a=24, b=16, c=16, g=24), F32),  # halves of vectors fill lines together
        (TRIPLES[0], dict(SIZES, d=1, e=1), F32),  # stays in the caches
        (TRIPLES[0], dict(SIZES, g=LONGEST_SUM + 1), F32),  # hides what writing takes
        (TRIPLES[0], SIZES, C64),
        ("ag,bg->ba", dict(a=4000, b=4001, g=8), F32),  # rows are long runs
    ],
)
def test_others_have_no_boxes(text: str, sizes: dict[str, int], scalar: ScalarType) -> None:
    assert make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN4).boxes is None


@settings(max_examples=examples(10), deadline=None)
@given(st.data())
def test_boxes_hold_what_the_output_does(data: st.DataObject) -> None:
    """Rows and columns in any order, and a batch, in blocks of any number of boxes."""
    letters = data.draw(st.permutations("abcd"))
    left = data.draw(st.permutations([letters[0], *letters[1:3:2], "k", "z"]))
    right = data.draw(st.permutations([*letters[2:], "k", "z"]))
    out = "z" + "".join(data.draw(st.permutations("abcd")))
    sizes = {one: data.draw(st.sampled_from([3, 4, 5, 6])) for one in "abcd"}
    sizes |= {"k": data.draw(st.integers(8, 20)), "z": data.draw(st.integers(1, 2))}
    sizes[out[-1]] = data.draw(st.sampled_from([9, 12, 15, 17, 19, 20, 28, 33]))
    scalar = data.draw(st.sampled_from([F32, F64, I32]))
    machine = replace(data.draw(st.sampled_from([CPU_AVX512, CPU_AVX2])), **CACHES)
    contraction = einsum_contraction(f"{''.join(left)},{''.join(right)}->{out}", sizes, scalar)
    form = form_of(contraction, machine)
    assume(form.boxes is not None)
    assert form.boxes is not None
    check(contraction, form)
    block = data.draw(st.integers(1, 3)) * form.boxes.vector, data.draw(st.integers(1, 3)) * form.boxes.scalar
    cut = replace(form, vector_block=block[0], scalar_block=block[1])
    check(contraction, replace(cut, vector_chunk=2 * block[0], scalar_chunk=block[1]))


@pytest.mark.parametrize("text", [TRIPLES[0], *TRIPLES[2:]])
@pytest.mark.parametrize("rows", [20, 17])
def test_boxes_of_triples(text: str, rows: int) -> None:
    contraction = einsum_contraction(text, dict(a=rows, b=14, c=14, d=2, e=3, f=2, g=20), F32)
    form = form_of(contraction)
    assert form.boxes is not None
    assert form.boxes.ragged == (rows == 17)
    check(contraction, form)
    check(contraction, replace(form, far=True, scalar_far=True, vector_block=form.boxes.vector))


def test_boxes_of_a_side_of_any_length_are_found_at_once() -> None:
    """Parts of a dimension that no box has room for are not even looked at: that took a second for 8 million rows."""
    machine = replace(CPU_AVX512, l1_bytes=1 << 15)
    found = choose_boxes(([(16, 1)], [(1 << 40, 16)]), 64, 16, 4, machine)
    assert found is not None
    boxes, _, _ = found
    assert boxes.vector == 16
    assert boxes.vector * boxes.scalar * 4 <= 1 << 14
