"""Outer products and other sums of hardly any terms, fed directly: there is more to write than to compute.

Register tiles of many rows write many rows of the output in turns; a row of the output after the other, from one end to
the other, is written twice as fast where the output stays in the caches (measured on a Zen 4: 400 x 500 doubles in 24
microseconds instead of 42). Past the caches tiles are as good, since whole lines are written either way; only rows
that begin anywhere in a line are written one by one, for the vectors of a tile begin with a line in one row only.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.passes.direct.cost import array_bytes, is_past_caches
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.items.scalar_values import component_types

MOST_TERMS = 2
MOST_TERMS_PAST = 4  # of results that are written past the caches
VECTORS = 4  # of a row in one tile
LONG_ROW = 16  # tiles of a row that is written past the caches: its ends are not


def is_short_sum(form: DirectForm) -> bool:
    """Whether sums are so short that writing takes the time, of operands that are read where they lie."""
    plain = form.results is Results.VECTORS and form.columns is None and not form.elementwise
    packed = form.vector_packed or form.scalar_packed
    most = MOST_TERMS_PAST if form.nontemporal else MOST_TERMS
    return form.contracted_total <= most and form.scalar is not None and plain and not packed


def written_in_order(form: DirectForm, machine: Machine) -> DirectForm:
    """The form with a tile of few rows, so that the output is written in order; other forms as they are."""
    lanes = machine.lanes(component_types(form.accumulator)[0].bytes)
    if not is_short_sum(form) or form.nontemporal:
        return form
    past = is_past_caches(array_bytes(form, "out"), machine) and form.vector_size >= LONG_ROW * VECTORS * lanes
    rows = 1 if past else form.contracted_total
    if form.vector_size < VECTORS * lanes or form.scalar_size < rows:
        return form
    few = replace(form, lanes=(lanes,) * VECTORS, rows=rows, scalar_outer=True, nontemporal=past)
    few = replace(few, prefetched=False, rows_prefetched=False, vector_chunk=few.vector_tiles)
    few = replace(few, out_prefetched=few.out_prefetched and not past)
    if form.serial:
        return replace(few, scalar_chunk=few.scalar_tiles)
    wanted = -(-4 * machine.cores // math.prod(constant(one.size) for one in form.outer))
    parts = 1 if machine.cores == 1 else wanted
    return replace(few, scalar_chunk=-(-few.scalar_tiles // parts))
