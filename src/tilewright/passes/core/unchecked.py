"""Programs whose indices are not checked."""

from __future__ import annotations

import dataclasses

from tilewright.ir.nodes import Body, Expression, Index, Program, Slice, Update
from tilewright.ir.traversal import replace_bodies


def without_checks(program: Program) -> Program:
    """The same program, in which no kernel checks an index; its author answers for their being in range.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> program = parse_program("def first (xs: [n]f32) = let (x: f32) = xs[0i64] in (x)")
        >>> without_checks(program).body.statements[0].expression.checked
        False
    """
    return dataclasses.replace(program, body=_body(program.body))


def _body(body: Body) -> Body:
    statements = tuple(dataclasses.replace(one, expression=_expression(one.expression)) for one in body.statements)
    return dataclasses.replace(body, statements=statements)


def _expression(expression: Expression) -> Expression:
    if isinstance(expression, Index | Slice | Update):
        return dataclasses.replace(expression, checked=False)
    return replace_bodies(expression, _body)
