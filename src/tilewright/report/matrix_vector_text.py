"""The form of contractions that read one operand once, as data and as text, for explanations."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.contraction.normalise import constant
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.matrix_vector.form import MatrixVectorForm, Way
from tilewright.passes.packed.dots import Dots
from tilewright.report.packed_text import multiply_text
from tilewright.report.text import table


@dataclass(frozen=True)
class MatrixVectorDetails:
    """The form of CPUs that reads one operand in the order in which it lies in memory.

    Attributes:
        matrix: the operand that is read so ("left", "right").
        way: "dots" where sums run along its unit stride, "sums" where rows are added to the output.
        along: the dimension of its unit stride.
        side_by_side: the dimension whose rows are read together, and how many: None if there is none.
        columns: the other operand's rows that are read together, and their dimension; None if it has none of its own.
        lanes: of a vector. vectors: of a row in one step.
        blocks: independent parts of the launch.
        fused_multiply_add: products and sums are one instruction.
        dots: several products of narrow elements and their sum are, or None.
    """

    matrix: str
    way: str
    along: str
    side_by_side: str | None
    rows: int
    lanes: int
    vectors: int
    blocks: int
    fused_multiply_add: bool
    columns: tuple[int, str] | None = None
    dots: Dots | None = None


def matrix_vector_details(form: MatrixVectorForm, launch: Launch) -> MatrixVectorDetails:
    """What is told of such a form."""
    side = None if form.side_by_side is None else form.side_by_side.name
    matrix = "left" if form.matrix_left else "right"
    return MatrixVectorDetails(
        matrix, form.way.value, form.along.name, side, form.rows, form.lanes, form.vectors, launch.blocks,
        form.fused_multiply_add, None if form.columns is None else (form.column_tile, form.columns.name),
        form.dots,
    )  # fmt: skip


def matrix_vector_lines(details: MatrixVectorDetails, machine: Machine) -> list[str]:
    """The lines of an explanation."""
    side = f"{details.rows} rows along {details.side_by_side}" if details.side_by_side else "one row"
    head = f"the {details.matrix} operand is read once, in order"
    if details.columns is not None:
        head = "both operands are read where they lie, in vectors along the sum"
        side = f"each of {side} with each of {details.columns[0]} along {details.columns[1]}"
    results = "partial sums in all lanes of registers, folded at the end of a row"
    if details.way == Way.SUMS.value:
        results = "rows are added to a piece of the output that stays in the caches"
    return [
        f"form       {head}",
        f"vectors    along {details.along}, {details.lanes} lanes, {details.vectors} in a step; {side} at a time",
        f"results    {results}",
        f"blocks     {details.blocks} on {machine.cores} cores",
        f"multiply   {multiply_text(details.dots, details.fused_multiply_add)}",
    ]


def matrix_vector_form_text(form: MatrixVectorForm) -> str:
    """What was decided about a kernel before a line of it is written."""
    rows = [["role", "dimension", "size", "stride in matrix", "stride in vector", "stride in out"]]
    roles = [("vectors", form.along)]
    roles += [("rows", form.side_by_side)] if form.side_by_side is not None else []
    roles += [("columns", form.columns)] if form.columns is not None else []
    roles += [("outer", one) for one in form.outer] + [("sum", one) for one in form.contracted]
    for role, one in roles:
        strides = [str(form.stride(one, side)) for side in ("matrix", "vector", "out")]
        rows.append([role, one.name, str(constant(one.size)), *strides])
    return "\n".join(
        [
            f"matrix ({form.matrix.buffer}): {form.vectors} vectors of {form.lanes} of {form.rows} rows in a step",
            *table(rows, "  "),
            f"results: {form.way.value}, in {form.accumulator}",
        ]
    )
