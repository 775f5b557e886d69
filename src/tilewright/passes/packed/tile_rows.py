"""Packing of the scalar side into tiles: rows of 64 bytes along the sum, 16 of them in a run of memory (tiles.py).

Where the sum runs along the operand's unit stride, rows are copied in vectors; where the side does, squares of 16
elements by 16 steps are transposed in registers; only what is left goes element by element.
"""

from __future__ import annotations

from tilewright.kernel.ir import Expression, add, integer, load, multiply, operation
from tilewright.kernel.tiles import LANES
from tilewright.passes.packed.reading import all_along, along_sum, read_across, read_along, steps_of, vectors_of
from tilewright.passes.packed.scalar_panels import copy_parts
from tilewright.passes.packed.squares import by_mark, joined, transpose
from tilewright.passes.packed.tiles import groups_of, place_in_tiles
from tilewright.passes.packed.writer import PackedWriter, Side

ROWS_TOGETHER = 8  # which lie together in the operand, as a rule
GROUPS_AHEAD = 8


def pack_tile_rows(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """Fill the tiles of a block of `count` elements of the scalar side for a piece of `depth` of the sum."""
    rows = w.emit.let(multiply(w.panels(count, side.width), integer(side.width)), "rows")
    if w.form.scalar_rows:
        w.loop("row", integer(0), rows, lambda j: _copy_rows(w, side, j, depth), ROWS_TOGETHER)
    else:
        w.loop("row", integer(0), rows, lambda j: _transpose_rows(w, side, j, depth), LANES)


def _copy_rows(w: PackedWriter, side: Side, first: Expression, depth: Expression) -> None:
    """A few rows, whose vectors are consecutive along the sum (or their quarters are)."""
    emit, steps, groups = w.emit, steps_of(w, depth), vectors_of(w, depth)
    starts = [emit.let(load(side.source_table, add(first, integer(row))), "from") for row in range(ROWS_TOGETHER)]
    base = emit.let(place_in_tiles(side, first, integer(0)), "tile_row")
    last = emit.let(operation("sub", steps, integer(1)), "last_step")

    def element(k: Expression) -> None:
        along = all_along(w, side, k)
        at = emit.let(place_in_tiles(side, first, k), "element_at")
        for row, start in enumerate(starts):
            copy_parts(w, side, read_across(w, side, start, along, 1), add(at, integer(row * LANES)))

    def group(number: Expression) -> None:
        k = emit.let(multiply(number, integer(LANES)), "k")
        to = emit.let(add(base, multiply(k, integer(side.width))), "to")
        if w.form.scalar_far:
            later = emit.let(operation("min", add(k, integer(GROUPS_AHEAD * LANES)), last), "later")
            w.ask_for(side.source, starts, emit.let(along_sum(w, side, later), "ahead"))

        def copy(parts: int) -> None:
            for part in range(parts):
                place = part * LANES // parts
                along = emit.let(along_sum(w, side, add(k, integer(place))), "along")
                for row, start in enumerate(starts):
                    value = read_along(w, side, emit.let(add(start, along), "at"), LANES // parts)
                    copy_parts(w, side, value, add(to, integer(row * LANES + place)), parts == 1)

        by_mark(
            w,
            load(side.depth_runs, number),
            side.runs.depth,
            lambda: copy(1),
            lambda: copy(4),
            lambda: w.loop("k", k, add(k, integer(LANES)), element),
        )

    w.loop("group", integer(0), groups, group)
    w.loop("k", multiply(groups, integer(LANES)), steps, element)


def _transpose_rows(w: PackedWriter, side: Side, first: Expression, depth: Expression) -> None:
    """16 rows: at each step their elements are consecutive in the operand (or those of quarters are)."""
    emit, steps = w.emit, steps_of(w, depth)
    base = emit.let(place_in_tiles(side, first, integer(0)), "tile_rows")
    starts = [emit.let(load(side.source_table, add(first, integer(4 * part))), "from") for part in range(4)]

    def squares(parts: int) -> None:
        def square(number: Expression) -> None:
            k = emit.let(multiply(number, integer(LANES)), "k")
            vectors: list[Expression] = []
            for step in range(LANES):
                along = all_along(w, side, add(k, integer(step)))
                pieces = [read_across(w, side, start, along, LANES // parts)[0] for start in starts[:parts]]
                vectors.append(joined(w, pieces))
            to = emit.let(add(base, multiply(k, integer(side.width))), "to")
            for row, column in enumerate(transpose(w, vectors)):
                copy_parts(w, side, (column,), add(to, integer(row * LANES)), True)

        w.loop("square", integer(0), groups_of(w, steps), square)

    def elements(row: Expression) -> None:
        start = emit.let(load(side.source_table, row), "from")

        def element(k: Expression) -> None:
            copy_parts(w, side, read_across(w, side, start, all_along(w, side, k), 1), place_in_tiles(side, row, k))

        w.loop("k", integer(0), steps, element)

    by_mark(
        w,
        load(side.source_runs, operation("floordiv", first, integer(LANES))),
        side.runs.source,
        lambda: squares(1),
        lambda: squares(4),
        lambda: w.loop("row", first, add(first, integer(LANES)), elements),
    )
