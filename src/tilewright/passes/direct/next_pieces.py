"""Asking for the next piece of an operand in main memory, row after row of it, while this one is computed.

    piece: some tiles of vectors, over the whole sum        ask: line, line + 1, ... of step 0, then of step 1, ...

Where the steps of a sum lie far apart, tiles read short pieces of many rows, which no prefetcher of the processor
foresees, and which memory gives slowly. Lines that are asked for in long runs come much faster: `afbce,df->edcba` as
called runs at 103 to 107 GFLOP/s in f64 on a Zen 5, where it was 82, and `aebd,ce->dcba` at 109, where it was 102 (in
f32 203, where it was 182).
"""

from __future__ import annotations

from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, add, integer, multiply, operation
from tilewright.passes.direct.form import LINE, DirectForm
from tilewright.passes.direct.writer import DirectWriter, Step
from tilewright.passes.packed.two_sides import Bases

PIECE_BYTES = 2048  # of each step, at the most
HELD_BYTES = 48 << 10  # of all steps together: what is asked for longer before it is read comes no faster


def tiles_of_piece(form: DirectForm) -> int:
    """Tiles of vectors that are one piece."""
    most = min(PIECE_BYTES, HELD_BYTES // max(1, form.contracted_total))
    return max(1, most // (form.width * form.vector_operand.element.bytes))


class PieceRequests:
    """The state of asking: `begin` at each tile of vectors, `ask` at each step of the sum."""

    def __init__(self, w: DirectWriter, bases: Bases) -> None:
        """Nothing to ask for yet."""
        form, zero = w.form, integer(0)
        self.w, self.bases = w, bases
        self.line = LINE // w.vector_source.element.bytes
        self.tiles = tiles_of_piece(form)
        self.row_lines = integer(self.tiles * form.width // self.line)
        self.lines_of_step = -(-form.width // (self.line * form.scalar_tiles))
        self.cursor, self.left = w.emit.declare(zero, "cursor"), w.emit.declare(zero, "lines_left")
        self.rows = w.emit.declare(zero, "rows_left")

    def begin(self, v: Expression, number: Expression) -> None:
        """The tile of this number, from element `v` on: the first of a piece asks for the next one. Lines in which
        vectors end are asked for: where rows begin within a line, the piece before has read the first one.
        """
        emit, form = self.w.emit, self.w.form

        def first() -> None:
            start = add(add(self.bases.vector, v), integer(self.tiles * form.width + self.line - 1))
            emit.assign(self.cursor, start)
            emit.assign(self.left, self.row_lines)
            emit.assign(self.rows, self.w.sums[0])

        emit.when(operation("eq", operation("mod", number, integer(self.tiles)), integer(0)), first)

    def ask(self, step: Step) -> None:
        """Ask for the next lines, as many as each step must."""
        w, emit = self.w, self.w.emit
        stride = w.stride(w.form.contracted[0], "vector")

        def next_row() -> None:
            jump = operation("sub", stride, multiply(self.row_lines, integer(self.line)))
            emit.assign(self.cursor, add(self.cursor, jump))
            emit.assign(self.left, self.row_lines)
            emit.assign(self.rows, operation("sub", self.rows, integer(1)))

        def lines() -> None:
            for _ in range(self.lines_of_step):
                emit.emit(kernel.Prefetch(w.vector_source, self.cursor, level=2))
                emit.assign(self.cursor, add(self.cursor, integer(self.line)))
                emit.assign(self.left, operation("sub", self.left, integer(1)))
                emit.when(operation("le", self.left, integer(0)), next_row)

        emit.when(operation("gt", self.rows, integer(0)), lines)
