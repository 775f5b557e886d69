"""Rows of neighbouring points, read or written along a loop that the points run together in the lanes of vectors.

    for k: for all lanes i: s[i] = f(s[i], x[i, k])
    =>  for each strip of `width` k: turn the squares x[i, k] of the strip; for k: s[..] = f(s[..], square[k, ..])

Lane by lane, each element is an access of its own, and each of the rows' cache lines is asked for again in every
round. A strip reads whole vectors along the rows and turns them in registers; what a round writes to the rows is kept
in a square and written after the strip, turned. The last strip is shorter, and masked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, add, integer, multiply, operation
from tilewright.kernel.traversal import expressions, walk
from tilewright.passes.items.scalar_values import KernelBuilder, memory_element
from tilewright.passes.lanes.lane_variance import loads
from tilewright.passes.lanes.vector_transposes import transposed

WIDTH_BYTES = 64
"""Of a row of a square: what a register or a cache line holds."""


@dataclass(frozen=True)
class Access:
    """An element for each lane, read by a `Let` or written by a `Store` in every round of a loop.

    `index` says where in terms of the loop's index, with which it grows, or falls (`backwards`), by one.
    """

    statement: kernel.Let | kernel.Store
    buffer: Buffer
    index: Expression
    backwards: bool


def accesses_along(loop: kernel.For, is_apart: Callable[[Expression], bool]) -> tuple[Access, ...]:
    """The accesses of a loop that run along a row for each lane; `is_apart` tells if an index is a line of such lanes.

    Only what every round does at once counts, to arrays that nothing else in the loop touches in the other way.
    """
    if loop.step != integer(1):
        return ()
    inside = list(walk(loop.body))
    read = [one.buffer.name for statement in inside for value in expressions(statement) for one in loads(value)]
    written = [one.buffer.name for one in inside if isinstance(one, kernel.Store | kernel.AtomicUpdate)]
    lets: dict[str, Expression | None] = {
        one.name: None for one in inside if isinstance(one, kernel.Let | kernel.Declare | kernel.Assign)
    }
    lets |= {one.index: None for one in inside if isinstance(one, kernel.For)}
    found: list[Access] = []
    for statement in loop.body:
        match statement:
            case kernel.Let(value=kernel.Load(buffer=buffer, index=index, mask=None)) if buffer.name not in written:
                access = _access(statement, buffer, index, lets, loop.index)
            case kernel.Store(buffer=buffer, index=index, mask=None) if (
                buffer.name not in read and written.count(buffer.name) == 1
            ):
                access = _access(statement, buffer, index, lets, loop.index)
            case kernel.Let(name=name, value=value):
                lets[name] = _inlined(value, lets)
                continue
            case _:
                continue
        if access is not None and is_apart(access.index):
            found.append(access)
    return tuple(found)


def _access(
    statement: kernel.Let | kernel.Store,
    buffer: Buffer,
    index: Expression,
    lets: Mapping[str, Expression | None],
    name: str,
) -> Access | None:
    element = buffer.element
    if element.bytes not in (4, 8) or element.is_complex or memory_element(element) != element:
        return None
    whole = _inlined(index, lets)
    slope = None if whole is None else _slope(whole, name)
    return Access(statement, buffer, whole, slope < 0) if whole is not None and slope in (1, -1) else None


def _inlined(value: Expression, lets: Mapping[str, Expression | None]) -> Expression | None:
    """A value in terms of names from outside a loop and its index; None where it is not made by arithmetic alone."""
    match value:
        case Name(name):
            return lets.get(name, value)
        case Constant():
            return value
        case kernel.Operation(operands=operands):
            parts = tuple(_inlined(one, lets) for one in operands)
            known = tuple(one for one in parts if one is not None)
            return dataclasses.replace(value, operands=known) if len(known) == len(parts) else None
    return None


def _slope(value: Expression, index: str) -> int | None:
    """By how much an integer grows with an index, if that is known."""
    match value:
        case Name(name):
            return int(name == index)
        case kernel.Operation(operator, operands):
            slopes = [_slope(one, index) for one in operands]
            if None in slopes:
                return None
            if not any(slopes):
                return 0
            left, right = (*(one or 0 for one in slopes), 0)[:2]
            if operator in ("add", "sub"):
                return left + right if operator == "add" else left - right
            for slope, other in ((left, operands[-1]), (right, operands[0])):
                if operator == "mul" and slope and isinstance(other, Constant):
                    return slope * int(other.value.real)
            return None
    return 0


def at_round(value: Expression, index: str, round_: Expression) -> Expression:
    """An integer of arithmetic with another value for an index."""
    match value:
        case Name(name) if name == index:
            return round_
        case kernel.Cast(operand):
            return dataclasses.replace(value, operand=at_round(operand, index, round_))
        case kernel.Operation(operands=operands):
            return dataclasses.replace(value, operands=tuple(at_round(one, index, round_) for one in operands))
    return value


@dataclass(frozen=True)
class Strip:
    """The rounds `first` .. `first + count - 1` of a loop, at most `width`."""

    loop: kernel.For
    first: Name
    count: Expression
    width: int
    lanes: int

    @property
    def rounds(self) -> kernel.VectorType:
        """The type of a mask for the rounds."""
        return kernel.VectorType(BOOL, self.width)

    def lowest(self, access: Access) -> Expression:
        """The round with the first element of a row in memory."""
        last = add(self.first, operation("sub", self.count, integer(1)))
        return last if access.backwards else self.first

    def place(self, access: Access) -> Expression:
        """Where the lanes of a round stand in the square."""
        index = Name(self.loop.index, self.first.type)
        lowest = self.lowest(access)
        row = operation("sub", lowest, index) if access.backwards else operation("sub", index, lowest)
        return multiply(integer(self.lanes), row)


def width_of(accesses: Sequence[Access], lanes: int) -> int:
    """Rounds of a strip."""
    return min(lanes, WIDTH_BYTES // max(one.buffer.element.bytes for one in accesses))


def _rows(emit: KernelBuilder, base: Expression, factor: Expression, lanes: range) -> list[Expression]:
    return [emit.let(add(base, multiply(integer(lane), factor)), "row") for lane in lanes]


def read_square(
    emit: KernelBuilder, access: Access, line: tuple[Expression, Expression], square: Buffer, strip: Strip,
    mask: Expression,
) -> None:  # fmt: skip
    """Fill a square with the rows' elements; lane i's row of the strip begins at line[0] + i * line[1]."""
    type_ = kernel.VectorType(access.buffer.element, strip.width)
    for group in range(0, strip.lanes, strip.width):
        starts = _rows(emit, *line, range(group, group + strip.width))
        read: list[Expression] = [emit.let(kernel.Load(access.buffer, one, type_, mask=mask), "part") for one in starts]
        for round_, column in enumerate(transposed(emit, read)):
            emit.emit(kernel.Store(square, integer(round_ * strip.lanes + group), column))


def write_square(
    emit: KernelBuilder, access: Access, line: tuple[Expression, Expression], square: Buffer, strip: Strip,
    mask: Expression,
) -> None:  # fmt: skip
    """Write a square to the rows."""
    type_ = kernel.VectorType(access.buffer.element, strip.width)
    for group in range(0, strip.lanes, strip.width):
        places = [integer(round_ * strip.lanes + group) for round_ in range(strip.width)]
        held: list[Expression] = [emit.let(kernel.Load(square, one, type_), "held") for one in places]
        starts = _rows(emit, *line, range(group, group + strip.width))
        for start, row in zip(starts, transposed(emit, held), strict=True):
            emit.emit(kernel.Store(access.buffer, start, row, mask=mask))


def mask_of(emit: KernelBuilder, strip: Strip) -> Expression:
    """The rounds that the strip has."""
    return emit.let(kernel.FirstLanes(strip.count, strip.rounds), "rounds")
