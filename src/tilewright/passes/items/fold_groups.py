"""Folds of scalars in groups of rows, whose indices are checked before them.

    acc = acc + ((x0 + x1) + (x2 + x3))  in place of  acc = (((acc + x0) + x1) + x2) + x3

The next rows need not wait until each of those before is added: a chain of a quarter of the length. The order stays,
for an operator of a fold is associative, but need not be commutative.

Where indices must be checked without branches, a loop of its own finds out whether all of them are in range, of which
LLVM leaves nothing but what the indices need, in vectors; the fold itself then does not check them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL
from tilewright.ir.sizes import Size, whole_groups
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, For, If, While
from tilewright.kernel.traversal import walk
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.scalar_values import KernelBuilder, Value
from tilewright.passes.items.speculation import Speculation

GROUP = 4
MOST_STATEMENTS = 32
"""Of one row: longer code would gain little, and is written several times."""


@dataclass(frozen=True)
class FoldRows:
    """What a fold does with a row.

    Attributes:
        value: writes what row k gives.
        combine: writes two such values' combination.
        add: writes what adds a value to the accumulators.
    """

    value: Callable[[Size], Sequence[Value]]
    combine: Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]
    add: Callable[[Sequence[Value]], None]

    def one(self, k: Size) -> None:
        """A row by itself."""
        self.add(self.value(k))

    def group(self, first: Size) -> None:
        """GROUP rows."""
        values = [self.value(first + k) for k in range(GROUP)]
        while len(values) > 1:
            values = [self.combine(one, two) for one, two in zip(values[::2], values[1::2], strict=True)]
        self.add(values[0])


@dataclass
class _InRange(Speculation):
    """Indices are known to be in range, save those on the side of a choice that may not be taken."""

    def note(self, outside: Expression, emit: KernelBuilder) -> Expression:
        """Only a side that may not be taken has 0 in place of an index."""
        return Constant(False, BOOL) if self.guard is None else emit.let(outside, "outside")


def emit_rows(item: Item, count: Size, rows: FoldRows) -> None:
    """Emit a fold's loop over `count` rows without results of their own."""
    before = _memory(item)
    with item.emit.scope() as plain:
        item.loop(count, "k", rows.one)
    row = [one for loop in plain if isinstance(loop, For) for one in walk(loop.body)]
    simple = not any(isinstance(one, For | While | If) for one in row)
    if not simple or len(row) > MOST_STATEMENTS or _memory(item) != before or not item.vector_lanes:
        for statement in plain:
            item.emit.emit(statement)
    elif item.speculation is None:
        _in_groups(item, count, rows)
    else:
        _checked_before(item, count, rows, item.speculation)


def _checked_before(item: Item, count: Size, rows: FoldRows, around: Speculation) -> None:
    """The fold, if no index of its rows is out of range."""
    outside = item.emit.declare(Constant(False, BOOL), "outside")
    item.speculation = Speculation(outside)
    with item.emit.scope() as checking:
        item.loop(count, "k", lambda k: _forget(rows.value(k)))
    used, item.speculation = item.speculation.used, around
    if not used:
        _in_groups(item, count, rows)
        return
    for statement in checking:
        item.emit.emit(statement)
    around.note(outside, item.emit)

    def known(k: Size) -> Sequence[Value]:
        item.speculation = _InRange(around.bad)
        value = rows.value(k)
        item.speculation = around
        return value

    item.emit.when(
        kernel.operation("not", outside), lambda: _in_groups(item, count, FoldRows(known, rows.combine, rows.add))
    )


def _in_groups(item: Item, count: Size, rows: FoldRows) -> None:
    groups = whole_groups(count, GROUP)
    item.loop(groups, "group", lambda number: rows.group(number * GROUP))
    item.loop(count - groups * GROUP, "k", lambda k: rows.one(groups * GROUP + k))


def _forget(value: Sequence[Value]) -> None:
    """Only the indices that were needed for it count."""


def _memory(item: Item) -> tuple[int, int, int]:
    return len(item.checks), len(item.private), len(item.scratch)
