"""Folds and scans of segments by the threads of blocks: a group of threads, a power of two, shares one segment.

A group as large as the block is "one block per segment"; several groups lie side by side in a block for short
segments; a long segment is cut into chunks, of which each has a block (steps.py). Threads combine what they
have in a tree in shared memory. The order of rows is kept where the operator needs it, and the tree depends on sizes
and the machine's numbers alone, so that a result is the same in every run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL
from tilewright.ir.sizes import Size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Name, integer, multiply, operation
from tilewright.passes.items.item_memory import WORKER, Item
from tilewright.passes.items.lower_items import call, row_of, write
from tilewright.passes.items.lower_scalar import Value, assign_values, declare_value, lower_atom, lower_size
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.points.point_kernels import decompose
from tilewright.passes.segments.form import Chunks, Segments, shared_arrays, split_point
from tilewright.passes.segments.points import fold_points, part
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
    thread, number = emit.let(kernel.ThreadIndex(), "thread"), emit.let(kernel.BlockIndex(), "block")
    worker = operation("add", multiply(number, integer(block)), thread)
    emit.values[WORKER] = (emit.let(worker, "worker"),)
    per_block = block // threads
    one_group = threads == block
    local = thread if one_group else emit.let(operation("mod", thread, integer(threads)), "local")
    slot = integer(0) if one_group else emit.let(operation("floordiv", thread, integer(threads)), "slot")
    first = integer(0) if one_group else emit.let(operation("sub", thread, local), "first")
    items = emit.value_of(ITEMS)[0]
    stride = emit.let(operation("floordiv", emit.value_of(THREADS_TOTAL)[0], integer(threads)), "stride")

    def write_at(base: Name) -> None:
        point = base if one_group else emit.let(operation("add", base, slot), "point")
        active = Constant(True, BOOL) if one_group else emit.let(operation("lt", point, items), "active")
        last = operation("sub", items, integer(1))
        flat = point if one_group else emit.let(operation("min", point, last), "point")
        group = Group(threads, block, thread, local, first, active)
        write(group, decompose(item, flat, space) if space else ())

    start = emit.let(multiply(number, integer(per_block)), "start")
    emit.loop("base", start, items, write_at, stride)


def range_of(item: Item, segments: Segments, chunks: Chunks | None, group: Group, at: Sequence[Size]) -> RowRange:
    """The rows of a group's point."""
    start, length, segment = split_point(segments, chunks, at)
    begin = item.emit.let(lower_size(start, item.emit), "begin")
    rows = item.emit.let(lower_size(length, item.emit), "rows")
    end = operation("add", begin, rows)
    if group.threads != group.block:
        end = operation("select", group.active, end, begin)
    return RowRange(begin, item.emit.let(end, "end"), segment)


@dataclass(frozen=True)
class RowRange:
    """The rows of a point: begin .. end-1 of a segment; none for a group that has no point."""

    begin: Expression
    end: Expression
    segment: Sequence[Size]


def _fold(
    item: Item, segments: Segments, chunks: Chunks | None, group: Group, at: Sequence[Size], places: Places
) -> None:
    """Each thread folds its rows: every `threads`-th one of a commutative operator, else a run of neighbours."""
    emit, count = item.emit, len(segments.neutral)
    where = range_of(item, segments, chunks, group, at)
    segments.bind_neutral(item, where.segment)
    mapped = [segments.part(place, where.segment) for place in places[count:]]
    totals = [declare_value(lower_atom(atom, emit), "total", emit) for atom in segments.neutral]
    start: Expression = operation("add", where.begin, group.local)
    stop, step = where.end, integer(group.threads)
    if not segments.commutative:
        width = operation("add", operation("sub", where.end, where.begin), integer(group.threads - 1))
        run = emit.let(operation("floordiv", width, integer(group.threads)), "run")
        start = emit.let(operation("add", where.begin, multiply(group.local, run)), "start")
        stop, step = operation("min", operation("add", start, run), where.end), integer(1)
    rows = segments.rows(item, where.segment)

    def add(row: Size) -> None:
        values = rows(row, [None] * count + [row_of(place, row) for place in mapped])
        assign_values(totals, scalars_of(call(item, segments.combine, [*totals, *values[:count]])), emit)

    item.loop_from(start, stop, segments.width, "k", add, step)
    shared = shared_arrays(item, segments, group.block, "shared")
    mine = item.named(group.thread, "place")
    for array, total in zip(shared, totals, strict=True):
        item.store(array, (mine,), total)
    emit.emit(kernel.Barrier())
    tree(item, segments, group, shared)

    def finish() -> None:
        first = item.named(group.first, "place")
        for array, place in zip(shared, places, strict=False):
            write(item, item.load(array, (first,)), part(place, at))

    leads = operation("eq", group.local, integer(0))
    emit.when(operation("and", leads, group.active), finish)


def tree(item: Item, segments: Segments, group: Group, shared: Sequence[ArrayView]) -> None:
    """shared[first] becomes all of the group's values, combined in the order of the threads."""
    distance = 1
    while distance < group.threads:
        remaining = group.threads // (2 * distance)

        def combine(distance: int = distance) -> None:
            left = operation("add", group.first, multiply(group.local, integer(2 * distance)))
            at = item.named(left, "place")
            values = [item.load(array, (at,)) for array in shared]
            others = [item.load(array, (at + distance,)) for array in shared]
            for array, value in zip(shared, call(item, segments.combine, [*values, *others]), strict=True):
                write(item, value, row_of(array, at))

        item.emit.when(operation("lt", group.local, integer(remaining)), combine)
        item.emit.emit(kernel.Barrier())
        distance *= 2


def scalars_of(values: Sequence[object]) -> list[Value]:
    """Those of the values that are scalars."""
    return [value for value in values if isinstance(value, tuple)]
