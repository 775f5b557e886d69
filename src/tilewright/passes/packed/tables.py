"""Offset tables of the packed form: where the elements of a block lie in memory, and which of them lie side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.scalars import U8
from tilewright.kernel.ir import Buffer, Cast, Expression, Name, Store, add, integer, load, multiply, operation
from tilewright.kernel.tiles import LANES
from tilewright.passes.packed.epilogue import along_vectors
from tilewright.passes.packed.joined_runs import count_heads, may_join_runs
from tilewright.passes.packed.reading import steps_of
from tilewright.passes.packed.runs import BROKEN, QUARTERS, WHOLE
from tilewright.passes.packed.tiles import groups_of
from tilewright.passes.packed.writer import PackedWriter, Side


def walk(
    w: PackedWriter,
    start: Expression,
    count: Expression,
    sizes: Sequence[Expression],
    visit: Callable[[Expression, list[Expression]], None],
) -> None:
    """`visit(position, indices)` for position < count: the indices of flat index start + position, counted up without
    a division for each.
    """
    indices: list[Name] = []
    rest = start
    for position in reversed(range(len(sizes))):
        index = rest if position == 0 else operation("mod", rest, sizes[position])
        indices.insert(0, w.emit.declare(index, "index"))
        if position:
            rest = w.emit.let(operation("floordiv", rest, sizes[position]), "rest")

    def advance(position: int) -> None:
        w.emit.assign(indices[position], add(indices[position], integer(1)))
        if position:

            def carry() -> None:
                w.emit.assign(indices[position], integer(0))
                advance(position - 1)

            w.emit.when(operation("ge", indices[position], sizes[position]), carry)

    def step(position: Expression) -> None:
        visit(position, list(indices))
        if indices:
            advance(len(indices) - 1)

    w.loop("position", integer(0), count, step)


def offset_of(indices: Sequence[Expression], strides: Sequence[Expression]) -> Expression:
    """The sum of indices times strides."""
    total: Expression = integer(0)
    for index, stride in zip(indices, strides, strict=True):
        total = add(total, multiply(index, stride))
    return total


def fill_tables(w: PackedWriter, side: Side, start: Expression, count: Expression, base: Expression) -> Expression:
    """Offsets of the block's elements; the last panel (of each box) is filled up with copies of its last quarter of a
    vector. Returns how many elements that gives.

    So a block that ends with a whole quarter is still copied in quarters. Where one kernel serves all shapes and masks
    keep what is no element from being read and written, it is filled up with places behind the last element: so the
    last vector is whole if its elements are consecutive, however many there are.
    """
    boxes = w.form.boxes
    if boxes is None or side.name != "v":
        _fill_part(w, side, start, count, base, integer(0))
        return count
    size, padded = w.parameter("v_box", boxes.vector), w.parameter("v_box_padded", w.form.padded_box)

    def box(number: Expression) -> None:
        at = w.emit.let(multiply(number, padded), "box_at")
        _fill_part(w, side, add(start, multiply(number, size)), size, base, at)

    number = w.emit.let(operation("floordiv", count, size), "boxes")
    w.loop("box", integer(0), number, box)
    return w.emit.let(multiply(number, padded), "count")


def _fill_part(
    w: PackedWriter, side: Side, start: Expression, count: Expression, base: Expression, at: Expression
) -> None:
    quarter = max(1, w.form.lanes // 4)
    strides = [
        side.strides,
        [w.parameter(f"{side.name}{i}_out_stride", d.stride_out) for i, d in enumerate(side.dimensions)],
        *(
            [w.parameter(f"{side.name}{i}_further_stride", d.further[which]) for i, d in enumerate(side.dimensions)]
            for which in range(len(side.further_tables))
        ),
    ]
    tables = (side.source_table, side.out_table, *side.further_tables)

    def fill(position: Expression, indices: list[Expression]) -> None:
        for table, of in zip(tables, strides, strict=True):
            offset = offset_of(indices, of)
            w.emit.emit(Store(table, add(at, position), add(offset, base) if table is side.source_table else offset))

    def repeat(position: Expression) -> None:
        inside: Expression = operation("sub", count, integer(1))
        if side.runs.source_masked and BROKEN in side.runs.source:
            behind = operation("sub", position, inside)
            for table in tables:
                w.emit.emit(Store(table, add(at, position), add(load(table, add(at, inside)), behind)))
            return
        if (side.name == "v" or w.form.in_tiles) and quarter > 1:
            past = operation("and", operation("sub", position, count), integer(quarter - 1))
            inside = operation("max", add(operation("sub", count, integer(quarter)), past), integer(0))
        inside = w.emit.let(inside, "inside")
        for table in tables:
            w.emit.emit(Store(table, add(at, position), load(table, add(at, inside))))

    walk(w, start, count, side.sizes, fill)
    padded = multiply(w.panels(count, side.width), integer(side.width))
    w.loop("position", count, w.emit.let(padded, "padded"), repeat)


def fill_depth_tables(
    w: PackedWriter, vector: Side, scalar: Side, sizes: Sequence[Expression], start: Expression, depth: Expression
) -> None:
    """Offsets of the piece's steps of the sum in both operands."""

    def fill(position: Expression, indices: list[Expression]) -> None:
        for side in (vector, scalar):
            w.emit.emit(Store(side.depth_table, position, offset_of(indices, side.depth_strides)))

    walk(w, start, depth, sizes, fill)
    _fill_up(w, (vector, scalar), depth)
    if w.form.lanes > 1:
        _mark_depth_runs(w, vector, depth)
    if w.form.scalar_rows:
        _mark_depth_runs(w, scalar, depth)


