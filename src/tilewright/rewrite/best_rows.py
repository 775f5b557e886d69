"""Folds that keep one of two rows by a comparison, such as `argmin`: which comparison their operators make."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Variable

_STRICT, _MIRRORED = {"lt": "gt", "gt": "lt"}, {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_OTHERWISE = {"le": "gt", "ge": "lt"}


def comparison_in(body: Body, left: Sequence[Variable], right: Sequence[Variable]) -> tuple[str, int, bool] | None:
    """The comparison of a right value with a left one, of which, and whether nan is best, where all of the right is
    taken and not the left.
    """
    made: dict[Atom, Expression] = {target: one.expression for one in body.statements for target in one.targets}
    chosen = {_choice(made, result, x, y) for result, x, y in zip(body.results, left, right, strict=True)}
    choice = chosen.pop()
    if chosen or choice is None:
        return None
    condition, takes_right = choice
    beside = _beside_nan(made, condition, left, right) if takes_right else None
    match made.get(beside[0] if beside else condition):
        case nodes.Apply(operator, (one, other)) if operator in _MIRRORED:
            if one in left and other in right:
                operator, one, other = _MIRRORED[operator], other, one
            if one not in right or other not in left or right.index(one) != left.index(other):
                return None
            if not takes_right:
                operator = "" if one.type.element.is_float else _OTHERWISE.get(operator, "")
            place = right.index(one)
            fits = operator in _STRICT and (beside is None or beside[1] == place)
            return (operator, place, beside is not None) if fits else None
    return None


def _beside_nan(
    made: dict[Atom, Expression], condition: Atom, left: Sequence[Variable], right: Sequence[Variable]
) -> tuple[Atom, int] | None:
    """The comparison in "a == a and (comparison or b != b)", the parts in any order, and which values a and b are."""
    match made.get(condition):
        case nodes.Apply("and", parts):
            for number, rest in (parts, parts[::-1]):
                match made.get(number), made.get(rest):
                    case nodes.Apply("eq", (a, also_a)), nodes.Apply("or", either) if a == also_a and a in left:
                        for comparison, nan in (either, either[::-1]):
                            if made.get(nan) == nodes.Apply("ne", (b := right[left.index(a)], b)):
                                return comparison, left.index(a)
    return None


def _choice(made: dict[Atom, Expression], result: Atom, x: Variable, y: Variable) -> tuple[Atom, bool] | None:
    """The condition under which a result is y, x otherwise (True), or the other way round (False)."""
    expression = made.get(result)
    match expression:
        case nodes.Apply("select", (condition, yes, no)):
            pass
        case nodes.If(condition, Body((), thens), Body((), others)):
            places = [key for key, one in made.items() if one is expression]
            yes, no = thens[places.index(result)], others[places.index(result)]
        case _:
            return None
    return (condition, True) if (yes, no) == (y, x) else (condition, False) if (yes, no) == (x, y) else None
