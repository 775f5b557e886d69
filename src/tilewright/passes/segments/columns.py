"""Folds and scans of neighbouring segments together, where these are nearer in memory than the rows of one are.

Segment by segment, a worker would walk through memory in steps of a whole row of segments. Here a worker of a CPU takes
`COLUMNS` segments at once: for each row in turn, the loop over the segments runs in vectors.

    for each segment j: for each row k: acc = combine(acc, x[k, j])
    =>  for each COLUMNS segments: for each row k: for each segment j of them: acc[j] = combine(acc[j], x[k, j])

Where the prefixes of a segment lie side by side, though, a row of several segments would be written to as many cache
lines. So a few segments go on in the lanes of vectors, and squares of prefixes are turned (`lanes/lane_strips.py`):

    for each segment j: for each row k: y[j, k] = acc = combine(acc, x[k, j])
    =>  for each LANES segments: for each strip: for each row k of it: square[k, ..] = acc[..] = ...; y = square turned
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Variable
from tilewright.ir.scalars import I64, compute_type
from tilewright.ir.sizes import ONE, Size, minimum, size, whole_groups
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Constant, Expression, For, operation
from tilewright.passes.items.accumulators import PIECE
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_columns import COLUMNS
from tilewright.passes.items.lower_folds import if_long
from tilewright.passes.items.lower_items import AnyValue, call, row_of, write
from tilewright.passes.items.lower_scalar import Value, lower_atom, lower_size
from tilewright.passes.items.sum_trees import grows_errors
from tilewright.passes.lanes.lane_loops import in_lanes
from tilewright.passes.points.lower_general import Places, Points, Range
from tilewright.passes.segments.column_rows import ScannedRows, write_row
from tilewright.passes.segments.form import Chunks, Segments, split_point
from tilewright.passes.segments.points import part, values_before

Arrays: TypeAlias = Sequence[ArrayView]
EachColumn: TypeAlias = Callable[[Callable[[Size, Sequence[Size]], None]], None]

LEAST_SEGMENTS = 4
"""For fewer segments a loop over them in every row costs more than reading each one's rows in steps."""

TOGETHER_COLUMNS = 64
"""Segments that no two workers share: they read the same cache lines."""
SCANNED_TOGETHER = 32, 64
"""Segments of a scan that no two workers share: they write the same cache lines; and the most that a worker takes at
once, for two that are at work side by side in the same rows take lines from each other that they ask for ahead."""
SCANNED_PAST = 32, 1024
"""The same past the caches, where lines are only written; the most are a page of each row."""
TOGETHER = 4
"""Rows that are combined with each other before the total of a column is loaded and stored."""


def with_columns(
    points: Points,
    segments: Segments,
    chunks: Chunks | None,
    scan: ScannedRows | None = None,
    before: Sequence[Variable] = (),
) -> Points:
    """The points of `fold_points` or `scan_points`, some taken together where that reads memory in order."""
    if not segments.simple or not segments.strides or not segments.outer:
        return points

    def columns(item: Item, at: Sequence[Size], bounds: Range, places: Places, otherwise: Callable[[], None]) -> None:
        nearer = _are_nearer(item, segments)
        if nearer is None:
            otherwise()
            return
        if scan is not None and _rows_are_side_by_side(segments, places):

            def write(last: Size) -> None:
                points.write(item, (*at, last), places)

            in_lanes(item, bounds, segments.outer[-1], write, otherwise, item.emit.let(nearer, "nearer"))
            return
        many = operation("ge", operation("sub", bounds[1], bounds[0]), Constant(LEAST_SEGMENTS, I64))
        nearer = operation("and", many, nearer)
        together = _Together(item, segments, chunks, places, before, scan)
        item.emit.when(item.emit.let(nearer, "together"), lambda: together.write(at, bounds), otherwise)

    if scan is not None:
        return dataclasses.replace(points, columns=columns, scanned=SCANNED_PAST if scan.past else SCANNED_TOGETHER)
    return dataclasses.replace(points, columns=columns, together=TOGETHER_COLUMNS, by_rows=True)


