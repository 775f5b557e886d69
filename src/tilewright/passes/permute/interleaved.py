"""Copies between rows that lie between each other and rows that lie one after another, in registers.

    split     a0 b0 c0 a1 b1 c1 ...  ⇒  a0 a1 ... | b0 b1 ... | c0 c1 ...
    merged    the other way round

As many vectors as there are rows are read, all of them whole, and as many are written. Each of the latter is picked
from two vectors at a time, which is one instruction where the machine has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.kernel.ir import Buffer, Expression, Shuffle, Space, Store, VectorType, add, integer, load, multiply
from tilewright.passes.permute.interleaving import MERGED_BYTES
from tilewright.passes.permute.writer import PermuteWriter


def split(w: PermuteWriter, first: Expression, rows: int) -> list[Expression]:
    """A vector of each of the rows whose elements lie between each other in the source, from `first` on."""
    lanes = w.form.lanes
    vectors = [w.let(load(w.source, add(first, integer(i * lanes)), lanes), "piece") for i in range(rows)]
    return [_picked(w, vectors, [divmod(i * rows + row, lanes) for i in range(lanes)]) for row in range(rows)]


def write_merged(w: PermuteWriter, source: Expression, target: Expression, columns: Expression) -> None:
    """Merge so many columns of the rows, which begin at `source`; past the caches they are staged before."""
    form = w.form
    # The last piece takes the rest as well, less than another one.
    rows, step = form.row.size, w.parameter("row_from", form.row.source)
    starts = [w.let(add(source, multiply(integer(row), step)), "row") for row in range(rows)]
    stage = Buffer(w.emit.name("stage"), form.word, Space.WORKSPACE, 2 * MERGED_BYTES // w.bytes)
    into, base = (stage, integer(0)) if form.nontemporal else (w.target, target)
    if form.nontemporal:
        w.arrays.append(stage)

    def piece(c: Expression) -> None:
        begin = w.let(add(base, multiply(c, integer(rows))), "begin")
        for number, vector in enumerate(_merged(w, [add(start, c) for start in starts])):
            w.emit.emit(Store(into, add(begin, integer(number * form.lanes)), vector))

    w.overlapping("c", columns, form.lanes, piece)
    if form.nontemporal:
        words = w.let(multiply(columns, integer(rows)), "words")
        w.run(target, integer(0), words, lambda k, lanes, _: load(stage, k, lanes))


def _merged(w: PermuteWriter, starts: Sequence[Expression]) -> list[Expression]:
    """The vectors that follow each other in the target, of rows of the source that begin at `starts`."""
    lanes, rows = w.form.lanes, len(starts)
    vectors = [w.let(load(w.source, start, lanes), "piece") for start in starts]
    return [
        _picked(w, vectors, [(place % rows, place // rows) for place in range(begin, begin + lanes)])
        for begin in range(0, rows * lanes, lanes)
    ]


def _picked(w: PermuteWriter, vectors: Sequence[Expression], picks: Sequence[tuple[int, int]]) -> Expression:
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
