"""Packing: the block of one side, read from any strides, into panels that the register tile walks through in order.

    panels[p][k][i] = source[offset(p * width + i) + depth offset(k)]

Where a vector's elements are consecutive in the operand it is copied whole, or in quarters; where instead the sum runs
along the operand's unit stride, square pieces are transposed in registers; only what is left goes element by element.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.kernel.ir import (
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

# What is read of an operand's row at a time, so that neighbouring panels share its cache lines while these are near.
READ_BYTES = 128
# Neighbours that are copied into scalar panels at once: a half of a usual row of 6 or 8, and a divisor of most sizes.
SCALAR_PIECE = 4


def pack(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """Fill the panels of a block of `count` elements for a piece of `depth` of the sum."""
    if side.name == "s":
        (_pack_rows if w.form.scalar_rows else _pack_steps)(w, side, count, depth)
        return

    def panel(number: Expression) -> None:
        first = w.emit.let(multiply(number, integer(side.width)), "first")
        base = w.emit.let(multiply(first, side.pitch), "panel")
        if w.form.lanes > 1:
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

            def copy(parts: int) -> None:
                for part in range(parts):
                    here = add(k, integer(part * lanes // parts))
                    at = w.emit.let(add(start, load(side.depth_table, here)), "at")
                    _copy(w, side, at, add(base, here), lanes // parts)

            by_mark(
                w,
                load(side.depth_runs, number),
                lambda: copy(1),
                lambda: copy(4),
                lambda: w.loop("k", k, add(k, integer(lanes)), element),
            )

        w.loop("group", integer(0), groups, group)
        w.loop("k", rest, depth, element)

    rows = w.emit.let(multiply(w.panels(count, side.width), integer(side.width)), "rows")
    w.loop("j", integer(0), rows, row)


def _pack_steps(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """Scalar panels, one step of the sum after another; several panels at once where their elements are consecutive."""
    panels, width = w.panels(count, side.width), side.width
    together = max(1, READ_BYTES // (width * side.operand.element.bytes))

    def of_panels(number: Expression, several: int) -> None:
        first = w.emit.let(multiply(number, integer(width)), "first")

        def one_by_one() -> None:
            stop = add(number, integer(several))
            w.loop("panel", number, stop, lambda single: _copy_steps(w, side, single, 1, depth, 1))

        w.branch(
            _is_consecutive(w, side, first, several),
            lambda: _copy_steps(w, side, number, several, depth, SCALAR_PIECE),
            one_by_one,
        )

    groups = w.emit.let(operation("floordiv", panels, integer(together)), "groups")
    w.loop("group", integer(0), groups, lambda group: of_panels(multiply(group, integer(together)), together))
    rest = w.emit.let(multiply(groups, integer(together)), "rest")
    w.loop("panel", rest, panels, lambda number: of_panels(number, 1))


def _is_consecutive(w: PackedWriter, side: Side, first: Expression, several: int) -> Expression:
    """In `several` panels from element `first` on, the elements of each piece are neighbours in the operand."""
    differences: Expression = integer(0)
    for panel in range(several):
        for place, lanes in _powers_of_two(side.width, SCALAR_PIECE):
            at = add(first, integer(panel * side.width + place))
            start = load(side.source_table, at)
            for i in range(1, lanes):
                found = load(side.source_table, add(at, integer(i)))
                difference = operation("xor", add(start, integer(i)), found)
                differences = w.emit.let(operation("or", differences, difference), "differences")
    return operation("eq", differences, integer(0))


def _copy_steps(w: PackedWriter, side: Side, number: Expression, several: int, depth: Expression, longest: int) -> None:
    """At each step of the sum, the elements of `several` panels from panel `number` on.

    Args:
        w, side, number, several, depth: as said.
        longest: elements that are copied at once, at the most; with 1 they need not be neighbours.
    """
    width = side.width
    first = w.emit.let(multiply(number, integer(width)), "first")
    size = multiply(side.pitch, integer(width))
    pieces = []
    for panel in range(several):
        base = w.emit.let(multiply(add(number, integer(panel)), size), "panel")
        for place, lanes in _powers_of_two(width, longest):
            at = add(first, integer(panel * width + place))
            pieces.append((w.emit.let(load(side.source_table, at), "from"), add(base, integer(place)), lanes))

    def copy(k: Expression) -> None:
        along = w.emit.let(load(side.depth_table, k), "along")
        row = w.emit.let(multiply(k, integer(width)), "row")
        for start, target, lanes in pieces:
            _copy(w, side, w.emit.let(add(start, along), "at"), w.emit.let(add(target, row), "to"), lanes)

    w.loop("k", integer(0), depth, copy)


def _powers_of_two(width: int, longest: int) -> list[tuple[int, int]]:
    """Place and length of the pieces of a row of a panel: 6 is 4 and 2."""
    found: list[tuple[int, int]] = []
    place = 0
    while place < width:
        lanes = min(longest, 1 << (width - place).bit_length() - 1)
        found.append((place, lanes))
        place += lanes
    return found


def by_mark(
    w: PackedWriter,
    mark: Expression,
    whole: Callable[[], None],
    in_quarters: Callable[[], None],
    broken: Callable[[], None],
) -> None:
    """What is done with a vector depends on its mark; there are quarters from eight lanes on."""
    mark = w.emit.let(mark, "mark")

    def in_parts() -> None:
        w.branch(run_is(mark, QUARTERS), in_quarters, broken)

    w.branch(run_is(mark, WHOLE), whole, in_parts if w.form.lanes >= 8 else broken)


def _pack_vectors(w: PackedWriter, side: Side, first: Expression, base: Expression, depth: Expression) -> None:
    """A panel: where its vectors are consecutive (or their quarters), all of them at each step of the sum, so that what
    lies together in the operand is read together; else one vector after another.
    """
    lanes, vectors = w.form.lanes, w.form.vectors
    least: Expression = run_of(side.source_runs, first, 0, lanes)
    for vector in range(1, vectors):
        least = w.emit.let(operation("min", least, run_of(side.source_runs, first, vector, lanes)), "least")

    def copy(places: list[Expression], parts: int) -> None:
        _copy_runs(w, side, first, places, base, depth, parts)

    def one_by_one(vector: Expression) -> None:
        place = w.emit.let(multiply(vector, integer(lanes)), "place")
        by_mark(
            w,
            load(side.source_runs, add(operation("floordiv", first, integer(lanes)), vector)),
            lambda: copy([place], 1),
            lambda: copy([place], 4),
            lambda: _pack_along_sum(w, side, first, place, base, depth),
        )

    together: list[Expression] = [integer(vector * lanes) for vector in range(vectors)]
    by_mark(
        w,
        least,
        lambda: copy(together, 1),
        lambda: copy(together, 4),
        lambda: w.loop("vector", integer(0), integer(vectors), one_by_one),
    )


def _copy_runs(
    w: PackedWriter,
    side: Side,
    first: Expression,
    vectors: list[Expression],
    base: Expression,
    depth: Expression,
    parts: int,
) -> None:
    """Vectors (parts == 1) or parts of vectors that lie at these places of the panel, one step after another."""
    lanes = w.form.lanes // parts
    places = [add(vector, integer(part * lanes)) for vector in vectors for part in range(parts)]
    starts = [w.emit.let(load(side.source_table, add(first, place)), "from") for place in places]

    def copy(k: Expression) -> None:
        along = w.emit.let(load(side.depth_table, k), "along")
        row = w.emit.let(add(base, multiply(k, integer(side.width))), "row")
        for place, start in zip(places, starts, strict=True):
            _copy(w, side, add(start, along), add(row, place), lanes, aligned=True)

    w.loop("k", integer(0), depth, copy)


def _pack_along_sum(
    w: PackedWriter, side: Side, first: Expression, place: Expression, base: Expression, depth: Expression
) -> None:
    """lanes x lanes pieces that are consecutive along the sum (or whose quarters are) are transposed; the rest is
    copied by elements.
    """
    lanes = w.form.lanes
    groups = w.emit.let(operation("floordiv", depth, integer(lanes)), "groups")

    def group(number: Expression) -> None:
        start = w.emit.let(multiply(number, integer(lanes)), "k")
        stop = w.emit.let(add(start, integer(lanes)), "k_end")
        by_mark(
            w,
            load(side.depth_runs, number),
            lambda: _transpose_piece(w, side, first, place, base, start, 1),
            lambda: _transpose_piece(w, side, first, place, base, start, 4),
            lambda: _pack_elements(w, side, first, place, base, (start, stop), lanes),
        )

    w.loop("group", integer(0), groups, group)
    rest = w.emit.let(multiply(groups, integer(lanes)), "rest")
    _pack_elements(w, side, first, place, base, (rest, depth), lanes)


def _transpose_piece(
    w: PackedWriter, side: Side, first: Expression, place: Expression, base: Expression, start: Expression, parts: int
) -> None:
    lanes = w.form.lanes
    steps = [add(start, integer(part * lanes // parts)) for part in range(parts)]
    along = [w.emit.let(load(side.depth_table, step), "along") for step in steps]
    rows: list[Value] = []
    for i in range(lanes):
        row = w.emit.let(load(side.source_table, add(first, add(place, integer(i)))), "from")
        places = [w.emit.let(add(row, step), "at") for step in along]
        pieces = [load_parts(side.source, side.operand.element, at, lanes // parts, w.emit) for at in places]
        rows.append(tuple(_joined(w, list(of_part)) for of_part in zip(*pieces, strict=True)))
    for part, panel in enumerate(side.panels):
        square: list[Expression] = [w.emit.let(in_panel_type(row[part], panel.element), "row") for row in rows]
        for k, column in enumerate(transpose(w, square)):
            at = add(add(base, multiply(add(start, integer(k)), integer(side.width))), place)
            w.fill(panel, at, column, aligned=True)


def _joined(w: PackedWriter, pieces: list[Expression]) -> Expression:
    """Vectors of one length, a power of two of them, one after the other in one vector."""
    while len(pieces) > 1:
        lanes = 2 * (pieces[0].type.lanes if isinstance(pieces[0].type, VectorType) else 1)
        vector = VectorType(element_of(pieces[0].type), lanes)
        order = tuple(range(lanes))
        pieces = [
            w.emit.let(Shuffle(pieces[i], pieces[i + 1], order, vector), "joined") for i in range(0, len(pieces), 2)
        ]
    return pieces[0]


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
