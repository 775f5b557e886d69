"""What the direct and the packed form of a contraction share: a register tile has a vector side and a scalar side."""

from __future__ import annotations

from tilewright.contraction.form import Contraction, Operand
from tilewright.ir.cached import remembered
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Apply, Lambda
from tilewright.ir.scalars import ScalarType
from tilewright.ir.traversal import canonical
from tilewright.kernel.ir import Expression

LEAST_SAVED = 1 / 32
"""Share of the multiply-adds that a narrower last tile must save, which takes as much code again."""


def vectors_of_last_tile(size: int, lanes: int, vectors: int) -> int:
    """Vectors of the last of the tiles that cover `size` elements: as few as are needed if that saves something, else
    `vectors`, as all others have.

    Example:
        >>> vectors_of_last_tile(200, 16, 2), vectors_of_last_tile(224, 16, 2), vectors_of_last_tile(1000, 16, 2)
        (1, 2, 2)
    """
    tiles = -(-size // (lanes * vectors))
    left = -(-(size - (tiles - 1) * lanes * vectors) // lanes)
    return left if vectors - left >= LEAST_SAVED * tiles * vectors else vectors


def is_operator(function: Lambda, operator: str) -> bool:
    """True if a function of two parameters is one operator on them."""
    return operator_of(function) == operator


@remembered
def operator_of(function: Lambda) -> str | None:
    """The operator that a function of two parameters is on them; None if it is anything else."""
    plain = canonical(function)
    if len(plain.body.statements) != 1 or plain.body.results != plain.body.statements[0].targets:
        return None
    expression = plain.body.statements[0].expression
    if not isinstance(expression, Apply) or len(plain.parameters) != 2:
        return None
    return expression.operator if set(expression.operands) == set(plain.parameters) else None


@dataclass(frozen=True)
class TwoSidedForm:
    """One operand is the *vector side*, whose elements are taken as vectors; the other is the *scalar side*, whose
    elements are broadcast. `vector_left`: the vector side is the left operand (the map's first argument).
    """

    contraction: Contraction
    vector_left: bool

    @property
    def accumulator(self) -> ScalarType:
        """The type that is summed in."""
        return self.contraction.accumulator

    @property
    def vector_operand(self) -> Operand:
        """The operand of the vector side."""
        return self.contraction.operand(left=self.vector_left)

    @property
    def scalar_operand(self) -> Operand:
        """The operand of the scalar side."""
        return self.contraction.operand(left=not self.vector_left)


@dataclass(frozen=True)
class Bases:
    """Flat start of each array for one block of the launch."""

    vector: Expression
    scalar: Expression
    out: Expression
    further: tuple[Expression, ...]
