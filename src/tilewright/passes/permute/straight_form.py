"""Which copies past the caches are written straight from registers, and in which tiles (`permute/straight.py`)."""

from __future__ import annotations

import math
from itertools import pairwise

from tilewright.passes.permute import form
from tilewright.passes.permute.copied import Copied, parallel_loops, rows_in_a_set, run_of, wanted_blocks
from tilewright.passes.permute.form import PermuteForm, PermuteLoop
from tilewright.passes.permute.tiles import LINE, MANY_WAYS, PermuteDimension, StraightTile

ROWS_LINES = 2  # cache lines of the target in the rows of a tile, or three where no row is then moved twice
READ_LINES = 16  # cache lines of the source in the columns of a tile
LONG_TILE = 8  # lines of both where each row is a long run: more of a page of the target is written at once
MOST_ROWS = 256  # of such a tile: the second cache keeps it and most of the next one
MANY_LANES = 16  # elements of a line; a tile of so many lines of larger ones has few rows, of half a kilobyte each
LONG_RUN = 64  # cache lines of a run of the target, of which the first and the last are written in two parts
SHORTEST_RUN = 16
LONG_COLUMN = 16  # cache lines of the source; the first and the last are then worth being read for a second time
MOST_RUN = 3  # dimensions


def straight_form(copied: Copied, column: PermuteDimension, lanes: int) -> PermuteForm | None:
    """The copy, in tiles in the order of the source, whose runs are read from one end to the other; None where squares
    are no whole lines, columns begin at different places in a line of the target, or the second cache has few ways:
    rows a power of two apart are asked for ahead in few of its sets.

    Args:
        copied: what is copied past the caches.
        column: the source's unit stride.
        lanes: the rows of a square.
    """
    tile = _tile(copied, column, lanes)
    if tile is None:
        return None
    loops = []
    for one in (*copied.others, copied.row, column):
        extent = tile.extents.get(one, 1)
        if extent < one.size:
            over = form.RUN if one in tile.run else form.COLUMNS if one == column else form.TILES
            count = -(-one.size // extent)
            loops.append(PermuteLoop(over, count, one.source, one.target, extent, one.size - extent))
    loops.sort(key=lambda one: -abs(one.source) * one.part)
    wanted = wanted_blocks(copied.nbytes(column.size), copied.machine)
    return PermuteForm(
        word=copied.word,
        atom=copied.atom,
        loops=tuple(loops),
        parallel=parallel_loops([one.size for one in loops], wanted),
        row=copied.row,
        column=column,
        strip=copied.row.size,
        chunk=column.size,
        lanes=lanes,
        vector=lanes * copied.atom,
        columns=lanes,
        width=lanes,
        nontemporal=True,
        straight=tile,
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )


def _tile(copied: Copied, column: PermuteDimension, lanes: int) -> StraightTile | None:
    """What is copied at once, if anything is."""
    row, nbytes = copied.row, copied.word.bytes
    if copied.machine.l2_ways < MANY_WAYS or copied.atom.bit_count() > 1 or not lanes == copied.line > 1:
        return None
    if column.size < lanes or row.size % lanes:
        return None
    if any(one.target * nbytes % LINE for one in (*copied.others, column)):
        return None
    if rows_in_a_set(copied, lanes) > copied.machine.l2_ways:
        return None  # What is asked for of one row would drive out what was of another.
    run = run_of(copied, MOST_RUN, LONG_RUN * copied.line)
    if math.prod(one.size for one in run) < SHORTEST_RUN * lanes:
        return None
    # More rows than a processor foresees have to be asked for, in buffers that stores may need.
    is_long = _is_long(run, lanes) and not copied.machine.pace.shares_buffers
    extents, rows = _rows(run, lanes, is_long)
    extents |= _columns(copied, column, run, lanes, is_long)
    inside = sorted((one for one in extents if one not in run and one != column), key=lambda one: abs(one.source))
    tiled = tuple(PermuteDimension(extents[one], one.source, one.target) for one in (column, *inside))
    is_even = all(one.source * nbytes % LINE == 0 for one in (*copied.others, row))
    return StraightTile(
        run, rows, tiled, extents,
        by_lines=is_even and column.size >= LONG_COLUMN * lanes,
        in_pairs=copied.machine.pace.shares_buffers,
    )  # fmt: skip


def _is_long(run: tuple[PermuteDimension, ...], lanes: int) -> bool:
    """Whether rows alone are long runs, of elements of which a line holds many."""
    return run[0].size >= LONG_RUN * lanes and lanes >= MANY_LANES


def _rows(run: tuple[PermuteDimension, ...], lanes: int, is_long: bool) -> tuple[dict[PermuteDimension, int], int]:
    """Steps of the run's dimensions in a tile, and how many rows they are."""
    lines = run[0].size // lanes
    if is_long:
        wanted = min(LONG_TILE, MOST_ROWS // lanes)
        rows = -(-lines // -(-lines // wanted)) * lanes
        return {run[0]: rows}, rows
    lines = min((lines, ROWS_LINES, ROWS_LINES + 1), key=lambda one: (one > ROWS_LINES + 1, -lines % one))
    extents, rows = {run[0]: lines * lanes}, lines * lanes
    for inner, one in pairwise(run):
        if extents[inner] < inner.size or 2 * rows > ROWS_LINES * lanes:
            break
        extents[one] = min(one.size, ROWS_LINES * lanes // rows)
        rows *= extents[one]
    return extents, rows


def _columns(
    copied: Copied, column: PermuteDimension, run: tuple[PermuteDimension, ...], lanes: int, is_long: bool
) -> dict[PermuteDimension, int]:
    """Steps of the other dimensions in a tile: as many lines as are wanted, along the source's smallest steps."""
    lines = -(-column.size // lanes)
    wanted = LONG_TILE if is_long else READ_LINES
    if lines >= 2 * wanted or lines * lanes > column.size:
        pieces = -(-lines // wanted)
        extent = -(-lines // pieces) * lanes
        return {column: min(extent, column.size)}
    found = {column: column.size}
    for one in sorted((one for one in copied.others if one not in run), key=lambda one: abs(one.source)):
        extent = min(one.size, wanted // lines)
        if extent < 2:
            break
        extent = -(-one.size // -(-one.size // extent))
        found[one] = extent
        lines *= extent
        if extent < one.size:
            break
    return found
