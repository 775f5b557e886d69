"""Constructs at computed places, for the random program generator: each function emits one, or nothing.

Histograms and scatters whose places and values are gathered, places of the least and greatest elements as they are
written by hand, stencils of arrays that are moved in rings, sums of records (matrices of a few rows for each point).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from random_programs.loops import rows_of
from random_programs.scalars import clamp, combine_two, random_fold, range_of
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Literal, Type, Variable
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import ONE, ZERO, Size, size

if TYPE_CHECKING:
    from random_programs.generator import Generator

_ONE = nodes.index_literal(1)


def _source(g: Generator, rank: int, accept: Callable[[ScalarType], bool] = lambda _: True) -> Variable | None:
    """An array of so many dimensions of which all elements may be read."""
    return g.choose(
        g.arrays(
            lambda one: (
                one.type.rank == rank
                and accept(one.type.element)
                and g.is_indexable(one.type)
                and g.affordable(*one.type.shape)
            )
        )
    )


def _turned(g: Generator, extent: Size) -> Variable:
    """0, 1, 2, ... in another order: turned over, or the first ones put last."""
    ranks = g.b.bind(nodes.Iota(extent))
    if g.random.random() < 0.5:
        return g.b.bind(nodes.Slice(ranks, (nodes.SliceDimension(extent - 1, extent, -1),)))
    return _rolled(g, ranks, 0)


def _rolled(g: Generator, array: Variable, axis: int) -> Variable:
    """The first element or row of a dimension put last, or the last one first."""
    extent = array.type.shape[axis]
    cuts = (nodes.SliceDimension(ZERO, ONE), nodes.SliceDimension(ONE, extent - 1))
    if g.random.random() < 0.5:
        cuts = (nodes.SliceDimension(ZERO, extent - 1), nodes.SliceDimension(extent - 1, ONE))

    def part(cut: nodes.SliceDimension) -> Variable:
        whole = [nodes.SliceDimension(ZERO, one) for one in array.type.shape]
        whole[axis] = cut
        return g.b.bind(nodes.Slice(array, tuple(whole)))

    first, second = map(part, cuts)
    return g.b.bind(nodes.Concat(axis, (second, first)))


def _keep(g: Generator, value: Variable) -> None:
    tamed = g.tame(value)
    assert isinstance(tamed, Variable)
    g.add(tamed)


def emit_gathered_scatter(g: Generator) -> None:
    """scatter of gathered elements to gathered places, which differ; some of them are out of range."""
    values = _source(g, 1)
    if values is None:
        return
    extent, element = values.type.shape[0], values.type.element
    order, other = _turned(g, extent), _turned(g, extent)
    factor, shift = nodes.index_literal(g.random.choice((1, 1, 2, -1))), nodes.index_literal(g.random.randint(-2, 2))

    def place(i: Variable) -> Atom:
        return g.b.apply("add", g.b.apply("mul", g.b.index(order, i), factor), shift)

    ranks = g.b.bind(nodes.Iota(extent))
    places = g.b.map([ranks], place)
    taken = g.b.map([ranks], lambda i: g.b.index(values, g.b.index(other, i)))
    destinations = g.arrays(lambda one: one.type.rank == 1 and one.type.element == element)
    g.add(g.b.bind(nodes.Scatter(g.random.choice(destinations), places, taken)))


def emit_gathered_histogram(g: Generator) -> None:
    """hist whose bins are given by elements at gathered places, or by a table of bins."""
    values = _source(g, 1)
    table = _source(g, 1, lambda one: one == I64)
    if values is None:
        return
    extent, element = values.type.shape[0], values.type.element
    table = _turned(g, extent) if table is None else table
    bins = g.random.choice(g.arrays(lambda one: one.type.rank == 1 and one.type.element == element))
    operator = random_fold(g.b, g.random, element, accumulating=True)
    entries = g.b.size_value(table.type.shape[0])
    count = g.b.size_value(bins.type.shape[0] + 2)

    def row(i: Variable) -> Sequence[Atom]:
        entry = g.b.index(table, g.b.apply("mod", i, entries))
        bin_ = g.b.apply("sub", g.b.apply("mod", entry, count), nodes.index_literal(1))
        from_end = g.b.apply("sub", g.b.size_value(extent - 1), i)
        return bin_, g.b.index(values, from_end)

    places, taken = g.b.map_many([g.b.bind(nodes.Iota(extent))], row)
    _keep(g, g.b.emit(nodes.Hist((bins,), operator.combine, operator.neutral, places, (taken,)))[0])


def emit_first_best(g: Generator) -> None:
    """argmin or argmax of an array or of each row: the first of the best, by select or by a branch.

    Of floats only where the program is given them: elsewhere roundings decide which of two is less.
    """
    given = g.scopes[0][: g.given]
    sources = [one for one in g.arrays() if one.type.element.is_integer or (one in given and one.type.element.is_float)]
    fits = [one for one in sources if one.type.rank in (1, 2) and g.affordable(*one.type.shape)]
    array = g.choose(fits)
    if array is None:
        return
    element, extent = array.type.element, array.type.shape[-1]
    comparison, branches = g.random.choice(("lt", "gt")), g.random.random() < 0.3
    least, most = range_of(element) if element.is_integer else (float("-inf"), float("inf"))
    worst = Literal(most if comparison == "lt" else least, element)

    def better(x: Variable, i: Variable, y: Variable, j: Variable) -> Sequence[Atom]:
        takes = g.b.apply(comparison, y, x)
        if branches:
            return g.b.cond(takes, lambda: [y, j], lambda: [x, i])
        return g.b.apply("select", takes, y, x), g.b.apply("select", takes, j, i)

    combine = g.b.function([Type(element), Type(I64)] * 2, better, ("x", "i", "y", "j"))
    shift, moves = g.atom(element), element.is_integer and g.random.random() < 0.5

    def best(row: Variable) -> Sequence[Atom]:
        ranks = g.b.bind(nodes.Iota(extent))
        neutral = (worst, nodes.index_literal(-1))
        if not moves:
            return g.b.emit(nodes.Reduce(extent, combine, neutral, (row, ranks)))
        function = g.b.function([Type(element), Type(I64)], lambda v, i: [g.b.apply("add", v, shift), i])
        return g.b.emit(nodes.Redomap(extent, combine, neutral, function, (row, ranks)))

    results = best(array) if array.type.rank == 1 else g.b.map_many([array], best)
    finite = results[1:] if element.is_float else results  # what is least of nothing is infinite
    g.add(*(one for one in finite if isinstance(one, Variable)))


def emit_rolled_stencil(g: Generator) -> None:
    """An array with itself moved on in a ring, along one of its dimensions or both."""
    array = _source(g, g.random.choice((1, 2)))
    if array is None:
        return
    moved = [_rolled(g, array, g.random.randrange(array.type.rank)) for _ in range(g.random.randint(1, 2))]
    element = array.type.element

    def point(*rows: Variable) -> Atom:
        if rows[0].type.rank:
            return g.b.map(rows, point)
        value: Atom = rows[0]
        for one in rows[1:]:
            if element.is_float or element.is_complex:
                value = clamp(g.b, g.b.apply("sub", value, one))
            else:
                value = g.b.apply("xor", value, one)
        return value

    g.add(g.b.map([array, *moved], point))


def emit_records(g: Generator) -> None:
    """For each point a matrix of a few rows, times a vector of a few elements: short sums of what lies together."""
    vector = _source(g, 1, lambda one: one.is_float or one.is_integer)
    points = _source(g, 2, lambda one: one.is_float or one.is_integer)
    if vector is not None and (points is None or g.random.random() < 0.5):
        points = rows_of(g, vector, size(g.random.randint(2, 4)))
    if points is None:
        return
    element, extent, few = points.type.element, points.type.shape[0], points.type.shape[1].constant
    if few is None or not 1 <= few <= 4 or not g.affordable(extent, size(few * few)):
        return
    rows = g.random.randint(2, 3)
    weights = g.b.map(
        [points],
        lambda point: g.b.map(
            [g.b.bind(nodes.Iota(size(rows)))],
            lambda i: g.b.map([point], lambda x: g.b.apply("select", g.b.apply("eq", i, _ONE), x, g.atom(element))),
        ),
    )
    add = g.b.operator("add", element)
    zero = Literal(0 if element.is_integer else 0.0, element)

    def times(matrix: Variable, vector: Variable) -> Atom:
        return g.b.map(
            [matrix], lambda row: g.b.redomap(add, zero, [row, vector], lambda p, q: g.b.apply("mul", p, q), True)
        )

    _keep(g, g.b.map([weights, points], times))


def emit_counted_folds(g: Generator) -> None:
    """Folds of as many rows as is computed, by the program or by each point: that may be fewer than none."""
    array = _source(g, 1)
    if array is None:
        return
    extent, element = array.type.shape[0], array.type.element
    less, of_rows = nodes.index_literal(g.random.randint(-1, 5)), g.random.random() < 0.3
    operator = random_fold(g.b, g.random, element, accumulating=True)
    columns = size(g.random.randint(1, 5))

    def fold(number: Atom, own: Atom) -> Atom:
        count = g.b.apply("sub", number, less)
        entries = g.b.size_value(extent)

        def value(place: Atom) -> Atom:
            read = g.b.index(array, g.b.apply("mod", place, entries))
            return combine_two(g.b, operator.name, read, own) if g.random.random() < 0.5 else read

        def row(i: Variable) -> Atom:
            ranks = g.b.bind(nodes.Iota(columns))
            return g.b.map([ranks], lambda j: value(g.b.apply("add", i, j)))

        if not of_rows:
            values = g.b.map([g.b.bind(nodes.Iota(size(count.name)))], value)
            return g.b.reduce(operator.combine, operator.neutral[0], values, operator.commutative)
        rows = g.b.map([g.b.bind(nodes.Iota(size(count.name)))], row)
        combine = g.b.function(
            [rows.type.row] * 2, lambda p, q: g.b.map([p, q], lambda x, y: combine_two(g.b, operator.name, x, y))
        )
        return g.b.reduce(combine, g.b.bind(nodes.Replicate(columns, operator.neutral[0])), rows, operator.commutative)

    if g.random.random() < 0.7:
        result = g.b.map([g.b.bind(nodes.Iota(extent)), array], fold)
    else:
        result = fold(g.b.apply("mod", g.atom(I64), nodes.index_literal(9)), g.atom(element))  # type: ignore[assignment]
    tamed = g.tame(result)
    if isinstance(tamed, Variable):
        g.add(tamed)


PLACE_STATEMENTS: tuple[Callable[[Generator], None], ...] = (
    emit_gathered_scatter, emit_gathered_histogram, emit_first_best, emit_first_best, emit_rolled_stencil, emit_records,
    emit_counted_folds, emit_counted_folds,
)  # fmt: skip
