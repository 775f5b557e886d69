"""Vectors of an operand: put together from what lies together in memory, and transposed in squares."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression
from tilewright.passes.packed.runs import BROKEN, QUARTERS, WHOLE
from tilewright.passes.packed.writer import PackedWriter, run_is


def by_mark(
    w: PackedWriter,
    mark: Expression,
    marks: frozenset[int],
    whole: Callable[[], None],
    in_quarters: Callable[[], None],
    broken: Callable[[], None],
) -> None:
    """What is done with a vector depends on which of the possible marks is its own; there are quarters from eight lanes
    on.
    """
    ways = {WHOLE: whole, QUARTERS: in_quarters if w.form.lanes >= 8 else broken, BROKEN: broken}
    possible = sorted(marks, reverse=True)
    if w.form.lanes < 8 and marks >= {QUARTERS, BROKEN}:
        possible.remove(QUARTERS)
    if len(possible) > 1:
        mark = w.emit.let(mark, "mark")

    def choose(number: int) -> None:
        if number + 1 == len(possible):
            ways[possible[number]]()
        else:
            w.branch(run_is(mark, possible[number]), ways[possible[number]], lambda: choose(number + 1))

    choose(0)


def joined(w: PackedWriter, pieces: list[Expression]) -> Expression:
    """Vectors of one length, a power of two of them, one after the other in one vector."""
    while len(pieces) > 1:
        lanes = 2 * (pieces[0].type.lanes if isinstance(pieces[0].type, kernel.VectorType) else 1)
        vector = kernel.VectorType(kernel.element_of(pieces[0].type), lanes)
        order = tuple(range(lanes))
        pieces = [
            w.emit.let(kernel.Shuffle(pieces[i], pieces[i + 1], order, vector), "joined")
            for i in range(0, len(pieces), 2)
        ]
    return pieces[0]


def transpose(w: PackedWriter, rows: list[Expression]) -> list[Expression]:
    """The transpose of a square of vectors, by exchanging blocks of halving size between pairs of rows."""
    lanes = len(rows)
    vector = kernel.VectorType(kernel.element_of(rows[0].type), lanes)
    held = list(rows)
    distance = lanes // 2
    while distance:
        keep = tuple(lane if not lane & distance else lanes + lane - distance for lane in range(lanes))
        give = tuple(lane + distance if not lane & distance else lanes + lane for lane in range(lanes))
        for i in range(lanes):
            if not i & distance:
                upper, lower = held[i], held[i + distance]
                held[i] = w.emit.let(kernel.Shuffle(upper, lower, keep, vector), "swap")
                held[i + distance] = w.emit.let(kernel.Shuffle(upper, lower, give, vector), "swap")
        distance //= 2
    return held
