"""Histograms compute their own bins and values: maps that only they read need no arrays.

This is done when a program is lowered: to the rules of flattening, a histogram in a nest of maps is one whose rows are
all there. So it fires only where the host runs the statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import all_statements, mentioned, with_fresh_names
from tilewright.rewrite.names import definitions, used, users
from tilewright.rewrite.rule import Declined, Place, no_match, rule

_SCALAR = nodes.ScalarCode | nodes.Index


@rule("histogram rows", nodes.Hist)
def hist_concat(at: Place) -> Body | Declined:
    """js = concat is js'; vs = concat us us'; hs = hist ds op ne js vs
    =>  gs = hist ds op ne is us; hs = hist gs op ne js' us', if js and vs are used nowhere else

    The parts then need not be joined in memory, nor stored, if something computes them for this alone.
    """
    hist = at.expect(nodes.Hist)
    if not at.is_on_host:
        return no_match("it is not the host that runs the histogram")
    arrays = (hist.indices, *hist.values)
    joined = [at.definition(one) for one in arrays]
    concats = [one for one in joined if isinstance(one, nodes.Concat) and one.axis == 0]
    if len(concats) < len(joined):
        return no_match("its rows are not joined")
    lengths = {tuple(one.type.shape[0] for one in concat.arrays) for concat in concats}
    if len(lengths) > 1:
        return Declined("its indices are joined of other parts than its values")
    if any(at.uses(one.name) != (at.index,) for one in arrays):
        return Declined("the joined rows are used by others, too")
    statements: list[Statement] = []
    bins = hist.destinations
    for indices, *values in zip(*(one.arrays for one in concats), strict=True):
        targets = tuple(Variable(at.names(one.name), one.type) for one in at.statement.targets)
        part = replace(hist, destinations=bins, indices=indices, values=tuple(values))
        statements.append(with_fresh_names(Statement(targets, part), at.names))
        bins = statements[-1].targets
    statements[-1] = Statement(at.statement.targets, statements[-1].expression)
    gone = {definitions(at.body)[one.name] for one in arrays}
    old = at.body.statements
    kept = [one for k, one in enumerate(old[: at.index]) if k not in gone]
    return Body((*kept, *statements, *old[at.index + 1 :]), at.body.results)


@rule("histogram rows", nodes.Hist)
def hist_map(at: Place) -> Body | Declined:
    """js = map f xs; vs = replicate n v; hs = hist ds op ne js vs  =>  hs = seghist (i < n) ds op ne (f xs[i], v)

    Of maps, replicates and iotas; no work is done twice: a map is taken in if nothing else reads its results.
    """
    if any(one.type.rank for one in at.expect(nodes.Hist).neutral):
        return no_match("its values are arrays")
    return computing_rows(at, is_scalar)


def is_scalar(statement: Statement) -> bool:
    """Whether a statement computes numbers from numbers, or reads one."""
    return isinstance(statement.expression, _SCALAR) and all(target.type.rank == 0 for target in statement.targets)


def computing_rows(at: Place, is_taken: Callable[[Statement], bool]) -> Body | Declined:
    """The body with a seghist in place of the histogram here, in which maps of nothing but statements that are taken
    are done row by row.
    """
    body, index, hist = at.body, at.index, at.expect(nodes.Hist)
    if not at.is_on_host:
        return no_match("it is not the host that runs the histogram")
    bound_at = definitions(body)
    arrays = (hist.indices, *hist.values)
    places = sorted({bound_at[one.name] for one in arrays if one.name in bound_at})
    producers = [body.statements[place] for place in places if _is_taken_in(body, place, index, hist, is_taken)]
    if not producers:
        return no_match("nothing computes its rows for it alone")
    row = Variable(at.names("row"), Type(I64))
    statements: list[Statement] = []
    values: dict[str, Atom] = {}
    for one in producers:
        _take_in(one, row, statements, values)
    for array in arrays:
        if array.name not in values:
            values[array.name] = element = Variable(at.names(f"{array.name}.row"), array.type.row)
            statements.append(Statement((element,), nodes.Index(array, (row,))))
    inside = Body(tuple(statements), tuple(values[one.name] for one in arrays))
    space = nodes.SegSpace(((row, hist.indices.type.shape[0]),))
    expression = nodes.SegHist(nodes.Level.THREAD, space, hist.destinations, hist.combine, hist.neutral, inside)
    fused = Statement(at.statement.targets, expression)
    kept = [*body.statements[:index], fused, *body.statements[index + 1 :]]
    made = {target.name for one in producers for target in one.targets}
    needed = made & (set().union(*(used(one) for one in kept if one not in producers)) | mentioned(body.results))
    gone = [one for one in producers if not any(target.name in needed for target in one.targets)]
    return Body(tuple(one for one in kept if one not in gone), body.results)


def _is_taken_in(
    body: Body, producer: int, consumer: int, hist: nodes.Hist, is_taken: Callable[[Statement], bool]
) -> bool:
    statement = body.statements[producer]
    match statement.expression:
        case nodes.Iota():
            return True
        case nodes.Replicate(value=value):
            return value.type.rank == 0
        case nodes.Map(function=function):
            simple = all(is_taken(one) for one in all_statements(function.body))
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
