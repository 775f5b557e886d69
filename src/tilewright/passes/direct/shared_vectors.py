"""Whole vectors for the narrower last vectors of several rows of a register tile.

    last[j][0:8] += a[j] * b[16:24]                        for rows of 24 results, in vectors of 16
    =>  sum[0:16] += (a[j] in 0:8, a[j + 1] in 8:16) * (b[16:24], b[16:24])

A vector of which half is used takes as long as a whole one. So the last columns are repeated in all lanes, and are
multiplied by the elements of as many rows, each in its part of the lanes.
"""

from __future__ import annotations

from tilewright.kernel.ir import Broadcast, Expression, Name, Operation, Shuffle, VectorType, element_of
from tilewright.passes.direct.writer import DirectWriter
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.lanes.vectorise import lower_lambda_vector


class SharedVectors:
    """The sums of the last columns of a tile, and within one step of its sum the elements of some rows."""

    def __init__(self, w: DirectWriter) -> None:
        """Begin with the neutral element."""
        form = w.form
        self.w, self.rows, self.part = w, form.shared_rows, form.lanes[-1]
        self.lanes = self.rows * self.part
        self.sums = [w.emit.declare(neutral_vector(w, self.lanes), "sum") for _ in range(form.rows // self.rows)]
        self._columns: Expression | None = None
        self._elements: Expression | None = None

    def begin(self, columns: Expression) -> None:
        """A step of the sum, whose last columns these are."""
        type_ = VectorType(element_of(columns.type), self.lanes)
        self._columns = self.w.emit.let(Shuffle(columns, columns, tuple(range(self.part)) * self.rows, type_), "shared")

    def add(self, row: int, element: Expression) -> None:
        """What the element of this row, in all lanes, adds in its part of them; together with those of other rows."""
        number = row % self.rows
        if number:
            assert self._elements is not None
            lanes = range(self.lanes)
            picked = tuple(lane + self.lanes if lane // self.part == number else lane for lane in lanes)
            assert isinstance(element.type, VectorType)
            element = self.w.emit.let(Shuffle(self._elements, element, picked, element.type), "elements")
        self._elements = element
        if number == self.rows - 1:
            assert self._columns is not None
            combine(self.w, self.sums[row // self.rows], self._columns, element)

    def of_row(self, row: int) -> Name:
        """The sums of one row."""
        total, first = self.sums[row // self.rows], row % self.rows * self.part
        picked = tuple(range(first, first + self.part))
        part = Shuffle(total, total, picked, VectorType(element_of(total.type), self.part))
        return self.w.emit.declare(part, "sum")


def neutral_vector(w: DirectWriter, lanes: int) -> Expression:
    """What a sum begins with, in so many lanes."""
    neutral = w.form.contraction.neutral
    (value,) = constant_value(neutral.value, neutral.scalar)
    return Broadcast(value, VectorType(element_of(value.type), lanes))


def combine(w: DirectWriter, total: Name, vector: Expression, element: Expression) -> None:
    """Add what the map gives of a vector and an element in all lanes to a sum."""
    form, emit = w.form, w.emit
    if form.fused_multiply_add and element_of(vector.type) == element_of(element.type) == element_of(total.type):
        emit.assign(total, Operation("fma", (vector, element, total), total.type))
        return
    assert isinstance(total.type, VectorType)
    vector, element = emit.let(vector, "left"), emit.let(element, "right")
    pair = (vector, element) if form.vector_left else (element, vector)
    (mapped,) = lower_lambda_vector(form.contraction.map, [(one,) for one in pair], total.type.lanes, emit)
    ((combined,),) = lower_lambda_vector(form.contraction.combine, ((total,), mapped), total.type.lanes, emit)
    emit.assign(total, combined)
