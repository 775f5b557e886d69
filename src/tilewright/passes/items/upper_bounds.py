"""Upper bounds, known at launch, of sizes that depend on what only a work item knows: room for its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from tilewright.ir import nodes
from tilewright.ir.nodes import atom_size
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ZERO, Size, SizeFunction, maximum, size
from tilewright.passes.items.scalar_values import LoweringError


def defined_size(expression: nodes.Expression) -> Size | None:
    """What an i64 scalar is as a polynomial of others, if its expression says so."""
    match expression:
        case nodes.SizeValue(value):
            return value
        case nodes.Alias(atom) if atom.type == nodes.Type(I64):
            return atom_size(atom)
        case nodes.Apply("add" | "sub" | "mul" as operator, (left, right)) if left.type == nodes.Type(I64):
            a, b = atom_size(left), atom_size(right)
            return a + b if operator == "add" else a - b if operator == "sub" else a * b
    return None


def upper_bound(
    extent: Size, what: str, inner: AbstractSet[str], definitions: Mapping[str, Size], ranges: Mapping[str, Size]
) -> Size:
    """An upper bound that the launch knows.

    Args:
        extent: the size.
        what: whose extent it is, for the error.
        inner: names that only the work item knows.
        definitions: names that stand for other sizes.
        ranges: names of indices, which are 0 at least, and what they are below.

    Example:
        >>> upper_bound(2 * size("i") + "n", "array x", {"i"}, {}, {"i": size("m")})
        2*max(0, m - 1) + n

    Raises:
        LoweringError: if the extent depends on values that only the work item knows.
    """
    for _ in range(100):
        inside = [name for name in sorted(extent.names) if name in inner or name in definitions]
        if not inside:
            return extent
        name = inside[0]
        if name in definitions:
            extent = extent.substitute({name: definitions[name]})
        else:
            extent = _without(name, extent, what, ranges)
    raise LoweringError(f"{what}: no bound of its extent {extent} was found")


def _without(name: str, extent: Size, what: str, ranges: Mapping[str, Size]) -> Size:
    """A bound without an index, in which the size is monotonous."""
    linear = extent.coefficient_of(name)
    if linear is None:
        return _without_in_choices(name, extent, what, ranges)
    if name in ranges:
        signs = {coefficient > 0 for _, coefficient in linear[0].terms}
        if len(signs) == 1:
            largest = maximum(ranges[name] - 1, ZERO)
            return linear[0] * largest + linear[1] if True in signs else linear[1]
    raise LoweringError(f"{what}: its extent {extent} depends on {name}, which only the work item knows")


def _without_in_choices(name: str, extent: Size, what: str, ranges: Mapping[str, Size]) -> Size:
    """min(a, b) is at most whichever of the two does not mention the name, max(a, b) grows with both."""
    total = ZERO
    for monomial, coefficient in extent.terms:
        term = size(coefficient)
        for atom in monomial:
            if isinstance(atom, SizeFunction) and name in atom.left.names | atom.right.names:
                if atom.function == "max" and coefficient > 0:
                    bounds = (
                        _without(name, side, what, ranges) if name in side.names else side
                        for side in (atom.left, atom.right)
                    )
                    term = term * maximum(*bounds)
                    continue
                sides = [side for side in (atom.left, atom.right) if name not in side.names]
                if atom.function != "min" or not sides or coefficient < 0:
                    raise LoweringError(f"{what}: its extent {extent} depends on {name} of the work item")
                term = term * sides[0]
            else:
                term = term * Size((((atom,), 1),))
        total = total + term
    return total
