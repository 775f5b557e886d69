"""Walking and rebuilding programs: free variables, substitution, fresh copies."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Program, Statement, Type, Variable
from tilewright.ir.sizes import Size, size

Node = TypeVar("Node")
_LEAVES = (str, int, float, complex, bool, type(None), Literal)
_NO_BODIES = (*_LEAVES, Variable, Size, Type)
_FIELDS: dict[type, tuple[str, ...]] = {}


def rebuild(node: Node, on_variable: Callable[[Variable], Any], on_size: Callable[[Size], Size]) -> Node:
    """A copy of any node (or tuple of nodes) with every variable, binding or use, and every size replaced."""
    return _rebuild(node, on_variable, on_size)  # type: ignore[no-any-return]


def _rebuild(node: Any, on_variable: Callable[[Variable], Any], on_size: Callable[[Size], Size]) -> Any:
    kind = type(node)
    if kind is Variable:
        return on_variable(node)
    if kind is Size:
        return on_size(node)
    if isinstance(node, tuple):
        return tuple([_rebuild(one, on_variable, on_size) for one in node])
    if not fields_of(kind) or kind is Literal:
        return node
    return _with_fields(node, lambda value: _rebuild(value, on_variable, on_size))


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


def _with_fields(node: Any, change: Callable[[Any], Any]) -> Any:
    kind: Any = type(node)
    fields = [getattr(node, name) for name in fields_of(kind)]
    changed = [change(value) for value in fields]
    return node if all(map(operator.is_, changed, fields)) else kind(*changed)


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


def bodies_of(expression: Expression | Lambda | Literal) -> tuple[Body, ...]:
    """The bodies directly inside an expression, remembered on it: rules ask for them at every site over and over."""
    known: tuple[Body, ...] | None = expression.__dict__.get("_bodies")
    if known is None:
        known = expression.__dict__["_bodies"] = tuple(sub_bodies(expression))
    return known


_PLAIN = nodes.Apply | nodes.Cast | nodes.Alias | nodes.SizeValue | nodes.Index | nodes.If


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


def bound_variables(node: object) -> tuple[Variable, ...]:
    """Every variable bound inside a node: targets, lambda and loop parameters, indices; remembered on the nodes."""
    if isinstance(node, tuple):
        return tuple([variable for one in node for variable in bound_variables(one)])
    names = fields_of(type(node))
    if not names or isinstance(node, _NO_BODIES):
        return ()
    known: tuple[Variable, ...] | None = node.__dict__.get("_bound_variables")
    if known is None:
        inside = [variable for name in names for variable in bound_variables(getattr(node, name))]
        known = node.__dict__["_bound_variables"] = (*_binds(node), *inside)
    return known


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


def mentioned_names(node: object) -> set[str]:
    """Every name that occurs anywhere in a node, in sizes and types too."""
    names: set[str] = set()

    def on_variable(one: Variable) -> None:
        names.add(one.name)
        for extent in one.type.shape:
            names.update(extent.names)

    visit(node, on_variable, lambda size: names.update(size.names))
    return names


def free_names(node: object) -> set[str]:
    """Names that a node uses but does not bind (size names included)."""
    return mentioned_names(node) - {one.name for one in bound_variables(node)}


class FreshNames:
    """A supply of names that occur nowhere in the programs it was told of."""

    def __init__(self, *nodes: object) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}
        for node in nodes:
            self._taken |= mentioned_names(node)

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

    def visit(node: Any) -> Any:
        if isinstance(node, Body):
            return change(node)
        if isinstance(node, tuple):
            return tuple(visit(one) for one in node)
        if isinstance(node, _NO_BODIES) or not fields_of(type(node)):
            return node
        return _with_fields(node, visit)

    return visit(expression)  # type: ignore[no-any-return]
