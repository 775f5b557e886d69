"""What sizes and strides say beforehand about the vectors of a side: whether they are consecutive in memory.

The kernel looks at its offset tables for it (tables.py), and has code for each case. Most contractions can have one or
two of them only: code for the others would never run, and would take longer to compile than all that does run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.contraction.form import Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType
from tilewright.passes.packed.form import PackedForm, SideDimension

WHOLE, QUARTERS, BROKEN = 2, 1, 0
"""A vector's elements are consecutive in memory; those of each of its quarters are; they are not even that."""

LEAST_MASKED = 8  # lanes, from which on a mask is less than the elements one by one


@dataclass(frozen=True)
class Runs:
    """What a form says about one side.

    `source`, `out`, `depth`: marks that vectors may have in the operand, in the output, and along the sum. A mark may
    turn out higher than any of these, never lower.
    `ends`: panels of a block may be filled up with elements that are none.
    `source_masked`, `out_masked`: vectors are whole but for such elements, of which nothing is read or written; where
    one kernel serves all shapes, the vectors that are marked as whole.
    `neighbours`: whether elements of a panel that are copied together are neighbours in the operand: always (as far as
    they are no such elements), never, or None if that differs.
    """

    source: frozenset[int]
    out: frozenset[int]
    depth: frozenset[int]
    ends: bool
    source_masked: bool
    out_masked: bool
    neighbours: bool | None


def runs_of(form: PackedForm, is_vector: bool) -> Runs:
    """What sizes, strides and blocks say about a side; all that may be, where one kernel serves all shapes."""
    if form.any_shape:
        either = frozenset((WHOLE, BROKEN))
        masked = is_vector and takes_masks(form.contraction.out.element, form.lanes)
        return Runs(either, either, frozenset((BROKEN,)), True, masked, masked, False)
    dimensions = form.vector_dimensions if is_vector else form.scalar_dimensions
    tile = form.vector_tile if is_vector else form.rows
    starts, ends = _starts(form, dimensions, is_vector)
    lanes, quarter = form.lanes, max(1, form.lanes // 4)
    filled = {QUARTERS} if all(one % quarter == 0 for one in (*starts, form.total(dimensions))) else {BROKEN, QUARTERS}
    added = filled if ends else set()
    unit = math.gcd(*starts, max(lanes, 1))
    source = possible_marks([(one.size, one.stride) for one in dimensions], unit, lanes)
    out = possible_marks([(one.size, one.stride_out) for one in dimensions], unit, lanes)
    if form.contraction.epilogue_operands:
        out = frozenset((WHOLE, QUARTERS, BROKEN))
    left = is_vector == form.vector_left
    sums = [(constant(one.size), constant(one.stride(left))) for one in form.contraction.of_kind(Kind.K)]
    length = lanes * form.together
    depth = possible_marks(sums, math.gcd(form.depth if form.depth < form.contracted_total else 0, length), length)
    may_mask = ends and is_vector and form.boxes is None
    source_masked = may_mask and source == {WHOLE} and takes_masks(form.vector_operand.element, lanes)
    out_masked = may_mask and out == {WHOLE} and takes_masks(form.contraction.out.element, lanes)
    return Runs(
        source if source_masked else source | added,
        out if out_masked else out | added,
        depth,
        ends,
        source_masked,
        out_masked,
        _neighbours(dimensions, tile, math.gcd(*starts, tile)),
    )


def possible_marks(dimensions: Sequence[tuple[int, int]], unit: int, lanes: int) -> frozenset[int]:
    """Marks of vectors that begin with multiples of `unit` elements of a flat index, inside it.

    Args:
        dimensions: size and stride of each, outermost first.
        unit: as said.
        lanes: of a vector.

    Example:
        >>> [sorted(possible_marks([(9, 32), (24, 1)], 8, lanes)) for lanes in (8, 16, 32)]
        [[2], [1, 2], [1]]
        >>> sorted(possible_marks([(9, 24), (20, 1)], 8, 8)), sorted(possible_marks([(9, 1), (20, 9)], 8, 8))
        ([1, 2], [0])
    """
    quarter = max(1, lanes // 4)
    run = run_length(dimensions)
    if run >= math.prod(size for size, _ in dimensions) or (run % lanes == 0 and unit % lanes == 0):
        return frozenset((WHOLE,))
    if run < quarter:
        return frozenset((BROKEN,))
    whole = (WHOLE,) if run >= lanes else ()
    broken = () if run % quarter == 0 and unit % quarter == 0 else (BROKEN,)
    return frozenset((QUARTERS, *whole, *broken))


def takes_masks(element: ScalarType, lanes: int) -> bool:
    """Whether vectors of these elements are read and written in part at once; integers may not become 0 unasked."""
    return element.is_float and element.bytes >= 4 and lanes >= LEAST_MASKED


def run_length(dimensions: Sequence[tuple[int, int]]) -> int:
    """Elements that follow each other in memory, of the innermost dimensions."""
    run = 1
    for size, stride in reversed(dimensions):
        if size != 1 and stride != run:
            break
        run *= size
    return run


def _starts(form: PackedForm, dimensions: Sequence[SideDimension], is_vector: bool) -> tuple[list[int], bool]:
    """Numbers of which one's multiples every block begins with, and whether panels stick out of some block."""
    total = form.total(tuple(dimensions))
    chunk, block = (form.vector_chunk, form.vector_block) if is_vector else (form.scalar_chunk, form.scalar_block)
    tile = form.vector_tile if is_vector else form.rows
    starts = [one for one in (chunk, block) if one < total]
    if is_vector and form.boxes is not None:
        starts.append(form.boxes.vector)
    return starts, any(one % tile for one in (*starts, total))


def _neighbours(dimensions: Sequence[SideDimension], tile: int, unit: int) -> bool | None:
    pairs = [(one.size, one.stride) for one in dimensions]
    run = run_length(pairs)
    if tile == 1 or run >= math.prod(size for size, _ in pairs) or (run % tile == 0 and unit % tile == 0):
        return True
    return False if run == 1 else None
