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
written one soon after the other: single lines, far apart, take memory two to three times as long. On a server's mesh,
where stores past the caches and reads wait in the same buffers, not even a square may lie between the two: there each
square is left half transposed in the first cache, until lines of all rows of the tile are written column by column.

    for each line of columns, for each of the two lines of rows, for each group of rows:
            ask       for as many lines of the next tile
            units     of 16 bytes, transposed in registers
    for each column of a unit, for each unit of a line:
            write     the lines of a column
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
from tilewright.passes.permute.squares import columns_of, square_columns, unit_of, units_of
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
    lines = _TargetLines(w, place, whole)
    ask = _asking(w, tile, place, starts, rows)
    body = (
        _half_transposed(w, tile, lines, starts, rows, ask)
        if tile.in_pairs
        else _one_by_one(w, lines, starts, rows, ask)
    )
    _columns(w, tile, place, column, body)


def _asking(
    w: PermuteWriter, tile: StraightTile, place: _Place, starts: Buffer, rows: Expression
) -> Callable[[], None]:
    """What asks for lines of the next tile beside those that are read: for as many, of one row after the other.

    They are all lines of a row or of some, or a part of one, and the next time those that follow are asked for: a line
    of each of many rows takes memory twice as long.
    """
    many, at_once = tile.lines(w.form.lanes), unit_of(w.form) if tile.in_pairs else w.form.lanes
    ends = Buffer(w.emit.name("ends"), I64, kernel.Space.WORKSPACE, 2 * READ_LINES)
    w.arrays.append(ends)
    _find_ends(w, tile, ends)
    lines = w.parameter("lines", many)
    width = w.parameter("width", -(-many // max(1, many // at_once)))
    parts = w.parameter("parts", -(-at_once // many))
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


def _columns(
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


class _TargetLines:
    """Writes lines of the target: of `lanes` rows and a column each, from the row `at` of the tile on."""

    def __init__(self, w: PermuteWriter, place: _Place, whole: Expression) -> None:
        self.w = w
        self.place = place
        self.whole = whole
        self.step = w.parameter("to_step", w.form.column.target if w.form.column is not None else 0)

    def first(self, at: Expression, written: Expression) -> Expression:
        """Where the line of the first column begins."""
        words = multiply(add(self.place.odd, at), integer(self.w.form.atom))
        return self.w.let(add(add(self.place.target, written), words), "to")

    def left(self, at: Expression) -> Expression:
        """Rows of the run from this one on."""
        w, place = self.w, self.place
        return w.let(operation("sub", self.whole, add(add(place.begin, place.odd), at)), "left")

    def whole_lines(self, vectors: Sequence[tuple[Expression, Expression]]) -> None:
        """Write (words from the line of the first column, a line) where there are rows for all of it."""

        def store(past: bool) -> None:
            for where, vector in vectors:
                self.w.emit.emit(kernel.Store(self.w.target, where, vector, aligned=past, nontemporal=past))

        if self.place.on_lines is None:
            store(True)
        else:
            self.w.when(self.place.on_lines, partial(store, True), partial(store, False))

    def parts(self, left: Expression, vectors: Sequence[tuple[Expression, Expression]]) -> None:
        """Write the same with the last rows of the run, and behind them its first ones."""
        w, form = self.w, self.w.form
        kind = kernel.VectorType(BOOL, form.vector)
        there = w.let(multiply(left, integer(form.atom)), "there")
        tail = w.let(kernel.FirstLanes(there, kind), "tail")
        head = w.let(kernel.FirstLanes(w.let(operation("sub", integer(form.vector), there), "rest"), kind), "head")
        back = w.let(multiply(operation("sub", left, self.whole), integer(form.atom)), "back")
        for where, vector in vectors:
            w.emit.emit(kernel.Store(w.target, where, vector, mask=tail))
            turned = w.let(kernel.Window(vector, vector, there, kernel.VectorType(form.word, form.vector)), "turned")
            w.emit.emit(kernel.Store(w.target, w.let(add(where, back), "to"), turned, mask=head))


def _one_by_one(
    w: PermuteWriter, lines: _TargetLines, starts: Buffer, rows: Expression, ask: Callable[[], None]
) -> Callable[[Expression, Expression], None]:
    """What writes a line of columns: one square after the other, each straight from registers."""
    form, lanes = w.form, w.form.lanes

    def square(r: Expression, read: Expression, written: Expression) -> None:
        ask()
        pieces = [w.let(add(load(starts, add(r, integer(i))), read), "from") for i in range(lanes)]
        to, left = lines.first(r, written), lines.left(r)
        is_whole = operation("ge", left, integer(lanes))
        columns = square_columns(w, w.source, pieces)
        while some := list(islice(columns, form.columns)):  # as many as there are registers for
            vectors = [(w.let(add(to, multiply(integer(c), lines.step)), "to"), one) for c, one in some]
            w.when(is_whole, partial(lines.whole_lines, vectors), partial(lines.parts, left, vectors))

    return lambda read, written: w.loop("r", integer(0), rows, lambda r: square(r, read, written), step=lanes)


def _half_transposed(
    w: PermuteWriter, tile: StraightTile, lines: _TargetLines, starts: Buffer, rows: Expression, ask: Callable[[], None]
) -> Callable[[Expression, Expression], None]:
    """What writes a line of columns: units of all its squares first, then column by column the lines of all rows."""
    form, lanes, unit = w.form, w.form.lanes, unit_of(w.form)
    groups, squares = lanes // unit, tile.rows // lanes
    stage = Buffer(w.emit.name("units"), form.word, kernel.Space.WORKSPACE, tile.rows * form.vector)
    w.arrays.append(stage)

    def square(r: Expression, read: Expression) -> None:
        base = w.let(multiply(r, integer(form.vector)), "base")
        for g in range(groups):
            ask()
            begins = [add(load(starts, add(r, integer(g * unit + i))), read) for i in range(unit)]
            pieces = [w.let(w.some_words(w.source, w.let(one, "from"), form.vector), "piece") for one in begins]
            for j, vector in enumerate(units_of(w, pieces, unit)):
                w.emit.emit(kernel.Store(stage, add(base, integer((g * unit + j) * form.vector)), vector))

    def line(h: int, j: Expression, to: Expression) -> list[tuple[Expression, Expression]]:
        """(where it goes, a line) of the columns j of each unit."""
        base = w.let(multiply(add(j, integer(h * lanes)), integer(form.vector)), "base")
        some = [w.let(load(stage, add(base, integer(g * unit * form.vector)), form.vector), "units")
                for g in range(groups)]  # fmt: skip
        first = w.let(add(to, multiply(j, lines.step)), "to")
        return [(w.let(add(first, multiply(integer(g * unit), lines.step)), "to"), one)
                for g, one in enumerate(columns_of(w, some, unit))]  # fmt: skip

    def body(read: Expression, written: Expression) -> None:
        w.loop("r", integer(0), rows, lambda r: square(r, read), step=lanes)
        ats = [integer(h * lanes) for h in range(squares)]
        to, left = [lines.first(at, written) for at in ats], [lines.left(at) for at in ats]

        def together(j: Expression) -> None:
            of_rows = [line(h, j, to[h]) for h in range(squares)]
            lines.whole_lines([one for column in zip(*of_rows, strict=True) for one in column])

        def apart(j: Expression) -> None:
            for h in range(squares):
                vectors = line(h, j, to[h])
                is_whole = operation("ge", left[h], integer(lanes))
                w.when(is_whole, partial(lines.whole_lines, vectors), partial(lines.parts, left[h], vectors))

        w.when(operation("ge", left[-1], integer(lanes)),
               lambda: w.loop("j", integer(0), integer(unit), together),
               lambda: w.loop("j", integer(0), integer(unit), apart))  # fmt: skip

    return body
