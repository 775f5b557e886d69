"""Results of the direct form that are collected: read a long piece of memory at a time, and written turned.

The vector side's tiles of one block are one piece of the operand's memory; the dimensions that this piece runs along
may lie elsewhere in the output. While one point of the collected dimension is computed the next one's piece is asked
for, line after line of a row, so that the memory's own rows are read in long runs; or evenly, where the arithmetic of a
step takes less time than the memory needs for what the step would ask for.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, add, integer, load, multiply, operation
from tilewright.passes.direct.form import FUSED_COLUMNS, LINE
from tilewright.passes.direct.store import where_valid
from tilewright.passes.direct.tile import Place, starts
from tilewright.passes.direct.writer import DirectWriter, Step
from tilewright.passes.lanes.vector_transposes import transposed
from tilewright.passes.packed.two_sides import Bases


@dataclass(frozen=True)
class Columns:
    """The elements of the vector side that one block computes, and where each is in the output (a table if that is not
    a stride).
    """

    first: Expression
    count: Expression
    table: Buffer | None

    def place(self, w: DirectWriter, column: Expression) -> Expression:
        """Where an element's results begin in the output, relative to those of element 0."""
        if self.table is None:
            return multiply(column, w.stride(w.form.vector, "out"))
        return load(self.table, operation("sub", column, self.first))


@dataclass(frozen=True)
class Target:
    """Where collected results go: element (row s, column) at start + s * row_stride + place(column)."""

    buffer: Buffer
    start: Expression
    row_stride: Expression
    place: Callable[[Expression], Expression]


def output_target(w: DirectWriter, bases: Bases, piece: Columns, first: Expression) -> Target:
    """The output, from `first` on of the collected dimension."""
    stride = integer(0) if w.form.scalar is None else w.stride(w.form.scalar, "out")
    base = w.emit.let(add(bases.out, first), "out_at")
    return Target(w.out, base, stride, lambda column: piece.place(w, column))


def block_columns(w: DirectWriter, tiles: tuple[Expression, Expression] | None) -> Columns:
    """The columns of these tiles of the vector side."""
    form, emit = w.form, w.emit
    first: Expression = integer(0)
    size = w.parameter("v_size", form.vector_size)
    count = size
    if tiles is not None:
        first = emit.let(operation("min", multiply(tiles[0], integer(form.width)), w.last_column), "v_first")
        stop = operation("min", multiply(tiles[1], integer(form.width)), size)
        count = emit.let(operation("sub", stop, first), "v_count")
    if not form.fused:
        return Columns(first, count, None)
    table = w.workspace("columns", I64, FUSED_COLUMNS)
    _fill(w, table, first, count)
    return Columns(first, count, table)


def _fill(w: DirectWriter, table: Buffer, first: Expression, count: Expression) -> None:
    """Run after run of the innermost fused dimension."""
    emit, dimensions = w.emit, w.form.fused
    sizes = [w.parameter(f"f{number}_size", constant(one.size)) for number, one in enumerate(dimensions)]
    strides = [w.stride(one, "out") for one in dimensions]
    stop = emit.let(add(first, count), "stop")

    def run(number: Expression) -> None:
        rest: Expression = number
        base: Expression = integer(0)
        for position in range(len(dimensions) - 2, -1, -1):
            digit = operation("mod", rest, sizes[position]) if position else rest
            base = add(base, multiply(emit.let(digit, "digit"), strides[position]))
            rest = emit.let(operation("floordiv", rest, sizes[position]), "rest") if position else rest
        start = emit.let(multiply(number, sizes[-1]), "start")
        begin = emit.let(operation("max", start, first), "begin")
        end = emit.let(operation("min", add(start, sizes[-1]), stop), "end")
        base = emit.let(base, "base")

        def element(column: Expression) -> None:
            value = add(base, multiply(operation("sub", column, start), strides[-1]))
            emit.emit(kernel.Store(table, operation("sub", column, first), value))

        w.loop("column", begin, end, element)

    runs = operation("floordiv", add(stop, operation("sub", sizes[-1], integer(1))), sizes[-1])
    w.loop("run", emit.let(operation("floordiv", first, sizes[-1]), "run"), emit.let(runs, "runs"), run)


