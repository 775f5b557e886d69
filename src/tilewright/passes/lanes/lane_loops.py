"""Maps whose functions run sequential loops (scans, say), with neighbouring points in the lanes of vectors on a CPU.

    for each point i: for k: acc = combine(acc, x[i, k]); y[i, k] = acc
    =>  for each LANES points: for k: for all lanes i: acc[i] = combine(acc[i], x[i, k]); y[i, k] = acc[i]

A loop over k that needs its last round's results cannot run in vectors; points do not need each other's. The arrays of
one point get a last dimension for the lanes, so that neighbours lie side by side. The last group begins earlier, so
that it is whole: some points are computed twice. Fewer points than lanes are computed one by one.

Points that loop with arrays of their own go in lanes where a round writes elements of these, or rows so short that they
would not fill vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Statement
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.ir.sizes import ZERO, Size, product, size
from tilewright.ir.traversal import all_statements, bound_variables, sub_bodies
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Buffer, Constant, Expression, For, If, Name, Space, operation
from tilewright.passes.core.overwriting import overwriting
from tilewright.passes.items.attempts import ItemState
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lane_arrays import are_few
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.items.upper_bounds import defined_size
from tilewright.passes.lanes.lane_code import write_group
from tilewright.passes.lanes.lane_variance import NotInLanes
from tilewright.runtime.host import CHUNK, CHUNKS

Places: TypeAlias = Sequence[ArrayView]
Columns: TypeAlias = Callable[[Item, Sequence[Size], tuple[Expression, Expression], Places, Callable[[], None]], None]
LANES = 16
"""Points of a group: one or more registers of values, whose latencies overlap."""

SHORTEST = 9
"""Rows from which on vectors are filled by the row of one point."""

MOST_ELEMENTS = 8192
"""Of what a point carries, for which lanes have 2 MB at the most: with what its rounds make anew, 4."""

_MAPS = (nodes.Map, nodes.SegMap)


def wants_lanes(body: Body) -> bool:
    """Whether points with this body run several scans (or one of several values), each waiting for its own last step.

    One scan of single values is as fast in vectors along its own rows, which lie side by side. Maps inside that want
    lanes themselves come first.
    """
    chains = sum(
        len(one.expression.neutral)
        for one in body.statements
        if isinstance(one.expression, nodes.Scan | nodes.Scanomap)
    )
    return chains > 1 and not _wanted_inside(body)


def scanned_parameters(function: nodes.Lambda) -> tuple[nodes.Variable, ...]:
    """The rows that a function scans, if it does no more than one scan of single values, of its parameters alone."""
    match function.body.statements:
        case (Statement(expression=nodes.Scan() | nodes.Scanomap() as scan),) if len(scan.neutral) == 1:
            rows = set(scan.arrays) <= set(function.parameters) and all(one.type.rank == 1 for one in scan.arrays)
            return scan.arrays if rows and not wants_lanes(function.body) else ()
    return ()


def carries_arrays(body: Body) -> bool:
    """Whether points with this body loop with arrays of their own, which lanes keep side by side."""
    bound = {variable.name for variable in bound_variables(body)}
    arrays = [one for loop in _loops(body) for one in loop.parameters if one.type.rank]
    counted = all(isinstance(loop.form, nodes.ForLoop) for loop in _loops(body))
    return (
        bool(arrays) and counted and all(bound.isdisjoint(extent.names) for one in arrays for extent in one.type.shape)
    )


def _loops(body: Body) -> list[nodes.Loop]:
    return [one.expression for one in body.statements if isinstance(one.expression, nodes.Loop)]


def _state_pays(item: Item, body: Body) -> Expression:
    """Whether what points carry through their loops is better in lanes: rows too short to fill vectors, unless rounds
    write no more than elements of them, or any that rounds read at computed places, as long as a core holds them.
    """
    short: Expression = Constant(True, BOOL)
    elements = ZERO
    for loop in _loops(body):
        changed = overwriting(Statement(loop.parameters, loop))
        for one in loop.parameters:
            elements = elements + (product(one.type.shape) if one.type.rank else ZERO)
            if one.type.rank and one.name not in changed:
                least = operation("lt", lower_size(one.type.shape[-1], item.emit), Constant(SHORTEST, I64))
                short = operation("and", short, least)
    if any(map(reads_at_computed_places, _loops(body))):
        few = operation("le", lower_size(elements, item.emit), Constant(MOST_ELEMENTS, I64))
        short = operation("or", short, few)
    return item.emit.let(short, "pays")


def reads_at_computed_places(loop: nodes.Loop) -> bool:
    """Whether a round reads its state, or arrays made of it, at places that are no sums of indices: a gather for each
    vector along a row, and one place for all lanes.
    """
    made = {one.name for one in (*loop.parameters, *bound_variables(loop.body)) if one.type.rank}
    statements = tuple(all_statements(loop.body))
    counted = {one.targets[0].name for one in statements if _is_near(one.expression)}
    computed = {target.name for one in statements for target in one.targets} - counted
    return any(
        isinstance(one.expression, nodes.Index)
        and one.expression.array.name in made
        and not computed.isdisjoint(map(str, one.expression.indices))
        for one in statements
    )


def _is_near(expression: nodes.Expression) -> bool:
    """Whether a number is a sum of others, or at edges something else."""
    at_edges = isinstance(expression, nodes.Apply) and expression.operator in ("min", "max", "mod")
    return at_edges or defined_size(expression) is not None


def _wanted_inside(body: Body) -> bool:
    for statement in body.statements:
        for inner in sub_bodies(statement.expression):
            if (isinstance(statement.expression, _MAPS) and wants_lanes(inner)) or _wanted_inside(inner):
                return True
    return False


def columns_in_lanes(body: Body, extent: Size, write: Callable[[Item, Sequence[Size], Places], None]) -> Columns:
    """`lower_general.Points.columns` for points of which `write` emits one; the innermost index is below `extent`."""
    scans = wants_lanes(body)

    def columns(
        item: Item,
        at: Sequence[Size],
        bounds: tuple[Expression, Expression],
        places: Places,
        one_by_one: Callable[[], None],
    ) -> None:
        if item.vector_lanes:
            only = None if scans else _state_pays(item, body)
            lengths = _lengths(item, extent)
            in_lanes(item, bounds, extent, lambda last: write(item, (*at, last), places), one_by_one, only, lengths)
        else:
            one_by_one()

    return columns


def _lengths(item: Item, extent: Size) -> tuple[Expression, Expression]:
    """How many points the longest and the shortest piece of the innermost dimension has; the last is the shortest."""
    (chunk,), (chunks,) = item.emit.value_of(CHUNK), item.emit.value_of(CHUNKS)
    others = operation("mul", operation("sub", chunks, Constant(1, I64)), chunk)
    return chunk, operation("sub", lower_size(extent, item.emit), others)


def in_lanes(
    item: Item,
    bounds: tuple[Expression, Expression],
    extent: Size,
    write: Callable[[Size], None],
    one_by_one: Callable[[], None],
    only: Expression | None = None,
    lengths: tuple[Expression, Expression] | None = None,
) -> bool:
    """Emit the points bounds[0] .. bounds[1]-1 of a dimension, in groups of LANES where their code allows it: whether
    it does.

    Args:
        item: the work item.
        bounds: the first point and the one after the last.
        extent: what the indices of points are below.
        write: emits one point, the same every time.
        one_by_one: emits a loop over all points.
        only: on which condition.
        lengths: the most and the least points of all such pieces, where the launch knows these: then it also knows
            whether both ways are needed (`kernel.decided`).
    """
    low, high = bounds
    kept = ItemState(item)
    emit = item.emit
    name, _ = item.index("first", extent)
    try:
        with emit.scope() as together:
            _write_group(item, high, name, extent, write)
    except (NotInLanes, LoweringError) as error:
        kept.restore(item)
        item.refused.append(f"points that scan or loop with arrays one by one, not in the lanes of vectors: {error}")
        one_by_one()
        return False
    conditions = [one for one in (only, are_few(item)) if one is not None]
    with emit.scope() as single:
        one_by_one()
    item.scalar_loops = True  # loops over points one by one, and what does not change in loops over rows
    lanes = Constant(LANES, I64)
    enough = operation("ge", operation("sub", high, low), lanes)
    if lengths is not None:
        longest, shortest = (operation("ge", one, lanes) for one in lengths)
        enough = operation("and", longest, operation("or", shortest, enough))
    for one in conditions:
        enough = operation("and", one, enough)
    loop = For(name.name, low, high, tuple(together), step=Constant(LANES, I64))
    emit.emit(If(emit.let(enough, "together"), (loop,), tuple(single)))
    return True


def _write_group(item: Item, high: Expression, begin: Name, extent: Size, write: Callable[[Size], None]) -> None:
    emit = item.emit
    start = emit.let(operation("min", begin, operation("sub", high, Constant(LANES, I64))), "start")
    lane, lane_size = item.index("lane", size(LANES))
    item.lanes, item.turned = (LANES, lane_size), []
    try:
        with emit.scope() as statements:
            point = emit.let(operation("add", start, lane), "point")
            core = f"%{emit.name('point')}"
            emit.values[core] = (point,)
            item.ranges[core] = extent
            item.inner.add(core)
            item.lane_names = lane_size.names | {core}
            write(size(core))
    finally:
        item.lanes, item.lane_names = None, frozenset()

    def memory(element: ScalarType, count: int) -> Buffer:
        buffer = Buffer(emit.name("lanes"), element, Space.PRIVATE, count)
        item.private.append(buffer)
        item.buffers[buffer.name] = buffer
        return buffer

    write_group(statements, lane, LANES, emit, memory)
