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
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.passes.items.item_memory import IotaArray, Item
from tilewright.rewrite.best_rows import comparison_in

Fold = nodes.Reduction | nodes.SegRed


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
    found = comparison_in(fold.combine.body, left, right)
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
