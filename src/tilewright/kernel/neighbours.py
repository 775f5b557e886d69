"""Loops that read neighbours: elements at several distances from the one that a vector begins with.

Most of their vectors do not begin with a cache line. A vector as long as a line then always lies in two lines, each of
which takes a load of its own; half as long a vector only does every other time. So such loops run in vectors of half a
line on a core that loads two of these in a cycle, but only one of a line (Zen 4, five-point stencil: 44 in place of 48
us). On one that loads two of a line, whole vectors get more (Zen 5: 35 us, and 42 in halves).
"""

from __future__ import annotations

from tilewright.kernel import ir
from tilewright.kernel.ir import Constant, Expression, For, Kernel, Let, Load, Name, Operation, VectorType
from tilewright.kernel.traversal import expressions, parts, walk

LINE_BITS = 512


def vector_bits(kernel: Kernel, preferred: int, loads_two_lines: bool = False) -> int:
    """How long the vectors shall be into which LLVM puts a kernel's loops, at most `preferred`.

    A kernel with vectors of its own keeps what is preferred, and so do all on a core that loads two vectors as long as
    a cache line in a cycle.
    """
    if loads_two_lines:
        return preferred
    statements = tuple(walk(kernel.body))
    if any(isinstance(part.type, VectorType) for one in statements for part in parts(expressions(one))):
        return preferred
    near = any(isinstance(one, For) and one.independent and _reads_neighbours(one) for one in statements)
    return min(preferred, LINE_BITS // 2) if near else preferred


def _reads_neighbours(loop: For) -> bool:
    """Whether a loop without further loops reads at its index and a distance that is a constant."""
    if any(isinstance(one, For | ir.While) for one in walk(loop.body)):
        return False
    index = Name(loop.index, loop.start.type)
    shifted: set[str] = set()
    for one in walk(loop.body):
        if isinstance(one, Let) and _is_shifted(one.value, index, shifted):
            shifted.add(one.name)
        if any(isinstance(part, Load) and _is_shifted(part.index, index, shifted) for part in parts(expressions(one))):
            return True
    return False


def _is_shifted(expression: Expression, index: Name, shifted: set[str]) -> bool:
    """Whether an expression is a sum with index + c, for a constant c other than 0."""
    match expression:
        case Name(name):
            return name in shifted
        case Operation("add", (left, Constant(value))) if left == index:
            return bool(value)
        case Operation("add", operands):
            return any(_is_shifted(one, index, shifted) for one in operands)
    return False
