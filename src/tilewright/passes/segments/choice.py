"""How segments are shared out among workers, from their number, their width and the machine's numbers.

    few segments, many rows     each segment is cut into chunks, a second kernel combines what the chunks give
    as many as there are cores  one worker (on a GPU: one block) for each segment
    many short segments         several segments side by side in a block, down to one thread for each

The choice depends on nothing else, so that the same device gives the same bits in every run, whatever its threads do.
"""

from __future__ import annotations

import math

from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine

ROWS_PER_CHUNK = 1 << 15
"""What a core does in the time that it takes to wake another one."""
CHUNKS_PER_CORE = 8
"""So that a core that comes late leaves little to wait for."""
ROWS_OF_ONE_PASS = 1 << 20
"""One thread of a CPU scans so many rows, once, before several have read them twice and were awake three times."""
ROWS_PER_THREAD = 16
"""Rows that pay for a thread's part in the tree of its group."""
MOST_ROWS_PER_THREAD = 1024
"""Rows that a thread adds up one after another: the error of a sum grows with them."""
UPDATE_SECONDS = 3e-7
"""One thread of a GPU combines a value into a bin in main memory: it waits for what it reads there."""
BIN_PASSES = 4
"""Those bins are cleared, and read by threads whose neighbours read others that do not lie beside them."""
MOST_BYTES_OF_BINS = 256 << 20
"""What the workers of a histogram may take for bins of their own."""
THREADS_PER_CORE = 1024
"""Where the machine does not tell how many can be resident."""


@dataclass(frozen=True)
class Sharing:
    """`group` threads share a point (1: a worker has it alone); a segment is `chunks` points of `length` rows."""

    group: int
    chunks: int
    length: int


