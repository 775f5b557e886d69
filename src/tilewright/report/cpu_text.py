"""The forms of contractions on a CPU as lines of an explanation."""

from __future__ import annotations

from tilewright.contraction.form import Kind
from tilewright.kernel.tiles import COUNT, LANES, ROWS
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.lane_products.form import LaneProduct
from tilewright.passes.lane_products.records import RecordProduct
from tilewright.passes.matrix_vector.form import MatrixVectorForm, Way
from tilewright.passes.packed.dots import Dots
from tilewright.passes.packed.form import PackedForm
from tilewright.report.declined import direct_waste, padding_waste
from tilewright.report.text import byte_amount


def direct_registers(form: DirectForm) -> int:
    """How many vector registers the tile of a direct form takes.

    Sums, and beside them all vectors of a step and an element of a row, or the other way round.
    """
    beside = form.rows if form.rows_first else len(form.lanes) * form.parts
    return form.sums + beside + 1


def direct_lines(form: DirectForm, blocks: int, machine: Machine) -> list[str]:
    """The lines of an explanation of a direct form, whose launch has so many independent parts."""
    of = f" of {machine.vector_registers}" if machine.vector_registers else ""
    sides = ("left", "right") if form.vector_left else ("right", "left")
    packed = (form.vector_packed, form.scalar_packed)
    elements = (form.vector_operand.element.bytes, form.scalar_operand.element.bytes)
    panels = "none: all elements are read by the operands' own strides"
    if any(packed):
        operands = " and the ".join(side for side, has in zip(sides, packed, strict=True) if has)
        largest = max(count * nbytes for count, nbytes in zip(form.panel_elements, elements, strict=True))
        panels = f"a copy of what a tile reads of the {operands} operand, {byte_amount(largest)}"
    scalar = "(none)" if form.scalar is None else form.scalar.name
    has_sum = bool(form.contraction.of_kind(Kind.K))
    multiply = _multiply(None, form.fused_multiply_add) if has_sum else "alone: there is no sum"
    parts = ", with the parts of complex numbers in turns" if form.numbers is not None else ""
    pieces = f"pieces     of {form.piece} steps of the sum, between which sums wait in scratch memory"
    return [
        f"form       a register tile fed from the operands' own strides{parts}",
        f"sides      vectors along {form.vector.name}; broadcasts along {scalar}",
        f"registers  vectors of {' + '.join(map(str, form.lanes))} x {form.rows} rows: {direct_registers(form)}{of}"
        f" registers, {direct_waste(form):.0%} of the work done twice or masked",
        f"panels     {panels}",
        *([pieces] if form.piece else []),
        f"results    {_RESULTS['boxed' if form.boxed else form.results.value]}",
        f"blocks     {blocks} on {machine.cores} cores",
        f"multiply   {multiply}",
    ]


_RESULTS = {
    Results.VECTORS.value: "stored as vectors, in place",
    Results.TURNED.value: "turned in registers: the output's unit stride is that of the broadcasts",
    Results.COLLECTED.value: "collected in scratch memory and turned: another dimension has the output's unit stride",
    "boxed": "collected and turned, then assembled to long runs of the output, which go past the caches",
}


def packed_registers(form: PackedForm) -> int:
    """How many vector registers the tile of a packed form takes."""
    return (2 if form.accumulator.is_complex else 1) * (form.vectors * form.rows + form.vectors + 1)


def _register_tile(form: PackedForm, machine: Machine) -> str:
    """What a register tile is, and how many registers it takes."""
    if form.in_tiles:
        rows = form.rows // ROWS
        held = form.vectors * rows + form.vectors + rows
        return f"{rows} x {form.vectors} tiles of {ROWS} x {LANES} sums: {held} of {COUNT} tiles"
    of = f" of {machine.vector_registers}" if machine.vector_registers else ""
    return f"{form.vectors} vectors of {form.lanes} x {form.rows} rows: {packed_registers(form)}{of} registers"


def packed_results(form: PackedForm) -> str:
    """How results are stored: a block at a time along the output's unit stride ("buffered"), or how else."""
    if form.boxes is not None:
        return f"past the cache, in boxes of {form.boxes.vector} x {form.boxes.scalar}"
    return "buffered" if form.buffered else "past the cache" if form.nontemporal else "in place"


