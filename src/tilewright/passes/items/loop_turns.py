"""Arrays that each round of a loop makes anew: two memories of which a round reads one and writes the other.

    for i:  next = f(x);  x = copy next
=>  turn = 0;  for i:  xs[1 - turn] = f(xs[turn]);  turn = 1 - turn

A round copies nothing, and its code is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.lmad import row_major
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


def turns_of(
    item: Item, loop: nodes.Loop, merged: Sequence[AnyValue], spare: Sequence[ArrayView | None]
) -> Turns | None:
    """The arrays of a loop that take turns; None where they rather are copied after each round.

    Loops within a round would wait for all that they write to memory that they read, too; and registers, in which
    arrays of known sizes may lie, have no numbers.

    Args:
        item: the work item.
        loop: the loop.
        merged: what it carries, where that lies.
        spare: where rounds else write what they make of it, for arrays that are not written where they lie.
    """
    kinds = nodes.Loop | nodes.Scan | nodes.Scanomap
    flat = not any(isinstance(one.expression, kinds) for one in all_statements(loop.body))
    if not (flat and isinstance(loop.form, nodes.ForLoop) and item.vector_lanes and item.lanes is None):
        return None
    inside = item.inner | item.definitions.keys()
    both: dict[int, _Both] = {}
    for place, (old, new) in enumerate(zip(merged, spare, strict=True)):
        if isinstance(old, ArrayView) and new not in (None, old):
            elements = product(old.lmad.shape)
            if elements.constant is not None or not inside.isdisjoint(elements.names):
                return None
            whole = Type(old.element, (size(2), ceil_division(elements, LINE) * LINE))
            both[place] = _Both(item.allocate(whole, f"{old.buffer}_turns"), old)
    for one in both.values():
        item.copy(one.result, one.at(ZERO))
        item.turning.add(one.memory.buffer)
    return Turns(item, merged, spare, both, item.emit.declare(integer(0), "turn"))


@dataclass(frozen=True)
class _Both:
    """Two memories of an array, and where it shall lie after all rounds."""

    memory: ArrayView
    result: ArrayView

    def at(self, turn: Size) -> ArrayView:
        start = row_of(self.memory, turn).lmad.offset
        return ArrayView(self.memory.buffer, self.memory.element, row_major(self.result.lmad.shape, start))


@dataclass(frozen=True)
class Turns:
    """What a loop carries: the arrays in `both` take turns, of which `turn` is the one to be read."""

    item: Item
    merged: Sequence[AnyValue]
    spare: Sequence[ArrayView | None]
    both: Mapping[int, _Both]
    turn: Name

    def round(self, write: WriteRound) -> tuple[kernel.Statement, ...]:
        """The code of a round, which `write(old, new)` emits."""
        item = self.item
        with item.emit.scope() as statements:
            now = self._now()
            other = item.named(operation("sub", integer(1), lower_size(now, item.emit)), "other", size(2))
            write(
                [self.both[place].at(now) if place in self.both else one for place, one in enumerate(self.merged)],
                [self.both[place].at(other) if place in self.both else one for place, one in enumerate(self.spare)],
            )
            item.emit.assign(self.turn, lower_size(other, item.emit))
        return tuple(statements)

    def end(self) -> None:
        """Put the arrays where the results shall lie."""
        now = self._now()
        for one in self.both.values():
            self.item.copy(one.at(now), one.result)

    def _now(self) -> Size:
        return self.item.named(self.item.emit.snapshot(self.turn, "turn"), "turn", size(2))
