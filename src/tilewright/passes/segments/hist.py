"""Histograms by several workers: each combines a piece of the rows into bins of its own, then bins are folded.

    hist bins (+) 0 index values
    =>  for each piece p: own[p] = bins if p = 0 else (0, ...); own[p, index[i]] += values[i] for the rows i of p
        for each bin b: reduce (+) 0 own[:, b]

Nothing is written by two workers, so that any operator will do, and the pieces depend on sizes and the machine's
numbers alone: a result is the same in every run, of floats too. Where there are so many bins that clearing and folding
them would cost more than the rows, one worker does a whole segment.

On a CPU the bins of rows are computed in vectors (bins.py). On a GPU, the threads of a block share bins in
shared memory where these fit and the operator is one for which the order cannot matter (atomics.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Expression, Statement, Type, Variable
from tilewright.ir.scalars import I32, I64, compute_type
from tilewright.ir.sizes import Size, minimum, size
from tilewright.ir.traversal import sub_bodies
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Constant, operation
from tilewright.machine.model import Machine
from tilewright.passes.core.fuse_histograms import NOTHING, Fills
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_general import Places, Points, points_of
from tilewright.passes.items.lower_scalar import lower_atom, lower_size
from tilewright.passes.segments.atomics import atomic_bins, block_points, room_for_bins
from tilewright.passes.segments.bin_rows import row_histogram_step, row_histograms
from tilewright.passes.segments.bins import COPIES, MOST_BINS, cached_points, copies_of_bins, sums_are_trees
from tilewright.passes.segments.choice import pieces_of_histogram
from tilewright.passes.segments.form import Chunks, Histograms, Row, Segments, partial_strides
from tilewright.passes.segments.points import part
from tilewright.passes.segments.steps import Kernels, MakeKernel, Variables, fold_step
from tilewright.runtime.host import KernelStep, SegmentPlan, SegmentStep


def histograms_of(expression: Expression) -> Histograms | None:
    """The histograms that an expression computes; None if it computes none, or values are arrays."""
    if not isinstance(expression, nodes.Hist | nodes.SegHist) or any(one.type.rank for one in expression.neutral):
        return None
    common = (expression.combine, expression.neutral, expression.destinations)
    bins = expression.destinations[0].type.shape[-1]
    if isinstance(expression, nodes.SegHist):
        *outer, width = expression.space.shape
        narrow = narrowed(expression)
        return Histograms(
            tuple(outer), width, bins, *common, lambda item, at: lower_folds.bin_row(item, expression, at),
            None if narrow is None else lambda item, at: lower_folds.bin_row(item, narrow, at),
        )  # fmt: skip

    def row(item: Item, at: Sequence[Size]) -> Row:
        arrays = lower_folds.arrays_of(item, (expression.indices, *expression.values))
        return lambda index: [item.row(one, index) for one in arrays]

    return Histograms((), expression.indices.type.shape[0], bins, *common, row)


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


def takes_fills(machine: Machine) -> Callable[[nodes.Expression], bool]:
    """Which histograms of a CPU can be told what bins begin as by `fills`: such whose rows are sure to be lowered."""

    def takes(expression: nodes.Expression) -> bool:
        simple = isinstance(expression, nodes.Hist) or (
            isinstance(expression, nodes.SegHist)
            and not any(list(sub_bodies(one.expression)) for one in expression.body.statements)
        )
        if not simple:
            return False
        return histograms_of(expression) is not None or row_histograms(expression, machine) is not None

    return takes


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
    scalars = (fills[one.name] for one in reads if one.name in fills)
    reads = tuple(one for one in reads if one.name not in fills)
    reads = tuple(dict.fromkeys((*reads, *(one for one in scalars if isinstance(one, Variable)))))
    found = histograms_of(statement.expression)
    if found is None:
        return None if threads > 1 else row_histogram_step(statement, reads, machine, make, fills)
    found = dataclasses.replace(found, given=tuple(fills.get(str(one), one) for one in found.given))
    label = str(statement.targets[0])
    pieces = Chunks(f"%pieces.{label}", f"%rows.{label}")
    shape = (size(pieces.count), *found.outer, found.bins)
    own = tuple(
        Variable(f"{target}.own", Type(compute_type(atom.type.element), shape))
        for target, atom in zip(statement.targets, found.neutral, strict=True)
    )

    @functools.cache
    def whole(copies: int, wide: bool = False, tree: bool = False) -> KernelStep:
        """Without pieces; on a GPU in no copies, one row after another."""
        expression, targets = statement.expression, statement.targets
        points = cached_points(found, None, copies, wide, tree) if copies else points_of(expression, targets)
        return make("", points, targets, reads)

    merge = Kernels(
        _bin_segments(found, own, pieces), statement.targets, (*reads, *own),
        Chunks(f"%chunks.{label}", f"%length.{label}"), machine, threads, make,
    )  # fmt: skip
    folds, _ = fold_step(merge, "_bins")

    held = atomic_bins(found) if threads > 1 else None

    @functools.cache
    def first(room: int, copies: int, wide: bool, tree: bool) -> KernelStep:
        points = cached_points(found, pieces, copies, wide, tree) if copies else piece_points(found, pieces)
        if room:
            points = block_points(points, found, pieces, threads, room)
        return make("_pieces", points, own, reads)

    def choose(values: tuple[int, ...]) -> SegmentPlan:
        *outer, bins, width = values
        number = 1
        for extent in outer:
            number *= extent
        size_of_bin = sum(one.type.element.bytes for one in own)
        room = room_for_bins(machine, bins, held) if held is not None else 0
        together = threads if room else 1
        count, length = pieces_of_histogram(machine, threads, number, width, bins, size_of_bin, together)
        copies = copies_of_bins(machine, length, bins, size_of_bin) if threads == 1 else 0
        tree = threads == 1 and sums_are_trees(found, length, bins)
        if count < (1 if room else 2):
            return SegmentPlan((whole(copies, bins > MOST_BINS, tree),), ())
        end = folds.choose((*outer, bins, count))
        sizes = (pieces.count, count), (pieces.length, length), *end.sizes
        return SegmentPlan((first(room, copies, bins > MOST_BINS, tree), *end.steps), sizes)

    extents = (*found.outer, found.bins, found.width)
    temporaries = (*own, *folds.temporaries)
    trials = (whole(1), whole(COPIES)) if threads == 1 else (whole(0),)
    return SegmentStep(label, statement.targets, reads, temporaries, extents, choose), trials


def piece_points(histograms: Histograms, pieces: Chunks) -> Points:
    """Each point combines the rows of one piece of a segment into bins of its own; the first goes on from the given."""

    def write_piece(item: Item, at: Sequence[Size], places: Places) -> None:
        emit = item.emit
        piece, *segment = at
        mine = [part(place, at) for place in places]
        given = [part(item.as_view(item.arrays[str(one)]), segment) for one in histograms.given]
        is_first = emit.let(operation("eq", lower_size(piece, emit), Constant(0, I64)), "is_first")
        neutral = [lower_atom(atom, emit) for atom in histograms.neutral]

        def copy(bin_: Size) -> None:
            for place, source in zip(mine, given, strict=True):
                item.store(place, (bin_,), item.load(source, (bin_,)))

        def clear(bin_: Size) -> None:
            for place, value in zip(mine, neutral, strict=True):
                item.store(place, (bin_,), value)

        emit.when(is_first, lambda: item.loop(histograms.bins, "bin", copy))
        emit.when(operation("not", is_first), lambda: item.loop(histograms.bins, "bin", clear))
        start = piece * size(pieces.length)
        row = histograms.row(item, segment)

        def step(counter: Size) -> None:
            bin_, *values = row(start + counter)
            lower_folds.combine_into_bin(item, histograms.combine, mine, bin_, values)

        item.loop(minimum(size(pieces.length), histograms.width - start), "k", step)

    return Points((size(pieces.count), *histograms.outer), write_piece)


def _bin_segments(histograms: Histograms, own: Sequence[Variable], pieces: Chunks) -> Segments:
    """The bins as segments, whose rows are what the pieces give."""

    def rows(item: Item, at: Sequence[Size]) -> lower_folds.Rows:
        views: list[ArrayView] = [item.as_view(item.arrays[one.name]) for one in own]
        return lambda index, _: [item.load(view, (index, *at)) for view in views]

    outer = (*histograms.outer, histograms.bins)
    simple = not any(one.type.element.is_complex for one in histograms.neutral)
    common = (histograms.combine, histograms.neutral, True, simple, True)
    return Segments(outer, size(pieces.count), *common, rows, partial_strides(own))
