"""Rows that are made alike, for the random program generator: each function emits one, or nothing.

Softmax and its logarithm, rows without their mean, rows of length one, and attention: folds of each row, of which the
last functions of the row's elements are made. They are written row by row, or step by step for all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from random_programs.products import literal
from random_programs.scalars import clamp
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size

if TYPE_CHECKING:
    from random_programs.generator import Generator


def _rows(g: Generator, accept: Callable[[Variable], bool]) -> Variable | None:
    """A matrix, or vector of matrices, of floats."""
    return g.choose(
        g.arrays(
            lambda one: (
                one.type.rank in (2, 3) and one.type.element.is_float and g.affordable(*one.type.shape) and accept(one)
            )
        )
    )


def _fold(g: Generator, name: str, row: Variable, write: Callable[[Atom], Atom]) -> Atom:
    """Such a fold of a function of a row's elements."""
    element = row.type.element
    neutral = literal(element, 0.0 if name == "add" else float("-inf"))
    return g.b.redomap(g.b.operator(name, element), neutral, [row], write, g.random.random() < 0.5)


def _mean(g: Generator, row: Variable, write: Callable[[Atom], Atom]) -> Atom:
    """The mean of a function of a row's elements; of none, zero by one more."""
    element = row.type.element
    count = g.b.cast(element, g.b.size_value(row.type.shape[0]))
    total = _fold(g, "add", row, write)
    return g.b.apply("div", total, g.b.apply("max", count, literal(element, 1)))


def _softmax(g: Generator, row: Variable) -> tuple[Atom, Atom]:
    """The greatest element of a row, and the sum of exponentials of how far the others are below it."""
    greatest = _fold(g, "max", row, lambda x: x)
    return greatest, _fold(g, "add", row, lambda x: _exponential(g, x, greatest))


def _exponential(g: Generator, x: Atom, greatest: Atom) -> Atom:
    return g.b.apply("exp", g.b.apply("sub", x, greatest))


def _probability(g: Generator, x: Atom, greatest: Atom, total: Atom) -> Atom:
    return g.b.apply("div", _exponential(g, x, greatest), total)


def _surprise(g: Generator, x: Atom, greatest: Atom, total: Atom) -> Atom:
    return g.b.apply("sub", g.b.apply("sub", x, greatest), g.b.apply("log", total))


def _moments(g: Generator, row: Variable) -> tuple[Atom, Atom]:
    """The mean and the variance of a row."""
    mean = _mean(g, row, lambda x: x)

    def square(x: Atom) -> Atom:
        gap = g.b.apply("sub", x, mean)
        return g.b.apply("mul", gap, gap)

    return mean, _mean(g, row, square)


def _standard(g: Generator, x: Atom, mean: Atom, variance: Atom) -> Atom:
    root = g.b.apply("sqrt", g.b.apply("add", variance, literal(variance.type.element, 0.5)))
    return g.b.apply("div", g.b.apply("sub", x, mean), root)


_WAYS: tuple[tuple[Callable[..., tuple[Atom, Atom]], Callable[..., Atom]], ...] = (
    (_softmax, _probability), (_softmax, _surprise), (_moments, _standard),
)  # fmt: skip


def emit_alike_rows(g: Generator) -> None:
    """Two folds of each row, and a function of both of each of its elements."""
    rows = _rows(g, lambda one: True)
    if rows is None:
        return
    folds, each = g.random.choice(_WAYS)

    def of_row(row: Variable) -> Atom:
        if row.type.rank > 1:
            return g.b.map([row], of_row)
        found = folds(g, row)
        return g.b.map([row], lambda x: each(g, x, *found))

    if rows.type.rank == 3 or g.random.random() < 0.5:
        result = g.b.map([rows], of_row)
    else:
        first, second = g.b.map_many([rows], lambda row: folds(g, row))
        result = g.b.map([rows, first, second], lambda row, p, q: g.b.map([row], lambda x: each(g, x, p, q)))
    _keep(g, result)


def emit_attention(g: Generator) -> None:
    """For each row the mean of values, weighted by the softmax of the row's products with keys."""
    queries = _rows(g, lambda one: one.type.rank == 2)
    if queries is None:
        return
    element, (outer, inner) = queries.type.element, queries.type.shape
    keys = _matrix(g, element, lambda one: one.type.shape[1] == inner)
    values = _matrix(g, element, lambda one: one.type.shape[0] == keys.type.shape[0]) if keys is not None else None
    if keys is None or values is None or not _few(g, outer, keys.type.shape[0], inner + values.type.shape[1]):
        return
    if not g.affordable(outer, values.type.shape[1]):
        return
    columns, zero = g.b.rearrange(values, (1, 0)), literal(element, 0)
    causal = g.random.random() < 0.4
    places = g.b.bind(nodes.Iota(outer))
    ranks = g.b.bind(nodes.Iota(keys.type.shape[0]))

    def dot(x: Variable, y: Variable) -> Atom:
        product, add = lambda p, q: g.b.apply("mul", p, q), g.b.operator("add", element)
        return g.b.redomap(add, zero, [x, y], product, g.random.random() < 0.5)

    def of_query(place: Atom, query: Variable) -> Atom:
        def score(rank: Atom, key: Variable) -> Atom:
            found = clamp(g.b, g.b.apply("mul", dot(query, key), literal(element, 1 / 64)))
            later = g.b.apply("gt", rank, place) if causal else None
            return found if later is None else g.b.apply("select", later, literal(element, float("-inf")), found)

        scores = g.b.map([ranks, keys], score)
        greatest, total = _softmax(g, scores)
        weights = g.b.map([scores], lambda x: _probability(g, x, greatest, total))
        return g.b.map([columns], lambda column: dot(weights, column))

    _keep(g, g.b.map([places, queries], of_query))


def _matrix(g: Generator, element: ScalarType, accept: Callable[[Variable], bool]) -> Variable | None:
    return g.choose(g.arrays(lambda one: one.type.rank == 2 and one.type.element == element and accept(one)))


def _few(g: Generator, *extents: Size) -> bool:
    points = 1
    for one in extents:
        points *= max(1, g.most(one))
    return g.work * points <= g.variety.most_points // 3


def _keep(g: Generator, value: Variable) -> None:
    tamed = g.tame(value)
    assert isinstance(tamed, Variable)
    g.add(tamed)


ROW_STATEMENTS: tuple[Callable[[Generator], None], ...] = (emit_alike_rows, emit_alike_rows, emit_attention)
