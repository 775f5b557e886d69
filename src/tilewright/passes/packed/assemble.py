"""Assembling boxes: register tiles write one in the order of the output, in the first cache; it is copied while the
next one is computed.

Each register tile copies its share, whole lines past the caches. Stores past the caches wait in a queue, which so many
do not fill, while the next tile is computed; the whole box at once would hold it up.
"""

from __future__ import annotations

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.packed.writer import PackedWriter, Side


@dataclass(frozen=True)
class Assembly:
    """Two boxes in scratch memory: one that is computed and one that is copied.

    `here` and `there`: where either begins. `to`: where the latter goes in the output; before the first one `lines` is
    0. `head` elements of it come before a whole vector of the output's memory; `next_line` is to be copied next.
    """

    w: PackedWriter
    out: Buffer
    buffer: Buffer
    size: Expression
    here: Name
    there: Name
    to: Name
    head: Name
    lines: Name
    next_line: Name

    def place(self, to: Expression) -> Expression:
        """What to add to an element's offset in the output to find it in the box that goes there."""
        return self.w.emit.let(operation("sub", self.here, to), "box_at")

    def spread(self, waiting: Buffer, sides: tuple[Side, Side], first: tuple[Expression, Expression]) -> None:
        """Ragged rows, which wait in scratch memory, into the box whose first elements are these."""
        w, lanes, boxes, (vector, scalar) = self.w, self.w.form.lanes, self.w.form.boxes, sides
        assert boxes is not None
        run = w.parameter("run", boxes.run)
        whole = w.parameter("whole_lanes", boxes.run // lanes * lanes)
        mask = w.emit.let(kernel.FirstLanes(operation("sub", run, whole), kernel.VectorType(BOOL, lanes)), "rest")
        origin = add(load(vector.out_table, first[0]), load(scalar.out_table, first[1]))
        here = self.place(w.emit.let(origin, "origin"))

        def row(j: Expression) -> None:
            start = w.emit.let(add(here, load(scalar.out_table, add(first[1], j))), "to_row")
            held = w.emit.let(multiply(j, w.parameter("v_box_padded", w.form.padded_box)), "from_row")

            def one(i: Expression) -> None:
                to = w.emit.let(add(start, load(vector.out_table, add(first[0], i))), "to")
                source = w.emit.let(add(held, i), "from")

                def move(at: Expression, mask: Expression | None = None) -> None:
                    value = w.emit.let(load(waiting, add(source, at), lanes), "part")
                    w.emit.emit(kernel.Store(self.buffer, add(to, at), value, mask=mask))

                w.loop("at", integer(0), whole, move, integer(lanes))
                move(whole, mask)

            w.loop("run", integer(0), w.parameter("v_box", boxes.vector), one, run)

        w.loop("j", integer(0), w.parameter("s_box", boxes.scalar), row)

    def share(self, lines: Expression) -> None:
        """Copy so many whole vectors of the box that is complete."""
        w, lanes = self.w, self.w.form.lanes
        stop = w.emit.let(operation("min", self.lines, add(self.next_line, lines)), "stop")

        def line(number: Expression) -> None:
            at = w.emit.let(add(self.head, multiply(number, integer(lanes))), "at")
            value = w.emit.let(load(self.buffer, add(self.there, at), lanes), "line")
            w.emit.emit(kernel.Store(self.out, add(self.to, at), value, aligned=True, nontemporal=True))

        w.loop("line", w.emit.snapshot(self.next_line, "line"), stop, line)
        w.emit.assign(self.next_line, stop)

    def rest(self) -> None:
        """Copy what is left of it."""
        self.share(self.lines)

    def turn(self, to: Expression) -> None:
        """The box that was computed is complete, and goes there; its ends, which are no whole vectors, go at once."""
        w, lanes, bytes_ = self.w, self.w.form.lanes, self.out.element.bytes
        before = w.emit.snapshot(self.here, "complete")
        w.emit.assign(self.here, self.there)
        w.emit.assign(self.there, before)
        w.emit.assign(self.to, to)
        address = add(kernel.Address(self.out), multiply(to, integer(bytes_)))
        up = operation("floordiv", operation("sub", integer(0), address), integer(bytes_))
        beyond = operation("and", up, integer(lanes - 1))
        w.emit.assign(self.head, operation("min", beyond, self.size))
        left = w.emit.let(operation("sub", self.size, self.head), "left")
        w.emit.assign(self.lines, operation("floordiv", left, integer(lanes)))
        w.emit.assign(self.next_line, integer(0))
        self._piece(integer(0), self.head)
        tail = w.emit.let(add(self.head, multiply(self.lines, integer(lanes))), "tail")
        self._piece(tail, operation("sub", self.size, tail))

    def _piece(self, start: Expression, count: Expression) -> None:
        w, lanes = self.w, self.w.form.lanes
        value = w.emit.let(load(self.buffer, add(self.there, start), lanes), "part")
        mask = kernel.FirstLanes(w.emit.let(count, "count"), kernel.VectorType(BOOL, lanes))
        w.emit.emit(kernel.Store(self.out, add(self.to, start), value, mask=mask))


def start_assembly(w: PackedWriter, out: Buffer) -> Assembly:
    """The scratch memory of a block's boxes, none of which is complete yet."""
    boxes = w.form.boxes
    assert boxes is not None
    emit, zero = w.emit, integer(0)
    size = w.parameter("box_size", boxes.vector * boxes.scalar)
    pitch = w.form.box_pitch
    buffer = w.workspace("boxes", out.element, 2 * pitch)
    names = {hint: emit.declare(zero, hint) for hint in ("here", "to", "head", "lines", "next_line")}
    return Assembly(w, out, buffer, size, there=emit.declare(integer(pitch), "there"), **names)
