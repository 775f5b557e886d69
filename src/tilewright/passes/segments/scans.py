"""Scans of segments by the threads of blocks, tile by tile in shared memory.

In a tile, rows are read in order by neighbouring threads into shared memory; each thread scans `rows_each` neighbouring
rows; what the threads have is scanned in shared memory in log2 steps [Hillis and Steele 1986]; each thread combines
what stands before it with its rows. A group goes through its tiles with what those before gave (`group_scan`); or each
tile is a point of its own, and looks back at others (look_back.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import row_major
from tilewright.ir.nodes import Variable
from tilewright.ir.sizes import Size, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Barrier, Expression, Name, integer, multiply, operation
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Rows
from tilewright.passes.items.lower_items import call, row_of, write
from tilewright.passes.items.lower_scalar import Value, assign_values, declare_value, lower_atom, lower_size
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.segments.form import Chunks, Segments, shared_arrays
from tilewright.passes.segments.groups import Group, RowRange, in_groups, range_of, scalars_of
from tilewright.passes.segments.points import scan_points, values_before


def group_scan(
    segments: Segments, threads: int, rows_each: int, chunks: Chunks | None = None, before: Sequence[Variable] = ()
) -> Points:
    """`scan_points` with `threads` threads for each point; each thread takes `rows_each` rows of a tile."""

    def write_group(item: Item, group: Group, at: Sequence[Size], places: Places) -> None:
        emit = item.emit
        tiles = make_tiles(item, segments, chunks, group, rows_each, at, places)
        first = [lower_atom(atom, emit) for atom in segments.neutral]
        if before:
            first = values_before(item, segments, before, at)
        carry = [declare_value(value, "carry", emit) for value in first]
        length = segments.width if chunks is None else size(chunks.length)
        count = emit.let(lower_size((length + tiles.rows - 1) // tiles.rows, emit), "tiles")

        def write_tile(number: Name) -> None:
            start = emit.let(operation("add", tiles.where.begin, multiply(number, integer(tiles.rows))), "tile_start")
            tiles.read(start)
            tiles.scan_threads()
            tiles.put(carry)
            assign_values(carry, tiles.joined(carry, tiles.total()), emit)
            tiles.write(start)

        emit.loop("tile", integer(0), count, write_tile)

    return in_groups(scan_points(segments, chunks, before), threads, write_group)


def make_tiles(
    item: Item, segments: Segments, chunks: Chunks | None, group: Group, rows_each: int, at: Sequence[Size],
    places: Places,
) -> Tiles:  # fmt: skip
    """The tiles of a point."""
    where = range_of(item, segments, chunks, group, at)
    rows = segments.rows(item, where.segment)
    parts = [segments.part(place, where.segment) for place in places]
    stage = shared_arrays(item, segments, group.block * rows_each, "stage")
    sums = shared_arrays(item, segments, 2 * group.block, "sums")
    return Tiles(item, segments, group, rows_each, where, rows, parts, stage, sums)


@dataclass(frozen=True)
class Tiles:
    """The tiles of one point: its rows, where the results lie, and the shared memory of one tile.

    For each of them in turn `read`, `scan_threads`, `put` and `write`.
    """

    item: Item
    segments: Segments
    group: Group
    rows_each: int
    where: RowRange
    row: Rows
    parts: Sequence[ArrayView]
    stage: Sequence[ArrayView]
    sums: Sequence[ArrayView]

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.group.threads * self.rows_each

    def read(self, start: Expression) -> None:
        """The rows from `start` on into the stage; neutral elements after the last one. What is mapped is written."""
        self._each_row(start, self._read_row)
        self.item.emit.emit(Barrier())

    def scan_threads(self) -> None:
        """Each thread scans its rows; `sums` are those of the threads."""
        item, segments = self.item, self.segments
        emit = item.emit
        totals = [declare_value(lower_atom(atom, emit), "total", emit) for atom in segments.neutral]
        mine = self._mine()

        def own(e: Size) -> None:
            values = [item.load(array, (mine + e,)) for array in self.stage]
            assign_values(totals, self.joined(totals, values), emit)
            for array, total in zip(self.stage, totals, strict=True):
                item.store(array, (mine + e,), total)

        item.loop(size(self.rows_each), "e", own)
        self._scan_sums(totals)

    def total(self) -> list[Value]:
        """What the tile gives."""
        last = operation("add", self.group.first, integer(self.group.threads - 1 + self._half))
        at = self.item.named(last, "place")
        return [self.item.load(array, (at,)) for array in self.sums]

    def joined(self, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """Both combined."""
        return scalars_of(call(self.item, self.segments.combine, [*left, *right]))

    def put(self, carry: Sequence[Value]) -> None:
        """The stage becomes the scan of what stands before the tile, `carry`, and the tile."""
        item, group, emit = self.item, self.group, self.item.emit
        prefix = [declare_value(value, "prefix", emit) for value in carry]
        before = operation("max", operation("sub", group.thread, integer(1)), integer(0))
        left = item.named(before, "place")

        def take_left() -> None:
            values = [item.load(array, (left + self._half,)) for array in self.sums]
            assign_values(prefix, self.joined(carry, values), emit)

        emit.when(operation("gt", group.local, integer(0)), take_left)
        mine = self._mine()

        def one(e: Size) -> None:
            values = [item.load(array, (mine + e,)) for array in self.stage]
            for array, value in zip(self.stage, self.joined(prefix, values), strict=True):
                write(item, value, row_of(array, mine + e))

        item.loop(size(self.rows_each), "e", one)

    def write(self, start: Expression) -> None:
        """The stage into the results, rows from `start` on; then the stage may be filled again."""
        self.item.emit.emit(Barrier())
        self._each_row(start, self._write_row)
        self.item.emit.emit(Barrier())

    def spare_sums(self) -> list[ArrayView]:
        """Shared memory with a value of each thread, free between `scan_threads` and `write`."""
        other, count = self.group.block - self._half, self.group.block
        return [
            ArrayView(one.buffer, one.element, row_major((size(count),), one.lmad.offset + other)) for one in self.sums
        ]

    @property
    def _half(self) -> int:
        """Where the result of `_scan_sums` lies in `sums`."""
        steps = self.group.threads.bit_length() - 1
        return self.group.block if steps % 2 else 0

    def _mine(self) -> Size:
        return self.item.named(multiply(self.group.thread, integer(self.rows_each)), "place")

    def _each_row(self, start: Expression, write_row: Callable[[Expression, Size], None]) -> None:
        """The rows that this thread moves, every `threads`-th one: their number, and where they are in the stage."""
        item, group = self.item, self.group
        place = multiply(group.first, integer(self.rows_each))

        def one(e: Size) -> None:
            moved = lower_size(e * group.threads, item.emit)
            inside = item.emit.let(operation("add", group.local, moved), "inside")
            k = item.emit.let(operation("add", start, inside), "k")
            write_row(k, item.named(operation("add", place, inside), "place"))

        item.loop(size(self.rows_each), "e", one)

    def _read_row(self, k: Expression, at: Size) -> None:
        """stage[at] = row k, or the neutral element after the last row."""
        item, count = self.item, len(self.segments.neutral)

        def inside() -> None:
            row = item.named(k, "place")
            values = self.row(row, [None] * count + [row_of(place, row) for place in self.parts[count:]])
            for array, value in zip(self.stage, scalars_of(values[:count]), strict=True):
                item.store(array, (at,), value)

        def outside() -> None:
            for array, atom in zip(self.stage, self.segments.neutral, strict=True):
                item.store(array, (at,), lower_atom(atom, item.emit))

        item.emit.when(operation("lt", k, self.where.end), inside, outside)

    def _write_row(self, k: Expression, at: Size) -> None:
        """Row k of the results = stage[at]."""
        item = self.item

        def put() -> None:
            row = item.named(k, "place")
            for array, place in zip(self.stage, self.parts, strict=False):
                write(item, item.load(array, (at,)), row_of(place, row))

        item.emit.when(operation("lt", k, self.where.end), put)

    def _scan_sums(self, totals: Sequence[Value]) -> None:
        """Scan the threads' totals, from one half of `sums` to the other and back."""
        item, group = self.item, self.group
        emit = item.emit
        mine = item.named(group.thread, "place")
        for array, total in zip(self.sums, totals, strict=True):
            item.store(array, (mine,), total)
        emit.emit(Barrier())
        half, distance = 0, 1
        while distance < group.threads:
            values = [declare_value(item.load(array, (mine + half,)), "sum", emit) for array in self.sums]

            def combine(values: list[tuple[Name, ...]] = values, half: int = half, distance: int = distance) -> None:
                others = [item.load(array, (mine + half - distance,)) for array in self.sums]
                assign_values(values, self.joined(others, values), emit)

            emit.when(operation("ge", group.local, integer(distance)), combine)
            half = group.block - half
            for array, value in zip(self.sums, values, strict=True):
                item.store(array, (mine + half,), value)
            emit.emit(Barrier())
            distance *= 2
