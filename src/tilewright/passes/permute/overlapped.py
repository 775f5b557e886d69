"""Copies past the caches that write one tile while they gather the next one.

A tile is a cache line of columns, and 128 rows that lie together in the target. Its columns are gathered in one of two
stages, which stay in the first cache, and are written from there as pieces of several lines: single lines, far apart,
take memory twice as long.

    for each tile, in the order of the source:
        find      where each of its rows begins in the source, and each of the next piece
        for each square:
            ask       for the same rows of a later tile
            square    transposed in registers, into one stage
            write     beside its instructions: as many vectors of the tile before, from the other stage
    write     the last tile

So memory is read and written at all times, and squares take none of it: one after the other, the three take nearly
twice as long. What lies together in the target is a run, as in `straight.py`; a tile has whole lines of it, from each
column's first one on. Where columns do not all begin with a row at the same place in a line, rows are gathered for one
line more. The tile of the end of a run has fewer rows, and then those of its beginning, before the first line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, zip_longest

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.permute.form import PermuteForm
from tilewright.passes.permute.run_rows import RunRows
from tilewright.passes.permute.squares import square_columns
from tilewright.passes.permute.tiles import LINE, OverlappedTile
from tilewright.passes.permute.writer import PermuteWriter

NOWHERE = -1  # is no row of a run


@dataclass(frozen=True)
class _Rows:
    """Rows of tiles: where those of these and of the next ones are in `starts`, how many are gathered, where they are
    written to, how many words before the end of the run that is, and whether it is in them, or they are all that a tile
    may have."""

    here: Expression
    there: Expression
    count: Expression
    to: Expression
    left: Expression
    is_last: Expression
    is_whole: Expression


class OverlappedCopy:
    """The state of a block's copy: two stages, the rows of two tiles, and what is still to be written of a tile."""

    def __init__(self, w: PermuteWriter, tile: OverlappedTile) -> None:
        """Nothing is to be written yet."""
        self.w, self.tile, form = w, tile, w.form
        self.run = RunRows(w, tile.run)
        self.whole = w.parameter("whole", math.prod(one.size for one in tile.run) * form.atom)
        self.rows = w.parameter("rows", tile.rows)
        self.columns = w.parameter("columns", form.chunk)
        self.size = w.parameter("size", form.column.size if form.column is not None else 0)
        self.to_step = w.parameter("to_step", form.column.target if form.column is not None else 0)
        words = LINE // w.bytes
        self.spare = words // form.atom  # rows of a line of the target
        ends = range(words - 1, form.width * form.atom, words)
        self.asked_words = (0, *ends) if tile.asks_twice else tuple(ends)
        vectors = form.width * tile.pitch
        self.stage = self._array("stage", form.word, 2 * vectors)
        self.stage_words = integer(vectors)
        self.slots = tile.rows + self.spare
        self.starts = self._array("starts", I64, 2 * self.slots)
        self.known = [w.emit.declare(integer(NOWHERE), "known") for _ in range(2)]
        self.gathered = w.emit.declare(integer(0), "gathered")  # where the stage is that is gathered
        no = kernel.Constant(False, BOOL)
        self.waits = w.emit.declare(no, "waits")  # whether a tile before is to be written,
        self.is_whole = w.emit.declare(no, "is_whole")  # of all the rows,
        self.is_last = w.emit.declare(no, "is_last")  # and those of the end of a run
        self.first = w.emit.declare(integer(0), "first")  # where its stage is,
        self.line = w.emit.declare(integer(0), "line")  # where it is written to,
        self.left = w.emit.declare(integer(0), "left")  # and how many words before the end of the run that is

    def _array(self, hint: str, kind: ScalarType, words: int) -> Buffer:
        found = Buffer(self.w.emit.name(hint), kind, kernel.Space.WORKSPACE, words)
        self.w.arrays.append(found)
        return found

    # --- tiles

    def piece(
        self,
        source: Expression,
        target: Expression,
        following: Expression,
        run: tuple[Expression, Expression],
        column: Expression,
    ) -> None:
        """Copy the tiles of the columns from `column` on, whose first elements lie at `source` (of the first row of the
        run) and `target` (of the row where the tiles begin).

        `run` is where they begin in it, in words, and where the next piece does, which begins at `following`.
        """
        w, tile, atom, width = self.w, self.tile, integer(self.w.form.atom), integer(self.w.form.width)
        rows = self._rows(target, *(w.let(operation("floordiv", one, atom), "begin") for one in run))
        begins: Expression = integer(0)
        size: Expression = self.columns
        if tile.by_lines:
            begins = w.first_line(source, column)
            size = w.let(operation("sub", self.size, column), "size")
        last = w.let(operation("sub", size, width), "last")
        tiles = operation("floordiv", add(operation("sub", self.columns, begins), integer(w.form.width - 1)), width)
        end = w.let(multiply(tiles, width), "end")

        def columns(line: Expression) -> None:
            c = w.let(operation("min", operation("max", line, integer(0)), last), "c")
            read = w.let(add(source, multiply(c, atom)), "read")
            later = w.let(add(line, integer(tile.ahead * w.form.width)), "later")
            goes_on = operation("lt", later, self.columns)
            next_read = operation("select", goes_on, source, operation("sub", following, multiply(end, atom)))
            asked = w.let(add(next_read, multiply(later, atom)), "asked")
            asked_rows = w.let(operation("select", goes_on, rows.here, rows.there), "asked_rows")
            self._tile(rows, read, asked, asked_rows)
            self._hand_over(rows, w.let(add(rows.to, multiply(c, self.to_step)), "to"))

        w.loop("line", begins, self.columns, columns, step=w.form.width)

    def _rows(self, target: Expression, begin: Expression, after: Expression) -> _Rows:
        """The rows of tiles from `begin` on, of which the next tiles begin with row `after`."""
        w, atom = self.w, integer(self.w.form.atom)
        odd: Expression = integer(0)
        beyond: Expression = integer(self.spare)
        if self.tile.is_aligned:
            before = w.up_to(target, LINE)
            odd = w.let(operation("floordiv", before, atom), "odd")
            is_even = operation("eq", operation("mod", before, atom), integer(0))
            beyond = operation("select", is_even, integer(0), beyond)
        first = w.let(add(begin, odd), "first")
        here = self._find(first)
        there = self._find(w.let(add(after, odd), "next"), other_than=here)
        rest = w.let(operation("sub", self.run.length, begin), "rest")
        return _Rows(
            here=here,
            there=there,
            count=w.let(add(operation("min", rest, self.rows), beyond), "count"),
            to=w.let(add(target, multiply(odd, atom)), "to"),
            left=w.let(operation("sub", self.whole, multiply(first, atom)), "left"),
            is_last=w.let(operation("le", rest, self.rows), "is_last"),
            is_whole=w.let(operation("ge", rest, self.rows), "is_whole"),
        )

    def _tile(self, rows: _Rows, read: Expression, asked: Expression, asked_rows: Expression) -> None:
        """Gather a tile, and write the one before: beside it, if both have all rows."""
        w = self.w
        both_whole = operation("and", self.is_whole, rows.is_whole)
        goes_along = w.let(operation("and", self.waits, both_whole), "goes_along")
        w.when(operation("and", self.waits, operation("not", goes_along)), self._write)
        both = w.let(operation("select", goes_along, self.rows, integer(0)), "both")

        def squares(writes: bool, r: Expression) -> None:
            self._squares(r, (add(rows.here, r), read), (add(asked_rows, r), asked), writes)

        w.loop("r", integer(0), both, partial(squares, True), step=w.form.lanes)
        w.loop("r", both, rows.count, partial(squares, False), step=w.form.lanes)
        w.when(operation("and", self.waits, self.is_last), self._ends)

    def _find(self, first: Expression, other_than: Expression | None = None) -> Expression:
        """Where in `starts` the rows from `first` on are, which may be there already; not written over `other_than`."""
        w = self.w
        slots = [integer(0), integer(self.slots)]
        place = w.emit.declare(slots[1], "place")
        if other_than is None:
            use = operation("eq", self.known[0], first)
            w.when(use, lambda: w.emit.assign(place, slots[0]))
        else:
            is_same = operation("eq", operation("select", operation("eq", other_than, slots[0]), *self.known), first)
            other = operation("select", operation("eq", other_than, slots[0]), slots[1], slots[0])
            w.emit.assign(place, operation("select", is_same, other_than, other))
        for known, slot in zip(self.known, slots, strict=True):

            def find(known: Name = known, slot: Expression = slot) -> None:
                w.emit.assign(known, first)
                rows = add(self.rows, integer(self.spare))
                self.run.find(first, rows, self.tile.found, integer(0), self.starts, slot)

            missing = operation("and", operation("eq", place, slot), operation("ne", known, first))
            w.when(missing, find)
        return w.emit.snapshot(place, "place")

    def _squares(
        self, r: Expression, here: tuple[Expression, Expression], asked: tuple[Expression, Expression], writes: bool
    ) -> None:
        """Squares of the rows from `r` on into the stage; the same rows of the next tile are asked for beside them, and
        as many words of the tile before are written if there is one."""
        w, form = self.w, self.w.form
        starts = [w.let(add(load(self.starts, add(here[0], integer(i))), here[1]), "from") for i in range(form.lanes)]

        def ask(i: int) -> None:
            there = w.let(add(load(self.starts, add(asked[0], integer(i))), asked[1]), "there")
            for word in self.asked_words:
                w.emit.emit(kernel.Prefetch(w.source, add(there, integer(word)), level=2))

        to = w.let(add(self.gathered, multiply(r, integer(form.atom))), "to")
        parts = form.width // form.columns
        number = w.let(operation("floordiv", multiply(r, integer(parts)), integer(form.lanes)), "number")
        columns = square_columns(w, w.source, starts)
        for part in range(parts):
            stores = self._stores(add(number, integer(part))) if writes else []
            asks = [partial(ask, i) for i in range(part, form.lanes, parts)]
            both = [one for pair in zip_longest(asks, stores) for one in pair if one is not None]
            w.beside = beside = _Beside(form, both)
            for c, vector in islice(columns, form.columns):
                w.emit.emit(kernel.Store(self.stage, add(to, integer(c * self.tile.pitch)), vector))
            beside.rest()
        w.beside = None

    # --- what is written

    def _hand_over(self, rows: _Rows, to: Expression) -> None:
        """What was gathered is to be written to `to`."""
        w = self.w
        w.emit.assign(self.waits, kernel.Constant(True, BOOL))
        w.emit.assign(self.is_whole, rows.is_whole)
        w.emit.assign(self.is_last, rows.is_last)
        w.emit.assign(self.first, self.gathered)
        w.emit.assign(self.gathered, operation("sub", self.stage_words, self.gathered))
        w.emit.assign(self.line, to)
        w.emit.assign(self.left, rows.left)

    def _stores(self, number: Expression) -> list[Callable[[], None]]:
        """What writes the words of the tile before that are square `number`'s share: whole columns, or a part of one.
        Where the run ends in a column, its last whole line is written again instead of what lies behind."""
        w, form = self.w, self.w.form
        many = self.tile.rows // form.lanes  # vectors of a column
        together = min(many, form.columns)  # of which so many are a square's
        share, first = operation("floordiv", number, integer(many // together)), form.columns // together
        begin = multiply(operation("mod", number, integer(many // together)), integer(together * form.vector))
        crossing = LINE // (form.vector * w.bytes)
        held: list[tuple[Expression, Expression, Expression]] = []

        def store(k: int) -> None:
            vector = k % together
            if vector == 0:
                column = w.let(add(multiply(share, integer(first)), integer(k // together)), "column")
                held.append(self._column(column, w.let(begin, "begin")))
            line, start, last = held[-1]
            word: Expression = integer(vector * form.vector)
            if vector >= together - crossing:
                word = w.let(operation("min", word, last), "word")
            self._store(line, start, word)

        return [partial(store, k) for k in range(form.columns)]

    def _column(self, column: Expression, begin: Expression) -> tuple[Expression, Expression, Expression]:
        """Where a column lies in the target and in the stage, from so many words behind its first line on, and how far
        from there the last whole vector of the run."""
        w, vector = self.w, self.w.form.vector
        line = w.let(add(self.line, multiply(column, self.to_step)), "line")
        before = w.let(add(w.up_to(line, LINE), begin), "before")
        first = add(add(self.first, multiply(column, integer(self.tile.pitch))), before)
        left = operation("and", operation("sub", self.left, before), integer(-vector))
        last = operation("sub", left, integer(vector))
        return w.let(add(line, before), "line"), w.let(first, "first"), w.let(last, "last")

    def _store(self, line: Expression, first: Expression, word: Expression) -> None:
        w = self.w
        vector = w.let(load(self.stage, add(first, word), w.form.vector), "vector")
        w.emit.emit(kernel.Store(w.target, add(line, word), vector, aligned=True, nontemporal=True))

    def _ends(self) -> None:
        """Of the tile with the end of a run: what comes after its last whole vector, and before its first line."""
        self.w.loop("c", integer(0), integer(self.w.form.width), self._end_of_column)

    def _end_of_column(self, c: Expression) -> None:
        """The rows of a run's beginning were gathered after those of its end."""
        w, form = self.w, self.w.form
        kind = kernel.VectorType(BOOL, form.vector)
        end = w.let(add(add(self.line, multiply(c, self.to_step)), self.left), "end")
        at = w.let(add(add(self.first, multiply(c, integer(self.tile.pitch))), self.left), "at")
        begin = w.let(operation("sub", end, self.whole), "begin")
        up_to = w.up_to(end, form.vector * w.bytes)
        over = w.let(operation("and", operation("sub", integer(0), up_to), integer(form.vector - 1)), "over")
        before = w.up_to(begin, LINE)
        end_of_run = operation("sub", end, over), operation("sub", at, over), over, form.vector
        for place, word, count, most in (end_of_run, (begin, at, before, LINE // w.bytes)):
            for first in range(0, most, form.vector):
                words = operation("max", operation("sub", count, integer(first)), integer(0))
                some = w.let(kernel.FirstLanes(w.let(words, "words"), kind), "some")
                vector = w.let(load(self.stage, w.let(add(word, integer(first)), "word"), form.vector), "vector")
                w.emit.emit(kernel.Store(w.target, w.let(add(place, integer(first)), "place"), vector, mask=some))

    def _write(self) -> None:
        """All of a tile at once: the last one, and one of fewer rows or before one of fewer."""
        w, vector = self.w, self.w.form.vector

        def column(c: Expression) -> None:
            line, first, last = self._column(c, integer(0))
            words = operation("min", multiply(self.rows, integer(w.form.atom)), add(last, integer(vector)))
            w.loop("word", integer(0), w.let(words, "words"), lambda word: self._store(line, first, word), step=vector)

        w.loop("c", integer(0), integer(w.form.width), column)

    def finish(self) -> None:
        """Write the last tile."""
        self.w.when(self.waits, self._write)
        self.w.when(operation("and", self.waits, self.is_last), self._ends)


class _Beside:
    """What is done between the instructions of a square, one task after the other."""

    def __init__(self, form: PermuteForm, tasks: Sequence[Callable[[], None]]) -> None:
        self.tasks, self.done, self.picked = tasks, 0, 0
        self.picks = form.columns * (form.columns.bit_length() - 1) + form.lanes - form.columns

    def __call__(self) -> None:
        """One more instruction."""
        self.picked += 1
        self._go_on(min(len(self.tasks), self.picked * len(self.tasks) // self.picks))

    def rest(self) -> None:
        """The square is done."""
        self._go_on(len(self.tasks))

    def _go_on(self, count: int) -> None:
        for task in self.tasks[self.done : count]:
            task()
        self.done = max(self.done, count)
