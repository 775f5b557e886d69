"""Which copies past the caches join rows to whole lines of the target (`joined.py`)."""

from __future__ import annotations

import math

from tilewright.passes.permute import form
from tilewright.passes.permute.copied import (
    Copied,
    outer_loop,
    parallel_loops,
    past_caches,
    power_of_two_at_most,
    run_of,
    wanted_blocks,
)
from tilewright.passes.permute.form import PermuteForm, PermuteLoop
from tilewright.passes.permute.tiles import LINE, MANY_WAYS, PAGE, JoinedRows

ROW_BYTES = range(32, 1 << 17)
CHUNK_BYTES = 1 << 16  # of rows, while which the next ones are asked for
PIECE_BYTES = 1 << 10  # of rows that are joined before they are written: they lie in one page
LEAST_RUN = 1 << 13  # bytes of rows that follow each other
MOST_FOUND = 16  # rows whose places are found together
MOST_RUN = 4  # dimensions of rows


def joined_form(copied: Copied) -> PermuteForm | None:
    """The copy; None where what is written stays in the caches, rows do not follow each other, are very short or
    very long, vectors are parts of lines (on a Zen 3 rows of 256 bytes to 8 KB are copied 1.3 to 2.2 times as fast one
    by one), or the second cache has many ways (such processors have not been measured)."""
    row, word, machine = copied.row, copied.word, copied.machine
    nbytes = row.size * word.bytes
    if not row.source == row.target == copied.atom == 1 or not past_caches(copied.nbytes(), machine):
        return None
    if nbytes not in ROW_BYTES or machine.vector_bytes < LINE or not 0 < machine.l2_ways < MANY_WAYS:
        return None
    run = run_of(copied, 1 + MOST_RUN)[1:]
    length = math.prod(one.size for one in run)
    if not run or length * nbytes < LEAST_RUN:
        return None
    others = [one for one in copied.others if one not in run]
    wanted = wanted_blocks(copied.nbytes(), machine)
    parts = min(-(-wanted // math.prod(one.size for one in others)), length * nbytes // LEAST_RUN)
    part = -(-length // max(1, parts))
    parts = -(-length // part)
    vector = machine.vector_bytes // word.bytes
    rows = max(1, CHUNK_BYTES // nbytes)
    found = power_of_two_at_most(min(MOST_FOUND, run[0].size, rows))
    rows = -(-rows // found) * found
    together = max(1, PIECE_BYTES // nbytes)
    lanes = power_of_two_at_most(min(vector, row.size))
    pieces = -(-nbytes // PIECE_BYTES)  # of one size, but for the last one
    piece = -(-row.size // (pieces * lanes)) * lanes if pieces > 1 else 0
    before = (-(-row.size // piece) - 1) * piece if piece else 0
    every = [*map(outer_loop, others), PermuteLoop(form.RUN, parts, 0, row.size, part, length - part)]
    loops = [one for one in every if one.size > 1]
    return PermuteForm(
        word=word,
        atom=1,
        loops=tuple(loops),
        parallel=parallel_loops([one.size for one in loops], wanted),
        row=row,
        strip=row.size,
        lanes=lanes,
        vector=vector,
        nontemporal=True,
        joined=JoinedRows(
            run=run,
            part=part,
            rows=rows,
            found=found,
            together=together,
            piece=piece,
            before=before,
            vectors=-(-(row.size - before) // lanes),
            stage_words=(piece or together * row.size) + (4 * LINE + PAGE) // word.bytes,
        ),
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )
