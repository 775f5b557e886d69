"""The state of writing the kernel of a tensor operation: its parameters, buffers, outer loops and touches.

    block index -> offsets of the shared dimensions
        loops over the seq dimensions -> offsets; is this the first, is this the last of the contracted loops?
            the primitive

Strides and the sizes of outer dimensions are launch parameters, except for 0 and 1 (which decide the code's form), so
that one kernel serves many operations. Complex arrays are arrays of reals of twice the length; all strides and offsets
below are in reals.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.contraction.kinds import Kind
from tilewright.contraction.tensor_operation import Execution, Primitive, TensorDimension, TensorOperation
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, ScalarType, compute_type, real_of
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, add, integer, multiply, operation
from tilewright.machine.model import Machine
from tilewright.passes.items.launch_writer import KernelWriter

TRUE, FALSE = Constant(True, BOOL), Constant(False, BOOL)


@dataclass(frozen=True)
class Strides:
    """A dimension in the kernel: its size, and its strides (in reals) in in0, in1 and out."""

    dimension: TensorDimension
    size: int
    in0: Expression
    in1: Expression
    out: Expression

    def of(self, array: str) -> Expression:
        """The stride in an array by name."""
        return {"in0": self.in0, "in1": self.in1, "out": self.out}[array]

    def moves(self, array: str) -> int:
        """The stride in elements."""
        return dict(zip(("in0", "in1", "out"), self.dimension.strides, strict=True))[array]


@dataclass(frozen=True)
class Place:
    """Where a primitive works: offsets into the arrays, and whether it is the first and the last on its block."""

    in0: Expression
    in1: Expression
    out: Expression
    first: Expression
    last: Expression

    def of(self, array: str) -> Expression:
        """The offset into an array by name."""
        return {"in0": self.in0, "in1": self.in1, "out": self.out}[array]


class TensorWriter(KernelWriter):
    """Collects one kernel."""

    def __init__(self, operation_: TensorOperation, machine: Machine) -> None:
        """Start with the arrays that the operation has."""
        super().__init__(I64)
        self.operation = operation_
        self.machine = machine
        self.width = 2 if operation_.dtype.is_complex else 1
        self.real: ScalarType = compute_type(real_of(operation_.out_dtype))
        used = [name for name, extent in zip(("in0", "in1", "out"), operation_.extents, strict=True) if extent]
        self.buffers = {name: Buffer(name, self._memory(name), read_only=name != "out") for name in used}
        self._buffers, self._buffer_names = list(self.buffers.values()), used

    def _memory(self, array: str) -> ScalarType:
        return real_of(self.operation.out_dtype if array == "out" else self.operation.dtype)

    def lanes(self) -> int:
        """Elements that a vector register holds in the type of the computation."""
        return max(1, self.machine.lanes(self.real.bytes) // self.width)

    # --- parameters and loops -----------------------------------------------------------------------------------------

    def parameter(self, hint: str, value: int) -> Expression:
        """A launch parameter; 0, 1 and the two of a complex element are written into the kernel."""
        return integer(value) if value == self.width else super().parameter(hint, value)

    def strides(self, dimension: TensorDimension) -> Strides:
        """A dimension's strides as parameters; arrays that the kernel does not have get none."""
        size = dimension.size
        values = [
            self.parameter(f"{name}_stride", stride * self.width if size > 1 and name in self.buffers else 0)
            for name, stride in zip(("in0", "in1", "out"), dimension.strides, strict=True)
        ]
        return Strides(dimension, size, *values)

    def loop(
        self,
        hint: str,
        start: Expression,
        stop: Expression,
        body: Callable[[Expression], None],
        step: int = 1,
        unroll: bool = False,
    ) -> None:
        """A loop; one with a single known iteration is written without."""
        if isinstance(start, Constant) and isinstance(stop, Constant):
            if stop.value <= start.value:
                return
            if stop.value - start.value <= step:
                body(start)
                return
        self.emit.loop(hint, start, stop, body, step, unroll=unroll)

    def branch(self, condition: Expression, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """If; a known condition is written without."""
        if isinstance(condition, Constant):
            (then if condition.value else otherwise)()
            return
        self.emit.when(condition, then, otherwise)

    def both(self, left: Expression, right: Expression) -> Expression:
        """left and right, folded."""
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Constant):
                return other if one.value else one
        return operation("and", left, right)

    def outer_loops(self, primitive: Callable[[Place], None]) -> int:
        """The shared dimensions from the block index, the seq dimensions as loops; gives the number of blocks."""
        place = Place(integer(0), integer(0), integer(0), TRUE, TRUE)
        shared = [one for one in self.operation.of_execution(Execution.SHARED) if one.size > 1]
        blocks = 1
        rest: Expression = kernel.BlockIndex()
        for number, dimension in reversed(list(enumerate(shared))):
            blocks *= dimension.size
            index: Expression = self.emit.let(rest, "block")
            if number > 0:
                size = self.parameter("size", dimension.size)
                index, rest = (
                    self.emit.let(operation("mod", index, size), "index"),
                    self.emit.let(operation("floordiv", index, size), "block"),
                )
            place = self._moved(place, self.strides(dimension), index)
        self._seq([one for one in self.operation.of_execution(Execution.SEQ) if one.size > 1], place, primitive)
        return blocks

    def _seq(self, dimensions: list[TensorDimension], place: Place, primitive: Callable[[Place], None]) -> None:
        if not dimensions:
            primitive(place)
            return
        strides = self.strides(dimensions[0])
        stop = self.parameter("size", strides.size)

        def body(index: Expression) -> None:
            inner = self._moved(place, strides, index)
            if strides.dimension.kind is Kind.K:
                final = operation("eq", add(index, integer(1)), stop)
                inner = Place(
                    inner.in0,
                    inner.in1,
                    inner.out,
                    self.both(inner.first, self.emit.let(operation("eq", index, integer(0)), "first")),
                    self.both(inner.last, self.emit.let(final, "last")),
                )
            self._seq(dimensions[1:], inner, primitive)

        self.loop("i", integer(0), stop, body)

    def _moved(self, place: Place, strides: Strides, index: Expression) -> Place:
        def moved(array: str) -> Expression:
            return self.emit.let(add(place.of(array), multiply(index, strides.of(array))), f"{array}_at")

        return Place(moved("in0"), moved("in1"), moved("out"), place.first, place.last)

    # --- primitives on values -----------------------------------------------------------------------------------------

    def applied(self, primitive: Primitive, value: Expression) -> Expression:
        """A unary primitive on a scalar or vector."""
        match primitive:
            case Primitive.NONE | Primitive.COPY | Primitive.TRANSPOSE:
                return value
            case Primitive.ZERO:
                return self.constant(0, value)
            case Primitive.RELU:
                return operation("max", value, self.constant(0, value))
            case Primitive.RECIPROCAL:
                return operation("div", self.constant(1, value), value)
            case Primitive.SQUARE:
                return operation("mul", value, value)
            case Primitive.CLAMP:
                assert self.operation.clamp is not None  # the rule clamp-range
                lower, upper = (self.constant(bound, value) for bound in self.operation.clamp)
                return operation("min", operation("max", value, lower), upper)
            case _:
                return operation(primitive.value, value)

    def constant(self, value: float, like: Expression) -> Expression:
        """A constant of the type of another value."""
        scalar = kernel.element_of(like.type)
        literal = Constant(int(value) if scalar.is_integer else float(value), scalar)
        return kernel.Broadcast(literal, like.type) if isinstance(like.type, kernel.VectorType) else literal


def vector_or_scalar(element: ScalarType, lanes: int) -> ScalarType | kernel.VectorType:
    """The type of `lanes` elements."""
    return element if lanes == 1 else kernel.VectorType(element, lanes)
