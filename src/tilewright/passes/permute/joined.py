"""Copies past the caches of rows that follow each other in the target: joined to whole cache lines of it.

    for each chunk of rows, in the order of the target:
        find      where each row of the next chunk begins in the source
        for each kilobyte:
            ask       for the same rows of the next chunk
            copy      rows, or a piece of one, into a stage, behind those before
            write     whole lines of the stage, past the caches; what is left of the last one goes on in the next piece

A row alone begins and ends in the middle of a line, which would be read before it is written, twice. More than a
kilobyte at once is more than a processor has stores on their way: it would wait for them before it reads again.
"""

from __future__ import annotations

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, add, integer, load, operation
from tilewright.passes.permute.run_rows import RunRows
from tilewright.passes.permute.tiles import LINE, PAGE, JoinedRows
from tilewright.passes.permute.writer import PermuteWriter


def write_joined(
    w: PermuteWriter, joined: JoinedRows, source: Expression, target: Expression, begin: Expression
) -> None:
    """Copy rows of a run from number `begin` on: the run begins at `source`, and the row at `target`."""
    starts = Buffer(w.emit.name("starts"), I64, kernel.Space.WORKSPACE, 2 * joined.rows)
    stage = _Stage(w, joined, target)
    w.arrays += [starts, stage.buffer]
    run, some = RunRows(w, joined.run), integer(joined.rows)
    size, before = w.parameter("words", w.form.row.size), w.parameter("before", joined.before)
    count = w.parameter("rows", joined.part)
    whole_piece = _Words(joined.piece, -(-joined.piece // w.form.lanes), integer(joined.piece - w.form.lanes))
    rest = w.let(operation("sub", size, before), "rest")
    last_piece = _Words(rest, joined.vectors, w.let(operation("sub", rest, integer(w.form.lanes)), "last"))
    slot = w.emit.declare(integer(0), "slot")

    def find(first: Expression, at: Expression) -> None:
        run.find(w.let(first, "first"), some, joined.found, source, starts, at)

    def copy(start: Expression, asked: Expression, word: Expression, words: _Words) -> None:
        _ask(w, w.let(add(asked, word), "asked"), words)
        stage.take(w.let(add(start, word), "from"), words)

    def row(r: Expression, here: Expression, there: Expression) -> None:
        asked, start = w.let(load(starts, add(there, r)), "asked"), w.let(load(starts, add(here, r)), "from")
        if not joined.piece:
            copy(start, asked, integer(0), last_piece)
            return

        def piece(word: Expression) -> None:
            copy(start, asked, word, whole_piece)
            stage.write()

        w.loop("word", integer(0), before, piece, step=joined.piece)
        copy(start, asked, before, last_piece)
        stage.write()

    def chunk(first: Expression) -> None:
        here = w.emit.snapshot(slot, "here")
        there = w.let(operation("sub", some, here), "there")
        find(add(add(begin, first), some), there)
        number = w.let(operation("min", some, operation("sub", count, first)), "number")

        def rows(r: Expression) -> None:
            end = operation("min", add(r, integer(joined.together)), number)
            w.loop("r", r, w.let(end, "end"), lambda r: row(r, here, there))
            if not joined.piece:
                stage.write()

        w.loop("r", integer(0), number, rows, step=joined.together)
        w.emit.assign(slot, there)

    find(begin, integer(0))
    w.emit.loop("chunk", integer(0), count, chunk, joined.rows)
    stage.finish()


@dataclass(frozen=True)
class _Words:
    """Words that are copied: how many, in how many vectors, and where the last one begins, which may reach back."""

    count: Expression | int
    vectors: int
    last: Expression

    def places(self, lanes: int) -> list[Expression]:
        """Where each vector begins."""
        return [*(integer(number * lanes) for number in range(self.vectors - 1)), self.last]


def _ask(w: PermuteWriter, start: Expression, words: _Words) -> None:
    """Ask for all lines of so many words."""
    together = max(1, LINE // w.bytes // w.form.lanes)
    last = add(words.last, integer(w.form.lanes - 1))
    for place in (*words.places(w.form.lanes)[::together], last):
        w.emit.emit(kernel.Prefetch(w.source, add(start, place), level=2))


class _Stage:
    """Words that wait until they are whole lines of the target, and where those go."""

    def __init__(self, w: PermuteWriter, joined: JoinedRows, target: Expression) -> None:
        """Nothing waits, and `target` comes next."""
        self.w, self.line = w, LINE // w.bytes
        self.buffer = Buffer(w.emit.name("stage"), w.form.word, kernel.Space.WORKSPACE, joined.stage_words)
        # Vectors that begin anywhere in a line would cross pages, and wait for each other there. A line before is left
        # for one that reaches back behind the words that wait.
        page = w.up_to(integer(0), PAGE, self.buffer)
        self.begin = w.let(add(page, integer(self.line)), "begin")
        back = operation("sub", integer(0), w.up_to(target, LINE))
        before = w.let(operation("and", back, integer(self.line - 1)), "before")
        self.low = w.emit.declare(before, "low")  # of the first line, of which this comes before the target
        self.filled = w.emit.declare(before, "filled")
        self.to = w.emit.declare(operation("sub", target, before), "to")

    def take(self, start: Expression, words: _Words) -> None:
        """Words of the source."""
        w, lanes = self.w, self.w.form.lanes
        into = w.let(add(self.begin, self.filled), "into")
        pieces = [w.let(load(w.source, add(start, place), lanes), "piece") for place in words.places(lanes)]
        for place, piece in zip(words.places(lanes), pieces, strict=True):
            w.emit.emit(kernel.Store(self.buffer, add(into, place), piece))
        count = integer(words.count) if isinstance(words.count, int) else words.count
        w.emit.assign(self.filled, add(self.filled, count))

    def write(self) -> None:
        """Write whole lines; what is left waits at the beginning."""
        w, none, line, vector = self.w, integer(0), integer(self.line), self.w.form.vector
        whole = w.let(operation("and", self.filled, integer(-self.line)), "whole")
        is_any = operation("gt", whole, none)
        has_part = w.let(operation("and", operation("gt", self.low, none), is_any), "has_part")
        w.when(has_part, lambda: self._part(line))

        def lines(k: Expression) -> None:
            value = w.let(load(self.buffer, add(self.begin, k), vector, aligned=True), "line")
            w.emit.emit(kernel.Store(w.target, add(self.to, k), value, aligned=True, nontemporal=True))

        w.loop("k", w.let(operation("select", has_part, line, none), "first"), whole, lines, step=vector)
        for word in range(0, self.line, vector):
            left = load(self.buffer, add(add(self.begin, whole), integer(word)), vector, aligned=True)
            place = add(self.begin, integer(word))
            w.emit.emit(kernel.Store(self.buffer, place, w.let(left, "left"), aligned=True))
        w.emit.assign(self.filled, operation("sub", self.filled, whole))
        w.emit.assign(self.low, operation("select", is_any, none, self.low))
        w.emit.assign(self.to, add(self.to, whole))

    def finish(self) -> None:
        """Write what waits."""
        self.w.when(operation("gt", self.filled, self.low), lambda: self._part(self.filled))

    def _part(self, high: Expression) -> None:
        """Words of the first line below `high`."""
        w, vector = self.w, self.w.form.vector
        kind = kernel.VectorType(BOOL, vector)

        def lanes(count: Expression, first: int) -> Expression:
            left = operation("max", operation("sub", count, integer(first)), integer(0))
            return w.let(kernel.FirstLanes(w.let(left, "left"), kind), "some")

        for first in range(0, self.line, vector):
            there = operation("and", lanes(high, first), operation("not", lanes(self.low, first)))
            value = w.let(load(self.buffer, add(self.begin, integer(first)), vector, aligned=True), "part")
            place = add(self.to, integer(first))
            w.emit.emit(kernel.Store(w.target, place, value, mask=w.let(there, "there")))
