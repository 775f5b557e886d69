"""Boxes of results: pieces of the output's memory in one run, for rows of it that are no whole vectors.

Where a row of the output is a vector and a quarter, say, register tiles write pieces of lines here and there: each line
comes from memory first, and whole lines past the caches are out of the question. But some dimensions of either side are
together one run of the output; their results are a *box*, which is assembled in the first cache (assemble.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilewright.contraction.form import Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine
from tilewright.passes.packed.blocks import BLOCK, LINE, USUAL_L1, choose_chunks, even
from tilewright.passes.packed.form import Boxes, PackedForm, holds_partial_sums, rows_suit

LEAST_BYTES = 2048  # of a box: what sticks out of its whole lines is written through the caches
LONGEST_SUM = 128  # steps: longer ones hide what writing takes
MOST_ROWS = 24
TILE_CYCLES = 40.0  # of a register tile, beside its multiply-adds
BOX_CYCLES = 100.0
FAR_LINE = 2.0  # cycles more for each line, if two boxes take more than half of the first cache
RUN_CYCLES = 3.0  # to move a run that is no whole parts of vectors, beside its vectors
MOST_WASTE = 1.3  # times as long as multiply-adds of whole vectors alone would take
MOST_RAGGED_WASTE = 2.0  # the same of ragged rows, which are written by elements otherwise


def with_boxes(form: PackedForm, machine: Machine) -> PackedForm:
    """The form with boxes, if it has one piece of the sum and rows of the output that are not all whole lines."""
    contraction, element = form.contraction, form.contraction.out.element
    strides = [constant(one.stride_out) * element.bytes for one in contraction.dimensions]
    aligned = all(one % LINE == 0 for one in strides if abs(one) > element.bytes)
    vectors_fit = form.lanes > 1 and not element.is_complex and holds_partial_sums(contraction)
    if aligned or not vectors_fit or form.contracted_total > LONGEST_SUM:
        return form
    vector, scalar = ([(one.size, one.stride_out) for one in side]
                      for side in (form.vector_dimensions, form.scalar_dimensions))  # fmt: skip
    found = choose_boxes((vector, scalar), form.contracted_total, form.lanes, element.bytes, machine)
    if found is None:
        return form
    boxes, vectors, rows = found
    suit = rows_suit(contraction, form.scalar_dimensions, form.vector_left, rows, form.depth, machine)
    form = replace(form, boxes=boxes, vectors=vectors, rows=rows, nontemporal=False)
    return _cut(replace(form, scalar_in_place=form.scalar_rows and suit), boxes, machine)


def _cut(form: PackedForm, boxes: Boxes, machine: Machine) -> PackedForm:
    """Blocks of whole boxes."""
    totals = form.total(form.vector_dimensions), form.total(form.scalar_dimensions)
    batch = math.prod(constant(one.size) for one in form.contraction.of_kind(Kind.C))
    units = boxes.vector, boxes.scalar
    chunks = choose_chunks(machine.cores, batch, totals, units, form.lanes, form.contracted_total, True)
    step_bytes = form.pitch * form.contraction.out.element.bytes
    padded, rows = (min(BLOCK, nbytes // step_bytes) for nbytes in form.panel_bytes)
    return replace(
        form,
        vector_chunk=chunks[0],
        scalar_chunk=chunks[1],
        vector_block=even(totals[0], padded // form.padded_box * boxes.vector, boxes.vector),
        scalar_block=even(chunks[1], rows, boxes.scalar),
    )


Sides: TypeAlias = tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]]
"""(size, stride in the output) of each dimension of the vector side and the scalar side, outermost first."""


@dataclass(frozen=True)
class _Candidate:
    cycles: float  # for each step of the sum and vector of results
    boxes: Boxes
    vectors: int
    rows: int


def choose_boxes(
    sides: Sides, steps: int, lanes: int, element_bytes: int, machine: Machine
) -> tuple[Boxes, int, int] | None:
    """Boxes with a register tile (vectors, rows) for them; None if whole tiles are as good, or nothing fits.

    Args:
        sides: their dimensions.
        steps: of the sum.
        lanes: of a vector.
        element_bytes: of a result.
        machine: of its registers and first cache.
    """
    best: _Candidate | None = None
    for boxes in _boxes(sides, lanes, element_bytes, (machine.l1_bytes or USUAL_L1) // 2):
        for vectors, rows in _tiles(boxes, lanes, machine.vector_registers or 16):
            cycles = _cycles(boxes, vectors, rows, steps, lanes, element_bytes, machine)
            if best is None or cycles < best.cycles:
                best = _Candidate(cycles, boxes, vectors, rows)
    if best is None or best.cycles > (MOST_RAGGED_WASTE if best.boxes.ragged else MOST_WASTE):
        return None
    return best.boxes, best.vectors, best.rows


def _boxes(sides: Sides, lanes: int, element_bytes: int, most_bytes: int) -> Iterator[Boxes]:
    """The innermost dimensions of the output, of which the last may be a part; both sides are ordered as it is."""
    if any(list(side) != sorted(side, key=lambda one: -one[1]) for side in sides):
        return
    chain = sorted((stride, size, which) for which, side in enumerate(sides) for size, stride in side)
    held, run = [1, 1], 0
    unit = lanes if lanes < 8 else lanes // 4  # that is stored at once, at the least
    for position, (stride, size, which) in enumerate(chain):
        if stride != held[0] * held[1]:
            return
        if which == 1:
            run = run or held[0]
        longest = most_bytes // (held[0] * held[1] * element_bytes)
        for part in (one for one in range(1, min(size, longest) + 1) if size % one == 0):
            extents = list(held)
            extents[which] *= part
            following = which if part < size or position + 1 == len(chain) else chain[position + 1][2]
            nbytes = extents[0] * extents[1] * element_bytes
            if LEAST_BYTES <= nbytes <= most_bytes:
                together = run or extents[0]
                yield Boxes(extents[0], extents[1], following == 1, together, together % unit != 0)
        held[which] *= size


def _tiles(boxes: Boxes, lanes: int, registers: int) -> Iterator[tuple[int, int]]:
    for vectors in range(1, min(8, -(-boxes.vector // lanes)) + 1):
        most = min(MOST_ROWS, (registers - 1 - vectors) // vectors)
        rows = [one for one in range(1, most + 1) if boxes.scalar % one == 0]
        if rows:
            yield vectors, rows[-1]


def _cycles(
    boxes: Boxes, vectors: int, rows: int, steps: int, lanes: int, element_bytes: int, machine: Machine
) -> float:
    """Of a box, as a multiple of what its multiply-adds take (see form.py for those of a step)."""
    tiles = -(-boxes.vector // (vectors * lanes)) * (boxes.scalar // rows)
    step = max(vectors * rows, 8, 1.5 * 2 * vectors + 0.25 * 2 * rows)
    nbytes = boxes.vector * boxes.scalar * element_bytes
    lines = nbytes / LINE
    held = 6 if boxes.ragged else 4
    far = 0.0 if held * nbytes <= (machine.l1_bytes or USUAL_L1) else FAR_LINE * lines
    moved = boxes.vector // boxes.run * boxes.scalar * (RUN_CYCLES + -(-boxes.run // lanes)) if boxes.ragged else 0.0
    cycles = tiles * (steps * step + TILE_CYCLES) + BOX_CYCLES + far + moved
    return cycles / math.prod((boxes.vector / lanes, boxes.scalar, steps))
