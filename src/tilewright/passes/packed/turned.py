"""Collected results of the packed form, turned in registers so that they are written along the output's unit stride.

A block's results lie in scratch memory with the vector side's innermost dimension next to each other; the output has
the dimension before that one so. Squares of vectors are transposed; what a block has of a row that it shares with the
block before or after is written by elements.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.scalars import BOOL
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, add, integer, load, multiply, operation
from tilewright.passes.packed.squares import transpose
from tilewright.passes.packed.store import Place, has_fast_path
from tilewright.passes.packed.waiting import Scratch
from tilewright.passes.packed.writer import PackedWriter


def is_turned(w: PackedWriter, tile: Scratch, place: Place) -> bool:
    """The block's results are what the output holds, and its unit stride is the dimension next to the innermost."""
    form = w.form
    dimensions = form.vector_dimensions
    return (
        has_fast_path(w)
        and form.lanes > 1
        and len(dimensions) > 1
        and dimensions[-2].stride_out == 1
        and len(tile.buffers) == 1
        and tile.buffers[0].element == place.out.element
    )


def write_turned(
    w: PackedWriter, place: Place, tile: Scratch, rows: Expression, columns: Expression, start: Expression
) -> None:
    """Write a block of `rows` by `columns` results, whose first column is element `start` of the vector side."""
    emit, (along, inner) = w.emit, place.vector.sizes[-2:]
    ceiling = operation("floordiv", add(start, add(inner, integer(-1))), inner)
    first = emit.let(ceiling, "first_row")
    last = emit.let(operation("floordiv", add(start, columns), inner), "last_row")
    last = emit.let(operation("max", first, last), "last_row")
    head = emit.let(operation("min", operation("sub", multiply(first, inner), start), columns), "head")
    tail = emit.let(operation("min", operation("sub", multiply(last, inner), start), columns), "tail")
    runs = (operation("floordiv", first, along), operation("floordiv", add(last, add(along, integer(-1))), along))
    from_run, to_run = emit.let(runs[0], "from_run"), emit.let(runs[1], "to_run")

    def row(j: Expression) -> None:
        base = place.row_base(j)
        following = emit.let(operation("min", add(j, integer(1)), operation("sub", rows, integer(1))), "following")
        next_base = place.row_base(following)
        tile_row = emit.let(tile.row(j), "tile_row")
        w.loop("i", integer(0), head, lambda i: place.write_element(tile, tile_row, base, i, j))
        w.loop("i", tail, columns, lambda i: place.write_element(tile, tile_row, base, i, j))

        def run(number: Expression) -> None:
            begin = emit.let(multiply(number, along), "begin")
            end = emit.let(operation("min", add(begin, along), last), "end")
            begin = emit.let(operation("max", begin, first), "begin")

            def group(at: Expression) -> None:
                count = w.minimum(operation("sub", end, at), integer(w.form.lanes))
                column = emit.let(operation("sub", multiply(at, inner), start), "column")
                _write_group(w, place, tile, (tile_row, base, next_base), column, count)

            w.loop("u", begin, end, group, w.form.lanes)

        w.loop("run", from_run, to_run, run)

    w.loop("j", integer(0), rows, row)


def _write_group(
    w: PackedWriter,
    place: Place,
    tile: Scratch,
    bases: tuple[Expression, Expression, Expression],
    column: Expression,
    count: Expression,
) -> None:
    """`count` points along the output's unit stride, from this column of the block on, by all of the innermost
    dimension; the last square overlaps the one before, and a dimension shorter than a vector is written in part.
    """
    emit, lanes, inner = w.emit, w.form.lanes, place.vector.sizes[-1]
    tile_row, base, next_base = bases
    type_ = kernel.VectorType(tile.buffers[0].element, lanes)
    # A missing point is the last one again, so that nothing outside the block is read.
    last = emit.let(operation("sub", count, integer(1)), "last_point")
    points = [emit.let(multiply(operation("min", integer(q), last), inner), "point") for q in range(lanes)]
    mask = emit.let(kernel.FirstLanes(count, kernel.VectorType(BOOL, lanes)), "points")

    def square(wanted: Expression) -> None:
        most = operation("max", operation("sub", inner, integer(lanes)), integer(0))
        x = emit.let(operation("min", wanted, most), "x")
        at = emit.let(add(column, x), "at")
        held: list[Expression] = []
        for point in points:
            value = load(tile.buffers[0], add(tile_row, add(at, point)), type_.lanes)
            held.append(emit.let(value, "row"))
        turned = transpose(w, held)
        places = [load(place.vector.out_table, add(at, integer(i))) for i in range(lanes)]

        def stores(whole: bool) -> None:
            for i, value in enumerate(turned):

                def store(i: int = i, value: Expression = value) -> None:
                    to = emit.let(places[i], "to")
                    emit.emit(kernel.Prefetch(place.out, add(next_base, to)))
                    emit.emit(kernel.Store(place.out, add(base, to), value, mask=None if whole else mask))

                _if_inside(w, add(x, integer(i)), inner, i, store)

        w.branch(operation("eq", count, integer(lanes)), lambda: stores(True), lambda: stores(False))

    w.loop("x", integer(0), inner, square, lanes)


def _if_inside(w: PackedWriter, x: Expression, inner: Expression, i: int, write: Callable[[], None]) -> None:
    if i:
        w.emit.when(operation("lt", x, inner), write)
    else:
        write()
