"""gemm and brgemm straight from the tensors' own strides: register tiles of vectors times rows [S1 5.1-5.3].

    for each tile of vectors: for each tile of rows:
        acc = first touch of out, or out, or 0
        for each batch: for each k:      acc[i][j] += vector[i] * broadcast of scalar[j]
        out = acc, or last touch of acc

A complex accumulator is two vectors of interleaved elements, one for the products with real parts and one for those
with imaginary parts of the scalar side; they are brought together after the loop. So complex products use whole
multiply-adds, and the vectors are loaded as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.contraction.tensor_operation import Primitive
from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.lanes.vector_transposes import transposed
from tilewright.passes.tensor.gemm_form import Chunk, GemmForm, gemm_form, panel_pieces
from tilewright.passes.tensor.writer import FALSE, Place, Strides, TensorWriter, vector_or_scalar

Accumulators = dict[tuple[int, int], tuple[Name, ...]]


@dataclass(frozen=True)
class _Piece:
    """A piece of the sum: offsets into the inputs, numbers of batches and of elements, and the panel if gathered."""

    vector_at: Expression
    scalar_at: Expression
    batches: Expression
    count: Expression
    first: Expression
    last: Expression
    panel: Buffer | None = None


class GemmWriter:
    """Writes the primitive of one operation."""

    def __init__(self, w: TensorWriter) -> None:
        """Decide the form and take the strides of the primitive dimensions as parameters."""
        self.w = w
        self.form: GemmForm = gemm_form(w.operation, w.machine, w.real.bytes)
        form = self.form
        self.vector, self.scalar = w.strides(form.vector), w.strides(form.scalar)
        self.contracted = w.strides(form.contracted)
        self.batch: Strides | None = None if form.batch is None else w.strides(form.batch)
        self.sources = {"vector": w.buffers[form.vector_array], "scalar": w.buffers[form.scalar_array]}
        self.out = w.buffers["out"]
        self.lanes = form.lanes * w.width  # reals of a vector
        vectors, rows = form.largest_tile
        batches = 1 if form.batch is None else form.batch.size
        self.pieces = panel_pieces(batches, form.contracted.size, form.panel_depth)
        depth = self.pieces[0] * self.pieces[1]
        self.panel = None if not form.panel else w.workspace("panel", w.real, depth * vectors * self.lanes)
        self.tile = None if form.direct_output else w.workspace("tile", w.real, rows * vectors * self.lanes)

    def write(self, place: Place) -> None:
        """The primitive at one place."""
        for chunk in self.form.vector_chunks:
            self.w.loop("v", integer(0), integer(chunk.repeat), lambda v, chunk=chunk: self._vectors(place, chunk, v))  # type: ignore[misc]

    def _vectors(self, place: Place, chunk: Chunk, v: Expression) -> None:
        """All rows of some vectors."""
        lanes = self.form.lanes
        start = self.w.emit.let(multiply(v, integer(chunk.size * lanes)), "start")
        positions: list[Expression] = [add(start, integer((chunk.first + i) * lanes)) for i in range(chunk.size)]
        if chunk.overlaps:
            positions[-1] = integer(self.form.vector.size - lanes)
        whole = _Piece(
            place.of(self.form.vector_array),
            place.of(self.form.scalar_array),
            integer(1 if self.batch is None else self.batch.size),
            integer(self.contracted.size),
            place.first,
            place.last,
        )
        if self.panel is None:
            self._rows(place, whole, chunk, positions)
        else:
            self._gathered(place, whole, chunk, positions)

    def _rows(self, place: Place, piece: _Piece, chunk: Chunk, positions: list[Expression]) -> None:
        for rows in self.form.row_chunks:

            def tile(r: Expression, rows: Chunk = rows) -> None:
                start = self.w.emit.let(add(multiply(r, integer(rows.size)), integer(rows.first)), "row")
                self._tile(place, piece, chunk, positions, [add(start, integer(j)) for j in range(rows.size)])

            self.w.loop("r", integer(0), integer(rows.repeat), tile)

    # --- panels -------------------------------------------------------------------------------------------------------

    def _gathered(self, place: Place, whole: _Piece, chunk: Chunk, positions: list[Expression]) -> None:
        """Copy the vectors of a piece of the sum into the panel, then compute with it; piece after piece."""
        w, size = self.w, self.contracted.size
        batches = 1 if self.batch is None else self.batch.size
        if self.pieces == (batches, size):
            self._gather_and_compute(place, whole, chunk, positions)
            return

        def least(rest: int, from_: Expression, most: int) -> Expression:
            """How many there are from here on, but not more than a piece holds."""
            if rest % most == 0:
                return integer(most)
            return w.emit.let(operation("min", operation("sub", integer(rest), from_), integer(most)), "count")

        def piece(b: Expression, k: Expression) -> None:
            some, count = least(batches, b, self.pieces[0]), least(size, k, self.pieces[1])
            begins = w.both(operation("eq", b, integer(0)), operation("eq", k, integer(0)))
            ends = w.both(
                operation("eq", add(b, some), integer(batches)), operation("eq", add(k, count), integer(size))
            )
            part = _Piece(
                self._offset(whole.vector_at, self.form.vector_array, b, k),
                self._offset(whole.scalar_at, self.form.scalar_array, b, k),
                some,
                count,
                w.emit.let(w.both(whole.first, begins), "first"),
                w.emit.let(w.both(whole.last, ends), "last"),
            )
            self._gather_and_compute(place, part, chunk, positions)

        def batch(b: Expression) -> None:
            w.loop("k", integer(0), integer(size), lambda k: piece(b, k), step=self.pieces[1])

        w.loop("b", integer(0), integer(batches), batch, step=self.pieces[0])

    def _offset(self, base: Expression, array: str, b: Expression, k: Expression) -> Expression:
        moved = add(base, multiply(k, self.contracted.of(array)))
        if self.batch is not None:
            moved = add(moved, multiply(b, self.batch.of(array)))
        return self.w.emit.let(moved, "at")

    def _gather_and_compute(self, place: Place, piece: _Piece, chunk: Chunk, positions: list[Expression]) -> None:
        assert self.panel is not None
        panel, row = self.panel, chunk.size * self.lanes

        def gather(b: Expression) -> None:
            base = self._offset(piece.vector_at, self.form.vector_array, b, integer(0))
            into = self.w.emit.let(multiply(multiply(b, piece.count), integer(row)), "into")
            starts = [
                self.w.emit.let(add(base, multiply(position, self.vector.of(self.form.vector_array))), "start")
                for position in positions
            ]
            if self.form.direct_input:
                self._copy(panel, into, starts, piece.count)
                return
            for number, start in enumerate(starts):
                self._gather(panel, add(into, integer(number * self.lanes)), row, start, piece.count)

        self.w.loop("b", integer(0), piece.batches, gather)
        with_panel = _Piece(
            piece.vector_at, piece.scalar_at, piece.batches, piece.count, piece.first, piece.last, panel
        )
        self._rows(place, with_panel, chunk, positions)

    def _copy(self, panel: Buffer, into: Expression, starts: Sequence[Expression], count: Expression) -> None:
        """panel[k, i] = vector i of row k, which lies ready in the input."""
        w, row = self.w, len(starts) * self.lanes

        def line(k: Expression) -> None:
            along = w.emit.let(multiply(k, self.contracted.of(self.form.vector_array)), "along")
            values = [self._load(self.sources["vector"], add(start, along), self.lanes) for start in starts]
            place = w.emit.let(add(into, multiply(k, integer(row))), "place")
            for number, value in enumerate([w.emit.let(value, "vector") for value in values]):
                w.emit.emit(kernel.Store(panel, add(place, integer(number * self.lanes)), value))

        w.loop("k", integer(0), count, line)

    def _gather(self, panel: Buffer, into: Expression, row: int, start: Expression, count: Expression) -> None:
        """panel[k, lane] = vector side[lane, k]: squares through registers where K has unit stride, else elements."""
        w, lanes, source = self.w, self.form.lanes, self.sources["vector"]
        along, between = self.contracted.of(self.form.vector_array), self.vector.of(self.form.vector_array)
        done: Expression = integer(0)
        if w.width == 1 and lanes > 1 and along == integer(1):
            squares = w.emit.let(operation("floordiv", count, integer(lanes)), "squares")

            def square(number: Expression) -> None:
                k = w.emit.let(multiply(number, integer(lanes)), "k")
                at = w.emit.let(add(start, k), "at")
                vectors: list[Expression] = [
                    w.emit.let(self._load(source, add(at, multiply(integer(lane), between)), lanes), "vector")
                    for lane in range(lanes)
                ]
                for number_, column in enumerate(transposed(w.emit, vectors)):
                    place = add(into, multiply(add(k, integer(number_)), integer(row)))
                    w.emit.emit(kernel.Store(panel, place, column))

            w.loop("square", integer(0), squares, square)
            done = w.emit.let(multiply(squares, integer(lanes)), "done")

        def element(k: Expression, lane: Expression) -> None:
            at = w.emit.let(add(add(start, multiply(k, along)), multiply(lane, between)), "at")
            where = add(add(into, multiply(k, integer(row))), multiply(lane, integer(w.width)))
            where = w.emit.let(where, "where")
            for part in range(w.width):
                value = self._load(source, add(at, integer(part)), 1)
                w.emit.emit(kernel.Store(panel, add(where, integer(part)), value))

        w.loop("k", done, count, lambda k: w.loop("lane", integer(0), integer(lanes), lambda lane: element(k, lane)))

    # --- one register tile --------------------------------------------------------------------------------------------

    def _tile(
        self, place: Place, piece: _Piece, chunk: Chunk, positions: list[Expression], rows: list[Expression]
    ) -> None:
        w = self.w
        type_ = vector_or_scalar(w.real, self.lanes)
        zero = w.constant(0, Name("", type_))
        accumulators: Accumulators = {
            (i, j): tuple(w.emit.declare(zero, "sum") for _ in range(w.width))
            for j in range(len(rows))
            for i in range(len(positions))
        }
        starts = [w.emit.let(add(place.out, multiply(row, self.scalar.out)), "out_row") for row in rows]
        if self.form.direct_output:
            where: dict[tuple[int, int], Expression] = {
                (i, j): w.emit.let(add(starts[j], multiply(positions[i], integer(w.width))), "out_at")
                for i, j in accumulators
            }
            self._begin(accumulators, where, piece.first)
            self._accumulate(accumulators, piece, positions, rows)
            self._end(accumulators, where, piece.last)
        else:
            self._accumulate(accumulators, piece, positions, rows)
            self._scatter(accumulators, piece, chunk, positions, starts)

    def _begin(self, accumulators: Accumulators, where: dict[tuple[int, int], Expression], first: Expression) -> None:
        """Load what is in the output, through the first touch where this is the first time."""
        w, touch = self.w, self.w.operation.first_touch

        def fill(touched: bool) -> None:
            if touched and touch is Primitive.ZERO:
                return
            for key, (total, *_) in accumulators.items():
                value = self._load(self.out, where[key], self.lanes)
                w.emit.assign(total, w.applied(touch, w.emit.let(value, "before")) if touched else value)

        condition = first if touch is not Primitive.NONE else FALSE
        w.branch(condition, lambda: fill(True), lambda: fill(False))

    def _end(self, accumulators: Accumulators, where: dict[tuple[int, int], Expression], last: Expression) -> None:
        w, touch = self.w, self.w.operation.last_touch
        if w.width == 2:
            for total, turned in accumulators.values():
                w.emit.assign(total, operation("add", total, self._turned(turned)))

        def change() -> None:
            for total, *_ in accumulators.values():
                w.emit.assign(total, w.applied(touch, w.emit.snapshot(total, "value")))

        if touch is not Primitive.NONE:
            w.branch(last, change, lambda: None)
        for key, (total, *_) in accumulators.items():
            w.emit.emit(kernel.Store(self.out, where[key], total))

    def _accumulate(
        self, accumulators: Accumulators, piece: _Piece, positions: Sequence[Expression], rows: Sequence[Expression]
    ) -> None:
        """The contracted loops: one multiply-add per accumulator and element."""
        w, form = self.w, self.form
        size = len(positions) * self.lanes

        def step(b: Expression, vector_base: Expression, scalar_bases: list[Expression], k: Expression) -> None:
            if piece.panel is not None:
                at = w.emit.let(multiply(add(multiply(b, piece.count), k), integer(size)), "at")
                vectors: list[Expression] = [
                    load(piece.panel, add(at, integer(i * self.lanes)), self.lanes) for i in range(len(positions))
                ]
            else:
                at = w.emit.let(add(vector_base, multiply(k, self.contracted.of(form.vector_array))), "at")
                offsets = [multiply(position, integer(w.width)) for position in positions]
                vectors = [self._load(self.sources["vector"], add(at, offset), self.lanes) for offset in offsets]
            columns = [w.emit.let(vector, "vector") for vector in vectors]
            along = w.emit.let(multiply(k, self.contracted.of(form.scalar_array)), "along")
            for j, base in enumerate(scalar_bases):
                start = w.emit.let(add(base, along), "start")
                for part in range(w.width):
                    element = self._load(self.sources["scalar"], add(start, integer(part)), 1)
                    if self.lanes > 1:
                        element = kernel.Broadcast(element, kernel.VectorType(w.real, self.lanes))
                    element = w.emit.let(element, "scalar")
                    for i, column in enumerate(columns):
                        self._multiply_add(accumulators[i, j][part], column, element)

        def batch(b: Expression) -> None:
            zero = integer(0)
            vector_base = self._offset(piece.vector_at, form.vector_array, b, zero)
            scalar_base = self._offset(piece.scalar_at, form.scalar_array, b, zero)
            scalars: list[Expression] = [
                w.emit.let(add(scalar_base, multiply(row, self.scalar.of(form.scalar_array))), "scalar_row")
                for row in rows
            ]
            w.loop("k", zero, piece.count, lambda k: step(b, vector_base, scalars, k))

        w.loop("b", integer(0), piece.batches, batch)

    def _multiply_add(self, total: Name, vector: Expression, element: Expression) -> None:
        if self.w.real.is_integer:
            self.w.emit.assign(total, operation("add", total, operation("mul", vector, element)))
        else:
            self.w.emit.assign(total, kernel.Operation("fma", (vector, element, total), total.type))

    def _turned(self, value: Expression) -> Expression:
        """i times a vector of interleaved complex numbers: (re, im) becomes (-im, re)."""
        assert isinstance(value.type, kernel.VectorType)
        lanes = value.type.lanes
        negative = self.w.emit.let(operation("neg", value), "negative")
        value = self.w.emit.snapshot(value, "value")
        picked = tuple(lanes + lane + 1 if lane % 2 == 0 else lane - 1 for lane in range(lanes))
        return kernel.Shuffle(value, negative, picked, value.type)  # type: ignore[arg-type]

    def _load(self, buffer: Buffer, index: Expression, lanes: int) -> Expression:
        """Elements in the type of the computation."""
        value: kernel.Load = load(buffer, index, lanes)
        if kernel.element_of(value.type) == self.w.real:
            return value
        return kernel.Cast(value, vector_or_scalar(self.w.real, lanes))

    # --- results that are not consecutive in the output ---------------------------------------------------------------

    def _scatter(
        self,
        accumulators: Accumulators,
        piece: _Piece,
        chunk: Chunk,
        positions: Sequence[Expression],
        starts: Sequence[Expression],
    ) -> None:
        """Through the scratch tile, each element once: of a vector that overlaps, only what is new."""
        assert self.tile is not None
        w, tile, size = self.w, self.tile, len(positions) * self.lanes
        for (i, j), (total, *turned) in accumulators.items():
            value: Expression = total
            if turned:
                value = operation("add", total, self._turned(turned[0]))
            w.emit.emit(kernel.Store(tile, integer(j * size + i * self.lanes), value))
        known = -self.form.vector.size % self.form.lanes if chunk.overlaps and len(positions) > 1 else 0
        for j, start in enumerate(starts):
            for i, position in enumerate(positions):
                skip = known if i == len(positions) - 1 else 0

                base = integer(j * size + i * self.lanes)
                self._scatter_vector(tile, base, skip, w.emit.let(start, "row"), position, piece)

    def _scatter_vector(
        self, tile: Buffer, base: Expression, skip: int, start: Expression, position: Expression, piece: _Piece
    ) -> None:
        w = self.w

        def element(lane: Expression) -> None:
            out = w.emit.let(add(start, multiply(add(position, lane), self.vector.out)), "out_at")
            for part in range(w.width):
                at = add(add(base, integer(part)), multiply(lane, integer(w.width)))
                self._add_element(add(out, integer(part)), w.emit.let(load(tile, at), "value"), piece)

        w.loop("lane", integer(skip), integer(self.form.lanes), element)

    def _add_element(self, at: Expression, value: Expression, piece: _Piece) -> None:
        w, first_touch, last_touch = self.w, self.w.operation.first_touch, self.w.operation.last_touch
        before = w.emit.declare(w.constant(0, value), "before")
        condition = piece.first if first_touch is not Primitive.NONE else FALSE

        def touched() -> None:
            if first_touch is not Primitive.ZERO:
                w.emit.assign(before, w.applied(first_touch, w.emit.let(load(self.out, at), "before")))

        w.branch(condition, touched, lambda: w.emit.assign(before, load(self.out, at)))
        total = w.emit.declare(operation("add", before, value), "total")
        if last_touch is not Primitive.NONE:
            change = w.emit.snapshot(total, "value")
            w.branch(piece.last, lambda: w.emit.assign(total, w.applied(last_touch, change)), lambda: None)
        w.emit.emit(kernel.Store(self.out, at, total))
