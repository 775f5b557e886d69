"""Unary and binary primitives on a block of one or two dimensions [S1 5.6].

Vectors run along the dimension with unit stride in the output. An input is then, along that dimension,

    direct      of unit stride: read as vectors
    constant    of stride 0: read once and broadcast
    crossing    of unit stride in the other dimension: read in squares, which are transposed in registers
    strided     anything else

With a strided input, or a strided output, the block is walked element by element. A crossing input makes all others
be walked in squares too.

In long rows the vectors begin where the output's address is a multiple of their size, since stores across two cache
lines take twice as long; what lies before and behind is written apart. Arrays that do not fit the caches together are
written past them: a line that is written whole need not be read first. Squares then follow the crossing input's lines,
which are read as streams; within the caches they follow the output's, so that each of its lines is soon complete.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.contraction.tensor_operation import Execution, Primitive, TensorDimension, TensorOperation
from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, Store, VectorType, add, integer, load, multiply, operation
from tilewright.machine.model import Machine
from tilewright.passes.lanes.vector_transposes import transposed
from tilewright.passes.tensor.writer import Place, Strides, TensorWriter

LONG = 8  # vectors of a row, from which on it is worth it that they begin at a multiple of their size
STREAM = 64  # the same for stores past the caches: a line that is written in two parts costs more than it saves
UNROLLED = 4  # vectors in one step of a row, so that their loads are under way together

Body = Callable[[Expression], None]
_UNIT = TensorDimension("C", "prim", 1, 0, 0, 0)


@dataclass(frozen=True)
class _Input:
    """An input and how it lies along the vectors."""

    array: str
    form: str


def writes_past_caches(operation_: TensorOperation, machine: Machine) -> bool:
    """Whether the arrays are larger together than the largest cache, so that no part of the output would stay there."""
    cache = max(machine.l2_bytes, machine.l3_bytes)
    return cache > 0 and sum(operation_.extents) * operation_.dtype.bytes > cache


class ElementwiseWriter:
    """Writes the primitive of one operation."""

    def __init__(self, w: TensorWriter) -> None:
        """Choose the dimension of the vectors and the form of each input."""
        self.w = w
        primitive = list(w.operation.of_execution(Execution.PRIM))
        along = next((one for one in primitive if one.stride_out == 1 and one.size > 1), primitive[-1])
        others = [one for one in primitive if one is not along]
        self.along, self.other = w.strides(along), w.strides(others[0] if others else _UNIT)
        self.inputs = [_Input(array, self._form(array)) for array in ("in0", "in1") if array in w.buffers]
        forms = {one.form for one in self.inputs}
        vectors = along.stride_out == 1 and along.size > 1 and "strided" not in forms
        self.crossing = vectors and "crossing" in forms
        self.lanes = w.lanes() if vectors else 1
        limit = min(along.size, self.other.size) if self.crossing else along.size
        while self.lanes > limit:
            self.lanes //= 2
        self.streams = self.lanes == w.lanes() > 1 and writes_past_caches(w.operation, w.machine)

    def _form(self, array: str) -> str:
        if self.along.moves(array) in (0, 1) or self.along.size == 1:
            return "direct" if self.along.moves(array) == 1 else "constant"
        return "crossing" if self.other.moves(array) == 1 and self.other.size > 1 else "strided"

    def write(self, place: Place) -> None:
        """The primitive at one place."""
        if self.crossing and self.lanes > 1:
            self._squares(place)
        else:
            size = integer(self.other.size)
            self.w.loop("row", integer(0), size, lambda row: self._row(place, row))

    def _element(self, values: list[Expression]) -> Expression:
        """The main primitive and the last touch."""
        w, main = self.w, self.w.operation.main
        if main is Primitive.ZERO:
            value = values[0]
        elif main.family == "binary":
            value = operation(main.value, *values)
        else:
            value = w.applied(main, values[0])
        if w.operation.last_touch is Primitive.NONE:
            return value
        return w.applied(w.operation.last_touch, w.emit.let(value, "value"))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _row(self, place: Place, row: Expression) -> None:
        """One line of vectors, then shorter ones, down to single elements."""
        w, size = self.w, self.along.size
        bases = self._bases(place, row)
        if self.crossing or self.lanes == 1:
            w.loop("i", integer(0), integer(size), lambda i: self._piece(bases, i, 1))
            return
        if size >= LONG * UNROLLED * self.lanes:
            self._long_row(bases)
        else:
            self._vectors(bases, 0)

    def _vectors(self, bases: dict[str, Expression], done: int) -> None:
        """From element `done` on."""
        w, size, lanes, step = self.w, self.along.size, self.lanes, self.lanes * UNROLLED
        if size - done >= step:
            stop = size - (size - done) % step
            w.loop("i", integer(done), integer(stop), lambda i: self._unrolled(bases, i, False), step=step)
            done = stop
        while done < size:
            while done + lanes > size:
                lanes //= 2
            self._piece(bases, integer(done), lanes)
            done += lanes

    def _unrolled(self, bases: dict[str, Expression], i: Expression, aligned: bool) -> None:
        w = self.w
        starts = [w.emit.let(add(i, integer(number * self.lanes)), "at") for number in range(UNROLLED)]
        values = [w.emit.let(self._value(bases, start, self.lanes), "value") for start in starts]
        for start, value in zip(starts, values, strict=True):
            at = add(bases["out"], start)
            w.emit.emit(Store(w.buffers["out"], at, value, aligned=aligned, nontemporal=aligned and self.streams))

    def _long_row(self, bases: dict[str, Expression]) -> None:
        """Elements up to the first whole vector, vectors, and the rest by elements."""
        w, size, lanes = self.w, self.along.size, self.lanes
        step = lanes * UNROLLED
        head = self._until_aligned(bases["out"])
        steps = operation("floordiv", operation("sub", integer(size), head), integer(step))
        stop = w.emit.let(add(head, multiply(steps, integer(step))), "stop")
        w.loop("i", integer(0), head, lambda i: self._single(bases, i))
        w.loop("i", head, stop, lambda i: self._unrolled(bases, i, True), step=step)
        rest = operation("floordiv", operation("sub", integer(size), stop), integer(lanes))
        end = w.emit.let(add(stop, multiply(rest, integer(lanes))), "end")
        w.loop("i", stop, end, lambda i: self._piece(bases, i, lanes), step=lanes)
        w.loop("i", end, integer(size), lambda i: self._single(bases, i))

    def _until_aligned(self, at: Expression) -> Expression:
        """How many elements of the output, from `at` on, lie before a multiple of a vector's size."""
        out = self.w.buffers["out"]
        first = add(operation("floordiv", kernel.Address(out), integer(out.element.bytes)), at)
        return self.w.emit.let(
            operation("and", operation("sub", integer(0), first), integer(self.lanes - 1)), "head"
        )  # fmt: skip

    def _bases(self, place: Place, row: Expression) -> dict[str, Expression]:
        """Where a row begins in each array."""
        return {
            array: self.w.emit.let(add(place.of(array), multiply(row, self.other.of(array))), "row")
            for array in (*(one.array for one in self.inputs), "out")
        }

    def _piece(self, bases: dict[str, Expression], i: Expression, lanes: int) -> None:
        value = self._value(bases, i, lanes)
        at = add(bases["out"], multiply(i, self.along.out))
        self.w.emit.emit(Store(self.w.buffers["out"], at, value))

    def _single(self, bases: dict[str, Expression], i: Expression) -> None:
        """An element of a long row that is in no vector. Which ones are depends on where the output lies, and the bits
        of a result must not: exponentials, which scalars round otherwise than vectors, are then those of a vector.
        """
        operation_ = self.w.operation
        if Primitive.EXP not in (operation_.main, operation_.last_touch):
            self._piece(bases, i, 1)
            return
        value = self._value(bases, i, self.lanes, spread=True)
        at = add(bases["out"], multiply(i, self.along.out))
        self.w.emit.emit(Store(self.w.buffers["out"], at, kernel.Lane(value, 0, self.w.real)))

    def _value(self, bases: dict[str, Expression], i: Expression, lanes: int, spread: bool = False) -> Expression:
        """The result at `i` and the lanes behind; with `spread` that at `i` in all lanes."""
        values: list[Expression] = []
        for one in self.inputs:
            along = self.along.of(one.array)
            at = add(bases[one.array], multiply(i, along))
            values.append(self._load(one.array, at, lanes, spread or one.form == "constant"))
        return self._element(values or [self._zero(lanes)])

    def _zero(self, lanes: int) -> Expression:
        return self._spread(self.w.constant(0, load(self.w.buffers["out"], integer(0))), lanes)

    def _load(self, array: str, at: Expression, lanes: int, constant: bool) -> Expression:
        buffer = self.w.buffers[array]
        if constant:
            return self.w.emit.let(self._spread(load(buffer, at), lanes), array)
        return self.w.emit.let(load(buffer, at, lanes), array)

    def _spread(self, value: Expression, lanes: int) -> Expression:
        return value if lanes == 1 else kernel.Broadcast(value, VectorType(self.w.real, lanes))

    # --- squares ------------------------------------------------------------------------------------------------------

    def _squares(self, place: Place) -> None:
        """The block in squares of `lanes`. At the edges, a unary operation has squares that overlap their neighbours.

        A binary operation may be working in place on its other input, and so must touch each element once: its edges
        are single elements.
        """
        lanes, rows, columns = self.lanes, self.other.size, self.along.size
        whole_rows, whole_columns = rows - rows % lanes, columns - columns % lanes
        unary = len(self.inputs) == 1

        def over_rows(body: Body) -> None:
            self.w.loop("row", integer(0), integer(whole_rows), body, step=lanes)
            if unary and whole_rows < rows:
                body(integer(rows - lanes))

        def plain() -> None:
            def line(row: Expression) -> None:
                self.w.loop("i", integer(0), integer(whole_columns), lambda i: self._square(place, row, i), step=lanes)
                if unary and whole_columns < columns:
                    self._square(place, row, integer(columns - lanes))

            over_rows(line)

        def in_caches() -> None:
            if columns < LONG * lanes or not alike:
                plain()
            else:
                self._aligned_squares(place, self._until_aligned(place.out), over_rows, False)

        # All rows of the output must begin at the same distance from a multiple of a vector's size.
        alike = unary and self.other.dimension.stride_out % lanes == 0
        if not self.streams or not alike or (columns < STREAM * lanes and columns % lanes != 0):
            in_caches()
        elif columns >= STREAM * lanes:
            self._aligned_squares(place, self._until_aligned(place.out), over_rows, True)
        else:
            self.w.branch(
                operation("eq", self._until_aligned(place.out), integer(0)),
                lambda: self._aligned_squares(place, integer(0), over_rows, True),
                in_caches,
            )
        if not unary:
            self._elements(place, (0, rows), (whole_columns, columns))
            self._elements(place, (whole_rows, rows), (0, whole_columns))

    def _aligned_squares(
        self, place: Place, head: Expression, over_rows: Callable[[Body], None], streams: bool
    ) -> None:  # fmt: skip
        """Squares from column `head` on, and such that overlap them before the first and behind the last."""
        w, lanes, columns = self.w, self.lanes, self.along.size
        count = operation("floordiv", operation("sub", integer(columns), head), integer(lanes))
        stop = w.emit.let(add(head, multiply(count, integer(lanes))), "stop")

        def over_columns(body: Callable[[Expression, bool], None]) -> None:
            before, behind = operation("gt", head, integer(0)), operation("lt", stop, integer(columns))
            w.branch(before, lambda: body(integer(0), False), lambda: None)
            w.loop("i", head, stop, lambda i: body(i, True), step=lanes)
            w.branch(behind, lambda: body(integer(columns - lanes), False), lambda: None)

        if streams:
            over_columns(lambda i, whole: over_rows(lambda row: self._square(place, row, i, whole, whole)))
        else:
            over_rows(lambda row: over_columns(lambda i, whole: self._square(place, row, i, whole)))

    def _elements(self, place: Place, rows: tuple[int, int], columns: tuple[int, int]) -> None:
        """A part of the block, one by one."""
        (first, last), (start, stop) = rows, columns
        if first == last or start == stop:
            return

        def row(index: Expression) -> None:
            bases = self._bases(place, index)
            self.w.loop("i", integer(start), integer(stop), lambda i: self._piece(bases, i, 1))

        self.w.loop("row", integer(first), integer(last), row)

    def _square(self, place: Place, row: Expression, i: Expression, aligned: bool = False, past: bool = False) -> None:
        w, lanes = self.w, self.lanes

        def offset(strides: Strides, array: str, index: Expression, number: int) -> Expression:
            return multiply(add(index, integer(number)), strides.of(array))

        columns: list[list[Expression]] = []
        for one in self.inputs:
            array = one.array
            corner = w.emit.let(place.of(array), array)
            if one.form == "crossing":
                start = w.emit.let(add(corner, row), "start")
                lines: list[Expression] = [
                    w.emit.let(load(w.buffers[array], add(start, offset(self.along, array, i, lane)), lanes), array)
                    for lane in range(lanes)
                ]
                columns.append(transposed(w.emit, lines))
                continue
            starts = [add(corner, offset(self.other, array, row, number)) for number in range(lanes)]
            step = multiply(i, self.along.of(array))
            columns.append([self._load(array, add(at, step), lanes, one.form == "constant") for at in starts])
        for number in range(lanes):
            value = self._element([each[number] for each in columns])
            at = add(add(place.out, offset(self.other, "out", row, number)), i)
            w.emit.emit(Store(w.buffers["out"], at, value, aligned=aligned, nontemporal=past))
