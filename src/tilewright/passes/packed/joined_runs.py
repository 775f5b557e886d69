"""Packing of vectors that lie in two runs of the operand, where runs are at least as long as vectors.

    vector = (end of a run, beginning of the next)
    =>  select(lanes < count, source[first ..], source[last - lanes + 1 ..])

Two loads of which some lanes are read, and one store, where rows are not even whole quarters of vectors: with 33, 50 or
75 elements in a row, products in f32 are 1.08 to 1.15 times as fast as if these were copied one by one (on a Zen 5).
Where nothing else is to be done, register tiles do it on the way (on_the_way.py).
"""

from __future__ import annotations

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, U8
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, Store, add, integer, load, multiply, operation
from tilewright.passes.packed.reading import all_along, along_sum, read_across, steps_of
from tilewright.passes.packed.runs import run_length, takes_masks
from tilewright.passes.packed.scalar_panels import copy_parts
from tilewright.passes.packed.writer import PackedWriter, Side

STEPS_AHEAD = 12  # of the sum that packing is ahead with its requests for what lies in main memory


@dataclass(frozen=True)
class JoinedVector:
    """Where a vector's elements lie: those of the first run, whose lanes are `head`, from `start` on; the others as if
    the vector began at `following`.
    """

    start: Expression
    following: Expression
    head: Expression
    tail: Expression


def may_join_runs(w: PackedWriter, side: Side) -> bool:
    """Whether vectors of the vector side lie in two runs of the operand at the most."""
    form = w.form
    if form.any_shape or side.name != "v" or form.boxes is not None or form.dots is not None or len(side.panels) != 1:
        return False
    long = run_length([(one.size, one.stride) for one in side.dimensions]) >= form.lanes
    return long and not side.operand.element.is_complex and takes_masks(side.operand.element, form.lanes)


def count_heads(w: PackedWriter, side: Side, count: Expression) -> None:
    """How many elements of each vector of the block follow its first one in memory, or are it."""
    emit, lanes = w.emit, w.form.lanes

    def vector(number: Expression) -> None:
        first = emit.let(multiply(number, integer(lanes)), "first")
        start = emit.let(load(side.source_table, first), "from")
        found = emit.declare(integer(0), "count")

        def lane(at: Expression) -> None:
            follows = operation("eq", load(side.source_table, add(first, at)), add(start, at))
            emit.when(follows, lambda: emit.assign(found, add(found, integer(1))))

        w.loop("lane", integer(0), integer(lanes), lane)
        emit.emit(Store(side.source_heads, number, kernel.Cast(found, U8)))

    w.loop("vector", integer(0), emit.let(operation("floordiv", count, integer(lanes)), "vectors"), vector)


def joined_vectors(w: PackedWriter, side: Side, first: Expression) -> list[JoinedVector]:
    """Those of the full panel that begins with element `first`."""
    emit, lanes = w.emit, w.form.lanes
    kind = kernel.VectorType(BOOL, lanes)
    found = []
    for number in range(w.form.vectors):
        place = emit.let(add(first, integer(number * lanes)), "place")
        start = emit.let(load(side.source_table, place), "from")
        end = load(side.source_table, add(place, integer(lanes - 1)))
        count = load(side.source_heads, operation("floordiv", place, integer(lanes)))
        head = emit.let(kernel.FirstLanes(emit.let(kernel.Cast(count, I64), "count"), kind), "head")
        following = emit.let(operation("sub", end, integer(lanes - 1)), "next")
        found.append(JoinedVector(start, following, head, emit.let(operation("not", head), "tail")))
    return found


def read_joined(w: PackedWriter, side: Side, vector: JoinedVector, along: list[Expression]) -> Expression:
    """The vector at a step of the sum."""
    (one,) = read_across(w, side, vector.start, along, w.form.lanes, vector.head)
    (other,) = read_across(w, side, vector.following, along, w.form.lanes, vector.tail)
    return w.emit.let(operation("select", vector.head, one, other), "joined")


def pack_joined(w: PackedWriter, side: Side, first: Expression, base: Expression, depth: Expression) -> None:
    """The full panel that begins with element `first`, at `base`."""
    emit, lanes = w.emit, w.form.lanes
    vectors = joined_vectors(w, side, first)
    steps = steps_of(w, depth)
    last = emit.let(operation("sub", steps, integer(1)), "last_step")

    def step(k: Expression) -> None:
        if w.form.far:
            later = emit.let(operation("min", add(k, integer(STEPS_AHEAD)), last), "later")
            ahead = emit.let(along_sum(w, side, later), "ahead")
            for start in (*(one.start for one in vectors), add(vectors[-1].following, integer(lanes - 1))):
                emit.emit(kernel.Prefetch(side.source, emit.let(add(start, ahead), "at")))
        along = all_along(w, side, k)
        row = emit.let(add(base, multiply(k, integer(side.width))), "row")
        for number, vector in enumerate(vectors):
            copy_parts(w, side, (read_joined(w, side, vector, along),), add(row, integer(number * lanes)), True)

    w.loop("k", integer(0), steps, step)
