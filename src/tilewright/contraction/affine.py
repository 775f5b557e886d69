"""i64 scalars of a nest as polynomials in its indices, so that computed indices are strides like any others.

The index of the nest's construct at depth d is called "@d", which no variable of a program is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilewright.ir.nodes import Alias, Apply, Atom, Expression, Literal, SizeValue, Type
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size, size


def is_index(name: str) -> bool:
    """True for the name of a nest's index."""
    return name.startswith("@")


def affine_value(expression: Expression, known: Mapping[str, Size], bound: Collection[str]) -> Size | None:
    """The polynomial that an i64 scalar expression computes; None if it is none.

    Args:
        expression: the right-hand side of a statement in the nest.
        known: polynomials of the nest's scalars.
        bound: names that the nest binds; one that is not `known` has no polynomial.
    """
    if isinstance(expression, SizeValue):
        value = expression.size.substitute(known)
        return None if any(name in bound for name in value.names) else value
    atoms: tuple[Atom, ...] = (expression.atom,) if isinstance(expression, Alias) else ()
    if isinstance(expression, Apply):
        atoms = expression.operands
    values = [_polynomial(atom, known, bound) for atom in atoms]
    parts = [value for value in values if value is not None]
    if not values or len(parts) != len(values):
        return None
    if isinstance(expression, Alias):
        return parts[0]
    assert isinstance(expression, Apply)
    match expression.operator:
        case "add":
            return parts[0] + parts[1]
        case "sub":
            return parts[0] - parts[1]
        case "mul":
            return parts[0] * parts[1]
        case "neg":
            return -parts[0]
    return None


def _polynomial(atom: Atom, known: Mapping[str, Size], bound: Collection[str]) -> Size | None:
    if atom.type != Type(I64):
        return None
    if isinstance(atom, Literal):
        return size(int(atom.value.real))
    if atom.name in known:
        return known[atom.name]
    return None if atom.name in bound else size(atom.name)
