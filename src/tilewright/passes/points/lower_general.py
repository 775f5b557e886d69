"""Any statement as points: the outer parallelism of the statement, and the sequential code of one point of it.

A nest of maps gives the product of their widths; a reduction, scan or stream at the top is a single point. Points
become kernels in point_kernels.py.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import row_major
from tilewright.ir.nodes import Body, Expression, Variable
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import ONE, Size, product
from tilewright.ir.traversal import bound_variables, mentioned
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.machine.model import Machine
from tilewright.passes.core.nests import Level, map_nest
from tilewright.passes.items import lower_folds, lower_loops, lower_segments  # noqa: F401  # some register
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_columns import column_fold, is_nearer, write_columns
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
from tilewright.passes.items.lower_scalar import lower_atom, lower_size
from tilewright.passes.lanes.lane_loops import (
    LANES,
    carries_arrays,
    columns_in_lanes,
    in_lanes,
    scanned_parameters,
    wants_lanes,
)
from tilewright.passes.points import inner_maps, scan_lanes  # noqa: F401  # register maps and scans inside points
from tilewright.passes.points.short_folds import short_fold, write_short_folds

Places = Sequence[ArrayView]
Range: TypeAlias = tuple[kernel.Expression, kernel.Expression]


@dataclass(frozen=True)
class Points:
    """Parallel points: their extents, and the code of one point, given its indices and where the results lie.

    `copied` pairs a target's position with the array that it begins as. `columns` writes a range of points of the
    innermost dimension together where that is faster (lower_columns.py), else as its last argument does; `together`:
    how many of them; `by_rows`: they are folded row by row; `scanned`: each row has results, and a block so many points
    at the least and at the most. `by_block`: a point is the work of a whole block of threads, which stay together.
    `updates` are arrays among those read that the points change.
    """

    space: tuple[Size, ...]
    write: Callable[[Item, Sequence[Size], Places], None]
    copied: tuple[tuple[int, Variable], ...] = ()
    flat: FlatPoints | None = None
    columns: Callable[[Item, Sequence[Size], Range, Places, Callable[..., Any]], None] | None = None
    group: int = 1
    together: int = 1
    by_rows: bool = False
    scanned: tuple[int, int] | None = None
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
            return _with_lanes(points, body)
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
            return Points((count,), lambda item, at, places: item.store(places[0], at, _number(item, at[0], scalar)))
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
    if wants_lanes(function.body) or carries_arrays(function.body):
        return _with_lanes(points, function.body)
    if scanned := scanned_parameters(function):
        return _with_scans_in_lanes(points, levels, scanned)
    by_columns = column_fold(function) is not None
    if not by_columns and (short_fold(function) is None or len(levels) > 1):
        return points

    def columns(item: Item, at: Sequence[Size], bounds: Range, places: Places, otherwise: Callable[..., Any]) -> None:
        _bind_levels(item, levels[:-1], at)
        given = [_part(places[position], at) for position in order if position is not None]
        if by_columns:
            write_columns(item, function, arrays, bounds, given, otherwise, in_lanes=otherwise)
        else:
            write_short_folds(item, function, arrays, bounds, given[0], otherwise)

    return dataclasses.replace(points, columns=columns, by_rows=by_columns)


def _with_lanes(points: Points, body: Body) -> Points:
    """The points of the innermost dimension in lanes of vectors, if their code wants them."""
    if not (wants_lanes(body) or carries_arrays(body)):
        return points
    columns = columns_in_lanes(body, points.space[-1], points.write)
    return dataclasses.replace(points, columns=columns, together=LANES)


Levels: TypeAlias = Sequence[Level]


def _with_scans_in_lanes(points: Points, levels: Levels, scanned: Sequence[Variable]) -> Points:
    """Points that scan a row each, in lanes of vectors where neighbouring points are nearer in memory than rows are."""
    function, arrays, _ = levels[-1]

    def columns(item: Item, at: Sequence[Size], bounds: Range, places: Places, otherwise: Callable[[], None]) -> None:
        _bind_levels(item, levels[:-1], at)
        views = dict(zip(function.parameters, lower_folds.arrays_of(item, arrays), strict=True))
        taken = [one for one in map(views.get, scanned) if isinstance(one, ArrayView) and one.lmad.strides[1] != ONE]
        if not item.vector_lanes or len(taken) < len(scanned):
            otherwise()
            return
        conditions = [is_nearer(item, one) for one in taken]
        nearer = item.emit.let(functools.reduce(functools.partial(kernel.operation, "and"), conditions), "nearer")
        if in_lanes(
            item, bounds, points.space[-1], lambda last: points.write(item, (*at, last), places), otherwise, nearer
        ):
            item.together = max(item.together, LANES)

    return dataclasses.replace(points, columns=columns)


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
    if mentioned(function) & passed:
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


def _map_point(item: Item, levels: Levels, order: Sequence[int | None], at: Sequence[Size], places: Places) -> None:
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
