"""Direct or packed: which form of a contraction a CPU gets, by what either costs in the model, and the reason."""

from __future__ import annotations

import dataclasses
import math

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine
from tilewright.passes.direct.choice import choose_direct_form
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.in_order import form_in_order
from tilewright.passes.direct.short_sums import (
    is_short_sum,
    short_sum_past_caches,
    with_results_asked,
    written_in_order,
)
from tilewright.passes.direct.traffic import read_once, written_once
from tilewright.passes.items.scalar_values import LoweringError, component_types
from tilewright.passes.matrix_vector.form import MatrixVectorForm, Way, choose_matrix_vector_form
from tilewright.passes.matrix_vector.row_products import choose_row_products
from tilewright.passes.packed.blocks import consecutive
from tilewright.passes.packed.choice import make_packed_form
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.runs import WHOLE, runs_of
from tilewright.passes.packed.scalar_panels import READ_BYTES
from tilewright.passes.packed.tiles import time_in_tiles

REGISTER_ROW = 4  # vectors
SHORT_FUNCTION = 8  # statements of an outer product's, which is written out for each vector of a tile
PACKED_START = 4000.0  # cycles for the tables of a block
PACKED_POINT = 2000.0  # and for each point of the dimensions that all arrays have, whose blocks share the tables
PACKED_ELEMENT = 0.5  # cycles to move four bytes into a panel
BOXED_TILE = 50.0  # cycles of a register tile whose results are assembled in the first cache
PACKED_TURN = 0.5  # more, where the sum runs along the operand's unit stride and squares are transposed
PACKED_STEP = 1.05  # of the multiply-adds, for the loops around them
LEAST_HIDDEN = 128  # steps of a sum that hides packing: of 40 and 108 steps the direct form is faster on a Zen 5
WRITTEN_ELEMENT = 1.8  # to write a result by itself, out of scratch memory


@dataclass(frozen=True)
class FormChoice:
    """The form that a CPU gets, and why."""

    form: DirectForm | PackedForm | MatrixVectorForm
    reason: str


def choose_form(contraction: Contraction, machine: Machine) -> FormChoice:
    """The form of a normalised contraction with known sizes. Costs are those of one core, so that which form it is, and
    with it every bit of the result, does not depend on the number of threads.

    Raises:
        LoweringError: if it has no sum, and no direct form either.
    """
    found = _fastest(contraction, machine)
    if isinstance(found.form, DirectForm):
        return dataclasses.replace(found, form=with_results_asked(found.form, machine))
    return found


def _fastest(contraction: Contraction, machine: Machine) -> FormChoice:
    """The form that the model says is the fastest; see `choose_form`."""
    if not contraction.of_kind(Kind.K):
        return _without_sum(contraction, machine)
    ordered = short_sum_past_caches(contraction, machine)
    if ordered is not None:
        return FormChoice(ordered, "fed directly: there is more to write than to compute, in the output's order")
    streamed = choose_matrix_vector_form(contraction, machine)
    if not isinstance(streamed, str) and not fits_registers(streamed):
        return FormChoice(
            streamed, f"operand {streamed.matrix.buffer} is read once, in order: no element is used twice"
        )
    packed = make_packed_form(contraction, machine)
    direct = choose_direct_form(contraction, machine)
    other = packed_cycles(make_packed_form(contraction, dataclasses.replace(machine, cores=1)), machine)
    products = choose_row_products(contraction, machine)
    least = other if isinstance(direct, str) else min(direct[1].cycles, other)
    if not isinstance(products, str) and products.cycles < least:
        kilocycles = f"{products.cycles / 1000:.3g} thousand cycles, {least / 1000:.3g} in another form"
        return FormChoice(products.form, f"vectors run along the sum in both operands: the model says {kilocycles}")
    if isinstance(direct, str):
        return FormChoice(packed, f"not fed directly: {direct}")
    form, cost = direct
    kilocycles = f"{cost.cycles / 1000:.3g} thousand cycles fed directly, {other / 1000:.3g} from packed panels"
    if is_short_sum(form, machine):
        return FormChoice(written_in_order(form, machine), "fed directly: there is more to write than to compute")
    if cost.cycles <= other:
        return FormChoice(form, f"fed directly: the model says {kilocycles}")
    return FormChoice(packed, f"not fed directly: the model says {kilocycles}")


def _without_sum(contraction: Contraction, machine: Machine) -> FormChoice:
    """The form of an outer product, of which panels would hold single elements."""
    if len(contraction.map.body.statements) > SHORT_FUNCTION:
        raise LoweringError("there is more to compute than to write of an outer product with such a function")
    form = form_in_order(contraction, machine)
    if isinstance(form, str):
        raise LoweringError(f"an outer product that is not fed directly: {form}")
    return FormChoice(form, "fed directly: there is no sum, and the output is written in its order")


def fits_registers(form: MatrixVectorForm) -> bool:
    """Whether a row of the output stays in a few registers over the whole sum, so that the direct form is faster."""
    return form.way is Way.SUMS and form.along_size <= REGISTER_ROW * form.lanes


