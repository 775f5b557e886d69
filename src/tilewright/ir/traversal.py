"""Walking and rebuilding programs: free variables, substitution, fresh copies."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tilewright.ir import nodes
from tilewright.ir.cached import remembered
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Program, Statement, Type, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size, size

Node = TypeVar("Node")
_LEAVES = (str, int, float, complex, bool, type(None), Literal)
_NO_BODIES = (*_LEAVES, Variable, Size, Type)
_FIELDS: dict[type, tuple[str, ...]] = {}
_NOTHING: frozenset[str] = frozenset()
_NO_KINDS: frozenset[type] = frozenset()


def rebuild(node: Node, on_variable: Callable[[Variable], Any], on_size: Callable[[Size], Size]) -> Node:
    """A copy of any node (or tuple of nodes) with every variable, binding or use, and every size replaced."""

    def replaced(one: Any) -> Any:
        kind = type(one)
        if kind is Variable:
            return on_variable(one)
        if kind is Size:
            return on_size(one)
        return one if kind is Literal else with_parts(one, replaced)

    return replaced(node)  # type: ignore[no-any-return]


def with_parts(node: Any, change: Callable[[Any], Any]) -> Any:
    """A node, or a tuple of nodes, with each of its parts changed; the same one if none of them changes."""
    kind: Any = type(node)
    if kind is tuple:
        changed = tuple([change(part) for part in node])
        return node if all(map(operator.is_, changed, node)) else changed
    names = fields_of(kind)
    if not names:
        return node
    parts = [getattr(node, name) for name in names]
    fields = [change(part) for part in parts]
    return node if all(map(operator.is_, fields, parts)) else kind(*fields)


def visit(node: object, on_variable: Callable[[Variable], object], on_size: Callable[[Size], object]) -> None:
    """Call these with every variable, binding or use, and with every size outside of a variable's type, in order."""
    kind = type(node)
    if kind is Variable:
        on_variable(node)  # type: ignore[arg-type]
    elif kind is Size:
        on_size(node)  # type: ignore[arg-type]
    elif isinstance(node, tuple):
        for one in node:
            visit(one, on_variable, on_size)
    elif kind is not Literal:
        for name in fields_of(kind):
            visit(getattr(node, name), on_variable, on_size)


def fields_of(kind: type) -> tuple[str, ...]:
    """The names of the fields of a class of nodes, known after the first question; none of other classes."""
    names = _FIELDS.get(kind)
    if names is None:
        found = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        names = _FIELDS[kind] = tuple(one.name for one in found)
    return names


def substitute(node: Node, values: Mapping[str, Atom | Size]) -> Node:
    """Replace free names by atoms, in sizes and types too. Names are unique in a program, so nothing is captured.

    A `Size` may stand for a name that occurs in sizes only (or else must itself be a name or a constant).
    """
    sizes = {
        name: value if isinstance(value, Size) else nodes.atom_size(value)
        for name, value in values.items()
        if isinstance(value, Size) or (value.type.rank == 0 and value.type.element.name == "i64")
    }

    def on_size(one: Size) -> Size:
        return one.substitute(sizes)

    def on_variable(one: Variable) -> Atom:
        value = values.get(one.name)
        if value is None:
            shape = tuple(map(on_size, one.type.shape))
            return one if shape == one.type.shape else Variable(one.name, Type(one.type.element, shape))
        return _size_atom(value, one) if isinstance(value, Size) else value

    return rebuild(node, on_variable, on_size)


def _size_atom(value: Size, used_as: Variable) -> Atom:
    if value.constant is not None:
        return Literal(value.constant, used_as.type.element)
    if len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
        (name,) = value.terms[0][0]
        if isinstance(name, str):
            return Variable(name, used_as.type)
    raise ValueError(f"the size {value} cannot stand for the scalar {used_as}; bind it with SizeValue first")


def sub_bodies(node: object) -> Iterator[Body]:
    """The bodies directly inside an expression (a lambda's body included)."""
    if isinstance(node, Body):
        yield node
    elif isinstance(node, tuple):
        for one in node:
            yield from sub_bodies(one)
    elif not isinstance(node, _NO_BODIES):
        for name in fields_of(type(node)):
            yield from sub_bodies(getattr(node, name))


@remembered
def bodies_of(expression: Expression | Lambda | Literal) -> tuple[Body, ...]:
    """The bodies directly inside an expression, remembered on it."""
    return tuple(sub_bodies(expression))


@remembered
def kinds_of(statement: Statement) -> frozenset[type]:
    """The classes of a statement's expression and of those inside it, remembered on it."""
    expression = statement.expression
    return frozenset((type(expression),)).union(*map(kinds_in, bodies_of(expression)))


@remembered
def kinds_in(body: Body) -> frozenset[type]:
    """The classes of all expressions in a body, remembered on it."""
    return _NO_KINDS.union(*map(kinds_of, body.statements))


def rows_of(expression: object) -> Size | None:
    """How many rows a map, fold, scan, sweep, scatter or histogram goes over; None of other expressions."""
    match expression:
        case nodes.Scatter(indices=indices) | nodes.Hist(indices=indices):
            return indices.type.shape[0]
        case nodes.Map() | nodes.Reduce() | nodes.Scan() | nodes.Redomap() | nodes.Scanomap() | nodes.Sweep():
            return expression.width
    return None


_PLAIN = nodes.ScalarCode | nodes.Index | nodes.If


