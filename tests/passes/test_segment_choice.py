"""How segments are shared out: every row once, within limits, and the same bits in every run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lowering_checks import compiled
from segment_cases import OPERATORS, histogram, plain, segmented

import tilewright as tw
from tilewright.machine.model import Machine
from tilewright.machine.named import A100, H100, OPENCL_CPU, OPENCL_GPU
from tilewright.passes.segments.choice import (
    BIN_PASSES,
    CHUNKS_PER_CORE,
    MOST_BYTES_OF_BINS,
    MOST_ROWS_PER_THREAD,
    UPDATE_SECONDS,
    pieces_of_histogram,
    rows_each,
    share_out,
    shared_limit,
)

CPU = Machine("cpu", "a CPU", cores=16, max_threads_per_block=1, shared_bytes_per_block=1 << 20)
MACHINES = st.sampled_from([(CPU, 1), (A100, 256), (H100, 256), (OPENCL_CPU, 256), (OPENCL_GPU, 192)])
COUNTS = st.one_of(st.integers(0, 40), st.integers(0, 1 << 24))


@given(MACHINES, COUNTS, COUNTS, st.booleans())
def test_chunks_cover_every_row_once(where: tuple[Machine, int], segments: int, width: int, alone: bool) -> None:
    machine, threads = where
    found = share_out(machine, threads, segments, width, alone)
    assert threads % found.group == 0 and found.group & (found.group - 1) == 0
    assert found.group == 1 or not alone
    assert (found.chunks - 1) * found.length < max(1, width) <= max(1, found.chunks * found.length)
    if threads == 1:
        assert found.chunks <= CHUNKS_PER_CORE * machine.cores


@given(MACHINES, COUNTS, COUNTS, st.integers(1, 1 << 20), st.sampled_from([1, 4, 32]))
def test_pieces_cover_every_row_once(
    where: tuple[Machine, int], segments: int, width: int, bins: int, bytes_per_bin: int
) -> None:
    machine, threads = where
    for together in {1, threads}:
        pieces, length = pieces_of_histogram(machine, threads, segments, width, bins, bytes_per_bin, together)
        assert pieces == 0 or (pieces - 1) * length < max(1, width) <= max(1, pieces * length)
        assert pieces > 0 or width < together
        assert pieces < 2 or pieces * segments * bins * bytes_per_bin <= MOST_BYTES_OF_BINS


@pytest.mark.parametrize("machine", [A100, H100])
def test_histograms_in_main_memory_wait_no_longer_than_their_bins_take(machine: Machine) -> None:
    """Rows of a thread follow each other, its bins are cleared and read by all threads at once."""
    for width, bins in ((500_000, 256), (10_000_000, 256), (5_000_000, 1024)):
        pieces, length = pieces_of_histogram(machine, 256, 1, width, bins, 4)
        waiting = length * UPDATE_SECONDS
        moving = BIN_PASSES * pieces * bins * 4 / machine.dram_bandwidth
        assert 0.8 < waiting / moving < 1.3, (width, bins, pieces)


@pytest.mark.parametrize("machine", [A100, H100, OPENCL_CPU, OPENCL_GPU])
@pytest.mark.parametrize("size", [1, 4, 16, 64, 4096])
def test_tiles_of_scans_fit(machine: Machine, size: int) -> None:
    rows = rows_each(machine, 256, size)
    assert rows % 2 == 1 or (rows == 0 and 3 * 256 * size > machine.shared_bytes_per_block)
    assert rows < 3 or 256 * size * (rows + 2) <= shared_limit(machine)


def test_the_number_of_threads_changes_no_bit() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(300_000).astype("f4")
    at = random.integers(0, 50, len(x))
    bins = np.zeros(50, "f4")
    programs = [
        (compiled(plain(OPERATORS["float sum"], "reduce")), (x,)),
        (compiled(plain(OPERATORS["float sum"], "scan")), (x,)),
        (compiled(histogram(OPERATORS["float sum"], False)), (at, x, bins)),
        (compiled(segmented(OPERATORS["float sum"], "segred", False, False)), (x.reshape(3, -1),)),
    ]
    threads = tw.get_num_threads()
    try:
        results = []
        for count in (1, 2, 2):
            tw.set_num_threads(count)
            results.append([np.asarray(program(*arguments)).tobytes() for program, arguments in programs])
    finally:
        tw.set_num_threads(threads)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("device", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
@pytest.mark.parametrize("segments", [1, 3])
def test_sums_of_long_segments_are_trees(device: str, segments: int) -> None:
    """Equal terms, whose rounding errors add up in one direction: one after another, they would be off by thousands of
    units. A chain of b additions errs by at most b/2 units of its result; on its way to the result a term goes through
    a chain of a thread's rows (or through a fold in lanes, whose chains are shorter), and two trees.
    """
    length = 1_000_000
    x = np.full((segments, length), 1 / 3, "f4")
    got = compiled(segmented(OPERATORS["float sum"], "segred", False, False), device)(x)
    exact = math.fsum([float(x[0, 0])] * length)
    bound = (MOST_ROWS_PER_THREAD + 2 * math.log2(length)) / 2 * np.finfo("f4").eps * exact
    assert (np.abs(got - exact) <= bound).all()
    assert abs(float(np.cumsum(x[0])[-1]) - exact) > bound
