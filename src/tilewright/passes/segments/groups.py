"""Folds and scans of segments by the threads of blocks: a group of threads, a power of two, shares one segment.

A group as large as the block is "one block per segment"; several groups lie side by side in a block for short
segments; a long segment is cut into chunks, of which each has a block (steps.py). Threads combine what they
have in a tree in shared memory. The order of rows is kept where the operator needs it, and the tree depends on sizes
and the machine's numbers alone, so that a result is the same in every run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.ir.nodes import Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import (
    Barrier,
    BlockIndex,
    Constant,
    Expression,
    For,
    If,
    Name,
    ThreadIndex,
    integer,
    multiply,
    operation,
)
from tilewright.passes.items.item_memory import WORKER, Item
from tilewright.passes.items.lower_general import Places, Points, decompose
from tilewright.passes.items.lower_items import call, row_of, write
from tilewright.passes.items.lower_scalar import Value, assign_values, declare_value, lower_atom, lower_size
from tilewright.passes.segments.form import Chunks, Segments, shared_arrays, split_point
from tilewright.passes.segments.points import fold_points, part, scan_points, values_before
from tilewright.runtime.host import ITEMS, THREADS_TOTAL


@dataclass(frozen=True)
class Group:
    """The threads that share a segment.

    Attributes:
        threads: how many they are, a power of two; `block` are those of the whole block.
        thread: this one's number in the block, `local` in the group; `first` is the group's first thread.
        active: this group has a segment (a block's last groups may have none, but come to every barrier).
    """

    threads: int
    block: int
    thread: Expression
    local: Expression
    first: Expression
    active: Expression


GroupWriter: TypeAlias = Callable[[Item, Group, Sequence[Size], Places], None]


def group_fold(segments: Segments, threads: int, chunks: Chunks | None = None) -> Points:
    """`fold_points` with `threads` threads for each point."""

    def write_group(item: Item, group: Group, at: Sequence[Size], places: Places) -> None:
        _fold(item, segments, chunks, group, at, places)

    return in_groups(fold_points(segments, chunks), threads, write_group)


def group_scan(
    segments: Segments, threads: int, rows_each: int, chunks: Chunks | None = None, before: Sequence[Variable] = ()
) -> Points:
    """`scan_points` with `threads` threads for each point; each thread takes `rows_each` rows of a tile."""

    def write_group(item: Item, group: Group, at: Sequence[Size], places: Places) -> None:
        _Scan(item, segments, chunks, group, rows_each).write(at, places, before)

    return in_groups(scan_points(segments, chunks, before), threads, write_group)


def in_groups(points: Points, threads: int, write_group: GroupWriter) -> Points:
    """The points with the code of blocks, in which `threads` threads share a point."""

    def write_blocks(item: Item, places: Places, block: int) -> None:
        _each_group(item, points.space, threads, block, lambda group, at: write_group(item, group, at, places))

    return dataclasses.replace(points, group=threads, write_blocks=write_blocks)


def _each_group(
    item: Item, space: Sequence[Size], threads: int, block: int, write: Callable[[Group, Sequence[Size]], None]
) -> None:
    """The points that a block's groups take; all threads of the block go round equally often, for the barriers."""
    emit = item.emit
    thread, number = emit.let(ThreadIndex(), "thread"), emit.let(BlockIndex(), "block")
    worker = operation("add", multiply(number, integer(block)), thread)
    emit.values[WORKER] = (emit.let(worker, "worker"),)
    per_block = block // threads
    one_group = threads == block
    local = thread if one_group else emit.let(operation("mod", thread, integer(threads)), "local")
    slot = integer(0) if one_group else emit.let(operation("floordiv", thread, integer(threads)), "slot")
    first = integer(0) if one_group else emit.let(operation("sub", thread, local), "first")
    items = emit.value_of(ITEMS)[0]
    stride = emit.let(operation("floordiv", emit.value_of(THREADS_TOTAL)[0], integer(threads)), "stride")
    base = Name(emit.name("base"), I64)
    with emit.scope() as body:
        point = base if one_group else emit.let(operation("add", base, slot), "point")
        active = Constant(True, BOOL) if one_group else emit.let(operation("lt", point, items), "active")
        last = operation("sub", items, integer(1))
        flat = point if one_group else emit.let(operation("min", point, last), "point")
        group = Group(threads, block, thread, local, first, active)
        write(group, decompose(item, flat, space) if space else ())
    start = emit.let(multiply(number, integer(per_block)), "start")
    emit.emit(For(base.name, start, items, tuple(body), step=stride))


def _range(item: Item, segments: Segments, chunks: Chunks | None, group: Group, at: Sequence[Size]) -> _Rows:
    start, length, segment = split_point(segments, chunks, at)
    begin = item.emit.let(lower_size(start, item.emit), "begin")
    rows = item.emit.let(lower_size(length, item.emit), "rows")
    end = operation("add", begin, rows)
    if group.threads != group.block:
        end = operation("select", group.active, end, begin)
    return _Rows(begin, item.emit.let(end, "end"), segment)


@dataclass(frozen=True)
class _Rows:
    """The rows of a point: begin .. end-1 of a segment; none for a group that has no point."""

    begin: Expression
    end: Expression
    segment: Sequence[Size]


def _fold(
    item: Item, segments: Segments, chunks: Chunks | None, group: Group, at: Sequence[Size], places: Places
) -> None:
    """Each thread folds its rows: every `threads`-th one of a commutative operator, else a run of neighbours."""
    emit, count = item.emit, len(segments.neutral)
    where = _range(item, segments, chunks, group, at)
    mapped = [segments.part(place, where.segment) for place in places[count:]]
    totals = [declare_value(lower_atom(atom, emit), "total", emit) for atom in segments.neutral]
    start: Expression = operation("add", where.begin, group.local)
    stop, step = where.end, integer(group.threads)
    if not segments.commutative:
        width = operation("add", operation("sub", where.end, where.begin), integer(group.threads - 1))
        run = emit.let(operation("floordiv", width, integer(group.threads)), "run")
        start = emit.let(operation("add", where.begin, multiply(group.local, run)), "start")
        stop, step = operation("min", operation("add", start, run), where.end), integer(1)
    index, row = item.index("k", segments.width)
    rows = segments.rows(item, where.segment)
    with emit.scope() as body:
        values = rows(row, [None] * count + [row_of(place, row) for place in mapped])
        assign_values(totals, _scalars(call(item, segments.combine, [*totals, *values[:count]])), emit)
    emit.emit(For(index.name, start, stop, tuple(body), step=step))
    shared = shared_arrays(item, segments, group.block, "shared")
    mine = _named(item, group.thread)
    for array, total in zip(shared, totals, strict=True):
        item.store(array, (mine,), total)
    emit.emit(Barrier())
    _tree(item, segments, group, shared)

    def finish() -> None:
        first = _named(item, group.first)
        for array, place in zip(shared, places, strict=False):
            write(item, item.load(array, (first,)), part(place, at))

    leads = operation("eq", group.local, integer(0))
    emit.when(operation("and", leads, group.active), finish)


def _tree(item: Item, segments: Segments, group: Group, shared: Sequence[ArrayView]) -> None:
    """shared[first] becomes all of the group's values, combined in the order of the threads."""
    distance = 1
    while distance < group.threads:
        remaining = group.threads // (2 * distance)

        def combine(distance: int = distance) -> None:
            left = operation("add", group.first, multiply(group.local, integer(2 * distance)))
            at = _named(item, left)
            values = [item.load(array, (at,)) for array in shared]
            others = [item.load(array, (at + distance,)) for array in shared]
            for array, value in zip(shared, call(item, segments.combine, [*values, *others]), strict=True):
                write(item, value, row_of(array, at))

        item.emit.when(operation("lt", group.local, integer(remaining)), combine)
        item.emit.emit(Barrier())
        distance *= 2


def _named(item: Item, value: Expression) -> Size:
    """A value of the kernel as a size."""
    core = f"%place.{item.emit.name('place')}"
    item.emit.values[core] = (item.emit.let(value, "place"),)
    item.inner.add(core)
    return size(core)


def _scalars(values: Sequence[object]) -> list[Value]:
    return [value for value in values if isinstance(value, tuple)]


Carry: TypeAlias = Sequence[tuple[Name, ...]]


# --- scans ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scan:
    """A group scans its rows tile by tile; between tiles every thread keeps what the tiles before give.

    In a tile, rows are read in order by neighbouring threads into shared memory; each thread scans `rows_each`
    neighbouring rows; what the threads have is scanned in shared memory in log2 steps [Hillis and Steele 1986]; each
    thread combines what stands before it with its rows.
    """

    item: Item
    segments: Segments
    chunks: Chunks | None
    group: Group
    rows_each: int

    def write(self, at: Sequence[Size], places: Places, before: Sequence[Variable]) -> None:
        """The scan of one point."""
        item, segments, group = self.item, self.segments, self.group
        emit = item.emit
        where = _range(item, segments, self.chunks, group, at)
        first = [lower_atom(atom, emit) for atom in segments.neutral]
        if before:
            first = values_before(item, segments, before, at)
        carry = [declare_value(value, "carry", emit) for value in first]
        rows = segments.rows(item, where.segment)
        parts = [segments.part(place, where.segment) for place in places]
        stage = shared_arrays(item, segments, group.block * self.rows_each, "stage")
        sums = shared_arrays(item, segments, 2 * group.block, "sums")
        tile = group.threads * self.rows_each
        length = segments.width if self.chunks is None else size(self.chunks.length)
        tiles = emit.let(lower_size((length + tile - 1) // tile, emit), "tiles")
        number = Name(emit.name("tile"), I64)
        with emit.scope() as body:
            start = emit.let(operation("add", where.begin, multiply(number, integer(tile))), "tile_start")
            self._each_row(start, lambda k, at: self._read(where, rows, parts, stage, k, at))
            emit.emit(Barrier())
            self._scan_tile(stage, sums, carry)
            emit.emit(Barrier())
            self._each_row(start, lambda k, at: self._write(where, parts, stage, k, at))
            emit.emit(Barrier())
        emit.emit(For(number.name, Constant(0, I64), tiles, tuple(body)))

    def _each_row(self, start: Expression, write_row: Callable[[Expression, Size], None]) -> None:
        """The rows that this thread moves, every `threads`-th one: their number, and where they are in the stage."""
        item, group = self.item, self.group
        place = multiply(group.first, integer(self.rows_each))

        def one(e: Size) -> None:
            moved = lower_size(e * group.threads, item.emit)
            inside = item.emit.let(operation("add", group.local, moved), "inside")
            k = item.emit.let(operation("add", start, inside), "k")
            write_row(k, _named(item, operation("add", place, inside)))

        item.loop(size(self.rows_each), "e", one)

    def _read(
        self,
        where: _Rows,
        rows: Callable[[Size, Sequence[ArrayView | None]], Sequence[object]],
        parts: Sequence[ArrayView],
        stage: Sequence[ArrayView],
        k: Expression,
        at: Size,
    ) -> None:
        """stage[at] = row k, or the neutral element after the last row."""
        item, count = self.item, len(self.segments.neutral)
        emit = item.emit
        with emit.scope() as inside:
            row = _named(item, k)
            values = rows(row, [None] * count + [row_of(place, row) for place in parts[count:]])
            for array, value in zip(stage, _scalars(values[:count]), strict=True):
                item.store(array, (at,), value)
        with emit.scope() as outside:
            for array, atom in zip(stage, self.segments.neutral, strict=True):
                item.store(array, (at,), lower_atom(atom, emit))
        emit.emit(If(operation("lt", k, where.end), tuple(inside), tuple(outside)))

    def _scan_tile(self, stage: Sequence[ArrayView], sums: Sequence[ArrayView], carry: Carry) -> None:
        """The stage becomes the scan of carry and stage; carry goes on."""
        item, group, segments = self.item, self.group, self.segments
        emit, combine = item.emit, segments.combine
        mine = _named(item, multiply(group.thread, integer(self.rows_each)))
        totals = [declare_value(lower_atom(atom, emit), "total", emit) for atom in segments.neutral]

        def own(e: Size) -> None:
            values = [item.load(array, (mine + e,)) for array in stage]
            assign_values(totals, _scalars(call(item, combine, [*totals, *values])), emit)
            for array, total in zip(stage, totals, strict=True):
                item.store(array, (mine + e,), total)

        item.loop(size(self.rows_each), "e", own)
        half = self._scan_sums(sums, totals)
        prefix = [declare_value(value, "prefix", emit) for value in carry]
        left = _named(item, operation("max", operation("sub", group.thread, integer(1)), integer(0)))

        def take_left() -> None:
            values = [item.load(array, (left + half,)) for array in sums]
            assign_values(prefix, _scalars(call(item, combine, [*carry, *values])), emit)

        emit.when(operation("gt", group.local, integer(0)), take_left)

        def put(e: Size) -> None:
            values = [item.load(array, (mine + e,)) for array in stage]
            for array, value in zip(stage, call(item, combine, [*prefix, *values]), strict=True):
                write(item, value, row_of(array, mine + e))

        item.loop(size(self.rows_each), "e", put)
        last = _named(item, operation("add", group.first, integer(group.threads - 1 + half)))
        values = [item.load(array, (last,)) for array in sums]
        assign_values(carry, _scalars(call(item, combine, [*carry, *values])), emit)

    def _scan_sums(self, sums: Sequence[ArrayView], totals: Sequence[Value]) -> int:
        """Scan the threads' totals; the half of `sums` in which the result lies begins there."""
        item, group = self.item, self.group
        emit = item.emit
        mine = _named(item, group.thread)
        for array, total in zip(sums, totals, strict=True):
            item.store(array, (mine,), total)
        emit.emit(Barrier())
        half, distance = 0, 1
        while distance < group.threads:
            values = [declare_value(item.load(array, (mine + half,)), "sum", emit) for array in sums]

            def combine(values: list[tuple[Name, ...]] = values, half: int = half, distance: int = distance) -> None:
                others = [item.load(array, (mine + half - distance,)) for array in sums]
                assign_values(values, _scalars(call(item, self.segments.combine, [*others, *values])), emit)

            emit.when(operation("ge", group.local, integer(distance)), combine)
            half = group.block - half
            for array, value in zip(sums, values, strict=True):
                item.store(array, (mine + half,), value)
            emit.emit(Barrier())
            distance *= 2
        return half

    def _write(
        self, where: _Rows, parts: Sequence[ArrayView], stage: Sequence[ArrayView], k: Expression, at: Size
    ) -> None:
        """Row k of the results = stage[at]."""
        item = self.item

        def put() -> None:
            row = _named(item, k)
            for array, place in zip(stage, parts, strict=False):
                write(item, item.load(array, (at,)), row_of(place, row))

        item.emit.when(operation("lt", k, where.end), put)
