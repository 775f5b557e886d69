"""How the points of a kernel are shared out in blocks."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tilewright.kernel.ir import Kernel
from tilewright.runtime import host
from tilewright.runtime.host import KernelPlan, Schedule
from tilewright.runtime.scheduling import BLOCKS_PER_CORE, FEWEST_BLOCKS, LEAST_COLUMNS, POINTS_PER_BLOCK, schedule


@given(
    rows=st.integers(1, 5000),
    columns=st.integers(1, 5000),
    cores=st.integers(1, 64),
    heavy=st.booleans(),
    together=st.sampled_from([1, 8, 16]),
)
def test_blocks_cover_all_points_and_are_many_where_there_is_much_to_do(
    rows: int, columns: int, cores: int, heavy: bool, together: int
) -> None:
    plan = KernelPlan(Kernel("k", (), (), (), ()), (), (), (), Schedule.BLOCKS, heavy=heavy, together=together)
    backend: Any = SimpleNamespace(machine=SimpleNamespace(cores=cores))
    blocks, sizes = schedule(plan, (rows, columns), backend, ())
    chunk, chunks = sizes[host.CHUNK], sizes[host.CHUNKS]
    assert (chunks - 1) * chunk < columns <= chunks * chunk
    assert sizes[host.ITEMS] == rows * chunks
    assert (blocks - 1) * sizes[host.PER_BLOCK] < rows * chunks <= blocks * sizes[host.PER_BLOCK]
    # A core that others use too has little to do when it takes one of the last: a part of its share, not all of it.
    if (heavy and rows >= BLOCKS_PER_CORE * cores) or rows * columns >= BLOCKS_PER_CORE * cores * POINTS_PER_BLOCK:
        assert blocks > BLOCKS_PER_CORE * cores // 2 or chunk == together
    if not heavy and rows * columns < FEWEST_BLOCKS * POINTS_PER_BLOCK:
        assert blocks == 1


@given(columns=st.integers(1, 5000), cores=st.integers(1, 64), together=st.sampled_from([1, 32]))
def test_columns_in_lanes_are_a_line_of_each_row_at_the_least(columns: int, cores: int, together: int) -> None:
    """Blocks of two columns read all lines each: 100000 rows of 16 numbers took eight times as long so."""
    plan = KernelPlan(
        Kernel("k", (), (), (), ()), (), (), (), Schedule.BLOCKS, heavy=True, together=together, by_rows=True
    )
    backend: Any = SimpleNamespace(machine=SimpleNamespace(cores=cores))
    _, sizes = schedule(plan, (columns,), backend, ())
    if together > 1:
        assert sizes[host.CHUNK] >= min(columns, LEAST_COLUMNS)
