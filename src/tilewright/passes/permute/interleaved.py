"""Copies between rows that lie between each other and rows that lie one after another, in registers.

    split     a0 b0 c0 a1 b1 c1 ...  ⇒  a0 a1 ... | b0 b1 ... | c0 c1 ...
    merged    the other way round

As many vectors as there are rows are read, all of them whole, and as many are written. Each of the latter is picked
from two vectors at a time, which is one instruction where the machine has it. As many rows as a cache line holds of
their elements are merged as a square.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.scalars import BOOL
from tilewright.kernel.ir import (
    Buffer,
    Expression,
    FirstLanes,
    Prefetch,
    Shuffle,
    Space,
    Store,
    VectorType,
    Window,
    add,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.passes.permute.interleaving import MERGED_BYTES
from tilewright.passes.permute.squares import squared
from tilewright.passes.permute.tiles import LINE, PermuteDimension
from tilewright.passes.permute.writer import PermuteWriter

AHEAD = 64  # vectors of an array that are asked for before their turn


def split(w: PermuteWriter, first: Expression, rows: int) -> list[Expression]:
    """A vector of each of the rows whose elements lie between each other in the source, from `first` on."""
    lanes = w.form.lanes
    vectors = [w.let(load(w.source, add(first, integer(i * lanes)), lanes), "piece") for i in range(rows)]
    return [picked(w, vectors, [divmod(i * rows + row, lanes) for i in range(lanes)]) for row in range(rows)]


def write_merged(w: PermuteWriter, source: Expression, target: Expression, columns: Expression) -> None:
    """Merge so many columns of the rows, which begin at `source`; past the caches they are staged before."""
    form = w.form
    # The last piece takes the rest as well, less than another one.
    rows, step = form.row.size, w.parameter("row_from", form.row.source)
    starts = [w.let(add(source, multiply(integer(row), step)), "row") for row in range(rows)]

    def piece(c: Expression) -> list[Expression]:
        return _merged(w, [add(start, c) for start in starts])

    def asking(c: Expression) -> list[Expression]:
        for start in starts:
            w.emit.emit(Prefetch(w.source, add(add(start, c), integer(AHEAD * form.lanes))))
        return piece(c)

    def written(into: Buffer, base: Expression, c: Expression) -> None:
        begin = w.let(add(base, multiply(c, integer(rows))), "begin")
        for number, vector in enumerate(piece(c)):
            w.emit.emit(Store(into, add(begin, integer(number * form.lanes)), vector))

    if not form.nontemporal:
        w.overlapping("c", columns, form.lanes, lambda c: written(w.target, target, c))
    elif has_lines(w):
        write_past(w, [target], columns, lambda c: [asking(c)], lambda last: written(w.target, target, last))
    else:
        stage = Buffer(w.emit.name("stage"), form.word, Space.WORKSPACE, 2 * MERGED_BYTES // w.bytes)
        w.arrays.append(stage)
        w.overlapping("c", columns, form.lanes, lambda c: written(stage, integer(0), c))
        words = w.let(multiply(columns, integer(rows)), "words")
        w.run(target, integer(0), words, lambda k, lanes, _: load(stage, k, lanes))


def write_split(
    w: PermuteWriter, source: Expression, target: Expression, rows: Expression, column: PermuteDimension
) -> None:
    """Split so many elements of each row, which begin at `source`, past the caches."""
    form = w.form
    step, to_step = w.parameter("row_from", form.row.source), w.parameter("to_step", column.target)
    targets = [w.let(add(target, multiply(integer(c), to_step)), "to") for c in range(form.width)]

    def piece(r: Expression) -> list[Expression]:
        first = w.let(add(source, multiply(r, step)), "first")
        for number in range(form.width):
            w.emit.emit(Prefetch(w.source, add(first, integer((AHEAD + number) * form.lanes))))
        return split(w, first, form.width)

    def last_ones(r: Expression) -> None:
        for to, vector in zip(targets, piece(r), strict=True):
            w.emit.emit(Store(w.target, add(to, r), vector))

    write_past(w, targets, rows, lambda r: [[vector] for vector in piece(r)], last_ones)


def has_lines(w: PermuteWriter) -> bool:
    """Whether a vector is a cache line."""
    return w.form.lanes * w.bytes == LINE


def write_past(
    w: PermuteWriter,
    targets: Sequence[Expression],
    count: Expression,
    piece: Callable[[Expression], Sequence[Sequence[Expression]]],
    last: Callable[[Expression], None],
) -> None:
    """Write arrays from one end to the other in whole cache lines past the caches: `piece(i)` gives the next vectors of
    each, of as many elements from i on as a vector has lanes; each line is a window over two of them. What is left of
    `count` elements `last(i)` writes, with some that are moved for the second time, from i on."""
    lanes = w.form.lanes
    kind, mask = VectorType(w.form.word, lanes), VectorType(BOOL, lanes)
    odds = [w.up_to(to, LINE) for to in targets]
    each: list[int] = []

    def lines(i: Expression, before: Sequence[Expression | None]) -> list[Expression]:
        found = piece(i)
        each[:] = [len(vectors) for vectors in found]
        for to, odd, vectors, one in zip(targets, odds, found, before, strict=True):
            place = w.let(add(add(to, odd), multiply(i, integer(len(vectors)))), "place")
            if one is None:
                w.emit.emit(Store(w.target, to, vectors[0], mask=w.let(FirstLanes(odd, mask), "head")))
            old = one
            for number, new in enumerate(vectors):
                if old is not None:
                    value = w.let(Window(old, new, odd, kind), "window")
                    at = add(place, integer((number - 1) * lanes))
                    w.emit.emit(Store(w.target, at, value, aligned=True, nontemporal=True))
                old = new
        return [vectors[-1] for vectors in found]

    carried = [w.emit.declare(vector, "carried") for vector in lines(integer(0), [None] * len(targets))]
    whole = w.let(multiply(operation("floordiv", count, integer(lanes)), integer(lanes)), "whole")

    def step(i: Expression) -> None:
        before = [w.emit.snapshot(one, "before") for one in carried]
        for one, vector in zip(carried, lines(i, before), strict=True):
            w.emit.assign(one, vector)

    w.loop("i", integer(lanes), whole, step, step=lanes)
    for to, odd, one, vectors in zip(targets, odds, carried, each, strict=True):
        end = add(to, multiply(whole, integer(vectors)))
        value = w.let(Window(one, one, odd, kind), "rest")
        some = w.let(FirstLanes(w.let(operation("sub", integer(lanes), odd), "left"), mask), "tail")
        w.emit.emit(Store(w.target, operation("sub", add(end, odd), integer(lanes)), value, mask=some))
    w.when(operation("ne", whole, count), lambda: last(w.let(operation("sub", count, integer(lanes)), "last")))


def _merged(w: PermuteWriter, starts: Sequence[Expression]) -> list[Expression]:
    """The vectors that follow each other in the target, of rows of the source that begin at `starts`."""
    lanes, rows = w.form.lanes, len(starts)
    vectors = [w.let(load(w.source, start, lanes), "piece") for start in starts]
    if rows == lanes == LINE // w.bytes:
        return squared(w, vectors)
    return [
        picked(w, vectors, [(place % rows, place // rows) for place in range(begin, begin + lanes)])
        for begin in range(0, rows * lanes, lanes)
    ]


def picked(w: PermuteWriter, vectors: Sequence[Expression], picks: Sequence[tuple[int, int]]) -> Expression:
    """The vector of those (vector, lane)."""
    lanes = len(picks)
    kind = VectorType(w.form.word, lanes)
    used = [number for number in range(len(vectors)) if any(one == number for one, _ in picks)]
    found = vectors[used[0]]
    places = [lane if one == used[0] else -1 for one, lane in picks]
    for number in used[1:]:
        both = [lanes + lane if one == number else place for (one, lane), place in zip(picks, places, strict=True)]
        found = w.let(Shuffle(found, vectors[number], tuple(max(0, place) for place in both), kind), "picked")
        places = [lane if place >= 0 else -1 for lane, place in enumerate(both)]
    return found
