"""Packing of vectors that lie in two runs of the operand, where runs are at least as long as vectors.

    vector = (end of a run, beginning of the next)
    =>  select(lanes < count, source[first ..], source[last - lanes + 1 ..])

Two loads of which some lanes are read, and one store, where rows are not even whole quarters of vectors: with 33, 50 or
75 elements in a row, products in f32 are 1.08 to 1.15 times as fast as if these were copied one by one (on a Zen 5).
"""

from __future__ import annotations

from tilewright.ir.scalars import BOOL
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.packed.reading import all_along, along_sum, read_across, steps_of
from tilewright.passes.packed.runs import run_length, takes_masks
from tilewright.passes.packed.scalar_panels import copy_parts
from tilewright.passes.packed.writer import PackedWriter, Side

STEPS_AHEAD = 12  # of the sum that packing is ahead with its requests for what lies in main memory


def may_join_runs(w: PackedWriter, side: Side) -> bool:
    """Whether vectors of the vector side lie in two runs of the operand at the most."""
    form = w.form
    if form.any_shape or side.name != "v" or form.boxes is not None or form.dots is not None or len(side.panels) != 1:
        return False
    long = run_length([(one.size, one.stride) for one in side.dimensions]) >= form.lanes
    return long and not side.operand.element.is_complex and takes_masks(side.operand.element, form.lanes)


def pack_joined(w: PackedWriter, side: Side, first: Expression, base: Expression, depth: Expression) -> None:
    """The full panel that begins with element `first`, at `base`."""
    emit, lanes, vectors = w.emit, w.form.lanes, w.form.vectors
    parts = []
    for number in range(vectors):
        place = emit.let(add(first, integer(number * lanes)), "place")
        start = emit.let(load(side.source_table, place), "from")
        end = load(side.source_table, add(place, integer(lanes - 1)))
        head = emit.let(kernel.FirstLanes(_of_first_run(w, side, place, start), kernel.VectorType(BOOL, lanes)), "head")
        tail = emit.let(operation("not", head), "tail")
        parts.append((start, emit.let(operation("sub", end, integer(lanes - 1)), "next"), head, tail))
    steps = steps_of(w, depth)
    last = emit.let(operation("sub", steps, integer(1)), "last_step")

    def step(k: Expression) -> None:
        if w.form.far:
            later = emit.let(operation("min", add(k, integer(STEPS_AHEAD)), last), "later")
            ahead = emit.let(along_sum(w, side, later), "ahead")
            for start in (*(one[0] for one in parts), add(parts[-1][1], integer(lanes - 1))):
                emit.emit(kernel.Prefetch(side.source, emit.let(add(start, ahead), "at")))
        along = all_along(w, side, k)
        row = emit.let(add(base, multiply(k, integer(side.width))), "row")
        for number, (start, following, head, tail) in enumerate(parts):
            (one,) = read_across(w, side, start, along, lanes, head)
            (other,) = read_across(w, side, following, along, lanes, tail)
            joined = emit.let(operation("select", head, one, other), "joined")
            copy_parts(w, side, (joined,), add(row, integer(number * lanes)), True)

    w.loop("k", integer(0), steps, step)


def _of_first_run(w: PackedWriter, side: Side, place: Expression, start: Expression) -> Name:
    """How many elements of the vector at a place of the table follow the first one, which is at `start`, or are it."""
    emit = w.emit
    count = emit.declare(integer(0), "count")

    def lane(at: Expression) -> None:
        follows = operation("eq", load(side.source_table, add(place, at)), add(start, at))
        emit.when(follows, lambda: emit.assign(count, add(count, integer(1))))

    w.loop("lane", integer(0), integer(w.form.lanes), lane)
    return count
