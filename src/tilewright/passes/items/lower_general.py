"""Any statement into one kernel: the outer parallelism of the statement over workers, all inside it sequential.

A statement is first seen as `Points`: a space of parallel points, and what one point writes. A nest of maps gives the
product of their widths; a reduction, scan or stream at the top is a single point. The points are dealt out to blocks
in runs (CPU: the innermost dimension stays a loop that LLVM can vectorise) or to threads in strides (GPU).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.lmad import row_major
from tilewright.ir.nodes import Body, Expression, Type, Variable
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.ir.sizes import Size, product, size
from tilewright.ir.traversal import bound_variables, mentioned_names
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import BlockIndex, Constant, Declare, For, Kernel, Name, Space, ThreadIndex
from tilewright.machine.model import Machine
from tilewright.passes.items import lower_folds, lower_segments
from tilewright.passes.items.dead_stores import without_unread_arrays
from tilewright.passes.items.item_memory import WORKER, IotaArray, Item
from tilewright.passes.items.lower_columns import column_fold, write_columns
from tilewright.passes.items.lower_items import (
    bind,
    bind_index,
    call,
    lower_body,
    lower_expression,
    lower_statement,
    row_of,
    write,
)
from tilewright.passes.items.lower_scalar import lower_atom, lower_scalar_statement, lower_size
from tilewright.passes.items.nests import Level, map_nest
from tilewright.passes.items.point_loops import emit_points
from tilewright.passes.items.short_folds import short_fold, write_short_folds
from tilewright.passes.lanes.lane_loops import LANES, columns_in_lanes, wants_lanes
from tilewright.runtime.host import (
    CHUNK,
    CHUNKS,
    ITEMS,
    PER_BLOCK,
    THREADS_TOTAL,
    KernelPlan,
    Layouts,
    Schedule,
)

Places = Sequence[ArrayView]
Range: TypeAlias = tuple[kernel.Expression, kernel.Expression]


@dataclass(frozen=True)
class Points:
    """Parallel points: their extents, and the code of one point, given its indices and where the results lie.

    `copied` pairs a target's position with the array that it begins as. `columns` writes a range of points of the
    innermost dimension together where that is faster (lower_columns.py), else as its last argument does; `together`:
    how many of them. `by_block`: a point is the work of a whole block of threads, which stay together. `updates` are
    arrays among those read that the points change.
    """

    space: tuple[Size, ...]
    write: Callable[[Item, Sequence[Size], Places], None]
    copied: tuple[tuple[int, Variable], ...] = ()
    flat: FlatPoints | None = None
    columns: Callable[[Item, Sequence[Size], Range, Places, Callable[[], None]], None] | None = None
    group: int = 1
    together: int = 1
    write_blocks: Callable[[Item, Places, int], None] | None = None
    by_block: bool = False
    updates: tuple[Variable, ...] = ()
    machine: Machine | None = None  # has vectors, in whose lanes points may run that loop or compute functions


@dataclass(frozen=True)
class FlatPoints:
    """The same work as points of one dimension, for the case that `arrays` and the targets are dense."""

    points: Points
    arrays: tuple[Variable, ...]


# --- statements as points ---------------------------------------------------------------------------------------------


def points_of(expression: Expression, targets: tuple[Variable, ...]) -> Points:
    """The parallel points of an expression; a single one where nothing at its top is parallel."""
    match expression:
        case nodes.Map():
            return _map_points(expression)
        case nodes.SegMap(_, space, body):
            points = Points(space.shape, lambda item, at, places: _space_point(item, space, body, at, places))
            return _with_lanes(points) if wants_lanes(body) else points
        case nodes.SegRed(space=space) | nodes.SegScan(space=space) if len(space.shape) > 1:
            return Points(space.shape[:-1], lambda item, at, places: _segment_point(item, expression, at, places))
        case nodes.SegHist(space=space, destinations=destinations) if len(space.shape) > 1:
            copied = tuple(enumerate(destinations))
            return Points(
                space.shape[:-1], lambda item, at, places: _histogram_point(item, expression, at, places), copied
            )
        case nodes.Scatter(destination, indices, _):
            return Points(
                (indices.type.shape[0],),
                lambda item, at, places: lower_folds.scatter_one(item, expression, places[0], at[0]),
                ((0, destination),),
            )
        case nodes.Iota(count, scalar):
            return Points(
                (count,),
                lambda item, at, places: item.store(places[0], at, _number(item, at[0], scalar)),
            )
        case nodes.Replicate(count, value) if value.type.rank == 0:
            return Points((count,), lambda item, at, places: item.store(places[0], at, lower_atom(value, item.emit)))
    return Points((), lambda item, at, places: write_whole(item, expression, targets, places))


def _number(item: Item, index: Size, scalar: ScalarType) -> tuple[kernel.Expression, ...]:
    value = lower_size(index, item.emit)
    return (value if scalar == I64 else kernel.Cast(value, scalar),)


def write_whole(item: Item, expression: Expression, targets: tuple[Variable, ...], places: Places) -> None:
    """All of an expression by one worker, its results where they shall lie."""
    for target, place in zip(targets, places, strict=True):
        if target.type.rank:
            item.destinations[target.name] = place
    item.inner.update(variable.name for variable in bound_variables(expression))
    values = lower_expression(expression, item, targets)
    for value, place in zip(values, places, strict=True):
        write(item, value, place)


def _map_points(expression: nodes.Map) -> Points:
    """Maps that hold nothing but the next map (and cheap scalar code before it) become one space."""
    nest = map_nest(expression)
    levels, order, space = nest.levels, nest.order, nest.space
    flat = _flat_map(levels, order, space)
    points = Points(space, lambda item, at, given: _map_point(item, levels, order, at, given), flat=flat)
    function, arrays, _ = levels[-1]
    if wants_lanes(function.body):
        return _with_lanes(points)
    write_together = write_columns if column_fold(function) is not None else write_short_folds
    if column_fold(function) is None and (short_fold(function) is None or len(levels) > 1):
        return points

    def columns(item: Item, at: Sequence[Size], bounds: Range, places: Places, otherwise: Callable[[], None]) -> None:
        _bind_levels(item, levels[:-1], at)
        write_together(item, function, arrays, bounds, _part(places[0], at), otherwise)

    return dataclasses.replace(points, columns=columns)


def _with_lanes(points: Points) -> Points:
    """The points of the innermost dimension in lanes of vectors."""
    columns = columns_in_lanes(points.space[-1], points.write)
    return dataclasses.replace(points, columns=columns, together=LANES)


Levels: TypeAlias = Sequence[Level]


def _flat_map(levels: Levels, order: Sequence[int | None], space: Sequence[Size]) -> FlatPoints | None:
    """A nest whose elements are just those of its arrays, in their order, is one map over the flattened arrays."""
    if len(levels) < 2:
        return None
    origins = {variable.name: variable for variable in levels[0][1]}
    passed: set[str] = set()
    for (function, arrays, prefix), (_, inner, _) in itertools.pairwise(levels):
        whole = [origins[one.name] for one in arrays]
        origins = {parameter.name: one for parameter, one in zip(function.parameters, whole, strict=True)}
        passed |= origins.keys()
        if prefix or any(one.name not in origins for one in inner):
            return None
    function, arrays, _ = levels[-1]
    if mentioned_names(function) & passed:
        return None
    sources = tuple(origins[one.name] for one in arrays)
    total, rank = product(space), len(space)

    def write_flat(item: Item, at: Sequence[Size], places: Places) -> None:
        views = [_flattened(item.as_view(one), total, rank) for one in lower_folds.arrays_of(item, sources)]
        given = [_flattened(place, total, rank) for place in places]
        rows = [item.row(one, at[0]) for one in views]
        call(item, function, rows, [row_of(given[p], at[0]) if p is not None else None for p in order])

    return FlatPoints(Points((total,), write_flat), sources)


def _flattened(dense: ArrayView, total: Size, rank: int) -> ArrayView:
    """A dense array with its first `rank` dimensions as one."""
    lmad = row_major((total, *dense.lmad.shape[rank:]), dense.lmad.offset)
    return ArrayView(dense.buffer, dense.element, lmad)


def _map_point(
    item: Item,
    levels: Levels,
    order: Sequence[int | None],
    at: Sequence[Size],
    places: Places,
) -> None:
    _bind_levels(item, levels[:-1], at)
    function, variables, _ = levels[-1]
    rows = [item.row(array, at[-1]) for array in lower_folds.arrays_of(item, variables)]
    given = [_part(places[position], at) if position is not None else None for position in order]
    call(item, function, rows, given)


def _bind_levels(item: Item, levels: Levels, at: Sequence[Size]) -> None:
    """The parameters of the outer maps at these indices, and what is computed from them."""
    for (function, variables, prefix), index in zip(levels, at, strict=False):
        for parameter, array in zip(function.parameters, lower_folds.arrays_of(item, variables), strict=True):
            bind(item, parameter, item.row(array, index))
        for statement in prefix:
            lower_statement(item, statement)


def _part(place: ArrayView, at: Sequence[Size]) -> ArrayView:
    return ArrayView(place.buffer, place.element, place.lmad.fix(at))


def _bind_space(item: Item, dimensions: Sequence[tuple[Variable, Size]], at: Sequence[Size]) -> None:
    for (variable, extent), index in zip(dimensions, at, strict=False):
        bind_index(item, variable, index, extent)


def _space_point(item: Item, space: nodes.SegSpace, body: Body, at: Sequence[Size], places: Places) -> None:
    _bind_space(item, space.dimensions, at)
    lower_body(item, body, [_part(place, at) for place in places])


def _segment_point(item: Item, expression: nodes.SegRed | nodes.SegScan, at: Sequence[Size], places: Places) -> None:
    _bind_space(item, expression.space.dimensions, at)
    lower_segments.write_segment(item, expression, [_part(place, at) for place in places])


def _histogram_point(item: Item, expression: nodes.SegHist, at: Sequence[Size], places: Places) -> None:
    _bind_space(item, expression.space.dimensions, at)
    lower_segments.write_histogram(item, expression, [_part(place, at) for place in places])


def copy_points(source: Variable) -> Points:
    """Every element of an array written to the one target."""

    def copy_one(item: Item, at: Sequence[Size], places: Places) -> None:
        (array,) = lower_folds.arrays_of(item, [source]) if source.type.rank else [None]
        value = lower_atom(source, item.emit) if array is None else item.load(item.as_view(array), at)
        item.store(places[0], at, value)

    return Points(source.type.shape, copy_one)


# --- points as kernels ------------------------------------------------------------------------------------------------


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

    Raises:
        LoweringError: if a work item would need memory whose size only it knows.
    """
    types: dict[str, Type] = {variable.name: variable.type for variable in (*reads, *targets)}
    placed = dict(layouts)
    flat = points.flat
    if flat is not None and all(one.name in placed and placed[one.name].dense for one in (*flat.arrays, *targets)):
        points = dataclasses.replace(flat.points, machine=points.machine)
    item = Item(types, placed, [one.name for one in (*targets, *points.updates)])
    item.vector_lanes = threads_per_block == 1
    item.definitions.update(sizes or {})
    item.arrays |= {one.name: IotaArray(one.type.shape[0], I64) for one in reads if one.name in iotas}
    schedule = Schedule.SEQUENTIAL
    if points.write_blocks is not None:
        schedule = Schedule.GROUPS
    elif points.space:
        schedule = Schedule.BLOCKS if threads_per_block == 1 or points.by_block else Schedule.THREADS
    item.side_by_side = schedule is Schedule.THREADS
    cells = [one.name for one in reads if one.type.rank == 0 and one.name in placed]
    places = [item.arrays[target.name] for target in targets]
    views = [place for place in places if isinstance(place, ArrayView)]
    with item.emit.scope() as first:
        item.load_outer_scalars(cells)
        for statement in prologue:
            lower_scalar_statement(statement, item.emit)
    with item.emit.scope() as body:
        if points.write_blocks is not None:
            points.write_blocks(item, views, threads_per_block)
        else:
            _SCHEDULES[schedule](item, points, views, threads_per_block)
    if item.checks:
        first.append(Declare(item.failed.name, Constant(False, BOOL)))
    body = list(without_unread_arrays(item, body))
    buffers = [one for one in item.buffers.values() if one.space is Space.GLOBAL]
    built = Kernel(
        _identifier(name),
        tuple(buffers),
        tuple(parameter for parameter, _, _ in item.scalars.values()),
        tuple(item.private),
        (*first, *body),
        1 if schedule is Schedule.SEQUENTIAL else threads_per_block,
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
        uneven=any(isinstance(one, kernel.While) for one in kernel.walk(tuple(body))),
        group=points.group,
        together=max(points.together, item.together) if threads_per_block == 1 else 1,
        refused=tuple(dict.fromkeys(item.refused)) if item.lanes is None else (),
    )


def _loops(statement: kernel.Statement) -> bool:
    """Whether a point's own code loops: the loops over points are the first one or two of the nest."""
    return _loop_depth((statement,)) > 2


def _loop_depth(body: Sequence[kernel.Statement]) -> int:
    loops = ((isinstance(one, For | kernel.While), inside) for one in body for inside in kernel.bodies(one))
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

        def one_by_one() -> None:
            machine = points.machine if points.columns is None else None
            alone = bool(points.copied)
            emit_points(item, (low, high), innermost, lambda j: points.write(item, (*at, j), places), alone, machine)

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
