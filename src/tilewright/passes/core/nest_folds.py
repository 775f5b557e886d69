"""Folds inside a point: a map whose rows are only reduced becomes one fold, whatever its function holds.

Fusion leaves such a pair alone where the map's function holds parallelism of its own (`rewrite/rules/fusion.py`).
Inside a point of a nest that runs in parallel all of it is sequential: there the fold needs no memory for the rows.
"""

from __future__ import annotations

import dataclasses

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Expression, Lambda, Redomap, Reduce, Statement, Variable
from tilewright.ir.traversal import FreshNames, bodies_of, mentioned, replace_bodies
from tilewright.rewrite.names import definitions, used, users
from tilewright.rewrite.rules.fusion import composed
from tilewright.rewrite.rules.horizontal import folds_beside


def with_folds(expression: Expression) -> Expression:
    """The expression with maps fused into the folds of their rows, in all bodies inside it.

    rows = map f xs; y = reduce op a rows; z = reduce op' b rows  =>  y, z = redomap (op, op') (a, b) f xs

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> program = parse_program('''def f (xs: [n][m]f32) =
        ...   let (r: f32) = loop (c: f32) = (0.0f32) for i: i64 < 2 do
        ...     let (rows: [n]f32) = map n (\\\\(x: [m]f32) ->
        ...       let (s: f32) = reduce m (\\\\(a: f32, b: f32) -> let (d: f32) = a + b in (d)) (0.0f32) x in (s)) xs
        ...     let (t: f32) = reduce n (\\\\(a1: f32, b1: f32) -> let (d1: f32) = a1 + b1 in (d1)) (0.0f32) rows
        ...     in (t)
        ...   in (r)''')
        >>> loop = with_folds(program.body.statements[0].expression)
        >>> [type(one.expression).__name__ for one in loop.body.statements]
        ['Redomap']
    """
    if not any(_changed(body) is not body for body in bodies_of(expression)):
        return expression
    return replace_bodies(expression, _changed)


def _changed(body: Body) -> Body:
    statements = tuple(_inside(one) for one in body.statements)
    if any(new is not old for new, old in zip(statements, body.statements, strict=True)):
        body = Body(statements, body.results)
    for index in range(len(body.statements) - 1, -1, -1):
        fused = _fused(body, index)
        if fused is not None:
            return _changed(fused)
    return body


def _inside(statement: Statement) -> Statement:
    expression = with_folds(statement.expression)
    return statement if expression is statement.expression else Statement(statement.targets, expression)


def _fused(body: Body, index: int) -> Body | None:
    """The body with the map at `index` in the folds of its rows, or None."""
    producer = body.statements[index]
    if not isinstance(producer.expression, nodes.Map):
        return None
    places = sorted({use for target in producer.targets for use in users(body).get(target.name, ())})
    if not places or places[-1] == len(body.statements):
        return None
    consumers = [body.statements[place] for place in places]
    if not all(_only_folds(one, producer) for one in consumers):
        return None
    bound_at = definitions(body)
    others = {target.name for one in consumers for target in one.targets}
    needed = set().union(*(used(one) for one in consumers))
    if needed & others or any(bound_at.get(name, -1) >= places[0] for name in needed):
        return None
    fold, targets = _together(consumers)
    function, arrays, _ = composed(producer, fold.function, fold.arrays)
    statement = Statement(targets, dataclasses.replace(fold, function=function, arrays=arrays))
    gone = {index, *places[1:]}
    kept = (statement if at == places[0] else one for at, one in enumerate(body.statements) if at not in gone)
    return Body(tuple(kept), body.results)


def _only_folds(consumer: Statement, producer: Statement) -> bool:
    """Whether a statement is a fold of rows of the producer that reads them in no other way."""
    fold = consumer.expression
    if not isinstance(fold, Reduce | Redomap) or not isinstance(producer.expression, nodes.Map):
        return False
    made = {target.name for target in producer.targets}
    inside = mentioned((fold.combine, fold.neutral, fold.function if isinstance(fold, Redomap) else None))
    return fold.width == producer.expression.width and made.isdisjoint(inside)


def _together(consumers: list[Statement]) -> tuple[Redomap, tuple[Variable, ...]]:
    """Folds side by side as one: the accumulators of all come first."""
    names = FreshNames(*consumers)
    first, *rest = (_as_redomap(one.expression, names) for one in consumers)
    scalars = [one.targets[: len(fold.neutral)] for one, fold in zip(consumers, (first, *rest), strict=True)]
    mapped = [one.targets[len(fold.neutral) :] for one, fold in zip(consumers, (first, *rest), strict=True)]
    for second in rest:
        first = Redomap(first.width, *folds_beside(first, second), first.commutative and second.commutative)
    return first, tuple(target for part in (*scalars, *mapped) for target in part)


def _as_redomap(expression: Expression, names: FreshNames) -> Redomap:
    if isinstance(expression, Redomap):
        return expression
    if not isinstance(expression, Reduce):
        raise TypeError(f"a fold is needed, not a {type(expression).__name__}")
    parameters = tuple(Variable(names(f"{one.name}.row"), one.type.row) for one in expression.arrays)
    identity = Lambda(parameters, Body((), parameters))
    return Redomap(
        expression.width, expression.combine, expression.neutral, identity, expression.arrays, expression.commutative
    )
