"""The epilogue of the packed form: applied to whole vectors of results, once each, just before they are written.

Along a vector an operand of the epilogue is consecutive in memory (a residual, a bias of each column), constant (a bias
of each row), or neither, when its elements are gathered. Which one it is, its stride along the vector side's innermost
dimension says; the marks of the output's runs (kernel.py) say where vectors stay inside that dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tilewright.ir.scalars import ScalarType
from tilewright.kernel.ir import Broadcast, Buffer, Expression, Store, VectorType, add, element_of, integer, load
from tilewright.passes.items.scalar_values import Value, component_types, load_element
from tilewright.passes.lanes.vectorise import is_vectorisable, lower_lambda_vector
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.operands import load_parts
from tilewright.passes.packed.two_sides import Bases
from tilewright.passes.packed.writer import PackedWriter, Side


class Along(Enum):
    """How an operand of the epilogue lies in memory along a vector of results; the value is the distance of lanes."""

    CONSTANT = 0
    CONSECUTIVE = 1
    SCATTERED = None


def along_vectors(form: PackedForm, number: int) -> Along:
    """How operand `number` of the epilogue lies along vectors."""
    stride = form.vector_dimensions[-1].further[number] if form.vector_dimensions else 0
    return Along(stride) if stride in (0, 1) else Along.SCATTERED


def consecutive_operands(form: PackedForm) -> list[int]:
    """The numbers of the epilogue's operands that are read in whole vectors."""
    numbers = range(len(form.contraction.epilogue_operands)) if form.lanes > 1 else ()
    return [number for number in numbers if along_vectors(form, number) is Along.CONSECUTIVE]


def has_vector_results(form: PackedForm) -> bool:
    """Whole vectors of sums become whole vectors of what the output holds."""
    contraction = form.contraction
    if form.lanes == 1:
        return False
    if contraction.epilogue is None:
        return contraction.out.element == form.accumulator
    return is_vectorisable((contraction.epilogue,))


def finished(
    w: PackedWriter,
    sides: tuple[Side, Side],
    further: Sequence[Buffer],
    bases: Bases,
    value: Value,
    places: tuple[Expression, Expression],
    lanes: int,
) -> Value:
    """What is stored for sums: the epilogue of them and of its operands.

    Args:
        w, sides, further, bases: the kernel's parts; sides are the vector side and the scalar side.
        value: the sums of one row, `lanes` of them.
        places: where they are in the block, along the vector side (the first of them) and along the scalar side.
        lanes: of the vector; 1 for a scalar.
    """
    contraction = w.form.contraction
    if contraction.epilogue is None:
        return value
    operands = []
    for number, (buffer, one) in enumerate(zip(further, contraction.epilogue_operands, strict=True)):
        parts = [load(side.further_tables[number], place) for side, place in zip(sides, places, strict=True)]
        at = w.emit.let(add(add(bases.further[number], parts[1]), parts[0]), "where")
        element = one.operand.element
        if lanes == 1:
            operands.append(load_element(buffer, element, at, w.emit))
            continue
        match along_vectors(w.form, number):
            case Along.CONSECUTIVE:
                operands.append(load_parts(buffer, element, at, lanes, w.emit))
            case Along.CONSTANT:
                same = load_element(buffer, element, at, w.emit)
                operands.append(tuple(_everywhere(part, lanes) for part in same))
            case Along.SCATTERED:
                start = w.emit.let(add(bases.further[number], parts[1]), "row")
                table = sides[0].further_tables[number]
                operands.append(_gathered(w, buffer, element, start, table, places[0], lanes))
    (result,) = lower_lambda_vector(contraction.epilogue, (value, *operands), lanes, w.emit)
    return result


def _everywhere(part: Expression, lanes: int) -> Expression:
    return Broadcast(part, VectorType(element_of(part.type), lanes))


def _gathered(
    w: PackedWriter,
    buffer: Buffer,
    element: ScalarType,
    start: Expression,
    table: Buffer,
    first: Expression,
    lanes: int,
) -> Value:
    """The elements that a table of offsets points to, collected in scratch memory."""
    scratch = [w.workspace("gathered", part, lanes) for part in component_types(element)]

    def collect(lane: Expression) -> None:
        at = w.emit.let(add(start, load(table, add(first, lane))), "at")
        for target, part in zip(scratch, load_element(buffer, element, at, w.emit), strict=True):
            w.emit.emit(Store(target, lane, part))

    w.loop("lane", integer(0), integer(lanes), collect)
    return tuple(w.emit.let(load(one, integer(0), lanes), "gathered") for one in scratch)
