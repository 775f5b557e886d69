"""The vocabulary of tensor operations: execution kinds, primitives, element types, and dimensions [S1 5.1].

A table beside each name says what it may be used on, so that the checks, the printer and the code generator agree.
"""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from tilewright.contraction.kinds import Kind, none_of
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BF16, C64, C128, F16, F32, F64, I8, I32, ScalarType


class Execution(Enum):
    """Who walks a dimension: the primitive, the threads of the machine, or a loop around the primitive."""

    PRIM = "prim"
    SHARED = "shared"
    SEQ = "seq"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        none_of(cls, value)


class Primitive(Enum):
    """What is done to one block. `contraction` stands for gemm or brgemm until primitives are identified."""

    NONE = "none"
    ZERO = "zero"
    COPY = "copy"
    TRANSPOSE = "transpose"
    RELU = "relu"
    NEG = "neg"
    ABS = "abs"
    SQRT = "sqrt"
    EXP = "exp"
    RECIPROCAL = "reciprocal"
    SQUARE = "square"
    CLAMP = "clamp"
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MIN = "min"
    MAX = "max"
    GEMM = "gemm"
    BRGEMM = "brgemm"
    CONTRACTION = "contraction"

    @classmethod
    def _missing_(cls, value: object) -> Primitive | None:
        return cls.COPY if value in ("identity", "permute") else none_of(cls, value)

    @property
    def family(self) -> str:
        """unary, binary, ternary or none."""
        if self is Primitive.NONE:
            return "none"
        if self in BINARY:
            return "binary"
        return "ternary" if self in TERNARY else "unary"


BINARY = frozenset({Primitive.ADD, Primitive.SUB, Primitive.MUL, Primitive.DIV, Primitive.MIN, Primitive.MAX})
TERNARY = frozenset({Primitive.GEMM, Primitive.BRGEMM, Primitive.CONTRACTION})

_EVERY_TOUCH = frozenset(
    {
        Primitive.ZERO, Primitive.RELU, Primitive.NEG, Primitive.ABS, Primitive.SQRT, Primitive.EXP,
        Primitive.RECIPROCAL, Primitive.SQUARE, Primitive.CLAMP,
    }
)  # fmt: skip
TOUCHES: dict[str, frozenset[Primitive]] = {
    "f": _EVERY_TOUCH,
    "i": _EVERY_TOUCH - {Primitive.SQRT, Primitive.EXP, Primitive.RECIPROCAL},
    "c": frozenset({Primitive.ZERO, Primitive.NEG}),
}
"""By the kind of the output's scalar type, the primitives that can change a block of the output in place."""

RESULTS: dict[ScalarType, ScalarType] = {F16: F32, BF16: F32, F32: F32, F64: F64, C64: C64, C128: C128, I8: I32}
"""Element types of a contraction's inputs, and the type in which their products are summed and stored."""

ELEMENTWISE = (F32, F64)
"""Element types of unary and binary operations."""


@dataclass(frozen=True)
class TensorDimension:
    """One dimension: its kind, who walks it, its size, and its stride in elements in either input and the output.

    Example:
        >>> TensorDimension("M", "seq", 32, 8192, 0, 32768).execution
        <Execution.SEQ: 'seq'>

    Raises:
        ValueError: for an unknown kind or execution.
        TypeError: if a size or stride is not an integer.
    """

    kind: Kind
    execution: Execution
    size: int
    stride_in0: int
    stride_in1: int
    stride_out: int

    def __init__(
        self, kind: Kind | str, execution: Execution | str, size: int, stride_in0: int, stride_in1: int, stride_out: int
    ) -> None:
        """Kinds and executions may be given by their names."""
        object.__setattr__(self, "kind", Kind(kind))
        object.__setattr__(self, "execution", Execution(execution))
        numbers = {"size": size, "stride_in0": stride_in0, "stride_in1": stride_in1, "stride_out": stride_out}
        for name, value in numbers.items():
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name} of a dimension is {value!r}, not an integer")
            object.__setattr__(self, name, value.__index__())

    @property
    def strides(self) -> tuple[int, int, int]:
        """Strides in in0, in1 and out."""
        return self.stride_in0, self.stride_in1, self.stride_out

    def __str__(self) -> str:
        strides = ", ".join(map(str, self.strides))
        return f"{self.kind.value} {self.execution.value} {self.size} ({strides})"
