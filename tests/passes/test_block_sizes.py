"""The model of how much is packed at once and how the work is shared out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.machine.model import KIBI, MEBI, Machine
from tilewright.machine.named import CPU_AVX512
from tilewright.passes.packed.blocks import LEAST_PIECE, choose_chunks, even, longest_piece, panel_bytes, shared_time

CACHES = replace(CPU_AVX512, l1_bytes=32 * KIBI, l2_bytes=MEBI, l3_bytes=32 * MEBI)


@given(st.integers(0, 5000), st.integers(1, 1000), st.integers(1, 100))
def test_even_pieces(total: int, most: int, unit: int) -> None:
    piece = even(total, most, unit)
    assert piece % unit == 0
    assert unit <= piece <= max(unit, most)
    pieces = -(-total // piece)
    allowed = max(unit, most // unit * unit)
    assert pieces <= max(1, -(-total // allowed))  # no more than if each were as long as allowed
    assert (pieces - 1) * piece < max(total, 1)  # none is empty


def test_the_last_piece_is_no_shorter_than_need_be() -> None:
    """1024 in tiles of 6, at most 1020: two equal pieces, not one of 1020 and one of 4."""
    assert even(1024, 1020, 6) == 516


@pytest.mark.parametrize("rows", [1, 4, 6, 8, 12])
@pytest.mark.parametrize("element_bytes", [4, 8, 16])
def test_pieces_fit_the_caches(rows: int, element_bytes: int) -> None:
    tile = 256 // element_bytes
    depth = longest_piece(CACHES, tile, rows, element_bytes)
    assert depth * rows * element_bytes <= CACHES.l1_bytes
    assert 2 * depth * tile * element_bytes <= panel_bytes(CACHES)[0]  # two panels at least
    half = replace(CACHES, l1_bytes=CACHES.l1_bytes // 2, l2_bytes=CACHES.l2_bytes // 2)
    assert longest_piece(half, tile, rows, element_bytes) <= depth // 2 or depth // 2 < LEAST_PIECE


def test_unknown_caches_are_usual_ones() -> None:
    unknown = replace(CACHES, l1_bytes=0, l2_bytes=0, l3_bytes=0)
    assert longest_piece(unknown, 64, 6, 4) >= LEAST_PIECE
    assert min(panel_bytes(unknown)) >= 1 << 18


@given(
    st.integers(1, 64),
    st.integers(1, 20),
    st.tuples(st.integers(1, 10**5), st.integers(1, 10**5)),
    st.sampled_from([(64, 6), (48, 8), (32, 6), (16, 1)]),
    st.integers(1, 10**5),
    st.booleans(),
)
def test_chunks_are_whole_tiles(
    threads: int, batch: int, totals: tuple[int, int], tile: tuple[int, int], contracted: int, joined: bool
) -> None:
    chunks = choose_chunks(threads, batch, totals, tile, 16, contracted, joined)
    for chunk, total, width in zip(chunks, totals, tile, strict=True):
        assert chunk >= 1
        assert chunk == total or chunk % width == 0


def tasks(machine: Machine, size: int, threads: int) -> tuple[int, float]:
    """How many there are for a square product, and how much is packed for each time that it must be."""
    vector, scalar = choose_chunks(threads, 1, (size, size), (64, 6), 16, size, joined=False)
    vector_parts, scalar_parts = -(-size // vector), -(-size // scalar)
    return vector_parts * scalar_parts, (vector_parts + scalar_parts) / 2


def test_small_work_and_one_thread_are_not_shared_out() -> None:
    assert tasks(CACHES, 64, 8) == (1, 1)
    assert tasks(CACHES, 2048, 1) == (1, 1)


@pytest.mark.parametrize("threads", [2, 4, 16])
@pytest.mark.parametrize("size", [1024, 2048, 4096])
def test_both_sides_are_shared_out(size: int, threads: int) -> None:
    """Enough tasks that nobody waits long, and each side packed about as often as the square root of their number."""
    count, packed = tasks(CACHES, size, threads)
    assert count >= 2 * threads
    assert packed <= 1.5 * count**0.5 + 1


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 16))
def test_the_time_of_shared_tasks(tasks: int, task: int, threads: int) -> None:
    """No less than an even share, no less than one task, and no more than all tasks one after another."""
    time = shared_time(tasks, task, tasks * task, threads)
    assert time >= max(task, tasks * task / threads) * (1 - 1e-12)
    assert time <= tasks * task * (1 + 1e-12)
    assert shared_time(tasks, task, tasks * task, 1) == tasks * task


@pytest.mark.parametrize(("totals", "tile"), [((312, 296), (24, 8)), ((312, 296), (48, 8)), ((296, 312), (24, 8))])
def test_two_threads_get_even_tasks(totals: tuple[int, int], tile: tuple[int, int]) -> None:
    """Halves whose tiles are not a multiple of two: 37 rows of tiles are 19 and 18, and not three parts."""
    vector, scalar = choose_chunks(2, 1, totals, tile, 8, 10**5, joined=False)
    assert (-(-totals[0] // vector) * -(-totals[1] // scalar)) % 2 == 0