def packed_lines(form: PackedForm, blocks: int, machine: Machine) -> list[str]:
    """The lines of an explanation of a packed form, whose launch has so many independent parts."""
    vector, scalar = (
        " ".join(one.dimension.name for one in side) or "(none)"
        for side in (form.vector_dimensions, form.scalar_dimensions)
    )
    vector_bytes, scalar_bytes = (
        byte_amount(block * form.pitch * form.accumulator.bytes) for block in (form.vector_block, form.scalar_block)
    )
    return [
        "form       packed panels and a register tile",
        f"sides      vectors along {vector}; broadcasts along {scalar}",
        f"registers  {_register_tile(form, machine)}, {padding_waste(form):.0%} of the work on padding",
        f"packing    pieces of {form.piece} of the sum; panels of {vector_bytes} (vectors) and {scalar_bytes}"
        f" (broadcasts{', read where they lie if they begin with cache lines' if form.tiles_in_place else ''})",
        f"loops      panels of the {'broadcasts' if form.scalar_inner else 'vectors'} innermost; results stored"
        f" {packed_results(form)}",
        f"blocks     {blocks} on {machine.cores} cores",
        f"multiply   {_multiply(form.dots, form.fused_multiply_add)}",
    ]


def matrix_vector_lines(form: MatrixVectorForm, blocks: int, machine: Machine) -> list[str]:
    """The lines of an explanation of such a form, whose launch has so many independent parts."""
    side = "one row" if form.side_by_side is None else f"{form.rows} rows along {form.side_by_side.name}"
    head = f"the {'left' if form.matrix_left else 'right'} operand is read once, in order"
    if form.columns is not None:
        head = "both operands are read where they lie, in vectors along the sum"
        side = f"each of {side} with each of {form.column_tile} along {form.columns.name}"
    results = "partial sums in all lanes of registers, folded at the end of a row"
    if form.way is Way.SUMS:
        results = "rows are added to a piece of the output that stays in the caches"
    return [
        f"form       {head}",
        f"vectors    along {form.along.name}, {form.lanes} lanes, {form.vectors} in a step; {side} at a time",
        f"results    {results}",
        f"blocks     {blocks} on {machine.cores} cores",
        f"multiply   {_multiply(form.dots, form.fused_multiply_add)}",
    ]


def lane_lines(form: LaneProduct, blocks: int) -> list[str]:
    """The lines of an explanation of a product in lanes, whose launch has so many independent parts."""
    read, written = form.held
    large, other = ("left", "right") if form.left else ("right", "left")
    picked = "1 vector" if form.picks == 1 else f"{form.picks} vectors"
    return [
        f"form       a product in lanes: vectors of {read} real numbers of the {large} operand, from each of",
        f"           which {picked} of {written} for the output are picked, and multiplied by coefficients",
        f"panels     coefficients, of the {other} operand, {byte_amount(form.coefficients * form.element.bytes)}",
        f"registers  {form.tile[0]} x {form.tile[1]} vectors of the output are summed together",
        f"blocks     {blocks}",
    ]


def record_lines(form: RecordProduct) -> list[str]:
    """The lines of a product of records in an explanation."""
    names = [
        f"{name} ({one.numbers} numbers each)"
        for name, one in zip(("left", "right", "out"), form.arrays, strict=True)
        if one.lies_apart
    ]
    return [
        f"form       records: {form.lanes} of {form.count} at a time, in the lanes of vectors",
        f"           taken apart or put together in registers: {', '.join(names)}; {form.shuffles:.3g} shuffles each",
    ]


def _multiply(dots: Dots | None, fused: bool) -> str:
    """How products are summed."""
    if dots is not None:
        first, second = dots.elements
        if dots.in_tiles:
            steps = LANES * dots.together
            return f"{steps} products of {first} and {second} to each of {ROWS} x {LANES} sums by one instruction"
        return f"{dots.together} products of {first} and {second} are added by one instruction"
    return "fused with add" if fused else "and combine are separate operations"
