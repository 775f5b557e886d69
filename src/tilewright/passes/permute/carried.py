"""Copies past the caches straight from registers, of columns that begin anywhere in a cache line of the target.

What lies together in the target is a run, as in `straight.py`. Groups of its rows hold whole lines' worth of words of
each column, and the last line's worth is carried along, so that each line of the target is a window over two of them.

    for each tile, from one end of the run to the other:
        find      where each row of the next tile begins in the source
        for each line of columns, for each group of rows:
            ask       for as many lines of the next tile, one row after the other
            squares   transposed in registers
            write     the lines of each column that begin in the group before, by windows

Groups at either end of a run, and columns that a block before has moved already, are written column by column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.permute.interleaved import picked
from tilewright.passes.permute.squares import squared
from tilewright.passes.permute.tiles import LINE, CarriedTile
from tilewright.passes.permute.writer import PermuteWriter

_WriteLine: TypeAlias = Callable[[int, int, Expression, Expression, Expression], None]


def write_carried(
    w: PermuteWriter,
    tile: CarriedTile,
    source: Expression,
    target: Expression,
    following: Expression,
    begin: Expression,
) -> None:
    """Copy the columns whose first elements lie at `source` and `target`, of rows `begin` of the run and on; the next
    piece begins at `following` in the source."""
    copy = _Carried(w, tile, source, begin)
    copy.find_columns(target)
    copy.tiles(w.let(operation("sub", following, source), "ahead"))


class _Carried:
    """A piece of a run."""

    def __init__(self, w: PermuteWriter, tile: CarriedTile, source: Expression, begin: Expression) -> None:
        self.w, self.tile, self.source, self.begin = w, tile, source, begin
        form = w.form
        self.line = LINE // w.bytes
        self.lines = tile.group * form.atom // self.line  # of a column in a group
        self.rows = w.parameter("rows", tile.rows)
        self.count = w.parameter("columns", tile.columns)
        self.to_step = w.parameter("to_step", form.column.target if form.column is not None else 0)
        whole = w.parameter("whole", math.prod(one.size for one in tile.run))
        self.words = w.let(multiply(whole, integer(form.atom)), "words")
        self.end = w.let(operation("min", add(begin, w.parameter("part", tile.part)), whole), "end")
        self.end_word = w.let(multiply(self.end, integer(form.atom)), "end")
        self.odometer = _Odometer(w, tile, source, begin)
        blocks = -(-tile.columns // form.columns) * form.columns
        self.starts = self.array("starts", 3 * tile.rows, I64)
        self.carried = self.array("carried", blocks * self.line)
        self.places, self.odds = self.array("places", blocks, I64), self.array("odds", blocks, I64)
        self.held = self.array("held", form.columns * (self.lines + 1) * self.line)

    def array(self, hint: str, words: int, kind: ScalarType | None = None) -> Buffer:
        found = Buffer(self.w.emit.name(hint), kind or self.w.form.word, kernel.Space.WORKSPACE, words)
        self.w.arrays.append(found)
        return found

    def block(self, c: Expression) -> Expression:
        """The first column of a block; the last block reaches back."""
        return self.w.let(operation("min", c, operation("sub", self.count, integer(self.w.form.columns))), "column")

    def find_columns(self, target: Expression) -> None:
        """Where each column of each block has its first whole line, and how many words come before it."""
        w, form = self.w, self.w.form

        def block(c: Expression) -> None:
            first = w.let(add(target, multiply(self.block(c), self.to_step)), "first")

            def column(k: Expression) -> None:
                to = w.let(add(first, multiply(k, self.to_step)), "to")
                odd = w.up_to(to, LINE)
                for end in (to, add(to, self.words)):
                    w.emit.emit(kernel.Prefetch(w.target, end))
                w.emit.emit(kernel.Store(self.places, add(c, k), add(to, odd)))
                w.emit.emit(kernel.Store(self.odds, add(c, k), odd))

            w.loop("k", integer(0), integer(form.columns), column)

        w.loop("c", integer(0), self.count, block, step=form.columns)

    def tiles(self, ahead: Expression) -> None:
        """All tiles; the next one's rows are found, and asked for, while one is copied."""
        w, rows, group = self.w, self.rows, self.tile.group
        self.odometer.rows(self.starts, (integer(0), multiply(integer(2), rows)), rows)
        slot = w.emit.declare(integer(0), "slot")

        def tile(first: Expression) -> None:
            here = w.emit.snapshot(slot, "here")
            there = w.let(operation("sub", rows, here), "there")
            self.odometer.rows(self.starts, (there,), rows)
            beyond = w.let(add(first, rows), "beyond")
            is_last = operation("ge", beyond, self.end)
            stop = w.let(operation("select", is_last, add(self.end, integer(group)), beyond), "stop")
            # A piece of the same columns goes on with the rows that follow; another one begins with the first ones.
            turns = w.let(operation("and", is_last, operation("ne", ahead, integer(0))), "turns")
            asked = w.let(operation("select", turns, multiply(integer(2), rows), there), "asked")
            ask = _Ask(w, self.tile, self.starts, (
                asked, w.let(operation("select", turns, ahead, integer(0)), "ahead")
            ))  # fmt: skip

            def block(c: Expression) -> None:
                column = self.block(c)

                def one(g: Expression) -> None:
                    ask.some()
                    inside = w.let(operation("sub", g, first), "inside")
                    is_here = operation("lt", inside, rows)
                    place = w.let(operation("select", is_here, add(inside, here), there), "place")
                    self.group(c, column, g, place)

                w.loop("g", first, stop, one, step=group)

            w.loop("c", integer(0), self.count, block, step=w.form.columns)
            w.emit.assign(slot, there)

        self.w.emit.loop("tile", self.begin, self.end, tile, rows)

    def group(self, c: Expression, column: Expression, g: Expression, place: Expression) -> None:
        """A block of columns of a group of rows: row `g` of the run and those after it."""
        w, form = self.w, self.w.form
        read = w.let(multiply(column, integer(form.atom)), "read")
        squares = []
        for number in range(0, self.tile.group, form.lanes):
            starts = [add(load(self.starts, add(place, integer(number + i))), read) for i in range(form.lanes)]
            squares.append(squared(w, [
                w.let(w.some_words(w.source, w.let(start, "from"), form.columns * form.atom), "piece")
                for start in starts
            ]))  # fmt: skip
        columns = [self.vectors([square[k] for square in squares]) for k in range(form.columns)]
        at = w.let(operation("sub", multiply(g, integer(form.atom)), integer(self.line)), "at")
        whole = operation("le", add(g, integer(self.tile.group)), self.end)
        inside = operation("and", operation("gt", g, self.begin), whole)
        w.when(
            inside,
            lambda: w.when(
                operation("eq", column, c),
                lambda: self.all_columns(c, at, columns, self.whole_line),
                lambda: self.other_columns(c, column, at, columns),
            ),
            lambda: self.all_columns(
                c, at, columns, partial(self.part_of_line, g, w.let(operation("sub", c, column), "seen"))
            ),
        )

    def vectors(self, pieces: Sequence[Expression]) -> list[Expression]:
        """Whole lines of a column, whose words lie one after another in so many vectors."""
        words = self.w.form.lanes * self.w.form.atom
        if words == self.line:
            return list(pieces)
        return [
            picked(self.w, pieces, [divmod(place, words) for place in range(begin, begin + self.line)])
            for begin in range(0, self.lines * self.line, self.line)
        ]

    def all_columns(
        self, c: Expression, at: Expression, columns: Sequence[Sequence[Expression]], write: _WriteLine
    ) -> None:
        """All lines of all columns of a block: `write(column, its words before a line, place, word, line, value)`."""
        w, line = self.w, self.line
        for k, vectors in enumerate(columns):
            number = w.let(add(c, integer(k)), "number")
            carried = w.let(multiply(number, integer(line)), "carried")
            before = w.let(load(self.carried, carried, line, aligned=True), "before")
            w.emit.emit(kernel.Store(self.carried, carried, vectors[-1], aligned=True))
            odd = w.let(load(self.odds, number), "odd")
            to = w.let(add(load(self.places, number), at), "to")
            for v, (one, two) in enumerate(zip([before, *vectors[:-1]], vectors, strict=True)):
                word = add(add(at, odd), integer(v * line))
                write(k, v, add(to, integer(v * line)), word, self.window(one, two, odd))

    def whole_line(self, _: int, __: int, place: Expression, ___: Expression, value: Expression) -> None:
        """Past the caches."""
        self.w.emit.emit(kernel.Store(self.w.target, place, value, aligned=True, nontemporal=True))

    def part_of_line(
        self, g: Expression, seen: Expression, k: int, v: int, place: Expression, word: Expression, value: Expression
    ) -> None:
        """What there is of a line at either end of a piece, if no block before has moved the column."""
        w, none, line = self.w, integer(0), integer(self.line)
        word = w.let(word, "word")
        left = operation("min", operation("max", operation("sub", self.words, word), none), line)
        is_there = operation("and", operation("lt", word, self.end_word), operation("ge", integer(k), seen))
        high = w.let(operation("select", is_there, left, none), "high")
        low: Expression = none
        if v == 0:
            before = operation(
                "select", operation("eq", self.begin, none), operation("max", operation("sub", none, word), none), line
            )
            low = operation("select", operation("eq", g, self.begin), before, none)
        kind = kernel.VectorType(BOOL, self.line)
        mask: Expression = w.let(kernel.FirstLanes(high, kind), "some")
        if v == 0:
            missing = w.let(kernel.FirstLanes(w.let(low, "low"), kind), "missing")
            mask = w.let(operation("and", mask, operation("not", missing)), "there")
        w.emit.emit(kernel.Store(w.target, place, value, mask=mask))

    def other_columns(
        self, c: Expression, column: Expression, at: Expression, columns: Sequence[Sequence[Expression]]
    ) -> None:
        """All lines of those columns that the block before has not moved."""
        w, line = self.w, self.line
        pitch = (self.lines + 1) * line
        for k, vectors in enumerate(columns):
            for v, vector in enumerate(vectors):
                w.emit.emit(kernel.Store(self.held, integer(k * pitch + (v + 1) * line), vector, aligned=True))

        def one(k: Expression) -> None:
            number = w.let(add(c, k), "number")
            carried = w.let(multiply(number, integer(line)), "carried")
            base = w.let(multiply(k, integer(pitch)), "base")
            w.emit.emit(kernel.Store(self.held, base, load(self.carried, carried, line, aligned=True), aligned=True))
            held = [
                w.let(load(self.held, add(base, integer(v * line)), line, aligned=True), "held")
                for v in range(self.lines + 1)
            ]
            w.emit.emit(kernel.Store(self.carried, carried, held[-1], aligned=True))
            odd = w.let(load(self.odds, number), "odd")
            to = w.let(add(load(self.places, number), at), "to")
            for v, (old, new) in enumerate(pairwise(held)):
                self.whole_line(0, v, add(to, integer(v * line)), to, self.window(old, new, odd))

        w.loop("k", w.let(operation("sub", c, column), "seen"), integer(w.form.columns), one)

    def window(self, one: Expression, two: Expression, begin: Expression) -> Expression:
        return self.w.let(kernel.Window(one, two, begin, kernel.VectorType(self.w.form.word, self.line)), "window")


