"""What packing reads of an operand: its elements as the panels hold them, one step of the sum or, where an instruction
takes several (dots.py), so many of them side by side in a lane.
"""

from __future__ import annotations

from tilewright.ir.scalars import U32
from tilewright.kernel import ir as kernel
from tilewright.kernel.dots import Bits
from tilewright.kernel.ir import Buffer, Constant, Expression, add, integer, load, multiply, operation
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.packed.dots import as_bits
from tilewright.passes.packed.operands import load_parts
from tilewright.passes.packed.tiles import clear_to_whole_tiles, place_in_tiles
from tilewright.passes.packed.writer import PackedWriter, Side

SIGNS = 0x80808080  # the upper bits of four bytes


def steps_of(w: PackedWriter, depth: Expression) -> Expression:
    """Steps that panels hold of a piece of the sum: of it, or of as many of its own as are taken together."""
    together = w.form.together
    if together == 1:
        return depth
    return w.emit.let(operation("floordiv", add(depth, integer(together - 1)), integer(together)), "steps")


def vectors_of(w: PackedWriter, depth: Expression) -> Expression:
    """Whole vectors of steps in a piece of the sum."""
    return w.emit.let(operation("floordiv", depth, integer(w.form.lanes * w.form.together)), "groups")


def along_sum(w: PackedWriter, side: Side, step: Expression) -> Expression:
    """How far a step lies along the operand: the first, of several that are taken together."""
    return load(side.depth_table, multiply(step, integer(w.form.together)))


def all_along(w: PackedWriter, side: Side, step: Expression) -> list[Expression]:
    """How far each of the steps that are taken together lies along the operand."""
    first = multiply(step, integer(w.form.together))
    return [
        w.emit.let(load(side.depth_table, add(first, integer(number))), "along") for number in range(w.form.together)
    ]


def read_across(
    w: PackedWriter, side: Side, start: Expression, along: list[Expression], lanes: int, mask: Expression | None = None
) -> Value:
    """`lanes` neighbours from `start` on, at one step: where several are taken together, each is read and put into its
    part of the lanes.
    """
    emit = w.emit
    places = [emit.let(add(start, one), "at") for one in along]
    if w.form.dots is None:
        return load_parts(side.source, side.operand.element, places[0], lanes, emit, mask)
    raw = as_bits(side.source)
    found: Expression | None = None
    for number, at in enumerate(places):
        wide = kernel.Cast(emit.let(load(raw, at, lanes), "elements"), _packed_type(lanes))
        if found is None:
            found = emit.let(wide, "packed")
        else:
            part = operation("shl", wide, _everywhere(number * raw.element.bits, lanes))
            found = emit.let(operation("or", found, part), "packed")
    assert found is not None
    return (_flipped(w, side, found, lanes),)


def read_along(w: PackedWriter, side: Side, at: Expression, lanes: int) -> Value:
    """`lanes` steps of the sum that follow each other in the operand."""
    if w.form.dots is None:
        return load_parts(side.source, side.operand.element, at, lanes, w.emit)
    bits = w.emit.let(load(as_bits(side.source), at, lanes * w.form.together), "elements")
    packed: Expression = w.emit.let(Bits((bits,), kernel.VectorType(U32, lanes)), "packed")
    return (_flipped(w, side, packed, lanes),)


def clear_missing(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """Zeros for the steps past the end of a sum that is no multiple of those that are taken together, or of tiles."""
    form, emit = w.form, w.emit
    dots = form.dots
    if dots is None:
        return
    if form.in_tiles and form.ends_in_tile:
        clear_to_whole_tiles(w, side, count, steps_of(w, depth))
    if not form.ragged:
        return
    rest = emit.let(operation("mod", depth, integer(dots.together)), "rest")
    steps = steps_of(w, depth)

    def clear() -> None:
        bits = multiply(rest, integer(dots.elements[0].bits))
        kept = kernel.Cast(emit.let(operation("sub", operation("shl", integer(1), bits), integer(1)), "kept"), U32)
        last = emit.let(operation("sub", steps, integer(1)), "last_step")
        mask = emit.let(kept, "kept")
        lanes = form.lanes if side.name == "v" else 1

        def element(i: Expression) -> None:
            if side.name == "s" and form.in_tiles:
                at = place_in_tiles(side, i, last)
            elif side.name == "s" and form.scalar_rows:
                at = add(multiply(i, side.pitch), last)
            else:
                panel = operation("floordiv", i, integer(side.width))
                row = multiply(add(multiply(panel, side.pitch), last), integer(side.width))
                at = add(row, operation("mod", i, integer(side.width)))
            at = emit.let(at, "at")
            (held,) = side.panels
            every = kernel.Broadcast(mask, kernel.VectorType(U32, lanes)) if lanes > 1 else mask
            emit.emit(kernel.Store(held, at, operation("and", load(held, at, lanes), every)))

        padded = multiply(w.panels(count, side.width), integer(side.width))
        w.loop("i", integer(0), emit.let(padded, "padded"), element, lanes)

    emit.when(operation("gt", rest, integer(0)), clear)


def what_zeros_give(w: PackedWriter, vector: Side, count: Expression, depth: Expression) -> Buffer | None:
    """The negative of what zeros of the scalar side give with each element of the vector side, where their upper bits
    are flipped.
    """
    form, emit, dots = w.form, w.emit, w.form.dots
    if dots is None or not dots.flipped:
        return None
    begun = w.workspace("begun", form.accumulator, vector.source_table.size or 0)
    kind = kernel.VectorType(form.accumulator, form.lanes)
    steps, (panel,) = steps_of(w, depth), vector.panels
    zeros = emit.let(_everywhere(SIGNS, form.lanes), "zeros")

    def of_panel(number: Expression) -> None:
        first = emit.let(multiply(number, integer(vector.width)), "first")
        base = emit.let(multiply(first, vector.pitch), "panel")
        nothing = kernel.Broadcast(Constant(0, form.accumulator), kind)
        sums = [emit.declare(nothing, "sum") for _ in range(form.vectors)]

        def step(k: Expression) -> None:
            row = emit.let(add(base, multiply(k, integer(vector.width))), "row")
            for i, total in enumerate(sums):
                held = emit.let(load(panel, add(row, integer(i * form.lanes)), form.lanes, aligned=True), "vector")
                emit.assign(total, dots.of(held, zeros, total))

        w.loop("k", integer(0), steps, step)
        for i, total in enumerate(sums):
            emit.emit(kernel.Store(begun, add(first, integer(i * form.lanes)), operation("neg", total)))

    w.loop("panel", integer(0), w.panels(count, vector.width), of_panel)
    return begun


def _packed_type(lanes: int) -> kernel.ValueType:
    return U32 if lanes == 1 else kernel.VectorType(U32, lanes)


def _everywhere(value: int, lanes: int) -> Expression:
    number = Constant(value, U32)
    return number if lanes == 1 else kernel.Broadcast(number, kernel.VectorType(U32, lanes))


def _flipped(w: PackedWriter, side: Side, packed: Expression, lanes: int) -> Expression:
    """The lanes as the side's panels hold them."""
    assert w.form.dots is not None
    if side.name == "v" or not w.form.dots.flipped:
        return packed
    return w.emit.let(operation("xor", packed, _everywhere(SIGNS, lanes)), "flipped")
