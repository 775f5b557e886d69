"""Flattening of what only reorders elements: a nest around a view is a view of the whole array [S2].

Each rule takes the innermost level off a nest; what is left is flattened in turn, until the view stands outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from tilewright.ir.nodes import (
    Atom,
    Body,
    Concat,
    Copy,
    Expression,
    Map,
    Rearrange,
    Replicate,
    Reshape,
    Slice,
    SliceDimension,
    Statement,
    Type,
    Variable,
)
from tilewright.ir.sizes import ZERO
from tilewright.rewrite.names import mentioned
from tilewright.rewrite.rule import Declined, Place, no_match, rule
from tilewright.rewrite.rules.flatten_distribute import INSIDE, is_product_of_sizes
from tilewright.rewrite.rules.flatten_nest import (
    Nest,
    NestLevel,
    inner_level,
    nest_of,
    without_unused,
    write_nest,
)
from tilewright.rewrite.rules.hoisting import can_fail

Kind = TypeVar("Kind", bound=Expression)
Outside: TypeAlias = Callable[[Kind, NestLevel], Expression | None]


def _row(level: NestLevel, atom: Atom) -> Variable | None:
    """The array that an innermost parameter is a row of."""
    for parameter, array in zip(level.parameters, level.arrays, strict=True):
        if isinstance(atom, Variable) and parameter.name == atom.name:
            return array
    return None


def _peel(at: Place, kind: type[Kind], outside: Outside[Kind], permutation: tuple[int, ...] = ()) -> Body | Declined:
    """One level less around what `outside` makes of the view, which is then rearranged if a permutation is given."""
    if inner_level(at) is None:
        return INSIDE
    nest = nest_of(at.statement)
    if nest.sole is None or not isinstance(nest.sole.expression, kind):
        return no_match(f"the nest is not around a {kind.__name__.lower()} alone")
    level, view = nest.levels[-1], nest.sole.expression
    own = {one.name for one in level.parameters}
    if not mentioned((view, *(one.type for one in nest.sole.targets))).isdisjoint(nest.varying - own):
        return Declined("what is taken varies along an outer dimension of the nest")
    if isinstance(view, Replicate):
        if not is_product_of_sizes(view.count, at):
            return Declined(f"the count {view.count} is not known to be at least 0, nor the nest to have a point")
    elif can_fail(view):
        return Declined("it could fail, and it is not certain that the nest has any point")
    expression = outside(view, level)
    if expression is None:
        return no_match("not all that is taken are rows of the innermost dimension")
    targets = at.statement.targets
    if len(nest.levels) > 1:
        targets = tuple(Variable(at.names(one.name), one.type.array_of(level.width)) for one in nest.sole.targets)
    statements = [Statement(targets, expression)]
    if permutation:
        (target,) = targets
        rank = range(len(permutation), target.type.rank)
        shape = target.type.shape
        whole = (*permutation, *rank)
        before = Variable(at.names(target.name), Type(target.type.element, tuple(shape[d] for d in whole)))
        statements = [Statement((before,), expression), Statement(targets, Rearrange(before, whole))]
    body = Body(tuple(statements), targets)
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


@rule("flattening", Map)
def flatten_slice(at: Place) -> Body | Declined:
    """S, <x in y> of width n |- x[a : b, ...]  =>  S |- y[0 : n, a : b, ...], if that is in range for certain"""

    def outside(view: Slice, level: NestLevel) -> Expression | None:
        array = _row(level, view.array)
        return Slice(array, (SliceDimension(ZERO, level.width), *view.dimensions)) if array else None

    return _peel(at, Slice, outside)


@rule("flattening", Map)
def flatten_concat(at: Place) -> Body | Declined:
    """S, <x1, x2 in y1, y2> |- concat d x1 x2  =>  S |- concat (d + 1) y1 y2"""

    def outside(view: Concat, level: NestLevel) -> Expression | None:
        arrays = tuple(array for one in view.arrays if (array := _row(level, one)) is not None)
        return Concat(view.axis + 1, arrays) if len(arrays) == len(view.arrays) else None

    return _peel(at, Concat, outside)


@rule("flattening", Map)
def flatten_copy(at: Place) -> Body | Declined:
    """S, <x in y> |- copy x  =>  S |- copy y"""

    def outside(view: Copy, level: NestLevel) -> Expression | None:
        array = _row(level, view.array)
        return Copy(array) if array else None

    return _peel(at, Copy, outside)


@rule("flattening", Map)
def flatten_replicate(at: Place) -> Body | Declined:
    """S, <x in y> |- replicate k x  =>  S |- rearrange (1, 0) (replicate k y), for k made of the program's sizes"""

    def outside(view: Replicate, level: NestLevel) -> Expression | None:
        array = _row(level, view.value)
        return Replicate(view.count, array) if array else None

    return _peel(at, Replicate, outside, permutation=(1, 0))
