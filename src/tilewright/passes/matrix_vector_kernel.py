"""The kernel of a `MatrixVectorForm`.

DOTS, for each tile of rows at each point of the outer dimensions:

    part[j][v] = neutral;  for the other contracted dimensions: for each step along the rows, each row j and vector v:
    part[j][v] = combine(part[j][v], map(matrix[row j, step], vector[step]));  then all lanes of a row are folded

SUMS, for each piece of the output:

    out[piece] = neutral;  for each few contracted rows j, for each vector of the piece:
    out[...] = combine(out[...], combine over j of map(matrix[row j, ...], vector[row j]))

The end of a row that is no whole vector is masked. Either way a result is the fold of several partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.contraction.form import Dimension
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel.ir import (
    BlockIndex,
    Broadcast,
    Buffer,
    Comment,
    Expression,
    FirstLanes,
    Lane,
    Load,
    Name,
    Operation,
    Shuffle,
    Store,
    VectorType,
    add,
    element_of,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.kernel.launch import Launch
from tilewright.passes.launch_writer import LaunchWriter
from tilewright.passes.matrix_vector_form import MatrixVectorForm, Way
from tilewright.passes.scalar_values import constant as constant_value
from tilewright.passes.vectorise import lower_lambda_vector

ZERO = integer(0)


def write_matrix_vector_kernel(form: MatrixVectorForm, name: str = "contraction") -> Launch:
    """The kernel of a form and everything that its launch needs."""
    w = _Writer(form)
    what = "sums of rows" if form.way is Way.DOTS else "rows summed"
    w.emit.emit(Comment(f"{what}, {form.rows} at a time, in steps of {form.vectors} vectors of {form.lanes}"))
    write = w.dots if form.way is Way.DOTS else w.sums
    if form.serial and form.blocks > 1:
        w.loop("block", ZERO, w.parameter("blocks", form.blocks), write)
        return w.launch(name, 1)
    write(BlockIndex())
    return w.launch(name, form.blocks)


class _Writer(LaunchWriter):
    """The state of writing one kernel."""

    def __init__(self, form: MatrixVectorForm) -> None:
        super().__init__(form.contraction, I64)
        self.form = form
        self.matrix = self.global_buffer(form.matrix, "matrix", True)
        vector = self.global_buffer(form.vector, "vector", True)
        self.vector = vector if form.reads_vector else None
        self.out = self.global_buffer(form.contraction.out, "out", False)
        self._strides: dict[tuple[str, str], Expression] = {}
        self.wide = VectorType(form.accumulator, form.lanes)
        self.length = self.parameter("length", form.along_size)
        starts = [form.row_start(j) for j in range(form.rows)]
        self.row_starts = [integer(one) if form.apart == 1 else self.parameter("row_start", one) for one in starts]

    # --- addresses

    def stride(self, dimension: Dimension, side: str) -> Expression:
        """The stride of a dimension in "matrix", "vector" or "out"."""
        key = (dimension.name, side)
        if key not in self._strides:
            self._strides[key] = self.parameter(f"{side}_stride", self.form.stride(dimension, side))
        return self._strides[key]

    def bases(self, rest: Expression) -> tuple[dict[str, Expression], Expression]:
        """Where each array begins for a block, and which of the blocks at its point of the outer dimensions it is."""
        form, emit = self.form, self.emit
        count = -(-form.pieces // form.chunk)
        piece: Expression = ZERO
        if count > 1:
            chunks = self.parameter("chunks", count)
            piece = emit.let(operation("mod", rest, chunks), "piece")
            rest = emit.let(operation("floordiv", rest, chunks), "rest")
        at: list[Expression] = []
        for position, one in reversed(list(enumerate(form.outer))):
            if position == 0:
                at.append(rest)
                continue
            size = self.parameter("outer_size", constant(one.size))
            at.append(emit.let(operation("mod", rest, size), "outer"))
            rest = emit.let(operation("floordiv", rest, size), "rest")
        operands = {"matrix": form.matrix, "vector": form.vector, "out": form.contraction.out}
        found: dict[str, Expression] = {}
        for side, operand in operands.items():
            total = self.parameter(f"{side}_offset", constant(operand.offset))
            for one, coordinate in zip(reversed(form.outer), at, strict=True):
                total = add(total, multiply(coordinate, self.stride(one, side)))
            found[side] = emit.let(total, f"{side}_at")
        return found, piece

    def moved(self, bases: dict[str, Expression], dimension: Dimension | None, by: Expression) -> dict[str, Expression]:
        """The bases at a point of a dimension."""
        if dimension is None:
            return bases
        return {
            side: self.emit.let(add(base, multiply(by, self.stride(dimension, side))), f"{side}_at")
            for side, base in bases.items()
        }

    def over_contracted(
        self, bases: dict[str, Expression], write: Callable[[dict[str, Expression]], None], position: int = 0
    ) -> None:
        """`write` at every point of the other contracted dimensions."""
        if position == len(self.form.contracted):
            write(bases)
            return
        one = self.form.contracted[position]
        size = self.parameter("contracted_size", constant(one.size))
        self.loop("k", ZERO, size, lambda k: self.over_contracted(self.moved(bases, one, k), write, position + 1))

    # --- arithmetic

    def combined(self, left: Expression, right: Expression) -> Expression:
        """combine(left, right), of vectors or of scalars."""
        lanes = left.type.lanes if isinstance(left.type, VectorType) else 1
        pair = ((self.emit.let(left, "left"),), (self.emit.let(right, "right"),))
        ((result,),) = lower_lambda_vector(self.contraction.combine, pair, lanes, self.emit)
        return self.emit.let(result, "total")

    def mapped(self, matrix: Expression, vector: Expression | None) -> Expression:
        """map(matrix, vector)."""
        other = matrix if vector is None else vector
        pair = (matrix, other) if self.form.matrix_left else (other, matrix)
        ((result,),) = lower_lambda_vector(self.contraction.map, [(one,) for one in pair], self.form.lanes, self.emit)
        return self.emit.let(result, "mapped")

    def stepped(self, total: Expression, matrix: Expression, vector: Expression | None) -> Expression:
        """combine(total, map(matrix, vector))."""
        if self.form.fused_multiply_add and vector is not None:
            types = {element_of(one.type) for one in (total, matrix, vector)}
            if len(types) == 1:
                return self.emit.let(Operation("fma", (matrix, vector, total), total.type), "total")
        return self.combined(total, self.mapped(matrix, vector))

    def read(self, buffer: Buffer, at: Expression, mask: Expression | None) -> Expression:
        """A vector from `at` on."""
        value = load(buffer, at, self.form.lanes)
        return self.emit.let(Load(value.buffer, value.index, value.type, mask=mask), "read")

    def neutral(self) -> Expression:
        """The neutral element in all lanes."""
        (value,) = constant_value(self.contraction.neutral.value, self.contraction.neutral.scalar)
        return Broadcast(value, self.wide)

    def tail_mask(self, stop: Expression, at: Expression) -> Expression:
        """True for the lanes from `at` on that lie before `stop`."""
        return self.emit.let(FirstLanes(operation("sub", stop, at), VectorType(BOOL, self.form.lanes)), "mask")

    def in_steps(
        self, start: Expression, stop: Expression, write: Callable[[Expression, int, Expression | None], None]
    ) -> None:
        """`write(at, vectors, mask)` for whole steps, then for single vectors, then for what is left of one."""
        lanes, form, emit = self.form.lanes, self.form, self.emit
        begin: Expression = start
        for vectors in (form.vectors, 1) if form.vectors > 1 else (1,):
            width = lanes * vectors
            count = emit.let(operation("floordiv", operation("sub", stop, begin), integer(width)), "count")
            end = emit.let(add(begin, multiply(count, integer(width))), "end")
            self.loop("at", begin, end, lambda at, vectors=vectors: write(at, vectors, None), width)  # type: ignore[misc]
            begin = end
        emit.when(operation("lt", begin, stop), lambda: write(begin, 1, self.tail_mask(stop, begin)))

    # --- rows along which sums run

    def dots(self, block: Expression) -> None:
        """The tiles of rows of one block."""
        form, emit = self.form, self.emit
        bases, piece = self.bases(block)
        if form.side_by_side is None or form.pieces == 1:
            self._dots_of(bases)
            return
        total = self.parameter("tiles", form.pieces)
        first: Expression = ZERO
        stop: Expression = total
        if form.chunk < form.pieces:
            step = self.parameter("chunk", form.chunk)
            first = emit.let(multiply(piece, step), "first")
            stop = emit.let(operation("min", add(first, step), total), "stop")
        last = self.parameter("last_row", form.row_count - form.rows)

        def tile(number: Expression) -> None:
            row = number
            if form.apart == 1:
                row = emit.let(operation("min", multiply(number, integer(form.rows)), last), "row")
            self._dots_of(self.moved(bases, form.side_by_side, row))

        self.loop("tile", first, stop, tile)

    def _dots_of(self, bases: dict[str, Expression]) -> None:
        """The results of `rows` rows, the first of which is at `bases`."""
        form, emit = self.form, self.emit
        parts = [[emit.declare(self.neutral(), "part") for _ in range(form.vectors)] for _ in range(form.rows)]

        def over_row(bases: dict[str, Expression]) -> None:
            places = [self._row(bases, j) for j in range(form.rows)]
            shared = form.side_by_side is None or form.stride(form.side_by_side, "vector") == 0

            def step(at: Expression, vectors: int, mask: Expression | None) -> None:
                for v in range(vectors):
                    here = add(at, integer(v * form.lanes))
                    vector: Expression | None = None
                    for j, place in enumerate(places):
                        if self.vector is not None and (vector is None or not shared):
                            vector = self.read(self.vector, add(place["vector"], here), mask)
                        matrix = self.read(self.matrix, add(place["matrix"], here), mask)
                        self._accumulate(parts[j][v], matrix, vector, mask)

            self.in_steps(ZERO, self.length, step)

        self.over_contracted(bases, over_row)
        self._store_dots(bases, [self._one(row) for row in parts])

    def _row(self, bases: dict[str, Expression], j: int) -> dict[str, Expression]:
        return self.moved(bases, self.form.side_by_side, self.row_starts[j]) if j else bases

    def _accumulate(self, part: Name, matrix: Expression, vector: Expression | None, mask: Expression | None) -> None:
        total = self.stepped(self.emit.snapshot(part, "before"), matrix, vector)
        if mask is not None:  # lanes beyond the row keep what they have
            total = self.emit.let(Operation("select", (mask, total, part), total.type), "kept")
        self.emit.assign(part, total)

    def _one(self, parts: Sequence[Name]) -> Expression:
        """The partial results of a row in one vector, folded by halves."""
        left: list[Expression] = [self.emit.snapshot(one, "part") for one in parts]
        while len(left) > 1:
            half = len(left) // 2
            left = [self.combined(left[i], left[i + half]) for i in range(half)]
        return left[0]

    def _store_dots(self, bases: dict[str, Expression], rows: list[Expression]) -> None:
        form, emit = self.form, self.emit
        result = self._folded(rows)
        if len(rows) == 1:
            emit.emit(Store(self.out, bases["out"], result))
            return
        assert form.side_by_side is not None
        if form.apart == 1 and form.stride(form.side_by_side, "out") == 1:
            emit.emit(Store(self.out, bases["out"], result))
            return
        for j in range(len(rows)):
            emit.emit(Store(self.out, self._row(bases, j)["out"], Lane(result, j, form.accumulator)))

    def _folded(self, rows: list[Expression]) -> Expression:
        """All lanes of each vector folded: a vector of one result for each, of one vector a scalar.

        Two vectors are folded into one, which has the halves of either side by side: so each step halves the work.
        """
        width, size, held = self.form.lanes, self.form.lanes, rows
        while len(held) > 1:
            groups = width // size
            size //= 2
            starts = [group * 2 * size for group in range(2 * groups)]  # of both vectors, one after the other
            held = [self._halves(held[i], held[i + 1], starts, size, width) for i in range(0, len(held), 2)]
        (one,) = held
        while size > 1:
            groups = width // size
            size //= 2
            if groups == 1 and size == 1:
                turned = Shuffle(one, one, (1, 0), VectorType(self.form.accumulator, 2))
                return self.emit.let(Lane(self.combined(one, turned), 0, self.form.accumulator), "sum")
            width //= 2
            one = self._halves(one, one, [group * 2 * size for group in range(groups)], size, width)
        return one

    def _halves(self, x: Expression, y: Expression, starts: Sequence[int], size: int, width: int) -> Expression:
        """combine(the first halves, the second halves) of the groups of 2*size lanes that begin at `starts`."""
        type_ = VectorType(self.form.accumulator, width)
        picked = [
            Shuffle(x, y, tuple(start + half * size + lane for start in starts for lane in range(size)), type_)
            for half in (0, 1)
        ]
        return self.combined(picked[0], picked[1])

    # --- rows that are added up

    def sums(self, block: Expression) -> None:
        """One piece of the output."""
        form, emit = self.form, self.emit
        bases, piece = self.bases(block)
        start: Expression = ZERO
        stop: Expression = self.length
        if form.chunk < form.pieces:
            step = self.parameter("chunk", form.chunk)
            start = emit.let(multiply(piece, step), "start")
            stop = emit.let(operation("min", add(start, step), self.length), "stop")

        def begin(at: Expression, vectors: int, mask: Expression | None) -> None:
            for v in range(vectors):
                here = add(add(bases["out"], at), integer(v * form.lanes))
                emit.emit(Store(self.out, here, self.neutral(), mask=mask))

        self.in_steps(start, stop, begin)
        self.over_contracted(bases, lambda bases: self._add_rows(bases, start, stop))

    def _add_rows(self, bases: dict[str, Expression], start: Expression, stop: Expression) -> None:
        """All rows side by side, `rows` at a time, then what is left one by one."""
        form = self.form
        if form.side_by_side is None:
            self._add_few(bases, 1, start, stop)
            return
        whole = form.row_count // form.rows * form.rows

        def several(count: int) -> Callable[[Expression], None]:
            return lambda row: self._add_few(self.moved(bases, form.side_by_side, row), count, start, stop)

        end = self.parameter("whole_rows", whole)
        if form.apart == 1:
            self.loop("row", ZERO, end, several(form.rows), form.rows)
        else:
            self.loop("row", ZERO, self.parameter("apart", form.apart), several(form.rows))
        if whole < form.row_count:
            self.loop("row", end, self.parameter("row_count", form.row_count), several(1))

    def _add_few(self, bases: dict[str, Expression], count: int, start: Expression, stop: Expression) -> None:
        form, emit = self.form, self.emit
        places = [self._row(bases, j) for j in range(count)]
        scalars = self.vector is not None and form.stride(form.along, "vector") == 0
        fixed: list[Expression | None] = [None] * count
        if scalars:
            assert self.vector is not None
            elements = [load(self.vector, place["vector"]) for place in places]
            fixed = [
                emit.let(Broadcast(one, VectorType(element_of(one.type), form.lanes)), "fixed") for one in elements
            ]

        def step(at: Expression, vectors: int, mask: Expression | None) -> None:
            for v in range(vectors):
                here = emit.let(add(at, integer(v * form.lanes)), "here")
                total: Expression | None = None
                for j, place in enumerate(places):
                    vector = fixed[j]
                    if self.vector is not None and not scalars:
                        vector = self.read(self.vector, add(place["vector"], here), mask)
                    matrix = self.read(self.matrix, add(place["matrix"], here), mask)
                    total = self.mapped(matrix, vector) if total is None else self.stepped(total, matrix, vector)
                assert total is not None
                where = add(bases["out"], here)
                emit.emit(Store(self.out, where, self.combined(self.read(self.out, where, mask), total), mask=mask))

        self.in_steps(start, stop, step)
