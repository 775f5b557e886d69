"""The direct CPU form on purpose: which form the model picks, every way of feeding and storing, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contraction_cases import run_cpu, semirings
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.form import Contraction, EpilogueOperand, Operand
from tilewright.contraction.normalise import normalise
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Type
from tilewright.ir.scalars import BOOL, C64, F16, F32, F64, I32, ScalarType
from tilewright.ir.sizes import size
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.form import PANEL_ELEMENTS, DirectForm, Results, results_are_one_run, rows_are_one_run
from tilewright.passes.direct.kernel import write_direct_kernel
from tilewright.passes.packed.form import PackedForm
from tilewright.report.kernel_text import kernel_text

HOST = host_machine()
ZEN4 = replace(CPU_AVX512, cores=1, l1_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25)


def form_of(contraction: Contraction, machine: Machine = HOST) -> DirectForm:
    chosen = choose_direct_form(normalise(contraction), machine)
    assert not isinstance(chosen, str), chosen
    return chosen[0]


def run(contraction: Contraction, form: DirectForm, threads: int = 1, **scalars: Any) -> None:
    buffers = random_buffers(contraction, 7)
    got = run_cpu(write_direct_kernel(form), buffers, scalars, threads)
    assert_close(contraction, got, buffers, scalars)


def square(text: str, n: int, scalar: ScalarType = F32) -> Contraction:
    return einsum_contraction(text, {letter: n for letter in text if letter.isalpha()}, scalar)


# --- which form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["aq,qb->ab", "qa,qb->ab", "aq,bq->ab", "qa,bq->ab", "zaq,zqb->zab"])
@pytest.mark.parametrize("n", [8, 17, 32, 64])
def test_small_products_are_fed_directly(text: str, n: int) -> None:
    contraction = square(text, n)
    chosen = choose_form(normalise(contraction), CPU_AVX512)
    assert isinstance(chosen.form, DirectForm)
    assert chosen.reason.startswith("fed directly: the model says ")
    run(contraction, chosen.form)


@pytest.mark.parametrize(("text", "vector_packed", "results"), [
    ("aq,qb->ab", False, Results.VECTORS),
    ("qa,qb->ab", False, Results.VECTORS),
    ("aq,bq->ab", True, Results.VECTORS),  # the output's unit stride is not the operand's: a small copy, turned
    ("qa,bq->ab", False, Results.TURNED),  # or the other operand's vectors, and the results turned
])  # fmt: skip
def test_how_small_products_are_fed(text: str, vector_packed: bool, results: Results) -> None:
    form = form_of(square(text, 64), CPU_AVX512)
    assert (form.vector_packed, form.scalar_packed, form.results) == (vector_packed, False, results)


def test_a_large_operand_that_is_read_once_is_not_packed() -> None:
    huge = {"a": 312, "b": 312, "c": 24, "d": 312}
    form = choose_form(normalise(einsum_contraction("adb,cd->cba", huge, F32)), CPU_AVX512).form
    assert isinstance(form, DirectForm)
    assert form.results is Results.COLLECTED
    assert not form.vector_packed
    assert form.prefetched
    sizes = {"a": 72, "b": 72, "c": 24, "d": 72, "e": 72}
    turned = choose_form(normalise(einsum_contraction("dabe,ec->dcba", sizes, F32)), CPU_AVX512).form
    assert isinstance(turned, DirectForm)
    assert turned.results is Results.TURNED
    assert turned.lanes == (16, 8)


@pytest.mark.parametrize("text", ["afbce,df->edcba", "df,afbce->ecdba"])
@pytest.mark.parametrize("sizes", [
    dict(a=18, b=3, c=5, d=6, e=7, f=9), dict(a=16, b=2, c=3, d=1, e=5, f=3), dict(a=5, b=9, c=4, d=21, e=33, f=4),
], ids=str)  # fmt: skip
def test_dimensions_that_are_one_in_the_operand_only(text: str, sizes: dict[str, int]) -> None:
    contraction = einsum_contraction(text, sizes, F32)
    forms = [form for form in direct_forms(normalise(contraction), CPU_AVX512) if form.fused]
    assert "*".join(one.name for one in forms[0].fused) == forms[0].vector.name == "b*c*e"
    for number, form in enumerate(forms[:: max(1, len(forms) // 3)]):
        hinted = replace(form, prefetched=not form.vector_packed, out_prefetched=number % 2 == 0)
        run(contraction, replace(hinted, vector_chunk=min(1 + number % 2, form.vector_tiles)), threads=2)


def test_collected_results_stay_in_the_second_cache() -> None:
    sizes = {"a": 72, "b": 72, "c": 24, "d": 72, "e": 72}
    form = form_of(einsum_contraction("aebd,ce->dcba", sizes, F32), CPU_AVX512)
    assert form.vector.name == "b*d"
    assert 1 < form.vector_chunk <= form.vector_tiles
    strip = 2 * 72 * form.width * 4
    assert form.vector_chunk * strip + form.collected_elements * 4 <= CPU_AVX512.l2_bytes
    assert form.prefetched
    assert form.out_prefetched
    text = kernel_text(write_direct_kernel(form).kernel)
    assert "rows_left" in text
    assert "prefetch out_" in text


def test_what_is_collected_is_read_once_in_long_pieces() -> None:
    form = form_of(einsum_contraction("adb,cd->cba", dict(a=312, b=312, c=24, d=312), F32), ZEN4)
    assert form.results is Results.COLLECTED
    assert form.scalar_tiles == 1
    assert 512 <= form.vector_chunk * form.width * 4 < 1024


@pytest.mark.parametrize(("text", "a", "vectors"), [("ae,dcbe->dcba", 68, 3), ("dcbe,ea->dcba", 24, 1)])
def test_runs_of_rows_and_of_results_are_asked_for_evenly(text: str, a: int, vectors: int) -> None:
    form = form_of(einsum_contraction(text, {**dict.fromkeys("bcde", 68), "a": a}, F64), ZEN4)
    assert form.vector_tiles == vectors
    assert form.rows_prefetched
    assert form.out_prefetched != form.nontemporal  # rows of 24 doubles are whole lines, those of 68 are not
    assert ("prefetch out_" in kernel_text(write_direct_kernel(form).kernel)) == form.out_prefetched
    small = einsum_contraction(text, dict(a=a, b=3, c=5, d=2, e=19), F64)
    for one in direct_forms(normalise(small), CPU_AVX512):
        if one.scalar_outer and rows_are_one_run(one) and not one.scalar_packed:
            run(small, replace(one, rows_prefetched=True, out_prefetched=True))


def test_results_of_short_sums_are_not_asked_for() -> None:
    asked = [form_of(einsum_contraction("aq,qb->ab", dict(a=400000, b=68, q=q), F64), ZEN4) for q in (4, 68)]
    assert [results_are_one_run(form) and form.out_prefetched for form in asked] == [False, True]


def test_lines_of_turned_results_are_asked_for() -> None:
    form = form_of(einsum_contraction("dabe,ec->dcba", {**dict.fromkeys("abde", 72), "c": 24}, F32), ZEN4)
    assert form.results is Results.TURNED
    assert form.out_prefetched
    assert "prefetch out_" in kernel_text(write_direct_kernel(form).kernel)


T4, T6 = dict.fromkeys("abcde", 72), {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}


@pytest.mark.parametrize(("text", "sizes", "scalar", "direct"), [
    ("adb,cd->cba", dict(a=312, b=312, c=24, d=312), F32, True),
    ("aebd,ce->dcba", {**T4, "c": 24}, F64, True),
    ("dabe,ec->dcba", {**T4, "c": 24}, F32, True),
    ("afbce,df->edcba", dict(a=44, b=28, c=28, d=20, e=44, f=44), F32, True),  # long pieces of a huge operand
    ("ce,deba->dcba", dict.fromkeys("abcde", 68), F64, True),
    ("dca,cbd->ba", dict(a=200, b=188, c=188, d=200), F32, False),  # a long sum far apart
    ("ki,kj->ij", dict(i=1024, j=1024, k=1024), F32, False),  # columns far apart by a power of two
    ("fdea,cebf->dcba", dict.fromkeys("abcdef", 32), F64, False),
    ("aged,cbfg->fedcba", T6, F64, False),
    ("abq,qcd->abcd", dict(a=32, b=32, c=32, d=32, q=1024), F32, False),
    ("zaq,zqb->zab", dict(z=200, a=64, b=64, q=64), F32, True),  # batches of small products
    ("aq,qb->ab", dict(a=384, b=384, q=384), F32, True),
    ("aq,qb->ab", dict(a=700, b=700, q=700), F32, False),  # the sum is long enough to be a tree
    ("cefg,gdba->cefdba", dict.fromkeys("abcdefg", 16), F32, False),  # a short sum, results past the caches
    ("cefg,gdba->fdecba", dict.fromkeys("abcdefg", 16), F32, False),  # rows far apart by a power of two
    ("aq,qb->ab", dict(a=2000, b=2000, q=128), F32, False),
    ("ebjd,ja->abed", dict(e=10, b=300, j=8, d=10, a=10), F32, True),  # many short rows of the output, no whole vectors
    ("bg,keib->ekgi", dict(b=8, g=8, k=40, e=30, i=40), F32, True),  # many small blocks
], ids=str)  # fmt: skip
def test_the_faster_form_is_chosen(text: str, sizes: dict[str, int], scalar: ScalarType, direct: bool) -> None:
    """Where one form was measured to be faster by far on the processor that the model was fitted to."""
    chosen = choose_form(normalise(einsum_contraction(text, sizes, scalar)), ZEN4)
    assert isinstance(chosen.form, DirectForm if direct else PackedForm), chosen.reason


def test_rows_whose_lines_leave_the_first_cache_before_their_next_elements_are_read() -> None:
    """Rows along the operand's lines are preferred: with those along f, each line of 16 elements was read 16 times."""
    contraction = normalise(einsum_contraction("lfk,ldc->dkfc", dict(l=46, f=54, k=22, d=57, c=29), F32))
    form = choose_form(contraction, ZEN4).form
    assert isinstance(form, DirectForm) and form.scalar is not None
    assert form.stride(form.scalar, "scalar") == 1


