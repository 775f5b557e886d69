"""What writing the kernel of a `MatrixVectorForm` needs: its addresses, its arithmetic, and the loops of its sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.contraction.form import Dimension
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, I64, U32, ScalarType, compute_type
from tilewright.kernel import ir as kernel
from tilewright.kernel.dots import Bits
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.items.launch_writer import LaunchWriter
from tilewright.passes.items.scalar_values import Value, component_types, load_element, store_element
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.items.sum_trees import PieceLoop, grows_errors, over_tree, tree_loops
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.dots import as_bits

ZERO = integer(0)


class Mask(NamedTuple):
    """The lanes that are meant: of elements, and of complex ones as they lie in memory."""

    elements: Expression
    pairs: Expression


class RowWriter(LaunchWriter):
    """The state of writing one kernel."""

    def __init__(self, form: MatrixVectorForm) -> None:
        super().__init__(form.contraction, I64)
        self.form = form
        self.matrix = self.global_buffer(form.matrix, "matrix", True)
        vector = self.global_buffer(form.vector, "vector", True)
        self.vector = vector if form.reads_vector else None
        self.out = self.global_buffer(form.contraction.out, "out", False)
        self._further = [self.global_buffer(one.operand, "further", True) for one in form.contraction.epilogue_operands]
        self._strides: dict[tuple[str, str], Expression] = {}
        self.length = self.parameter("length", form.along_size)
        starts = [form.row_start(j) for j in range(form.rows)]
        self.row_starts = [integer(one) if form.apart == 1 else self.parameter("row_start", one) for one in starts]

    # --- addresses

    def stride(self, dimension: Dimension, side: str) -> Expression:
        """The stride of a dimension in "matrix", "vector", "out" or an operand of the epilogue ("0", "1", ...)."""
        key = (dimension.name, side)
        if key not in self._strides:
            self._strides[key] = self.parameter(f"{self._hint(side)}_stride", self.form.stride(dimension, side))
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
        operands |= {str(number): one.operand for number, one in enumerate(form.contraction.epilogue_operands)}
        found: dict[str, Expression] = {}
        for side, operand in operands.items():
            total = self.parameter(f"{self._hint(side)}_offset", constant(operand.offset))
            for one, coordinate in zip(reversed(form.outer), at, strict=True):
                total = add(total, multiply(coordinate, self.stride(one, side)))
            found[side] = emit.let(total, f"{self._hint(side)}_at")
        return found, piece

    @staticmethod
    def _hint(side: str) -> str:
        return f"further{side}" if side.isdigit() else side

    def moved(self, bases: dict[str, Expression], dimension: Dimension | None, by: Expression) -> dict[str, Expression]:
        """The bases at a point of a dimension."""
        if dimension is None:
            return bases
        return {
            side: self.emit.let(add(base, multiply(by, self.stride(dimension, side))), f"{self._hint(side)}_at")
            for side, base in bases.items()
        }

    def tree_of(self, extent: int, piece: int) -> tuple[PieceLoop, ...]:
        """The loops over the other contracted dimensions and `extent` steps inside."""
        extents = [*(constant(one.size) for one in self.form.contracted), extent]
        return tree_loops(extents, piece if grows_errors(self.contraction.combine) else math.prod(extents))

    def over_tree(
        self,
        loops: Sequence[PieceLoop],
        bases: dict[str, Expression],
        extent: Expression,
        write: Callable[[dict[str, Expression], Expression, Expression], None],
        fold: Callable[[int], None],
    ) -> None:
        """`write(bases, start, stop)` for steps at every point of the other contracted dimensions; `fold(level)` at the
        end of each node of the tree.
        """
        sizes = [self.parameter("contracted_size", constant(one.size)) for one in self.form.contracted]

        def innermost(indices: Sequence[Expression], start: Expression, stop: Expression) -> None:
            here = bases
            for one, index in zip(self.form.contracted, indices, strict=True):
                here = self.moved(here, one, index)
            write(here, start, stop)

        over_tree(self, loops, [*sizes, extent], innermost, fold)

    # --- elements: vectors of them, one for each component

    def read(
        self, buffer: Buffer, scalar: ScalarType, at: Expression, mask: Mask | None, lanes: int | None = None
    ) -> Value:
        """Vectors of the elements from `at` on, of the form's lanes if nothing else is said."""
        lanes = lanes or self.form.lanes
        if not scalar.is_complex:
            return (
                self._load(
                    buffer,
                    at,
                    kernel.VectorType(compute_type(buffer.element), lanes),
                    None if mask is None else mask.elements,
                ),
            )
        type_ = kernel.VectorType(buffer.element, 2 * lanes)
        pairs = self._load(buffer, multiply(at, integer(2)), type_, None if mask is None else mask.pairs)
        parts = (
            kernel.Shuffle(pairs, pairs, tuple(range(part, 2 * lanes, 2)), kernel.VectorType(buffer.element, lanes))
            for part in (0, 1)
        )
        return tuple(self.emit.let(one, "component") for one in parts)

    def read_row(self, buffer: Buffer, scalar: ScalarType, at: Expression, mask: Mask | None) -> Value:
        """What one vector takes of a row of either operand along which sums run, from `at` on."""
        if self.form.dots is None:
            return self.read(buffer, scalar, at, mask)
        raw = as_bits(buffer)
        (found,) = self.read(raw, raw.element, at, mask, self.form.step)
        return (self.emit.let(Bits((found,), kernel.VectorType(U32, self.form.lanes)), "packed"),)

    def read_vector(self, place: Expression, along: Expression, mask: Mask | None) -> Value:
        """The other operand's elements from `along` on, in a row that begins at `place`."""
        assert self.vector is not None
        form, scalar = self.form, self.form.vector.element
        if form.stride(form.along, "vector") == 1:
            return self.read_row(self.vector, scalar, add(place, along), mask)
        if form.stride(form.along, "vector") == -1:
            return self._read_backwards(self.vector, scalar, operation("sub", place, along), mask)
        count = len(component_types(scalar))
        step = self.stride(form.along, "vector")
        indices = kernel.VectorType(I64, form.lanes)
        places = add(kernel.Broadcast(add(place, multiply(along, step)), indices), self._spread(step, indices))
        first = self.emit.let(operation("mul", places, kernel.Broadcast(integer(count), indices)), "places")
        type_ = kernel.VectorType(compute_type(self.vector.element), form.lanes)
        lanes = None if mask is None else mask.elements
        parts = (add(first, kernel.Broadcast(integer(part), indices)) for part in range(count))
        return tuple(self._load(self.vector, one, type_, lanes) for one in parts)

    def _read_backwards(self, buffer: Buffer, scalar: ScalarType, at: Expression, mask: Mask | None) -> Value:
        """Vectors of the elements at `at` and before it."""

        def turned(value: Expression) -> Expression:
            assert isinstance(value.type, kernel.VectorType)
            return self.emit.let(
                kernel.Shuffle(value, value, tuple(range(value.type.lanes))[::-1], value.type), "turned"
            )

        turned_mask = None if mask is None else Mask(turned(mask.elements), turned(mask.pairs))
        first = operation("sub", at, integer(self.form.lanes - 1))
        return tuple(map(turned, self.read(buffer, scalar, first, turned_mask)))

    def _spread(self, step: Expression, type_: kernel.VectorType) -> Expression:
        return operation("mul", kernel.LaneNumbers(type_), kernel.Broadcast(step, type_))

    def _load(self, buffer: Buffer, at: Expression, type_: kernel.VectorType, mask: Expression | None) -> Expression:
        return self.emit.let(kernel.Load(buffer, at, type_, mask=mask), "read")

    def read_everywhere(self, buffer: Buffer, scalar: ScalarType, at: Expression) -> Value:
        """The element at `at` in all lanes."""
        element = load_element(buffer, scalar, at, self.emit) if scalar.is_complex else (load(buffer, at),)
        return self._everywhere(element, self.form.lanes)

    def _everywhere(self, element: Value, lanes: int) -> Value:
        wide = (kernel.Broadcast(one, kernel.VectorType(kernel.element_of(one.type), lanes)) for one in element)
        return tuple(self.emit.let(one, "fixed") for one in wide)

    def store(self, buffer: Buffer, at: Expression, value: Value, mask: Mask | None = None) -> None:
        """Write results, vectors of them or one, from `at` on."""
        if len(value) == 1:
            self.emit.emit(kernel.Store(buffer, at, value[0], mask=None if mask is None else mask.elements))
        elif not isinstance(value[0].type, kernel.VectorType):
            store_element(buffer, self.form.accumulator, at, value, self.emit)
        else:
            lanes = value[0].type.lanes
            in_turns = tuple(lane + part * lanes for lane in range(lanes) for part in (0, 1))
            real, imaginary = value
            pairs = kernel.Shuffle(
                real, imaginary, in_turns, kernel.VectorType(kernel.element_of(value[0].type), 2 * lanes)
            )
            place = multiply(at, integer(2))
            self.emit.emit(kernel.Store(buffer, place, pairs, mask=None if mask is None else mask.pairs))

    def level(self, elements: int) -> Buffer:
        """Scratch memory for so many results."""
        parts = component_types(self.form.accumulator)
        return self.workspace("level", parts[0], len(parts) * elements)

    def accumulator(self, hint: str) -> tuple[Name, ...]:
        """Variables that begin with the neutral element in all lanes."""
        return tuple(self.emit.declare(one, hint) for one in self.neutral())

    def assign(self, names: Sequence[Name], value: Value, mask: Mask | None = None) -> None:
        """Give variables a value; lanes that the mask leaves out keep theirs."""
        for name, one in zip(names, value, strict=True):
            kept = one
            if mask is not None:
                kept = self.emit.let(kernel.Operation("select", (mask.elements, one, name), one.type), "kept")
            self.emit.assign(name, kept)

    def snapshot(self, names: Sequence[Name], hint: str) -> Value:
        """What variables hold now."""
        return tuple(self.emit.snapshot(one, hint) for one in names)

    # --- arithmetic

    def combined(self, left: Value, right: Value) -> Value:
        """combine(left, right), of vectors or of scalars."""
        lanes = left[0].type.lanes if isinstance(left[0].type, kernel.VectorType) else 1
        pair = [tuple(self.emit.let(one, "operand") for one in value) for value in (left, right)]
        (result,) = lower_lambda_vector(self.contraction.combine, pair, lanes, self.emit)
        return tuple(self.emit.let(one, "total") for one in result)

    def finished(
        self,
        total: Value,
        bases: dict[str, Expression],
        lanes_along: Dimension | None,
        by: Expression = ZERO,
        mask: Mask | None = None,
    ) -> Value:
        """What is stored for sums, vectors of them or one: the epilogue of them and of its operands.

        Args:
            total: the sums.
            bases: where the arrays' elements of the first of them are.
            lanes_along: the dimension along which the lanes are neighbours.
            by: how far from `bases` along that dimension.
            mask: the lanes that are meant.
        """
        contraction = self.contraction
        if contraction.epilogue is None:
            return total
        lanes = total[0].type.lanes if isinstance(total[0].type, kernel.VectorType) else 1
        operands = [total]
        for number, (one, buffer) in enumerate(zip(contraction.epilogue_operands, self._further, strict=True)):
            scalar, place = one.operand.element, bases[str(number)]
            moves = lanes_along is not None and self.form.stride(lanes_along, str(number)) != 0
            at = add(place, by) if moves else place
            if lanes > 1 and moves:
                operands.append(self.read(buffer, scalar, at, mask, lanes))
                continue
            element = load_element(buffer, scalar, at, self.emit)
            operands.append(element if lanes == 1 else self._everywhere(element, lanes))
        (result,) = lower_lambda_vector(contraction.epilogue, operands, lanes, self.emit)
        return tuple(self.emit.let(one, "finished") for one in result)

    def mapped(self, matrix: Value, vector: Value | None) -> Value:
        """map(matrix, vector)."""
        other = matrix if vector is None else vector
        pair = (matrix, other) if self.form.matrix_left else (other, matrix)
        (result,) = lower_lambda_vector(self.contraction.map, pair, self.form.lanes, self.emit)
        return tuple(self.emit.let(one, "mapped") for one in result)

    def stepped(self, total: Value, matrix: Value, vector: Value | None) -> Value:
        """combine(total, map(matrix, vector))."""
        if self.form.dots is not None and vector is not None:
            (before,) = total
            assert isinstance(before, Name)
            return (self.emit.let(self.form.dots.of(matrix[0], vector[0], before), "total"),)
        if self.form.fused_multiply_add and vector is not None:
            kinds = {tuple(kernel.element_of(one.type) for one in value) for value in (total, matrix, vector)}
            if len(kinds) == 1:
                return self._multiply_add(total, matrix, vector)
        return self.combined(total, self.mapped(matrix, vector))

    def _multiply_add(self, total: Value, x: Value, y: Value) -> Value:
        """total + x y; of complex numbers the real part is re + ac - bd, the imaginary one im + ad + bc."""

        def fma(one: Expression, other: Expression, before: Expression) -> Expression:
            return self.emit.let(kernel.Operation("fma", (one, other, before), before.type), "total")

        if len(total) == 1:
            return (fma(x[0], y[0], total[0]),)
        real, imaginary = fma(x[0], y[0], total[0]), fma(x[0], y[1], total[1])
        return fma(self.emit.let(operation("neg", x[1]), "negative"), y[1], real), fma(x[1], y[0], imaginary)

    def neutral(self) -> Value:
        """The neutral element in all lanes."""
        parts = constant_value(self.contraction.neutral.value, self.contraction.neutral.scalar)
        return tuple(
            kernel.Broadcast(one, kernel.VectorType(kernel.element_of(one.type), self.form.lanes)) for one in parts
        )

    def tail_mask(self, stop: Expression, at: Expression) -> Mask:
        """True for the lanes from `at` on that lie before `stop`."""
        left, lanes = operation("sub", stop, at), self.form.step
        elements = self.emit.let(kernel.FirstLanes(left, kernel.VectorType(BOOL, lanes)), "mask")
        if not self.form.has_complex:
            return Mask(elements, elements)
        pairs = kernel.FirstLanes(multiply(left, integer(2)), kernel.VectorType(BOOL, 2 * lanes))
        return Mask(elements, self.emit.let(pairs, "pairs"))

    def head_mask(self, count: Expression) -> Mask:
        """True for the last `count` lanes, in forms without complex elements."""
        assert not self.form.has_complex
        numbers = kernel.VectorType(I64, self.form.lanes)
        first = operation("sub", integer(self.form.lanes), count)
        there = operation("ge", kernel.LaneNumbers(numbers), kernel.Broadcast(first, numbers))
        elements = self.emit.let(there, "mask")
        return Mask(elements, elements)

    def in_steps(
        self, start: Expression, stop: Expression, write: Callable[[Expression, int, Mask | None], None]
    ) -> None:
        """`write(at, vectors, mask)` for whole steps, then for single vectors, then for what is left of one."""
        lanes, form, emit = self.form.step, self.form, self.emit
        begin: Expression = start
        for vectors in (form.vectors, 1) if form.vectors > 1 else (1,):
            width = lanes * vectors
            count = emit.let(operation("floordiv", operation("sub", stop, begin), integer(width)), "count")
            end = emit.let(add(begin, multiply(count, integer(width))), "end")
            self.loop("at", begin, end, lambda at, vectors=vectors: write(at, vectors, None), width)  # type: ignore[misc]
            begin = end
        emit.when(operation("lt", begin, stop), lambda: write(begin, 1, self.tail_mask(stop, begin)))
