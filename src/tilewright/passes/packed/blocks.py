"""How much the packed form packs at once and how it shares the work out: a model in bytes and cycles.

The register tile reads one vector panel and one scalar panel, both as long as a piece of the sum. A scalar panel lies
in L1 while the vector panels stream past it from L2, and the scalar panels themselves stream from L3 (the model of Low
et al., "Analytical modeling is enough for high-performance BLIS", 2016). Longer pieces mean that partial sums are added
to the output less often, larger blocks that the other side is packed less often; what is cut is cut evenly.
"""

from __future__ import annotations

import functools
import math

from tilewright.machine.model import Machine
from tilewright.runtime.cpu_driver import SHARES_PER_THREAD

LINE = 64  # bytes of a cache line
LEAST_WAYS = 8  # of the first and second cache: lines that share a set
# Caches of a processor that does not tell its own.
USUAL_L1, USUAL_L2, USUAL_L3 = 1 << 15, 1 << 19, 1 << 24
# One core's share of the L3 cache, which some eight cores have in common.
CORES_PER_L3 = 8
# A register tile's first loads, last additions and stores take some 100 cycles: below a tenth of so many steps.
LEAST_PIECE = 64
# Panels of one block, at the least, of a side that comes from beyond L2: the next block is asked for meanwhile, and
# memory gives longer pieces faster. So pieces of the sum are cut: into so many at the most, of so many steps at least.
FEW_PANELS = 4
MOST_CUTS, LEAST_CUT = 4, 192
# Elements of a side that tables are made for at once.
BLOCK = 4096

# Costs in cycles. A multiply-add of whole vectors takes one; packing a vector once more takes as long as reading it
# from L2 or L3 (5 cycles for squares of 512, 9 to 11 for larger ones, measured on a Zen 4 by cutting both sides into
# more and more parts), and an entry of a block's offset tables a few instructions.
PACK_VECTOR = 8.0
TABLE_ENTRY = 8.0
# Less work than this many multiply-adds of vectors (some 10 microseconds) is done before other threads are awake.
SERIAL_CYCLES = 40_000
# Parts of a side that are tried: about as many as threads, up to some for each thread so that none waits for long.
MOST_PARTS_PER_THREAD = 8
# Bytes whose multiples a core does not tell apart at once, and steps of a panel after which much is stored.
PAGE, FEW_STEPS = 4096, 64


