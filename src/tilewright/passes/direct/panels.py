"""The panels of the direct form: a small copy of what one tile reads, where an operand's own strides do not suit.

vector panel[k][i] = vector side[v + i, k]    scalar panel[k][j] = scalar side[s + j, k]
"""

from __future__ import annotations

from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, add, integer, load, multiply, operation
from tilewright.passes.direct.writer import DirectWriter, Step
from tilewright.passes.lanes.vector_transposes import transposed
from tilewright.passes.packed.two_sides import Bases


@dataclass(frozen=True)
class Panel:
    """A copy in scratch memory: element i of step k of the sum at start + k * pitch + i."""

    buffer: Buffer
    start: Expression
    pitch: int


def pack_scalars(w: DirectWriter, buffer: Buffer, bases: Bases, s: Expression) -> Panel:
    """Copy `rows` elements of each step of the sum, beginning with row `s`."""
    form = w.form
    panel = Panel(buffer, integer(0), form.rows * form.parts)
    stride = integer(0) if form.scalar is None else w.stride(form.scalar, "scalar")
    start = w.emit.let(add(bases.scalar, multiply(s, stride)), "from")
    rows = [w.emit.let(add(start, multiply(integer(j), stride)), "row") for j in range(form.rows)]

    def copy(step: Step) -> None:
        into = w.emit.let(multiply(step.number, integer(panel.pitch)), "into")
        along = w.emit.let(step.scalar, "along")
        for j, row in enumerate(rows):
            value = w.emit.let(load(w.scalar_source, add(row, along), form.parts), "element")
            w.emit.emit(kernel.Store(buffer, add(into, integer(j * form.parts)), value))

    w.over_sum(copy)
    return panel


def pack_vectors(w: DirectWriter, buffer: Buffer, base: Expression, v: Expression, into: Expression) -> Panel:
    """Copy the vectors of each step of the sum, beginning with element `v`: whole where they are consecutive; turned
    in registers where the sum's innermost dimension is; else element by element.
    """
    form = w.form
    panel = Panel(buffer, into, form.pitch)
    stride = w.stride(form.vector, "vector")
    start = w.emit.let(add(base, multiply(v, stride)), "from")
    if form.stride(form.vector, "vector") == 1:
        _copy(w, panel, start)
    elif form.lanes[0] > form.parts and form.step("vector") == form.parts:
        _turn(w, panel, start, stride)
    else:
        _gather(w, panel, _rows(w, start, stride))
    return panel


def _rows(w: DirectWriter, start: Expression, stride: Expression) -> list[Expression]:
    """Where each element of a step begins; past the last one it is that one again."""
    form = w.form
    rows: list[Expression] = []
    last = _last_element(w)
    for i in range(0, form.pitch, form.parts):
        place: Expression = integer(i)
        if i > form.width - form.lanes[-1]:
            place = operation("min", place, last) if form.masked else integer(min(i, form.width - form.parts))
        rows.append(w.emit.let(add(start, multiply(w.emit.let(place, "place"), stride)), "row"))
    return rows


def _last_element(w: DirectWriter) -> Expression:
    """The last element of a tile that is inside its dimension; of complex numbers where the last one begins."""
    form = w.form
    if form.masked:
        return w.parameter("last_element", form.vector_size - form.parts)
    return integer(form.width - form.parts)


def _copy(w: DirectWriter, panel: Panel, start: Expression) -> None:
    def copy(step: Step) -> None:
        at = w.emit.let(add(start, step.vector), "at")
        into = w.emit.let(add(panel.start, multiply(step.number, integer(panel.pitch))), "into")
        place = 0
        for number, lanes in enumerate(w.form.lanes):
            mask = w.mask if number == len(w.form.lanes) - 1 else None
            value = load(w.vector_source, add(at, integer(place)), lanes)
            if mask is not None:
                value = kernel.Load(value.buffer, value.index, value.type, mask=mask)
            vector = w.emit.let(value, "vector")
            w.emit.emit(kernel.Store(panel.buffer, add(into, integer(place)), vector))
            place += lanes

    w.over_sum(copy)


def _gather(w: DirectWriter, panel: Panel, rows: list[Expression]) -> None:
    def copy(step: Step) -> None:
        into = w.emit.let(add(panel.start, multiply(step.number, integer(panel.pitch))), "into")
        along = w.emit.let(step.vector, "along")
        for i, row in enumerate(rows):
            value = w.emit.let(load(w.vector_source, add(row, along), w.form.parts), "element")
            w.emit.emit(kernel.Store(panel.buffer, add(into, integer(i * w.form.parts)), value))

    w.over_sum(copy)


def _turn(w: DirectWriter, panel: Panel, start: Expression, stride: Expression) -> None:
    """Squares of `lanes` steps by `lanes` elements, of complex numbers of half as many; the last square of a sum
    overlaps the one before.
    """
    lanes, extent, parameter, parts = w.form.lanes[0], constant(w.form.contracted[-1].size), w.sums[-1], w.form.parts
    side = lanes // parts
    mask = None
    if extent < side:
        count = w.emit.let(multiply(parameter, integer(parts)), "count")
        mask = w.emit.let(kernel.FirstLanes(count, kernel.VectorType(BOOL, lanes)), "steps")

    def square(group: Expression, rows: list[Expression], outer: Step, first: Expression) -> None:
        number = w.emit.let(add(multiply(outer.number, parameter), first), "number")
        along = w.emit.let(add(outer.vector, multiply(first, integer(parts))), "along")
        held: list[Expression] = []
        for row in rows:
            value = load(w.vector_source, add(row, along), lanes)
            if mask is not None:
                value = kernel.Load(value.buffer, value.index, value.type, mask=mask)
            held.append(w.emit.let(value, "row"))
        for k, column in enumerate(transposed(w.emit, held, parts)):
            into = add(add(panel.start, multiply(add(number, integer(k)), integer(panel.pitch))), group)
            w.emit.emit(kernel.Store(panel.buffer, w.emit.let(into, "into"), column, aligned=True))

    def elements(group: Expression) -> None:
        rows = _group_of_rows(w, start, stride, group)

        def squares(outer: Step) -> None:
            if mask is not None:
                square(group, rows, outer, integer(0))
                return
            last = w.emit.let(operation("sub", parameter, integer(side)), "last")
            w.loop("k", integer(0), parameter, lambda k: square(group, rows, outer, w.minimum(k, last)), side)

        w.over_sum(squares, len(w.form.contracted) - 1)

    if w.form.pitch == lanes:
        elements(integer(0))
    else:
        w.loop("group", integer(0), integer(w.form.pitch), elements, lanes)


def _group_of_rows(w: DirectWriter, start: Expression, stride: Expression, group: Expression) -> list[Expression]:
    """Where a vector of elements from element `group` on begins; past the last one it is that one again."""
    form = w.form
    last = _last_element(w)
    rows: list[Expression] = []
    for i in range(0, form.lanes[0], form.parts):
        place = add(group, integer(i))
        if form.masked or form.width < form.pitch:
            place = operation("min", place, last)
        rows.append(w.emit.let(add(start, multiply(w.emit.let(place, "place"), stride)), "row"))
    return rows
