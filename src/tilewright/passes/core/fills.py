"""Arrays that are full of one scalar, as bins and neutral elements are: who sets them itself needs no array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Hist, SegHist, Variable
from tilewright.ir.traversal import mentioned
from tilewright.rewrite.names import users

Fills: TypeAlias = Mapping[str, Atom]
"""The scalar that all elements of an array are, by the array's name."""
NOTHING: Fills = MappingProxyType({})


def without_fills(body: Body, takes: Callable[[Expression], bool]) -> tuple[Body, Fills]:
    """The body without replicates of scalars that are only the given bins, neutral rows or destinations of histograms,
    folds and filters which set these themselves; and the scalars that all replicates are full of.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> program = parse_program('''def f (at: [n]i64, x: [n]i32, d: [k]i32) =
        ...   let (bins: [k]i32) = replicate k 7i32
        ...   let (h: [k]i32) = hist (bins) (\\\\(a: i32, b: i32) -> let (c: i32) = a + b in (c)) (0i32) at x
        ...   in (h)''')
        >>> found, fills = without_fills(program.body, lambda expression: True)
        >>> len(found.statements), str(fills["bins"])
        (1, '7i32')
    """
    values: dict[str, Atom] = {}
    for one in body.statements:
        if isinstance(one.expression, nodes.Replicate):
            value = one.expression.value
            if value.type.rank == 0 or str(value) in values:
                values[one.targets[0].name] = values.get(str(value), value)
    gone: set[int] = set()
    for index in range(len(body.statements) - 1, -1, -1):
        name = body.statements[index].targets[0].name
        uses = users(body).get(name, ())
        if name in values and uses and all(use in gone or _only_fills(body, use, name, takes, values) for use in uses):
            gone.add(index)
    kept = tuple(one for index, one in enumerate(body.statements) if index not in gone)
    return (Body(kept, body.results) if gone else body), values


def _only_fills(body: Body, use: int, name: str, takes: Callable[[Expression], bool], values: Fills) -> bool:
    """Whether a statement is such a histogram or fold, and an array nothing but what its bins begin as, or neutral."""
    if use == len(body.statements):
        return False
    expression = body.statements[use].expression
    if isinstance(expression, nodes.Reduce | nodes.Scan) and not all(str(one) in values for one in expression.neutral):
        return False
    if not isinstance(expression, Hist | SegHist | nodes.Sweep | nodes.Reduce | nodes.Scan):
        return False
    return takes(expression) and name not in mentioned((expression.combine, _rows(expression)))


def _rows(expression: Expression) -> object:
    """What an expression reads rows of, unlike bins, neutral rows and destinations."""
    match expression:
        case Hist(indices=indices, values=combined):
            return indices, combined
        case SegHist(body=inner):
            return inner
        case nodes.Sweep(before=before, after=after, arrays=arrays):
            return before, after, arrays
        case nodes.Reduce(arrays=arrays) | nodes.Scan(arrays=arrays):
            return arrays
    return expression


def without_filled(reads: Sequence[Variable], fills: Fills, expression: Expression) -> tuple[Variable, ...]:
    """What an expression reads if some of its arrays do not exist: in their place the scalars that they are full of.

    Its rows do, also those that are full of one scalar.
    """
    rows = mentioned(_rows(expression))
    fills = {name: value for name, value in fills.items() if name not in rows}
    scalars = (fills[one.name] for one in reads if one.name in fills)
    kept = (one for one in reads if one.name not in fills)
    return tuple(dict.fromkeys((*kept, *(one for one in scalars if isinstance(one, Variable)))))
