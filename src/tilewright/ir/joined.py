"""Parts of concatenations whose sizes may be below zero: the result is as long as its parts together, and so would be
shorter than those that have elements. Such calls are refused, also where no concatenation is left in the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Concat, Program, Type
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size


@dataclass(frozen=True)
class Part:
    """An array that a concatenation joins to others: its name, its number among them, and its size along the axis."""

    name: str
    number: int
    axis: int
    size: Size


def doubtful_parts(program: Program) -> tuple[Part, ...]:
    """Parts whose sizes depend on nothing but the program's arguments, and may be below zero for some of them."""
    scalars = {one.name for one in program.parameters if one.type == Type(I64)}
    known = {*program.size_names, *scalars}
    return tuple(
        Part(one.name, number, statement.expression.axis, size)
        for statement in program.body.statements
        if isinstance(statement.expression, Concat)
        for number, one in enumerate(statement.expression.arrays)
        for size in [one.type.shape[statement.expression.axis]]
        if size.names <= known and (size.names & scalars or any(coefficient < 0 for _, coefficient in size.terms))
    )


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
        check_part(program.name, one, one.size.evaluate(known))


def check_part(program: str, part: Part, extent: int) -> None:
    """Refuse a part below zero; errors as for `check_parts`."""
    if extent < 0:
        raise ValueError(
            f"{program}: part {part.number} of a concatenation ({part.name}) has size {extent} in dimension "
            f"{part.axis}; it must be at least 0"
        )