def request_piece(w: DirectWriter, piece: Columns, base: Expression) -> Callable[[Step], None]:
    """What asks for the next lines of the piece that begins at `base` each time that it is written into the kernel."""
    form, emit = w.form, w.emit
    line = LINE // w.vector_source.element.bytes
    start = emit.let(add(base, piece.first), "next_piece")
    length = multiply(piece.count, w.sums[0]) if form.rows_meet else piece.count
    lines_of_row = operation("floordiv", add(length, integer(2 * line - 2)), integer(line))
    row_lines = emit.let(lines_of_row, "row_lines")
    jump = operation("sub", w.stride(form.contracted[0], "vector"), multiply(row_lines, integer(line)))
    to_next = emit.let(jump, "to_next_row")
    cursor, left = emit.declare(start, "cursor"), emit.declare(row_lines, "lines_left")
    rows = emit.declare(integer(1) if form.rows_meet else w.sums[0], "rows_left")

    def next_row() -> None:
        emit.assign(cursor, add(cursor, to_next))
        emit.assign(left, row_lines)
        emit.assign(rows, operation("sub", rows, integer(1)))

    def lines() -> None:
        for _ in range(form.lines_in_runs):
            emit.emit(kernel.Prefetch(w.vector_source, cursor, level=2))
            emit.assign(cursor, add(cursor, integer(line)))
            emit.assign(left, operation("sub", left, integer(1)))
            emit.when(operation("le", left, integer(0)), next_row)

    return lambda step: emit.when(operation("gt", rows, integer(0)), lines)


def prefetch_collected(w: DirectWriter, place: Place, piece: Columns, number: Expression, first: Expression) -> None:
    """Ask for the lines that `store_collected` will write at column `number` of each vector of the tile."""
    form, emit = w.form, w.emit
    base = emit.let(add(place.bases.out, first), "out_at")
    scalar_stride = integer(0) if form.scalar is None else w.stride(form.scalar, "out")
    for start, lanes in zip(starts(form.lanes), form.lanes, strict=True):
        lane = number if lanes == form.lanes[0] else operation("min", number, integer(lanes - 1))
        column = emit.let(piece.place(w, add(place.v, add(lane, integer(start)))), "column")
        for j in range(form.rows):
            row = add(base, add(column, multiply(add(place.s, integer(j)), scalar_stride)))
            at = emit.let(row, "ahead")
            emit.emit(kernel.Prefetch(w.out, at, level=2))
            emit.emit(kernel.Prefetch(w.out, add(at, integer(form.lanes[0] - 1)), level=2))


def store_collected(
    w: DirectWriter, place: Place, target: Target, tile: Buffer, start: Expression, count: Expression
) -> None:
    """The scratch tile that begins at `start`, turned: vectors of `count` elements along the output's unit stride; past
    the caches if the form says so, they are whole, and the output begins with a line.
    """
    lanes = w.form.lanes[0]
    mask = w.emit.let(kernel.FirstLanes(count, kernel.VectorType(BOOL, lanes)), "collected")
    if not w.form.nontemporal or w.form.boxed:
        _store_turned(w, place, target, tile, start, mask)
        return
    odd = operation("and", kernel.Address(w.out), integer(LINE - 1))
    begins = add(odd, multiply(operation("mod", target.start, integer(lanes)), integer(LINE // lanes)))
    whole = operation("and", operation("eq", count, integer(lanes)), operation("eq", begins, integer(0)))
    w.branch(
        w.emit.let(whole, "whole"),
        lambda: _store_turned(w, place, target, tile, start, None),
        lambda: _store_turned(w, place, target, tile, start, mask),
    )


def _store_turned(
    w: DirectWriter, place: Place, target: Target, tile: Buffer, start: Expression, mask: Expression | None
) -> None:
    """The same with a mask, or past the caches."""
    form, emit = w.form, w.emit
    lanes, past = form.lanes[0], mask is None

    def row(j: Expression) -> None:
        out_row = emit.let(add(target.start, multiply(add(place.s, j), target.row_stride)), "out_row")
        from_row = emit.let(add(start, multiply(j, integer(lanes * form.pitch))), "from")
        for i, column_start in enumerate(starts(form.lanes)):
            held: list[Expression] = []
            for number in range(lanes):
                at = add(from_row, integer(number * form.pitch + column_start))
                held.append(emit.let(load(tile, at, lanes, aligned=True), "row"))
            for lane, column in enumerate(transposed(w.emit, held)[: form.lanes[i]]):

                def store(lane: int = lane, column: Expression = column, column_start: int = column_start) -> None:
                    at = add(out_row, target.place(add(place.v, integer(column_start + lane))))
                    emit.emit(kernel.Store(target.buffer, at, column, mask=mask, aligned=past, nontemporal=past))

                where_valid(w, i, lane, store)

    w.loop("j", integer(0), integer(form.rows), row)
