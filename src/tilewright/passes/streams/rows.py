"""Rows that neighbouring points have of their own, with the points' elements side by side: a lane for each point.

    staged[k, p] = row of point p [k]

Rows whose elements lie next to each other in memory are read as vectors, and transposed in registers.
"""

from __future__ import annotations

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Type
from tilewright.ir.scalars import BOOL, compute_type
from tilewright.ir.sizes import ONE, Size, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Expression, FirstLanes, Load, Shuffle, Store, VectorType, operation
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.lanes.vector_transposes import transposed

LONGEST = 8
"""Elements of a row that are transposed together: longer vectors would be filled by few rows."""


@dataclass(frozen=True)
class Group:
    """`vectors` times `lanes` points from `first` on; those past number `last` of them do not exist."""

    lanes: int
    vectors: int
    first: Size
    last: Expression | None


def side_by_side(item: Item, rows: ArrayView, group: Group) -> ArrayView:
    """The rows of a group's points in memory of the work item, which has room for LONGEST elements more.

    The last point stands for those that do not exist.
    """
    element = compute_type(rows.element)
    points, length = group.lanes * group.vectors, rows.lmad.shape[1]
    memory = item.allocate(Type(element, (length + (LONGEST - 1), size(points))), "rows")
    if rows.lmad.strides[1] == ONE:
        item.loop(size(group.vectors), "vector", lambda vector: _transpose(item, rows, memory, group, vector))
        return memory

    def element_of(k: Size) -> None:
        item.loop(
            size(points), "point", lambda p: item.store(memory, (k, p), item.load(rows, (_point(item, group, p), k)))
        )

    item.loop(length, "k", element_of)
    return memory


def _point(item: Item, group: Group, place: Size) -> Size:
    """Which point is at a place of the group."""
    if group.last is None:
        return group.first + place
    core = f"%point.{item.emit.name('of')}"
    least = operation("min", lower_size(place, item.emit), group.last)
    item.emit.values[core] = (item.emit.let(least, "point"),)
    item.inner.add(core)
    return group.first + size(core)


def _transpose(item: Item, rows: ArrayView, memory: ArrayView, group: Group, vector: Size) -> None:
    """The rows of one vector of points."""
    emit, lanes = item.emit, group.lanes
    element, length = memory.element, rows.lmad.shape[1]
    square = min(LONGEST, lanes)
    starts = [_point(item, group, vector * lanes + lane) for lane in range(lanes)]

    def columns(number: Size) -> None:
        k = number * square
        count = lower_size(minimum(size(square), length - k), emit)
        mask = emit.let(FirstLanes(emit.let(count, "count"), VectorType(BOOL, square)), "mask")
        short = VectorType(element, square)
        buffer = item.buffer_of(rows)
        read: list[Expression] = [
            emit.let(Load(buffer, lower_size(rows.lmad.flat((one, k)), emit), short, mask=mask), "row")
            for one in starts
        ]
        parts = [read[first : first + square] for first in range(0, lanes, square)]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [[_joined(item, a, b) for a, b in zip(one, other, strict=True)] for one, other in pairs]
        for position, column in enumerate(transposed(emit, list(parts[0]))):
            at = lower_size(memory.lmad.flat((k + position, vector * lanes)), emit)
            emit.emit(Store(item.buffer_of(memory), at, column))

    item.loop((length + (square - 1)) // square, "columns", columns)


def _joined(item: Item, one: Expression, other: Expression) -> Expression:
    """The lanes of two vectors in one."""
    assert isinstance(one.type, VectorType)
    lanes = 2 * one.type.lanes
    return item.emit.let(Shuffle(one, other, tuple(range(lanes)), VectorType(one.type.element, lanes)), "joined")