def share_out(machine: Machine, threads: int, segments: int, width: int, alone: bool) -> Sharing:
    """How segments are shared out.

    Args:
        machine: its numbers.
        threads: of a block; 1 on a CPU.
        segments: how many there are.
        width: rows of one.
        alone: a point is not shared by threads: neighbouring segments are next to each other in memory, so that
            neighbouring threads take them, or a group's values do not fit in shared memory.

    Example:
        >>> from tilewright.machine.named import A100
        >>> share_out(A100, 256, 1, 1 << 24, False)
        Sharing(group=256, chunks=864, length=19419)
        >>> share_out(A100, 256, 4096, 4096, False)
        Sharing(group=256, chunks=1, length=4096)
        >>> share_out(A100, 256, 1 << 20, 64, False)
        Sharing(group=4, chunks=1, length=64)
    """
    if segments == 0 or width == 0:
        return Sharing(1, 1, width)
    if threads == 1:
        wanted = CHUNKS_PER_CORE * machine.cores
        chunks = min(-(-wanted // segments), width // ROWS_PER_CHUNK) if segments < wanted and machine.cores > 1 else 1
        return _cut(1, chunks, width)
    resident = machine.cores * (machine.max_threads_per_core or THREADS_PER_CORE)
    group = 1 if alone else group_threads(threads, width)
    enough = -(-resident // (segments * group))
    bounded = -(-width // (group * MOST_ROWS_PER_THREAD))
    chunks = min(max(enough, bounded), width // (group * ROWS_PER_THREAD))
    return _cut(group, chunks, width)


def group_threads(threads: int, width: int) -> int:
    """Threads for the rows of a segment: a power of two that divides those of the block."""
    group = 1
    while threads % (2 * group) == 0 and 2 * group * ROWS_PER_THREAD <= width:
        group *= 2
    return group


def _cut(group: int, chunks: int, width: int) -> Sharing:
    if chunks < 2:
        return Sharing(group, 1, width)
    length = -(-width // chunks)
    return Sharing(group, -(-width // length), length)


def shared_limit(machine: Machine) -> int:
    """Bytes of shared memory for one block: a third of a core's, so that others can be at work while some wait."""
    return min(machine.shared_bytes_per_block, (machine.shared_bytes_per_core or machine.shared_bytes_per_block) // 3)


def rows_each(machine: Machine, threads: int, bytes_per_row: int) -> int:
    """Rows that a thread scans in one tile, odd so that the banks of shared memory do not collide; 0 if none fit.

    Example:
        >>> from tilewright.machine.named import A100, OPENCL_GPU
        >>> rows_each(A100, 256, 4), rows_each(OPENCL_GPU, 256, 16)
        (7, 3)
    """
    limit = shared_limit(machine)
    for rows in (7, 5, 3, 1):
        if threads * bytes_per_row * (rows + 2) <= limit:
            return rows
    return 1 if 3 * threads * bytes_per_row <= machine.shared_bytes_per_block else 0


def rows_of_tile(machine: Machine, threads: int, bytes_per_row: int) -> int:
    """Rows that a thread scans in the one tile of its block; 0 if none fit.

    As many as do not keep blocks from being resident, whose loads hide each other's time, and no more than pay.

    Example:
        >>> from tilewright.machine.named import A100, H100
        >>> rows_of_tile(A100, 256, 4), rows_of_tile(A100, 256, 8), rows_of_tile(H100, 256, 8)
        (15, 7, 11)
    """
    blocks = max(1, (machine.max_threads_per_core or THREADS_PER_CORE) // threads)
    room = (machine.shared_bytes_per_core or machine.shared_bytes_per_block) // blocks - machine.shared_reserved_bytes
    for rows in (15, 11, 7):
        if threads * bytes_per_row * (rows + 2) <= room:
            return rows
    return rows_each(machine, threads, bytes_per_row)


def pieces_of_histogram(
    machine: Machine, threads: int, segments: int, width: int, bins: int, bytes_per_bin: int, together: int = 1
) -> tuple[int, int]:
    """Into how many pieces the rows of each histogram are cut, and how long they are.

    A worker, or the threads of a block that work `together`, clear their own bins, and they are read once more: both
    may cost half of what the rows do. Bins that one thread has in main memory are cleared and read by all threads at
    once, at the speed of the memory, while each row waits for it: R rows per piece cost R * `UPDATE_SECONDS`, the bins
    `BIN_PASSES` * (width / R) * bins / bandwidth, which are least together where they are equal. One piece if it is
    not worth it; none if threads together have less than a row.

    Example:
        >>> from tilewright.machine.named import A100
        >>> pieces_of_histogram(A100, 256, 1, 10_000_000, 256, 4)
        (33671, 297)
    """
    if segments == 0 or width == 0:
        return 1, width
    if threads == 1:
        wanted = CHUNKS_PER_CORE * machine.cores if machine.cores > 1 else 1
        least = max(ROWS_PER_CHUNK, 4 * bins)
    else:
        wanted = machine.cores * (machine.max_threads_per_core or THREADS_PER_CORE) // together
        least = max(ROWS_PER_THREAD * together, 4 * bins)
        if together == 1 and machine.dram_bandwidth and not room_of_thread(machine, threads, bins, bytes_per_bin):
            traffic = BIN_PASSES * segments * width * bins * bytes_per_bin / machine.dram_bandwidth
            least = min(least, max(ROWS_PER_THREAD, math.isqrt(round(traffic / UPDATE_SECONDS))))
    room = MOST_BYTES_OF_BINS // max(1, segments * bins * bytes_per_bin)
    pieces = min(-(-wanted // segments), width // least, room)
    if pieces < 2:
        return (0 if width < together else 1), width
    length = -(-width // pieces)
    return -(-width // length), length


def room_of_thread(machine: Machine, threads: int, bins: int, bytes_per_bin: int) -> int:
    """A power of two of bins that each thread of a block has room for in shared memory and that suffice; 0 if none is.

    Example:
        >>> from tilewright.machine.named import A100
        >>> [room_of_thread(A100, 256, bins, 4) for bins in (5, 32, 100)]
        [8, 32, 0]
    """
    room = 8
    while room < bins:
        room *= 2
    return room if room * threads * bytes_per_bin <= shared_limit(machine) else 0
