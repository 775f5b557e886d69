"""Copies between rows that lie between each other and rows that lie one after another: what is decided before.

    split     [n, rows] ⇒ [rows, n]        merged    [rows, n] ⇒ [n, rows]        of few rows

Pixels of three colours, numbers of two parts, points of few coordinates. Both arrays are read and written in whole
vectors (`interleaved.py`), which squares of so few columns would not be.
"""

from __future__ import annotations

from tilewright.passes.permute.copied import (
    LONG_LINES,
    Copied,
    outer_loop,
    parallel_loops,
    past_caches,
    power_of_two_at_most,
    wanted_blocks,
)
from tilewright.passes.permute.form import CHUNKS, PermuteForm, PermuteLoop
from tilewright.passes.permute.tiles import LINE, PermuteDimension

MERGED_BYTES = 1 << 13  # of the target in a piece of merged rows
STREAMED_BYTES = 1 << 18  # the same where its lines are written past the caches straight from registers
MOST_ROWS = 6  # which are split or merged in registers: each result is picked from all of them
MOST_NARROW_ROWS = 8  # the same of words of one or two bytes, whose squares take longer
SQUARE_BYTES = 4  # of words as many rows of which as fill a cache line are merged as squares, past the caches
LEAST_VECTOR = 16  # bytes


def split_lanes(copied: Copied, column: PermuteDimension) -> int:
    """Words of a vector where few columns lie between each other in the source, else 1.

    Example:
        >>> from tilewright.ir.scalars import U8
        >>> from tilewright.machine.named import named_machine
        >>> row, colours = PermuteDimension(1000, 3, 1), PermuteDimension(3, 1, 1000)
        >>> split_lanes(Copied(U8, 1, row, (), (0, 0), named_machine("cpu-avx512")), colours)
        64
    """
    row = copied.row
    is_one = copied.atom == row.target == column.source == 1
    return _lanes(copied, column.size, row.size) if is_one and row.source == column.size else 1


def merged_lanes(copied: Copied, column: PermuteDimension) -> int:
    """Words of a vector where few rows are to lie between each other in the target, else 1."""
    row = copied.row
    is_one = copied.atom == row.target == column.source == 1
    if not is_one or column.target != row.size:
        return 1
    is_square = row.size == copied.line == copied.machine.vector_bytes // copied.size <= column.size
    if is_square and copied.size >= SQUARE_BYTES and past_caches(copied.nbytes(column.size), copied.machine):
        return row.size
    return _lanes(copied, row.size, column.size)


def _lanes(copied: Copied, rows: int, size: int) -> int:
    """Words of a vector of so many rows of that size, 1 where squares are better."""
    lanes = power_of_two_at_most(min(copied.machine.vector_bytes // copied.size, size))
    is_few = rows <= (MOST_NARROW_ROWS if copied.size < 4 else MOST_ROWS)
    return lanes if is_few and lanes * copied.size >= LEAST_VECTOR else 1


def merged_form(copied: Copied, column: PermuteDimension, lanes: int) -> PermuteForm:
    """Merge few rows, a piece of each at a time."""
    row = copied.row
    in_lines = lanes * copied.size == LINE and past_caches(copied.nbytes(column.size), copied.machine)
    piece = max(lanes, (STREAMED_BYTES if in_lines else MERGED_BYTES) // (row.size * copied.size) // lanes * lanes)
    chunks = max(1, column.size // piece)
    every = (*map(outer_loop, copied.others), PermuteLoop(CHUNKS, chunks, piece * column.source, piece * column.target))
    loops = tuple(one for one in every if one.size > 1)
    nbytes = copied.nbytes(column.size)
    written = row.size * min(piece, column.size) * copied.size
    return PermuteForm(
        word=copied.word,
        atom=1,
        loops=loops,
        parallel=parallel_loops([one.size for one in loops], wanted_blocks(nbytes, copied.machine)),
        row=row,
        column=column,
        strip=row.size,
        chunk=piece if chunks > 1 else column.size,
        lanes=lanes,
        vector=lanes,
        columns=lanes,
        nontemporal=written >= LONG_LINES * LINE and past_caches(nbytes, copied.machine),
        merges=True,
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )
