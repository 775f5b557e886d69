"""What writing the kernel of a `MatrixVectorForm` needs: its addresses, its arithmetic, and the loops of its sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.contraction.form import Dimension
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel.ir import (
    Broadcast,
    Buffer,
    Expression,
    FirstLanes,
    Load,
    Operation,
    VectorType,
    add,
    element_of,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.items.sum_trees import PieceLoop, grows_errors, over_tree, tree_loops
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.launch_writer import LaunchWriter
from tilewright.passes.matrix_vector.form import MatrixVectorForm

ZERO = integer(0)


class RowWriter(LaunchWriter):
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
