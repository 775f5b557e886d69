"""Pieces of collected results, asked for in the order of memory, a line at each step (passes/direct/collect.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contraction_cases import run_cpu
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.kernel.ir import Prefetch, Store
from tilewright.kernel.traversal import walk
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import MESH, TWO_MULTIPLY_ADDS
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.report.kernel_text import kernel_text

SERVER = replace(CPU_AVX512, cores=1, pace=MESH, l2_bytes=2 << 20, l3_bytes=48 << 20)
LONG = {"a": 312, "b": 312, "c": 24, "d": 312}
FOUR = {"a": 72, "b": 72, "c": 24, "d": 72, "e": 72}
SEVEN = {"a": 44, "b": 28, "c": 28, "d": 20, "e": 44, "f": 44}
SIX = {"a": 48, "b": 32, "c": 32, "d": 24, "e": 48, "f": 48}


def chosen(text: str, sizes: dict[str, int], scalar: ScalarType, long_pieces: bool = True) -> DirectForm:
    machine = SERVER if long_pieces else replace(SERVER, pace=TWO_MULTIPLY_ADDS)
    form = choose_direct_form(normalise(einsum_contraction(text, sizes, scalar)), machine)
    assert not isinstance(form, str), form
    assert form[0].results is Results.COLLECTED
    return form[0]


def collected(
    text: str, sizes: tuple[int, ...], scalar: ScalarType, machine: Machine
) -> tuple[Contraction, list[DirectForm]]:
    """The contraction of `a`, `b`, ... of these sizes, and its forms with collected results."""
    every = dict(zip("abcde", sizes, strict=True))
    contraction = einsum_contraction(text, {one: every[one] for one in text if one.isalpha()}, scalar)
    forms = direct_forms(normalise(contraction), machine)
    return contraction, [form for form in forms if form.results is Results.COLLECTED]


@pytest.mark.parametrize(("text", "sizes", "scalar"), [
    ("adb,cd->cba", LONG, F32), ("adb,cd->cba", LONG, F64), ("aebd,ce->dcba", FOUR, F32), ("aebd,ce->dcba", FOUR, F64),
    ("afbce,df->edcba", SIX, F32), ("afbce,df->edcba", SIX, F64),
])  # fmt: skip
def test_a_server_asks_for_a_line_at_each_step(text: str, sizes: dict[str, int], scalar: ScalarType) -> None:
    form = chosen(text, sizes, scalar)
    assert form.in_runs and form.lines_in_runs == 1
    body = write_direct_kernel(form).kernel.body
    assert sum(isinstance(one, Prefetch) and one.level == 2 for one in walk(body)) == 1
    assert len(form.lanes) > 1  # broadcasts of many rows keep the loads that fill the caches waiting


def test_a_line_at_each_step_has_to_be_enough() -> None:
    """Pieces of seven lines, in five steps."""
    form = chosen("afbce,df->edcba", SEVEN, F32)
    assert (form.row_lines, form.vector_chunk * form.scalar_tiles) == (7, 5)
    assert form.prefetched and not form.in_runs


@pytest.mark.parametrize("scalar", [F32, F64])
def test_whole_rows_are_read_together_in_one_run(scalar: ScalarType) -> None:
    form = chosen("adb,cd->cba", LONG, scalar)
    assert form.vector_chunk == form.vector_tiles and form.rows_meet
    shorter = chosen("adb,cd->cba", LONG, scalar, long_pieces=False)
    assert shorter.vector_chunk < shorter.vector_tiles and not shorter.rows_meet


def test_lines_of_results_past_the_caches_need_no_box() -> None:
    form, elsewhere = (chosen("afbce,df->edcba", SIX, F32, long_pieces) for long_pieces in (True, False))
    assert form.nontemporal and not form.boxed
    assert elsewhere.boxed and elsewhere.box_run * 4 == 768
    assert chosen("aebd,ce->dcba", FOUR, F32).boxed  # rows of 288 bytes


@pytest.mark.parametrize("long_pieces", [True, False])
def test_pieces_have_no_tile_for_lines_that_begin_elsewhere(long_pieces: bool) -> None:
    """Columns of 1536 elements are 48 tiles of 32, in a box and without one: they had 49."""
    machine = SERVER if long_pieces else replace(SERVER, pace=TWO_MULTIPLY_ADDS)
    forms = direct_forms(normalise(einsum_contraction("afbce,df->edcba", SIX, F32)), machine)
    past = [replace(form, nontemporal=True) for form in forms if form.results is Results.COLLECTED]
    assert any(form.boxed for form in past)
    assert all(form.vector_tiles == -(-form.vector_size // form.width) for form in past)


@pytest.mark.parametrize("run", [192, 768])
def test_runs_of_boxes_are_as_long_as_the_processor_wants(run: int) -> None:
    machine = replace(SERVER, pace=replace(MESH, box_run=run))
    boxes = direct_forms(normalise(einsum_contraction("afbce,df->edcba", SIX, F32)), machine)
    assert {form.box_run * 4 for form in boxes if form.boxed} == {run}


@settings(max_examples=examples(25), deadline=None)
@given(
    text=st.sampled_from(["adb,cd->cba", "adb,d->ba", "adbe,cd->ecba"]),
    a=st.integers(1, 40),
    rest=st.tuples(st.integers(1, 70), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    scalar=st.sampled_from([F32, F64]),
    picked=st.integers(0, 1000),
)
def test_results_are_right(text: str, a: int, rest: tuple[int, ...], scalar: ScalarType, picked: int) -> None:
    machine = CPU_AVX512 if host_machine().vector_bytes == 64 else CPU_AVX2
    contraction, forms = collected(text, (a, *rest), scalar, machine)
    forms = [form for form in forms if len(form.contracted) == 1]
    assume(forms)
    form = forms[picked % len(forms)]
    tiles = form.vector_tiles if picked % 2 and not form.fused else form.vector_chunk
    hinted = replace(form, prefetched=True, in_runs=True, run_lines=1 + picked % 3, vector_chunk=tiles)
    launch = write_direct_kernel(hinted)
    assert "rows_left" in kernel_text(launch.kernel)
    buffers = random_buffers(contraction, 3)
    got = run_cpu(launch, buffers, {}, 1 + picked % 2, aligned=True)
    assert_close(contraction, got, buffers, {})


@settings(max_examples=examples(25), deadline=None)
@given(
    text=st.sampled_from(["adb,cd->cba", "adb,d->ba", "adbe,cd->ecba"]),
    groups=st.integers(1, 3),
    rest=st.tuples(st.integers(1, 70), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    scalar=st.sampled_from([F32, F64]),
    picked=st.integers(0, 1000),
    shift=st.sampled_from([0, 0, 1, 4]),
)
def test_lines_of_results_past_the_caches(
    text: str, groups: int, rest: tuple[int, ...], scalar: ScalarType, picked: int, shift: int
) -> None:
    if host_machine().vector_bytes != 64:
        pytest.skip("vectors of this processor are no lines")
    contraction, forms = collected(text, (groups * 64 // scalar.bytes, *rest), scalar, CPU_AVX512)
    of_lines = [form for form in forms if not form.boxed and form.lanes[0] * scalar.bytes == 64]
    forms = [replace(form, nontemporal=True) for form in of_lines]
    assume(forms)
    launch = write_direct_kernel(forms[picked % len(forms)])
    assert any(isinstance(one, Store) and one.nontemporal for one in walk(launch.kernel.body))
    buffers = random_buffers(contraction, 3)
    got = run_cpu(launch, buffers, {}, 1 + picked % 2, aligned=True, shift=shift)
    assert_close(contraction, got, buffers, {})
