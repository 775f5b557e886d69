"""Tiles of a copy: how much of each dimension is gathered before it is written.

    for each tile:    source --(squares transposed in registers)--> stage, in the target's order --> target

A tile spans the dimensions along which the target lies together (row, next, ...) until a run of it is worth writing
past the caches, and those along which the source lies together (column, next, ...) until a run of it is worth
reading: a kilobyte, which is asked for line by line while the tile before is written. What a tile spans only in part
is covered by tiles of one extent; the last one reaches back where it has to.

The edge is the dimension with which a run of the target ends in the middle. There a tile leaves its first cache line to
the tile before it, and reads a few steps more to complete its last one, so that no line is written in two parts.

Within the caches tiles serve arrays whose rows and columns lie in few sets of the first cache. Its stage stays there,
runs are half as long at the most, and nothing is completed: a line may be written in two parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine

LINE = 64  # bytes of a cache line
STAGE_SHARE = 4  # the stage is at most this part of the second cache: what is read ahead has to stay there too
MANY_WAYS = 16  # of the second cache, whose sets keep what is read ahead beside a stage of twice the size
LEAST_STAGE = 1 << 15  # bytes
LINES_WRITTEN = 4  # cache lines of a run of the target that begins with one
LINES_WRITTEN_ODD = 16  # where the first and the last cache line of a run belong to other runs as well
LINES_READ = 16  # cache lines of a run of the source
LINES_CACHED = 8  # cache lines of either run within the caches
LONG_RUN = 128  # cache lines of a run of the target that does not mind sharing two of them
PAGE = 4096  # bytes, and those of a way of most first caches
SPARE_SHARE = 8  # more of a tile is not read again to complete cache lines: rather a few rows of the next step


@dataclass(frozen=True)
class PermuteDimension:
    """A dimension of a copy; strides are in words."""

    size: int
    source: int
    target: int


@dataclass(frozen=True)
class TileDimension:
    """A dimension of a tile: its steps in both arrays and in the stage, in words, and how many of them a tile has."""

    size: int
    source: int
    target: int
    stage: int
    extent: int
    is_run: bool
    """Whether it belongs to a run of the target, which is written in one piece."""
    is_read: bool
    """Whether it belongs to a run of the source."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """What is gathered at once.

    Attributes:
        row, column: the dimensions along which the target and the source move by one atom.
        others: the rest, those with the largest steps in the source first.
        run: words that lie together in the target.
        edge: the dimension with which a run of the target ends before the dimension does; None where it does not.
        spare: steps of the edge that complete a cache line.
        spare_rows: rows of the next step of the edge that do; 0 where its `spare` steps are read as a whole.
        read_run: words that lie together in the source.
        spare_run: those of them that the spare rows need.
        read_vector: words of them that are read at once.
        read_pitch: words from a row's run to that of the next row where they are lined up.
        stage_words: the size of the stage.
        shares_set: all rows of the source begin in one set of the first cache, and are lined up before.
        spill: words after an atom that may be written with it, up to a power of two; 0 where that would do harm.
    """

    row: TileDimension
    column: TileDimension
    others: tuple[TileDimension, ...]
    run: int
    edge: TileDimension | None
    spare: int
    spare_rows: int
    read_run: int
    spare_run: int
    read_vector: int
    read_pitch: int
    stage_words: int
    shares_set: bool
    spill: int

    @property
    def apart(self) -> list[TileDimension]:
        """The dimensions outside the runs of the target, those with the largest steps there first."""
        found = [one for one in (*self.others, self.row, self.column) if not one.is_run]
        return sorted(found, key=lambda one: -one.target)


@dataclass(frozen=True)
class StraightTile:
    """What is copied straight from registers before the next tile's turn.

    Attributes:
        run: the dimensions that lie together in the target, the row first.
        rows: elements of a run in a tile.
        columns: what a tile has of the other dimensions, the source's unit stride first.
        extents: steps of each dimension in a tile; what is not listed has one.
        by_lines: columns are read in whole cache lines of the source, where all its rows begin in the same way.
        in_pairs: lines of a column that are neighbours are written one right after the other.
    """

    run: tuple[PermuteDimension, ...]
    rows: int
    columns: tuple[PermuteDimension, ...]
    extents: dict[PermuteDimension, int]
    by_lines: bool
    in_pairs: bool

    def lines(self, lanes: int) -> int:
        """Lines of the tile's columns, of so many words."""
        return -(-self.columns[0].size // lanes) * math.prod(one.size for one in self.columns[1:])


@dataclass(frozen=True)
class CarriedTile:
    """What is copied straight from registers, a line of each column carried along, before the next tile's turn.

    Attributes:
        run: the dimensions that lie together in the target, the row first.
        group: rows whose words are whole lines of each column.
        rows: elements of the run in a tile, a multiple of a group.
        part: those in a piece, a multiple of a tile.
        columns: columns in a piece.
        near: rows of the run from one to the next that lies near it in the source, or in another line of it.
        asked: rows that are asked for: all, or one for each line of the source.
    """

    run: tuple[PermuteDimension, ...]
    group: int
    rows: int
    part: int
    columns: int
    near: int
    asked: int


@dataclass(frozen=True)
class OverlappedTile:
    """What is gathered while the tile before it is written.

    Attributes:
        run: the dimensions that lie together in the target, the row first.
        rows: elements of a run in a tile, of each of a cache line of columns.
        found: rows whose places in the source are found together; no more than the first dimension of the run has.
        pitch: words from column to column of what is gathered.
        ahead: tiles from what is gathered to what is asked for.
        asks_twice: for the first and for the last word of each row of a tile, which may lie in two lines.
        is_aligned: all columns begin at the same place in a cache line of the target.
        by_lines: columns are read in whole cache lines of the source, where all its rows begin in the same way.
    """

    run: tuple[PermuteDimension, ...]
    rows: int
    found: int
    pitch: int
    ahead: int
    asks_twice: bool
    is_aligned: bool
    by_lines: bool


@dataclass(frozen=True)
class JoinedRows:
    """Rows that are joined to whole lines of the target.

    Attributes:
        run: the dimensions of rows that follow each other in the target, the inner one first.
        part: rows of a run that a block copies.
        rows: those of a chunk, during which the next one is asked for.
        together: those that are joined before they are written,
        piece: or else words of a long row; 0 of short ones.
        before: words of a row before its last piece.
        vectors: those of the last piece.
        found: rows whose places in the source are found together; no more than the first dimension of the run has.
        stage_words: the size of the stage.
    """

    run: tuple[PermuteDimension, ...]
    part: int
    rows: int
    found: int
    together: int
    piece: int
    before: int
    vectors: int
    stage_words: int


def tile_extents(
    dimensions: Sequence[PermuteDimension],
    row: PermuteDimension,
    column: PermuteDimension,
    atom: int,
    word_bytes: int,
    least: tuple[int, int],
    machine: Machine,
    past: bool = True,
) -> dict[PermuteDimension, int]:
    """Steps of each dimension in a tile; what is not listed has one.

    Args:
        dimensions: all but `row` and `column`.
        row, column: the dimensions along which the target and the source move by one atom.
        atom: words that lie together in both arrays.
        word_bytes: bytes of a word.
        least: steps of the row and the column that a tile has at the least.
        machine: a CPU.
        past: the target is written past the caches.

    Example:
        >>> from tilewright.machine.named import named_machine
        >>> row, column = PermuteDimension(4096, 4096, 1), PermuteDimension(4096, 1, 4096)
        >>> list(tile_extents((), row, column, 1, 4, (16, 16), named_machine("cpu-avx512")).values())
        [256, 256]
    """
    share = STAGE_SHARE // 2 if machine.l2_ways >= MANY_WAYS else STAGE_SHARE
    stage = max(LEAST_STAGE, machine.l2_bytes // share) if past else machine.l1_bytes * 2 // 3
    budget = stage // word_bytes
    line = max(1, LINE // word_bytes)
    by_target = sorted((*dimensions, column), key=_target_step)
    by_source = sorted((one for one in (*dimensions, row) if one != column and one.source > 0), key=_source_step)
    is_even = all(one.target % line == 0 for one in by_target)
    extents = {row: min(least[0], row.size), column: min(least[1], column.size)}
    written = LINES_WRITTEN if is_even else LINES_WRITTEN_ODD
    lines_written, lines_read = [written, LINES_WRITTEN_ODD], [LINES_READ // 4, LINES_READ]
    if not past:
        lines_written, lines_read = [LINES_CACHED], [LINES_CACHED]
    for lines, lines_of_source in zip(lines_written, lines_read, strict=True):
        _extend(extents, (row, *by_target), _target_step, atom, lines * line, budget)
        _extend(extents, (column, *by_source), _source_step, atom, lines_of_source * line, budget)
    if not past:
        return extents
    run = _written(extents, row, atom)[-1]
    if extents[run] == run.size and run.size * run.target < LONG_RUN * line:
        extents |= {one: 1 for one in by_target if one.target == run.size * run.target}
    edge, spare = _edge(extents, row, atom, line)
    if edge is not None and extents[edge] + spare >= edge.size:
        extents[edge] = edge.size
    return extents


def _edge(
    extents: dict[PermuteDimension, int], row: PermuteDimension, atom: int, line: int
) -> tuple[PermuteDimension | None, int]:
    """The dimension in whose middle a run of the target ends, and how many of its steps complete a cache line."""
    last = _written(extents, row, atom)[-1]
    return (None, 0) if extents[last] == last.size else (last, -(-line // last.target))


def _written(extents: dict[PermuteDimension, int], row: PermuteDimension, atom: int) -> list[PermuteDimension]:
    return _together(extents, (row, *sorted(extents, key=_target_step)), _target_step, atom)


def _target_step(one: PermuteDimension) -> int:
    return one.target


def _source_step(one: PermuteDimension) -> int:
    return one.source


def _extend(
    extents: dict[PermuteDimension, int],
    order: Sequence[PermuteDimension],
    step: Callable[[PermuteDimension], int],
    atom: int,
    wanted: int,
    budget: int,
) -> None:
    """More of the dimensions that lie together in `order`, until a run has the `wanted` words or the stage is full."""
    run = atom
    for one in order:
        if step(one) != run or run >= wanted:
            return
        has = extents.get(one, 1)
        others = atom * math.prod(extents.values()) // has
        extent = max(has, min(one.size, -(-wanted // run), budget // others))
        if one.size < 2 * extent and one.size * others <= budget:
            extent = one.size
        if extent < one.size:
            pieces = -(-one.size // extent)
            granule = has if run == atom else 1
            extent = max(has, min(one.size, -(-one.size // (pieces * granule)) * granule))
        extents[one] = extent
        if extent < one.size:
            return
        run *= one.size


def tile_of(
    extents: dict[PermuteDimension, int],
    row: PermuteDimension,
    column: PermuteDimension,
    atom: int,
    word_bytes: int,
    machine: Machine,
    past: bool = True,
    lines_up: bool = True,
) -> Tile:
    """The tile with those extents, and where its elements lie in the stage; no lines are completed within the caches.

    Runs of the target begin an odd number of cache lines after each other, so that they do not share a set of the
    first cache. The size of the stage is a power of two, so that more copies are one kernel. `lines_up` says whether
    rows that share a set are lined up.
    """
    line = max(1, LINE // word_bytes)
    written = _written(extents, row, atom)
    forwards = sorted((one for one in extents if one != row and one.source > 0), key=_source_step)
    read = _together(extents, (column, *forwards), _source_step, atom)
    edge, spare = _edge(extents, row, atom, line) if past else (None, 0)
    spare_rows = 0
    if edge not in (None, row, column) and column not in written and SPARE_SHARE * spare > extents[written[-1]]:
        spare_rows = -(-line // atom) if row.size >= -(-line // atom) else 0
    spill = _spill(written, read, row, column, atom)
    run = written[-1].target * extents[written[-1]]
    pitch = run + (spare_rows * atom if spare_rows else spare * written[-1].target)
    pitch = (-(-(pitch + spill) // line) | 1) * line
    stage, stage_words = _stage_steps(extents, written, pitch)
    made = {
        one: TileDimension(one.size, one.source, one.target, stage[one], extents[one], one in written, one in read)
        for one in extents
    }
    others = sorted((one for one in extents if one not in (row, column)), key=lambda d: (d in read, -abs(d.source)))
    read_run = read[-1].source * extents[read[-1]]
    needed = next(one for one in reversed(read) if one not in written or one == column)
    spare_run = needed.source * extents[needed]
    most = read_run + (spare * edge.source if edge is not None and edge in read and not spare_rows else 0)
    return Tile(
        row=made[row],
        column=made[column],
        others=tuple(made[one] for one in others),
        run=run,
        edge=None if edge is None else made[edge],
        spare=spare,
        spare_rows=spare_rows,
        read_run=read_run,
        spare_run=spare_run,
        read_vector=min(machine.vector_bytes // word_bytes, 1 << (min(read_run, spare_run).bit_length() - 1)),
        # A power of two and a cache line: rows share no set, and more copies are one kernel.
        read_pitch=(1 << (most + line - 1).bit_length()) + line,
        stage_words=1 << (stage_words + line - 1).bit_length(),
        shares_set=lines_up and row.source * word_bytes % PAGE == 0,
        spill=spill,
    )


def _spill(
    written: Sequence[PermuteDimension],
    read: Sequence[PermuteDimension],
    row: PermuteDimension,
    column: PermuteDimension,
    atom: int,
) -> int:
    """Words after an atom that may be written with it: they must be overwritten later, by the next atom of the row or
    the next row of the run."""
    between = [one for one in written if one != row]
    if column in between or len(between) > 1 or any(one in read for one in between):
        return 0
    return (1 << (atom - 1).bit_length()) - atom


def _stage_steps(
    extents: dict[PermuteDimension, int], written: Sequence[PermuteDimension], pitch: int
) -> tuple[dict[PermuteDimension, int], int]:
    """The step of each dimension in the stage, whose runs are `pitch` words apart, and the words of all runs."""
    steps: dict[PermuteDimension, int] = {}
    place = pitch
    for one in sorted(extents, key=_target_step):
        if one in written:
            steps[one] = one.target
        else:
            steps[one] = place
            place *= extents[one]
    return steps, place


def _together(
    extents: dict[PermuteDimension, int],
    order: Sequence[PermuteDimension],
    step: Callable[[PermuteDimension], int],
    atom: int,
) -> list[PermuteDimension]:
    """The dimensions of a tile that are one run in an array: all of them, and the first ones wholly."""
    found: list[PermuteDimension] = []
    run = atom
    for one in order:
        if one in found:
            continue
        if step(one) != run:
            break
        found.append(one)
        run *= one.size
        if extents[one] < one.size:
            break
    return found
