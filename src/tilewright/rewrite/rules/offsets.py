"""Folds of rows that lie one after another, written as a scan that starts anew where a row begins."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Statement, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ONE, size
from tilewright.ir.traversal import is_plain, mentioned, with_fresh_names
from tilewright.rewrite.names import definitions, users
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.sweeps import in_place_of, is_scalar_code, made_by


@rule("one pass", nodes.Scan, nodes.Scanomap)
def offset_folds(at: Place) -> Body | Declined:
    """first = scatter (replicate e False) starts True; sums = scan (restarting op) ne (f xs) first;
    ys = map (\\i -> if starts[i+1] > starts[i] then g sums[starts[i+1] - 1] else h) (iota n)  =>
    ys = map (\\i -> if starts[i+1] > starts[i] then g (redomap op f xs[starts[i] : starts[i+1]]) else h) (iota n)
    if `starts` ascends, starts[0] >= 0 and starts[n] <= e; otherwise as it was

    Here (restarting op) (a, f) (b, g) = (if g then b else op a b, f | g).
    """
    body, index, fold = at.body, at.index, at.expression
    assert isinstance(fold, nodes.Scan | nodes.Scanomap)
    if not at.is_on_host:
        return no_match("it is not the host that runs the scan")
    operator = _restarting(fold)
    rows = None if operator is None else _rows(fold)
    uses = {use for one in at.statement.targets for use in at.uses(one.name)}
    if operator is None or rows is None or len(at.statement.targets) != 2 or len(uses) != 1:
        return no_match("it is no scan that starts anew where a flag is set")
    function, arrays, first = rows
    (last,) = uses
    scatter, flags = _defined(body, first)
    if not isinstance(flags, nodes.Scatter) or at.uses(first.name) != (index,) or last >= len(body.statements):
        return no_match("its flags are not set for this scan alone")
    filled, set_at = _defined(body, flags.destination), _defined(body, flags.values)
    if not (_is_filled(filled[1], False) and _is_filled(set_at[1], True)) or flags.indices.type.element != I64:
        return no_match("its flags are not those of offsets")
    reader = body.statements[last]
    outer = reader.expression
    if not isinstance(outer, nodes.Map) or len(outer.arrays) != 1 or not is_plain(outer.function.body):
        return no_match("no map of numbers reads its results")
    numbers = _defined(body, outer.arrays[0])[1]
    result = _result(outer.function, flags.indices, at.statement.targets)
    if not isinstance(numbers, nodes.Iota) or numbers.scalar != I64 or result is None:
        return no_match("what reads its results does not take the last one between two offsets")
    fills = ((filled[0], flags.destination), (set_at[0], flags.values))
    members = {index, scatter, last, *(place for place, one in fills if _alone(body, one))}
    original = Body(tuple(body.statements[place] for place in sorted(members)), reader.targets)
    folds = nodes.OffsetFolds(
        outer.width, fold.width, flags.indices, function, operator, fold.neutral[:1], result, arrays,
        with_fresh_names(original, at.names),
    )  # fmt: skip
    return in_place_of(body, members, Statement(reader.targets, folds))


def _defined(body: Body, array: Variable) -> tuple[int, Expression | None]:
    index = definitions(body).get(array.name, -1)
    return index, body.statements[index].expression if index >= 0 else None


def _alone(body: Body, array: Variable) -> bool:
    return len(users(body).get(array.name, ())) == 1


def _is_filled(expression: Expression | None, value: bool) -> bool:
    return isinstance(expression, nodes.Replicate) and expression.value == Literal(value, BOOL)


def _restarting(fold: nodes.Scan | nodes.Scanomap) -> Lambda | None:
    """The operator that is applied where no row begins."""
    if len(fold.neutral) != 2 or fold.neutral[1] != Literal(False, BOOL):
        return None
    element = fold.neutral[0].type.element
    if element.is_complex or element == BOOL:  # short folds are of real numbers
        return None
    old, before, new, begins = fold.combine.parameters
    value, flag = fold.combine.body.results
    if not isinstance(value, Variable) or not isinstance(flag, Variable):
        return None
    made = made_by(fold.combine.body)
    match made.get(flag):
        case nodes.Apply("or", operands) if set(operands) == {before, begins}:
            pass
        case _:
            return None
    match made.get(value):
        case nodes.Apply("select", (chosen, restart, combined)) if chosen == begins and restart == new:
            statements = tuple(one for one in fold.combine.body.statements if one.targets[0] not in (value, flag))
            inner = Lambda((old, new), Body(statements, (combined,)))
            alien: set[str] = {before.name, begins.name} & mentioned(inner.body)
            return inner if not alien and new.type.rank == 0 and is_scalar_code(inner.body) else None
    return None


def _rows(fold: nodes.Scan | nodes.Scanomap) -> tuple[Lambda, tuple[Variable, ...], Variable] | None:
    """A function of the rows of arrays, and the array of flags."""
    if any(one.type.rank != 1 for one in fold.arrays):
        return None
    if isinstance(fold, nodes.Scan):
        row = Variable(f"{fold.arrays[0]}.row", fold.arrays[0].type.row)
        return Lambda((row,), Body((), (row,))), fold.arrays[:1], fold.arrays[1]
    value, flag, *mapped = fold.function.body.results
    parameters = fold.function.parameters
    if mapped or not isinstance(flag, Variable) or flag not in parameters or not is_plain(fold.function.body):
        return None
    place = parameters.index(flag)
    others = tuple(one for one in parameters if one != flag)
    arrays = tuple(one for k, one in enumerate(fold.arrays) if k != place)
    body = Body(fold.function.body.statements, (value,))
    return None if flag.name in mentioned(body) else (Lambda(others, body), arrays, fold.arrays[place])


def _result(function: Lambda, starts: Variable, scanned: tuple[Variable, ...]) -> Lambda | None:
    """The function of i, starts[i], starts[i+1] and the fold of the rows between."""
    (index,) = function.parameters
    made = made_by(function.body)
    start = _read_at(made, starts, lambda atom: atom == index)
    end = _read_at(made, starts, lambda atom: _is_next(made, atom, index))
    if start is None or end is None:
        return None
    total = Variable(f"{scanned[0].name}.fold", scanned[0].type.row)
    found = False
    statements: list[Statement] = []
    for one in function.body.statements:
        expression = one.expression
        if one.targets in ((start,), (end,)):
            continue
        if isinstance(expression, nodes.If) and made.get(expression.condition) in (
            nodes.Apply("gt", (end, start)), nodes.Apply("lt", (start, end)),
        ):  # fmt: skip
            then = _with_total(expression.then, scanned[0], end, total)
            found = found or then != expression.then
            expression = nodes.If(expression.condition, then, expression.otherwise)
        statements.append(Statement(one.targets, expression))
    body = Body(tuple(statements), function.body.results)
    if not found or any(one.name in mentioned(body) for one in (*scanned, starts)):
        return None
    return Lambda((index, start, end, total), body)


def _read_at(made: Mapping[Atom, Expression], array: Variable, is_place: object) -> Variable | None:
    """What a function reads from an array at a place."""
    assert callable(is_place)
    for target, one in made.items():
        if isinstance(one, nodes.Index) and one.array == array and is_place(one.indices[0]):
            assert isinstance(target, Variable)
            return target
    return None


def _is_next(made: Mapping[Atom, Expression], atom: Atom, index: Variable) -> bool:
    one = made.get(atom)
    following = one == nodes.SizeValue(size(index.name) + ONE)
    return following or one == nodes.Apply("add", (index, Literal(1, I64)))


def _with_total(body: Body, sums: Variable, end: Variable, total: Variable) -> Body:
    """The branch with the fold in place of sums[end - 1]."""
    made = made_by(body)
    statements = []
    for one in body.statements:
        expression = one.expression
        if isinstance(expression, nodes.Index) and expression.array == sums:
            at = made.get(expression.indices[0])
            if at in (nodes.Apply("sub", (end, Literal(1, I64))), nodes.SizeValue(size(end.name) - ONE)):
                expression = nodes.Alias(total)
        statements.append(Statement(one.targets, expression))
    return Body(tuple(statements), body.results)
