"""Expressions on narrow elements of which several lie in a lane; in kernels for CPUs only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType

if TYPE_CHECKING:
    from tilewright.kernel.ir import Expression, VectorType


@dataclass(frozen=True)
class Bits:
    """The bits of a vector of integers, its one operand, as a vector of other integers, in the order of memory."""

    operands: tuple[Expression, ...]
    type: VectorType


@dataclass(frozen=True)
class Dot:
    """The third operand plus the products of what lies in each lane of the first two, vectors of u32: as many elements
    as fit into one, of the two types that `elements` says. Integers wrap around; of bf16, numbers below 2^-126 count as
    0, be they elements, products or sums. For processors that have an instruction for it only.
    """

    operands: tuple[Expression, Expression, Expression]
    elements: tuple[ScalarType, ScalarType]
    type: VectorType
