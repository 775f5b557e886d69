"""Where names are used and bound, which expressions are alike, and names replaced; remembered on the nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from tilewright.ir import nodes
from tilewright.ir.cached import remembered
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Statement, Type, Variable
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import Size, size
from tilewright.ir.traversal import bodies_of, bound, bound_variables, fields_of, mentioned, replace_bodies, with_parts

Node = TypeVar("Node")


@remembered
def used(statement: Statement) -> frozenset[str]:
    """The names that a statement takes from outside itself."""
    types = mentioned(tuple(one.type for one in statement.targets))
    return (mentioned(statement.expression) | types) - bound(statement)


@remembered
def users(body: Body) -> Mapping[str, tuple[int, ...]]:
    """For each name, the statements of a body that use it, by index; len(body.statements) stands for the results."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index, names in enumerate((*map(used, body.statements), mentioned(body.results))):
        for name in names:
            found[name].append(index)
    return {name: tuple(where) for name, where in found.items()}


@remembered
def definitions(body: Body) -> Mapping[str, int]:
    """For each name that a body's statements bind, the statement's index."""
    return {one.name: index for index, statement in enumerate(body.statements) for one in statement.targets}


def alike(body: Body, statement: Statement) -> Sequence[int]:
    """The statements of a body, by index, with the same kind of expression over the same names.

    Those with bodies of their own are found by the arrays whose rows they go over alone: the names inside a large nest
    are many, and have changed whenever anything in it has.
    """
    return _by_kind(body).get(_kind_and_names(statement), ())


@remembered
def _by_kind(body: Body) -> dict[Hashable, list[int]]:
    found: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(map(_kind_and_names, body.statements)):
        found[key].append(index)
    return found


@remembered
def _kind_and_names(statement: Statement) -> Hashable:
    expression = statement.expression
    if not bodies_of(expression):
        return type(expression), used(statement)
    return type(expression), tuple([one.name for one in getattr(expression, "arrays", ())])


@remembered
def expression_key(expression: Expression | Lambda | Literal) -> Hashable:
    """A value that is equal for two expressions exactly if they differ in the names bound inside them only.

    It tells 0.0 from -0.0, which == on literals does not. Functions are to have parameters of the same types.
    """
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
        fields = fields_of(type(node))
        return (type(node).__name__, *(key(getattr(node, name)) for name in fields)) if fields else node

    return key(expression)


def replace_names(node: Node, values: Mapping[str, Atom]) -> Node:
    """`traversal.substitute` of atoms for free names, which leaves every part that mentions none of them untouched."""
    if mentioned(node).isdisjoint(values):
        return node
    sizes = {name: nodes.atom_size(value) for name, value in values.items() if value.type == Type(I64)}

    def replaced(one: Any) -> Any:
        if isinstance(one, Size):
            return one.substitute(sizes)
        if not isinstance(one, tuple) and mentioned(one).isdisjoint(values):
            return one
        if isinstance(one, Variable):
            value = values.get(one.name)
            return Variable(one.name, replaced(one.type)) if value is None else value
        return with_parts(one, replaced)

    return replaced(node)  # type: ignore[no-any-return]


def with_body(expression: Expression, number: int, body: Body) -> Expression:
    """The expression with another body in place of `bodies_of(expression)[number]`."""
    old = bodies_of(expression)[number]
    return replace_bodies(expression, lambda one: body if one is old else one)
