"""Outer products and other sums of hardly any terms, fed directly: there is more to write than to compute.

Register tiles of many rows write many rows of the output in turns; a row of the output after the other, from one end to
the other, is written twice as fast where the output stays in the caches (measured on a Zen 4: 400 x 500 doubles in 24
microseconds instead of 42). So are larger ones, if all that a row reads stays near: lines that two rows share are
written in two parts, by tiles of several rows long after one another (10 million f32 at 16 bytes of a line, 256 in a
row, sums of 4 terms: 4.6 GB/s in tiles of 4 rows, 24 row by row).

Past the caches sums of up to four terms go down strips of the output, whose part of the operand stays in the first
cache: read from the second one row after row it takes as long as writing (4000 x 4000 and 3001 x 5003 on a Zen 5,
GB/s written: of 4 terms in f32 35 and 36 in strips, 26 and 27 in rows; of 2 terms in f64 37, 31 in rows and 23 from
packed panels).

Sums of up to a dozen terms, too, take less in tiles of six rows than from packed panels where the second cache does not
hold the output (on a Zen 5 1000 x 1000 f32 with 4 terms 54 and 93 microseconds, with 12 terms 121 and 141).
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm, Results, results_are_one_run
from tilewright.passes.direct.in_order import form_in_order, with_row_tile
from tilewright.passes.direct.past_caches import array_bytes
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.packed.blocks import is_past_caches, level_of

MOST_TERMS = 2
MOST_TERMS_FAR = 12  # of results that the second cache does not hold, written by several vectors and rows
MOST_TERMS_PAST = 4  # of those that no cache holds
MOST_ROWS = 6
VECTORS = 4  # of a row in one tile
ALIASED = 2048  # bytes at whose multiples rows have their lines in one or two sets of the first cache


def short_sum_past_caches(contraction: Contraction, machine: Machine) -> DirectForm | None:
    """The form of a sum of few terms whose results go past the caches, whole lines of one row after another."""
    terms = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K))
    if terms > MOST_TERMS_PAST:
        return None
    form = form_in_order(contraction, machine)
    if isinstance(form, str) or not is_past_caches(array_bytes(form, "out"), machine):
        return None
    if terms == 1:
        return form
    if form.vector_packed or not form.nontemporal or array_bytes(form, "vector") > machine.l2_bytes:
        return None
    tile = terms * form.width * form.vector_operand.element.bytes
    strips = -(-form.vector_tiles // max(1, machine.l1_bytes // 2 // tile))
    return replace(form, vector_chunk=min(form.vector_chunk, -(-form.vector_tiles // strips)))


def is_short_sum(form: DirectForm, machine: Machine) -> bool:
    """Whether sums are so short that writing takes the time, of operands that are read where they lie."""
    if not _reads_in_place(form):
        return False
    if not is_past_caches(array_bytes(form, "out"), machine):
        return form.contracted_total <= MOST_TERMS or (_is_far(form, machine) and _suits_few_rows(form, machine))
    is_near = array_bytes(form, "vector") <= machine.l2_bytes // 2
    return form.contracted_total <= MOST_TERMS_PAST and (form.nontemporal or is_near)


def _is_far(form: DirectForm, machine: Machine) -> bool:
    """Whether the second cache does not hold the output, or only if nothing else passes through it: then tiles that do
    not ask for the lines of their results wait for these (431 x 428 f32 with 3 terms 21 microseconds from packed panels
    on a Zen 4, 15 in tiles of few rows; 34 shapes of 0.78 to 1.05 MB with 3 to 12 terms 1.2 times as fast in the mean).
    Down to two thirds of the cache that is so of sums of up to five terms.
    """
    out = array_bytes(form, "out")
    if machine.pace.asks_results:
        return out > machine.l2_bytes
    return level_of(out, machine) > 2 or (3 * out > 2 * machine.l2_bytes and form.contracted_total < MOST_ROWS)


def _reads_in_place(form: DirectForm) -> bool:
    """Whether rows of vectors are computed of real operands that are read where they lie."""
    plain = form.results is Results.VECTORS and form.columns is None and not form.elementwise
    packed = form.vector_packed or form.scalar_packed
    return form.scalar is not None and plain and not packed and form.parts == 1


def _suits_few_rows(form: DirectForm, machine: Machine) -> bool:
    """Whether a wide tile of few rows is as good as one of many rows, whose results are in more places at once."""
    fits = VECTORS * (_rows(form) + 1) < machine.vector_registers
    return fits and form.contracted_total <= MOST_TERMS_FAR and _has_wide_tiles(form, machine)


def with_results_asked(form: DirectForm, machine: Machine) -> DirectForm:
    """The form with tiles that ask for the lines of their results while they compute them, where sums are so short that
    these lines come too late else: a store that waits for its line holds up all that follow. Then tiles of few rows are
    better, too (500 x 500 f32 with 3 terms 1.9 times as fast on an Emerald Rapids, with 8 terms 1.25 times).
    """
    asks = form.contracted_total <= machine.pace.asks_results and form.results is Results.VECTORS
    if not asks or form.nontemporal or level_of(array_bytes(form, "out"), machine) == 1 or _rows_meet(form):
        return form
    if _reads_in_place(form) and _suits_few_rows(form, machine):
        form = _in_few_rows(form, machine)
    return replace(form, out_prefetched=True)


def _rows_meet(form: DirectForm) -> bool:
    """Whether lines of a tile's rows, which are asked for together, drive each other out of the first cache."""
    if form.scalar is None or results_are_one_run(form):
        return False
    return form.rows > 1 and form.stride(form.scalar, "out") * form.contraction.out.element.bytes % ALIASED == 0


