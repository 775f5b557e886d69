"""Folds of rows that lie one after another, written as a scan that starts anew where a row begins.

    first = scatter (replicate e False) starts True
    sums = scan (\\(a, f) (b, g) -> (if g then b else op a b, f | g)) (f xs) first
    ys = map (\\i -> if starts[i+1] > starts[i] then g sums[starts[i+1] - 1] else h) (iota n)
    =>  ys = map (\\i -> if starts[i+1] > starts[i] then g (redomap op f xs[starts[i] : starts[i+1]]) else h) (iota n),
        if `starts` ascends, starts[0] >= 0 and starts[n] <= e

Whether the offsets do, a kernel finds out first; where they do not, the scan is done as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, Literal, Statement, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ONE, Size, size
from tilewright.ir.traversal import all_statements, is_plain, used_variables
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.rewrite.names import definitions, mentioned, users


@dataclass(frozen=True)
class Offsets:
    """Folds of the rows starts[i] .. starts[i+1]-1 for i < count.

    Attributes:
        arrays, function: what is folded: a function of a row of them (None: the one array itself), `width` rows in all.
        combine, neutral: the operator.
        result: a function of i, starts[i], starts[i+1] and the fold, which gives the values of `targets`.
        original: the statements that say the same for any offsets.
    """

    starts: Variable
    count: Size
    width: Size
    arrays: tuple[Variable, ...]
    function: Lambda | None
    combine: Lambda
    neutral: Atom
    result: Lambda
    targets: tuple[Variable, ...]
    original: tuple[Statement, ...]


def with_offsets(body: Body) -> Iterator[Statement | Offsets]:
    """sums = scan (restarting op) (f xs) (scatter (replicate e False) starts True);
    ys = map (\\i -> g sums[starts[i+1] - 1]) (iota n)
    =>  ys = map (\\i -> g (redomap op f xs[starts[i] : starts[i+1]])) (iota n), if `starts` ascends

    Gives the statements of a body, some of them as folds of rows between offsets.
    """
    found: dict[int, Offsets] = {}
    taken: set[int] = set()
    for index, statement in enumerate(body.statements):
        if isinstance(statement.expression, nodes.Scan | nodes.Scanomap):
            matched = _match(body, index)
            if matched is not None:
                last, members, offsets = matched
                found[last] = offsets
                taken |= members
    for index, statement in enumerate(body.statements):
        if index in found:
            yield found[index]
        elif index not in taken:
            yield statement


def _defined(body: Body, array: Variable) -> tuple[int, nodes.Expression | None]:
    index = definitions(body).get(array.name, -1)
    return index, body.statements[index].expression if index >= 0 else None


def _match(body: Body, scan: int) -> tuple[int, set[int], Offsets] | None:
    """The statement that reads the scan, all statements of the pattern, and what they are."""
    statement = body.statements[scan]
    fold = statement.expression
    assert isinstance(fold, nodes.Scan | nodes.Scanomap)
    operator = _restarting(fold)
    rows = None if operator is None else _rows(fold)
    uses = {use for one in statement.targets for use in users(body).get(one.name, ())}
    if operator is None or rows is None or len(statement.targets) != 2 or len(uses) != 1:
        return None
    function, arrays, first = rows
    (last,) = uses
    scatter, flags = _defined(body, first)
    if not isinstance(flags, nodes.Scatter) or users(body).get(first.name) != (scan,) or last >= len(body.statements):
        return None
    filled, set_at = _defined(body, flags.destination), _defined(body, flags.values)
    if not (_is_filled(filled[1], False) and _is_filled(set_at[1], True)) or flags.indices.type.element != I64:
        return None
    reader = body.statements[last]
    outer = reader.expression
    if not isinstance(outer, nodes.Map) or len(outer.arrays) != 1 or not is_plain(outer.function.body):
        return None
    iota = _defined(body, outer.arrays[0])[1]
    if not isinstance(iota, nodes.Iota) or iota.scalar != I64:
        return None
    result = _result(outer.function, flags.indices, statement.targets)
    if result is None:
        return None
    members = {scan, scatter, last}
    members |= {at for at, one in ((filled[0], flags.destination), (set_at[0], flags.values)) if _alone(body, one)}
    original = tuple(body.statements[at] for at in sorted(members))
    offsets = Offsets(
        flags.indices, outer.width, fold.width, arrays, function, operator, fold.neutral[0], result, reader.targets,
        original,
    )  # fmt: skip
    return last, members, offsets


def _alone(body: Body, array: Variable) -> bool:
    return len(users(body).get(array.name, ())) == 1


def _is_filled(expression: nodes.Expression | None, value: bool) -> bool:
    return isinstance(expression, nodes.Replicate) and expression.value == Literal(value, BOOL)


def _made(body: Body) -> Mapping[Atom, nodes.Expression]:
    return {one.targets[0]: one.expression for one in body.statements if len(one.targets) == 1}


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
    made = _made(fold.combine.body)
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
            return inner if not alien and new.type.rank == 0 and is_vectorisable([inner]) else None
    return None


def _rows(fold: nodes.Scan | nodes.Scanomap) -> tuple[Lambda | None, tuple[Variable, ...], Variable] | None:
    """A function of the rows of arrays, and the array of flags."""
    if any(one.type.rank != 1 for one in fold.arrays):
        return None
    if isinstance(fold, nodes.Scan):
        return None, fold.arrays[:1], fold.arrays[1]
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
    made = _made(function.body)
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


def _read_at(made: Mapping[Atom, nodes.Expression], array: Variable, is_place: object) -> Variable | None:
    """What a function reads from an array at a place."""
    assert callable(is_place)
    for target, one in made.items():
        if isinstance(one, nodes.Index) and one.array == array and is_place(one.indices[0]):
            assert isinstance(target, Variable)
            return target
    return None


def _is_next(made: Mapping[Atom, nodes.Expression], atom: Atom, index: Variable) -> bool:
    one = made.get(atom)
    following = one == nodes.SizeValue(size(index.name) + ONE)
    return following or one == nodes.Apply("add", (index, Literal(1, I64)))


def _with_total(body: Body, sums: Variable, end: Variable, total: Variable) -> Body:
    """The branch with the fold in place of sums[end - 1]."""
    made = _made(body)
    statements = []
    for one in body.statements:
        expression = one.expression
        if isinstance(expression, nodes.Index) and expression.array == sums:
            at = made.get(expression.indices[0])
            if at in (nodes.Apply("sub", (end, Literal(1, I64))), nodes.SizeValue(size(end.name) - ONE)):
                expression = nodes.Alias(total)
        statements.append(Statement(one.targets, expression))
    return Body(tuple(statements), body.results)


def reads_of(offsets: Offsets) -> tuple[Variable, ...]:
    """The arrays and scalars that the folds use."""
    functions = [one for one in (offsets.function, offsets.combine, offsets.result) if one is not None]
    bound = {one.name for function in functions for one in function.parameters}
    bound |= {target.name for f in functions for one in all_statements(f.body) for target in one.targets}
    free = [one for one in used_variables((*functions, offsets.neutral)) if one.name not in bound]
    return tuple(dict.fromkeys((offsets.starts, *offsets.arrays, *free)))
