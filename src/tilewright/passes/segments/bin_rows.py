"""Histograms of rows on a CPU, such as the sums of the points of each cluster: bins of vectors.

    hist bins (map (+)) zeros index rows
    =>  for each row r, for each vector v of it:  own[r % copies, index[r], v] = own[...] + rows[r, v]

Bins of copies end at a multiple of the vectors' size, so that no store is masked, and rows whose bin does not exist
have one behind the last: nothing is tested. With one copy, rows are combined where the results lie. As for scalars
(bins.py), neighbouring rows have bins of their own, so that none waits for what the last one wrote, and long sums of
floats are trees.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Hist, Lambda, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, U64, compute_type
from tilewright.ir.sizes import ONE, Size, maximum, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Cast, Expression, FirstLanes, Load, Store, VectorType, integer, operation
from tilewright.machine.model import Machine
from tilewright.passes.core.fills import NOTHING, Fills
from tilewright.passes.items import lower_folds
from tilewright.passes.items.accumulators import Accumulators
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, call, row_of
from tilewright.passes.items.lower_scalar import declare_value, lower_atom, lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.segments.bins import LEAST_ROWS, ROWS_PER_BIN, copies_of_bins, in_nodes, sums_are_trees
from tilewright.passes.segments.choice import pieces_of_histogram
from tilewright.passes.segments.form import Chunks
from tilewright.passes.segments.points import part
from tilewright.passes.segments.row_folds import elementwise
from tilewright.runtime.host import KernelStep, SegmentPlan, SegmentStep

Values: TypeAlias = Callable[[tuple[Size, Size]], Sequence[Value]]
MakeKernel = Callable[[str, Points, tuple[Variable, ...], tuple[Variable, ...]], KernelStep]
ELEMENTS_LIKE_A_ROW = 8
"""Elements that are combined in vectors in the time of a row of one element."""


@dataclass(frozen=True)
class RowHistograms:
    """A histogram of rows: `combine` is what the elements at one place of two rows are combined by; vectors have at
    most `lanes` elements. What the bins begin as and neutral rows are arrays, or scalars: all of their elements.
    """

    hist: Hist
    combine: Lambda
    lanes: int
    given: tuple[Atom, ...]
    neutral: tuple[Atom, ...]

    def fitting(self, length: int) -> RowHistograms:
        """The same with vectors that rows of a length fill to more than half."""
        lanes = self.lanes
        while lanes > 2 and 2 * length <= lanes:
            lanes //= 2
        return dataclasses.replace(self, lanes=lanes)

    @property
    def length(self) -> Size:
        """Elements of a row."""
        return self.hist.destinations[0].type.shape[1]

    @property
    def bins(self) -> Size:
        """Bins."""
        return self.hist.destinations[0].type.shape[0]

    @property
    def width(self) -> Size:
        """Rows."""
        return self.hist.indices.type.shape[0]


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
    if not isinstance(expression, Hist) or any(one.type.rank != 1 for one in expression.neutral):
        return None
    combine = elementwise(expression.combine)
    elements = [one.type.element for one in expression.neutral]
    if combine is None or not machine.vector_bytes or any(one == BOOL or one.is_complex for one in elements):
        return None
    lanes = machine.lanes(max(compute_type(one).bytes for one in elements))
    if lanes == 1:
        return None
    return RowHistograms(expression, combine, lanes, expression.destinations, expression.neutral)


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
    shape = (size(pieces.count), found.bins, found.length)
    own = tuple(
        Variable(f"{target}.own", Type(compute_type(atom.type.element), shape))
        for target, atom in zip(targets, found.hist.neutral, strict=True)
    )

    @functools.cache
    def whole(form: RowHistograms, copies: int, tree: bool) -> KernelStep:
        return make("", row_points(form, None, copies, tree), targets, reads)

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


def row_points(histograms: RowHistograms, pieces: Chunks | None, copies: int, tree: bool = False) -> Points:
    """One point with all rows, or a point for each piece of them, the first of which goes on from the given bins.

    As a `tree`, the bins are added to others, and begin anew, after so many rows that this takes little of the time.
    """

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        item.scalar_loops = True
        _RowBins(item, histograms, copies, [part(place, at) for place in places], tree).write(at, pieces)

    return Points(() if pieces is None else (size(pieces.count),), write_point)


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


class _RowBins:
    """The work of one point, into the bins at `places`."""

    def __init__(self, item: Item, histograms: RowHistograms, copies: int, places: Places, tree: bool) -> None:
        self.item, self.histograms, self.copies, self.places = item, histograms, copies, places
        self.tree = tree
        hist, lanes = histograms.hist, histograms.lanes
        self.values = [item.as_view(one) for one in lower_folds.arrays_of(item, hist.values)]
        unit = all(one.lmad.strides[1] == ONE for one in self.values)
        self.in_place = not tree and (copies == 1 or not unit)
        self.in_vectors = unit and (not self.in_place or all(one.lmad.strides[1] == ONE for one in places))
        self.own: list[list[ArrayView]] = [list(places)]
        if not self.in_place:
            padded = (histograms.length + (lanes - 1)) // lanes * lanes
            memory = self._allocated(size(copies), histograms.bins + 1, padded)
            self.own = [[row_of(one, size(copy)) for one in memory] for copy in range(copies)]
        self.middle = self._allocated(histograms.bins, histograms.length) if tree else []

    def _allocated(self, *shape: Size) -> list[ArrayView]:
        elements = [compute_type(atom.type.element) for atom in self.histograms.hist.neutral]
        return [self.item.allocate(Type(one, shape), "bins") for one in elements]

    def write(self, at: Sequence[Size], pieces: Chunks | None) -> None:
        """Set the bins, combine the rows into them, and the copies."""
        item, histograms, emit = self.item, self.histograms, self.item.emit
        start, length = size(0), histograms.width
        if pieces is not None:
            start = at[0] * size(pieces.length)
            length = minimum(size(pieces.length), histograms.width - start)
        self._begin(at[0] if pieces is not None else None)
        whole = histograms.length // histograms.lanes
        rest = emit.let(lower_size(histograms.length - whole * histograms.lanes, emit), "rest")
        self.rest = emit.let(operation("gt", rest, integer(0)), "has_rest")
        self.mask = emit.let(FirstLanes(rest, VectorType(BOOL, histograms.lanes)), "mask")
        first = self.item.named(lower_size(start, emit), "start")
        count = self.item.named(lower_size(length, emit), "count")
        if not self.tree:
            self._rows(first, count)
            if len(self.own) > 1:
                self._each_element(lambda at: self._take(self.places, self._total(at), at))
            return
        neutral = self._sources(histograms.neutral)

        def end(into: Sequence[ArrayView], values: Values, others: Sequence[Sequence[ArrayView]]) -> None:
            """Add values to those of a level, and begin anew what they were made of."""

            def element(at: tuple[Size, Size]) -> None:
                self._take(into, call(item, histograms.combine, [*self._at(into, at), *values(at)]), at)
                for one in others:
                    self._take(one, self._at(neutral, at), at)

            self._each_element(element)

        each = maximum(size(LEAST_ROWS), histograms.bins * ROWS_PER_BIN)
        in_nodes(
            item,
            count,
            self.item.named(lower_size(each, emit), "each"),
            lambda begin, some: self._rows(first + begin, self.item.named(lower_size(some, emit), "some")),
            lambda: end(self.middle, self._total, self.own),
            lambda: end(self.places, lambda at: self._at(self.middle, at), [self.middle]),
        )

    def _rows(self, first: Size, count: Size) -> None:
        """So many rows into the copies of the bins."""
        rounds = count // len(self.own)

        def round_(k: Size) -> None:
            for copy in range(len(self.own)):
                self._row(copy, first + k * len(self.own) + copy)

        self.item.loop(rounds, "k", round_)
        if len(self.own) > 1:
            done = rounds * len(self.own)
            self.item.loop(count - done, "k", lambda k: self._row(0, first + done + k))

    def _each_element(self, write: Callable[[tuple[Size, Size]], None]) -> None:
        """For each bin, for each element of it, in vectors."""
        item, length = self.item, self.histograms.length

        def of_bin(bin_: Size) -> None:
            stop = item.emit.let(lower_size(length, item.emit), "stop")
            item.loop_from(integer(0), stop, length, "k", lambda k: write((bin_, k)), independent=True)

        item.loop(self.histograms.bins, "bin", of_bin)

    def _at(self, sources: Sequence[ArrayView | Value], at: tuple[Size, Size]) -> list[Value]:
        """An element of bins, of rows that are all bins, or of scalars that are all elements."""
        return [self.item.load(one, at[-one.lmad.rank :]) if isinstance(one, ArrayView) else one for one in sources]

    def _take(self, into: Sequence[ArrayView], values: Sequence[AnyValue], at: tuple[Size, Size]) -> None:
        for place, value in zip(into, values, strict=True):
            assert isinstance(value, tuple)
            self.item.store(place, at, value)

    def _begin(self, piece: Size | None) -> None:
        """The first bins begin as the given ones (in other pieces than the first: neutral), the others neutral."""
        emit = self.item.emit
        given, neutral = self._sources(self.histograms.given), self._sources(self.histograms.neutral)
        begun, *others = [self.places, self.middle, *self.own] if self.tree else self.own

        def fill(places: Sequence[ArrayView], sources: Sequence[ArrayView | Value]) -> None:
            self._each_element(lambda at: self._take(places, self._at(sources, at), at))

        if piece is None:
            fill(begun, given)
        else:
            is_first = emit.let(operation("eq", lower_size(piece, emit), integer(0)), "is_first")
            emit.when(is_first, lambda: fill(begun, given))
            emit.when(operation("not", is_first), lambda: fill(begun, neutral))
        for one in others:
            fill(one, neutral)

    def _sources(self, atoms: Sequence[Atom]) -> list[ArrayView | Value]:
        """Arrays, and the values of scalars."""
        item = self.item
        return [item.as_view(item.arrays[str(one)]) if one.type.rank else lower_atom(one, item.emit) for one in atoms]

    def _row(self, copy: int, row: Size) -> None:
        """One row into its bin of one copy."""
        item, emit, histograms = self.item, self.item.emit, self.histograms
        (number,) = item.load(item.as_view(lower_folds.arrays_of(item, [histograms.hist.indices])[0]), (row,))
        rows = [row_of(one, row) for one in self.values]
        if self.in_place:
            lower_folds.when_bin_exists(item, number, histograms.bins, lambda at: self._combine(copy, at, rows))
            return
        bins = emit.let(lower_size(histograms.bins, emit), "bins")
        exists = operation("lt", Cast(number, U64), Cast(bins, U64))
        at = self.item.named(operation("select", exists, number, bins), "bin")
        self._combine(copy, at, rows)

    def _combine(self, copy: int, bin_: Size, rows: Sequence[ArrayView]) -> None:
        """A row into a bin that exists."""
        item, histograms = self.item, self.histograms
        own = [row_of(one, bin_) for one in self.own[copy]]
        if not self.in_vectors:

            def element(k: Size) -> None:
                old = [item.load(one, (k,)) for one in own]
                new = call(item, histograms.combine, [*old, *(item.load(one, (k,)) for one in rows)])
                for place, value in zip(own, new, strict=True):
                    assert isinstance(value, tuple)
                    item.store(place, (k,), value)

            item.loop(histograms.length, "k", element)
            return
        whole = histograms.length // histograms.lanes
        item.loop(whole, "v", lambda v: self._vector(own, [self._load(one, v) for one in rows], v))
        item.emit.when(
            self.rest, lambda: self._vector(own, [self._load(one, whole, self.mask) for one in rows], whole, True)
        )

    def _vector(self, own: Sequence[ArrayView], values: Sequence[Value], v: Size, last: bool = False) -> None:
        """own = combine(own, values) for vector v of a row; the last one may not be full."""
        histograms, emit = self.histograms, self.item.emit
        mask = self.mask if last and self.in_place else None
        old = [self._load(one, v, mask) for one in own]
        new = lower_lambda_vector(histograms.combine, [*old, *values], histograms.lanes, emit)
        for place, (value,) in zip(own, new, strict=True):
            at = lower_size(place.lmad.flat((v * histograms.lanes,)), emit)
            emit.emit(Store(self.item.buffer_of(place), at, value, mask=mask))

    def _load(self, row: ArrayView, v: Size, mask: Expression | None = None) -> Value:
        type_ = VectorType(compute_type(row.element), self.histograms.lanes)
        at = lower_size(row.lmad.flat((v * self.histograms.lanes,)), self.item.emit)
        return (self.item.emit.let(Load(self.item.buffer_of(row), at, type_, mask=mask), "v"),)

    def _total(self, at: tuple[Size, Size]) -> list[Value]:
        """An element of the copies, combined by halves."""
        values = [self._at(own, at) for own in self.own]
        while len(values) > 1:
            values = [
                [one for one in call(self.item, self.histograms.combine, [*a, *b]) if isinstance(one, tuple)]
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
        return values[0]