def packed_cycles(form: PackedForm, machine: Machine) -> float:
    """What the packed form costs on one core, in the cycles of `direct_cost`: packing reads the arrays before the
    multiply-adds begin, which so hide nothing of its waiting; they hide that for the output.
    """
    contraction = form.contraction
    batch = math.prod(constant(one.size) for one in contraction.of_kind(Kind.C))
    vector, scalar = form.total(form.vector_dimensions), form.total(form.scalar_dimensions)
    steps = -(-form.contracted_total // form.together)
    parts = component_types(form.accumulator)
    each = PACKED_STEP * (1 if form.fused_multiply_add or form.dots else 2) * len(parts) ** 2
    pieces_of_sum = -(-form.contracted_total // form.depth)
    pace = machine.pace

    def tile(vectors: int) -> float:
        if form.in_tiles:
            return PACKED_STEP * time_in_tiles((vectors, form.rows), steps, pieces_of_sum, pace)
        loads = vectors * pace.vector_load + form.rows * pace.element_load
        step = max(each * vectors * form.rows, pace.chain, loads)
        to_memory = pace.packed_tile if form.nontemporal else pace.cached_tile
        begin = to_memory if form.boxes is None else BOXED_TILE
        return step * steps + pace.other * (pace.stored(form.vectors * form.rows, steps) + begin) * pieces_of_sum

    of_row = (form.vector_tiles - 1) * tile(form.vectors) + tile(form.tail)
    compute = batch * form.scalar_tiles * of_row
    compute += pace.other * WRITTEN_ELEMENT * batch * vector * scalar * pieces_of_sum * _share_by_elements(form)
    width = len(parts) * parts[0].bytes / 4
    # The scalar side stays packed while all vector blocks pass; these are packed again for each scalar block.
    passes = -(-scalar // form.scalar_block)
    of_vector = PACKED_ELEMENT + (PACKED_TURN if form.vectors_turned else 0.0)
    hidden = pace.hidden if form.contracted_total >= LEAST_HIDDEN else 0.0
    if _is_on_the_way(form):
        of_vector *= 1 - hidden
    of_scalar = 0.0 if form.scalar_in_place or form.tiles_in_place else PACKED_ELEMENT
    # Panels hold whole vectors, whose last lanes may be padding.
    vectors = of_vector * passes * -(-vector // form.lanes) * form.lanes
    # Turned they are squares, of which a short sum fills a part.
    elements = (-(-steps // form.lanes) * form.lanes if form.vectors_turned else steps) * vectors
    elements += steps * of_scalar * scalar
    packing = pace.packing * (PACKED_START + batch * (PACKED_POINT + width * elements))
    pieces = (_piece(form, True), _piece(form, False))
    operands = (form.vector_operand, form.scalar_operand)
    sides = tuple(_bytes(contraction, operand is contraction.left, operand.element.bytes) for operand in operands)
    out = batch * vector * scalar * contraction.out.element.bytes
    asked = (form.asks_vectors, form.asks_scalars) if hidden else (False, False)
    reading = read_once((sides[0], sides[1]), pieces, out, machine, asked)
    return packing + reading + max(compute, written_once(out, sum(sides), not form.through_caches, machine))


def _is_on_the_way(form: PackedForm) -> bool:
    """Whether register tiles pack the vector side beside the arithmetic, and ask for its next block meanwhile."""
    whole = form.lanes > 1 and runs_of(form, True).source == {WHOLE}
    return whole and form.brings_vectors and form.boxes is None and form.dots is None and form.fused_multiply_add


def _share_by_elements(form: PackedForm) -> float:
    """The share of results that are written one by one: those of vectors that reach beyond a run of the output, where
    runs are no whole vectors, nor whole quarters of wide ones (see packed/store.py).
    """
    if form.lanes == 1 or form.boxes is not None or form.written_by_blocks or form.levels:
        return 0.0
    run = consecutive([(one.stride_out, one.size) for one in form.vector_dimensions])
    return min(1.0, form.lanes / run) if run % form.least_part else 0.0


def _piece(form: PackedForm, vector: bool) -> int:
    """Bytes of an operand that packing reads together: of a panel and the sum's piece (see packed/panels.py)."""
    dimensions, width = (form.vector_dimensions, form.vector_tile) if vector else (form.scalar_dimensions, form.rows)
    if vector and form.asks_vectors and form.asked_rows > 1:
        width = form.vector_block  # of which rows are asked for from one end to the other
    operand = form.vector_operand if vector else form.scalar_operand
    is_left = form.vector_left == vector
    along = [(constant(one.stride(is_left)), constant(one.size))
             for one in form.contraction.of_kind(Kind.K)]  # fmt: skip
    extents = [(stride, min(size, form.depth)) for stride, size in along]
    for one in reversed(dimensions):  # innermost first
        extents.append((one.stride, min(one.size, width)))
        width = max(1, width // one.size)
    # Shorter ones are parts of lines that the neighbouring panels find in the caches.
    return max(consecutive(extents) * operand.element.bytes, READ_BYTES)


def _bytes(contraction: Contraction, left: bool, width: int) -> int:
    strides = ((constant(one.stride(left)), one) for one in contraction.dimensions)
    return width * math.prod(constant(one.size) for stride, one in strides if stride)