def even(total: int, most: int, unit: int) -> int:
    """The length of equal pieces, as few as possible, of at most `most` elements each and of whole units.

    Example:
        >>> even(1024, 700, 16), even(1024, 1020, 6), even(10, 1020, 6)
        (512, 516, 12)
    """
    most = max(unit, most // unit * unit)
    pieces = max(1, -(-total // most))
    return max(1, -(-total // (pieces * unit))) * unit


def consecutive(extents: list[tuple[int, int]]) -> int:
    """Elements that lie side by side, of dimensions with these strides and extents."""
    run = 1
    for stride, extent in sorted((abs(stride), extent) for stride, extent in extents):
        if stride == run:
            run *= extent
    return run


def panel_bytes(machine: Machine) -> tuple[int, int]:
    """Memory for the panels of the vector side (half of L2) and of the scalar side (a core's share of L3)."""
    scalar = max(machine.l2_bytes, (machine.l3_bytes or USUAL_L3) // CORES_PER_L3)
    return (machine.l2_bytes or USUAL_L2) // 2, scalar


def steps_apart(steps: int, step_bytes: int) -> int:
    """Steps by which panels begin apart: one more than they have, where these are few and panels would begin a multiple
    of 4 KB apart. Loads seem to wait for stores before them whose addresses have the same last twelve bits.

    Example:
        >>> [steps_apart(steps, 256) for steps in (16, 20, 32, 256)]
        [17, 20, 33, 256]
    """
    return steps + 1 if steps <= FEW_STEPS and steps * step_bytes % PAGE == 0 else steps


def is_past_caches(out: int, machine: Machine) -> bool:
    """An output of so many bytes is better written past the caches."""
    return out > max(machine.l3_bytes // 2, 1 << 23)


def share_channels(apart: int, machine: Machine) -> bool:
    """Whether rows that begin so many bytes apart begin in the same channels of the memory.

    Example:
        >>> from tilewright.machine.named import CPU_AVX2
        >>> [share_channels(apart, CPU_AVX2) for apart in (0, 512, 1024, 3 << 10)]
        [False, False, True, True]
    """
    return apart > 0 and apart % machine.pace.channels == 0


def level_of(size: int, machine: Machine) -> int:
    """The level of the memory that holds so many bytes beside what else passes through it."""
    for level, capacity in ((1, machine.l1_bytes), (2, machine.l2_bytes), (3, machine.l3_bytes)):
        if 4 * size <= 3 * capacity:
            return level
    return 4


def room_for_vectors(most: int, scalar: int, part: float = 1.0) -> int:
    """Bytes for the panels of the vector side, beside which what they are made of passes through: of both halves of L2,
    `part` of what a scalar side of so many bytes leaves if it stays there.

    Example:
        >>> room_for_vectors(512, 400), room_for_vectors(512, 400, 0.5), room_for_vectors(512, 600, 0.5)
        (312, 156, 256)
    """
    return int(part * (most - scalar // 2 if scalar <= most else most))


def longest_piece(machine: Machine, tile: int, rows: int, element_bytes: int) -> int:
    """Steps of the sum for which a scalar panel fills three quarters of L1, a vector panel at most a quarter of L2, or
    less (`Pace.longest_panel`).
    """
    in_l1 = (machine.l1_bytes or USUAL_L1) * 3 // 4 // (rows * element_bytes)
    in_l2 = int(machine.pace.longest_panel * (machine.l2_bytes or USUAL_L2)) // (tile * element_bytes)
    return max(LEAST_PIECE, min(in_l1, in_l2))


def shorter_piece(contracted: int, piece: int, unit: int, tile: int, scalar: int, most: int) -> int:
    """The length of the pieces of a sum of which some panels of the vector side have room; `piece` if cutting it does
    not help.

    Args:
        contracted: length of the sum.
        piece: longest one.
        unit: steps that are taken together.
        tile: bytes of a step of a panel of the vector side.
        scalar: the same of the scalar side, of which there is one block.
        most: bytes for panels of the vector side, if the scalar side needed none.

    Example:
        >>> shorter_piece(4624, 672, 16, 384, 272, 1 << 19), shorter_piece(4624, 672, 16, 64, 272, 1 << 19)
        (304, 672)
    """
    pieces = -(-contracted // piece)
    for cuts in range(pieces, MOST_CUTS * pieces + 1):
        found = piece if cuts == pieces else even(contracted, -(-contracted // cuts), unit)
        if found < LEAST_CUT:
            break
        if FEW_PANELS * tile * found <= room_for_vectors(most, scalar * found):
            return found
    return piece


def lines_stay(lines: int, apart: int, machine: Machine) -> bool:
    """Whether the first cache holds so many lines that lie `apart` bytes from each other, beside what passes through:
    lines that are far apart by a power of two share few of its sets.

    Example:
        >>> from tilewright.machine.named import CPU_AVX512
        >>> [lines_stay(lines, 1 << 14, CPU_AVX512) for lines in (6, 24)]
        [True, False]
    """
    period, ways = sets_of(machine.l1_bytes or USUAL_L1)
    return lines <= period // math.gcd(apart, period) * ways * 3 // 4 or abs(apart) < LINE


def sets_of(capacity: int) -> tuple[int, int]:
    """Bytes after which a cache's sets come again, a power of two, and how many lines share a set.

    Example:
        >>> sets_of(32 << 10), sets_of(48 << 10), sets_of(1 << 20)
        ((4096, 8), (4096, 12), (131072, 8))
    """
    period = 1 << max(capacity // LEAST_WAYS, 1).bit_length() - 1
    return period, max(1, capacity // period)


def choose_chunks(
    threads: int,
    batch: int,
    totals: tuple[int, int],
    tile: tuple[int, int],
    lanes: int,
    contracted: int,
    joined: bool,
    speed: float = 1.0,
    in_place: bool = False,
    packing: float = PACK_VECTOR,
) -> tuple[int, int]:
    """How much of either side one block of the launch takes.

    Blocks that a thread takes together pack their part of the scalar side once, so it matters how often threads take
    some (`number_of_shares`): many parts of the scalar side cost, and few parts leave threads idle at the end
    (`shared_time`).

    Args:
        threads: that may work at the same time.
        batch: tasks that there are anyway.
        totals: elements of the vector side and of the scalar side.
        tile: the same of the register tile.
        lanes: elements of a vector.
        contracted: length of the sum.
        joined: whether neighbouring blocks are computed as one.
        speed: how many times as fast as a multiply-add of vectors what they do is done.
        in_place: the scalar side is not packed.
        packing: cycles to pack a vector once more.
    """
    whole = (max(1, totals[0]), max(1, totals[1]))
    cycles = batch * whole[0] * whole[1] * max(1, contracted) / lanes / speed
    if threads == 1 or cycles <= SERIAL_CYCLES:
        return whole
    overhead = speed * (packing + TABLE_ENTRY * lanes / max(1, contracted))
    of_scalar = 0.0 if in_place else overhead
    best: tuple[float, tuple[int, int]] | None = None
    counts = numbers_of_parts(MOST_PARTS_PER_THREAD * threads)
    for vector_parts in counts:
        vector = _part(totals[0], vector_parts, tile[0])
        for scalar_parts in counts:
            scalar = _part(totals[1], scalar_parts, tile[1])
            rows = batch * -(-totals[1] // scalar)
            tasks = rows * -(-totals[0] // vector)
            alone = vector * scalar + overhead * vector + of_scalar * scalar
            if joined:
                shares = max(rows, number_of_shares(tasks, threads))
                packed = overhead * rows * whole[0] + of_scalar * shares * scalar
                time = joined_time(tasks, alone, batch * whole[0] * whole[1] + packed, threads)
            else:
                time = shared_time(tasks, alone, tasks * alone, threads)
            if best is None or time < best[0]:
                best = time, (vector, scalar)
    assert best is not None
    return best[1]


def _part(total: int, parts: int, unit: int) -> int:
    """The length of so many even parts of whole units; the last may be shorter, or even missing."""
    return max(1, -(-total // (parts * unit))) * unit


def shared_time(tasks: int, task: float, total: float, threads: int) -> float:
    """When threads that take tasks as they come have done all: the mean of two answers.

    If every thread has a core of its own, ceil(tasks / threads) * task. If others use some of the cores, threads end
    at different times, and the last one may begin when all others end: total / threads + (1 - 1 / threads) * task / 2.

    Args:
        tasks: how many.
        task: cycles of one.
        total: of all; the last may be smaller than the others.
        threads: that may work at the same time.

    Example:
        >>> shared_time(4, 10.0, 40.0, 2), shared_time(3, 10.0, 30.0, 2)
        (21.25, 18.75)
    """
    alone = -(-tasks // threads) * task
    return (alone + max(task, total / threads + (1 - 1 / threads) * task / 2)) / 2


def joined_time(tasks: int, alone: float, total: float, threads: int) -> float:
    """The same for tasks that are taken some at a time and cost less together: the last ones are taken alone.

    Args:
        tasks: how many, of much the same size, but for a smaller one at the end.
        alone: cycles of one that is taken alone.
        total: of all, taken as threads take them.
        threads: that may work at the same time.

    Example:
        >>> joined_time(8, 12.0, 80.0, 2), joined_time(9, 12.0, 80.0, 2)
        (41.5, 44.5)
    """
    even, uneven = total / threads, (1 - 1 / threads) * alone
    late = uneven if tasks % threads else 0.0
    return (even + late + max(alone, even + uneven / 2)) / 2


@functools.cache
def number_of_shares(blocks: int, threads: int) -> int:
    """How often threads take some blocks of a launch, which may be several at a time (`runtime/cpu_driver.py`).

    Example:
        >>> number_of_shares(32, 2), number_of_shares(3, 2)
        (13, 3)
    """
    shares = 0
    while blocks:
        blocks -= max(1, blocks // (SHARES_PER_THREAD * threads))
        shares += 1
    return shares


def numbers_of_parts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ...: powers of two and half as much again."""
    found = {1}
    power = 2
    while power <= most:
        found |= {power, power * 3 // 2}
        power *= 2
    return sorted(found)
