"""Which copies past the caches write one tile while they gather the next, and in which tiles (`overlapped.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.passes.permute import form
from tilewright.passes.permute.copied import (
    Copied,
    parallel_loops,
    power_of_two_at_most,
    rows_in_a_set,
    run_of,
    wanted_blocks,
)
from tilewright.passes.permute.form import PermuteForm, PermuteLoop
from tilewright.passes.permute.tiles import LINE, MANY_WAYS, OverlappedTile, PermuteDimension

ROWS = 128  # of a tile: pieces of the target of half a kilobyte at the least; more rows do not stay in the first cache
LONG_RUN = 32  # cache lines of a run of the target, whose last rows are no large part
LONG_COLUMN = 16  # cache lines of the source; the first and the last are then worth being read for a second time
AHEAD_BYTES = 1 << 15  # what is asked for is on its way while so much is copied
MOST_RUN = 4  # dimensions
LEAST_ATOM = 4  # bytes: of narrower ones a line is read in several pieces, and its squares take long
LONG_ATOM = 16  # bytes, of which strips hold few columns
LEAST_ROW = 2  # elements, whose places are found together: of fewer it is another dimension
LEAST_LANES = 4  # rows of a square
LEAST_COLUMNS = 16  # cache lines of the source in a piece of a row that is shared out


def overlapped_form(copied: Copied, column: PermuteDimension, is_long: bool) -> PermuteForm | None:
    """The copy; None where vectors hold few atoms, words are narrow, runs are short, rows of a matrix begin anywhere
    in a line of the source (strips read each line once), or the second cache has many ways, whose rows may be asked for
    further ahead, or so few for the steps of the rows that those of one square drive each other out of it.

    Args:
        copied: what is copied past the caches.
        column: the source's unit stride.
        is_long: rows may be written in strips.
    """
    machine, atom, line = copied.machine, copied.atom, copied.line
    lanes = machine.vector_bytes // copied.size  # rows of a square, which may lie at the ends of two dimensions
    if atom.bit_count() > 1 or lanes < LEAST_LANES or not copied.row.target == atom == column.source:
        return None
    if copied.size < LEAST_ATOM or copied.row.size < LEAST_ROW or column.size < line:
        return None
    if not 0 < machine.l2_ways < MANY_WAYS or rows_in_a_set(copied, line) > machine.l2_ways:
        return None
    begins_anywhere = copied.row.source * copied.word.bytes % LINE > 0
    if is_long and begins_anywhere and copied.size < LONG_ATOM and column.size >= LONG_COLUMN * line:
        return None
    run = run_of(copied, MOST_RUN, LONG_RUN * copied.line)
    length = math.prod(one.size for one in run)
    if length < ROWS:
        return None
    is_aligned = all(
        step * copied.word.bytes % LINE == 0
        for step in (length * atom, column.target, *(one.target for one in copied.others if one not in run))
    )
    is_even = all(one.source * copied.word.bytes % LINE == 0 for one in (*copied.others, copied.row))
    others = [one for one in copied.others if one not in run]
    loops = [PermuteLoop(form.TILES, one.size, one.source, one.target, 1, one.size - 1) for one in others]
    parts = -(-length // ROWS)
    wanted = wanted_blocks(copied.nbytes(column.size), machine)
    chunk = _chunk(column.size, line, -(-wanted // (parts * math.prod(one.size for one in others))))
    chunks = -(-column.size // chunk)
    loops.append(PermuteLoop(form.COLUMNS, chunks, column.source, column.target, chunk, column.size - chunk))
    keys = {one: abs(one.source) * one.part for one in loops}
    along = PermuteLoop(form.RUN, parts, 0, atom, ROWS, min((parts - 1) * ROWS, length - line))
    keys[along] = _step(run)
    order = [one for one in sorted(keys, key=lambda one: -keys[one]) if one.size > 1]
    return PermuteForm(
        word=copied.word,
        atom=atom,
        loops=tuple(order),
        parallel=parallel_loops([one.size for one in order], wanted),
        row=copied.row,
        column=column,
        strip=copied.row.size,
        chunk=chunk,
        lanes=lanes,
        vector=lanes * atom,
        columns=lanes,
        width=line,
        nontemporal=True,
        overlapped=OverlappedTile(
            run=run,
            rows=ROWS,
            found=power_of_two_at_most(min(copied.row.size, line)),
            pitch=(ROWS // line + 1 | 1) * line * atom,
            is_aligned=is_aligned,
            ahead=-(-AHEAD_BYTES // (ROWS * line * copied.size)),
            asks_twice=not is_even or column.size < LONG_COLUMN * line,
            by_lines=is_even and column.size >= LONG_COLUMN * line,
        ),
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )


def _chunk(size: int, line: int, wanted: int) -> int:
    """Columns of a piece: all, or so many that there are as many pieces as are wanted."""
    lines = size // line
    pieces = min(wanted, lines // LEAST_COLUMNS)
    return size if pieces < 2 else -(-size // (pieces * line)) * line


def _step(run: Sequence[PermuteDimension]) -> int:
    """How far apart tiles lie in the source that follow each other in a run."""
    inner = 1
    for one in run:
        if inner * one.size > ROWS or one is run[-1]:
            break
        inner *= one.size
    return abs(one.source) * -(-ROWS // inner)