def _are_nearer(item: Item, segments: Segments) -> Expression | None:
    """Whether in every array that varies from row to row the next segment is nearer than the next row."""
    condition: Expression | None = None
    for array, row, neighbour in segments.strides:
        view = item.arrays[array.name]
        if not isinstance(view, ArrayView):
            return None
        strides = view.lmad.strides
        step = operation("abs", lower_size(strides[row], item.emit))
        next_ = Constant(0, I64) if neighbour is None else lower_size(strides[neighbour], item.emit)
        nearer = operation("lt", operation("abs", next_), step)
        condition = nearer if condition is None else operation("and", condition, nearer)
    return condition


def _rows_are_side_by_side(segments: Segments, places: Places) -> bool:
    """Whether in every array of results the rows of a segment are neighbours, and segments are not."""
    return not segments.rows_first and all(
        place.lmad.strides[-1] == ONE and place.lmad.strides[-2] != ONE for place in places
    )


@dataclass(frozen=True)
class _Together:
    """Points bounds[0] .. bounds[1]-1 of the innermost dimension, of a fold or a scan."""

    item: Item
    segments: Segments
    chunks: Chunks | None
    places: Places
    before: Sequence[Variable]
    scan: ScannedRows | None

    @property
    def is_scan(self) -> bool:
        """Whether each row has results."""
        return self.scan is not None

    @property
    def width(self) -> int:
        """Segments of a group."""
        return COLUMNS if self.scan is None else SCANNED_PAST[1]

    def write(self, at: Sequence[Size], bounds: Range) -> None:
        """All of them, COLUMNS at a time; `at` are the other indices."""
        item, segments = self.item, self.segments
        emit = item.emit
        totals = self._arrays()
        first, first_size = item.index("first", segments.outer[-1])
        start, length, _ = split_point(segments, self.chunks, (*at, first_size))
        with emit.scope() as group:
            left = operation("sub", bounds[1], first)
            count = emit.let(operation("min", Constant(self.width, I64), left), "count")

            def each(write_column: Callable[[Size, Sequence[Size]], None]) -> None:
                self._each_column(count, lambda column: write_column(column, (*at, first_size + column)))

            each(lambda column, point: self._begin(totals, column, point))
            if not grows_errors(segments.combine):
                self._in_order(each, start, length, totals)
            else:
                if_long(
                    item,
                    length,
                    lambda: self._in_pieces(each, start, length, totals),
                    lambda: self._in_order(each, start, length, totals),
                )
            if not self.is_scan:
                each(lambda column, point: self._end(totals, column, point))
        emit.emit(For(first.name, bounds[0], bounds[1], tuple(group), step=Constant(self.width, I64)))

    def _arrays(self) -> list[ArrayView]:
        kept = [compute_type(atom.type.element) for atom in self.segments.neutral]
        return [self.item.own("columns", one, self.width) for one in kept]

    def _in_order(
        self, each: EachColumn, start: Size, length: Size, totals: Arrays, before: Arrays = ()
    ) -> None:  # fmt: skip
        """Rows from `start` on, added to the totals; those of a scan are written with what stands `before`."""

        def rows(first: Size, number: int) -> Callable[[Size], None]:
            return lambda k: each(
                lambda column, point: self._rows(totals, column, point, first + k * number, number, before)
            )

        if self.is_scan:
            self.item.loop(length, "k", rows(start, 1))
            return
        together = whole_groups(length, TOGETHER)
        self.item.loop(together, "k", rows(start, TOGETHER))
        done = together * TOGETHER
        self.item.loop(length - done, "k", rows(start + done, 1))

    def _in_pieces(self, each: EachColumn, start: Size, length: Size, totals: Arrays) -> None:
        """The same as a tree: pieces of PIECE rows, and so many of these as a larger one (`lower_folds.fold`)."""
        middle, lowest, before = self._arrays(), self._arrays(), self._arrays() if self.is_scan else []
        large = size(PIECE * PIECE)

        def clear(arrays: Arrays) -> None:
            initial = [lower_atom(atom, self.item.emit) for atom in self.segments.neutral]
            each(lambda column, _: self._put(arrays, column, initial))

        def join(into: Arrays, left: Arrays, right: Arrays) -> None:
            each(lambda c, _: self._put(into, c, self._combined(self._held(left, c), self._held(right, c))))

        def piece(first: Size, count: Size) -> None:
            clear(lowest)
            if self.is_scan:
                join(before, totals, middle)
            self._in_order(each, first, count, lowest, before)
            join(middle, middle, lowest)

        def larger(number: Size) -> None:
            first = start + number * large
            rows = minimum(large, length - number * large)
            clear(middle)
            self.item.loop(
                (rows + PIECE - 1) // PIECE,
                "piece",
                lambda k: piece(first + k * PIECE, minimum(size(PIECE), rows - k * PIECE)),
            )
            join(totals, totals, middle)

        self.item.loop((length + large - 1) // large, "large", larger)

    def _held(self, arrays: Arrays, column: Size) -> list[AnyValue]:
        return [self.item.load(one, (column,)) for one in arrays]

    def _put(self, arrays: Arrays, column: Size, values: Sequence[AnyValue]) -> None:
        for one, value in zip(arrays, values, strict=True):
            write(self.item, value, row_of(one, column))

    def _each_column(self, stop: Expression, write_column: Callable[[Size], None]) -> None:
        item, extent = self.item, size(self.width)
        if self.scan is None:
            item.loop_in_lanes(stop, extent, "column", write_column)
            return
        steps = {}
        for array, row, _ in self.segments.strides:
            view = item.as_view(item.arrays[array.name])
            steps[item.buffer_of(view).name] = lower_size(view.lmad.strides[row], item.emit)
        write_row(item, self.scan, stop, extent, write_column, steps)

    def _begin(self, totals: Sequence[ArrayView], column: Size, point: Sequence[Size]) -> None:
        item = self.item
        values: list[Value] = [lower_atom(atom, item.emit) for atom in self.segments.neutral]
        if self.before:
            values = values_before(item, self.segments, self.before, point)
        for total, value in zip(totals, values, strict=True):
            item.store(total, (column,), value)

    def _rows(
        self, totals: Arrays, column: Size, point: Sequence[Size], first: Size, number: int, before: Arrays
    ) -> None:
        """`number` rows (a power of two) of one segment from row `first` on, combined as a tree before the total is."""
        item, count = self.item, len(self.segments.neutral)
        _, _, segment = split_point(self.segments, self.chunks, point)
        found = [self._row(segment, first + k) for k in range(number)]
        while len(found) > 1:
            found = [self._combined(one, two) for one, two in zip(found[::2], found[1::2], strict=True)]
        new: Sequence[AnyValue] = self._combined(self._held(totals, column), found[0])
        self._put(totals, column, new)
        if before:
            new = self._combined(self._held(before, column), new)
        scanned = [self.segments.part(place, segment) for place in self.places[:count]] if self.is_scan else []
        for place, value in zip(scanned, new, strict=bool(scanned)):
            write(item, value, row_of(place, first))

    def _combined(self, left: Sequence[AnyValue], right: Sequence[AnyValue]) -> list[AnyValue]:
        return call(self.item, self.segments.combine, [*left, *right])

    def _row(self, segment: Sequence[Size], k: Size) -> Sequence[AnyValue]:
        """The values of row k of a segment; what is mapped is written."""
        item, count = self.item, len(self.segments.neutral)
        index = item.emit.let(lower_size(k, item.emit), "k")
        core = f"%row.{item.emit.name('row')}"
        item.emit.values[core] = (index,)
        item.inner.add(core)
        row = size(core)
        mapped = [self.segments.part(place, segment) for place in self.places[count:]]
        nothing: list[ArrayView | None] = [None] * count
        values = self.segments.rows(item, segment)(row, nothing + [row_of(place, row) for place in mapped])
        return values[:count]

    def _end(self, totals: Sequence[ArrayView], column: Size, point: Sequence[Size]) -> None:
        for total, place in zip(totals, self.places, strict=False):
            write(self.item, self.item.load(total, (column,)), part(place, point))
