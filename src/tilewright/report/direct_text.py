"""The direct form of a contraction as data and as text, for explanations."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.contraction.form import Kind
from tilewright.contraction.normalise import constant
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.report.declined import direct_waste
from tilewright.report.text import byte_amount, table


@dataclass(frozen=True)
class DirectDetails:
    """The form of CPUs that reads the operands by their own strides.

    Attributes:
        vector, scalar: the dimensions along which the vectors and the rows of the register tile run.
        lanes: of each vector of the tile. rows: of the tile.
        registers: vector registers that it takes.
        panels: which operands are copied into a panel first ("left", "right").
        panel_bytes: bytes of one panel of the vector and the scalar side; 0 where there is none.
        results: how results are stored: "vectors", "turned" in registers, "collected" in scratch memory and turned, or
            "boxed", assembled to runs of whole lines after that.
        blocks: independent parts of the launch.
        waste: share of the work that is done twice, or on lanes that are masked.
        multiply: what products are followed by.
    """

    vector: str
    scalar: str | None
    lanes: tuple[int, ...]
    rows: int
    registers: int
    panels: tuple[str, ...]
    panel_bytes: tuple[int, int]
    results: str
    blocks: int
    waste: float
    multiply: str


def direct_details(form: DirectForm, launch: Launch) -> DirectDetails:
    """What is told of a direct form."""
    sides = ("left", "right") if form.vector_left else ("right", "left")
    packed = (form.vector_packed, form.scalar_packed)
    elements = (form.vector_operand.element.bytes, form.scalar_operand.element.bytes)
    return DirectDetails(
        form.vector.name,
        None if form.scalar is None else form.scalar.name,
        form.lanes,
        form.rows,
        len(form.lanes) * (form.rows + 1) + 1,
        tuple(side for side, has in zip(sides, packed, strict=True) if has),
        (form.panel_elements[0] * elements[0], form.panel_elements[1] * elements[1]),
        "boxed" if form.boxed else form.results.value,
        launch.blocks,
        direct_waste(form),
        _multiply(form),
    )


def _multiply(form: DirectForm) -> str:
    if not form.contraction.of_kind(Kind.K):
        return "alone: there is no sum"
    return "fused with add" if form.fused_multiply_add else "and combine are separate operations"


def direct_lines(direct: DirectDetails, machine: Machine) -> list[str]:
    """The lines of an explanation."""
    of = f" of {machine.vector_registers}" if machine.vector_registers else ""
    lanes = " + ".join(map(str, direct.lanes))
    panels = "none: all elements are read by the operands' own strides"
    if direct.panels:
        panels = f"a copy of what a tile reads of the {' and the '.join(direct.panels)} operand,"
        panels += f" {byte_amount(max(direct.panel_bytes))}"
    return [
        "form       a register tile fed from the operands' own strides",
        f"sides      vectors along {direct.vector}; broadcasts along {direct.scalar or '(none)'}",
        f"registers  vectors of {lanes} x {direct.rows} rows: {direct.registers}{of} registers,"
        f" {direct.waste:.0%} of the work done twice or masked",
        f"panels     {panels}",
        f"results    {_RESULTS[direct.results]}",
        f"blocks     {direct.blocks} on {machine.cores} cores",
        f"multiply   {direct.multiply}",
    ]


_RESULTS = {
    Results.VECTORS.value: "stored as vectors, in place",
    Results.TURNED.value: "turned in registers: the output's unit stride is that of the broadcasts",
    Results.COLLECTED.value: "collected in scratch memory and turned: another dimension has the output's unit stride",
    "boxed": "collected and turned, then assembled to long runs of the output, which go past the caches",
}


def direct_form_text(form: DirectForm) -> str:
    """What was decided about a direct kernel before a line of it is written."""
    vector, scalar = form.vector_operand.buffer, form.scalar_operand.buffer
    lanes = " + ".join(map(str, form.lanes))
    sources = ["from a panel" if packed else "read in place" for packed in (form.vector_packed, form.scalar_packed)]
    total = form.contracted_total
    rows = [["role", "dimension", "size", "stride of vectors", "stride of scalars", "stride in out"]]
    roles = [("vectors", form.vector)]
    others = (("rows", form.scalar), ("collected", form.collected), ("joined", form.joined))
    roles += [(role, one) for role, one in others if one is not None]
    roles += [("outer", one) for one in form.outer] + [("sum", one) for one in form.contracted]
    for role, one in roles:
        strides = [str(form.stride(one, side)) for side in ("vector", "scalar", "out")]
        rows.append([role, one.name, str(constant(one.size)), *strides])
    return "\n".join(
        [
            f"vector side ({vector}): tiles of {lanes}, {sources[0]}",
            f"scalar side ({scalar}): tiles of {form.rows}, {sources[1]}",
            *table(rows, "  "),
            f"results: {form.results.value}; the whole sum of {total} in registers, in {form.accumulator}",
        ]
    )
