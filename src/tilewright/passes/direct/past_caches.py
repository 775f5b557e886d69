"""Which results of direct forms go past the caches: whole lines of an output that is larger than these."""

from __future__ import annotations

from tilewright.machine.model import Machine
from tilewright.passes.direct.form import LINE, DirectForm, Results
from tilewright.passes.packed.blocks import consecutive, is_past_caches, level_of, share_channels

LEAST_BOXED = 1 << 23  # bytes of results
LARGE_PART = 5  # as many times as large as such results all arrays are, at the most
SHORT_PIECE = 512  # bytes
LINES_TOGETHER = 4  # of a row that are written before the next row, where rows share channels of the memory


def is_past(form: DirectForm, machine: Machine) -> bool:
    """Results go past the caches: whole lines of an output that is larger than these, unless they have been read."""
    if form.contraction.updates:
        return False
    if form.boxed:
        return boxes_go_past(form, machine)
    lines = (form.results is Results.VECTORS and _suits_past(form, machine)) or _collects_lines(form, machine)
    return lines and rows_align(form) and is_past_caches(array_bytes(form, "out"), machine)


def boxes_go_past(form: DirectForm, machine: Machine) -> bool:
    """Whether boxes of collected results do: also where the caches would hold them, but for the operands that pass."""
    out = array_bytes(form, "out")
    return is_past_caches(out, machine) or (out > LEAST_BOXED and leaves_caches(form, machine))


def leaves_caches(form: DirectForm, machine: Machine) -> bool:
    """Whether the caches do not hold collected results, as so much of their operands passes, of which they are a large
    part; unknown where long pieces are foreseen.
    """
    total, out = sum(form.contraction.array_bytes), array_bytes(form, "out")
    return not machine.pace.long_pieces and level_of(total, machine) > 3 and LARGE_PART * out >= total


def _suits_past(form: DirectForm, machine: Machine) -> bool:
    """Whether tiles of vectors shorter than a line write whole lines, and enough of them together where their rows
    begin in the same channels of the memory; else they are written faster through the caches.
    """
    element, width = form.contraction.out.element.bytes, form.width * form.contraction.out.element.bytes
    if form.lanes[0] * element >= LINE:
        return True
    step = 0 if form.scalar is None or form.rows == 1 else abs(form.stride(form.scalar, "out")) * element
    together = width >= LINES_TOGETHER * LINE or not share_channels(step, machine)
    return together and (width % LINE == 0 or form.fitting_tiles == 1)


def _collects_lines(form: DirectForm, machine: Machine) -> bool:
    """Whether vectors of collected results are lines of an output whose pieces are worth being long."""
    line = form.lanes[0] * form.contraction.out.element.bytes == LINE
    return form.results is Results.COLLECTED and line and machine.pace.long_pieces


def rows_align(form: DirectForm) -> bool:
    """If one row of the output begins at a cache line, all do; only whole lines are written past the caches."""
    strides = [form.stride(one, "out") for one in form.contraction.dimensions]
    return all(stride * form.contraction.out.element.bytes % LINE == 0 for stride in strides if abs(stride) > 1)


def array_bytes(form: DirectForm, side: str) -> int:
    """Bytes of the elements of an array that are read or written."""
    left, right, out = form.contraction.array_bytes
    if side == "out":
        return out
    own = left if (side == "vector") == form.vector_left else right
    return form.parts * own if side == "scalar" else own


def is_written_in_pieces(form: DirectForm, machine: Machine) -> bool:
    """One tile writes short pieces of an output that no cache holds, which no prefetcher of the processor foresees."""
    extents = [(form.stride(form.vector, "out"), min(form.width, form.vector_size))]
    if form.scalar is not None:
        extents.append((form.stride(form.scalar, "out"), form.rows))
    together = form.lanes[0] if form.collected is not None else consecutive(extents)
    out = array_bytes(form, "out")
    return together * form.contraction.out.element.bytes < SHORT_PIECE and level_of(out, machine) > 3