class _Odometer:
    """Walks the rows of a run; from its end on at its beginning again."""

    def __init__(self, w: PermuteWriter, tile: CarriedTile, source: Expression, begin: Expression) -> None:
        self.w = w
        self.sizes = [w.parameter("size", one.size) for one in tile.run]
        self.steps = [w.parameter("row_from", one.source) for one in tile.run]
        after = [*(one.source for one in tile.run[1:]), 0]
        self.carries = [
            w.parameter("carry", step - one.size * one.source) for one, step in zip(tile.run, after, strict=True)
        ]
        rest, at = begin, source
        self.indices: list[Name] = []
        for size, step in zip(self.sizes, self.steps, strict=True):
            index = w.let(operation("mod", rest, size), "index")
            rest = w.let(operation("floordiv", rest, size), "rest")
            at = w.let(add(at, multiply(index, step)), "at")
            self.indices.append(w.emit.declare(index, "index"))
        self.at = w.emit.declare(at, "at")

    def rows(self, starts: Buffer, places: Sequence[Expression], count: Expression) -> None:
        """Where so many rows begin, into each of the places."""
        w = self.w

        def row(i: Expression) -> None:
            for place in places:
                w.emit.emit(kernel.Store(starts, add(place, i), self.at))
            w.emit.assign(self.at, add(self.at, self.steps[0]))
            self.step(0)

        w.loop("i", integer(0), count, row)

    def step(self, depth: int) -> None:
        """One step of a dimension, and of the next one where it ends."""
        w, index = self.w, self.indices[depth]

        def over() -> None:
            w.emit.assign(index, integer(0))
            w.emit.assign(self.at, add(self.at, self.carries[depth]))
            if depth + 1 < len(self.indices):
                self.step(depth + 1)

        w.emit.assign(index, add(index, integer(1)))
        w.when(operation("eq", index, self.sizes[depth]), over)