@pytest.mark.parametrize("size", [100, 130, 200, 300])
@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_tiles_stick_out_little(size: int, scalar: ScalarType) -> None:
    """Broadcasts are cheap: a tile of one vector by many rows is as good as one of several, and wastes less."""
    form = form_of(einsum_contraction("aq,qb->ab", dict.fromkeys("abq", size), scalar), ZEN4)
    lanes = form.lanes[0]
    assert form.computed_columns < size + lanes
    assert form.scalar_tiles * form.rows <= 1.05 * size


def test_a_dimension_of_all_arrays_is_the_vectors() -> None:
    form = form_of(einsum_contraction("ijb,jkb->ikb", dict(i=8, j=8, k=8, b=100), F32), CPU_AVX512)
    assert form.elementwise
    assert form.columns is not None
    assert form.vector.name == "b"


def test_large_products_are_packed() -> None:
    chosen = choose_form(normalise(square("aq,qb->ab", 4096)), CPU_AVX512)
    assert isinstance(chosen.form, PackedForm)
    assert chosen.reason.startswith("not fed directly: the model says ")


@pytest.mark.parametrize("machine", [CPU_AVX2, CPU_AVX512, CPU_NEON], ids=lambda m: m.name)
@pytest.mark.parametrize("scalar", [F32, F64, F16, I32], ids=str)
def test_tiles_fit_the_registers_and_panels_their_memory(machine: Machine, scalar: ScalarType) -> None:
    for text in ("aq,qb->ab", "aq,bq->ab", "qa,bq->ab", "aqc,qb->abc", "abq,bq->ab"):
        for form in direct_forms(normalise(square(text, 50, scalar)), machine):
            read_first = form.rows if form.rows_first else len(form.lanes)
            assert form.sums + read_first + 1 <= machine.vector_registers
            assert not form.rows_first or form.rows < len(form.lanes)
            assert max(form.panel_elements) <= PANEL_ELEMENTS


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("contraction", "machine", "reason"), [
    (square("aq,qb->ab", 8, C64), CPU_AVX2, "elements of type c64 have two components"),
    (square("aq,qb->ab", 8), replace(CPU_AVX2, vector_bytes=0), "has no vector registers"),
    (einsum_contraction("aq,qb->ab", dict(a=4, q=0, b=9), F32), HOST, "a dimension is empty"),
    (square("q,q->", 9, F16), HOST, "the output has no dimension of unit stride"),
    (square("za,za->z", 9, F16), HOST, "dimension z, which all arrays have, is not consecutive in each of them"),
    (einsum_contraction("aq,bq->ab", dict(a=90, q=1 << 16, b=90), F32), HOST, "too long for the panels"),
])  # fmt: skip
def test_what_is_refused(contraction: Contraction, machine: Machine, reason: str) -> None:
    found = choose_direct_form(normalise(contraction), machine)
    assert isinstance(found, str)
    assert reason in found
    chosen = choose_form(normalise(contraction), machine)
    assert isinstance(chosen.form, PackedForm)
    assert reason in chosen.reason


