"""Outer products and other sums of hardly any terms, fed directly: there is more to write than to compute.

Register tiles of many rows write many rows of the output in turns; a row of the output after the other, from one end to
the other, is written twice as fast where the output stays in the caches (measured on a Zen 4: 400 x 500 doubles in 24
microseconds instead of 42). So are larger ones, if all that a row reads stays near: lines that two rows share are
written in two parts, by tiles of several rows long after one another (10 million f32 at 16 bytes of a line, 256 in a
row, sums of 4 terms: 4.6 GB/s in tiles of 4 rows, 24 row by row).
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.passes.direct.cost import array_bytes, is_past_caches
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.direct.in_order import with_row_tile
from tilewright.passes.items.scalar_values import component_types

MOST_TERMS = 2
MOST_TERMS_PAST = 4  # of results that no cache holds
VECTORS = 4  # of a row in one tile


def is_short_sum(form: DirectForm, machine: Machine) -> bool:
    """Whether sums are so short that writing takes the time, of operands that are read where they lie."""
    plain = form.results is Results.VECTORS and form.columns is None and not form.elementwise
    packed = form.vector_packed or form.scalar_packed
    if form.scalar is None or not plain or packed:
        return False
    if not is_past_caches(array_bytes(form, "out"), machine):
        return form.contracted_total <= MOST_TERMS
    is_near = array_bytes(form, "vector") <= machine.l2_bytes // 2
    return form.contracted_total <= MOST_TERMS_PAST and (form.nontemporal or is_near)


def written_in_order(form: DirectForm, machine: Machine) -> DirectForm:
    """The form with a tile of few rows, so that the output is written in order; other forms as they are."""
    lanes = machine.lanes(component_types(form.accumulator)[0].bytes)
    if not is_short_sum(form, machine):
        return form
    if is_past_caches(array_bytes(form, "out"), machine):
        # Tiles of several rows read less, and are as good where lines that rows share hardly count.
        reads = form.nontemporal and form.contracted_total > MOST_TERMS
        if array_bytes(form, "vector") > (machine.l1_bytes if reads else machine.l2_bytes // 2):
            return form
        few = replace(with_row_tile(form, machine), rows=1, scalar_outer=True)
    elif form.vector_size < VECTORS * lanes or form.scalar_size < form.contracted_total:
        return form
    else:
        few = replace(form, lanes=(lanes,) * VECTORS, rows=form.contracted_total, scalar_outer=True)
    few = replace(
        few, prefetched=False, rows_prefetched=False, out_prefetched=few.out_prefetched and not few.nontemporal
    )
    few = replace(few, vector_chunk=few.vector_tiles)
    if form.serial:
        return replace(few, scalar_chunk=few.scalar_tiles)
    wanted = -(-4 * machine.cores // math.prod(constant(one.size) for one in form.outer))
    parts = 1 if machine.cores == 1 else wanted
    return replace(few, scalar_chunk=-(-few.scalar_tiles // parts))
