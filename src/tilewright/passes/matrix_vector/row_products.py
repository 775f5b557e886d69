"""Products of all rows of one operand with all rows of the other, where the sum runs along the rows of both: the form
of few results with long sums, `ik,jk->ij`.

Panels would turn either operand, which takes longer than the multiply-adds if few results use each element. So vectors
are read along the sum where they lie, each for all rows of the other operand in a register tile; only at its end the
lanes of each sum are folded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine, power_of_two_at_least
from tilewright.passes.direct.traffic import read_once
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.matrix_vector.form import SERIAL_BYTES, MatrixVectorForm, Way, dots_along, refusal
from tilewright.passes.packed.blocks import level_of
from tilewright.passes.packed.form import is_multiply_add

MOST_ROWS, MOST_COLUMNS = 8, 8  # of a register tile
LEAST_STEPS = 6  # vectors of a sum: folding the lanes of shorter ones takes longer than all else
LOADED = 2.0  # cycles of a vector that is read in place: it seldom begins with a line
FOLDED = 4.5  # cycles to fold two vectors into one
TILE_CYCLES = 40.0
MASKED_STEP = 2.0  # times as long as another: the end of rows that are no whole vectors
BLOCK_CYCLES = 150.0


@dataclass(frozen=True)
class RowProducts:
    """The form, and what it costs in the cycles of the direct form's model."""

    form: MatrixVectorForm
    cycles: float


def choose_row_products(contraction: Contraction, machine: Machine) -> RowProducts | str:
    """The cheapest such form of a normalised contraction with known sizes, or why it has none."""
    refused = refusal(contraction, machine)
    if refused:
        return refused
    along = [one for one in contraction.of_kind(Kind.K)
             if constant(one.stride_left) == constant(one.stride_right) == 1]  # fmt: skip
    rows, columns = contraction.of_kind(Kind.M), contraction.of_kind(Kind.N)
    lanes = machine.lanes(component_types(contraction.accumulator)[0].bytes)
    if not (along and rows and columns):
        return "the sum does not run along the rows of both operands"
    terms = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K))
    if terms < LEAST_STEPS * lanes or constant(along[0].size) < lanes:
        return "the sum is too short for vectors along it"
    best: RowProducts | None = None
    for form in _forms(contraction, along[0], machine):
        cycles = _cycles(form, machine)
        if best is None or cycles < best.cycles:
            best = RowProducts(form, cycles)
    if best is None:
        return f"{machine.name} has too few registers"
    return RowProducts(_shared_out(best.form, best.cycles, machine), best.cycles)


def _forms(contraction: Contraction, along: Dimension, machine: Machine) -> Iterator[MatrixVectorForm]:
    """The longest dimension of either operand, and every register tile; a row's results are stored together where they
    are neighbours.
    """
    parts = len(component_types(contraction.accumulator))
    lanes = machine.lanes(component_types(contraction.accumulator)[0].bytes)
    registers = (machine.vector_registers or 16) // parts
    longest = {kind: max(contraction.of_kind(kind), key=lambda one: constant(one.size)) for kind in (Kind.M, Kind.N)}
    left = constant(longest[Kind.M].stride_out) == 1
    side, columns = longest[Kind.M if left else Kind.N], longest[Kind.N if left else Kind.M]
    used = {one.name for one in (along, side, columns)}
    others = [one for one in contraction.dimensions if one.name not in used]
    plain = MatrixVectorForm(
        contraction, left, Way.DOTS, along, side,
        contracted=tuple(one for one in others if one.kind is Kind.K),
        outer=tuple(one for one in others if one.kind is not Kind.K),
        lanes=lanes, vectors=1, rows=1, reads_vector=True,
        fused_multiply_add=is_multiply_add(contraction), columns=columns,
    )  # fmt: skip
    plain = replace(plain, dots=dots_along(plain, machine))
    for rows in range(1, min(MOST_ROWS, lanes, plain.row_count) + 1):
        most = min(MOST_COLUMNS, (registers - 1) // (rows + 1), plain.column_count)
        for column_tile in range(1, most + 1):
            free = max(1, min(plain.along_size // plain.step // 2, int(2 * machine.pace.chain) // (rows * column_tile)))
            vectors = max(count for count in (1, 2, 4) if count <= free)
            yield replace(plain, rows=rows, column_tile=column_tile, vectors=vectors)


def _cycles(form: MatrixVectorForm, machine: Machine) -> float:
    """Of one core, in terms of the direct form's (direct/cost.py)."""
    parts = len(component_types(form.accumulator))
    each = (1 if form.fused_multiply_add or form.dots else 2) * parts**2
    tile = form.rows * form.column_tile
    step = machine.pace.in_place * max(
        each * tile,
        LOADED * machine.pace.vector_load * parts * (form.rows + form.column_tile),
        machine.pace.chain / form.vectors,
    )
    whole, rest = divmod(form.along_size, form.step)
    runs = math.prod(constant(one.size) for one in form.contracted)
    steps = runs * (whole + (MASKED_STEP if rest else 0.0))
    rows = power_of_two_at_least(form.rows)
    folds = rows - 1 + math.log2(form.lanes / rows)
    stored = 1.0 if form.side_by_side is not None and form.stride(form.side_by_side, "out") == 1 else form.rows
    finish = form.column_tile * (FOLDED * parts * folds + stored * parts) + TILE_CYCLES
    row_tiles, column_tiles = -(-form.row_count // form.rows), -(-form.column_count // form.column_tile)
    outer = math.prod(constant(one.size) for one in form.outer)
    finish, start = machine.pace.other * finish, machine.pace.other * BLOCK_CYCLES
    compute = outer * (row_tiles * column_tiles * (steps * step + runs * machine.pace.run + finish) + start)
    sizes = _bytes(form, "matrix"), _bytes(form, "vector")
    out = math.prod(constant(one.size) for one in form.contraction.dimensions if one.kind is not Kind.K)
    run = form.along_size * form.matrix.element.bytes
    memory = read_once(sizes, (max(run, machine.l1_bytes),) * 2, out * form.matrix.element.bytes, machine)
    # All columns pass once more for each tile of rows, and this tile once more for each tile of columns.
    element = form.vector.element.bytes
    columns, tile_of_rows = (count * form.along_size * element for count in (form.column_count, form.rows))
    again = (row_tiles - 1) * columns / machine.pace.bytes_again_from(level_of(columns + 2 * tile_of_rows, machine))
    level = level_of(tile_of_rows, machine)
    again += row_tiles * (column_tiles - 1) * tile_of_rows / machine.pace.bytes_again_from(level)
    again *= outer * runs
    # More rows than prefetchers follow.
    return max(compute, memory) + 0.2 * min(compute, memory) + 0.5 * again * machine.pace.waiting


def _bytes(form: MatrixVectorForm, side: str) -> int:
    extents = [constant(one.size) for one in form.contraction.dimensions if form.stride(one, side)]
    return math.prod(extents) * form.matrix.element.bytes


def _shared_out(form: MatrixVectorForm, cycles: float, machine: Machine) -> MatrixVectorForm:
    """How many tiles of rows one block takes: few blocks at other points of the output are cut into more."""
    serial = cycles < SERIAL_BYTES / 4
    outer = math.prod(constant(one.size) for one in form.outer)
    wanted = 1 if serial or machine.cores == 1 else -(-4 * machine.cores // outer)
    return replace(form, chunk=max(1, -(-form.pieces // wanted)), serial=serial)