class _Ask:
    """Lines of the next tile, some with each group: row by row, those first that lie near each other."""

    def __init__(
        self, w: PermuteWriter, tile: CarriedTile, starts: Buffer, place: tuple[Expression, Expression]
    ) -> None:
        self.w, self.starts, self.place = w, starts, place
        form = w.form
        left = math.prod(one.size for one in tile.run) % tile.rows
        last = -(-left // tile.group) + 1 if left else tile.rows // tile.group  # groups of the last tile
        groups = min(tile.rows // tile.group, last) * -(-tile.columns // form.columns)
        self.near = w.parameter("near", tile.near)
        self.each = w.parameter("each", -(-tile.asked // groups))
        self.rows = w.parameter("rows", tile.rows)
        self.last = w.parameter("last", tile.columns * form.atom - 1)
        self.line = LINE // w.bytes
        self.turn, self.row = w.emit.declare(integer(0), "turn"), w.emit.declare(integer(0), "row")

    def some(self) -> None:
        """The lines of the next rows."""
        w = self.w

        def one(_: Expression) -> None:
            row = w.emit.snapshot(self.row, "row")

            def lines() -> None:
                begin = w.let(add(load(self.starts, add(self.place[0], row)), self.place[1]), "begin")
                w.loop("k", integer(0), self.last, lambda k: w.emit.emit(
                    kernel.Prefetch(w.source, add(begin, k), level=2)
                ), step=self.line)  # fmt: skip
                w.emit.emit(kernel.Prefetch(w.source, add(begin, self.last), level=2))

            w.when(operation("lt", row, self.rows), lines)
            w.emit.assign(self.row, add(row, self.near))

            def turned() -> None:
                w.emit.assign(self.turn, add(self.turn, integer(1)))
                w.emit.assign(self.row, self.turn)

            w.when(operation("ge", self.row, self.rows), turned)

        w.loop("ask", integer(0), self.each, one)
