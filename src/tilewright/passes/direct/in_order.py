"""Outer products, fed directly: there is nothing but the output to be written, so it is written in its own order.

Tiles are whole rows of the output where these are short, and pieces of one row after the other where they are long: two
rows at once are half as fast where they have their lines in the same sets (1024 x 1024 and 2048 x 2048, from memory and
within the third cache of a Zen 4), and no faster elsewhere.
Past the caches only whole lines are written, so that rows which begin anywhere in a line must be long.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.passes.direct.choice import place, refusal, shared_out
from tilewright.passes.direct.cost import direct_cost
from tilewright.passes.direct.form import LINE, DirectForm, Results
from tilewright.passes.direct.past_caches import array_bytes, rows_align
from tilewright.passes.direct.register_tiles import exact_vectors, panels_fit
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.packed.blocks import is_past_caches

TILE = 8
"""Vectors of a tile, at the most."""
LEAST_TILE = 4
"""Vectors of the tiles of long rows, at the least."""
LONG_ROW = 64  # lines of a row that is written past the caches although it begins within a line


def form_in_order(contraction: Contraction, machine: Machine) -> DirectForm | str:
    """The direct form of a normalised contraction without a sum, with known sizes, or why there is none."""
    refused = refusal(contraction, machine)
    if refused:
        return refused
    units = [one for one in contraction.dimensions if constant(one.stride_out) == 1]
    if len(units) != 1:
        return "the output has no dimension of unit stride"
    (unit,) = units
    rows = sorted(
        (one for one in contraction.dimensions if one.kind not in (Kind.C, Kind.K, unit.kind)),
        key=lambda one: abs(constant(one.stride_out)),
    )
    row = rows[0] if rows else None
    left = unit.kind is Kind.M or (unit.kind is Kind.C and row is not None and row.kind is Kind.N)
    strides = constant(unit.stride_left), constant(unit.stride_right)
    if unit.kind is Kind.C and strides != (1, 1):
        return f"dimension {unit.name}, which all arrays have, is not consecutive in each of them"
    packed = strides[0 if left else 1] != 1
    form = replace(place(contraction, left, unit, row, None, Results.VECTORS), vector_packed=packed, scalar_outer=True)
    form = with_row_tile(form, machine)
    if not panels_fit(form):
        return f"the panels that the stride of {unit.name} needs are too large"
    return shared_out(form, direct_cost(form, machine), machine)


def with_row_tile(form: DirectForm, machine: Machine) -> DirectForm:
    """The form with tiles that write the output in its order, and whether it writes past the caches."""
    length = form.vector_size
    widest = machine.lanes(component_types(form.accumulator)[0].bytes)
    vectors = -(-length // widest)
    if vectors <= TILE:
        lanes = exact_vectors(length, widest)
    else:
        lanes = (widest,) * min(range(LEAST_TILE, TILE + 1), key=lambda count: (-(-vectors // count) * count, count))
    nbytes = form.contraction.out.element.bytes
    is_long = vectors > TILE and length * nbytes >= LONG_ROW * LINE
    anywhere = is_long and not form.vector_packed  # panels are the same for all rows
    past = (anywhere or rows_align(form)) and is_past_caches(array_bytes(form, "out"), machine)
    rows = 1 if past or vectors > TILE else max(1, min(form.scalar_size, TILE // vectors))
    return replace(form, lanes=lanes, rows=rows, nontemporal=past, peeled=is_long)
