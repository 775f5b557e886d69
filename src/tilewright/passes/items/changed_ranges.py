"""Which points of a map give back what they read, by comparisons of their index: the others are a range.

    map (\\i x -> select(i > k & c, f x, x)) iota a:   points 0 .. k are as they were

Where the result is written over `a` (overwriting.py), only points from k + 1 on are computed: round k of an elimination
of n rows then changes n - k rows, as its loops do where a person writes them. (A restriction of the domain as in
[Kelly and Pugh, A unifying framework for iteration reordering transformations, 1995, section 2], here of an operation
that is the identity elsewhere.)

What must hold where an element changes are facts, polynomials that are negative: those of all choices on the way to it.
Of two ways the facts that both have, the weaker one of two that differ by a constant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Expression, Map, Statement, Variable, atom_size
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import bound_variables
from tilewright.passes.items.upper_bounds import defined_size

Facts: TypeAlias = frozenset[Size] | None
"""Polynomials that are all negative where an element changes; None if it never does."""

_NOTHING: frozenset[Size] = frozenset()


@dataclass(frozen=True)
class ChangedRange:
    """Indices from all of `lowest` to all of `highest` may change; others do not.

    Both are indices that may change themselves: i <= m gives m, since m + 1 may be beyond i64. Where computing a bound
    goes beyond it nothing is left out.
    """

    lowest: tuple[Size, ...] = ()
    highest: tuple[Size, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lowest or self.highest)


def changed_range(points: Map, array: Variable, result: int, counted: Collection[str]) -> ChangedRange:
    """What is known of the points of a map that do not give back their own row of an array as a result.

    Args:
        points: the map.
        array: one of its arrays, over which a result is written.
        result: which.
        counted: those of its arrays that are 0, 1, 2, ...

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> text = '''def f (a: [n]f64, is: [n]i64, k: i64) =
        ...   let (b: [n]f64) = map n (\\\\(i: i64, x: f64) ->
        ...     let (late: bool) = i > k
        ...     let (y: f64) = x + 1.0f64
        ...     let (z: f64) = select(late, y, x)
        ...     in (z)) is a
        ...   in (b)'''
        >>> points = parse_program(text).body.statements[0].expression
        >>> found = changed_range(points, points.arrays[1], 0, ["is"])
        >>> print(*found.lowest, found.highest)
        k + 1 ()
    """
    pairs = list(zip(points.function.parameters, points.arrays, strict=True))
    own = next(one for one, whole in pairs if whole == array)
    index = next((one.name for one, whole in pairs if whole.name in counted), None)
    facts = _Changes({}).of_result(points.function.body, result, own) if index is not None else None
    if index is None or facts is None:
        return ChangedRange()
    inside = {one.name for one in bound_variables(points.function)}
    lowest, highest = [], []
    for fact in sorted(facts, key=str):
        linear = fact.coefficient_of(index)
        if linear is not None and inside.isdisjoint(linear[1].names):
            if linear[0].constant == -1:
                lowest.append(linear[1] + 1)
            elif linear[0].constant == 1:
                highest.append(-linear[1] - 1)
    return ChangedRange(tuple(lowest), tuple(highest))


class _Changes:
    def __init__(self, known: Mapping[str, Statement]) -> None:
        self.known = dict(known)

    def of_result(self, body: Body, result: int, own: Variable) -> Facts:
        """The facts of a result of a body whose parameter it may be."""
        inside = _Changes(self.known | {target.name: one for one in body.statements for target in one.targets})
        facts = inside._of(body.results[result], own)
        return facts if facts is None else frozenset(map(inside._resolved, facts))

    def _resolved(self, fact: Size) -> Size:
        for _ in range(100):
            found = {name: defined_size(self.known[name].expression) for name in fact.names if name in self.known}
            values = {name: value for name, value in found.items() if value is not None}
            if not values:
                return fact
            fact = fact.substitute(values)
        return fact

    def _of(self, atom: Atom, own: Variable) -> Facts:
        if not isinstance(atom, Variable):
            return _NOTHING
        if atom.name == own.name:
            return None
        statement = self.known.get(atom.name)
        if statement is None:
            return _NOTHING
        place = [one.name for one in statement.targets].index(atom.name)
        return self._of_expression(statement.expression, place, own)

    def _of_expression(self, expression: Expression, place: int, own: Variable) -> Facts:
        match expression:
            case nodes.Alias(atom):
                return self._of(atom, own)
            case nodes.Apply("select", (condition, yes, no)):
                return _either(
                    _both(self._when(condition, True), self._of(yes, own)),
                    _both(self._when(condition, False), self._of(no, own)),
                )
            case nodes.If(condition, then, otherwise):
                return _either(
                    _both(self._when(condition, True), self.of_result(then, place, own)),
                    _both(self._when(condition, False), self.of_result(otherwise, place, own)),
                )
            case Map(_, function, arrays) if own in arrays:
                row = function.parameters[arrays.index(own)]
                facts = self.of_result(function.body, place, row)
                bound = {one.name for one in bound_variables(function)}
                return facts if facts is None else frozenset(one for one in facts if bound.isdisjoint(one.names))
        return _NOTHING

    def _when(self, condition: Atom, holds: bool) -> frozenset[Size]:
        """What is negative where a condition holds, or does not."""
        statement = self.known.get(str(condition))
        match statement.expression if statement is not None else None:
            case nodes.Apply("lt" | "le" | "gt" | "ge" | "eq" | "ne" as operator, (left, right)) if left.type == _I64:
                return _compared(operator, atom_size(left) - atom_size(right), holds)
            case nodes.Apply("not", (operand,)):
                return self._when(operand, not holds)
            case nodes.Apply("and" | "or" as operator, (left, right)) if left.type == _BOOL:
                one, two = self._when(left, holds), self._when(right, holds)
                return one | two if (operator == "and") == holds else _either(one, two) or _NOTHING
        return _NOTHING


_I64, _BOOL = nodes.Type(I64), nodes.Type(BOOL)
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def _compared(operator: str, difference: Size, holds: bool) -> frozenset[Size]:
    match operator if holds else _OPPOSITE[operator]:
        case "lt":
            return frozenset({difference})
        case "le":
            return frozenset({difference - 1})
        case "gt":
            return frozenset({-difference})
        case "ge":
            return frozenset({-difference - 1})
        case "eq":
            return frozenset({difference - 1, -difference - 1})
    return _NOTHING


def _both(one: frozenset[Size], two: Facts) -> Facts:
    return None if two is None else one | two


def _either(one: Facts, two: Facts) -> Facts:
    """What holds in both cases."""
    if one is None or two is None:
        return two if one is None else one
    weaker = set()
    for fact in one:
        for other in two:
            more = (fact - other).constant
            if more is not None:
                weaker.add(other if more > 0 else fact)
    return frozenset(weaker)
