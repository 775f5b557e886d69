"""Packing: the block of one side, read from any strides, into panels that the register tile walks through in order.

    panels[p][k][i] = source[offset(p * width + i) + depth offset(k)]

Where a vector's elements are consecutive in the operand it is copied whole, or in quarters, or from two runs
(joined_runs.py); where instead the sum runs along the operand's unit stride, square pieces are transposed in registers;
only what is left goes element by element.
Where whole vectors are all that there is to copy, register tiles do it on the way (on_the_way.py).
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, add, integer, load, multiply, operation
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.packed.joined_runs import may_join_runs, pack_joined
from tilewright.passes.packed.on_the_way import is_packed_on_the_way
from tilewright.passes.packed.operands import in_panel_type
from tilewright.passes.packed.reading import (
    all_along,
    along_sum,
    clear_missing,
    read_across,
    read_along,
    steps_of,
    vectors_of,
)
from tilewright.passes.packed.runs import BROKEN, WHOLE
from tilewright.passes.packed.scalar_panels import copy_parts, pack_steps
from tilewright.passes.packed.squares import by_mark, joined, transpose
from tilewright.passes.packed.tile_columns import may_pack_columns, pack_columns
from tilewright.passes.packed.tile_rows import pack_tile_rows
from tilewright.passes.packed.writer import PackedWriter, Side, run_is

# As much of a row of the vector side, where it lies in main memory: longer pieces come faster.
LONG_READ = 512
# Steps of the sum that packing is ahead with its requests for what lies in main memory.
STEPS_AHEAD = 12
# Rows of the scalar side that are copied together, and how many vectors ahead of each are asked for.
ROWS = 8
GROUPS_AHEAD = 8


def pack(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """Fill the panels of a block of `count` elements for a piece of `depth` of the sum."""
    if side.name == "s" and w.form.scalar_in_place:
        return
    if side.name == "s":
        in_tiles = w.form.in_tiles
        (pack_tile_rows if in_tiles else _pack_rows if w.form.scalar_rows else pack_steps)(w, side, count, depth)
        clear_missing(w, side, count, depth)
        return
    _pack_panels(w, side, count, depth)
    clear_missing(w, side, count, depth)


def _pack_panels(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """The panels of the vector side."""
    if is_packed_on_the_way(w, side):
        if side.runs.ends:
            _pack_last(w, side, count, depth)
        return
    panels = w.panels(count, side.width)

    def panel(number: Expression) -> None:
        if w.form.lanes > 1:
            _pack_vectors(w, side, number, count, depth)
            return
        first = w.emit.let(multiply(number, integer(side.width)), "first")
        base = w.emit.let(multiply(first, side.pitch), "panel")
        _pack_elements(w, side, first, integer(0), base, (integer(0), depth), integer(side.width))

    if may_pack_columns(w, side):
        pack_columns(w, side, count, depth, panel)
        return
    together = max(1, LONG_READ // (side.width * side.operand.element.bytes))
    if together == 1 or w.form.lanes == 1 or not w.form.far or WHOLE not in side.runs.source:
        w.loop("panel", integer(0), panels, panel)
        return

    def group(number: Expression) -> None:
        first = w.emit.let(multiply(number, integer(together)), "first_panel")
        stop = w.emit.let(operation("min", add(first, integer(together)), panels), "end_panel")
        if side.runs.source == {WHOLE}:
            end = add(first, integer(together))
            all_whole = operation("le", multiply(end, integer(side.width)), _filled(w, side, count))
        else:
            whole = operation("eq", operation("sub", stop, first), integer(together))
            number = w.emit.let(operation("select", whole, first, integer(0)), "whole_panel")
            least = w.emit.let(_least_run(w, side, number, together), "least")
            all_whole = operation("and", whole, run_is(least, WHOLE))
        w.branch(
            all_whole,
            lambda: _copy_runs(w, side, first, together, [integer(i) for i in vectors], depth, 1),
            lambda: w.loop("panel", first, stop, panel),
        )

    vectors = range(0, side.width, w.form.lanes)
    groups = operation("floordiv", add(panels, integer(together - 1)), integer(together))
    w.loop("group", integer(0), w.emit.let(groups, "groups"), group)


def _pack_last(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """The last panel of a block, if it is not full."""
    number = w.emit.let(operation("floordiv", count, integer(side.width)), "last_panel")
    ends = operation("lt", multiply(number, integer(side.width)), count)
    w.emit.when(ends, lambda: _pack_vectors(w, side, number, count, depth))


def _least_run(w: PackedWriter, side: Side, number: Expression, several: int) -> Expression:
    """The least mark of the vectors of `several` panels from panel `number` on."""
    first = w.emit.let(multiply(number, integer(w.form.vectors)), "first_vector")
    least: Expression = load(side.source_runs, first)
    for vector in range(1, several * w.form.vectors):
        least = operation("min", least, load(side.source_runs, add(first, integer(vector))))
        least = w.emit.let(least, "least")
    return least


def _pack_rows(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """rows[j][k]: the sum stays innermost; what is consecutive in the operand is copied in vectors, of several rows at
    once, so that rows that lie together in the operand are read together.
    """
    groups = vectors_of(w, depth)
    rows = w.emit.let(multiply(w.panels(count, side.width), integer(side.width)), "rows")
    together = w.emit.let(operation("floordiv", rows, integer(ROWS)), "together")

    def rows_at(number: Expression) -> None:
        _copy_rows(w, side, w.emit.let(multiply(number, integer(ROWS)), "j"), ROWS, groups, depth)

    w.loop("rows", integer(0), together, rows_at)
    rest = w.emit.let(multiply(together, integer(ROWS)), "rest")
    w.loop("j", rest, rows, lambda j: _copy_rows(w, side, j, 1, groups, depth))


def _copy_rows(
    w: PackedWriter, side: Side, first: Expression, several: int, groups: Expression, depth: Expression
) -> None:
    """So many rows from row `first` on: `groups` vectors of each, then what is left of the piece."""
    emit, lanes = w.emit, w.form.lanes
    starts = [emit.let(load(side.source_table, add(first, integer(row))), "from") for row in range(several)]
    bases = [emit.let(multiply(add(first, integer(row)), side.pitch), "row") for row in range(several)]
    steps = steps_of(w, depth)
    last = emit.let(operation("sub", steps, integer(1)), "last_step")

    def element(k: Expression) -> None:
        along = all_along(w, side, k)
        for start, base in zip(starts, bases, strict=True):
            copy_parts(w, side, read_across(w, side, start, along, 1), add(base, k))

    def group(number: Expression) -> None:
        k = emit.let(multiply(number, integer(lanes)), "k")
        if w.form.scalar_far:
            later = emit.let(operation("min", add(k, integer(GROUPS_AHEAD * lanes)), last), "later")
            ahead = emit.let(along_sum(w, side, later), "ahead")
            for start in starts:
                emit.emit(kernel.Prefetch(side.source, emit.let(add(start, ahead), "at")))

        def copy(parts: int) -> None:
            for part in range(parts):
                here = add(k, integer(part * lanes // parts))
                along = emit.let(along_sum(w, side, here), "along")
                for start, base in zip(starts, bases, strict=True):
                    at = emit.let(add(start, along), "at")
                    copy_parts(w, side, read_along(w, side, at, lanes // parts), add(base, here))

        by_mark(
            w,
            load(side.depth_runs, number),
            side.runs.depth,
            lambda: copy(1),
            lambda: copy(4),
            lambda: w.loop("k", k, add(k, integer(lanes)), element),
        )

    w.loop("group", integer(0), groups, group)
    w.loop("k", multiply(groups, integer(lanes)), steps, element)


def _filled(w: PackedWriter, side: Side, count: Expression) -> Expression:
    """Elements of a block up to which panels need no mask."""
    if side.runs.source_masked:
        return count
    return multiply(w.panels(count, side.width), integer(side.width))


def _pack_vectors(w: PackedWriter, side: Side, number: Expression, count: Expression, depth: Expression) -> None:
    """A panel: where its vectors are consecutive (or their quarters), all of them at each step of the sum, so that what
    lies together in the operand is read together; else one vector after another.
    """
    lanes, vectors = w.form.lanes, w.form.vectors
    first = w.emit.let(multiply(number, integer(side.width)), "first")
    base = w.emit.let(multiply(first, side.pitch), "panel")
    together: list[Expression] = [integer(vector * lanes) for vector in range(vectors)]

    def copy(places: list[Expression], parts: int) -> None:
        _copy_runs(w, side, number, 1, places, depth, parts)

    if side.runs.source_masked:
        left = w.emit.let(operation("sub", count, first), "left")

        def whole() -> None:
            inside = operation("ge", left, integer(side.width))
            w.branch(
                inside, lambda: copy(together, 1), lambda: _copy_runs(w, side, number, 1, together, depth, 1, left)
            )

        def masked(vector: Expression) -> None:
            place = w.emit.let(multiply(vector, integer(lanes)), "place")
            there = w.emit.let(operation("max", operation("sub", left, place), integer(0)), "there")
            w.branch(
                run_is(load(side.source_runs, add(operation("floordiv", first, integer(lanes)), vector)), WHOLE),
                lambda: _copy_runs(w, side, number, 1, [place], depth, 1, there),
                lambda: _pack_part(w, side, first, place, base, depth, there),
            )

        if BROKEN not in side.runs.source:
            return whole()
        is_whole = run_is(_least_run(w, side, number, 1), WHOLE)
        return w.branch(is_whole, whole, lambda: w.loop("vector", integer(0), integer(vectors), masked))

    def one_by_one(vector: Expression) -> None:
        place = w.emit.let(multiply(vector, integer(lanes)), "place")
        by_mark(
            w,
            load(side.source_runs, add(operation("floordiv", first, integer(lanes)), vector)),
            side.runs.source,
            lambda: copy([place], 1),
            lambda: copy([place], 4),
            lambda: _pack_along_sum(w, side, first, place, base, depth),
        )

    def in_parts(write: Callable[[], None]) -> None:
        if not may_join_runs(w, side):
            return write()
        inside = operation("le", add(first, integer(side.width)), count)
        return w.branch(inside, lambda: pack_joined(w, side, first, base, depth), write)

    known = len(side.runs.source) == 1
    return by_mark(
        w,
        integer(0) if known else _least_run(w, side, number, 1),
        side.runs.source,
        lambda: copy(together, 1),
        lambda: copy(together, 4),
        lambda: in_parts(lambda: w.loop("vector", integer(0), integer(vectors), one_by_one)),
    )


def _copy_runs(
    w: PackedWriter,
    side: Side,
    number: Expression,
    several: int,
    vectors: list[Expression],
    depth: Expression,
    parts: int,
    left: Expression | None = None,
) -> None:
    """Vectors (parts == 1) or parts of vectors that lie at these places of `several` panels from panel `number` on, one
    step after another; of a far operand what later steps read is asked for. Of one panel with `left` elements only
    these are read, where that is said.
    """
    emit, lanes = w.emit, w.form.lanes // parts
    masks: list[Expression | None] = [None] * (several * len(vectors) * parts)
    if left is not None:
        masks = [w.first_lanes(left, number * lanes) for number in range(len(vectors))]
    starts, targets = [], []
    for panel in range(several):
        first = emit.let(multiply(add(number, integer(panel)), integer(side.width)), "first")
        base = emit.let(multiply(first, side.pitch), "panel")
        for place in (add(vector, integer(part * lanes)) for vector in vectors for part in range(parts)):
            starts.append(emit.let(load(side.source_table, add(first, place)), "from"))
            targets.append(add(base, place))
    steps = steps_of(w, depth)
    last = emit.let(operation("sub", steps, integer(1)), "last_step")

    def ask(k: Expression) -> None:
        later = emit.let(operation("min", add(k, integer(STEPS_AHEAD)), last), "later")
        ahead = emit.let(along_sum(w, side, later), "ahead")
        for start in (*starts[::parts], add(starts[-1], integer(lanes - 1))):
            emit.emit(kernel.Prefetch(side.source, emit.let(add(start, ahead), "at")))

    def copy(k: Expression) -> None:
        if w.form.far:
            ask(k)
        along = all_along(w, side, k)
        row = emit.let(multiply(k, integer(side.width)), "row")
        for start, target, mask in zip(starts, targets, masks, strict=True):
            copy_parts(w, side, read_across(w, side, start, along, lanes, mask), add(target, row), True)

    w.loop("k", integer(0), steps, copy)


def _pack_along_sum(
    w: PackedWriter, side: Side, first: Expression, place: Expression, base: Expression, depth: Expression
) -> None:
    """lanes x lanes pieces that are consecutive along the sum (or whose quarters are) are transposed; the rest is
    copied by elements.
    """
    lanes, steps = w.form.lanes, steps_of(w, depth)
    if side.runs.depth == {BROKEN}:
        return _pack_elements(w, side, first, place, base, (integer(0), steps), integer(lanes))
    groups = vectors_of(w, depth)

    def group(number: Expression) -> None:
        start = w.emit.let(multiply(number, integer(lanes)), "k")
        stop = w.emit.let(add(start, integer(lanes)), "k_end")
        by_mark(
            w,
            load(side.depth_runs, number),
            side.runs.depth,
            lambda: _transpose_piece(w, side, first, place, base, start, 1),
            lambda: _transpose_piece(w, side, first, place, base, start, 4),
            lambda: _pack_elements(w, side, first, place, base, (start, stop), integer(lanes)),
        )

    w.loop("group", integer(0), groups, group)
    rest = w.emit.let(multiply(groups, integer(lanes)), "rest")
    return _pack_elements(w, side, first, place, base, (rest, steps), integer(lanes))


def _pack_part(
    w: PackedWriter,
    side: Side,
    first: Expression,
    place: Expression,
    base: Expression,
    depth: Expression,
    count: Expression,
) -> None:
    """A vector by elements, of which there may be fewer than it has lanes: the others are 0."""
    lanes, steps = w.form.lanes, steps_of(w, depth)

    def clear(k: Expression) -> None:
        for panel in side.panels:
            nothing = kernel.Broadcast(kernel.Constant(0, panel.element), kernel.VectorType(panel.element, lanes))
            w.fill(panel, add(add(base, multiply(k, integer(side.width))), place), nothing, aligned=True)

    w.emit.when(operation("lt", count, integer(lanes)), lambda: w.loop("k", integer(0), steps, clear))
    _pack_elements(w, side, first, place, base, (integer(0), steps), w.minimum(count, integer(lanes)))


def _transpose_piece(
    w: PackedWriter, side: Side, first: Expression, place: Expression, base: Expression, start: Expression, parts: int
) -> None:
    lanes = w.form.lanes
    steps = [add(start, integer(part * lanes // parts)) for part in range(parts)]
    along = [w.emit.let(along_sum(w, side, step), "along") for step in steps]
    rows: list[Value] = []
    for i in range(lanes):
        row = w.emit.let(load(side.source_table, add(first, add(place, integer(i)))), "from")
        places = [w.emit.let(add(row, step), "at") for step in along]
        pieces = [read_along(w, side, at, lanes // parts) for at in places]
        rows.append(tuple(joined(w, list(of_part)) for of_part in zip(*pieces, strict=True)))
    for part, panel in enumerate(side.panels):
        square: list[Expression] = [w.emit.let(in_panel_type(row[part], panel.element), "row") for row in rows]
        for k, column in enumerate(transpose(w, square)):
            at = add(add(base, multiply(add(start, integer(k)), integer(side.width))), place)
            w.fill(panel, at, column, aligned=True)


def _pack_elements(
    w: PackedWriter,
    side: Side,
    first: Expression,
    at: Expression,
    base: Expression,
    piece: tuple[Expression, Expression],
    width: Expression,
) -> None:
    """Element by element, the sum innermost: `width` elements from place `at` of the panel on."""

    def row(i: Expression) -> None:
        place = w.emit.let(add(at, i), "place")
        start = w.emit.let(load(side.source_table, add(first, place)), "from")

        def copy(k: Expression) -> None:
            value = read_across(w, side, start, all_along(w, side, k), 1)
            copy_parts(w, side, value, add(add(base, multiply(k, integer(side.width))), place))

        w.loop("k", *piece, copy)

    w.loop("i", integer(0), width, row)
