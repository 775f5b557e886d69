"""Points (lower_general.py) as one kernel, whose workers share them.

Points are dealt out to blocks in runs (CPU: the innermost dimension stays a loop that LLVM can vectorise) or to threads
in strides (GPU).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import BlockIndex, Constant, Declare, For, Kernel, Name, Space, ThreadIndex
from tilewright.kernel.traversal import bodies
from tilewright.passes.items.item_memory import WORKER, IotaArray, Item
from tilewright.passes.items.lower_scalar import lower_scalar_statement, lower_size
from tilewright.passes.points.dead_stores import without_unread_arrays
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.points.point_loops import emit_points
from tilewright.passes.points.products_apart import all_products_apart
from tilewright.passes.points.waiting_last import all_waiting_last
from tilewright.runtime.host import CHUNK, CHUNKS, ITEMS, PER_BLOCK, THREADS_TOTAL, KernelPlan, Layouts, Schedule


def lower_points(
    name: str,
    points: Points,
    targets: Sequence[Variable],
    reads: Sequence[Variable],
    layouts: Layouts,
    threads_per_block: int,
    iotas: Collection[str] = (),
    sizes: Mapping[str, Size] | None = None,
    prologue: Sequence[nodes.Statement] = (),
    extents: frozenset[str] = frozenset(),
) -> KernelPlan:
    """The kernel that writes the targets.

    Args:
        name: what the kernel is about; made an identifier.
        points: its work.
        targets: the arrays (or scalars in memory) that it writes; they exist.
        reads: the arrays and scalars that it uses from outside.
        layouts: how the targets, the arrays among `reads`, and those scalars that lie in memory are placed.
        threads_per_block: 1 for a CPU, whose blocks run over the innermost dimension.
        iotas: those of the reads that are 0, 1, 2, ...; they are not read from memory.
        sizes: what scalars of the host are in terms of sizes.
        prologue: statements that compute further scalars.
        extents: names of sizes that are 0 at least.

    Raises:
        LoweringError: if a work item would need memory whose size only it knows.
    """
    placed = dict(layouts)
    flat = points.flat
    if flat is not None and all(one.name in placed and placed[one.name].dense for one in (*flat.arrays, *targets)):
        points = dataclasses.replace(flat.points, machine=points.machine)
    types: dict[str, Type] = {variable.name: variable.type for variable in (*reads, *targets)}
    item = Item(types, placed, [one.name for one in (*targets, *points.updates)])
    item.extents = extents
    item.vector_lanes = threads_per_block == 1
    if points.machine is not None and points.machine.pace.gathers:
        item.gather_bytes = points.machine.vector_bytes
    item.machine = None if points.space else points.machine
    item.definitions.update(sizes or {})
    item.arrays |= {one.name: IotaArray(one.type.shape[0], I64) for one in reads if one.name in iotas}
    schedule = _schedule_of(points, threads_per_block)
    item.by_threads = threads_per_block > 1 and schedule is not Schedule.SEQUENTIAL
    item.side_by_side = schedule is Schedule.THREADS
    places = [item.arrays[target.name] for target in targets]
    views = [place for place in places if isinstance(place, ArrayView)]
    with item.emit.scope() as first:
        item.load_outer_scalars([one.name for one in reads if one.type.rank == 0 and one.name in placed])
        for statement in prologue:
            lower_scalar_statement(statement, item.emit)
    with item.emit.scope() as body:
        if points.write_blocks is not None:
            points.write_blocks(item, views, threads_per_block)
        else:
            _SCHEDULES[schedule](item, points, views, threads_per_block)
    if item.checks:
        first.append(Declare(item.failed.name, Constant(False, BOOL)))
    read = all_waiting_last(without_unread_arrays(item, body))
    if threads_per_block == 1:
        read = all_products_apart(read)
    return _plan(name, item, points, schedule, threads_per_block, first, read)


def _schedule_of(points: Points, threads_per_block: int) -> Schedule:
    if points.write_blocks is not None:
        return Schedule.GROUPS
    if not points.space:
        return Schedule.SEQUENTIAL
    return Schedule.BLOCKS if threads_per_block == 1 or points.by_block else Schedule.THREADS


def _plan(
    name: str,
    item: Item,
    points: Points,
    schedule: Schedule,
    threads: int,
    first: Sequence[kernel.Statement],
    body: Sequence[kernel.Statement],
) -> KernelPlan:
    """The kernel of an item's statements, with what its launch needs to know."""
    buffers = [one for one in item.buffers.values() if one.space is Space.GLOBAL]
    built = Kernel(
        _identifier(name),
        tuple(buffers),
        tuple(parameter for parameter, _, _ in item.scalars.values()),
        tuple(item.private),
        (*first, *body),
        1 if schedule is Schedule.SEQUENTIAL else threads,
        scalar_loops=item.scalar_loops,
    )
    return KernelPlan(
        built,
        tuple(item.buffer_names[one.name] for one in buffers),
        tuple((core, component) for _, core, component in item.scalars.values()),
        points.space,
        schedule,
        tuple(item.scratch),
        tuple(item.checks),
        heavy=bool(item.scratch) or any(_loops(statement) for statement in body),
        group=points.group,
        together=max(points.together, item.together) if threads == 1 else 1,
        apart=points.together > 1,
        by_rows=points.by_rows,
        columns=points.scanned,
        refused=tuple(dict.fromkeys(item.refused)) if item.lanes is None else (),
    )


