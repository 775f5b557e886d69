"""Register tiles whose stores do not wait for each other, on processors that are known to have a limit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import einsum_contraction

from tilewright.contraction.normalise import normalise
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.machine.named import CPU_AVX512
from tilewright.machine.paces import LEAST_TERMS, Pace
from tilewright.passes.contractions.form_choice import choose_form
from tilewright.passes.direct.choice import choose_direct_form, direct_forms
from tilewright.passes.direct.form import Results
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.register_shape import PastCaches, Run, register_shape

LIMITED = replace(CPU_AVX512, cores=1, l1_bytes=32 << 10)
UNLIMITED = replace(LIMITED, pace=replace(LIMITED.pace, queued=math.inf, packed_tile=50.0))
EVEN, UNEVEN = dict.fromkeys("abcdefg", 16), {"a": 24, "b": 16, "c": 16, "d": 24, "e": 16, "f": 16, "g": 24}


def packed_tile(text: str, sizes: dict[str, int], scalar: ScalarType) -> list[tuple[int, int]]:
    """(vectors, rows) of the packed form with such a limit and without one."""
    contraction = normalise(einsum_contraction(text, sizes, scalar))
    forms = [make_packed_form(contraction, machine) for machine in (LIMITED, UNLIMITED)]
    return [(form.vectors, form.rows) for form in forms]


@pytest.mark.parametrize(("text", "sizes", "scalar", "limited", "unlimited"), [
    ("cefg,gdba->fedcba", EVEN, F32, (4, 4), (4, 6)),
    ("bcfg,edag->edfcab", EVEN, F64, (4, 4), (4, 6)),
    ("aged,cbfg->fedcba", UNEVEN, F64, (4, 4), (6, 4)),
    # Of runs of 24 elements two are three vectors, and two rows with them whole lines.
    ("aged,cbfg->fedcba", UNEVEN, F32, (3, 4), (6, 4)),
    # What is stored once after hundreds of steps may wait.
    ("ij,jk->ik", {"i": 2048, "j": 2048, "k": 2048}, F32, (4, 6), (4, 6)),
])  # fmt: skip
def test_packed_tiles_of_short_sums_are_stored_at_once(
    text: str, sizes: dict[str, int], scalar: ScalarType, limited: tuple[int, int], unlimited: tuple[int, int]
) -> None:
    """On a Zen 4 1.02 to 1.08 times as fast; elsewhere it is not known."""
    assert packed_tile(text, sizes, scalar) == [limited, unlimited]


@pytest.mark.parametrize("terms", range(1, LEAST_TERMS))
def test_sums_of_few_terms_wait_for_the_memory_instead(terms: int) -> None:
    first, second = packed_tile("aq,bq->ab", {"a": 1200, "b": 900, "q": terms}, F64)
    assert first == second


@pytest.mark.parametrize("extent", [128, 256])
def test_direct_tiles_are_stored_at_once(extent: int) -> None:
    """Squares of 256 in f32 1.02 times as fast."""
    contraction = normalise(einsum_contraction("ij,jk->ik", dict.fromkeys("ijk", extent), F32))
    sums = []
    for machine in (LIMITED, UNLIMITED):
        found = choose_direct_form(contraction, machine)
        assert not isinstance(found, str) and found[0].results is Results.VECTORS
        sums.append(len(found[0].lanes) * found[0].rows)
    assert sums[0] == LIMITED.pace.queued < sums[1]


@pytest.mark.parametrize("queued", [0, 1, 4])
def test_tiles_have_a_row_where_no_vectors_can_wait(queued: float) -> None:
    machine = replace(LIMITED, pace=replace(LIMITED.pace, queued=queued))
    contraction = normalise(einsum_contraction("cbe,fbe->cf", {"b": 4, "c": 200, "e": 4, "f": 65}, F32))
    assert min(form.rows for form in direct_forms(contraction, machine)) == 1


def test_results_in_boxes_are_not_taken_for_cheap_ones() -> None:
    """Assembled in the first cache: 40 GFLOP/s, where they are fed directly 54."""
    sizes = {"a": 16, "b": 24, "c": 28, "d": 24, "e": 24, "f": 12, "g": 20}
    contraction = normalise(einsum_contraction("cefg,gdba->fedbac", sizes, F64))
    assert not isinstance(choose_form(contraction, LIMITED).form, PackedForm)


@given(st.integers(1, 64), st.integers(0, 300))
def test_storing_takes_longer_the_more_there_is(vectors: int, terms: int) -> None:
    pace = Pace()
    assert pace.stored(vectors, terms) - pace.stored(vectors - 1, terms) in (1.0, 1.0 + pace.queue_wait)
    assert pace.stored(vectors, terms) == vectors or (terms >= LEAST_TERMS and vectors > pace.queued)


@given(
    st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 400), st.sampled_from([1, 2, 3, 8, 24, 100]),
    st.sampled_from([4, 8, 16]), st.sampled_from([1, 2]), st.integers(1, 4000), st.booleans(),
    st.sampled_from([None, PastCaches(64, 1024, 4096), PastCaches(32, 4096, 4096)]),
)  # fmt: skip
def test_every_tile_fits_the_registers(
    columns: int,
    rows: int,
    run: int,
    follow: int,
    lanes: int,
    parts: int,
    terms: int,
    near: bool,
    past: PastCaches | None,
) -> None:
    results = Run(run, follow, rows)
    tile = register_shape(LIMITED, lanes, parts, (columns, rows), results, 0, terms, near, past)
    vectors, height = tile
    assert vectors >= 1 and height >= 1
    assert vectors * height + vectors + 1 <= LIMITED.vector_registers // parts


@pytest.mark.parametrize(("run", "tile", "broken"), [
    (Run(24, 2, 16), (3, 4), False),
    (Run(24, 2, 16), (6, 4), False),
    (Run(32, 2, 16), (3, 4), False),  # vectors never end in the middle of one
    (Run(24, 2, 16), (4, 4), True),  # 64 elements end in the middle of a run
    (Run(24, 2, 16), (3, 5), True),  # five rows end in the middle of a line
    (Run(24, 2, 18), (3, 4), True),  # and the last ones do
])  # fmt: skip
def test_tiles_that_end_in_the_middle_of_runs(run: Run, tile: tuple[int, int], broken: bool) -> None:
    vectors, rows = tile
    assert run.is_broken(16 * vectors, rows, lanes=16) == broken


def test_one_run_of_all_columns_is_not_broken() -> None:
    """However long it is: the tile is that of columns which are whole vectors."""
    tiles = [
        register_shape(LIMITED, 16, 1, (columns, 1200), Run(columns, 1, 0), 0, 64, near=False)
        for columns in (1500, 1504)
    ]
    assert tiles[0] == tiles[1]


def test_rows_of_one_run_are_copied_together_whatever_their_number() -> None:
    """The end of one run is no middle of it: the tile is that of rows of which nothing is known."""

    def tile(run: int) -> tuple[int, int]:
        return register_shape(LIMITED, 16, 1, (1024, 1024), Run(1024, 1, 0), run, 512, near=False)

    assert tile(1024) == tile(0) != tile(32)
