"""Long sums as trees: loops that are cut into pieces, at whose ends partial sums are added to those of the next level.

    for k < n: acc += x[k]
    =>  for each piece of PIECE * FAN:
            for each piece of PIECE in it:
                for each k of it: acc += x[k]
                mid += acc; acc = 0
            top += mid; mid = 0

A value goes through PIECE additions at most on the lowest level and FAN on each one above, of which there are
log(n / PIECE) / log(FAN); the error of the sum is so many units of the sum of the magnitudes [Higham, Accuracy and
Stability of Numerical Algorithms, section 4.2, for every order of additions], where a chain has n. The order of values
is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Lambda
from tilewright.ir.traversal import all_statements
from tilewright.kernel.ir import Expression, add, integer, operation
from tilewright.passes.items.launch_writer import LaunchWriter

PIECE, FAN = 256, 128
"""Values of a node of the tree on the lowest level, and on those above."""
LEAST_ROWS = 128
"""Fewer rows are not worth a fold in lanes (`lower_reduction`)."""
_ROUNDING = {"add", "sub", "mul", "div", "fma"}


def grows_errors(combine: Lambda) -> bool:
    """Whether an operator rounds, so that the error of a chain of it grows with the chain's length."""
    return any(
        isinstance(one, nodes.Apply) and one.operator in _ROUNDING and one.operands[0].type.element.kind in "fc"
        for one in (statement.expression for statement in all_statements(combine.body))
    )


@dataclass(frozen=True)
class PieceLoop:
    """A loop over one of several nested extents, in steps of `step`, within one step of the loop over the same extent
    around it. `ends`: the level of the tree that is added to the next one at the end of each round, or None.
    """

    position: int
    step: int
    ends: int | None = None


def tree_loops(extents: Sequence[int], piece: int = PIECE) -> tuple[PieceLoop, ...]:
    """The loops of a sum over nested extents, outermost first, with `piece` values on the lowest level. Sums of up to
    two pieces are left as they are.

    Example:
        >>> [(one.position, one.step, one.ends) for one in tree_loops((3, 100))]
        [(0, 1, None), (1, 1, None)]
        >>> [(one.position, one.step, one.ends) for one in tree_loops((1000000,))]
        [(0, 32768, 1), (0, 256, 0), (0, 1, None)]
        >>> [(one.position, one.step, one.ends) for one in tree_loops((1000, 200))]
        [(0, 128, 1), (0, 1, 0), (1, 1, None)]
    """
    loops: list[PieceLoop] = []
    chain, level, most = 1, 0, piece if math.prod(extents) > 2 * piece else 2 * piece
    for position in reversed(range(len(extents))):
        step, left, ends = 1, extents[position], None
        while chain * left > most:
            together = max(1, most // chain)
            if together > 1:
                loops.append(PieceLoop(position, step, ends))
                step, left = step * together, -(-left // together)
            ends = level
            chain, level, most = 1, level + 1, FAN
        loops.append(PieceLoop(position, step, ends))
        chain *= left
    return tuple(reversed(loops))


def levels_of(loops: Sequence[PieceLoop]) -> int:
    """How many levels there are above the lowest."""
    return sum(one.ends is not None for one in loops)


def over_tree(
    w: LaunchWriter,
    loops: Sequence[PieceLoop],
    extents: Sequence[Expression],
    write: Callable[[Sequence[Expression], Expression, Expression], None],
    fold: Callable[[int], None],
) -> None:
    """Emit the loops of `tree_loops`, but for the innermost one.

    Args:
        w: the kernel that is written.
        loops, extents: how the extents are cut, and what they are in the kernel.
        write: writes the innermost loop, given the indices of all other extents and its bounds.
        fold: writes what adds the sums of a level to those of the next one, and begins that level anew.
    """

    def descend(number: int, indices: Sequence[Expression], ranges: dict[int, tuple[Expression, Expression]]) -> None:
        one = loops[number]
        start, stop = ranges.get(one.position, (integer(0), extents[one.position]))
        if number == len(loops) - 1:
            write(indices, start, stop)
            return
        step = w.parameter("piece", one.step)

        def at(index: Expression) -> None:
            if loops[number + 1].position == one.position:
                end = w.emit.let(operation("min", add(index, step), extents[one.position]), "end")
                descend(number + 1, indices, {**ranges, one.position: (index, end)})
            else:
                descend(number + 1, [*indices, index], ranges)
            if one.ends is not None:
                fold(one.ends)

        w.loop("k", start, stop, at, step)

    descend(0, [], {})
