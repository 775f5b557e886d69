"""Results that no cache holds where vectors are shorter than a cache line (AVX2): whole lines go past the caches, rows
whose places in a page are the same through them, and what a tile may do does not depend on what scratch memory held.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from naive import assert_close, einsum_contraction, random_buffers

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import BF16, C64, C128, F16, F32, F64, I32, ScalarType
from tilewright.kernel.ir import Load, Prefetch, Store
from tilewright.kernel.traversal import walk
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.machine.paces import TWO_NARROW
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import direct_forms
from tilewright.passes.direct.cost import direct_cost
from tilewright.passes.direct.form import Results
from tilewright.passes.direct.past_caches import is_past
from tilewright.passes.packed import choice
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.kernel import write_packed_kernel
from tilewright.passes.packed.register_shape import PastCaches
from tilewright.passes.packed.runs import QUARTERS, runs_of
from tilewright.runtime.cpu_jit import compile_kernel
from tilewright.runtime.memory import aligned_empty

ZEN3 = replace(CPU_AVX2, cores=1, l1_bytes=1 << 15, l2_bytes=1 << 19, l3_bytes=1 << 25, pace=TWO_NARROW)
SIXTEEN = dict.fromkeys("abcdefg", 16)


def packed(text: str, sizes: dict[str, int], scalar: ScalarType = F64, machine: Machine = ZEN3) -> PackedForm:
    return make_packed_form(normalise(einsum_contraction(text, sizes, scalar)), machine)


def run_in(fill: int, contraction: Contraction, form: PackedForm) -> None:
    """Run a kernel in scratch memory that is full of a byte, and check its results."""
    launch, buffers = write_packed_kernel(form), random_buffers(contraction, 3)
    arrays = {}
    for name, array in buffers.items():
        arrays[name] = aligned_empty(array.shape, array.dtype)
        arrays[name][...] = array
    native = compile_kernel(launch.kernel, "none")
    data = b"".join(struct.pack("<q", arrays[name].ctypes.data) for name in launch.buffers)
    data += b"".join(struct.pack("<q", value) for value in launch.scalars)
    block = (ctypes.c_char * len(data)).from_buffer_copy(data)
    workspace = np.full(native.workspace_bytes + 64, fill, np.uint8)
    place = -(-workspace.ctypes.data // 64) * 64
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, pointer, number, number, pointer)(native.address)
    function(ctypes.addressof(block), 0, launch.blocks, place)
    assert_close(contraction, arrays[launch.buffers[2]], buffers, {})


@pytest.mark.parametrize("fill", [0, 1, 255])
@pytest.mark.parametrize("machine", [ZEN3, CPU_AVX512], ids=["avx2", "avx512"])
def test_scratch_memory_does_not_say_that_quarters_are_whole_vectors(machine: Machine, fill: int) -> None:
    """Runs of half a vector, which begin as whole vectors would where the batch does: 255 was taken for whole ones."""
    run = machine.lanes(4) // 2
    contraction = normalise(einsum_contraction("zik,zkby->iyzb", dict(z=4, i=5, y=6, k=3, b=run), F32))
    form = replace(make_packed_form(contraction, machine), nontemporal=True, buffered=False)
    assert runs_of(form, True).out == {QUARTERS}
    run_in(fill, contraction, form)


@pytest.mark.parametrize("machine", [ZEN3, CPU_AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
@pytest.mark.parametrize(
    "text", ["cefg,gdba->fedcba", "bcfg,edag->fedcab", "zig,zgba->izab", "ig,gab->iba", "ga,gi->ia"]
)
def test_marks_that_are_read_are_written(text: str, scalar: ScalarType, machine: Machine) -> None:
    sizes = dict(zip("abcdefgiz", (12, 10, 3, 2, 3, 4, 5, 6, 2), strict=True))
    form = packed(text, {one: sizes[one] for one in sorted(set(text) - set(",->"))}, scalar, machine)
    for one in (form, replace(form, nontemporal=True, buffered=False, boxes=None)):
        body = list(walk(write_packed_kernel(one).kernel.body))
        written = {one.buffer.name for one in body if isinstance(one, Store)}
        assert {one.buffer.name for one in body if isinstance(one, Load) and "runs" in one.buffer.name} <= written


def test_rows_whole_pages_apart_are_written_through_the_caches() -> None:
    """4096 f64 from row to row: all rows of a tile have the same place in a page; they are not asked for either."""
    form = packed("ik,kj->ij", dict(i=4096, j=4096, k=16))
    assert not form.nontemporal
    assert form.through_caches
    asked = [one for one in walk(write_packed_kernel(form).kernel.body) if isinstance(one, Prefetch)]
    assert not any(one.buffer.name.startswith("out") for one in asked)
    assert not packed("ik,kj->ij", dict(i=4096, j=4096, k=16), machine=CPU_AVX512).through_caches


@pytest.mark.parametrize(("text", "sizes", "scalar", "tile"), [
    ("cefg,gdba->fedcba", SIXTEEN, F64, (2, 4)),  # rows 2 KB apart: through the caches 17, so 26 GFLOP/s
    ("cefg,gdba->fedcba", SIXTEEN, F32, (4, 2)),  # 1 KB: 28, 51
    ("ik,kj->ij", dict(i=4096, j=4096 + 256, k=16), F64, (2, 4)),  # eight pages and 2 KB: tiles of 4 x 2 17, so 31
    ("ik,kj->ij", dict(i=4096, j=4096 + 128, k=16), F64, (4, 2)),  # eight pages and 1 KB
    ("ik,kj->ij", dict(i=4096, j=4096 + 64, k=16), F64, (6, 2)),  # eight pages and 512 bytes
])  # fmt: skip
def test_rows_of_a_tile_have_different_places_in_a_page(
    text: str, sizes: dict[str, int], scalar: ScalarType, tile: tuple[int, int]
) -> None:
    form = packed(text, sizes, scalar)
    assert form.nontemporal
    assert (form.rows, form.vectors) == tile
    panels = form.vector_block * form.pitch * scalar.bytes  # of few rows they stay in the first cache
    assert (panels <= ZEN3.l1_bytes // 2) == (form.rows == 2)


@given(
    st.sampled_from([16, 32, 64]), st.integers(0, 1 << 15), st.integers(1, 1 << 12), st.integers(1, 8),
    st.integers(1, 24),
)  # fmt: skip
def test_stores_of_a_tile_that_suits_differ_in_twelve_bits(
    vector_bytes: int, apart: int, run: int, vectors: int, rows: int
) -> None:
    results = PastCaches(vector_bytes, apart, run)
    width = min(vectors * vector_bytes, run)
    bits = [(row * apart + byte) % 4096 for row in range(rows) for byte in range(width)]
    whole = vectors * vector_bytes % 64 == 0 or vectors * vector_bytes >= run
    assert results.suits(vectors, rows) == (whole and len(set(bits)) == len(bits))


@pytest.mark.parametrize(("text", "sizes", "scalar", "tile"), [
    ("aged,cbfg->fedcba", dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24), F32, (4, 3)),  # assembled 67, so 78 GFLOP/s
    ("bgfd,caeg->fedcba", dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24), F32, (4, 3)),
    ("gbac,dge->dbcea", dict(a=24, b=36, c=12, d=20, e=28, g=6), F32, (4, 3)),  # through the caches 25, so 59
    ("cbag,gde->dbcea", dict(a=12, b=8, c=24, d=16, e=64, g=8), F64, (4, 3)),  # 16, 30
])  # fmt: skip
def test_rows_that_are_whole_lines_together(
    text: str, sizes: dict[str, int], scalar: ScalarType, tile: tuple[int, int]
) -> None:
    form = packed(text, sizes, scalar)
    assert form.nontemporal
    assert form.boxes is None
    assert (form.rows, form.vectors) == tile


@pytest.mark.parametrize(("run", "rows", "of", "tiles"), [
    (96, 2, 16, {(3, 2), (3, 4), (3, 8), (6, 2), (6, 4), (6, 8)}),
    (96, 2, 12, {(3, 2), (3, 4), (3, 6), (6, 2), (6, 4), (6, 6)}),
    (96, 2, 3, set()),  # the third row begins within a line, and others follow elsewhere
    (80, 4, 16, set()),  # rows are no whole vectors
    (160, 2, 16, set()),  # and so many of them that there is no room for rows
])  # fmt: skip
def test_tiles_of_whole_rows(run: int, rows: int, of: int, tiles: set[tuple[int, int]]) -> None:
    results = PastCaches(32, run, run, rows, of)
    assert results.joins_rows == bool(tiles)
    if tiles:
        assert {one for one in itertools.product(range(1, 9), range(1, 9)) if results.suits(*one)} == tiles


@given(st.data())
def test_whole_rows_are_right(data: st.DataObject) -> None:
    """Small extents, as if no cache held them: of some, several rows are whole lines together."""
    scalar, run = data.draw(st.sampled_from([(F32, 8), (F32, 24), (F64, 4), (F64, 12), (F64, 20)]))
    extents = [data.draw(st.integers(1, 12)), *(data.draw(st.integers(1, 9)) for _ in range(3))]
    sizes = dict(zip("abcdk", (run, *extents), strict=True))
    text = data.draw(st.sampled_from(["cka,bdk->dcba", "kca,bkd->cdba", "cka,bk->cba"]))
    with mock.patch.object(choice, "is_past_caches", return_value=True):
        form = packed(text, {one: sizes[one] for one in sizes if one in text}, scalar)
    event(f"tiles of {form.rows} x {form.vectors}, {'past' if form.nontemporal else 'through'} the caches")
    run_in(data.draw(st.sampled_from([0, 255])), form.contraction, form)


def test_parts_of_lines_that_others_complete_late_stay_in_the_caches() -> None:
    """Runs of 200 f32 are twelve lines and a half, and all rows pass by before the next vectors complete one."""
    form = packed("cda,db->cba", dict(a=200, b=200, c=188, d=188), F32)
    assert form.scalar_inner
    assert form.through_caches
    assert packed("cda,db->cba", dict(a=208, b=200, c=188, d=188), F32).nontemporal
    together = packed("bga,fged->efbda", dict(a=8, b=28, d=48, e=28, f=48, g=6), F32)  # two rows have a line together
    assert together.scalar_inner
    assert together.nontemporal


@pytest.mark.parametrize("scalar", [F32, F64], ids=str)
def test_tiles_past_the_caches_write_whole_lines(scalar: ScalarType) -> None:
    form = packed("ik,kj->ij", dict(i=4096, j=4096 + 192 // scalar.bytes * 3, k=16), scalar)
    assert form.nontemporal
    assert not form.through_caches
    assert form.vector_tile * scalar.bytes % 64 == 0
    small = packed("ik,kj->ij", dict(i=48, j=96, k=16), scalar)
    assert small.vectors == 3


@pytest.mark.parametrize("columns", [1, 4, 12, 100])
@pytest.mark.parametrize("scalar", [F32, F64, F16, BF16, C64, C128, I32], ids=str)
@pytest.mark.parametrize("machine", [ZEN3, CPU_NEON, replace(ZEN3, vector_bytes=16)], ids=["avx2", "neon", "sse2"])
def test_rows_of_any_length_have_a_tile(machine: Machine, scalar: ScalarType, columns: int) -> None:
    """Also such as are shorter than a line."""
    form = packed("ik,kj->ij", dict(i=1 << 23, j=columns, k=3), scalar, machine)
    along = columns if columns > 1 else 1 << 23  # the only column is the vector side itself
    assert (form.vectors - 1) * form.lanes < along


def test_functions_without_vectors_have_a_tile() -> None:
    contraction = normalise(einsum_contraction("ik,kj->ij", dict(i=1 << 22, j=8, k=3), F32))
    scalars = replace(ZEN3, vector_bytes=4)
    assert make_packed_form(contraction, scalars).lanes == 1


@pytest.mark.parametrize("form", [
    replace(packed("ik,kj->ij", dict(i=15, j=40, k=9)), nontemporal=True, through_caches=False, buffered=False),
    replace(packed("ik,kj->ij", dict(i=15, j=37, k=9)), through_caches=True, buffered=False),
], ids=["past", "through"])  # fmt: skip
def test_either_way_is_right(form: PackedForm) -> None:
    run_in(255, form.contraction, form)


@pytest.mark.parametrize("columns", [4096, 4096 + 64])
def test_direct_tiles_of_part_of_a_line_stay_in_the_caches(columns: int) -> None:
    """So do lines of several rows that share channels of the memory."""
    contraction = normalise(einsum_contraction("ik,kj->ij", dict(i=4096, j=columns, k=16), F64))
    seen = {}
    for form in direct_forms(contraction, ZEN3):
        if form.results is Results.VECTORS and form.rows > 1:
            seen[form.width * 8] = is_past(form, ZEN3)
    assert {64, 96, 128, 192} <= set(seen)
    whole = {width for width in seen if width % 64 == 0}
    assert {width for width, past in seen.items() if past} == (set() if columns == 4096 else whole)


def test_rows_that_go_on_pack_the_vectors_again_for_each_tile_of_them() -> None:
    """Each block has one tile of rows, and so makes the panels again: `aged,cbfg->fedcba` in f64 took 20 times as long
    on a Zen 3 as the model said."""
    sizes = dict(a=24, b=16, c=16, d=24, e=16, f=16, g=24)
    contraction = normalise(einsum_contraction("aged,cbfg->fedcba", sizes, F64))
    packing = {
        one.onward: direct_cost(one, ZEN3).packing
        for one in direct_forms(contraction, ZEN3)
        if one.vector_packed
        and not one.scalar_packed
        and not one.all_vectors_packed
        and one.rows == 2
        and one.width == 24
    }
    assert packing[True] > 50 * packing[False]
    assert not getattr(choose_form(contraction, ZEN3).form, "onward", False)


@pytest.mark.parametrize("text", ["ik,kj->ij", "ik,jk->ij", "ki,kj->ij", "ikl,lkj->ij"])
@pytest.mark.parametrize("k", [5, 18])
def test_rows_are_asked_for_in_turns(text: str, k: int) -> None:
    """Whatever is asked for, results are the same: sums of whole turns of rows, or not."""
    sizes = {one: {"i": 13, "j": 70, "k": k, "l": 3}[one] for one in sorted(set(text) - set(",->"))}
    form = replace(packed(text, sizes, F32), far=True, scalar_far=True, buffered=False)
    cut = replace(form, vector_block=form.vector_tile, depth=k // 2)
    asked = []
    for rows in (1, 2, 4):
        one = replace(cut, asked_rows=rows)
        run_in(255, one.contraction, one)
        asked.append(sum(isinstance(part, Prefetch) for part in walk(write_packed_kernel(one).kernel.body)))
    assert asked[0] == asked[1] == asked[2] > 0
    assert ZEN3.pace.asked_rows == form.asked_rows == 4


def test_lines_of_short_rows_in_place_fill_the_first_cache() -> None:
    """A tile of 2 vectors by 6 rows of `cda,db->cba` in f64, with 188 steps, takes 24 KiB of lines for either side's 64
    and 48 bytes: from the second cache, 26 GFLOP/s on a Zen 3 where packed panels reach 40."""
    contraction = normalise(einsum_contraction("cda,db->cba", dict(a=200, b=200, c=188, d=188), F64))
    assert isinstance(choose_form(contraction, ZEN3).form, PackedForm)
