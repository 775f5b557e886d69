"""Histograms compute their own bins and values: maps that only they read need no arrays.

    js = map f xs; vs = replicate n v; hs = hist ds op ne js vs
    =>  hs = seghist (i < n) ds op ne (f xs[i], v)

This is done when a program is lowered: to the rules, a histogram in a nest of maps is one whose rows are all there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Hist, Level, SegHist, SegSpace, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import FreshNames, all_statements
from tilewright.rewrite.names import definitions, mentioned, used, users

_SCALAR = nodes.Apply | nodes.Cast | nodes.Alias | nodes.SizeValue | nodes.Index


def with_own_rows(body: Body) -> Body:
    """The body, whose histograms of scalars take in the maps, replicates and iotas that make their rows.

    No work is done twice: a map is taken in if nothing else reads its results.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> program = parse_program('''def f (x: [n]f32, bins: [k]i32) =
        ...   let (at: [n]i64) = map n (\\\\(e: f32) -> let (j: i64) = e as i64 in (j)) x
        ...   let (ones: [n]i32) = replicate n 1i32
        ...   let (h: [k]i32) = hist (bins) (\\\\(a: i32, b: i32) -> let (c: i32) = a + b in (c)) (0i32) at ones
        ...   in (h)''')
        >>> [type(one.expression).__name__ for one in with_own_rows(program.body).statements]
        ['SegHist']
    """
    for index in range(len(body.statements) - 1, -1, -1):
        hist = body.statements[index].expression
        if isinstance(hist, Hist) and not any(one.type.rank for one in hist.neutral):
            fused = _fused(body, index, hist)
            if fused is not None:
                return with_own_rows(fused)
    return body


def _fused(body: Body, index: int, hist: Hist) -> Body | None:
    """The body with the producers of the rows of a histogram inside it; None if it has none."""
    bound_at = definitions(body)
    arrays = (hist.indices, *hist.values)
    places = sorted({bound_at[one.name] for one in arrays if one.name in bound_at})
    producers = [body.statements[at] for at in places if _is_taken_in(body, at, index, hist)]
    if not producers:
        return None
    names = FreshNames(body)
    row = Variable(names("row"), Type(I64))
    statements: list[Statement] = []
    values: dict[str, Atom] = {}
    for one in producers:
        _take_in(one, row, statements, values)
    for array in arrays:
        if array.name not in values:
            values[array.name] = element = Variable(names(f"{array.name}.row"), array.type.row)
            statements.append(Statement((element,), nodes.Index(array, (row,))))
    inside = Body(tuple(statements), tuple(values[one.name] for one in arrays))
    space = SegSpace(((row, hist.indices.type.shape[0]),))
    expression = SegHist(Level.THREAD, space, hist.destinations, hist.combine, hist.neutral, inside)
    fused = Statement(body.statements[index].targets, expression)
    kept = [*body.statements[:index], fused, *body.statements[index + 1 :]]
    made = {target.name for one in producers for target in one.targets}
    needed = made & (set().union(*(used(one) for one in kept if one not in producers)) | mentioned(body.results))
    gone = [one for one in producers if not any(target.name in needed for target in one.targets)]
    return Body(tuple(one for one in kept if one not in gone), body.results)


def _is_taken_in(body: Body, producer: int, consumer: int, hist: Hist) -> bool:
    statement = body.statements[producer]
    match statement.expression:
        case nodes.Iota():
            return True
        case nodes.Replicate(value=value):
            return value.type.rank == 0
        case nodes.Map(function=function):
            simple = all(
                isinstance(one.expression, _SCALAR) and all(target.type.rank == 0 for target in one.targets)
                for one in all_statements(function.body)
            )
            made = {target.name for target in statement.targets}
            alone = all(use == consumer for name in made for use in users(body).get(name, ()))
            return simple and alone and made.isdisjoint(mentioned((hist.combine, hist.neutral, hist.destinations)))
    return False


def _take_in(producer: Statement, row: Variable, statements: list[Statement], values: dict[str, Atom]) -> None:
    """The code that makes one row, and the row's values by the names of the arrays."""
    match producer.expression:
        case nodes.Iota(_, scalar):
            (target,) = producer.targets
            values[target.name] = row
            if scalar != I64:
                element = Variable(f"{target.name}.row", target.type.row)
                statements.append(Statement((element,), nodes.Cast(scalar, row)))
                values[target.name] = element
        case nodes.Replicate(_, value):
            values[producer.targets[0].name] = value
        case nodes.Map(_, function, arrays):
            statements += _rows(function.parameters, arrays, row)
            statements += function.body.statements
            for target, result in zip(producer.targets, function.body.results, strict=True):
                values[target.name] = result


def _rows(parameters: Sequence[Variable], arrays: Sequence[Variable], row: Variable) -> list[Statement]:
    return [
        Statement((parameter,), nodes.Index(array, (row,))) for parameter, array in zip(parameters, arrays, strict=True)
    ]


# --- bins that begin as constants -------------------------------------------------------------------------------------

Fills: TypeAlias = Mapping[str, Atom]
"""The scalar that all elements of an array are, by the array's name."""
NOTHING: Fills = MappingProxyType({})


def without_fills(body: Body, takes: Callable[[Expression], bool]) -> tuple[Body, Fills]:
    """The body without replicates of scalars that are only the given bins or neutral rows of histograms and folds which
    set these themselves; and the scalars that all replicates are full of.

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
    match expression:
        case Hist(indices=indices, values=combined):
            rows: object = (indices, combined)
        case SegHist(body=inner):
            rows = inner
        case nodes.Reduce(arrays=arrays, neutral=neutral) | nodes.Scan(arrays=arrays, neutral=neutral):
            rows = arrays
            if not all(str(one) in values for one in neutral):
                return False
        case _:
            return False
    return takes(expression) and name not in mentioned((expression.combine, rows))


def without_filled(reads: Sequence[Variable], fills: Fills) -> tuple[Variable, ...]:
    """What a statement reads if some of its arrays do not exist: in their place the scalars that they are full of."""
    scalars = (fills[one.name] for one in reads if one.name in fills)
    kept = (one for one in reads if one.name not in fills)
    return tuple(dict.fromkeys((*kept, *(one for one in scalars if isinstance(one, Variable)))))
