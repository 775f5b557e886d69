"""Nests of parallel maps: the dimensions that the points of a kernel have, and the code of one point.

A map that holds nothing but another map (and cheap scalar code before it) is one nest with it; so is a segmented map,
which names its indices.
"""

from __future__ import annotations

from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Expression, Lambda, Statement, Variable
from tilewright.ir.sizes import Size

Level: TypeAlias = tuple[Lambda, tuple[Variable, ...], tuple[Statement, ...]]
"""The function of one map of a nest, its arrays, and its statements before the next map."""

_CHEAP = (
    nodes.Alias, nodes.Apply, nodes.Cast, nodes.SizeValue, nodes.Index, nodes.Slice, nodes.Rearrange, nodes.Iota,
)  # fmt: skip


@dataclass(frozen=True)
class Nest:
    """Parallel dimensions and what is inside.

    Attributes:
        space: the extents, outermost first; known at launch.
        levels: the maps of a nest of maps, outermost first.
        indices: the index variables of a segmented map. One of `levels` and `indices` is empty.
        body: the code of one point.
        order: for each result of `body` the position of the array that it is a part of.
    """

    space: tuple[Size, ...]
    levels: tuple[Level, ...]
    indices: tuple[Variable, ...]
    body: Body
    order: tuple[int | None, ...]


def nest_of(expression: Expression) -> Nest | None:
    """The nest that an expression is, or None.

    Example:
        >>> from tilewright.ir.builder import Builder
        >>> from tilewright.ir.scalars import F32
        >>> b = Builder()
        >>> x = b.variable("x", nodes.array(F32, "n", "m"))
        >>> with_rows = b.map([x], lambda row: b.map([row], lambda e: b.apply("add", e, e)))
        >>> [str(one) for one in nest_of(b.program("f", [x], [with_rows]).body.statements[0].expression).space]
        ['n', 'm']
    """
    if isinstance(expression, nodes.Map):
        return map_nest(expression)
    if isinstance(expression, nodes.SegMap):
        indices = tuple(variable for variable, _ in expression.space.dimensions)
        body = expression.body
        return Nest(expression.space.shape, (), indices, body, tuple(range(len(body.results))))
    return None


def map_nest(expression: nodes.Map) -> Nest:
    """Maps that hold nothing but the next map, and cheap scalar code before it, as one nest."""
    space = [expression.width]
    levels: list[Level] = []
    level = expression
    order: list[int | None] = list(range(len(expression.function.body.results)))
    bound: set[str] = set()
    while True:
        body = level.function.body
        bound |= {variable.name for variable in level.function.parameters}
        bound |= {target.name for statement in body.statements for target in statement.targets}
        inner = _next_level(body, bound)
        if inner is None:
            levels.append((level.function, level.arrays, ()))
            return Nest(tuple(space), tuple(levels), (), body, tuple(order))
        levels.append((level.function, level.arrays, body.statements[:-1]))
        names = [target.name for target in body.statements[-1].targets]
        results = [names.index(str(atom)) for atom in body.results]
        places: list[int | None] = [None] * len(names)
        for outer_position, inner_position in enumerate(results):
            places[inner_position] = order[outer_position]
        order = places
        space.append(inner.width)
        level = inner


def _next_level(body: Body, bound: set[str]) -> nodes.Map | None:
    """The map that a body is, if its points can join those of the map around it."""
    if not body.statements or not isinstance(body.statements[-1].expression, nodes.Map):
        return None
    last = body.statements[-1]
    inner = last.expression
    assert isinstance(inner, nodes.Map)
    names = [target.name for target in last.targets]
    results = [atom.name if isinstance(atom, Variable) else "" for atom in body.results]
    plain = len(set(results)) == len(results) and set(results) <= set(names)
    cheap = all(isinstance(statement.expression, _CHEAP) for statement in body.statements[:-1])
    known = not inner.width.names & bound
    return inner if plain and cheap and known else None
