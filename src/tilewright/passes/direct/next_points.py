"""Asking for the operands of the next point of the outer dimensions while this one is computed (see points.py)."""

from __future__ import annotations

from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, multiply
from tilewright.passes.direct.form import LINE
from tilewright.passes.direct.points import SIDES, has_next_point, point_length
from tilewright.passes.direct.writer import DirectWriter, Step
from tilewright.passes.packed.two_sides import Bases


class PointRequests:
    """The state of asking in a block, which is a whole point: `ask` at each step of the sums of all its tiles."""

    def __init__(self, w: DirectWriter, bases: Bases) -> None:
        """Nothing has been asked for yet."""
        form = w.form
        self.w = w
        self.runs: list[tuple[Buffer, Name, int]] = []
        steps = w.tiles * form.column_tiles * form.scalar_tiles * form.contracted_total
        for side in SIDES:
            if has_next_point(form, side) and not (side == "out" and form.nontemporal):
                buffer, base = self._array(side, bases)
                length = point_length(form, side)
                cursor = w.emit.declare(add(base, self._following(side)), "next_point")
                self.runs.append((buffer, cursor, -(-length // steps)))

    def _following(self, side: str) -> Expression:
        """How far the next point is, or the next piece of the sum, whose last one comes before the next point."""
        form = self.w.form
        if form.piece and side == "vector":
            return multiply(self.w.parameter("piece", form.piece), self.w.stride(form.contracted[0], side))
        return self.w.stride(form.outer[-1], side)

    def _array(self, side: str, bases: Bases) -> tuple[Buffer, Expression]:
        w = self.w
        if side == "out":
            return w.out, bases.out
        return (w.vector_source, bases.vector) if side == "vector" else (w.scalar_source, bases.scalar)

    def ask(self, step: Step) -> None:
        """Ask for as much as each step must."""
        emit = self.w.emit
        for buffer, cursor, advance in self.runs:
            for place in range(0, advance, LINE // buffer.element.bytes):
                emit.emit(kernel.Prefetch(buffer, add(cursor, integer(place)), level=2))
            emit.assign(cursor, add(cursor, integer(advance)))
