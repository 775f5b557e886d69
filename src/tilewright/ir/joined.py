"""Parts of concatenations whose sizes may be below zero: the result is as long as its parts together, and so would be
shorter than those that have elements. Such calls are refused, also where no concatenation is left in the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Concat, Map, Program, Redomap, Reduce, Scan, Scanomap, Type
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import bodies_of


@dataclass(frozen=True)
class Part:
    """An array that a concatenation joins to others: its name, its number among them, and its size along the axis.

    `widths` are those of the maps and folds around it: if one has no rows, nothing is joined.
    """

    name: str
    number: int
    axis: int
    size: Size
    widths: tuple[Size, ...] = ()


def doubtful_parts(program: Program) -> tuple[Part, ...]:
    """Parts whose sizes depend on nothing but the program's arguments, and may be below zero for some of them.

    Inside of maps and folds sizes of arrays are meant only, not integers that are arguments.
    """
    scalars = {one.name for one in program.parameters if one.type == Type(I64)}
    return tuple(_doubtful_in(program.body, frozenset(program.size_names), scalars, ()))


def _doubtful_in(
    body: Body, extents: AbstractSet[str], scalars: AbstractSet[str], widths: tuple[Size, ...]
) -> Iterator[Part]:
    for statement in body.statements:
        match statement.expression:
            case Concat(axis, arrays):
                for number, one in enumerate(arrays):
                    size = one.type.shape[axis]
                    below = size.names & scalars or any(coefficient < 0 for _, coefficient in size.terms)
                    if below and size.names <= extents | scalars:
                        yield Part(one.name, number, axis, size, widths)
            case Map() | Reduce() | Scan() | Redomap() | Scanomap() as around if around.width.names <= extents:
                for inner in bodies_of(around):
                    yield from _doubtful_in(inner, extents, frozenset(), (*widths, around.width))


def check_parts(program: Program, parts: Sequence[Part], sizes: Mapping[str, int], arguments: Sequence[Any]) -> None:
    """Refuse parts below zero.

    Raises:
        ValueError: naming the program, the part and its size.
    """
    if not parts:
        return
    pairs = zip(program.parameters, arguments, strict=True)
    known = {**sizes, **{one.name: int(value) for one, value in pairs if one.type == Type(I64)}}
    for one in parts:
        if all(width.evaluate(known) > 0 for width in one.widths):
            check_part(program.name, one, one.size.evaluate(known))


def check_part(program: str, part: Part, extent: int) -> None:
    """Refuse a part below zero; errors as for `check_parts`."""
    if extent < 0:
        raise ValueError(
            f"{program}: part {part.number} of a concatenation ({part.name}) has size {extent} in dimension "
            f"{part.axis}; it must be at least 0"
        )