def is_plain(body: Body) -> bool:
    """Whether a body is code on scalars without loops, which may read elements of arrays."""
    return all(
        isinstance(one.expression, _PLAIN) and all(target.type.rank == 0 for target in one.targets)
        for one in all_statements(body)
    )


def all_statements(body: Body) -> Iterator[Statement]:
    """Every statement, outer before inner, in program order."""
    for statement in body.statements:
        yield statement
        for inner in bodies_of(statement.expression):
            yield from all_statements(inner)


def host_statements(body: Body) -> Iterator[Statement]:
    """The statements of a body that the host runs, also those in its ifs and loops."""
    for one in body.statements:
        yield one
        if isinstance(one.expression, nodes.If | nodes.Loop):
            for inner in bodies_of(one.expression):
                yield from host_statements(inner)


def bound_variables(node: object) -> tuple[Variable, ...]:
    """Every variable bound inside a node: targets, lambda and loop parameters, indices; remembered on the nodes."""
    if isinstance(node, tuple):
        return tuple([variable for one in node for variable in bound_variables(one)])
    return () if isinstance(node, _NO_BODIES) or not fields_of(type(node)) else _bound_inside(node)


@remembered
def _bound_inside(node: object) -> tuple[Variable, ...]:
    inside = [variable for name in fields_of(type(node)) for variable in bound_variables(getattr(node, name))]
    return (*_binds(node), *inside)


def bound(node: object) -> frozenset[str]:
    """The names of `bound_variables`, remembered on the nodes, too."""
    if isinstance(node, tuple):
        return _NOTHING.union(*map(bound, node)) if node else _NOTHING
    return _NOTHING if isinstance(node, _NO_BODIES) or not fields_of(type(node)) else _names_bound(node)


@remembered
def _names_bound(node: object) -> frozenset[str]:
    own = frozenset([one.name for one in _binds(node)])
    return own.union(*(bound(getattr(node, name)) for name in fields_of(type(node))))


def _binds(node: object) -> tuple[Variable, ...]:
    """The variables that a node itself binds."""
    match node:
        case Statement(targets=targets):
            return targets
        case Lambda(parameters=parameters) | nodes.Loop(parameters=parameters) | Program(parameters=parameters):
            return parameters
        case nodes.ForLoop(index=index):
            return (index,)
        case nodes.SegSpace(dimensions=dimensions):
            return tuple(index for index, _ in dimensions)
    return ()


def used_variables(node: object) -> tuple[Variable, ...]:
    """Every occurrence of a variable in a node, bindings included, in order."""
    found: list[Variable] = []
    visit(node, found.append, lambda size: None)
    return tuple(found)


def mentioned(node: object) -> frozenset[str]:
    """Every name that occurs anywhere in a node, in sizes and types too; remembered on the nodes."""
    if isinstance(node, tuple):
        return _NOTHING.union(*map(mentioned, node)) if node else _NOTHING
    if isinstance(node, Size):
        return node.names
    return _names_in(node) if fields_of(type(node)) else _NOTHING


@remembered
def _names_in(node: object) -> frozenset[str]:
    if isinstance(node, Literal | ScalarType):
        return _NOTHING
    own = frozenset((node.name,)) if isinstance(node, Variable) else _NOTHING
    return own.union(*(mentioned(getattr(node, name)) for name in fields_of(type(node))))


def free_names(node: object) -> frozenset[str]:
    """Names that a node uses but does not bind (size names included)."""
    return mentioned(node) - bound(node)


class FreshNames:
    """A supply of names that occur nowhere in the programs it was told of."""

    def __init__(self, *nodes: object) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        for node in nodes:
            self._taken |= mentioned(node)

    def reserve(self, *names: str) -> None:
        """Never give out these names."""
        self._taken.update(names)

    def __call__(self, hint: str) -> str:
        """A new name that resembles `hint`."""
        hint = hint or "v"
        stem = hint.rstrip("0123456789").rstrip("_") or "v"
        if hint not in self._taken:
            self._taken.add(hint)
            return hint
        number = self._counts.get(stem, 0) + 1
        while (name := f"{stem}_{number}") in self._taken:
            number += 1
        self._counts[stem] = number
        self._taken.add(name)
        return name

    def copy(self) -> FreshNames:
        """A supply of the same names, from which this one learns nothing."""
        other = FreshNames()
        other._taken, other._counts = set(self._taken), dict(self._counts)
        return other


def with_fresh_names(node: Node, names: FreshNames) -> Node:
    """A copy in which everything bound inside has a new name."""
    return _rename(node, {one.name: names(one.name) for one in bound_variables(node)})


def canonical(node: Node) -> Node:
    """A copy whose bound names are %0, %1, ... in order of binding: equal for nodes that differ in names only."""
    return _rename(node, {one.name: f"%{position}" for position, one in enumerate(bound_variables(node))})


def _rename(node: Node, renamed: Mapping[str, str]) -> Node:

    def on_size(one: Size) -> Size:
        return one.substitute({old: size(new) for old, new in renamed.items() if old in one.names})

    def on_variable(one: Variable) -> Variable:
        shape = tuple(map(on_size, one.type.shape))
        return Variable(renamed.get(one.name, one.name), Type(one.type.element, shape))

    return rebuild(node, on_variable, on_size)


def replace_bodies(expression: Expression, change: Callable[[Body], Body]) -> Expression:
    """The expression with `change` applied to each body directly inside it."""

    def replaced(node: Any) -> Any:
        if isinstance(node, Body):
            return change(node)
        return node if isinstance(node, _NO_BODIES) else with_parts(node, replaced)

    return replaced(expression)  # type: ignore[no-any-return]