def _loops(statement: kernel.Statement) -> bool:
    """Whether a point's own code loops: the loops over points are the first one or two of the nest."""
    return _loop_depth((statement,)) > 2


def _loop_depth(body: Sequence[kernel.Statement]) -> int:
    loops = ((isinstance(one, For | kernel.While), inside) for one in body for inside in bodies(one))
    return max((is_loop + _loop_depth(inside) for is_loop, inside in loops), default=0)


def _identifier(name: str) -> str:
    return "tw_" + re.sub(r"\W+", "_", name, flags=re.ASCII)[:60]


def _outer(item: Item, name: str) -> kernel.Expression:
    return item.emit.value_of(name)[0]


def _sequential(item: Item, points: Points, places: Places, threads: int) -> None:
    item.emit.values[WORKER] = (Constant(0, I64),)
    points.write(item, (), places)


def _named(item: Item, value: kernel.Expression, extent: Size) -> Size:
    """An index of the space as a core size."""
    name = item.emit.let(value, "at")
    core = f"%point.{item.emit.name('p')}"
    item.emit.values[core] = (name,)
    item.ranges[core] = extent
    item.inner.add(core)
    return size(core)


def decompose(item: Item, flat: kernel.Expression, extents: Sequence[Size]) -> list[Size]:
    """The indices of point number `flat` of a space."""
    indices: list[Size] = []
    for position in range(len(extents) - 1, -1, -1):
        if position == 0:
            indices.append(_named(item, flat, extents[0]))
            break
        extent = item.emit.let(lower_size(extents[position], item.emit), "extent")
        indices.append(_named(item, kernel.operation("mod", flat, extent), extents[position]))
        flat = item.emit.let(kernel.operation("floordiv", flat, extent), "rest")
    return indices[::-1]


def _point(item: Item, points: Points, at: Sequence[Size], places: Places, last: Size) -> None:
    points.write(item, (*at, last), places)


def _in_blocks(item: Item, points: Points, places: Places, threads: int) -> None:
    """Each block takes a run of items; an item is a chunk of the innermost dimension at one point of the others."""
    emit = item.emit
    *outer, innermost = points.space
    block = emit.let(BlockIndex(), "block")
    emit.values[WORKER] = (block,)
    start = emit.let(kernel.multiply(block, _outer(item, PER_BLOCK)), "start")
    end = kernel.add(start, _outer(item, PER_BLOCK))
    stop = emit.let(kernel.operation("min", end, _outer(item, ITEMS)), "stop")
    chunk = _outer(item, CHUNK)

    def write_item(number: Name) -> None:
        flat: kernel.Expression = number
        at: list[Size] = []
        if outer:
            chunks = _outer(item, CHUNKS)
            part = emit.let(kernel.operation("mod", flat, chunks), "part")
            at = decompose(item, emit.let(kernel.operation("floordiv", flat, chunks), "rest"), outer)
            flat = part
        low = emit.let(kernel.multiply(flat, chunk), "low")
        extent = emit.let(lower_size(innermost, emit), "extent")
        high = emit.let(kernel.operation("min", kernel.add(low, chunk), extent), "high")

        def one_by_one(in_lanes: Callable[[Size], None] | None = None) -> int:
            """Points without what writes some together, or by a function that does not use vectors itself."""
            machine = points.machine if points.columns is None or in_lanes else None
            alone = bool(points.copied)
            write = in_lanes or functools.partial(_point, item, points, at, places)
            around, item.vector_lanes = item.vector_lanes, item.vector_lanes and not in_lanes
            group = emit_points(item, (low, high), innermost, write, alone, machine, space=points.space)
            item.vector_lanes = around
            item.together = max(item.together, group)
            return group

        if points.columns is not None:
            points.columns(item, at, (low, high), places, one_by_one)
        else:
            one_by_one()

    emit.loop("item", start, stop, write_item)


def _in_threads(item: Item, points: Points, places: Places, threads: int) -> None:
    """Thread number g takes the points g, g + threads in all, ..."""
    emit = item.emit
    place = kernel.add(kernel.multiply(BlockIndex(), Constant(threads, I64)), ThreadIndex())
    thread = emit.let(place, "thread")
    emit.values[WORKER] = (thread,)
    items, stride = _outer(item, ITEMS), _outer(item, THREADS_TOTAL)
    # Memory may suffice for fewer workers than the blocks have threads.
    start = emit.let(kernel.operation("select", kernel.operation("lt", thread, stride), thread, items), "start")
    emit.loop("item", start, items, lambda one: points.write(item, decompose(item, one, points.space), places), stride)


_SCHEDULES: Mapping[Schedule, Callable[[Item, Points, Places, int], None]] = {
    Schedule.SEQUENTIAL: _sequential,
    Schedule.BLOCKS: _in_blocks,
    Schedule.THREADS: _in_threads,
}
