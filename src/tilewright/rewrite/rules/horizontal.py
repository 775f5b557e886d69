"""Horizontal fusion: two independent constructs over the same rows become one, which reads the rows once."""

from __future__ import annotations

from tilewright.ir.nodes import Atom, Body, Lambda, Map, Redomap, Reduce, Scanomap, Statement, Variable
from tilewright.rewrite.names import definitions, replace_names, used
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.best_values import found_beside
from tilewright.rewrite.rules.fusion import identity, parallel_statements


@rule("horizontal fusion", Map)
def map_beside_map(at: Place) -> Body | Declined:
    """ys = map f xs; zs = map g xs  =>  ys, zs = map (\\x -> (f x, g x)) xs, if neither needs the other"""
    second = at.expect(Map)
    partner = _partner(at, second, (Map,))
    if isinstance(partner, Declined):
        return partner
    index, place = partner
    statement = at.body.statements[index]
    first = statement.expression
    if not isinstance(first, Map):
        raise TypeError("the partner of a map is a map")
    function, arrays = beside(first.function, first.arrays, second.function, second.arrays)
    fused = Statement(statement.targets + at.statement.targets, Map(first.width, function, arrays))
    return _replace_both(at, index, place, fused)


@rule("horizontal fusion", Reduce, Redomap)
def reduce_beside_reduce(at: Place) -> Body | Declined:
    """y = redomap op a f xs; z = redomap op' b g xs  =>  y, z = redomap (op, op') (a, b) (\\x -> (f x, g x)) xs

    Also where they read different results of one map of scalars, which then fuses with both at once.
    """
    if not isinstance(at.expression, Reduce | Redomap):
        raise TypeError("reduce_beside_reduce is for reductions")
    partner = _partner(at, at.expression, (Reduce, Redomap))
    if isinstance(partner, Declined):
        return partner
    index, place = partner
    statement = at.body.statements[index]
    if not isinstance(statement.expression, Reduce | Redomap):
        raise TypeError("the partner of a reduction is a reduction")
    one, two = _as_redomap(at, statement.expression), _as_redomap(at, at.expression)
    if one.commutative != two.commutative:
        return Declined("one of the two operators is commutative and the other is not")
    m, n, left, right = len(one.neutral), len(two.neutral), statement.targets, at.statement.targets
    targets = (*left[:m], *right[:n], *left[m:], *right[n:])
    redomap = Redomap(one.width, *folds_beside(one, two), one.commutative)
    return _replace_both(at, index, place, Statement(targets, redomap))


def _as_redomap(at: Place, expression: Reduce | Redomap) -> Redomap:
    if isinstance(expression, Redomap):
        return expression
    function = identity(at, expression.arrays)
    return Redomap(
        expression.width, expression.combine, expression.neutral, function, expression.arrays, expression.commutative
    )


def both(one: Lambda, two: Lambda) -> Lambda:
    """Two operators side by side: (a, b) op (c, d) = (a op1 c, b op2 d)."""
    m, n = len(one.parameters) // 2, len(two.parameters) // 2
    parameters = (*one.parameters[:m], *two.parameters[:n], *one.parameters[m:], *two.parameters[n:])
    return Lambda(parameters, Body(one.body.statements + two.body.statements, one.body.results + two.body.results))


def beside(
    one: Lambda, arrays: tuple[Variable, ...], two: Lambda, others: tuple[Variable, ...]
) -> tuple[Lambda, tuple[Variable, ...]]:
    """The functions side by side over the arrays of both, each read once."""
    parameters, read = list(one.parameters), list(arrays)
    values: dict[str, Atom] = {}
    known = {array.name: parameter for parameter, array in zip(parameters, read, strict=True)}
    for parameter, array in zip(two.parameters, others, strict=True):
        if array.name in known:
            values[parameter.name] = known[array.name]
        else:
            known[array.name] = parameter
            parameters.append(parameter)
            read.append(array)
    second = replace_names(two.body, values)
    body = Body(one.body.statements + second.statements, one.body.results + second.results)
    return Lambda(tuple(parameters), body), tuple(read)


def folds_beside(
    one: Redomap | Scanomap, two: Redomap | Scanomap
) -> tuple[Lambda, tuple[Atom, ...], Lambda, tuple[Variable, ...]]:
    """Two folds of the same rows as one: its operator, neutral elements, function and arrays.

    The function gives the rows that either combines before those that either maps.
    """
    function, arrays = beside(one.function, one.arrays, two.function, two.arrays)
    m, n, k, results = len(one.neutral), len(two.neutral), len(one.function.body.results), function.body.results
    ordered = (*results[:m], *results[k : k + n], *results[m:k], *results[k + n :])
    function = Lambda(function.parameters, Body(function.body.statements, ordered))
    return both(one.combine, two.combine), one.neutral + two.neutral, function, arrays


def _partner(at: Place, second: Map | Reduce | Redomap, kinds: tuple[type, ...]) -> tuple[int, int] | Declined:
    """The earlier statement to fuse with, and where the fused one can stand: at the one's place or at the other's."""
    reads = _rows(at, second)
    declined: Declined | None = None
    for index in range(at.index - 1, -1, -1):
        expression = at.body.statements[index].expression
        if not isinstance(expression, kinds) or not isinstance(expression, Map | Reduce | Redomap):
            continue
        if expression.width != second.width or reads.isdisjoint(_rows(at, expression)):
            continue
        place = _place(at, index)
        names = at.describe_use(index)
        if place is None:
            declined = declined or Declined(f"it needs {names}, or what is computed from that")
        elif _hold_two_nests(expression, second):
            declined = declined or Declined(f"beside {names}, it would make a nest with two constructs inside")
        else:
            return index, place
    return declined or no_match("no earlier construct of this kind reads the same rows")


def _rows(at: Place, reader: Map | Reduce | Redomap) -> set[str]:
    """The arrays whose rows are read; for a fold also those that the same maps of scalars give beside them."""
    names = {array.name for array in reader.arrays}
    if isinstance(reader, Map):
        return names
    bound_at = definitions(at.body)
    for array in reader.arrays:
        if array.name not in bound_at:
            continue
        producer = at.body.statements[bound_at[array.name]]
        if isinstance(producer.expression, Map) and not _holds_parallelism(producer.expression):
            names.update(target.name for target in producer.targets)
    return names


def _holds_parallelism(expression: Map | Reduce | Redomap) -> bool:
    if isinstance(expression, Reduce):
        return False
    return bool(parallel_statements(expression.function.body))


def _hold_two_nests(first: Map | Reduce | Redomap, second: Map | Reduce | Redomap) -> bool:
    """Whether side by side they would hold more than one construct: not if one fold gives what both fold."""
    if not _holds_parallelism(first) and not _holds_parallelism(second):
        return False
    if not isinstance(first, Map) or not isinstance(second, Map):
        return True
    function, _ = beside(first.function, first.arrays, second.function, second.arrays)
    folds = parallel_statements(function.body)
    return len(folds) != 2 or (found_beside(*folds) is None and found_beside(*reversed(folds)) is None)


def _place(at: Place, index: int) -> int | None:
    bound_at = definitions(at.body)
    if all(bound_at.get(name, -1) < index for name in used(at.statement)):
        return index
    needed_before = {use for one in at.body.statements[index].targets for use in at.uses(one.name)}
    return at.index if all(use > at.index for use in needed_before) else None


def _replace_both(at: Place, index: int, place: int, fused: Statement) -> Body:
    old = list(at.body.statements)
    old[place] = fused
    del old[at.index if place == index else index]
    return Body(tuple(old), at.body.results)
