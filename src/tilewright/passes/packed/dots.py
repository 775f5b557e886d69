"""Panels of elements narrower than their sums: several steps of the sum lie side by side in a lane.

    panels[p][k][i] = (source[i, together * k], source[i, together * k + 1], ...)

One instruction multiplies what lies in a lane of the vector with what lies in the broadcast lane, and adds all products
to the lane's sum (`kernel.ir.Dot`). That for bytes takes unsigned ones from one side and signed ones from the other.
Where both sides are alike, bytes of the scalar side have their upper bit flipped, which makes b + 128 of a signed one
and b - 128 of an unsigned one:

    sum a[k] * (b[k] + 128) = sum a[k] * b[k] + what zeros in place of b give

so sums begin with the negative of what zeros give: exactly, since integers wrap around.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BF16, F32, I8, I16, I32, U8, U16, U32, ScalarType
from tilewright.kernel.dots import Dot
from tilewright.kernel.ir import Buffer, Expression, Name, VectorType
from tilewright.machine.model import Machine
from tilewright.passes.packed.two_sides import is_operator


@dataclass(frozen=True)
class Dots:
    """What the instruction takes.

    Attributes:
        elements: the types of its first factor and of its second one.
        vector_first: the first one is the vector side's.
        flipped: the scalar side's bytes have their upper bit flipped.
        in_tiles: the instruction is one on tiles (tiles.py); then the first factor is the scalar side's.
    """

    elements: tuple[ScalarType, ScalarType]
    vector_first: bool = True
    flipped: bool = False
    in_tiles: bool = False

    @property
    def together(self) -> int:
        """Steps of the sum that one instruction takes."""
        return U32.bytes // self.elements[0].bytes

    def of(self, vector: Expression, scalar: Expression, total: Name) -> Dot:
        """The sum and the products of the elements of either side."""
        assert isinstance(total.type, VectorType)
        factors = (vector, scalar) if self.vector_first else (scalar, vector)
        return Dot((*factors, total), self.elements, total.type)


def as_bits(source: Buffer) -> Buffer:
    """The same memory, read as unsigned integers."""
    return replace(source, element={1: U8, 2: U16}[source.element.bytes])


def choose_dots(contraction: Contraction, vector_left: bool, machine: Machine) -> Dots | None:
    """The instruction for a contraction whose map takes its operands as they are summed, if the machine has one; sums
    of a single step are left as they are.

    Args:
        contraction: normalised, with conversions drawn out of its map.
        vector_left: the vector side is the left operand.
        machine: that it is for.
    """
    if not _sums_products(contraction):
        return None
    accumulator = contraction.accumulator
    vector, scalar = contraction.operand(vector_left).element, contraction.operand(not vector_left).element
    sides = {vector, scalar}
    if accumulator == F32:
        return Dots((BF16, BF16)) if sides == {BF16} and "bf16" in machine.dots else None
    if sides == {I16} and "i16" in machine.dots:
        return Dots((I16, I16))
    if sides <= {I8, U8} and "i8" in machine.dots:
        flipped = vector == scalar
        return Dots((U8, I8), vector_first=vector == U8, flipped=flipped)
    return None


def choose_tiles(contraction: Contraction, vector_left: bool, machine: Machine) -> Dots | None:
    """The same of instructions on tiles, which take bytes with signs and without them on either side."""
    if not _sums_products(contraction):
        return None
    floats = contraction.accumulator == F32
    vector, scalar = contraction.operand(vector_left).element, contraction.operand(not vector_left).element
    if ("bf16" if floats else "i8") not in machine.tiles or not {vector, scalar} <= ({BF16} if floats else {I8, U8}):
        return None
    return Dots((scalar, vector), vector_first=False, in_tiles=True)


def _sums_products(contraction: Contraction) -> bool:
    """Whether sums of two and more products are in a type of 32 bits, in which the map takes its operands."""
    accumulator = contraction.accumulator
    taken = {one.type.element for one in contraction.map.parameters}
    products = is_operator(contraction.map, "mul") and is_operator(contraction.combine, "add")
    steps = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K))
    return products and taken == {accumulator} and steps > 1 and accumulator in (F32, I32, U32)
