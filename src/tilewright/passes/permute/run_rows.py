"""Where rows of a run begin in the source: a run is some dimensions that lie together in the target, walked as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.scalars import I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, multiply, operation
from tilewright.passes.permute.tiles import PermuteDimension
from tilewright.passes.permute.writer import PermuteWriter


class RunRows:
    """A run; past its end come the rows of its beginning again."""

    def __init__(self, w: PermuteWriter, run: Sequence[PermuteDimension]) -> None:
        """The run of those dimensions, the row first."""
        self.w = w
        self.length = w.parameter("length", math.prod(one.size for one in run))
        self.sizes = [w.parameter("size", one.size) for one in run]
        self.steps = [w.parameter("row_from", one.source) for one in run]
        self.carries = _carries(w, run)

    def place(self, row: Expression) -> tuple[list[Expression], Expression]:
        """The index in each dimension of a row of the run, and how far from the first one it lies in the source."""
        w = self.w
        indices, rest = [], row
        for size in self.sizes[:-1]:
            indices.append(w.let(operation("mod", rest, size), "index"))
            rest = w.let(operation("floordiv", rest, size), "rest")
        indices.append(rest)
        found: Expression = integer(0)
        for index, step in zip(indices, self.steps, strict=True):
            found = add(found, multiply(index, step))
        return indices, w.let(found, "found")

    def find(
        self, first: Expression, count: Expression, some: int, start: Expression, starts: Buffer, at: Expression
    ) -> None:
        """starts[at + i] = start + where row `first` + i lies, for `count` rows.

        `some` rows at a time, no more than the first dimension has: they reach into the next step of at most one other.
        """
        w = self.w
        over = operation("select", operation("ge", first, self.length), self.length, integer(0))
        indices, found = self.place(w.let(operation("sub", first, over), "row"))
        known = [w.emit.declare(index, "index") for index in indices]
        begin = w.emit.declare(add(start, found), "begin")
        kind = kernel.VectorType(I64, some)

        def all_of(one: Expression) -> Expression:
            return kernel.Broadcast(one, kind)

        numbers = w.let(kernel.LaneNumbers(kind), "numbers")
        along = w.let(multiply(numbers, all_of(self.steps[0])), "along")

        def piece(number: Expression) -> None:
            carry = self._carry(known)
            left = w.let(operation("sub", self.sizes[0], known[0]), "left")
            beyond = operation("ge", numbers, all_of(left))
            jump = operation("select", beyond, all_of(carry), all_of(integer(0)))
            places = add(add(along, all_of(begin)), jump)
            w.emit.emit(kernel.Store(starts, add(at, number), w.let(places, "places")))
            is_over = w.let(operation("le", left, integer(some)), "is_over")
            w.emit.assign(begin, add(add(begin, multiply(self.steps[0], integer(some))), _if(is_over, carry)))
            w.emit.assign(known[0], operation("sub", add(known[0], integer(some)), _if(is_over, self.sizes[0])))
            for index, size in zip(known[1:], self.sizes[1:], strict=True):
                later = w.let(add(index, _if(is_over, integer(1))), "later")
                is_over = w.let(operation("eq", later, size), "is_over")
                w.emit.assign(index, operation("select", is_over, integer(0), later))

        w.loop("piece", integer(0), count, piece, step=some)

    def _carry(self, indices: Sequence[Expression]) -> Expression:
        """What is added to a place where the row begins again."""
        carry: Expression = self.carries[-1]
        for index, size, one in reversed(list(zip(indices[1:], self.sizes[1:], self.carries[:-1], strict=True))):
            carry = operation("select", operation("eq", add(index, integer(1)), size), carry, one)
        return self.w.let(carry, "carry")


def _if(condition: Expression, value: Expression) -> Expression:
    return operation("select", condition, value, integer(0))


def _carries(w: PermuteWriter, run: Sequence[PermuteDimension]) -> list[Name]:
    """What is added where the row begins again and another dimension of the run makes a step, those between them
    beginning again too: for each dimension beyond the row; and at last where none makes one."""
    found = []
    back = run[0].size * run[0].source
    for one in run[1:]:
        found.append(w.parameter("carry", one.source - back))
        back += (one.size - 1) * one.source
    return [*found, w.parameter("carry", -back)]
