"""How launches are sized."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.kernel.ir import Assign, AtomicUpdate, Declare, For, Kernel, Let, While
from tilewright.kernel.traversal import depends_on, walk
from tilewright.runtime import host
from tilewright.runtime.backends import Backend
from tilewright.runtime.cache import IdentityCache
from tilewright.runtime.host import KernelPlan, Schedule

POINTS_PER_BLOCK = 1 << 12
FEWEST_BLOCKS = 8
"""So many blocks of elementwise points are computed by one thread before another one is awake."""

BLOCKS_PER_CORE = 32
"""At most: the last ones are taken one by one, and then a core that others use too has little left to do."""

WHOLE_LINES = 64
"""Elements that blocks of many points are a multiple of, so that those of aligned arrays begin with a cache line."""

MOST_COLUMNS = 128
LEAST_COLUMNS = 16
"""Columns that a block takes at the least where they may be folded in the lanes of vectors: a line of each row."""

SCRATCH_BYTES = 256 << 20

_BY_MEMORY: IdentityCache[Kernel, bool] = IdentityCache()


def schedule(
    plan: KernelPlan, extents: tuple[int, ...], backend: Backend, rooms: Sequence[int]
) -> tuple[int, dict[str, int]]:
    """The number of blocks and the launch's own scalars."""
    if plan.schedule is Schedule.SEQUENTIAL:
        return 1, {}
    points = 1
    for extent in extents:
        points *= extent
    if points == 0:
        return 0, {}
    per_worker = sum(max(1, room) * one.element.bytes for room, one in zip(rooms, plan.scratch, strict=True))
    most = max(1, SCRATCH_BYTES // per_worker) if per_worker else 1 << 30
    if plan.schedule is Schedule.BLOCKS:
        wanted = points if plan.heavy else points // POINTS_PER_BLOCK
        wanted = wanted if plan.heavy or wanted >= FEWEST_BLOCKS else 1
        wanted = min(wanted, BLOCKS_PER_CORE * backend.machine.cores, most)
        innermost = extents[-1]
        runs = points // innermost
        chunk = innermost if runs >= wanted else -(-innermost // -(-wanted // runs))
        together = plan.together if chunk < 16 * WHOLE_LINES else math.lcm(plan.together, WHOLE_LINES)
        if plan.apart and points < plan.together * backend.machine.cores:
            together = 1
        if plan.columns is not None:
            together = _scanned_together(points, backend.machine.cores, *plan.columns)
        elif plan.by_rows:
            together = _columns_together(points, backend.machine.cores)
            together = together if plan.apart else max(together, min(plan.together, LEAST_COLUMNS))
        chunk = min(innermost, -(-chunk // together) * together)
        chunks = -(-innermost // chunk)
        items = runs * chunks
        per_block = -(-items // max(1, min(wanted, items)))
        blocks = -(-items // per_block)
        return blocks, {host.ITEMS: items, host.PER_BLOCK: per_block, host.CHUNK: chunk, host.CHUNKS: chunks}
    threads = plan.kernel.threads_per_block
    if plan.schedule is Schedule.GROUPS:
        blocks = max(1, min(-(-points * plan.group // threads), 32 * backend.machine.cores, most // threads))
        return blocks, {host.ITEMS: points, host.THREADS_TOTAL: blocks * threads}
    blocks = min(-(-points // threads), 32 * backend.machine.cores)
    workers = min(blocks * threads, most)
    return -(-workers // threads), {host.ITEMS: points, host.THREADS_TOTAL: workers}


def _columns_together(points: int, cores: int) -> int:
    """How many points that are folded row by row a block takes at the least: the more, the longer are the pieces of
    rows that it reads, but each core has two parts.

    Example:
        >>> [_columns_together(points, 2) for points in (3, 30, 133, 1000)]
        [1, 4, 32, 128]
    """
    together = 1
    while together < MOST_COLUMNS and points >= 4 * together * cores:
        together *= 2
    return together


def _scanned_together(points: int, cores: int, least: int, most: int) -> int:
    """How many points that are scanned row by row a block takes at the least: longer pieces of rows are read and
    written faster, but each core has one or two parts.

    Example:
        >>> [_scanned_together(points, 2, 32, 1024) for points in (3, 130, 1000, 4000, 9000)]
        [32, 64, 256, 1024, 1024]
    """
    together = least
    while together < most and points >= 2 * together * cores:
        together *= 2
    return together


def loops_by_memory(kernel: Kernel) -> bool:
    """Whether what a kernel reads decides how often one of its loops goes round.

    Example:
        >>> from tilewright.ir.scalars import I64
        >>> from tilewright.kernel.ir import Buffer, integer, load
        >>> counts = Buffer("counts", I64)
        >>> [loops_by_memory(Kernel("k", (counts,), (), (), (For("i", integer(0), stop, ()),)))
        ...  for stop in (integer(3), load(counts, integer(0)))]
        [False, True]
    """
    return _BY_MEMORY.get_or_build(kernel, _loops_by_memory)


def _loops_by_memory(kernel: Kernel) -> bool:
    read: set[str] = set()
    for statement in [*walk(kernel.body)] * 2:  # what a loop assigns is there in its next round
        match statement:
            case While():
                return True
            case For(start=start, stop=stop) if depends_on(start, read) or depends_on(stop, read):
                return True
            case Let(name=name, value=value) | Declare(name=name, value=value) | Assign(name=name, value=value):
                if depends_on(value, read):
                    read.add(name)
            case AtomicUpdate(old=old):
                read.add(old)
    return False
