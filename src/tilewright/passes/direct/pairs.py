"""Products of complex numbers in vectors that hold real and imaginary parts in turns, as memory does.

    sum of (a, b) * (c, d):    (re, im) += (a, b) * (c, c);    (re, im) += (-b, a) * (d, d)

Nothing is taken apart: vectors of the vector side are read where they lie, or from a panel of whole numbers, the other
factor is made of them in registers, and sums are stored as they are. To all else the contraction is one of real
numbers, whose vectors are twice as long.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.contraction.form import Contraction, Dimension, Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal
from tilewright.ir.scalars import real_of
from tilewright.ir.sizes import size
from tilewright.kernel.ir import Expression, Shuffle, VectorType, operation
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.writer import DirectWriter
from tilewright.passes.packed.form import is_multiply_add

LEAST_REGISTERS = 32
"""Fewer leave too little room beside the turned vectors: panels, which separate the parts, need none of these."""


def suits_pairs(contraction: Contraction, machine: Machine) -> bool:
    """Whether a normalised contraction with known sizes may be computed so: a plain sum of complex products."""
    operands = (contraction.left, contraction.right, contraction.out)
    accumulator = contraction.accumulator
    alike = accumulator.is_complex and all(one.element == accumulator for one in operands)
    plain = contraction.epilogue is None and not contraction.scalars and is_multiply_add(contraction)
    filled = all(constant(one.size) > 0 for one in contraction.dimensions)
    vectors = machine.vector_registers >= LEAST_REGISTERS and machine.lanes(real_of(accumulator).bytes) > 1
    return alike and plain and filled and vectors


def in_reals(contraction: Contraction, vector: Dimension) -> Contraction:
    """The contraction of real numbers whose vectors run along both parts of a dimension of unit stride in the output.

    Its stride in the operand, which may be any, stays as it is: number n begins at 2n times a stride in numbers.

    Example:
        >>> from tilewright.cli.stages import follow
        >>> (found,) = follow("ik,kj->ij", {"i": 3, "j": 5, "k": 7}).found
        >>> real = in_reals(found, found.dimensions[1])
        >>> [(one.name, str(one.size), str(one.stride_right), str(one.stride_out)) for one in real.dimensions]
        [('i', '3', '0', '10'), ('j', '10', '1', '1'), ('k', '7', '10', '0')]
    """
    real = real_of(contraction.accumulator)

    def of(operand: Operand) -> Operand:
        return replace(operand, element=real, offset=operand.offset * size(2))

    def widened(one: Dimension) -> Dimension:
        if one == vector:
            return replace(one, size=one.size * size(2))
        strides = (one.stride_left, one.stride_right, one.stride_out)
        left, right, out = (stride * size(2) for stride in strides)
        return replace(one, stride_left=left, stride_right=right, stride_out=out)

    return replace(
        contraction,
        dimensions=tuple(widened(one) for one in contraction.dimensions),
        left=of(contraction.left),
        right=of(contraction.right),
        out=of(contraction.out),
        map=Builder().operator("mul", real),
        combine=Builder().operator("add", real),
        neutral=Literal(0.0, real),
    )


def as_pairs(form: DirectForm) -> DirectForm:
    """A placement of complex numbers, whose vectors are read as they are stored, as one of their parts. Tiles do not
    move to where vectors of the output's memory begin, which may be in the middle of a number.
    """
    real = in_reals(form.contraction, form.vector)
    wide = dict(zip(form.contraction.dimensions, real.dimensions, strict=True))
    return replace(
        form,
        contraction=real,
        vector=wide[form.vector],
        scalar=None if form.scalar is None else wide[form.scalar],
        contracted=tuple(wide[one] for one in form.contracted),
        outer=tuple(wide[one] for one in form.outer),
        numbers=form.contraction,
        peeled=False,
    )


def turned_pairs(w: DirectWriter, vector: Expression) -> Expression:
    """i times a vector of complex numbers: (a, b, ...) => (-b, a, ...)."""
    assert isinstance(vector.type, VectorType)
    lanes = vector.type.lanes
    negative = w.emit.let(operation("neg", vector), "negative")
    picked = tuple(lane + 1 if lane % 2 == 0 else lane - 1 + lanes for lane in range(lanes))
    return w.emit.let(Shuffle(negative, vector, picked, vector.type), "turned")
