"""Packing: the block of one side, read from any strides, into panels that the register tile walks through in order.

    panels[p][k][i] = source[offset(p * width + i) + depth offset(k)]

Where a vector's elements are consecutive in the operand it is copied whole, or in quarters; where instead the sum runs
along the operand's unit stride, square pieces are transposed in registers; only what is left goes element by element.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.scalars import U8
from tilewright.kernel.ir import (
    Constant,
    Expression,
    Shuffle,
    VectorType,
    add,
    element_of,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.passes.packed_operands import in_panel_type, load_parts
from tilewright.passes.packed_writer import QUARTERS, WHOLE, PackedWriter, Side, run_is, run_of
from tilewright.passes.scalar_values import Value


def pack(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """Fill the panels of a block of `count` elements for a piece of `depth` of the sum."""
    if side.name == "s" and w.form.scalar_rows:
        _pack_rows(w, side, count, depth)
        return

    def panel(number: Expression) -> None:
        first = w.emit.let(multiply(number, integer(side.width)), "first")
        base = w.emit.let(multiply(first, side.pitch), "panel")
        if side.name == "v" and w.form.lanes > 1:
            _pack_vectors(w, side, first, base, depth)
        else:
            _pack_elements(w, side, first, integer(0), base, (integer(0), depth), side.width)

    w.loop("panel", integer(0), w.panels(count, side.width), panel)


def _copy(w: PackedWriter, side: Side, source: Expression, to: Expression, lanes: int, aligned: bool = False) -> None:
    """`lanes` consecutive elements into the panels, one panel for each part."""
    value = load_parts(side.source, side.operand.element, source, lanes, w.emit)
    for panel, part in zip(side.panels, value, strict=True):
        w.fill(panel, to, part, aligned)


def _pack_rows(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """rows[j][k]: the sum stays innermost; what is consecutive in the operand is copied in vectors."""
    lanes = w.form.lanes
    groups = w.emit.let(operation("floordiv", depth, integer(lanes)), "groups")
    rest = w.emit.let(multiply(groups, integer(lanes)), "rest")

    def row(j: Expression) -> None:
        start = w.emit.let(load(side.source_table, j), "from")
        base = w.emit.let(multiply(j, side.pitch), "row")

        def element(k: Expression) -> None:
            at = w.emit.let(add(start, load(side.depth_table, k)), "at")
            _copy(w, side, at, add(base, k), 1)

        def group(number: Expression) -> None:
            k = w.emit.let(multiply(number, integer(lanes)), "k")

            def copy() -> None:
                at = w.emit.let(add(start, load(side.depth_table, k)), "at")
                _copy(w, side, at, add(base, k), lanes)

            consecutive = operation("ne", load(side.depth_runs, number), Constant(0, U8))
            w.branch(consecutive, copy, lambda: w.loop("k", k, add(k, integer(lanes)), element))

        w.loop("group", integer(0), groups, group)
        w.loop("k", rest, depth, element)

    rows = w.emit.let(multiply(w.panels(count, side.width), integer(side.width)), "rows")
    w.loop("j", integer(0), rows, row)


def _pack_vectors(w: PackedWriter, side: Side, first: Expression, base: Expression, depth: Expression) -> None:
    """A panel: where its vectors are consecutive (or their quarters), all of them at each step of the sum, so that what
    lies together in the operand is read together; else one vector after another.
    """
    lanes, vectors = w.form.lanes, list(range(w.form.vectors))
    marks = [w.emit.let(run_of(side.source_runs, first, vector, lanes), "mark") for vector in vectors]
    least: Expression = marks[0]
    for mark in marks[1:]:
        least = w.emit.let(operation("min", least, mark), "least")

    def one_by_one() -> None:
        for vector, mark in zip(vectors, marks, strict=True):
            _by_mark(w, side, mark, first, [vector], base, depth)

    _by_mark(w, side, least, first, vectors, base, depth, one_by_one if len(marks) > 1 else None)


def _by_mark(
    w: PackedWriter,
    side: Side,
    mark: Expression,
    first: Expression,
    vectors: list[int],
    base: Expression,
    depth: Expression,
    otherwise: Callable[[], None] | None = None,
) -> None:
    """Copy vectors whole or in quarters as their mark says; else do `otherwise`, or pack along the sum."""

    def broken() -> None:
        if otherwise is not None:
            otherwise()
            return
        for vector in vectors:
            _pack_along_sum(w, side, first, vector, base, depth)

    def in_quarters() -> None:
        w.branch(run_is(mark, QUARTERS), lambda: _copy_runs(w, side, first, vectors, base, depth, 4), broken)

    in_parts = in_quarters if w.form.lanes >= 8 else broken
    w.branch(run_is(mark, WHOLE), lambda: _copy_runs(w, side, first, vectors, base, depth, 1), in_parts)


def _copy_runs(
    w: PackedWriter,
    side: Side,
    first: Expression,
    vectors: list[int],
    base: Expression,
    depth: Expression,
    parts: int,
) -> None:
    """Vectors (parts == 1) or parts of vectors, at one step of the sum after another."""
    lanes = w.form.lanes // parts
    places = [vector * w.form.lanes + part * lanes for vector in vectors for part in range(parts)]
    starts = [w.emit.let(load(side.source_table, add(first, integer(place))), "from") for place in places]

    def copy(k: Expression) -> None:
        along = w.emit.let(load(side.depth_table, k), "along")
        row = w.emit.let(add(base, multiply(k, integer(side.width))), "row")
        for place, start in zip(places, starts, strict=True):
            _copy(w, side, add(start, along), add(row, integer(place)), lanes, aligned=True)

    w.loop("k", integer(0), depth, copy)


def _pack_along_sum(
    w: PackedWriter, side: Side, first: Expression, vector: int, base: Expression, depth: Expression
) -> None:
    """lanes x lanes pieces that are consecutive along the sum are transposed; the rest is copied by elements."""
    lanes = w.form.lanes
    place = vector * lanes
    groups = w.emit.let(operation("floordiv", depth, integer(lanes)), "groups")

    def group(number: Expression) -> None:
        start = w.emit.let(multiply(number, integer(lanes)), "k")
        stop = w.emit.let(add(start, integer(lanes)), "k_end")
        consecutive = operation("ne", load(side.depth_runs, number), Constant(0, U8))
        w.branch(
            consecutive,
            lambda: _transpose_piece(w, side, first, place, base, start),
            lambda: _pack_elements(w, side, first, integer(place), base, (start, stop), lanes),
        )

    w.loop("group", integer(0), groups, group)
    rest = w.emit.let(multiply(groups, integer(lanes)), "rest")
    _pack_elements(w, side, first, integer(place), base, (rest, depth), lanes)


def _transpose_piece(
    w: PackedWriter, side: Side, first: Expression, place: int, base: Expression, start: Expression
) -> None:
    lanes = w.form.lanes
    along = w.emit.let(load(side.depth_table, start), "along")
    rows: list[Value] = []
    for i in range(lanes):
        at = add(load(side.source_table, add(first, integer(place + i))), along)
        rows.append(load_parts(side.source, side.operand.element, w.emit.let(at, "at"), lanes, w.emit))
    for part, panel in enumerate(side.panels):
        square: list[Expression] = [w.emit.let(in_panel_type(row[part], panel.element), "row") for row in rows]
        for k, column in enumerate(transpose(w, square)):
            at = add(add(base, multiply(add(start, integer(k)), integer(side.width))), integer(place))
            w.fill(panel, at, column, aligned=True)


def transpose(w: PackedWriter, rows: list[Expression]) -> list[Expression]:
    """The transpose of a square of vectors, by exchanging blocks of halving size between pairs of rows."""
    lanes = len(rows)
    vector = VectorType(element_of(rows[0].type), lanes)
    held = list(rows)
    distance = lanes // 2
    while distance:
        keep = tuple(lane if not lane & distance else lanes + lane - distance for lane in range(lanes))
        give = tuple(lane + distance if not lane & distance else lanes + lane for lane in range(lanes))
        for i in range(lanes):
            if not i & distance:
                upper, lower = held[i], held[i + distance]
                held[i] = w.emit.let(Shuffle(upper, lower, keep, vector), "swap")
                held[i + distance] = w.emit.let(Shuffle(upper, lower, give, vector), "swap")
        distance //= 2
    return held


def _pack_elements(
    w: PackedWriter,
    side: Side,
    first: Expression,
    at: Expression,
    base: Expression,
    piece: tuple[Expression, Expression],
    width: int,
) -> None:
    """Element by element, the sum innermost: `width` elements from place `at` of the panel on."""

    def row(i: Expression) -> None:
        place = w.emit.let(add(at, i), "place")
        start = w.emit.let(load(side.source_table, add(first, place)), "from")

        def copy(k: Expression) -> None:
            at = w.emit.let(add(start, load(side.depth_table, k)), "at")
            _copy(w, side, at, w.emit.let(add(add(base, multiply(k, integer(side.width))), place), "to"), 1)

        w.loop("k", *piece, copy)

    w.loop("i", integer(0), integer(width), row)
