"""Histograms by several workers: each combines a piece of the rows into bins of its own, then bins are folded.

    hist bins (+) 0 index values
    =>  for each piece p: own[p] = bins if p = 0 else (0, ...); own[p, index[i]] += values[i] for the rows i of p
        for each bin b: reduce (+) 0 own[:, b]

Nothing is written by two workers, so that any operator will do, and the pieces depend on sizes and the machine's
numbers alone: a result is the same in every run, of floats too. Where there are so many bins that clearing and folding
them would cost more than the rows, one worker does a whole segment.

On a CPU the bins of rows are computed in vectors (bins.py). On a GPU, the threads of a block share bins in
shared memory where these fit and the operator is one for which the order cannot matter (atomics.py). Otherwise a
thread has a piece, which is every so many-th row, so that neighbouring threads read neighbouring rows; its own bins are
in shared memory, if there is room for those of a whole block, and written out at the end. Of bins that hold rows
themselves (such as the sums of the points of each cluster) each thread combines one element of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Expression, Statement, Type, Variable
from tilewright.ir.scalars import I32, I64, compute_type
from tilewright.ir.sizes import ONE, ZERO, Size, maximum, minimum, size
from tilewright.ir.traversal import sub_bodies
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Constant, Space, ThreadIndex, operation
from tilewright.machine.model import Machine
from tilewright.passes.core.fills import NOTHING, Fills, without_filled
from tilewright.passes.items import lower_folds, lower_segments
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, bind_index, call, lower_body
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.points.lower_general import Places, Points, points_of
from tilewright.passes.segments.atomics import atomic_bins, block_points, room_for_bins
from tilewright.passes.segments.bin_rows import row_histogram_step, row_histograms
from tilewright.passes.segments.bins import COPIES, MOST_BINS, cached_points, copies_of_bins, sums_are_trees
from tilewright.passes.segments.choice import pieces_of_histogram, room_of_thread
from tilewright.passes.segments.computed_rows import computed_rows
from tilewright.passes.segments.form import Chunks, Histograms, Row, Segments, partial_strides
from tilewright.passes.segments.row_folds import elementwise
from tilewright.passes.segments.steps import Kernels, MakeKernel, Variables, fold_step
from tilewright.runtime.host import KernelStep, SegmentPlan, SegmentStep

Pieces: TypeAlias = tuple[KernelStep, int, int]
"""The kernel of the pieces, how many they are (0: it does everything) and how long."""
ChoosePieces: TypeAlias = Callable[[int, int, int], Pieces]
"""Those for so many histograms of so many bins and rows."""


def histograms_of(expression: Expression) -> Histograms | None:
    """The histograms that an expression computes; None if it computes none, or values are arrays."""
    if not isinstance(expression, nodes.Hist | nodes.SegHist):
        return None
    if any(one.type.rank for one in expression.neutral):
        return _histograms_of_elements(expression)
    common = (expression.combine, expression.neutral, expression.destinations)
    bins = expression.destinations[0].type.shape[-1]
    if isinstance(expression, nodes.SegHist):
        *outer, width = expression.space.shape
        narrow = narrowed(expression)
        return Histograms(
            tuple(outer), width, bins, *common, lambda item, at: lower_segments.bin_row(item, expression, at),
            None if narrow is None else lambda item, at: lower_segments.bin_row(item, narrow, at),
        )  # fmt: skip

    def row(item: Item, at: Sequence[Size]) -> Row:
        arrays = lower_folds.arrays_of(item, (expression.indices, *expression.values))
        return lambda index: [item.row(one, index) for one in arrays]

    return Histograms((), expression.indices.type.shape[0], bins, *common, row)


def _histograms_of_elements(expression: nodes.Hist | nodes.SegHist) -> Histograms | None:
    """A histogram of rows as one for each of their elements; None if these are not combined one by one."""
    rows, combine = computed_rows(expression), elementwise(expression.combine)
    if rows is None or combine is None:
        return None
    bins, *inner = expression.destinations[0].type.shape
    width = rows.width

    def row(item: Item, at: Sequence[Size]) -> Row:
        def values(index: Size) -> Sequence[AnyValue]:
            bind_index(item, rows.row, index, width)
            bin_, *parts = lower_body(item, rows.before)
            elements = [item.load(item.as_view(one), at) for one in parts if not isinstance(one, tuple)]
            return [bin_, *call(item, rows.elements, elements)]

        return values

    given = expression.destinations
    return Histograms((), width, bins, combine, expression.neutral, given, row, inner=tuple(inner))


def narrowed(expression: nodes.SegHist) -> nodes.SegHist | None:
    """The histograms with the bin, which is a float made an i64, made an i32; None if it is something else.

    Floats beyond the range of an i32 become its ends, where fewer bins than `MOST_BINS` do not exist either.
    """
    place = expression.body.results[0]
    for one in expression.body.statements:
        match one.expression:
            case nodes.Cast(_, operand) if place in one.targets and operand.type.element.is_float:
                bin_ = Variable(f"{place}.narrow", Type(I32))
                statements = (*expression.body.statements, Statement((bin_,), nodes.Cast(I32, operand)))
                body = nodes.Body(statements, (bin_, *expression.body.results[1:]))
                return dataclasses.replace(expression, body=body)
    return None


def takes_bins(expression: nodes.Hist | nodes.SegHist, machine: Machine) -> bool:
    """Whether a histogram can be told what its bins begin as by `fills`: one whose rows are sure to be lowered."""
    found = histograms_of(expression)
    if found is None or found.inner:
        return found is not None and row_histograms(expression, machine) is not None
    inside = expression.body.statements if isinstance(expression, nodes.SegHist) else ()
    return not any(list(sub_bodies(one.expression)) for one in inside)


def histogram_step(
    statement: Statement, reads: Variables, machine: Machine, threads: int, make: MakeKernel, fills: Fills = NOTHING
) -> tuple[SegmentStep, tuple[KernelStep, ...]] | None:
    """The step of a histogram, and kernels that show whether it can be lowered; None where it is not of a known form.

    Args:
        statement: the histogram. reads: what it uses.
        machine, threads: where it runs, and the threads of a block there (1 on a CPU).
        make: makes the step of a kernel.
        fills: arrays among `reads` that do not exist, because all their elements are one scalar.
    """
    reads = without_filled(reads, fills, statement.expression)
    found = histograms_of(statement.expression)
    if found is not None and found.inner and threads == 1:
        return row_histogram_step(statement, reads, machine, make, fills)
    if found is None:
        return None
    found = dataclasses.replace(found, given=tuple(fills.get(str(one), one) for one in found.given))
    label = str(statement.targets[0])
    pieces = Chunks(f"%pieces.{label}", f"%rows.{label}")
    shape = (size(pieces.count), *found.outer, found.bins, *found.inner)
    own = tuple(
        Variable(f"{target}.own", Type(compute_type(atom.type.element), shape))
        for target, atom in zip(statement.targets, found.neutral, strict=True)
    )
    merge = Kernels(
        _bin_segments(found, own, pieces), statement.targets, (*reads, *own),
        Chunks(f"%chunks.{label}", f"%length.{label}"), machine, threads, make,
    )  # fmt: skip
    folds, _ = fold_step(merge, "_bins")
    work = _Work(statement, found, own, pieces, reads, machine, threads, make)
    choose_pieces, trials = (_in_vectors if threads == 1 else _in_threads)(work)

    def choose(values: tuple[int, ...]) -> SegmentPlan:
        *outer, bins, width = values
        kernel, count, length = choose_pieces(math.prod(outer), bins, width)
        if not count:
            return SegmentPlan((kernel,), ())
        end = folds.choose((*outer[: len(found.outer)], bins, *outer[len(found.outer) :], count))
        sizes = (pieces.count, count), (pieces.length, length), *end.sizes
        return SegmentPlan((kernel, *end.steps), sizes)

    extents = (*found.outer, *found.inner, found.bins, found.width)
    temporaries = (*own, *folds.temporaries)
    return SegmentStep(label, statement.targets, reads, temporaries, extents, choose), trials


@dataclass(frozen=True)
class _Work:
    """Histograms whose pieces have bins of their `own`, and what the kernels have in common."""

    statement: Statement
    found: Histograms
    own: Variables
    pieces: Chunks
    reads: Variables
    machine: Machine
    threads: int
    make: MakeKernel

    @property
    def size_of_bin(self) -> int:
        return sum(one.type.element.bytes for one in self.own)

    def whole(self, points: Points) -> KernelStep:
        """The kernel that does everything."""
        return self.make("", points, self.statement.targets, self.reads)

    def of_pieces(self, points: Points) -> KernelStep:
        """The kernel of the pieces."""
        return self.make("_pieces", points, self.own, self.reads)

    def count_and_length(self, number: int, bins: int, width: int, together: int = 1) -> tuple[int, int]:
        """The pieces of each of so many histograms."""
        return pieces_of_histogram(self.machine, self.threads, number, width, bins, self.size_of_bin, together)


def _in_vectors(work: _Work) -> tuple[ChoosePieces, tuple[KernelStep, ...]]:
    """Each piece by a core; and trials."""

    @functools.cache
    def whole(copies: int, wide: bool, tree: bool) -> KernelStep:
        return work.whole(cached_points(work.found, None, copies, wide, tree))

    @functools.cache
    def first(copies: int, wide: bool, tree: bool) -> KernelStep:
        return work.of_pieces(cached_points(work.found, work.pieces, copies, wide, tree))

    def choose(number: int, bins: int, width: int) -> Pieces:
        count, length = work.count_and_length(number, bins, width)
        copies = copies_of_bins(work.machine, length, bins, work.size_of_bin)
        how = copies, bins > MOST_BINS, sums_are_trees(work.found.combine, length, bins)
        return (whole(*how), 0, 0) if count < 2 else (first(*how), count, length)

    return choose, (whole(1, False, False), whole(COPIES, False, False))


def _in_threads(work: _Work) -> tuple[ChoosePieces, tuple[KernelStep, ...]]:
    """Each piece by a block whose threads share bins, where these fit, or by one thread; and trials."""
    found, pieces, machine, threads = work.found, work.pieces, work.machine, work.threads
    held = None if found.inner else atomic_bins(found)

    @functools.cache
    def whole() -> KernelStep:
        return work.whole(points_of(work.statement.expression, work.statement.targets))

    @functools.cache
    def together(room: int) -> KernelStep:
        return work.of_pieces(block_points(piece_points(found, pieces, threads, 0), found, pieces, threads, room))

    @functools.cache
    def alone(room: int) -> KernelStep:
        return work.of_pieces(piece_points(found, pieces, threads, room))

    def choose(number: int, bins: int, width: int) -> Pieces:
        room = room_for_bins(machine, bins, held) if held is not None else 0
        count, length = work.count_and_length(number, bins, width, threads if room else 1)
        if count < (1 if room or found.inner else 2):
            return whole(), 0, 0
        if room:
            return together(room), count, length
        return alone(room_of_thread(machine, threads, bins, work.size_of_bin)), count, width // count

    return choose, (alone(0) if found.inner else whole(),)


def piece_points(histograms: Histograms, pieces: Chunks, threads: int, room: int) -> Points:
    """Each point combines the rows of one piece of a segment into bins of its own; the first goes on from the given.

    A piece is every so many-th row: `pieces.length` of them, and one more in the first pieces. With `room`, each of the
    `threads` threads of a block has so many bins in shared memory, side by side with those of the others, so that no
    two of them meet in a bank.
    """

    def write_piece(item: Item, at: Sequence[Size], places: Places) -> None:
        emit, outer = item.emit, len(histograms.outer)
        piece, segment = at[outer], [*at[:outer], *at[outer + 1 :]]
        own = [histograms.bins_at(place, (piece, *segment)) for place in places]
        mine = _in_shared_memory(item, own, threads, room) if room else own
        given = [histograms.bins_at(item.as_view(item.arrays[str(one)]), segment) for one in histograms.given]
        is_first = emit.let(operation("eq", lower_size(piece, emit), Constant(0, I64)), "is_first")
        neutral = histograms.neutral_at(item, segment)

        def copy(to: Sequence[ArrayView], sources: Sequence[ArrayView]) -> None:
            def one(bin_: Size) -> None:
                for place, source in zip(to, sources, strict=True):
                    item.store(place, (bin_,), item.load(source, (bin_,)))

            item.loop(histograms.bins, "bin", one)

        def clear(bin_: Size) -> None:
            for place, value in zip(mine, neutral, strict=True):
                item.store(place, (bin_,), value)

        emit.when(is_first, lambda: copy(mine, given))
        emit.when(operation("not", is_first), lambda: item.loop(histograms.bins, "bin", clear))
        row = histograms.row(item, segment)
        count, rounds = size(pieces.count), size(pieces.length)
        left = histograms.width - rounds * count

        def step(counter: Size) -> None:
            bin_, *values = row(piece + counter * count)
            lower_folds.combine_into_bin(item, histograms.combine, mine, bin_, values)

        item.loop(rounds + minimum(ONE, maximum(left - piece, ZERO)), "k", step)
        if room:
            copy(own, mine)

    return Points((*histograms.outer, size(pieces.count), *histograms.inner), write_piece)


def _in_shared_memory(item: Item, own: Sequence[ArrayView], threads: int, room: int) -> list[ArrayView]:
    """Bins of this thread in the block's shared memory."""
    local = item.named(ThreadIndex(), "place")
    found = []
    for one in own:
        shared = item.own("bins", one.element, room * threads, Space.SHARED)
        found.append(ArrayView(shared.buffer, one.element, LMAD(local, one.lmad.shape, (size(threads),))))
    return found


def _bin_segments(histograms: Histograms, own: Sequence[Variable], pieces: Chunks) -> Segments:
    """The bins as segments, whose rows are what the pieces give."""

    def rows(item: Item, at: Sequence[Size]) -> lower_folds.Rows:
        views: list[ArrayView] = [item.as_view(item.arrays[one.name]) for one in own]
        return lambda index, _: [item.load(view, (index, *at)) for view in views]

    outer, neutral = (*histograms.outer, histograms.bins, *histograms.inner), histograms.neutral
    arrays = tuple(one for one in neutral if isinstance(one, Variable) and one.type.rank)
    if arrays:
        neutral = tuple(Variable(f"%neutral.{k}", Type(one.type.element)) for k, one in enumerate(arrays))
    simple = not any(one.type.element.is_complex for one in neutral)
    common = (histograms.combine, neutral, True, simple, True)
    return Segments(outer, size(pieces.count), *common, rows, partial_strides(own), own_neutral=arrays)
