"""Boxes of collected results (passes/direct/collected_boxes.py): whole lines of the output, past the caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import run_cpu
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, examples, random_buffers

import tilewright as tw
from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, I32, ScalarType
from tilewright.kernel.ir import Store
from tilewright.kernel.traversal import walk
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512
from tilewright.machine.paces import MESH, TWO_MULTIPLY_ADDS
from tilewright.passes.direct import register_tiles
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.report.kernel_text import kernel_text

ZEN4 = replace(CPU_AVX512, cores=1, l1_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25)
ZEN5 = replace(ZEN4, l1_bytes=48 << 10, pace=TWO_MULTIPLY_ADDS)
SEVEN = {"a": 44, "b": 28, "c": 28, "d": 20, "e": 44, "f": 44}


def boxed_forms(contraction: Contraction) -> list[DirectForm]:
    """As if every output were larger than the caches."""
    machine = CPU_AVX512 if host_machine().vector_bytes == 64 else CPU_AVX2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(register_tiles, "boxes_go_past", lambda *_: True)
        return [form for form in direct_forms(normalise(contraction), machine) if form.boxed]


def check(contraction: Contraction, form: DirectForm, threads: int = 1, shift: int = 0) -> None:
    buffers = random_buffers(contraction, 3)
    got = run_cpu(write_direct_kernel(form), buffers, {}, threads, aligned=True, shift=shift)
    assert_close(contraction, got, buffers, {})


@settings(max_examples=examples(25), deadline=None)
@given(
    text=st.sampled_from(["akbd,ck->dcba", "ck,akbd->dcba", "akbd,k->dba", "akbde,ck->edcba"]),
    a=st.sampled_from([16, 20, 36, 44, 64, 130]),
    rest=st.tuples(*(st.integers(1, most) for most in (3, 9, 5, 7))),
    groups=st.integers(1, 3),
    scalar=st.sampled_from([F32, F64, I32]),
    picked=st.integers(0, 1000),
    shift=st.sampled_from([0, 0, 1, 4]),
)
def test_boxes_of_ragged_sizes(
    text: str, a: int, rest: tuple[int, ...], groups: int, scalar: ScalarType, picked: int, shift: int
) -> None:
    c, d, e, k = rest
    sizes = {"a": a, "b": 32 * groups, "c": c, "d": d * 5, "e": e, "k": k}
    contraction = einsum_contraction(text, {one: sizes[one] for one in text if one.isalpha()}, scalar)
    forms = boxed_forms(contraction)
    assert forms
    form = forms[picked % len(forms)]
    hinted = replace(form, nontemporal=True, prefetched=picked % 2 == 0 and not form.vector_packed)
    tiles = min(form.vector_tiles, 1 + picked % 3)
    check(contraction, replace(hinted, vector_chunk=min(tiles, form.vector_chunk)), 1 + picked % 2, shift)


def test_rows_of_whole_lines_need_no_joined_dimension() -> None:
    forms = boxed_forms(einsum_contraction("akbd,ck->dcba", dict(a=160, b=3, c=4, d=9, k=5), F32))
    assert {(form.joined, form.joined_chunk) for form in forms} == {(None, 1)}


@pytest.mark.parametrize("sizes", [
    dict(a=44, b=27, c=3, d=16, k=4),  # four rows are whole lines, which 27 are not
    dict(a=44, b=28, c=3, d=16, k=129),  # a long sum
], ids=str)  # fmt: skip
def test_what_has_no_boxes(sizes: dict[str, int]) -> None:
    assert boxed_forms(einsum_contraction("akbd,ck->dcba", sizes, F32)) == []


def test_short_sums_with_large_results_are_assembled() -> None:
    form = choose_direct_form(normalise(einsum_contraction("afbce,df->edcba", SEVEN, F32)), ZEN5)
    assert not isinstance(form, str)
    assert form[0].results is Results.COLLECTED
    assert form[0].boxed
    assert form[0].box_run * 4 == 704
    stores = [
        one for one in walk(write_direct_kernel(form[0]).kernel.body) if isinstance(one, Store) and one.nontemporal
    ]
    assert stores
    assert {one.aligned for one in stores} == {True}


@pytest.mark.parametrize(("machine", "boxed"), [
    (ZEN4, True),
    (replace(ZEN4, l3_bytes=1 << 28), False),  # all arrays stay there
    (replace(ZEN4, l3_bytes=48 << 20, pace=MESH), False),  # not measured
], ids=["zen4", "large cache", "mesh"])  # fmt: skip
def test_results_that_operands_drive_out_of_the_caches_are_assembled(machine: Machine, boxed: bool) -> None:
    """38 MB of an operand and 17 of results on a Zen 4, whose third cache holds 32: 55, now 74 GFLOP/s."""
    found = choose_direct_form(normalise(einsum_contraction("afbce,df->edcba", {**SEVEN, "b": 4}, F32)), machine)
    assert not isinstance(found, str)
    assert (found[0].results, found[0].boxed) == (Results.COLLECTED, boxed)


def test_small_results_of_a_large_operand_are_read_in_long_pieces() -> None:
    sizes = {"a": 312, "b": 200, "c": 24, "d": 312}  # 78 MB and 6 of results
    found = choose_direct_form(normalise(einsum_contraction("adb,cd->cba", sizes, F32)), ZEN4)
    assert not isinstance(found, str)
    assert found[0].vector_chunk > register_tiles.MOST_TOGETHER and not found[0].boxed


@pytest.mark.parametrize(("machine", "in_runs"), [(ZEN4, True), (ZEN5, False)], ids=["zen4", "zen5"])
def test_pieces_are_asked_for_evenly_where_the_arithmetic_is_fast(machine: object, in_runs: bool) -> None:
    contraction = einsum_contraction("adb,cd->cba", dict(a=312, b=312, c=24, d=312), F32)
    form = choose_direct_form(normalise(contraction), machine)  # type: ignore[arg-type]
    assert not isinstance(form, str)
    assert form[0].results is Results.COLLECTED
    assert form[0].in_runs == in_runs
    assert ("rows_left" in kernel_text(write_direct_kernel(form[0]).kernel)) == in_runs


@pytest.mark.parametrize("offset", [0, 1, 4])
@pytest.mark.parametrize("threads", [1, 2])
def test_results_of_a_call_wherever_they_lie(offset: int, threads: int) -> None:
    sizes = dict(a=44, f=3, b=28, c=28, e=44, d=5)
    rng = np.random.default_rng(5)
    left, right = (rng.uniform(-1, 1, [sizes[one] for one in term]).astype("f4") for term in ("afbce", "df"))
    shape = tuple(sizes[one] for one in "edcba")
    memory = np.full(int(np.prod(shape)) + 16, np.float32(7))
    out = memory[offset : memory.size - 16 + offset].reshape(shape)
    with tw.num_threads(threads):
        tw.einsum("afbce,df->edcba", left, right, out=out)
    np.testing.assert_allclose(out, np.einsum("afbce,df->edcba", left, right), rtol=1e-4, atol=1e-5)
    assert np.all(memory[:offset] == 7)
    assert np.all(memory[memory.size - 16 + offset :] == 7)