def test_bools_are_refused() -> None:
    function, combine, neutral = semirings(BOOL)["or_and"]
    contraction = einsum_contraction("aq,qb->ab", dict(a=9, b=21, q=17), BOOL, "eq", "eq")
    found = choose_direct_form(normalise(replace(contraction, map=function, combine=combine, neutral=neutral)), HOST)
    assert found == "bools are not computed in vectors"


def test_outputs_and_further_operands_of_other_strides_are_refused() -> None:
    dense = einsum_contraction("aq,qb->ab", dict(a=20, b=30, q=9), F32)
    a, b, q = dense.dimensions
    strided = replace(dense, dimensions=(replace(a, stride_out=size(60)), replace(b, stride_out=size(2)), q))
    assert choose_direct_form(normalise(strided), HOST) == "the output has no dimension of unit stride"
    b_ = Builder()
    function = b_.function([Type(F32)] * 2, lambda total, one: b_.apply("add", total, one))
    operand = EpilogueOperand(Operand("D", F32, size(0)), (size(1), size(20), size(0)))
    found = choose_direct_form(normalise(replace(dense, epilogue=function, epilogue_operands=(operand,))), HOST)
    assert found == "further operand D is not consecutive along dimension b"


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["aq,qb->ab", "aq,bq->ab", "aqz,qbz->abz"])
@pytest.mark.parametrize("n", [17, 50])
def test_the_output_may_be_an_operand_of_the_epilogue(text: str, n: int) -> None:
    """out = 2 * out + sum: tiles that overlap must not add twice."""
    dense = square(text, n)
    b = Builder()
    function = b.function([Type(F32)] * 2, lambda total, old: b.apply("add", total, b.apply("add", old, old)))
    strides = tuple(one.stride_out for one in dense.dimensions)
    contraction = replace(
        dense, epilogue=function, epilogue_operands=(EpilogueOperand(replace(dense.out, buffer="D"), strides),)
    )
    buffers = random_buffers(contraction, 3)
    buffers["D"] = buffers["C"] = np.random.default_rng(0).random(len(buffers["C"]), np.float32)
    expected_from = {name: array.copy() for name, array in buffers.items()}
    overlapping = 0
    for form in list(direct_forms(normalise(contraction), HOST))[::9]:
        overlapping += form.vector_size % form.width > 0 or form.scalar_size % form.rows > 0
        launch = write_direct_kernel(form)
        launch = replace(launch, buffers=tuple("C" if name == "D" else name for name in launch.buffers))
        got = run_cpu(launch, expected_from, {})
        assert_close(contraction, got, expected_from, {})
    assert overlapping


