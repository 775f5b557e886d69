"""Copies past the caches without a detour: each square is written as whole cache lines of the target.

What lies together in the target is a run: the row, and dimensions that follow it there. Rows of a tile are neighbours
in the run, and begin with a cache line of the target wherever the run begins in one; so the rows of one square may lie
at the end of one dimension and at the beginning of the next. The first and the last line of a run hold `odd` rows of
its beginning and those that are left at its end: one square, written in two parts.

    for each tile, in the order of the source:
        find      where each row begins in the source
        for each line of columns, for each of the two lines of rows:
            ask       for as many lines of the next tile, one row after the other
            square    of whole lines, transposed in registers
            write     a cache line of each column

A run of a kilobyte is read of each row before the next tile's turn comes, and two neighbouring lines of the target are
written one soon after the other: single lines, far apart, take memory two to three times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, add, integer, load, multiply, operation
from tilewright.passes.permute.run_rows import RunRows
from tilewright.passes.permute.squares import square_columns
from tilewright.passes.permute.straight_form import READ_LINES
from tilewright.passes.permute.tiles import LINE, StraightTile
from tilewright.passes.permute.writer import PermuteWriter


@dataclass(frozen=True)
class _Place:
    """Where a tile lies: its first elements in both arrays, the place of its first row in the run, how many rows it is
    from there to the first line of the target, whether lines begin with atoms, and words from what is read to the same
    of the next tile."""

    source: Expression
    target: Expression
    begin: Expression
    odd: Expression
    on_lines: Expression | None
    ahead: Expression


def write_straight(
    w: PermuteWriter,
    tile: StraightTile,
    source: Expression,
    target: Expression,
    following: Expression,
    begin: Expression,
    column: Expression | None,
) -> None:
    """Copy the tile whose first elements lie at `source` and `target`, which is row `begin` of the run, from `column`
    on if it has not all columns; the next one begins at `following` in the source."""
    atom = integer(w.form.atom)
    words = w.up_to(target, LINE)
    on_lines = None
    if w.form.atom > 1:  # What is called an atom here may begin between two of them in memory.
        on_lines = w.let(operation("eq", operation("mod", words, atom), integer(0)), "on_lines")
    odd, begin = w.let(operation("floordiv", words, atom), "odd"), w.let(operation("floordiv", begin, atom), "begin")
    ahead = w.let(operation("sub", following, source), "ahead")
    place = _Place(source, target, begin, odd, on_lines, ahead)
    whole = w.parameter("whole", math.prod(one.size for one in tile.run))
    starts = Buffer(w.emit.name("starts"), I64, kernel.Space.WORKSPACE, tile.rows)
    w.arrays.append(starts)
    rows = w.parameter("rows", tile.rows)
    run = RunRows(w, tile.run)
    start = w.let(operation("sub", source, run.place(begin)[1]), "start")
    run.find(w.let(add(begin, odd), "first"), rows, w.form.lanes, start, starts, integer(0))
    ask = _asking(w, tile, place, starts, rows)

    def columns(read: Expression, written: Expression) -> None:
        def square(r: Expression) -> None:
            ask()
            _square(w, place, whole, starts, r, read, written)

        w.loop("r", integer(0), rows, square, step=w.form.lanes)

    _lines(w, tile, place, column, columns)


def _asking(
    w: PermuteWriter, tile: StraightTile, place: _Place, starts: Buffer, rows: Expression
) -> Callable[[], None]:
    """What asks for lines of the next tile beside a square: for as many as it reads, of one row after the other.

    They are all lines of a row or of some, or a part of one, and the next square asks for those that follow: a line of
    each of many rows takes memory twice as long.
    """
    lanes, many = w.form.lanes, tile.lines(w.form.lanes)
    ends = Buffer(w.emit.name("ends"), I64, kernel.Space.WORKSPACE, 2 * READ_LINES)
    w.arrays.append(ends)
    _find_ends(w, tile, ends)
    lines = w.parameter("lines", many)
    width = w.parameter("width", -(-many // max(1, many // lanes)))
    parts = w.parameter("parts", -(-lanes // many))
    turn, after = w.emit.declare(integer(0), "row"), w.emit.declare(integer(0), "after")

    def part(_: Expression) -> None:
        row, first = w.emit.snapshot(turn, "row"), w.emit.snapshot(after, "first")
        last = w.let(operation("min", add(first, width), lines), "last")

        def lines_of_row() -> None:
            begin = w.let(add(load(starts, row), place.ahead), "begin")
            w.loop("k", first, last, lambda k: w.emit.emit(
                kernel.Prefetch(w.source, add(begin, load(ends, k)), level=2)
            ))  # fmt: skip

        w.when(operation("lt", row, rows), lines_of_row)
        is_done = w.let(operation("eq", last, lines), "is_done")
        w.emit.assign(after, operation("select", is_done, integer(0), last))
        w.emit.assign(turn, operation("select", is_done, add(row, integer(1)), row))

    return lambda: w.loop("part", integer(0), parts, part)


def _find_ends(w: PermuteWriter, tile: StraightTile, ends: Buffer) -> None:
    """Words from where a row of a tile begins to the last one of each line of its columns."""
    lanes = w.form.lanes

    def level(depth: int, read: Expression, number: Expression) -> None:
        one = tile.columns[depth]
        count = w.parameter("count", one.size)
        if depth == 0:
            lines = w.parameter("lines", -(-one.size // lanes))
            last = w.let(operation("sub", count, integer(1)), "last")
            atom = w.form.atom

            def end(line: Expression) -> None:
                column = operation("min", add(multiply(line, integer(lanes)), integer(lanes - 1)), last)
                words = add(multiply(column, integer(atom)), integer(atom - 1))
                w.emit.emit(kernel.Store(ends, add(multiply(number, lines), line), add(read, words)))

            w.loop("line", integer(0), lines, end)
            return
        step = w.parameter("column_from", one.source)
        w.loop("i", integer(0), count, lambda i: level(
            depth - 1, w.let(add(read, multiply(i, step)), "read"), w.let(add(multiply(number, count), i), "number")
        ))  # fmt: skip

    level(len(tile.columns) - 1, integer(0), integer(0))


def _lines(
    w: PermuteWriter,
    tile: StraightTile,
    place: _Place,
    column: Expression | None,
    body: Callable[[Expression, Expression], None],
) -> None:
    """Loops over lines of columns, those that lie together in the source innermost; `body` gets the words from the
    beginning of the tile in both arrays."""

    def level(depth: int, read: Expression, written: Expression) -> None:
        if depth < 0:
            body(read, written)
            return
        one = tile.columns[depth]
        steps = w.parameter("column_from", one.source), w.parameter("column_to", one.target)
        count = w.parameter("count", one.size)

        def step(index: Expression) -> None:
            level(
                depth - 1,
                w.let(add(read, multiply(index, steps[0])), "read"),
                w.let(add(written, multiply(index, steps[1])), "written"),
            )

        if depth == 0 and tile.by_lines:
            w.by_lines(place.source, integer(0) if column is None else column, count, step)
        elif depth == 0:
            w.overlapping("c", count, w.form.lanes, step)
        else:
            w.loop("i", integer(0), count, step)

    level(len(tile.columns) - 1, integer(0), integer(0))


def _square(
    w: PermuteWriter,
    place: _Place,
    whole: Expression,
    starts: Buffer,
    r: Expression,
    read: Expression,
    written: Expression,
) -> None:
    """One square, and the lines of its columns."""
    form, lanes, atom = w.form, w.form.lanes, integer(w.form.atom)
    rows: Sequence[Expression] = [w.let(add(load(starts, add(r, integer(i))), read), "from") for i in range(lanes)]
    step = w.parameter("to_step", form.column.target if form.column is not None else 0)
    at = w.let(add(place.odd, r), "at")
    to = w.let(add(add(place.target, written), multiply(at, atom)), "to")
    left = w.let(operation("sub", whole, add(place.begin, at)), "left")
    kind = kernel.VectorType(BOOL, form.vector)

    def lines(vectors: Sequence[tuple[int, Expression]], past: bool = True) -> None:
        for c, vector in vectors:
            where = w.let(add(to, multiply(integer(c), step)), "to")
            w.emit.emit(kernel.Store(w.target, where, vector, aligned=past, nontemporal=past))

    def whole_lines(vectors: Sequence[tuple[int, Expression]]) -> None:
        if place.on_lines is None:
            lines(vectors)
        else:
            w.when(place.on_lines, partial(lines, vectors), partial(lines, vectors, past=False))

    def parts(vectors: Sequence[tuple[int, Expression]]) -> None:
        there = w.let(multiply(left, atom), "there")
        tail = w.let(kernel.FirstLanes(there, kind), "tail")
        head = w.let(kernel.FirstLanes(w.let(operation("sub", integer(form.vector), there), "rest"), kind), "head")
        back = w.let(multiply(operation("sub", left, whole), atom), "back")
        for c, vector in vectors:
            where = w.let(add(to, multiply(integer(c), step)), "to")
            w.emit.emit(kernel.Store(w.target, where, vector, mask=tail))
            turned = w.let(kernel.Window(vector, vector, there, kernel.VectorType(form.word, form.vector)), "turned")
            w.emit.emit(kernel.Store(w.target, w.let(add(where, back), "to"), turned, mask=head))

    columns = square_columns(w, w.source, rows)
    while vectors := list(islice(columns, form.columns)):  # as many as there are registers for
        is_whole = operation("ge", left, integer(lanes))
        w.when(is_whole, partial(whole_lines, vectors), partial(parts, vectors))
