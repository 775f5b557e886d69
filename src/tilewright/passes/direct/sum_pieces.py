"""Sums in pieces: all tiles of a point over some steps of the sum, then over the next ones.

    for each piece of the sum:   for each tile:   acc = scratch[tile];  acc += ... over the piece;  scratch[tile] = acc

Where an operand is read once, and the steps of a sum are long rows of it, tiles read it in parts of many rows. What is
asked for ahead has to stay in the second cache until all tiles have read it, which a whole point (points.py) is often
too large for. A piece of the sum is a shorter run of memory, and the next one is asked for meanwhile, in its order:
`adb,cd->acb` on an Emerald Rapids 123 and 144 GFLOP/s in f32, 47 and 65 in f64. Every bit stays: sums go on where they
were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, add, integer, load, multiply, operation
from tilewright.machine.model import power_of_two_at_least
from tilewright.passes.direct.tile import Accumulators
from tilewright.passes.direct.writer import DirectWriter
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.packed.two_sides import Bases


@dataclass(frozen=True)
class WaitingSums:
    """Scratch memory in which the sums of all tiles wait for the next piece, and whether this is the first or last."""

    w: DirectWriter
    memory: Buffer
    is_first: Expression
    is_last: Expression

    def place(self, tile: Expression) -> Expression:
        """Where the sums of a tile wait."""
        form = self.w.form
        return self.w.emit.let(multiply(tile, integer(form.rows * form.width)), "waiting_at")

    def bring(self, sums: Accumulators, at: Expression) -> None:
        """Into the registers, what the pieces before have given."""
        emit = self.w.emit

        def load_all() -> None:
            for number, total in enumerate(sums.values()):
                lanes = self.w.form.lanes[0]
                emit.assign(total, load(self.memory, add(at, integer(number * lanes)), lanes))

        emit.when(operation("not", self.is_first), load_all)

    def keep(self, sums: Accumulators, at: Expression) -> None:
        """The registers for the next piece."""
        for number, total in enumerate(sums.values()):
            self.w.emit.emit(kernel.Store(self.memory, add(at, integer(number * self.w.form.lanes[0])), total))


def in_pieces(w: DirectWriter, bases: Bases, write: Callable[[DirectWriter, Bases, WaitingSums], None]) -> None:
    """`write` what computes all tiles over a piece of the sum, with the writer and the bases of that piece."""
    form, emit = w.form, w.emit
    (dimension,), (extent,) = form.contracted, w.sums
    length = w.parameter("piece", form.piece)
    memory = w.workspace(
        "waiting", component_types(form.accumulator)[0],
        power_of_two_at_least(form.vector_tiles * form.scalar_tiles * form.rows * form.width),
    )  # fmt: skip

    def piece(begin: Expression) -> None:
        left = emit.let(operation("sub", extent, begin), "left")
        steps = emit.let(operation("min", left, length), "steps")
        vector = emit.let(add(bases.vector, multiply(begin, w.stride(dimension, "vector"))), "base")
        scalar = emit.let(add(bases.scalar, multiply(begin, w.stride(dimension, "scalar"))), "base")
        first, last = operation("eq", begin, integer(0)), operation("le", left, length)
        sums = WaitingSums(w, memory, emit.let(first, "is_first"), emit.let(last, "is_last"))
        write(w.of_piece(steps), replace(bases, vector=vector, scalar=scalar), sums)

    w.loop("piece", integer(0), extent, piece, length)
