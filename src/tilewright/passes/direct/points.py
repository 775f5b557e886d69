"""Which operands come point by point of the outer dimensions (of a batch, say), and are asked for so.

Where a point's part of an operand is one run of memory, tiles read it in another order than it lies there: pieces of
many rows, or all of it for the point's first few results already. No prefetcher of the processor foresees that. If the
next point's part is asked for in the order of memory meanwhile, it comes as fast as memory gives anything.
"""

from __future__ import annotations

import math

from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm, Results
from tilewright.passes.direct.past_caches import array_bytes
from tilewright.passes.items.sum_trees import levels_of, tree_loops
from tilewright.passes.packed.blocks import consecutive, even, level_of

SIDES = ("vector", "scalar", "out")
LEAST_BYTES = 4096  # of a point: shorter ones come in time, and asking costs products of 8 in the third cache a seventh
LEAST_POINTS = 4  # along the innermost of the outer dimensions
LEAST_PIECE = 24  # steps of a piece of a sum
MOST_WAITING = 1 / 8  # of the second cache, for the sums of a point that wait between pieces


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
    """Whether operands that the second cache does not hold come point by point, and it holds one point, or a piece of
    the sum at one: what it has no room for of the next one waits in the third cache. Reading them must take a part of
    the time that their products do.
    """
    points = sum(point_bytes(form, side) for side in SIDES[:2] if has_next_point(form, side))
    fits = points > 0 and _stays(form, points, machine)
    return (fits and _are_waited_for(form, points, machine)) or piece_of_sum(form, machine) > 0


def piece_of_sum(form: DirectForm, machine: Machine) -> int:
    """Steps of the sum of which all tiles of a point have their products before the next ones (sum_pieces.py): where
    the points of the vector side, and the steps of each, follow each other in memory, and the other side is the same
    for all of them; 0 if the sum is not cut.
    """
    if not (may_be_cut(form) and has_next_point(form, "vector")) or form.stride(form.outer[-1], "scalar"):
        return 0
    length, steps = point_length(form, "vector"), form.contracted_total
    if not form.stride(form.outer[-1], "vector") == length == steps * form.step("vector"):
        return 0
    nbytes = point_bytes(form, "vector")
    most = int(machine.pace.asked_piece * machine.l2_bytes) * steps // nbytes
    waiting = form.vector_size * form.scalar_size * form.accumulator.bytes
    pays = LEAST_PIECE <= most <= steps // 2 and _are_waited_for(form, nbytes, machine)
    return even(steps, most, 1) if pays and waiting <= MOST_WAITING * machine.l2_bytes else 0


def may_be_cut(form: DirectForm) -> bool:
    """Whether the tiles of a form may wait for further pieces of their sums, of one dimension, in whole vectors."""
    plain = form.results is not Results.COLLECTED and form.columns is None and form.parts == 1
    in_place = not (form.vector_packed or form.scalar_packed or form.onward)
    alike = len(set(form.lanes)) == 1 and form.shared_rows == 1
    in_a_tree = levels_of(tree_loops([constant(one.size) for one in form.contracted]))
    return plain and in_place and alike and len(form.contracted) == 1 and not in_a_tree


def _stays(form: DirectForm, points: int, machine: Machine) -> bool:
    """Whether the second cache holds so many bytes of points, beside what is asked for."""
    return machine.pace.asks_points > 0 and level_of(int(points / machine.pace.asks_points), machine) <= 2


def _are_waited_for(form: DirectForm, points: int, machine: Machine) -> bool:
    """Whether reading the points of arrays beyond the second cache takes a part of the time that their products do."""
    pace = machine.pace
    arrays = sum(array_bytes(form, side) for side in SIDES)
    if not pace.asks_points or level_of(arrays, machine) <= 2:
        return False
    inner = [one for one in form.contraction.dimensions if one not in form.outer]
    products = math.prod(constant(one.size) for one in inner) / machine.lanes(form.accumulator.bytes)
    return points / pace.memory >= pace.points_wait * products