@pytest.mark.parametrize("columns", [2064, 2077])  # of 2048, short vectors of rows share channels of the memory
def test_outputs_past_the_caches(columns: int) -> None:
    contraction = einsum_contraction("aq,qb->ab", dict(a=1030, b=columns, q=2), F32)
    form = form_of(contraction, replace(HOST, l3_bytes=1 << 20))
    assert form.nontemporal == (columns % 16 == 0)  # else only some of its rows begin at a cache line
    form = replace(form, nontemporal=True, vector_packed=False)  # panels are the same for all rows
    assert "past the cache" in kernel_text(write_direct_kernel(form).kernel)
    run(contraction, form, threads=2)


def test_much_work_is_shared_out() -> None:
    machine = replace(HOST, cores=8)
    assert write_direct_kernel(form_of(square("aq,qb->ab", 32), machine)).blocks == 1
    for text in ("aq,qb->ab", "aq,bq->ab", "qa,bq->ab"):
        contraction = einsum_contraction(text, dict(a=300, b=410, q=100), F32)
        assert write_direct_kernel(form_of(contraction, replace(ZEN4, cores=8))).blocks >= 8
        form = form_of(contraction, machine)
        # A server's mesh gets seven columns of tiles: parts of their rows would make panels of the columns again.
        assert write_direct_kernel(form).blocks >= 7
        run(contraction, form, threads=3)


@pytest.mark.parametrize("scalar", [F32, F64])
def test_a_long_operand_is_not_read_again_by_each_thread(scalar: ScalarType) -> None:
    """The long side is shared out, though each thread packs the small side for itself."""
    form = form_of(einsum_contraction("ae,be->ba", dict(a=72, b=373248, e=72), scalar), replace(ZEN4, cores=2))
    along_scalar, along_vector = form.blocks[-2:]
    assert along_vector == 1 and along_scalar >= 8
    contraction = einsum_contraction("ae,be->ba", dict(a=72, b=1013, e=72), scalar)
    run(contraction, form_of(contraction, replace(HOST, cores=2)), threads=2)


def test_blocks_that_read_nothing_twice_are_small() -> None:
    """So many that two threads end at about the same time: the parts of 43 tiles are no eighths."""
    form = form_of(square("aq,qb->ab", 256, F64), replace(ZEN4, cores=2))
    assert form.scalar_tiles // form.scalar_chunk >= 16


def test_shapes_share_kernels() -> None:
    """Sizes and strides are launch parameters."""
    texts = {
        kernel_text(write_direct_kernel(form_of(einsum_contraction("aq,qb->ab", sizes, F32), CPU_AVX512)).kernel)
        for sizes in (dict(a=64, b=64, q=64), dict(a=65, b=64, q=100), dict(a=64, b=64, q=37))
    }
    assert len(texts) <= 2


def test_the_kernel_of_a_small_product(golden: Any) -> None:
    form = form_of(einsum_contraction("aq,bq->ab", dict(a=4, b=6, q=5), F32), CPU_NEON)
    golden("direct_kernel.txt", kernel_text(write_direct_kernel(form).kernel))
