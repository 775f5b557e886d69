"""Folds that only compare and choose indices carry them in 32 bits: an argmin has as many lanes as its distances have.

    (d, i) = redomap ((d1, i1, d2, i2) -> d1 < d2 | d1 == d2 & i1 < i2 ? (d1, i1) : (d2, i2)) (inf, 2^62) f iota
    =>  the same with i1, i2 and iota of type i32, and i made an i64 again

The indices that occur are the elements of the iota and the neutral element. What is beyond 32 bits of that becomes the
end of the i32: that keeps the order of all of them, and an operator that does no more than compare and choose cannot
tell the difference. The iota's length must be below that end, which is known when the program runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Reduction, Statement, Type, Variable
from tilewright.ir.scalars import BOOL, I32, I64
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import bodies_of, mentioned, replace_bodies
from tilewright.kernel.ir import COMPARISONS

MOST = 2**31 - 1
LEAST = -(2**31)


def with_narrow_indices(expression: Expression) -> tuple[Expression, tuple[Size, ...]]:
    """The expression with narrow indices in the folds inside it, and the extents that must be below `MOST`.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> program = parse_program('''def last (xs: [n][m]f32) =
        ...   let (r: [n]i64) = map n (\\\\(x: [m]f32) ->
        ...     let (is: [m]i64) = iota m i64
        ...     let (i: i64) = reduce m (\\\\(a: i64, b: i64) -> let (c: i64) = max(a, b) in (c)) (-1i64) is
        ...     in (i)) xs
        ...   in (r)''')
        >>> found, extents = with_narrow_indices(program.body.statements[0].expression)
        >>> [str(one.targets[0].type) for one in found.function.body.statements], str(extents[0])
        (['[m]i64', '[m]i32', 'i32', 'i64'], 'm')
    """
    extents: list[Size] = []

    def inside(body: Body) -> Body:
        statements = tuple(
            Statement(one.targets, replace_bodies(one.expression, inside)) if bodies_of(one.expression) else one
            for one in body.statements
        )
        changed: list[Statement] = []
        for one in statements:
            changed += _narrowed(one, statements, extents)
        return Body(tuple(changed), body.results)

    return replace_bodies(expression, inside), tuple(extents)


def _narrowed(statement: Statement, statements: Sequence[Statement], extents: list[Size]) -> list[Statement]:
    fold = statement.expression
    if not isinstance(fold, Reduction):
        return [statement]
    made = {one.targets[0].name: one.expression for one in statements if isinstance(one.expression, nodes.Iota)}
    before: list[Statement] = []
    after: list[Statement] = []
    targets = list(statement.targets)
    for position, neutral in enumerate(fold.neutral):
        taken = _place(fold, position)
        iota = made.get(fold.arrays[taken].name) if taken is not None else None
        compared = _compared(fold.combine, position)
        if taken is None or iota is None or iota.scalar != I64 or compared is None:
            continue
        if not isinstance(neutral, Literal) or not isinstance(neutral.value, int):
            continue
        array, target = fold.arrays[taken], targets[position]
        short = Variable(f"{array}.{target}.narrow", Type(I32, array.type.shape))
        before.append(Statement((short,), nodes.Iota(iota.count, I32)))
        extents.append(iota.count)
        end = min(max(neutral.value, LEAST), MOST)
        fold = _with_types(fold, position, taken, short, Literal(end, I32), compared)
        targets[position] = Variable(f"{target}.narrow", Type(I32))
        after += _widened(target, targets[position], neutral, end)
    return [*before, Statement(tuple(targets), fold), *after]


def _place(fold: Reduction, position: int) -> int | None:
    """The array whose rows are just the values that accumulator number `position` is combined with."""
    if isinstance(fold, nodes.Reduce):
        return position
    result, body = fold.function.body.results[position], fold.function.body
    used = mentioned((body.statements, (*body.results[:position], *body.results[position + 1 :])))
    if result not in fold.function.parameters or str(result) in used:
        return None
    return fold.function.parameters.index(result)


def _compared(combine: Lambda, position: int) -> frozenset[str] | None:
    """The names of the values that come from accumulator number `position` and what it is combined with, if they are
    compared with and chosen from each other only, and end up there only.
    """
    count = len(combine.parameters) // 2
    found = {combine.parameters[position].name, combine.parameters[count + position].name}
    for statement in combine.body.statements:
        operands = statement.expression.operands if isinstance(statement.expression, nodes.Apply) else ()
        of_them = [str(one) in found for one in operands]
        if not any(of_them):
            if not mentioned(statement.expression).isdisjoint(found):
                return None
            continue
        assert isinstance(statement.expression, nodes.Apply)
        operator = statement.expression.operator
        chosen = operator in ("min", "max") and all(of_them)
        chosen = chosen or (operator == "select" and of_them == [False, True, True])
        if not chosen and not (operator in COMPARISONS and all(of_them)):
            return None
        if chosen:
            found.add(statement.targets[0].name)
    results = [str(one) in found for one in combine.body.results]
    return frozenset(found) if results == [number == position for number in range(count)] else None


def _with_types(
    fold: Reduction, position: int, taken: int, array: Variable, neutral: Literal, narrow: frozenset[str]
) -> Reduction:
    def short(one: Variable) -> Variable:
        return Variable(one.name, Type(I32)) if one.name in narrow else one

    def atom(one: Atom) -> Atom:
        return short(one) if isinstance(one, Variable) else one

    def in_statement(one: Statement) -> Statement:
        expression = one.expression
        if isinstance(expression, nodes.Apply):
            expression = nodes.Apply(expression.operator, tuple(map(atom, expression.operands)))
        return Statement(tuple(map(short, one.targets)), expression)

    body = fold.combine.body
    combine = Lambda(
        tuple(map(short, fold.combine.parameters)),
        Body(tuple(map(in_statement, body.statements)), tuple(map(atom, body.results))),
    )
    changed: Reduction = dataclasses.replace(
        fold,
        combine=combine,
        neutral=(*fold.neutral[:position], neutral, *fold.neutral[position + 1 :]),
        arrays=(*fold.arrays[:taken], array, *fold.arrays[taken + 1 :]),
    )
    if isinstance(changed, nodes.Reduce):
        return changed
    function = changed.function
    own = function.parameters[taken]
    parameter = Variable(own.name, Type(I32))
    parameters = tuple(parameter if one == own else one for one in function.parameters)
    results = tuple(parameter if one == own else one for one in function.body.results)
    return dataclasses.replace(changed, function=Lambda(parameters, Body(function.body.statements, results)))


def _widened(target: Variable, short: Variable, neutral: Literal, end: int) -> list[Statement]:
    """The result as an i64 again."""
    if end == neutral.value:
        return [Statement((target,), nodes.Cast(I64, short))]
    wide, is_end = Variable(f"{target}.wide", Type(I64)), Variable(f"{target}.is_end", Type(BOOL))
    return [
        Statement((wide,), nodes.Cast(I64, short)),
        Statement((is_end,), nodes.Apply("eq", (short, Literal(end, I32)))),
        Statement((target,), nodes.Apply("select", (is_end, neutral, wide))),
    ]
