"""Which copies past the caches carry a line of each column along, and in which tiles (`permute/carried.py`)."""

from __future__ import annotations

import math

from tilewright.passes.permute import form
from tilewright.passes.permute.copied import Copied, parallel_loops, power_of_two_at_most, run_of, wanted_blocks
from tilewright.passes.permute.form import PermuteForm, PermuteLoop
from tilewright.passes.permute.tiles import LINE, MANY_WAYS, CarriedTile, PermuteDimension

READ_LINES = 16  # cache lines of the source in the columns of a piece, or in the near rows of a tile
ROWS_LINES = 1  # cache line of the target in the rows of a tile at the least: more of them wait longer
SHORTEST_RUN = 16  # cache lines of a run of the target: its ends are written in parts
SHORTEST_PART = 16  # tiles of a piece: another one reads a group more
NARROW_BYTES = 16  # of a row in a square of elements of one or two bytes: squares of lines would not fit the registers
MOST_RUN = 4  # dimensions
LONG_READ_LINES = 32  # cache lines of the source in the columns of a piece where lines are written in pairs
PAIRED_LINES = 2  # of the target in the rows of a tile then
LEAST_PAIRED = 4  # bytes of words whose squares leave registers for that


def carried_form(copied: Copied, column: PermuteDimension) -> PermuteForm | None:
    """The copy; None where vectors are no lines, runs of the target short, or the second cache has few ways (rows are
    asked for ahead)."""
    row, atom, machine = copied.row, copied.atom, copied.machine
    if machine.l2_ways < MANY_WAYS or machine.vector_bytes != LINE or not row.target == atom == column.source:
        return None
    words = LINE // copied.word.bytes
    lanes = power_of_two_at_most(words // atom)
    columns = power_of_two_at_most(min(lanes if copied.size > 2 else NARROW_BYTES // copied.size, column.size))
    run = run_of(copied, MOST_RUN)
    length = math.prod(one.size for one in run)
    if copied.size % 2 and atom > 1:
        return None  # Of a few bytes: they are better gathered.
    if lanes < 2 or columns < 2 or length * copied.size < SHORTEST_RUN * LINE:
        return None
    group = max(lanes, words // math.gcd(words, atom))
    lines, read_lines = ROWS_LINES, READ_LINES
    paired = is_paired(copied)
    if paired:
        lines, read_lines, group = PAIRED_LINES, LONG_READ_LINES, PAIRED_LINES * group
    strip = _strip(column.size, columns, read_lines * (words // atom))
    near, rows = _rows(run, strip * copied.size, lines * words // atom)
    # Of one size: a short one would not ask for all of the next.
    rows = -(-length // -(-length // rows) // group) * group
    asked = rows
    if near == 1 and row.source == strip * atom:  # Rows follow each other in the source.
        near = max(1, LINE // (strip * copied.size))
        asked = -(-rows // near)
    if paired:  # The processor itself foresees so few long rows.
        asked = 0
    others = [one for one in copied.others if one not in run]
    loops = [PermuteLoop(form.TILES, one.size, one.source, one.target, 1, one.size - 1) for one in others]
    strips = -(-column.size // strip)
    loops.append(PermuteLoop(form.COLUMNS, strips, column.source, column.target, strip, column.size - strip))
    loops.sort(key=lambda one: -abs(one.source) * one.part)
    wanted = wanted_blocks(copied.nbytes(column.size), machine)
    pieces = -(-wanted // (strips * math.prod(one.size for one in others)))
    part = max(SHORTEST_PART, -(-length // (rows * pieces))) * rows
    parts = -(-length // part)
    every = [PermuteLoop(form.RUN, parts, 0, 0, part, (parts - 1) * part), *loops]
    loops = [one for one in every if one.size > 1]
    return PermuteForm(
        word=copied.word,
        atom=atom,
        loops=tuple(loops),
        parallel=parallel_loops([one.size for one in loops], wanted),
        row=row,
        column=column,
        strip=row.size,
        chunk=column.size,
        lanes=lanes,
        vector=words,
        columns=columns,
        width=columns,
        nontemporal=True,
        carried=CarriedTile(run, group, rows, part, strip, near, asked),
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )


def is_paired(copied: Copied) -> bool:
    """Whether lines of a column are written in pairs: of matrices, where stores past the caches and what is read share
    buffers, so that half a pair would keep one waiting for the other.
    """
    return copied.machine.pace.shares_buffers and not copied.others and copied.word.bytes >= LEAST_PAIRED


def _strip(size: int, columns: int, most: int) -> int:
    """Columns of a piece: as many as are wanted, or all."""
    blocks = -(-size // columns)
    wanted = max(1, most // columns)
    if blocks < 2 * wanted:
        return size
    return min(size, -(-blocks // -(-blocks // wanted)) * columns)


def _rows(run: tuple[PermuteDimension, ...], nbytes: int, least: int) -> tuple[int, int]:
    """(rows of the run to one that lies near in the source, rows of a tile): where columns are short, and the next
    dimension of the run is nearer in the source than the row, enough of it for a long piece of each row."""
    if len(run) < 2 or abs(run[1].source) >= abs(run[0].source) or nbytes >= READ_LINES * LINE:
        return 1, least
    steps = min(run[1].size, -(-READ_LINES * LINE // nbytes))
    return run[0].size, max(least, run[0].size * steps)
