"""What is copied between two layouts of an array, in words, and how its loops are shared out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType
from tilewright.machine.model import Machine
from tilewright.passes.permute.form import OUTER, PermuteLoop
from tilewright.passes.permute.tiles import LINE, PAGE, PermuteDimension

LONG_LINES = 16  # cache lines of a row that is written past the caches wherever it begins
LONG_LINES_PAST_THIRD = 6  # of a row that is copied as it is, where that is worth it from the second cache on
GRAIN_BYTES = 1 << 15  # what a block should copy at the least, for the cost of finding its place
SERIAL_BYTES = 1 << 19  # copied within some 10 microseconds: less is not worth waking another thread
BLOCKS_PER_CORE = 16


@dataclass(frozen=True)
class Copied:
    """What is copied, in words: atoms of `row` lie one after another in the target; `others` are the other dimensions
    but the column, those with the largest steps in the target first; `starts` is where both arrays begin."""

    word: ScalarType
    atom: int
    row: PermuteDimension
    others: tuple[PermuteDimension, ...]
    starts: tuple[int, int]
    machine: Machine

    @property
    def size(self) -> int:
        """Bytes of an atom."""
        return self.atom * self.word.bytes

    @property
    def line(self) -> int:
        """Atoms of a cache line."""
        return max(1, LINE // self.size)

    def nbytes(self, columns: int = 1) -> int:
        """Bytes of the whole, with so many columns."""
        return math.prod(one.size for one in (*self.others, self.row)) * columns * self.size


def run_of(copied: Copied, most: int, long_enough: float = math.inf) -> tuple[PermuteDimension, ...]:
    """The row and dimensions that lie together with it in the target, `most` at the most: until the run of them has so
    many atoms."""
    run = [copied.row]
    length = copied.row.size
    while length < long_enough and len(run) < most:
        after = next((one for one in copied.others if one.target == length * copied.atom), None)
        if after is None:
            break
        run.append(after)
        length *= after.size
    return tuple(run)


def rows_in_a_set(copied: Copied, rows: int) -> int:
    """Lines of so many rows of the source that share a set of the second cache, whose ways are known."""
    machine = copied.machine
    way = max(PAGE, machine.l2_bytes // machine.l2_ways)
    return rows * math.gcd(copied.row.source * copied.word.bytes, way) // way


def power_of_two_at_most(limit: int) -> int:
    """The largest power of two that is not above a number; 1 for none."""
    return 1 << (max(1, limit).bit_length() - 1)


def past_caches(nbytes: int, machine: Machine) -> bool:
    """Whether an output does not stay in the caches anyway, or only in one that takes longer than memory."""
    return nbytes > machine.keeps_copies_of


def is_long_row(nbytes: int, machine: Machine) -> bool:
    """Whether a row of so many bytes that is copied as it is goes past the caches, wherever it begins in a line."""
    return nbytes >= LINE * (LONG_LINES_PAST_THIRD if machine.pace.skips_third else LONG_LINES)


def outer_loop(one: PermuteDimension) -> PermuteLoop:
    """A loop over a dimension."""
    return PermuteLoop(OUTER, one.size, one.source, one.target)


def wanted_blocks(nbytes: int, machine: Machine) -> int:
    """How many blocks should share out so many bytes."""
    if nbytes < SERIAL_BYTES:
        return 1
    return max(1, min(nbytes // GRAIN_BYTES, BLOCKS_PER_CORE * machine.cores))


def parallel_loops(sizes: Sequence[int], wanted: int) -> int:
    """How many of the outermost loops give as many blocks as are wanted."""
    blocks, count = 1, 0
    while blocks < wanted and count < len(sizes):
        blocks *= sizes[count]
        count += 1
    return count
