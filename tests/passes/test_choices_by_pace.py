"""Which form and tile a contraction gets on a core that starts one multiply-add in a cycle, and on one that starts two:
as measured on a Zen 4 and on a Zen 5.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import MESH, TWO_MULTIPLY_ADDS
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm

ZEN4 = replace(CPU_AVX512, cores=1, l1_bytes=32 << 10)
ZEN5 = replace(CPU_AVX512, cores=1, pace=TWO_MULTIPLY_ADDS)
SERVER = replace(CPU_AVX512, cores=1, pace=MESH, l2_bytes=2 << 20, l3_bytes=48 << 20)


def chosen(text: str, sizes: dict[str, int], scalar: ScalarType) -> tuple[str, str]:
    """What is chosen on either, as "direct 2x13": vectors and rows of the register tile."""
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    forms = (choose_form(contraction, machine).form for machine in (ZEN4, ZEN5))
    first, second = (described(form) for form in forms)
    return first, second


def described(form: DirectForm | PackedForm | MatrixVectorForm) -> str:
    if isinstance(form, DirectForm):
        return f"direct {len(form.lanes)}x{form.rows}"
    return f"{'packed' if isinstance(form, PackedForm) else 'streamed'} {form.vectors}x{form.rows}"


def square(n: int) -> dict[str, int]:
    return {"i": n, "j": n, "k": n}


EVEN = dict.fromkeys("abcdefg", 16)
LONG = {"a": 312, "b": 312, "c": 24, "d": 312}
THREE = {"a": 200, "b": 188, "c": 188, "d": 200}
SIX = {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}


@pytest.mark.parametrize(("text", "sizes", "scalar", "one", "two"), [
    # Broadcasts take the place of other loads, so that tiles of one vector wait for them.
    ("ij,jk->ik", square(32), F32, "direct 1x16", "direct 2x8"),
    ("ij,jk->ik", square(48), F32, "direct 1x16", "direct 3x8"),
    ("ij,jk->ik", square(64), F32, "direct 1x16", "direct 2x13"),
    ("ij,jk->ik", square(64), F64, "direct 1x16", "direct 4x5"),
    ("ij,jk->ik", square(512), F64, "packed 4x4", "packed 4x6"),
    ("dca,cbd->ba", THREE, F32, "packed 1x24", "packed 2x12"),
    ("adb,cd->cba", LONG, F64, "direct 1x24", "direct 2x12"),
    # Main memory is farther, so that pieces of it are better packed than read in place: all, or vectors for a tile.
    ("cbeg,agfd->cbeafd", SIX, F64, "packed 4x4", "direct 4x6"),
    ("bcfg,edag->edabcf", EVEN, F32, "packed 4x4", "packed 4x6"),
    # Four rows of 24 elements are whole lines of the output, and six would not be.
    ("cbeg,agfd->fedcba", SIX, F32, "packed 3x4", "packed 6x4"),
    # Rows of the scalar side that lie 132 bytes apart are foreseen, so that they are read in place.
    ("bifj,fa->ibja", {"b": 64, "i": 8, "f": 31, "j": 33, "a": 15}, F32, "direct 1x11", "direct 1x17"),
    # More rows than prefetchers follow are read from the third cache again and again, or packed.
    ("aq,bq->ab", {"a": 90, "b": 90, "q": 1 << 16}, F32, "packed 3x5", "packed 6x4"),
    # Steps whose vectors are all read in place, across lines, take longer than their multiply-adds there.
    ("kiaq,bcjq->abcijk", dict.fromkeys("abcijk", 4) | {"q": 512}, F32, "streamed 1x4", "packed 4x5"),
    ("aq,bq->ab", {"a": 32, "b": 32, "q": 3000}, F32, "streamed 1x4", "direct 1x16"),
    ("aq,bq->ab", {"a": 16, "b": 64, "q": 512}, F64, "streamed 1x4", "streamed 1x6"),
])  # fmt: skip
def test_what_is_chosen_for_either(text: str, sizes: dict[str, int], scalar: ScalarType, one: str, two: str) -> None:
    assert chosen(text, sizes, scalar) == (one, two)


def test_rows_that_share_a_set_of_the_first_cache_are_not_read_in_place() -> None:
    contraction = normalise(einsum_contraction("cefg,gdba->dfebca", EVEN, F32))  # 16 rows, 16 KB apart
    larger = replace(ZEN4, l1_bytes=48 << 10)  # of twelve lines in a set
    assert isinstance(choose_form(contraction, larger).form, PackedForm)


@pytest.mark.parametrize(("text", "sizes", "zen5", "server"), [
    ("ij,jk->ik", square(768), "packed 6x4", "packed 4x6"),  # panels of six vectors come too slowly from L2 there
    # Tiles past the caches with rows far apart wait for their pieces: 125 GFLOP/s fed directly, 139 from panels.
    ("ij,jk->ik", {"i": 4096, "j": 16, "k": 4096}, "packed 4x6", "packed 4x6"),
])  # fmt: skip
def test_a_server_s_second_cache_and_memory_are_farther(
    text: str, sizes: dict[str, int], zen5: str, server: str
) -> None:
    """As measured on an Emerald Rapids; outputs past the caches are written at another pace, too."""
    contraction = normalise(einsum_contraction(text, sizes, F32))
    assert [described(choose_form(contraction, one).form) for one in (ZEN5, SERVER)] == [zen5, server]


@pytest.mark.parametrize(("text", "sizes", "scalar", "apart", "server"), [
    ("bij,bjk->bik", square(32) | {"b": 61}, F64, "direct 2x8", "direct 4x4"),
    ("bij,bjk->bik", square(48) | {"b": 18}, F64, "direct 2x12", "direct 6x4"),
    ("ij,jk->ik", square(64), F32, "direct 2x13", "direct 4x5"),
])  # fmt: skip
def test_of_two_tiles_that_compute_as_long_the_one_with_fewer_loads(
    text: str, sizes: dict[str, int], scalar: ScalarType, apart: str, server: str
) -> None:
    """On an Emerald Rapids, whose cores have a second thread, 1.02 to 1.15 times as fast."""
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    machines = replace(SERVER, pace=replace(MESH, hidden_load=0.0)), SERVER
    assert [described(choose_form(contraction, one).form) for one in machines] == [apart, server]


@pytest.mark.parametrize(("text", "sizes", "asks"), [
    ("i,j->ij", {"i": 512, "j": 512}, True),
    ("ij,jk->ik", {"i": 400, "j": 2, "k": 500}, True),
    ("ij,jk->ik", {"i": 720, "j": 16, "k": 720}, True),
    ("ij,jk->ik", {"i": 80, "j": 16, "k": 80}, False),  # the first cache holds it
    ("ij,jk->ik", {"i": 4096, "j": 2, "k": 4096}, False),  # it goes past the caches
    ("ij,jk->ik", {"i": 1024, "j": 32, "k": 1024}, False),  # lines of rows that are asked for together share a set
    ("ij,jk->ik", {"i": 300, "j": 40, "k": 300}, False),
])  # fmt: skip
def test_tiles_of_short_sums_ask_for_their_results(text: str, sizes: dict[str, int], asks: bool) -> None:
    """Results of up to 12 MB that lay in the third cache were written 1.1 times as fast, those in the second 1.08."""
    contraction = normalise(einsum_contraction(text, sizes, F32))
    form, other = (choose_form(contraction, one).form for one in (SERVER, ZEN5))
    assert isinstance(form, DirectForm)
    assert form.out_prefetched == asks
    assert not (isinstance(other, DirectForm) and other.out_prefetched)


@pytest.mark.parametrize(("sizes", "scalar", "server"), [
    ({"i": 400, "j": 4, "k": 500}, F32, "direct 4x4"),
    ({"i": 300, "j": 12, "k": 300}, F64, "direct 4x6"),
    ({"i": 400, "j": 8, "k": 500}, F32, "direct 4x6"),
    ({"i": 400, "j": 4, "k": 500}, F64, "packed 3x8"),  # rows begin anywhere in a line
])  # fmt: skip
def test_tiles_that_ask_for_their_results_have_few_rows(sizes: dict[str, int], scalar: ScalarType, server: str) -> None:
    """On an Emerald Rapids 1.2 to 1.9 times as fast in f32 as tiles of 13 or 14 rows, and as fast in f64."""
    contraction = normalise(einsum_contraction("ij,jk->ik", sizes, scalar))
    assert described(choose_form(contraction, SERVER).form) == server


@pytest.mark.parametrize(("sizes", "scalar", "one"), [
    ({"i": 431, "j": 3, "k": 428}, F32, "direct 4x3"),  # more than two thirds of the second cache
    ({"i": 400, "j": 4, "k": 500}, F32, "direct 4x4"),
    ({"i": 383, "j": 4, "k": 266}, F64, "direct 4x4"),
    ({"i": 300, "j": 4, "k": 300}, F32, "direct 1x25"),  # which is as fast
])  # fmt: skip
def test_short_sums_that_fill_the_second_cache_have_few_rows(
    sizes: dict[str, int], scalar: ScalarType, one: str
) -> None:
    contraction = normalise(einsum_contraction("ij,jk->ik", sizes, scalar))
    assert described(choose_form(contraction, ZEN4).form) == one


@pytest.mark.parametrize(
    ("n", "m", "tile"), [(1024, 1024, "direct 4x1"), (400, 500, "direct 4x1"), (5000, 40, "direct 3x2")]
)
def test_outer_products_of_long_rows_are_written_row_by_row(n: int, m: int, tile: str) -> None:
    contraction = normalise(einsum_contraction("i,j->ij", {"i": n, "j": m}, F32))
    assert [described(choose_form(contraction, one).form) for one in (ZEN4, ZEN5)] == [tile, tile]


@pytest.mark.parametrize(("j", "scalar", "one", "two"), [
    (4000, F32, (1, 4), (4, 2)), (500, F64, (2, 4), (4, 2)), (512, F64, (1, 4), (4, 2)),
])  # fmt: skip
def test_long_rows_of_two_operands_are_read_one_pair_at_a_time(
    j: int, scalar: ScalarType, one: tuple[int, int], two: tuple[int, int]
) -> None:
    contraction = normalise(einsum_contraction("ij,ij->i", {"i": 4000, "j": j}, scalar))
    forms = [choose_form(contraction, machine).form for machine in (ZEN4, ZEN5)]
    assert all(isinstance(form, MatrixVectorForm) for form in forms)
    assert [(form.rows, form.vectors) for form in forms if isinstance(form, MatrixVectorForm)] == [one, two]


def test_rows_pass_by_panels_in_the_first_cache_where_stores_wait_in_its_buffers() -> None:
    contraction = normalise(einsum_contraction("bcfg,edag->efdacb", EVEN, F32))
    forms = [make_packed_form(contraction, one) for one in (ZEN5, SERVER)]
    assert [(one.nontemporal, one.scalar_inner) for one in forms] == [(True, False), (True, True)]
    longer = normalise(einsum_contraction("bcfg,edag->efdacb", EVEN | {"g": 200}, F32))
    assert not make_packed_form(longer, SERVER).scalar_inner, "panels of 200 steps fill the first cache"


def test_vectors_out_of_the_second_cache_wait_for_stores_past_the_caches() -> None:
    """24 lines of each step, a power of two apart, come from there for every row of tiles."""
    contraction = normalise(einsum_contraction("cefg,gdba->fedcba", EVEN, F64))
    apart = replace(SERVER, pace=replace(MESH, again_past=MESH.again, stray=0.0, hidden_load=0.0, pieces=0.5))
    assert [described(choose_form(contraction, one).form) for one in (apart, SERVER)] == ["direct 3x8", "packed 4x6"]


def test_what_the_second_cache_cannot_hold_is_not_asked_for_in_time() -> None:
    """Two strips of vectors of a sum of 4624 steps, in f64; in f32 they take half of it."""
    contraction = normalise(einsum_contraction("ceda,dbe->cba", dict.fromkeys("abcde", 68), F64))
    assert described(choose_form(contraction, SERVER).form) == "packed 3x8"


@pytest.mark.parametrize(("n", "scalar", "form", "panels"), [
    (256, F32, "direct 2x13", False), (400, F32, "direct 2x13", True), (512, F32, "packed 4x6", True),
])  # fmt: skip
def test_rows_on_other_pages_of_the_second_cache_are_packed(
    n: int, scalar: ScalarType, form: str, panels: bool
) -> None:
    """Squares of 400 and 512 on two threads are 12 and 16% faster so than with vectors that are read in place."""
    found = choose_form(normalise(einsum_contraction("ij,jk->ik", square(n), scalar)), SERVER).form
    assert described(found) == form
    assert isinstance(found, PackedForm) or found.vector_packed == panels


@pytest.mark.parametrize(("sizes", "form"), [
    ({"a": 72, "b": 72, "c": 72, "k": 2500}, "packed 4x6"),  # 143 GFLOP/s, fed directly 99
    ({"a": 320, "b": 96, "c": 96, "k": 500}, "direct 2x14"),  # 151, and in pieces of the sum 160
    ({"a": 72, "b": 30, "c": 360, "k": 128}, "direct 3x6"),  # 103, and 111
])  # fmt: skip
def test_long_strips_that_memory_fills_meanwhile_are_packed(sizes: dict[str, int], form: str) -> None:
    contraction = normalise(einsum_contraction("cka,bk->cba", sizes, F32))
    assert described(choose_form(contraction, SERVER).form) == form


@pytest.mark.parametrize(("text", "sizes", "asks"), [
    ("dca,cbd->ba", {"a": 172, "b": 220, "c": 60, "d": 60}, False),
    ("dca,cbd->ba", {"a": 172, "b": 220, "c": 220, "d": 172}, True),
    ("ij,jk->ik", square(1024), False),
    ("ij,jk->ik", square(2048), False),  # 1.09 times as fast so
    ("bij,bjk->bik", square(1024) | {"b": 3}, True),
])  # fmt: skip
def test_what_a_server_asks_for(text: str, sizes: dict[str, int], asks: bool) -> None:
    """Not what its third cache holds, nor what a matrix product reads of main memory."""
    contraction = normalise(einsum_contraction(text, sizes, F64))
    assert make_packed_form(contraction, SERVER).asks_vectors == asks
    assert make_packed_form(contraction, replace(SERVER, pace=TWO_MULTIPLY_ADDS)).asks_vectors


def test_panels_leave_room_for_what_passes_by() -> None:
    contraction = normalise(einsum_contraction("ij,jk->ik", dict(i=1024, j=1024, k=1024), F64))
    form, other = (make_packed_form(contraction, replace(SERVER, pace=one)) for one in (MESH, TWO_MULTIPLY_ADDS))
    assert (form.vector_block, form.depth) == (128, 512)
    assert (other.vector_block, other.depth) == (256, 512)


@pytest.mark.parametrize(("n", "scalar", "steps"), [(512, F32, 512), (512, F64, 512), (2048, F32, 512)])
def test_panels_on_a_server_leave_room_wherever_they_come_from(n: int, scalar: ScalarType, steps: int) -> None:
    """A MiB of them, of squares of 512 in f64, is read at three quarters of the speed in some places of memory."""
    form = make_packed_form(normalise(einsum_contraction("ij,jk->ik", square(n), scalar)), SERVER)
    assert form.depth == steps
    assert form.vector_block * form.depth * scalar.bytes <= SERVER.l2_bytes * 3 // 10
    assert form.vector_tile * form.depth * scalar.bytes <= SERVER.l2_bytes // 16


def test_a_server_packs_less_often_again() -> None:
    """On two threads 1.2 times as fast: each packs half of either side at a time."""
    machine = replace(SERVER, cores=2)
    contraction = normalise(einsum_contraction("fcea,debf->dcba", dict.fromkeys("abcdef", 32), F64))
    form, other = (make_packed_form(contraction, replace(machine, pace=one)) for one in (MESH, TWO_MULTIPLY_ADDS))
    assert (form.vector_chunk, form.scalar_chunk) == (512, 516)
    assert (other.vector_chunk, other.scalar_chunk) == (64, 258)


@pytest.mark.parametrize(("steps", "scalar", "panels"), [(16, F64, 25), (16, F32, 49), (200, F64, 0)])
def test_a_server_keeps_strips_in_the_first_cache(steps: int, scalar: ScalarType, panels: int) -> None:
    """Beside stores past the caches, `bcfg,edag->fedcab` of 16 is 1.2 times as fast so in f64, 1.05 times in f32."""
    contraction = normalise(einsum_contraction("bcfg,edag->fedcab", EVEN | {"g": steps}, scalar))
    form, other = (make_packed_form(contraction, replace(SERVER, pace=one)) for one in (MESH, TWO_MULTIPLY_ADDS))
    assert form.nontemporal
    assert (form.strip, other.strip) == (panels, 0)


def test_rows_out_of_the_second_cache_wait_for_stores_past_the_caches_too() -> None:
    """4096 rows for each panel of vectors: packed, in strips, it is 1.15 times as fast, and another 1.13 times with six
    rows, of which 4096 are one run of the operand, than with eight.
    """
    contraction = normalise(einsum_contraction("cefg,gdba->fedbac", EVEN, F64))
    apart = replace(SERVER, pace=replace(MESH, again_past=MESH.again))
    assert [described(choose_form(contraction, one).form) for one in (apart, SERVER)] == ["direct 2x14", "packed 4x6"]


@pytest.mark.parametrize(("text", "sizes", "scalar", "asked"), [
    ("adb,cd->cab", LONG, F32, True),
    ("adb,cd->cab", LONG, F64, True),  # two points fill most of the second cache, but not two pieces of the sum
    ("bgfd,caeg->cbaefd", SIX, F32, False),  # reading a point takes a sixteenth of its products' time
])  # fmt: skip
def test_points_are_asked_for_on_a_server_where_they_are_short_and_waited_for(
    text: str, sizes: dict[str, int], scalar: ScalarType, asked: bool
) -> None:
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    form = choose_form(contraction, SERVER).form
    assert isinstance(form, DirectForm)
    assert form.points_asked is asked
    every = replace(SERVER, pace=replace(MESH, asks_points=1.0, points_wait=0.0))
    other = choose_form(contraction, every).form
    assert isinstance(other, DirectForm) and other.points_asked
