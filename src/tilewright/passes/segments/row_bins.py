"""The work of one point of a histogram of rows (bin_rows.py): bins of vectors, set, combined with rows and with copies.

Bins of copies end at a multiple of the vectors' size, so that no store is masked, and rows whose bin does not exist
have one behind the last: nothing is tested. With one copy, rows are combined where the results lie, in registers as
long as rows go into one bin (held_rows.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Atom, Hist, Lambda, SegHist, Type
from tilewright.ir.scalars import BOOL, U64, compute_type
from tilewright.ir.sizes import ONE, Size, maximum, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Cast, Expression, FirstLanes, Load, Store, VectorType, integer, operation
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, bind_index, call, lower_body, row_of
from tilewright.passes.items.lower_scalar import lower_atom, lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.points.lower_general import Places
from tilewright.passes.segments.bins import LEAST_ROWS, ROWS_PER_BIN, in_nodes
from tilewright.passes.segments.computed_rows import ComputedRows
from tilewright.passes.segments.form import Chunks
from tilewright.passes.segments.held_rows import HeldRows, combine_held

Values: TypeAlias = Callable[[tuple[Size, Size]], Sequence[Value]]
MOST_HELD = 4
"""Vectors that hold a bin. Of longer rows the first part of a bin is written long before it is read again."""


@dataclass(frozen=True)
class RowHistograms:
    """A histogram of rows: `combine` is what the elements at one place of two rows are combined by; vectors have at
    most `lanes` elements, and registers hold `vectors` of them. What the bins begin as and neutral rows are arrays, or
    scalars: all of their elements.
    """

    hist: Hist | SegHist
    rows: ComputedRows
    combine: Lambda
    lanes: int
    given: tuple[Atom, ...]
    neutral: tuple[Atom, ...]
    vectors: int = 1

    def fitting(self, length: int) -> RowHistograms:
        """The same with vectors that rows of a length fill to more than half; all of a row's are held, or none."""
        lanes = self.lanes
        while lanes > 2 and 2 * length <= lanes:
            lanes //= 2
        vectors = max(1, -(-length // lanes))
        return dataclasses.replace(
            self, lanes=lanes, vectors=vectors if vectors * len(self.neutral) <= MOST_HELD else 0
        )

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
        return self.rows.width


class RowBins:
    """The work of one point, into the bins at `places`."""

    def __init__(
        self, item: Item, histograms: RowHistograms, copies: int, places: Places, tree: bool,
        strip: tuple[Size, Size] | None = None,
    ) -> None:  # fmt: skip
        """`strip`: its number and its columns (the last one may have fewer), if this is not the work on whole rows."""
        self.item, self.histograms, self.copies = item, histograms, copies
        self.tree, self.in_strips = tree, strip is not None
        self.first, self.length, room = size(0), histograms.length, histograms.length
        if strip is not None:
            self.first, room = strip[0] * strip[1], strip[1]
            last = minimum(room, histograms.length - self.first)
            self.length = item.named(lower_size(last, item.emit), "length")
        self.places = places = [self._of_strip(one) for one in places]
        lanes = histograms.lanes
        sources = [item.as_view(one) for one in lower_folds.arrays_of(item, histograms.rows.sources)]
        unit = all(one.lmad.strides[-1] == ONE for one in sources)
        self.in_place = not tree and (copies == 1 or not unit)
        self.in_vectors = unit and (not self.in_place or all(one.lmad.strides[1] == ONE for one in places))
        self.own: list[list[ArrayView]] = [list(places)]
        if not self.in_place:
            padded = (room + (lanes - 1)) // lanes * lanes
            memory = self._allocated(size(copies), histograms.bins + 1, padded)
            self.own = [[row_of(one, size(copy)) for one in memory] for copy in range(copies)]
        self.bins_of_strip = [self._of_bins(one) for one in self.own[0]]
        self.middle = self._allocated(histograms.bins, room) if tree else []

    def _of_strip(self, view: ArrayView) -> ArrayView:
        """An array with the columns of the strip."""
        offset = view.lmad.offset + self.first * view.lmad.strides[-1]
        shape = (*view.lmad.shape[:-1], self.length)
        return ArrayView(view.buffer, view.element, LMAD(offset, shape, view.lmad.strides))

    def _of_bins(self, view: ArrayView) -> ArrayView:
        """The bins that exist, without what fills up vectors."""
        return ArrayView(
            view.buffer, view.element, LMAD(view.lmad.offset, (self.histograms.bins, self.length), view.lmad.strides)
        )

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
        whole = self.length // histograms.lanes
        rest = emit.let(lower_size(self.length - whole * histograms.lanes, emit), "rest")
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
        if len(self.own) == 1 and self.in_vectors and self.histograms.vectors:
            histograms = self.histograms
            vectors = histograms.vectors  # of rows, of which the last strip may have fewer
            full = 0 if self.in_strips else vectors - 1
            how = HeldRows(histograms.rows.elements, histograms.combine, histograms.lanes, vectors, full)
            combine_held(self.item, how, self.bins_of_strip, self._read, first, count)
            return
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
        item, length = self.item, self.length

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
        return [
            self._of_strip(item.as_view(item.arrays[str(one)])) if one.type.rank else lower_atom(one, item.emit)
            for one in atoms
        ]

    def _read(self, row: Size) -> tuple[Expression, list[ArrayView]]:
        """The bin of a row, and the rows of arrays that it is made of."""
        bind_index(self.item, self.histograms.rows.row, row, self.histograms.width)
        bin_, *parts = lower_body(self.item, self.histograms.rows.before)
        assert isinstance(bin_, tuple)
        return bin_[0], [self._of_strip(self.item.as_view(one)) for one in parts if not isinstance(one, tuple)]

    def _row(self, copy: int, row: Size) -> None:
        """One row into its bin of one copy."""
        item, emit, histograms = self.item, self.item.emit, self.histograms
        number, rows = self._read(row)
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
                values = call(item, histograms.rows.elements, [item.load(one, (k,)) for one in rows])
                new = call(item, histograms.combine, [*old, *values])
                for place, value in zip(own, new, strict=True):
                    assert isinstance(value, tuple)
                    item.store(place, (k,), value)

            item.loop(self.length, "k", element)
            return
        whole = self.length // histograms.lanes
        item.loop(whole, "v", lambda v: self._vector(own, [self._load(one, v) for one in rows], v))

        def rest() -> None:
            self._vector(own, [self._load(one, whole, self.mask) for one in rows], whole, last=True)

        item.emit.when(self.rest, rest)

    def _vector(self, own: Sequence[ArrayView], values: Sequence[Value], v: Size, last: bool = False) -> None:
        """own = combine(own, elements(values)) for vector v of a row; the last one may not be full."""
        histograms, emit = self.histograms, self.item.emit
        mask = self.mask if last and self.in_place else None
        old = [self._load(one, v, mask) for one in own]
        made = lower_lambda_vector(histograms.rows.elements, values, histograms.lanes, emit)
        new = lower_lambda_vector(histograms.combine, [*old, *made], histograms.lanes, emit)
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
