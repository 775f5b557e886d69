"""The loop over the points of a chunk: split at edges, its indices checked together, or in lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size, product, size
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, For, If, Let, Name, Operation, Statement, While
from tilewright.kernel.traversal import walk
from tilewright.machine.model import Machine
from tilewright.passes.items.attempts import ItemState
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.loop_checks import inner_at_ends
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.speculation import Speculation
from tilewright.passes.items.split_ranges import emit_split
from tilewright.passes.lanes.masked_lanes import OneByOne, emit_in_lanes, is_worth_lanes
from tilewright.passes.lanes.past_caches import emit_past_caches
from tilewright.passes.points.asked_ahead import emit_asking

Range: TypeAlias = tuple[Expression, Expression]


def emit_points(
    item: Item, bounds: Range, extent: Size, write: Callable[[Size], None], alone: bool, machine: Machine | None,
    short: bool = False, space: Sequence[Size] = (),
) -> int:  # fmt: skip
    """Emit a loop over points; how many of them go on together in vectors that are written out.

    Args:
        item: where to.
        bounds: the first point and the one after the last. extent: what all points of the dimension are below.
        write: writes the code of a point.
        alone: a point may read what another one has written.
        machine: has vectors, in whose lanes points may run that loop.
        short: there may be few points, which are split only where that takes a branch or a clamp out of them.
        space: the extents of all points of the results, which may be larger than the caches; none if they are not.
    """

    def point() -> tuple[Name, Sequence[Statement]]:
        index, core = item.index("j", extent)
        with item.emit.scope() as inside:
            write(core)
        return index, inside

    before, state = _kept(item), ItemState(item)
    around, item.wanted_inside = item.wanted_inside, False
    index, inside = point()
    wanted, item.wanted_inside = item.wanted_inside, around or item.wanted_inside
    checks, arrays = (now - then for now, then in zip(_kept(item), before, strict=True))
    in_order = For(index.name, *bounds, tuple(inside))
    obstacle = _obstacle(arrays, alone)
    if obstacle and machine is not None and machine.vector_bytes and is_worth_lanes(inside, machine):
        item.refused.append(f"points one by one, not in the lanes of vectors: {obstacle}")
    if arrays or alone:
        if wanted and machine is not None:  # vectors of points of maps inside, where there are none of these
            state.restore(item)
            item.machine = machine
            index, inside = point()
            item.machine = None
            in_order = For(index.name, *bounds, tuple(inside))
        emit_asking(
            item, bounds, extent, index, inside if alone and not arrays else (), lambda: item.emit.emit(in_order)
        )
    elif checks:
        clamped = _where_not_empty(item, point) if _is_flat(inside) and _branches(inside) else None
        if clamped is None:
            return _checked_together(item, bounds, extent, point, in_order, machine, space)
        together: list[int] = []
        certain, index, inside = clamped
        item.emit.when(
            certain,
            lambda: together.append(_unchecked(item, bounds, extent, (index, inside), machine, short, space)),
            lambda: item.emit.emit(in_order),
        )
        return together[0]
    else:
        return _unchecked(item, bounds, extent, (index, inside), machine, short, space)
    return 1


def _unchecked(
    item: Item, bounds: Range, extent: Size, point: tuple[Name, Sequence[Statement]], machine: Machine | None,
    short: bool, space: Sequence[Size],
) -> int:  # fmt: skip
    """A loop over points without checks; how many of them go on together."""
    index, inside = point
    group = emit_in_lanes(item.emit, bounds, index, inside, machine, turning=item.turning)
    if not isinstance(group, OneByOne):
        return group
    if group.scalar:
        item.refused.append(f"points one by one, not in the lanes of vectors: {group.reason}")
    if short and not _branches(inside):
        item.emit.emit(For(index.name, *bounds, tuple(inside), independent=True))
        return 1

    def split() -> None:
        emit_split(item.emit, bounds, index, inside, *_known(item, extent))

    if space:
        item.scalar_loops |= emit_past_caches(
            item.emit, bounds, index, inside, machine, lambda: lower_size(product(space), item.emit),
            lambda: emit_asking(item, bounds, extent, index, inside, split),
        )  # fmt: skip
    else:
        split()
    return 1


def _where_not_empty(
    item: Item, point: Callable[[], tuple[Name, Sequence[Statement]]]
) -> tuple[Expression, Name, Sequence[Statement]] | None:
    """Points whose indices, clamped between an array's first and last ones, need no check where arrays are not empty:
    when that is so, and the points; None if they need other checks.
    """
    checks, around = list(item.checks), item.assumed
    item.assumed = set()
    index, inside = point()
    names, item.assumed = sorted(item.assumed), around
    if len(item.checks) > len(checks) or not names:
        item.checks = checks
        return None
    conditions = [
        item.emit.let(kernel.operation("gt", lower_size(size(name), item.emit), Constant(0, I64)), "some")
        for name in names
    ]
    certain: Expression = conditions[0]
    for one in conditions[1:]:
        certain = kernel.operation("and", certain, one)
    return certain, index, inside


def _is_flat(body: Sequence[Statement]) -> bool:
    """Whether there is no loop in a body."""
    return not any(isinstance(one, For | While) for one in walk(tuple(body)))


def _branches(body: Sequence[Statement]) -> bool:
    """Whether there is a choice, the lesser or greater of two indices, or one that wraps around, in a body."""
    return any(
        isinstance(one, If)
        or (isinstance(one, Let) and isinstance(one.value, Operation) and one.value.type == I64
            and one.value.operator in ("min", "max", "mod"))
        for one in walk(tuple(body))
    )  # fmt: skip


def _kept(item: Item) -> tuple[int, int]:
    """How many indices are checked, and arrays kept, in the code so far."""
    return len(item.checks), len(item.scratch) + len(item.private)


def _obstacle(arrays: int, alone: bool) -> str:
    """Why points that loop or compute functions are not even tried in lanes; empty if they are."""
    if alone:
        return "a point may read what another one has written"
    if arrays:
        return "each of them keeps arrays of its own in memory"
    return ""


def _checked_together(
    item: Item, bounds: Range, extent: Size, point: Callable[[], tuple[Name, Sequence[Statement]]], recording: For,
    machine: Machine | None, space: Sequence[Size],
) -> int:  # fmt: skip
    """A loop over points without branches for their indices; if one is out of range, `recording` runs, too, which is
    the loop that finds the first. How many points go on together.
    """
    bad = item.emit.declare(Constant(False, BOOL), "any_bad")
    around, item.speculation = item.speculation, Speculation(bad)
    index, inside = point()
    item.speculation = around
    together = 1
    if isinstance(group := emit_in_lanes(item.emit, bounds, index, inside, machine, bad, item.turning), OneByOne):
        if group.scalar:
            item.refused.append(f"points one by one, not in the lanes of vectors: {group.reason}")
        if _is_flat(inside):
            emit_asking(
                item, bounds, extent, index, inside if space else (),
                lambda: emit_split(item.emit, bounds, index, inside, *_known(item, extent), bad),
            )  # fmt: skip
        else:
            inside = inner_at_ends(inside, bad, item.emit.name)
            item.emit.emit(For(index.name, *bounds, inside, independent=True))
    else:
        together = group
    item.emit.when(bad, lambda: item.emit.emit(recording))
    return together


def _known(
    item: Item, extent: Size
) -> tuple[Callable[[kernel.Expression], int | None], Callable[[kernel.Expression], bool]]:
    """How much of a dimension lies from an index on, if that is known; and what is as small as sizes are."""

    def left_from(edge: kernel.Expression) -> int | None:
        value = item.as_size(edge)
        return None if value is None else item.resolved(extent - value).constant

    def is_small(value: kernel.Expression) -> bool:
        found = item.as_size(value)
        return found is not None and all(item.is_size(one) or one in extent.names for one in item.resolved(found).names)

    return left_from, is_small