def _fill_up(w: PackedWriter, sides: tuple[Side, Side], depth: Expression) -> None:
    """Copies of the last step, up to as many as are taken together, or as squares of the scalar side have."""
    form, squares = w.form, w.form.in_tiles and not w.form.scalar_rows
    if not (form.ends_in_tile if squares else form.ragged):
        return
    last, steps = operation("sub", depth, integer(1)), steps_of(w, depth)
    if squares:
        steps = multiply(groups_of(w, steps), integer(LANES))

    def repeat(position: Expression) -> None:
        for side in sides:
            w.emit.emit(Store(side.depth_table, position, load(side.depth_table, last)))

    w.loop("position", depth, w.emit.let(multiply(steps, integer(form.together)), "filled"), repeat)


def _mark_depth_runs(w: PackedWriter, side: Side, depth: Expression) -> None:
    """For each vector of steps of the sum: `WHOLE`, `QUARTERS` or 0, in the operand."""
    if len(side.runs.depth) == 1:
        return
    length = w.form.lanes * w.form.together
    groups = operation("floordiv", depth, integer(length))
    tables = [(side.depth_table, 1)]
    w.loop("group", integer(0), groups, lambda group: _mark_run(w, group, length, tables, side.depth_runs))


def mark_runs(w: PackedWriter, side: Side, count: Expression, is_written: bool = True) -> None:
    """For each vector of the block: `WHOLE`, `QUARTERS` or 0, in the operand and in the output, where that is not known
    beforehand. In the output the epilogue's operands must be consecutive or constant along the vector as well, where
    they are so along its innermost dimension.
    """
    lanes = w.form.lanes
    padded = w.emit.let(multiply(w.panels(count, side.width), integer(side.width // lanes)), "vectors")
    written = [(side.out_table, 1)]
    if len(side.dimensions) > 1:
        kinds = [along_vectors(w.form, number).value for number in range(len(side.further_tables))]
        written += [(t, step) for t, step in zip(side.further_tables, kinds, strict=True) if step is not None]

    unknown = [
        (tables, runs)
        for tables, runs, marks in (
            ([(side.source_table, 1)], side.source_runs, side.runs.source),
            (written, side.out_runs, side.runs.out),
        )
        if len(marks) > 1 and (is_written or marks is side.runs.source)
    ]

    def mark(vector: Expression) -> None:
        for tables, runs in unknown:
            _mark_run(w, vector, w.form.lanes, tables, runs)

    if unknown:
        w.loop("vector", integer(0), padded, mark)
    if may_join_runs(w, side) and side.runs.source != {WHOLE}:
        count_heads(w, side, count)


def _mark_run(
    w: PackedWriter, number: Expression, lanes: int, tables: Sequence[tuple[Buffer, int]], runs: Buffer
) -> None:
    """Whether all entries of vector `number` lie at these distances from each other in these tables, or those of its
    quarters do.
    """
    quarter = max(1, lanes // 4)
    start = w.emit.let(multiply(number, integer(lanes)), "start")
    together = w.emit.declare(integer(WHOLE), "together")

    def compare(lane: Expression) -> None:
        here = add(start, lane)
        at_quarter = operation("eq", operation("and", lane, integer(quarter - 1)), integer(0))
        found = operation("select", at_quarter, integer(QUARTERS), integer(0))
        for table, distance in tables:
            step = operation("sub", load(table, here), load(table, add(here, integer(-1))))
            broken = operation("ne", step, integer(distance))
            w.emit.when(broken, lambda: w.emit.assign(together, operation("min", together, found)))

    w.loop("lane", integer(1), integer(lanes), compare)
    w.emit.emit(Store(runs, number, Cast(together, U8)))
