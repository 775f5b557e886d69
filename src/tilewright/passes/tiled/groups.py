"""Which elements of a thread's register tile are neighbours, so that a thread reads and writes several at once.

A thread that computes R elements of a dimension, of which it has no neighbours, reads each from shared memory by an
access of its own: for 8 x 8 results 16 accesses of a warp for 64 multiply-adds, as long as these take (a core of 128
lanes serves one access of a warp beside four multiply-adds). With four neighbours of 4 bytes at a time it is 4
accesses, of which a quarter of the warp is served at once.

Results along a dimension in which the output is contiguous must then be written at once too, or a warp's store would
touch every fourth element; where they cannot be, for their alignment, the dimension's elements stay apart.
"""

from __future__ import annotations

from tilewright.contraction.form import Contraction
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, compute_type, real_of
from tilewright.passes.tiled.tiling import Place, Tiling, in_left, in_right, parallel_dimensions

VECTOR_BYTES = 16


def find_groups(contraction: Contraction, tiling: Tiling) -> tuple[tuple[int, ...], int | None]:
    """For each parallel dimension how many neighbours a thread computes, and along which one they are written at once.

    Example:
        >>> from tilewright.contraction.normalise import normalise
        >>> from tilewright.report.examples import matmul
        >>> find_groups(normalise(matmul(1024, 1024, 1024)), Tiling((16, 16), (8, 8), (16,)))
        ((4, 4), 1)
        >>> find_groups(normalise(matmul(1024, 1023, 1024)), Tiling((16, 16), (8, 8), (16,)))
        ((4, 1), None)
    """
    parallel = parallel_dimensions(contraction)
    groups, stored = [1] * len(parallel), None
    for place, operand, has, other in (
        (tiling.left, contraction.left, in_left, in_right),
        (tiling.right, contraction.right, in_right, in_left),
    ):
        element = compute_type(real_of(operand.element))
        if place is not Place.SHARED or element == BOOL:
            continue
        choices = [
            (count, position)
            for position, one in enumerate(parallel)
            if has(one) and not other(one)
            for count in (4, 2)
            if tiling.register[position] % count == 0 and count * element.bytes <= VECTOR_BYTES
            if constant(one.stride_out) != 1 or _written_at_once(contraction, position, count)
        ]
        if choices:
            count, position = max(choices)
            groups[position] = count
            if constant(parallel[position].stride_out) == 1:
                stored = position
    return tuple(groups), stored


def _written_at_once(contraction: Contraction, position: int, count: int) -> bool:
    """Whether so many neighbouring results along a dimension always lie in the output, and aligned."""
    parallel, out = parallel_dimensions(contraction), contraction.out
    if out.element.is_complex or out.element == BOOL or count * out.element.bytes > VECTOR_BYTES:
        return False
    others = [constant(one.stride_out) for place, one in enumerate(parallel) if place != position]
    numbers = [*others, constant(parallel[position].size), constant(out.offset)]
    return all(number % count == 0 for number in numbers)
