"""Which names a node mentions, binds and where they are used, remembered on the (immutable) nodes themselves.

Rules ask these questions at every site of a program over and over; a rewrite leaves most of a program's nodes as they
are, so an answer that is kept with its node is still right afterwards. Only nodes touched by a rewrite are looked at
again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Program, Statement, Type, Variable
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import Size, size
from tilewright.ir.traversal import bodies_of, bound_variables, fields_of

Node = TypeVar("Node")
Result = TypeVar("Result")
_NOTHING: frozenset[str] = frozenset()
_BIND_NOTHING = (Variable, Literal, Type, Size, ScalarType)


def _fields(node: object) -> tuple[str, ...]:
    return fields_of(type(node))


def _remember(node: Any, key: str, answer: Result) -> Result:
    node.__dict__[key] = answer  # beside the fields: equality, hashing and printing do not see it
    return answer


def mentioned(node: object) -> frozenset[str]:
    """Every name that occurs anywhere in a node, in sizes and types too (like `traversal.mentioned_names`)."""
    if isinstance(node, tuple):
        return _NOTHING.union(*map(mentioned, node)) if node else _NOTHING
    if isinstance(node, Size):
        return node.names
    if not _fields(node) or isinstance(node, Literal | ScalarType):
        return _NOTHING
    known: frozenset[str] | None = node.__dict__.get("_mentioned")
    if known is not None:
        return known
    if isinstance(node, Variable):
        names = frozenset((node.name,))
        return _remember(node, "_mentioned", names.union(mentioned(node.type)) if node.type.shape else names)
    parts = (mentioned(getattr(node, name)) for name in _fields(node))
    return _remember(node, "_mentioned", _NOTHING.union(*parts))


def bound(node: object) -> frozenset[str]:
    """Every name bound anywhere inside a node (like `traversal.bound_variables`)."""
    if isinstance(node, tuple):
        return _NOTHING.union(*map(bound, node)) if node else _NOTHING
    if isinstance(node, _BIND_NOTHING) or not _fields(node):
        return _NOTHING
    known: frozenset[str] | None = node.__dict__.get("_bound")
    if known is not None:
        return known
    match node:
        case Statement(targets=binders):
            names = frozenset(one.name for one in binders)
        case Lambda(parameters=binders) | nodes.Loop(parameters=binders) | Program(parameters=binders):
            names = frozenset(one.name for one in binders)
        case nodes.ForLoop(index=index):
            names = frozenset((index.name,))
        case nodes.SegSpace(dimensions=dimensions):
            names = frozenset(index.name for index, _ in dimensions)
        case _:
            names = _NOTHING
    return _remember(node, "_bound", names.union(*(bound(getattr(node, name)) for name in _fields(node))))


def used(statement: Statement) -> frozenset[str]:
    """The names that a statement takes from outside itself."""
    known: frozenset[str] | None = statement.__dict__.get("_used")
    if known is not None:
        return known
    types = mentioned(tuple(one.type for one in statement.targets))
    return _remember(statement, "_used", (mentioned(statement.expression) | types) - bound(statement))


def users(body: Body) -> Mapping[str, tuple[int, ...]]:
    """For each name, the statements of a body that use it, by index; len(body.statements) stands for the results."""
    known: Mapping[str, tuple[int, ...]] | None = body.__dict__.get("_users")
    if known is not None:
        return known
    found: dict[str, list[int]] = {}
    for index, statement in enumerate(body.statements):
        for name in used(statement):
            found.setdefault(name, []).append(index)
    for name in mentioned(body.results):
        found.setdefault(name, []).append(len(body.statements))
    return _remember(body, "_users", {name: tuple(where) for name, where in found.items()})


def definitions(body: Body) -> Mapping[str, int]:
    """For each name that a body's statements bind, the statement's index."""
    known: Mapping[str, int] | None = body.__dict__.get("_definitions")
    if known is not None:
        return known
    found = {one.name: index for index, statement in enumerate(body.statements) for one in statement.targets}
    return _remember(body, "_definitions", found)


def alike(body: Body, statement: Statement) -> Sequence[int]:
    """The statements of a body, by index, with the same kind of expression over the same names.

    Those with bodies of their own are found without the names of the others, which for a large nest are many, and have
    changed whenever anything in it has.
    """
    known: tuple[dict[Hashable, list[int]], dict[type, list[int]]] | None = body.__dict__.get("_alike")
    if known is None:
        plain: dict[Hashable, list[int]] = {}
        nests: dict[type, list[int]] = {}
        for index, one in enumerate(body.statements):
            kind = type(one.expression)
            if bodies_of(one.expression):
                nests.setdefault(kind, []).append(index)
            else:
                plain.setdefault((kind, used(one)), []).append(index)
        known = _remember(body, "_alike", (plain, nests))
    kind = type(statement.expression)
    if not bodies_of(statement.expression):
        return known[0].get((kind, used(statement)), ())
    return known[1].get(kind, ())


def expression_key(expression: Expression | Lambda | Literal) -> Hashable:
    """A value that is equal for two expressions exactly if they differ in the names bound inside them only.

    It tells 0.0 from -0.0, which == on literals does not. Functions are to have parameters of the same types.
    """
    known: Hashable | None = expression.__dict__.get("_key")
    if known is not None:
        return known
    inside = [one.name for one in bound_variables(expression)] if bodies_of(expression) else []
    numbers = {name: f"#{number}" for number, name in enumerate(inside)}
    sizes = {name: size(new) for name, new in numbers.items()}

    def key(node: Any) -> Hashable:
        if isinstance(node, Variable):
            return numbers.get(node.name, node.name)
        if isinstance(node, Literal):
            return (repr(node.value), node.scalar.name)
        if isinstance(node, Size):
            return node.substitute(sizes)
        if isinstance(node, tuple):
            return tuple(map(key, node))
        if isinstance(node, ScalarType):
            return node.name
        if not _fields(node):
            return node  # type: ignore[no-any-return]
        return (type(node).__name__, *(key(getattr(node, name)) for name in _fields(node)))

    return _remember(expression, "_key", key(expression))


def replace_names(node: Node, values: Mapping[str, Atom]) -> Node:
    """`traversal.substitute` of atoms for free names, which leaves every part that mentions none of them untouched."""
    if mentioned(node).isdisjoint(values):
        return node
    sizes = {name: nodes.atom_size(value) for name, value in values.items() if value.type == Type(I64)}

    def visit(one: Any) -> Any:
        if isinstance(one, tuple):
            return tuple(map(visit, one))
        if isinstance(one, Size):
            return one.substitute(sizes)
        if not _fields(one) or mentioned(one).isdisjoint(values):
            return one
        if isinstance(one, Variable):
            value = values.get(one.name)
            return Variable(one.name, visit(one.type)) if value is None else value
        return _changed(one, visit)

    return visit(node)  # type: ignore[no-any-return]


def _changed(node: Any, change: Callable[[Any], Any]) -> Any:
    constructor: Any = type(node)
    return constructor(*(change(getattr(node, name)) for name in _fields(node)))


def with_body(expression: Expression, number: int, body: Body) -> Expression:
    """The expression with another body in place of `bodies_of(expression)[number]`."""
    old = bodies_of(expression)[number]

    def visit(node: Any) -> Any:
        if node is old:
            return body
        if isinstance(node, tuple):
            changed = tuple(map(visit, node))
            return node if all(map(operator.is_, changed, node)) else changed
        if isinstance(node, Variable | Size | Type | Literal | Body) or not _fields(node):
            return node
        parts = [getattr(node, name) for name in _fields(node)]
        changed_parts = [visit(part) for part in parts]
        constructor: Any = type(node)
        return node if all(map(operator.is_, changed_parts, parts)) else constructor(*changed_parts)

    return visit(expression)  # type: ignore[no-any-return]
