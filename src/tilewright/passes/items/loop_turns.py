"""Arrays that each round of a loop makes anew: two memories of which a round reads one and writes the other.

    for i:  next = f(x);  x = copy next
=>  turn = 0;  for i:  xs[1 - turn] = f(xs[turn]);  turn = 1 - turn

A round copies nothing, and its code is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import LMAD, row_major
from tilewright.ir.nodes import Type
from tilewright.ir.sizes import ZERO, Size, ceil_division, product, size
from tilewright.ir.traversal import all_statements
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Name, integer, operation
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, row_of
from tilewright.passes.items.lower_scalar import lower_size

LINE = 16
"""Both memories are multiples of so many elements, so that they begin at the same place of a line of a cache."""

WriteRound: TypeAlias = Callable[[Sequence[AnyValue], Sequence[ArrayView | None]], None]


def turns_of(item: Item, loop: nodes.Loop, anew: Mapping[int, Type]) -> Turns | None:
    """The arrays of a loop that take turns; None where they rather are copied after each round.

    Loops within a round would wait for all that they write to memory that they read, too; and registers, in which
    arrays of known sizes may lie, have no numbers.

    Args:
        item: the work item.
        loop: the loop.
        anew: the types of arrays that rounds make anew, by their places among what the loop carries.
    """
    kinds = nodes.Loop | nodes.Scan | nodes.Scanomap
    flat = not any(isinstance(one.expression, kinds) for one in all_statements(loop.body))
    if not (anew and flat and isinstance(loop.form, nodes.ForLoop) and item.vector_lanes):
        return None
    inside = item.inner | item.definitions.keys()
    sizes = {place: product(type_.shape) for place, type_ in anew.items()}
    if not all(inside.isdisjoint(elements.names) for elements in sizes.values()):
        return None
    if item.lanes is None and any(elements.constant is not None for elements in sizes.values()):
        return None
    both: dict[int, _Both] = {}
    for place, elements in sizes.items():
        whole = Type(anew[place].element, (size(2), ceil_division(elements, LINE) * LINE))
        both[place] = _Both(item.allocate(whole, f"{loop.parameters[place]}_turns"), anew[place])
    item.turning |= {one.memory.buffer for one in both.values()}
    return Turns(item, both, item.emit.declare(integer(0), "turn"))


@dataclass(frozen=True)
class _Both:
    """Two memories of an array."""

    memory: ArrayView
    type: Type

    def at(self, turn: Size) -> ArrayView:
        row = row_of(self.memory, turn).lmad
        dense = row_major(self.type.shape)
        lmad = LMAD(row.offset, dense.shape, tuple(one * row.strides[0] for one in dense.strides))
        return ArrayView(self.memory.buffer, self.memory.element, lmad)


@dataclass(frozen=True)
class Turns:
    """The arrays in `both`, by their places in what a loop carries, take turns: `turn` is the one to be read."""

    item: Item
    both: Mapping[int, _Both]
    turn: Name

    def first(self, place: int) -> ArrayView | None:
        """Where an array lies before the first round; None if it does not take turns."""
        return self.both[place].at(ZERO) if place in self.both else None

    def round(
        self, write: WriteRound, merged: Sequence[AnyValue], spare: Sequence[ArrayView | None]
    ) -> tuple[kernel.Statement, ...]:
        """The code of a round, which `write(old, new)` emits; what takes no turns is `merged` and goes to `spare`."""
        item = self.item
        with item.emit.scope() as statements:
            now = self._now()
            other = item.named(operation("sub", integer(1), lower_size(now, item.emit)), "other", size(2))
            new = [self.both[place].at(other) if place in self.both else one for place, one in enumerate(spare)]
            write(self._at(now, merged), new)
            item.emit.assign(self.turn, lower_size(other, item.emit))
        return tuple(statements)

    def end(self, merged: Sequence[AnyValue]) -> list[AnyValue]:
        """What the loop gives."""
        return self._at(self._now(), merged)

    def _at(self, turn: Size, merged: Sequence[AnyValue]) -> list[AnyValue]:
        return [self.both[place].at(turn) if place in self.both else one for place, one in enumerate(merged)]

    def _now(self) -> Size:
        return self.item.named(self.item.emit.snapshot(self.turn, "turn"), "turn", size(2))