def _has_wide_tiles(form: DirectForm, machine: Machine) -> bool:
    """Whether there are vectors and rows for a tile that uses what it has read several times."""
    return form.vector_size >= VECTORS * _lanes(form, machine) and form.scalar_size >= _rows(form)


def _lanes(form: DirectForm, machine: Machine) -> int:
    return machine.lanes(component_types(form.accumulator)[0].bytes)


def _rows(form: DirectForm) -> int:
    return min(form.contracted_total, MOST_ROWS)


def written_in_order(form: DirectForm, machine: Machine) -> DirectForm:
    """The form with a tile of few rows, so that the output is written in order; other forms as they are."""
    if not is_short_sum(form, machine):
        return form
    if is_past_caches(array_bytes(form, "out"), machine):
        # Tiles of several rows read less, and are as good where lines that rows share hardly count.
        reads = form.nontemporal and form.contracted_total > MOST_TERMS
        if array_bytes(form, "vector") > (machine.l1_bytes if reads else machine.l2_bytes // 2):
            return form
        few = replace(with_row_tile(form, machine), rows=1, scalar_outer=True)
        return _row_after_row(few, machine)
    return _in_few_rows(form, machine) if _has_wide_tiles(form, machine) else form


def _in_few_rows(form: DirectForm, machine: Machine) -> DirectForm:
    """The form with a wide tile of as many rows as the sum has terms, or a few."""
    wide = (_lanes(form, machine),) * VECTORS
    return _row_after_row(replace(form, lanes=wide, rows=_rows(form), scalar_outer=True), machine)


def _row_after_row(few: DirectForm, machine: Machine) -> DirectForm:
    """The form with blocks of whole rows of the output."""
    few = replace(
        few, shared_rows=1, prefetched=False, rows_prefetched=False,
        out_prefetched=few.out_prefetched and not few.nontemporal,
    )  # fmt: skip
    few = replace(few, vector_chunk=few.vector_tiles)
    if few.serial:
        return replace(few, scalar_chunk=few.scalar_tiles)
    wanted = -(-4 * machine.cores // math.prod(constant(one.size) for one in few.outer))
    parts = 1 if machine.cores == 1 else wanted
    return replace(few, scalar_chunk=-(-few.scalar_tiles // parts))
