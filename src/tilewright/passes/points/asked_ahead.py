"""Points that read or write at places which an array holds: the line of a later one is asked for, out of the caches.

    for j: y[j] = x[at[j]]   =>   for j: ask for the line of x[at[j + AHEAD]]; y[j] = x[at[j]]

A processor works on some tens of points at once, and stores leave it in their order; memory can do with more requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size, product
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Let, Name, Prefetch, Statement, Store, add, integer, operation
from tilewright.kernel.traversal import expressions, parts, walk
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.renaming import renamed

AHEAD = 128
"""Points from one whose line is asked for to its turn; fewer where a point has several such places."""
MOST_PLACES = 4
MOST_STATEMENTS = 64
"""Of a point; longer ones have enough to do meanwhile."""
WRITTEN_BYTES, READ_BYTES = 1 << 21, 1 << 23
"""Arrays of so many bytes are near enough to a core that writes to them, or reads one element of them for each point:
reads do not wait for each other, and several are gathered by vectors.
"""
FEWEST = 1 << 15
"""Points whose lines a core's own caches do not hold."""


def emit_asking(
    item: Item, bounds: tuple[Expression, Expression], extent: Size, index: Name, body: Sequence[Statement],
    otherwise: Callable[[], None],
) -> None:  # fmt: skip
    """Some of `extent` points in a loop that asks ahead, where an array is large; else what `otherwise` emits."""
    emit = item.emit
    found = _places(body) if item.vector_lanes and item.lanes is None and len(body) <= MOST_STATEMENTS else []
    sizes = {buffer.name: bytes_ for buffer, _ in found if (bytes_ := _bytes(item, buffer)) is not None}
    written = {one.buffer.name for one in walk(tuple(body)) if isinstance(one, Store)}
    found = [(buffer, place) for buffer, place in found if buffer.name in sizes]
    if not found or len(found) > MOST_PLACES:
        otherwise()
        return
    ahead = AHEAD // len(found)
    large = [
        operation("gt", bytes_, integer(WRITTEN_BYTES if name in written else READ_BYTES * len(found)))
        for name, bytes_ in sizes.items()
    ]
    any_large = large[0]
    for one in large[1:]:
        any_large = operation("or", any_large, one)

    def asking() -> None:
        low, high = bounds
        last = operation("max", low, operation("sub", high, integer(ahead)))
        middle = emit.let(last, "middle")
        lets = [one for one in body if isinstance(one, Let)]
        asked = [Prefetch(buffer, place) for buffer, place in found]
        later, requests = renamed(emit, index, [*_needed(lets, [place for _, place in found]), *asked])
        again, inside = renamed(emit, index, body)
        first = Let(later.name, add(again, integer(ahead)))
        emit.emit(kernel.For(again.name, low, middle, (first, *requests, *inside), scalar=True))
        again, inside = renamed(emit, index, body)
        emit.emit(kernel.For(again.name, middle, high, inside, scalar=True))

    many = operation("ge", lower_size(extent, emit), integer(FEWEST))
    emit.when(emit.let(operation("and", any_large, many), "far"), asking, otherwise)


def _bytes(item: Item, buffer: Buffer) -> Expression | None:
    """What the array in a buffer takes; None for memory of the kernel's own."""
    view = item.arrays.get(item.buffer_names.get(buffer.name, ""))
    if not isinstance(view, ArrayView) or view.buffer != item.buffer_names[buffer.name]:
        return None
    size = product(view.lmad.shape) * view.element.bytes
    return item.emit.let(lower_size(size, item.emit), "bytes")


def _places(body: Sequence[Statement]) -> list[tuple[Buffer, Expression]]:
    """The buffers, and places in them, that depend on what arrays hold where each point reads them."""
    lets = {one.name: one.value for one in body if isinstance(one, Let)}
    made = {name for one in walk(tuple(body)) if (name := _bound(one)) is not None} - lets.keys()
    read = {name for name, value in lets.items() if any(isinstance(one, kernel.Load) for one in parts((value,)))}
    found: dict[tuple[str, Expression], Buffer] = {}
    for statement in walk(tuple(body)):
        accesses: list[kernel.Load | Store] = [
            one for one in parts(expressions(statement)) if isinstance(one, kernel.Load)
        ]
        if isinstance(statement, Store):
            accesses.append(statement)
        for access in accesses:
            inside = _names(access.index, lets)
            if (
                inside is not None
                and made.isdisjoint(inside)
                and access.index.type == I64
                and not read.isdisjoint(inside)
            ):
                found.setdefault((access.buffer.name, access.index), access.buffer)
    return [(buffer, place) for (_, place), buffer in found.items()]


def _names(place: Expression, lets: Mapping[str, Expression], reads: bool = False) -> set[str] | None:
    """The names that a place is made of; None if it is not made of arithmetic on what is read where points count."""
    found: set[str] = set()
    for one in parts((place,)):
        if isinstance(one, kernel.Load):
            if reads:
                return None
            inside = _names(one.index, lets, reads=True)
            if inside is None:
                return None
            found |= inside
        elif isinstance(one, Name):
            inside = _names(lets[one.name], lets, reads) if one.name in lets else set()
            if inside is None:
                return None
            found |= {one.name, *inside}
    return found


def _bound(statement: Statement) -> str | None:
    """The name that a statement binds, or changes."""
    match statement:
        case Let(name=name) | kernel.Declare(name=name) | kernel.Assign(name=name) | kernel.AtomicUpdate(old=name):
            return name
        case kernel.For(index=name):
            return name
    return None


def _needed(lets: Sequence[Let], places: Sequence[Expression]) -> list[Let]:
    """Those that places are made of, in their order."""
    values = {one.name: one.value for one in lets}
    wanted = {name for place in places for name in _names(place, values) or ()}
    return [one for one in lets if one.name in wanted]
