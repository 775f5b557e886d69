"""Histograms of rows on a CPU, such as the sums of the points of each cluster: bins of vectors.

    hist bins (map (+)) zeros index rows
    =>  for each row r, for each vector v of it:  own[r % copies, index[r], v] = own[...] + rows[r, v]

Rows may be computed for it (computed_rows.py). As for scalars (bins.py), neighbouring rows have bins of their own, so
that none waits for what the last one wrote, and long sums of floats are trees.

Cores share out the rows, and combine their bins afterwards. Where these are so many that this would take long, and rows
are gathered, so that nothing is lost by reading parts of them, a core has some columns of all rows instead, and of all
bins, which nobody combines:

    =>  for each strip of columns, for each row r, for each vector v of the strip: own[index[r], v] = ... + rows[r, v]
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Hist, SegHist, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, compute_type
from tilewright.ir.sizes import Size, size
from tilewright.machine.model import Machine
from tilewright.passes.core.fills import NOTHING, Fills
from tilewright.passes.items.accumulators import Accumulators
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_scalar import declare_value
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.segments.bins import copies_of_bins, sums_are_trees
from tilewright.passes.segments.choice import ROWS_PER_CHUNK, pieces_of_histogram
from tilewright.passes.segments.computed_rows import computed_rows
from tilewright.passes.segments.form import Chunks
from tilewright.passes.segments.points import part
from tilewright.passes.segments.row_bins import RowBins, RowHistograms
from tilewright.passes.segments.row_folds import elementwise
from tilewright.runtime.host import KernelStep, SegmentPlan, SegmentStep

MakeKernel = Callable[[str, Points, tuple[Variable, ...], tuple[Variable, ...]], KernelStep]
ROWS_OF_PIECES = 8
"""Rows of a piece for each of its bins that are worth beginning these, and combining them with those of the others."""
ELEMENTS_LIKE_A_ROW = 8
"""Elements that are combined in vectors in the time of a row of one element."""


def row_histograms(expression: nodes.Expression, machine: Machine) -> RowHistograms | None:
    """The histogram of rows of real numbers that an expression is, for a machine with vectors; None if it is none.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> from tilewright.machine.named import CPU_AVX512
        >>> program = parse_program('''def sums (at: [n]i64, x: [n][d]f32, zeros: [d]f32, bins: [k][d]f32) =
        ...   let (h: [k][d]f32) = hist (bins) (\\\\(a: [d]f32, b: [d]f32) ->
        ...     let (c: [d]f32) = map d (\\\\(e: f32, f: f32) -> let (g: f32) = e + f in (g)) a b
        ...     in (c)) (zeros) at x
        ...   in (h)''')
        >>> row_histograms(program.body.statements[0].expression, CPU_AVX512).lanes
        16
    """
    if not isinstance(expression, Hist | SegHist):
        return None
    rows, combine = computed_rows(expression), elementwise(expression.combine)
    if rows is None or combine is None or not machine.vector_bytes:
        return None
    elements = [one.type.element for one in (*expression.neutral, *rows.sources)]
    if any(one == BOOL or one.is_complex for one in elements):
        return None
    lanes = machine.lanes(max(compute_type(one).bytes for one in elements))
    if lanes == 1:
        return None
    return RowHistograms(expression, rows, combine, lanes, expression.destinations, expression.neutral)


def row_histogram_step(
    statement: Statement, reads: tuple[Variable, ...], machine: Machine, make: MakeKernel, fills: Fills = NOTHING
) -> tuple[SegmentStep, tuple[KernelStep, ...]] | None:
    """The step of a histogram of rows, and kernels that show whether it can be lowered; None if it is not one."""
    found = row_histograms(statement.expression, machine)
    if found is None:
        return None
    given, neutral = (tuple(fills.get(str(a), a) for a in atoms) for atoms in (found.given, found.neutral))
    found = dataclasses.replace(found, given=given, neutral=neutral)
    label, targets = str(statement.targets[0]), statement.targets
    pieces = Chunks(f"%pieces.{label}", f"%rows.{label}")
    columns = Chunks(f"%strips.{label}", f"%columns.{label}")
    shape = (size(pieces.count), found.bins, found.length)
    own = tuple(
        Variable(f"{target}.own", Type(compute_type(atom.type.element), shape))
        for target, atom in zip(targets, found.hist.neutral, strict=True)
    )

    @functools.cache
    def whole(form: RowHistograms, copies: int, tree: bool, cut: bool = False) -> KernelStep:
        suffix = "_columns" if cut else ""
        return make(suffix, row_points(form, None, copies, tree, columns if cut else None), targets, reads)

    @functools.cache
    def first(form: RowHistograms, copies: int, tree: bool) -> KernelStep:
        return make("_pieces", row_points(form, pieces, copies, tree), own, reads)

    @functools.cache
    def end() -> KernelStep:
        return make("_bins", _merged(found, own, pieces), targets, (*reads, *own))

    def choose(values: tuple[int, ...]) -> SegmentPlan:
        bins, length, width = values
        form = found.fitting(length)
        size_of_bin = sum(one.type.element.bytes for one in own) * (-(-length // form.lanes) * form.lanes)
        weight = max(1, length // ELEMENTS_LIKE_A_ROW)
        count, _ = pieces_of_histogram(machine, 1, 1, width * weight, bins * weight, size_of_bin)
        strip = columns_of_strip(machine, form.lanes, length, width * weight)
        if strip and found.rows.gathers and (count < machine.cores or ROWS_OF_PIECES * count * bins > width):
            copies = copies_of_bins(machine, width, bins, size_of_bin * strip // length)
            kernel = whole(found.fitting(strip), copies, sums_are_trees(found.combine, width, bins), True)
            return SegmentPlan((kernel,), ((columns.count, -(-length // strip)), (columns.length, strip)))
        rows = -(-width // max(1, count))
        copies = copies_of_bins(machine, rows, bins, size_of_bin)
        tree = sums_are_trees(found.combine, rows, bins)
        if count < 2 or width == 0:
            return SegmentPlan((whole(form, copies, tree),), ())
        return SegmentPlan(
            (first(form, copies, tree), end()), ((pieces.count, -(-width // rows)), (pieces.length, rows))
        )

    step = SegmentStep(label, targets, reads, own, (found.bins, found.length, found.width), choose)
    return step, (whole(found, 1, False), whole(found, 4, True))


def columns_of_strip(machine: Machine, lanes: int, length: int, work: int) -> int:
    """How many columns of the rows a core has, if each gets all rows: so many whole vectors; 0 where there are fewer
    vectors than cores, or too little work.

    Example:
        >>> from tilewright.machine.named import CPU_AVX512
        >>> import dataclasses
        >>> two = dataclasses.replace(CPU_AVX512, cores=2)
        >>> [columns_of_strip(two, 16, length, 10**6) for length in (16, 17, 64, 100)]
        [0, 16, 32, 64]
    """
    vectors = -(-length // lanes)
    enough = machine.cores > 1 and vectors >= machine.cores and work >= 2 * ROWS_PER_CHUNK
    return -(-vectors // machine.cores) * lanes if enough else 0


def row_points(
    histograms: RowHistograms, pieces: Chunks | None, copies: int, tree: bool = False, columns: Chunks | None = None
) -> Points:
    """One point with all rows, or a point for each piece of them, the first of which goes on from the given bins, or
    for each strip of their columns.

    As a `tree`, the bins are added to others, and begin anew, after so many rows that this takes little of the time.
    """

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        item.scalar_loops = True
        if columns is None:
            RowBins(item, histograms, copies, [part(place, at) for place in places], tree).write(at, pieces)
        else:
            RowBins(item, histograms, copies, places, tree, (at[0], size(columns.length))).write((), None)

    shared = pieces or columns
    return Points(() if shared is None else (size(shared.count),), write_point)


def _merged(histograms: RowHistograms, own: Sequence[Variable], pieces: Chunks) -> Points:
    """Each element of a bin combined over the pieces, in their order."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        views = [item.as_view(item.arrays[one.name]) for one in own]
        accumulators = Accumulators(item)
        for view in views:
            value = item.load(view, (size(0), *at))
            accumulators.values.append(declare_value(value, "acc", item.emit))
            accumulators.spare.append(None)

        def step(k: Size) -> None:
            values = [item.load(view, (k + 1, *at)) for view in views]
            accumulators.update(histograms.combine, [*accumulators.values, *values])

        item.loop(size(pieces.count) - 1, "piece", step)
        for place, total in zip(places, accumulators.values, strict=True):
            assert isinstance(total, tuple)
            item.store(place, at, total)

    return Points((histograms.bins, histograms.length), write_point)
