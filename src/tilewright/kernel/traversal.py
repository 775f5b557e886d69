"""What a kernel is made of: the parts of its expressions and statements, and all of its statements.

Parts are found by the types of the fields, so that a new kind of node is walked as the others are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

from tilewright.kernel.ir import Expression, Load, Name, Statement

_EXPRESSIONS: dict[type, tuple[str, ...]] = {}
_BODIES: dict[type, tuple[str, ...]] = {}
"""The fields of each class that hold expressions, and those that hold statements, known after the first question."""


def expressions(node: Expression | Statement) -> tuple[Expression, ...]:
    """The expressions directly inside an expression or a statement."""
    names = _EXPRESSIONS.get(type(node))
    if names is None:
        names = _EXPRESSIONS[type(node)] = _fields_of(type(node), "Expression")
    found: list[Expression] = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, tuple):
            found += value
        elif value is not None:
            found.append(value)
    return tuple(found)


def bodies(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The statement lists directly inside a statement."""
    return tuple([getattr(statement, name) for name in _body_names(type(statement))])


def with_bodies(statement: Statement, inner: tuple[tuple[Statement, ...], ...]) -> Statement:
    """The statement with other statement lists directly inside, in the order of `bodies`."""
    changes: dict[str, Any] = dict(zip(_body_names(type(statement)), inner, strict=True))
    return replace(statement, **changes) if changes else statement


def _body_names(kind: type) -> tuple[str, ...]:
    names = _BODIES.get(kind)
    if names is None:
        names = _BODIES[kind] = _fields_of(kind, "Statement")
    return names


def _fields_of(kind: type, part: str) -> tuple[str, ...]:
    """The fields of a class whose types mention a part, in order."""
    return tuple(one.name for one in fields(kind) if part in str(one.type))


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements, outside in, in program order."""
    for statement in body:
        yield statement
        for name in _body_names(type(statement)):
            yield from walk(getattr(statement, name))


def parts(whole: Iterable[Expression]) -> Iterator[Expression]:
    """Expressions and all that they consist of, outside in."""
    pending = [*whole][::-1]
    while pending:
        one = pending.pop()
        yield one
        pending += expressions(one)[::-1]


def expressions_in(body: Iterable[Statement]) -> Iterator[Expression]:
    """All expressions of statements and of those inside them."""
    return parts([one for statement in walk(tuple(body)) for one in expressions(statement)])


def depends_on(expression: Expression, names: Collection[str]) -> bool:
    """Whether an expression reads memory, or one of these names."""
    return any(isinstance(one, Load) or (isinstance(one, Name) and one.name in names) for one in parts([expression]))
