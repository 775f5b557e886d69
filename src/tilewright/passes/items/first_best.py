"""Folds that keep the first of the best rows, such as `argmin`: the order in which partial results are merged.

    (a, i) op (b, j) = (b, j) if b < a else (a, i)        rows (x[k], k)

Rows in their order give the least x that is no nan with its least k, or the neutral element if none is less than that.
So do lanes, each of which folds some of the rows in their order from the neutral element on, if partial results are
merged by

    (a, i) op' (b, j) = (b, j) if b < a or (b == a and j < i) else (a, i)

Proof: what is kept is never nan, since it began as no nan and only what compares less replaces it. So a lane holds its
least row with the least k, or the neutral element and then no row of it is less; op' takes the least of these, of equal
ones that with the least k, and a row never equals the neutral element. An operator that takes (b, j) unless a <= b
keeps a nan that comes: only of integers it is the same.

    (a, i) op (b, j) = (b, j) if a == a and (b < a or b != b) else (a, i)

is NumPy's `argmin`, for which nan is the least of all: the same proof holds with this order in place of <, in which two
nans are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.passes.items.item_memory import IotaArray, Item

Fold = nodes.Reduce | nodes.Redomap | nodes.SegRed
_STRICT, _MIRRORED = {"lt": "gt", "gt": "lt"}, {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_OTHERWISE = {"le": "gt", "ge": "lt"}


@dataclass(frozen=True)
class FirstBest:
    """A fold that keeps the first of the best rows.

    Attributes:
        better: the comparison by which a row replaces what is kept.
        by: which of its values is compared; number: which is the number of the row.
        nan_is_best: nan is best of all.
    """

    combine: Lambda
    better: str
    by: int
    number: int
    nan_is_best: bool

    @property
    def sides(self) -> tuple[Sequence[Variable], Sequence[Variable]]:
        """The parameters: what is kept, and the row."""
        count = len(self.combine.parameters) // 2
        return self.combine.parameters[:count], self.combine.parameters[count:]

    def merging(self) -> Lambda:
        """op' of the proof above."""
        return _operator(self.better, self.by, self.nan_is_best, self.number, *self.sides)

    def counting(self, number: ScalarType) -> Lambda:
        """The operator itself, for rows in their order whose numbers are of another type."""
        left, right = (
            [Variable(one.name, Type(number)) if place == self.number else one for place, one in enumerate(side)]
            for side in self.sides
        )
        made = _Made(left[0])
        kept, row = left[self.by], right[self.by]
        if self.nan_is_best:
            not_better = made("worse", {"gt": "le", "lt": "ge"}[self.better], row, kept)
            taken = made("taken", "and", made("number", "eq", kept, kept), made("comes", "not", not_better))
        else:
            taken = made("taken", self.better, row, kept)
        results = tuple(
            made(f"kept{k}", "select", taken, y, x) for k, (x, y) in enumerate(zip(left, right, strict=True))
        )
        return Lambda((*left, *right), Body(tuple(made.statements), results))


class _Made:
    """Makes statements of operations on variables."""

    def __init__(self, named: Variable) -> None:
        self.named = named
        self.statements: list[Statement] = []

    def __call__(self, name: str, operator: str, *operands: Atom) -> Variable:
        type_ = operands[-1].type if operator == "select" else Type(BOOL)
        target = Variable(f"{self.named}.{name}", type_)
        self.statements.append(Statement((target,), nodes.Apply(operator, operands)))
        return target


def first_best(item: Item, fold: Fold) -> FirstBest | None:
    """What a fold of scalars in a work item keeps; None where the proof above does not hold."""
    count = len(fold.neutral)
    parameters = fold.combine.parameters
    left, right = parameters[:count], parameters[count:]
    found = _comparison(fold.combine.body, left, right)
    if found is None:
        return None
    better, by, nan_is_best = found
    neutral = fold.neutral[by]
    if neutral.type.element.is_float and not (isinstance(neutral, Literal) and not math.isnan(neutral.value.real)):
        return None
    numbers = [place for place in range(count) if place != by and _is_row_number(item, fold, place)]
    if not numbers or any(one.type.element.is_complex for one in parameters):
        return None
    return FirstBest(fold.combine, better, by, numbers[0], nan_is_best)


def _operator(
    better: str, by: int, nan_is_best: bool, number: int, left: Sequence[Variable], right: Sequence[Variable]
) -> Lambda:
    bind = _Made(left[0])
    same = bind("same", "eq", right[by], left[by])
    best = bind("better", better, right[by], left[by])
    if nan_is_best:
        comes, kept = bind("comes", "ne", right[by], right[by]), bind("kept", "ne", left[by], left[by])
        same = bind("alike", "or", same, bind("both", "and", comes, kept))
        best = bind("best", "and", bind("number", "eq", left[by], left[by]), bind("first", "or", best, comes))
    tie = bind("tie", "and", same, bind("sooner", "lt", right[number], left[number]))
    taken = bind("taken", "or", best, tie)
    results = tuple(bind(f"kept{k}", "select", taken, y, x) for k, (x, y) in enumerate(zip(left, right, strict=True)))
    return Lambda((*left, *right), Body(tuple(bind.statements), results))


def _comparison(body: Body, left: Sequence[Variable], right: Sequence[Variable]) -> tuple[str, int, bool] | None:
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


def _is_row_number(item: Item, fold: Fold, place: int) -> bool:
    """Whether a value of the rows is their number."""
    array: Atom | None = None
    match fold:
        case nodes.Reduce(arrays=arrays):
            array = arrays[place]
        case nodes.Redomap(function=function, arrays=arrays):
            result = function.body.results[place]
            array = next((a for p, a in zip(function.parameters, arrays, strict=True) if p == result), None)
        case nodes.SegRed(space=space, body=body):
            row, _ = space.dimensions[-1]
            array = body.results[place]
            if array == row:
                return True
            reads = [one.expression for one in body.statements if one.targets == (array,)]
            array = next((one.array for one in reads if isinstance(one, nodes.Index) and one.indices == (row,)), None)
    return isinstance(array, Variable) and isinstance(item.arrays.get(array.name), IotaArray)
