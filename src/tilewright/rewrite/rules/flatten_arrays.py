"""Flattening of what only reorders elements: a nest around a view is a view of the whole array [S2].

Each rule takes the innermost level off a nest; what is left is flattened in turn, until the view stands outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from tilewright.ir.nodes import Atom, Body, Expression, Map, Rearrange, Reshape, Statement, Variable
from tilewright.ir.traversal import mentioned
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.flatten_distribute import INSIDE
from tilewright.rewrite.rules.flatten_nest import Nest, NestLevel, inner_level, nest_of, without_unused, write_nest
from tilewright.rewrite.rules.hoisting import can_fail

Kind = TypeVar("Kind", bound=Expression)
Outside: TypeAlias = Callable[[Kind, NestLevel], Expression | None]


def _row(level: NestLevel, atom: Atom) -> Variable | None:
    """The array that an innermost parameter is a row of."""
    for parameter, array in zip(level.parameters, level.arrays, strict=True):
        if isinstance(atom, Variable) and parameter.name == atom.name:
            return array
    return None


def _peel(at: Place, kind: type[Kind], outside: Outside[Kind]) -> Body | Declined:
    """One level less around what `outside` makes of the view."""
    if inner_level(at) is None:
        return INSIDE
    nest = nest_of(at.statement)
    if nest.sole is None or not isinstance(nest.sole.expression, kind):
        return no_match(f"the nest is not around a {kind.__name__.lower()} alone")
    level, view = nest.levels[-1], nest.sole.expression
    own = {one.name for one in level.parameters}
    if not mentioned((view, *(one.type for one in nest.sole.targets))).isdisjoint(nest.varying - own):
        return Declined("what is taken varies along an outer dimension of the nest")
    if can_fail(view):
        return Declined("it could fail, and it is not certain that the nest has any point")
    expression = outside(view, level)
    if expression is None:
        return no_match("what is taken is no row of the innermost dimension")
    targets = at.statement.targets
    if len(nest.levels) > 1:
        targets = tuple(Variable(at.names(one.name), one.type.array_of(level.width)) for one in nest.sole.targets)
    body = Body((Statement(targets, expression),), targets)
    return at.replace(*write_nest(without_unused(Nest(nest.levels[:-1], body)), at.statement.targets, at.names))


@rule("flattening", Map)
def flatten_rearrange(at: Place) -> Body | Declined:
    """S, <x in y> |- rearrange (k1, ..., kn) x  =>  S |- rearrange (0, 1 + k1, ..., 1 + kn) y"""

    def outside(view: Rearrange, level: NestLevel) -> Expression | None:
        array = _row(level, view.array)
        return Rearrange(array, (0, *(1 + one for one in view.permutation))) if array else None

    return _peel(at, Rearrange, outside)


@rule("flattening", Map)
def flatten_reshape(at: Place) -> Body | Declined:
    """S, <x in y> of width n |- reshape (s1, ..., sk) x  =>  S |- reshape (n, s1, ..., sk) y"""

    def outside(view: Reshape, level: NestLevel) -> Expression | None:
        array = _row(level, view.array)
        return Reshape(array, (level.width, *view.shape)) if array else None

    return _peel(at, Reshape, outside)
