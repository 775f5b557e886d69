"""Which operands come point by point of the outer dimensions (of a batch, say), and are asked for so.

Where a point's part of an operand is one run of memory, tiles read it in another order than it lies there: pieces of
many rows, or all of it for the point's first few results already. No prefetcher of the processor foresees that. If the
next point's part is asked for in the order of memory meanwhile, it comes as fast as memory gives anything.
"""

from __future__ import annotations

import math

from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.past_caches import array_bytes
from tilewright.passes.packed.blocks import consecutive, level_of

SIDES = ("vector", "scalar", "out")
LEAST_BYTES = 4096  # of a point: shorter ones come in time, and asking costs products of 8 in the third cache a seventh
LEAST_POINTS = 4  # along the innermost of the outer dimensions


def has_next_point(form: DirectForm, side: str) -> bool:
    """Whether a point's part of an array is one run of memory, and most points have another one after them."""
    if not form.outer or form.collected is not None or form.onward or constant(form.outer[-1].size) < LEAST_POINTS:
        return False
    return form.stride(form.outer[-1], side) != 0 and point_bytes(form, side) >= LEAST_BYTES


def point_length(form: DirectForm, side: str) -> int:
    """Elements of the run of memory that is a point's part of an array; 0 if it is none, or goes backwards."""
    inner = [one for one in form.contraction.dimensions if one not in form.outer]
    extents = [(form.stride(one, side), constant(one.size)) for one in inner if form.stride(one, side)]
    if form.parts > 1 and (side == "scalar" or form.stride(form.vector, side) != 1):
        extents.append((1, form.parts))
    if any(stride < 0 for stride, _ in extents):
        return 0
    total = math.prod(extent for _, extent in extents)
    return total if consecutive(extents) == total else 0


def point_bytes(form: DirectForm, side: str) -> int:
    """The same in bytes."""
    operands = {"vector": form.vector_operand, "scalar": form.scalar_operand, "out": form.contraction.out}
    return point_length(form, side) * operands[side].element.bytes


def points_are_asked(form: DirectForm, machine: Machine) -> bool:
    """Whether operands that the second cache does not hold come point by point, and it holds one point: what it has no
    room for of the next one waits in the third cache. Reading them must take a part of the time that their products do.
    """
    pace = machine.pace
    if not pace.asks_points:
        return False
    arrays = sum(array_bytes(form, side) for side in SIDES)
    asked = [side for side in SIDES[:2] if has_next_point(form, side)]
    points = sum(point_bytes(form, side) for side in asked)
    if not asked or level_of(arrays, machine) <= 2 or level_of(int(points / pace.asks_points), machine) > 2:
        return False
    inner = [one for one in form.contraction.dimensions if one not in form.outer]
    products = math.prod(constant(one.size) for one in inner) / machine.lanes(form.accumulator.bytes)
    return points / pace.memory >= pace.points_wait * products
