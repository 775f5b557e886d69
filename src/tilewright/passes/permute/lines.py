"""The piece of a copy past the caches by whole cache lines: each line of either array is read or written once.

Rows of the source and of the target begin anywhere in a line. So a vector of a row is seen through a window over two
lines: the one that was read for the columns before (carried along in a small array) and the one after it; and what is
written is a window over two squares of a column, of the rows before and of these.

    for each line of columns:  for each vector of rows:
        read      the next line of each row; later ones are asked for
        square    transposed in registers
        write     one line of each column

Several lines of a row that are read together, or a line that is touched twice, wake the processor's own prefetching: of
many rows at once it then reads what is not needed. A vector has to be as long as a line, and a piece of a row too.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.permute.squares import squared
from tilewright.passes.permute.strips import Strip, words_ahead
from tilewright.passes.permute.tiles import LINE, PermuteDimension
from tilewright.passes.permute.writer import PermuteWriter

AHEAD = 2  # lines of a row that are asked for before their turn


@dataclass(frozen=True)
class _Rows:
    """Rows of a strip: words from one to the next, and from the first to the last that there is; how many are read;
    and how many words of a column are there to be written.
    """

    step: Name
    top: Expression
    reach: Expression
    words: Expression


def write_lines(
    w: PermuteWriter, source: Expression, target: Expression, strip: Strip, column: PermuteDimension
) -> None:
    """Copy the strip whose first elements lie at `source` and `target`."""
    form = w.form
    step, to_step = w.parameter("row_from", form.row.source), w.parameter("to_step", column.target)
    top = w.let(multiply(operation("sub", strip.left, integer(1)), step), "top")
    last = add(strip.rows, integer(2 * form.lanes - 1))
    reach = w.let(multiply(operation("floordiv", last, integer(form.lanes)), integer(form.lanes)), "reach")
    rows = _Rows(step, top, reach, w.let(multiply(strip.left, integer(form.atom)), "words"))
    lines = _Lines(w, rows, to_step, strip)
    whole = w.let(multiply(operation("floordiv", strip.columns, integer(form.width)), integer(form.width)), "whole")
    odd = operation("ne", whole, strip.columns)
    parts = w.let(operation("select", odd, integer(2), integer(1)), "parts")

    def part(number: Expression) -> None:
        """All whole lines of columns; then, if columns are left, the last line of them."""
        is_first = operation("eq", number, integer(0))
        left = operation("sub", strip.columns, integer(form.width))
        end = w.let(operation("select", is_first, whole, strip.columns), "end")
        begin = w.let(operation("select", is_first, integer(0), left), "begin")
        lines.carry(w.let(add(source, multiply(begin, integer(form.atom))), "read"))
        w.loop("block", begin, end, lambda c: lines.block(target, begin, c), step=form.width)

    w.loop("part", integer(0), parts, part)


class _Lines:
    """Lines of columns of a strip."""

    def __init__(self, w: PermuteWriter, rows: _Rows, to_step: Name, strip: Strip) -> None:
        self.w, self.rows, self.to_step, self.strip = w, rows, to_step, strip
        form = w.form
        self.line = LINE // w.bytes
        # A strip has less than twice the rows of others if it is the last one.
        most = 2 * form.strip if strip.number is not None else form.row.size
        deep = (most // form.lanes + 2) * form.lanes
        self.carried = self.array("carried", 1 << (deep * self.line - 1).bit_length())
        self.squares = self.array("squares", 2 * form.width * self.line)
        # Where lines begin is found once for many of them: by rows for a strip, by columns for a line of columns.
        self.froms, self.begins = (self.array(hint, deep, I64) for hint in ("froms", "begins"))
        # Of what is written at either end of rows there shall be one column's code, not all columns' side by side.
        self.count = w.parameter("count", form.width)
        self.places, self.odds = (self.array(hint, form.width, I64) for hint in ("places", "odds"))

    def array(self, hint: str, words: int, kind: ScalarType | None = None) -> Buffer:
        found = Buffer(self.w.emit.name(hint), kind or self.w.form.word, kernel.Space.WORKSPACE, words)
        self.w.arrays.append(found)
        return found

    def carry(self, read: Expression) -> None:
        """Read the line in which each row begins; beyond the last row, it again."""
        w, rows, line = self.w, self.rows, integer(self.line)

        def one(r: Expression) -> None:
            at = w.let(add(read, operation("min", multiply(r, rows.step), rows.top)), "at")
            odd = w.up_to(at, LINE, w.source)
            begin = w.let(add(at, odd), "from")
            back = operation("select", operation("ne", odd, integer(0)), line, integer(0))
            value = load(w.source, w.let(operation("sub", begin, back), "first"), self.line, aligned=True)
            w.emit.emit(kernel.Store(self.carried, multiply(r, line), value, aligned=True))
            w.emit.emit(kernel.Store(self.froms, r, begin))
            w.emit.emit(kernel.Store(self.begins, r, operation("sub", line, odd)))

        w.loop("r", integer(0), rows.reach, one)

    def block(self, target: Expression, begin: Expression, c: Expression) -> None:
        """A line of columns, of all rows; the first ones begin at column `begin`."""
        w, form = self.w, self.w.form
        along = w.let(multiply(operation("sub", c, begin), integer(form.atom)), "along")
        written = w.let(add(target, multiply(c, self.to_step)), "written")

        def place(number: Expression) -> None:
            to = w.let(add(written, multiply(number, self.to_step)), "to")
            odd = w.up_to(to, LINE)
            w.emit.emit(kernel.Store(self.places, number, operation("sub", add(to, odd), integer(self.line))))
            w.emit.emit(kernel.Store(self.odds, number, odd))

        w.loop("c", integer(0), integer(form.width), place)
        ahead = words_ahead(w, c, self.strip.columns, AHEAD)

        def group(r: Expression) -> None:
            half = form.width * self.line
            turn = operation("and", operation("floordiv", r, integer(form.lanes)), integer(1))
            now = w.let(multiply(turn, integer(half)), "now")
            before = w.let(operation("sub", integer(half), now), "before")
            for number, vector in enumerate(self.square(along, r, ahead)):
                w.emit.emit(kernel.Store(self.squares, add(now, integer(number * self.line)), vector, aligned=True))
            self.write(w.let(multiply(r, integer(form.atom)), "done"), before, now)

        w.loop("r", integer(0), self.rows.reach, group, step=form.lanes)

    def square(self, along: Expression, r: Expression, ahead: Expression) -> list[Expression]:
        """A vector of a group of rows for each column."""
        return squared(self.w, [self.piece(along, add(r, integer(i)), ahead) for i in range(self.w.form.lanes)])

    def piece(self, along: Expression, r: Expression, ahead: Expression) -> Expression:
        """A line's worth of a row."""
        w = self.w
        begin = w.let(add(load(self.froms, r), along), "from")
        place = w.let(multiply(r, integer(self.line)), "place")
        value = w.let(load(w.source, begin, self.line, aligned=True), "line")
        old = w.let(load(self.carried, place, self.line, aligned=True), "old")
        w.emit.emit(kernel.Prefetch(w.source, add(begin, ahead), level=2))
        w.emit.emit(kernel.Store(self.carried, place, value, aligned=True))
        return self.window(old, value, load(self.begins, r))

    def window(self, first: Expression, second: Expression, begin: Expression) -> Expression:
        w = self.w
        return w.let(
            kernel.Window(first, second, w.let(begin, "begin"), kernel.VectorType(w.form.word, self.line)), "window"
        )

    def write(self, done: Expression, before: Expression, now: Expression) -> None:
        """A line of each column; of the first rows what precedes it, and of the last ones what there is."""
        w, line = self.w, self.line

        def columns(body: Callable[[Expression, Expression, Expression], None], count: Expression) -> None:
            w.loop("c", integer(0), count, lambda c: body(
                c, w.let(add(load(self.places, c), done), "to"), w.let(load(self.odds, c), "odd")
            ))  # fmt: skip

        def new(c: Expression) -> Expression:
            return w.let(load(self.squares, add(now, multiply(c, integer(line))), line, aligned=True), "new")

        def seen(c: Expression, odd: Expression) -> Expression:
            old = w.let(load(self.squares, add(before, multiply(c, integer(line))), line, aligned=True), "old")
            return self.window(old, new(c), odd)

        def some(to: Expression, value: Expression, count: Expression) -> None:
            mask = w.let(kernel.FirstLanes(w.let(count, "count"), kernel.VectorType(BOOL, line)), "some")
            w.emit.emit(kernel.Store(w.target, to, value, mask=mask))

        def head(c: Expression, to: Expression, odd: Expression) -> None:
            some(w.let(operation("sub", add(to, integer(line)), odd), "to"), new(c), odd)

        def middle(c: Expression, to: Expression, odd: Expression) -> None:
            w.emit.emit(kernel.Store(w.target, to, seen(c, odd), aligned=True, nontemporal=True))

        def tail(c: Expression, to: Expression, odd: Expression) -> None:
            end = operation("sub", add(self.rows.words, integer(line)), add(odd, done))
            some(to, seen(c, odd), operation("max", end, integer(0)))

        def heads() -> None:
            number = self.strip.number
            if number is None:
                columns(head, self.count)
            else:
                w.when(operation("eq", number, integer(0)), lambda: columns(head, self.count))

        is_middle = operation("le", add(done, integer(line - 1)), self.rows.words)
        w.when(operation("eq", done, integer(0)), heads, lambda: w.when(
            is_middle, lambda: columns(middle, integer(w.form.width)), lambda: columns(tail, self.count)
        ))  # fmt: skip
