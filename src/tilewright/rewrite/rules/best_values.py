"""The greatest or least of rows beside its place: both are found by one fold."""

from __future__ import annotations

from tilewright.ir.nodes import Apply, Atom, Body, Iota, Reduce, Statement
from tilewright.rewrite.best_rows import comparison_in
from tilewright.rewrite.names import definitions, used
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.scalars import same_atom

_BETTER = {"max": "gt", "min": "lt"}


@rule("shared folds", Reduce)
def best_beside_its_place(at: Place) -> Body | Declined:
    """y = reduce max a xs; z, k = reduce (first of the greatest) (a, b) xs js  =>  z, k = reduce ... xs js and y := z

    Also of the least. Of floats the place must be that of a nan, if there is one, as `max` then gives nan.
    """
    declined: Declined | None = None
    for index, other in enumerate(at.body.statements):
        value = found_beside(at.statement, other)
        if value is None:
            continue
        if index < at.index:
            return at.bind(value)
        moved = _with_its_numbers(at, index)
        if moved is not None:
            body = at.splice(tuple(at.body.statements[one] for one in moved), (value,))
            behind = {one + len(moved) - 1 for one in moved}
            return Body(tuple(one for k, one in enumerate(body.statements) if k not in behind), body.results)
        declined = Declined(f"{at.describe_use(index)} needs what is computed in between")
    return declined or no_match("no fold beside keeps the first of the same best rows")


def _with_its_numbers(at: Place, index: int) -> list[int] | None:
    """A later fold, after the iotas behind the place that it needs; None if it needs anything else from there."""
    bound_at, old = definitions(at.body), at.body.statements
    needed = [one for name in used(old[index]) if (one := bound_at.get(name, -1)) >= at.index]
    for one in needed:
        early = all(bound_at.get(name, -1) < at.index for name in used(old[one]))
        if not early or not isinstance(old[one].expression, Iota):
            return None
    return [*sorted(set(needed)), index]


def found_beside(best: Statement, other: Statement) -> Atom | None:
    """What another fold keeps that is the greatest or least which this one gives."""
    fold, places = best.expression, other.expression
    if not isinstance(fold, Reduce) or not isinstance(places, Reduce) or len(fold.neutral) != 1:
        return None
    combine, count = fold.combine, len(places.neutral)
    match combine.body.statements:
        case (Statement(targets, Apply(operator, operands)),) if targets == combine.body.results:
            plain = operator in _BETTER and set(operands) == set(combine.parameters)
        case _:
            return None
    sides = places.combine.parameters[:count], places.combine.parameters[count:]
    found = comparison_in(places.combine.body, *sides) if plain and count > 1 else None
    if found is None:
        return None
    better, by, nan_is_best = found
    element = fold.neutral[0].type.element
    same = places.arrays[by] == fold.arrays[0] and same_atom(places.neutral[by], fold.neutral[0])
    fits = better == _BETTER[operator] and nan_is_best == element.is_float and not element.is_complex
    return other.targets[by] if same and fits else None
