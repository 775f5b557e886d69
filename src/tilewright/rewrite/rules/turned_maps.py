"""Maps seen through a rearrangement: what is computed of each element, and folded column by column, is never stored."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Expression, Lambda, Reduction, ScalarCode, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import bound, mentioned
from tilewright.rewrite.names import definitions
from tilewright.rewrite.rule import Declined, Place, no_match, rule

_TURNED = (1, 0)


@rule("fusion", nodes.Rearrange)
def rearrange_map(at: Place) -> Body | Declined:
    """ys = map n (map m f) xs; zs = rearrange (1, 0) ys  =>  zs = map m (map n f) (rearrange (1, 0) xs), if only folds
    of the rows of zs follow

    Each row of zs is then computed where it is folded. Rows that all points of the outer map share become elements,
    and elements that all points of the inner one share become rows.
    """
    rearranged = at.expect(nodes.Rearrange)
    index = definitions(at.body).get(rearranged.array.name)
    producer = None if index is None else at.body.statements[index]
    if index is None or producer is None or not isinstance(producer.expression, nodes.Map):
        return no_match("the array is not computed by a map of the same body")
    nest = producer.expression
    inner = _inner_map(nest)
    if rearranged.permutation != _TURNED or inner is None or len(producer.targets) > 1:
        return no_match("it is no map of maps of functions of numbers")
    if at.uses(rearranged.array.name) != (at.index,):
        return Declined(f"{rearranged.array} is used otherwise than in columns, too")
    if not _is_folded(at):
        return Declined(f"{at.statement.targets[0]} is not only folded row by row")
    turned = _interchanged(at, nest, inner)
    if turned is None:
        return Declined(f"the map that computes {rearranged.array} uses its rows as a whole")
    old = at.body.statements
    return Body((*old[:index], *old[index + 1 : at.index], *turned, *old[at.index + 1 :]), at.body.results)


@rule("fusion", nodes.Rearrange)
def rearrange_gather(at: Place) -> Body | Declined:
    """ys = map n (\\x -> a[f x]) xs; zs = rearrange (1, 0) ys
    =>  js = map n f xs; zs = map m (\\c -> map n (\\j -> a[j, c]) js) (iota m), if only folds of the rows of zs follow

    Inside of a map: rows that it gathers are folded where they lie. Of a whole program's rows there may be so many that
    they are shared out among workers, for which they lie together first.
    """
    rearranged = at.expect(nodes.Rearrange)
    index = definitions(at.body).get(rearranged.array.name)
    producer = None if index is None else at.body.statements[index]
    if at.is_on_host or index is None or producer is None or not isinstance(producer.expression, nodes.Map):
        return no_match("the array is not computed by a map of the same body, which stands in a map")
    nest = producer.expression
    gathered = _gathered(nest)
    if rearranged.permutation != _TURNED or gathered is None:
        return no_match("it is no map of a function that reads a row")
    if at.uses(rearranged.array.name) != (at.index,):
        return Declined(f"{rearranged.array} is used otherwise than in columns, too")
    if not _is_folded(at):
        return Declined(f"{at.statement.targets[0]} is not only folded row by row")
    before = nest.function.body.statements[:-1]
    (target,) = at.statement.targets
    columns, rows = target.type.shape
    places = Variable(at.names(f"{target}.places"), Type(I64, (rows,)))
    place, column = (Variable(at.names(one), Type(I64)) for one in ("place", "column"))
    counted = Variable(at.names("columns"), Type(I64, (columns,)))
    element = Variable(at.names(f"{target}.element"), Type(target.type.element))
    row = Variable(at.names(f"{target}.row"), target.type.row)
    reading = Lambda((place,), Body((Statement((element,), replace(gathered, indices=(place, column))),), (element,)))
    points = Lambda((column,), Body((Statement((row,), nodes.Map(rows, reading, (places,))),), (row,)))
    statements = [
        Statement((counted,), nodes.Iota(columns, I64)),
        Statement((target,), nodes.Map(columns, points, (counted,))),
    ]
    computed = Lambda(nest.function.parameters, Body(before, gathered.indices))
    statements.insert(0, Statement((places,), nodes.Map(rows, computed, nest.arrays)))
    old = at.body.statements
    return Body((*old[:index], *old[index + 1 : at.index], *statements, *old[at.index + 1 :]), at.body.results)


def _gathered(nest: nodes.Map) -> nodes.Index | None:
    """The row of a matrix that is all that a function gives, which computes its number."""
    body = nest.function.body
    *before, last = body.statements or (None,)
    if last is None or body.results != last.targets or not isinstance(last.expression, nodes.Index):
        return None
    index = last.expression
    simple = all(isinstance(one.expression, ScalarCode) for one in before if one is not None)
    outside = index.array.name not in bound(nest.function)
    return index if simple and outside and index.array.type.rank == 2 and len(index.indices) == 1 else None


def _inner_map(nest: nodes.Map) -> nodes.Map | None:
    """The map of a function of numbers that a function of rows is."""
    body = nest.function.body
    if len(body.statements) != 1 or body.results != body.statements[0].targets:
        return None
    inner = body.statements[0].expression
    if not isinstance(inner, nodes.Map) or not mentioned(inner.width).isdisjoint(bound(nest.function)):
        return None
    simple = all(isinstance(one.expression, ScalarCode) for one in inner.function.body.statements)
    return inner if simple and inner.function.body.results[0].type.rank == 0 else None


def _is_folded(at: Place) -> bool:
    """Whether all that uses the array here is a map whose function does nothing but fold its rows, as numbers."""
    (target,) = at.statement.targets
    uses = at.uses(target.name)
    if len(uses) != 1 or uses[0] == len(at.body.statements):
        return False
    consumer = at.body.statements[uses[0]].expression
    if (
        not isinstance(consumer, nodes.Map)
        or target not in consumer.arrays
        or target.name in mentioned(consumer.function)
    ):
        return False
    pairs = zip(consumer.function.parameters, consumer.arrays, strict=True)
    rows = {parameter.name for parameter, array in pairs if array == target}
    body = consumer.function.body
    used = [one.expression for one in body.statements if not mentioned(one.expression).isdisjoint(rows)]
    return mentioned(body.results).isdisjoint(rows) and all(_folds(one, rows) for one in used)


def _folds(expression: Expression, rows: set[str]) -> bool:
    if not isinstance(expression, Reduction) or any(one.type.rank for one in expression.neutral):
        return False
    functions = [expression.combine, *([expression.function] if isinstance(expression, nodes.Redomap) else [])]
    plain = all(isinstance(one.expression, ScalarCode) for each in functions for one in each.body.statements)
    return plain and mentioned((*functions, *expression.neutral)).isdisjoint(rows)


def _interchanged(at: Place, nest: nodes.Map, inner: nodes.Map) -> tuple[Statement, ...] | None:
    """The statements that bind the rearrangement's target by maps the other way round; None if there are none."""
    given = dict(zip(nest.function.parameters, nest.arrays, strict=True))
    if any(one.type.rank and one.name in mentioned(inner.function) for one in given):
        return None
    views: list[Statement] = []
    over: list[tuple[Variable, Variable]] = []  # (parameter, array) of the new outer map
    along: list[tuple[Variable, Variable]] = []  # and of the new inner one
    for parameter, array in zip(inner.function.parameters, inner.arrays, strict=True):
        if array not in given:
            over.append((parameter, array))
            continue
        whole = given[array]
        element, (rows, columns) = whole.type.element, whole.type.shape
        view = Variable(at.names(f"{whole}.turned"), Type(element, (columns, rows)))
        column = Variable(at.names(f"{whole}.column"), Type(element, (rows,)))
        views.append(Statement((view,), nodes.Rearrange(whole, _TURNED)))
        over.append((column, view))
        along.append((parameter, column))
    along += [(one, array) for one, array in given.items() if one.name in mentioned(inner.function)]
    if not over or not along:
        return None
    function = Lambda(tuple(one for one, _ in along), inner.function.body)
    (target,) = at.statement.targets
    results = (Variable(at.names(f"{target}.row"), target.type.row),)
    points = Statement(results, nodes.Map(nest.width, function, tuple(array for _, array in along)))
    outer = Lambda(tuple(one for one, _ in over), Body((points,), results))
    return (*views, Statement((target,), nodes.Map(inner.width, outer, tuple(array for _, array in over))))
