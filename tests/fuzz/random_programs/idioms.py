"""Idioms of array programs for the random program generator: several constructs that passes know as one form.

Filters, folds of rows between offsets, sweeps (maps, a scan, maps and scatters of it), stencils of slices, histograms
of rows and in rows, recurrences along rows, loops whose rounds differ between rows, products of matrices, nearest rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from random_programs.scalars import clamp, combine_two, largest_with_place, random_fold
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Literal, Type, Variable
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.ir.sizes import Size, size

if TYPE_CHECKING:
    from random_programs.generator import Generator

_FALSE, _TRUE = Literal(False, BOOL), Literal(True, BOOL)


def _array(g: Generator, rank: int, accept: Callable[[ScalarType], bool] = lambda _: True) -> Variable | None:
    """An array of this rank that may be made again."""
    return g.choose(
        g.arrays(lambda one: one.type.rank == rank and accept(one.type.element) and g.affordable(*one.type.shape))
    )


def _real(element: ScalarType) -> bool:
    return not element.is_complex


def _mixed(g: Generator, x: Atom, y: Atom) -> Atom:
    """Two numbers of a type in one that is tame again."""
    element = x.type.element
    if element == BOOL:
        return g.b.apply("xor", x, y)
    name = g.random.choice(("add", "sub", "mul"))
    return clamp(g.b, g.b.apply(name, x, y))


def _keep(g: Generator, value: Variable) -> None:
    """A sum of floats is cut to the limits before others use it."""
    tamed = g.tame(value)
    assert isinstance(tamed, Variable)
    g.add(tamed)


def _literal(element: ScalarType, value: int) -> Literal:
    if element == BOOL:
        return Literal(bool(value), element)
    return Literal(value if element.is_integer else float(value), element)


def emit_filter(g: Generator) -> None:
    """The rows that a flag picks, one after another: flags, their numbers by a scan, a scatter."""
    values = _array(g, 1)
    if values is None:
        return
    width, element = values.type.shape[0], values.type.element
    flags = g.choose(g.arrays(lambda one: one.type == Type(BOOL, (width,))))
    if flags is None:
        step = nodes.index_literal(g.random.randint(1, 3))
        ranks = g.b.bind(nodes.Iota(width))
        flags = g.b.map([ranks], lambda i: g.b.apply("eq", g.b.apply("mod", i, step), nodes.index_literal(0)))
    ones = g.b.map([flags], lambda flag: g.b.cast(I64, flag))
    numbers = g.b.scan(g.b.operator("add", I64), nodes.index_literal(0), ones)

    def place(flag: Variable, number: Variable) -> Atom:
        return g.b.apply("select", flag, g.b.apply("sub", number, nodes.index_literal(1)), nodes.index_literal(-1))

    places = g.b.map([flags, numbers], place)
    others = g.arrays(lambda one: one.type.rank == 1 and one.type.element == element)
    filled = g.random.random() < 0.6
    for _ in range(g.random.randint(1, 2)):
        destination = g.b.bind(nodes.Replicate(width, g.atom(element))) if filled else g.random.choice(others)
        g.add(g.b.bind(nodes.Scatter(destination, places, values)))
        values = g.b.map([values, flags], lambda x, _: _mixed(g, x, x))
    if g.random.random() < 0.5:
        g.add(g.b.reduce(g.b.operator("add", I64), nodes.index_literal(0), ones))


def emit_offsets(g: Generator) -> None:
    """Folds of the rows between offsets, which ascend or not: a scan that starts anew where a row begins."""
    values = _array(g, 1, _real)
    if values is None:
        return
    width, element = values.type.shape[0], values.type.element
    count = size(g.random.choice(sorted(g.size_names)))
    end = g.b.size_value(width)
    factor = nodes.index_literal(g.random.choice((1, 2, 3)))
    if g.random.random() < 0.7:
        starts = g.b.map(
            [g.b.bind(nodes.Iota(count + 1))], lambda i: g.b.apply("min", g.b.apply("mul", i, factor), end)
        )
    else:
        limit = g.b.size_value(width + 1)
        starts = g.b.map(
            [g.b.bind(nodes.Iota(count + 1))], lambda i: g.b.apply("mod", g.b.apply("mul", i, g.atom(I64)), limit)
        )
    operator = random_fold(g.b, g.random, element, accumulating=True)
    begins = g.b.bind(nodes.Replicate(width, _FALSE))
    first = g.b.bind(nodes.Scatter(begins, starts, g.b.bind(nodes.Replicate(count + 1, _TRUE))))

    def combine(old: Variable, before: Variable, new: Variable, anew: Variable) -> Sequence[Atom]:
        joined = combine_two(g.b, operator.name, old, new)
        return g.b.apply("select", anew, new, joined), g.b.apply("or", before, anew)

    function = g.b.function([Type(element), Type(BOOL)] * 2, combine, ("old", "before", "new", "anew"))
    found, _ = g.b.emit(nodes.Scan(width, function, (operator.neutral[0], _FALSE), (values, first)))

    def row(i: Variable) -> Atom:
        low = g.b.index(starts, i)
        high = g.b.index(starts, g.b.apply("add", i, nodes.index_literal(1)))

        def last() -> Sequence[Atom]:
            return [g.b.index(found, g.b.apply("sub", high, nodes.index_literal(1)))]

        (result,) = g.b.cond(g.b.apply("gt", high, low), last, lambda: [_literal(element, 0)])
        return result

    _keep(g, g.b.map([g.b.bind(nodes.Iota(count))], row))


def emit_sweep(g: Generator) -> None:
    """ys = map f xs; zs = scan op ys; us = map g zs ys xs, and a scatter of that at places that differ."""
    values = _array(g, 1)
    if values is None:
        return
    width, element = values.type.shape[0], values.type.element
    ys = g.b.map([values], lambda x: _mixed(g, x, g.atom(element)))
    operator = random_fold(g.b, g.random, element, accumulating=True)
    zs = g.b.scan(operator.combine, operator.neutral[0], ys)
    us = g.b.map([zs, ys, values], lambda z, y, x: _mixed(g, clamp(g.b, z), _mixed(g, x, y)))
    g.add(us)
    if g.random.random() < 0.5:
        _keep(g, zs)
    if g.random.random() < 0.5:
        shift, factor = nodes.index_literal(g.random.randint(-2, 2)), nodes.index_literal(g.random.choice((-1, 1, 2)))
        ranks = g.b.bind(nodes.Iota(width))
        places = g.b.map([ranks], lambda i: g.b.apply("add", g.b.apply("mul", i, factor), shift))
        g.add(g.b.bind(nodes.Scatter(values, places, us)))


def emit_column_scans(g: Generator) -> None:
    """Scans of the columns of a matrix, wanted as its rows again or as they are."""
    matrix = _array(g, 2, _real)
    if matrix is None:
        return
    operator = random_fold(g.b, g.random, matrix.type.element, accumulating=True)
    columns = g.b.rearrange(matrix, (1, 0))
    scans = g.b.map([columns], lambda column: g.b.scan(operator.combine, operator.neutral[0], column))
    _keep(g, g.b.rearrange(scans, (1, 0)) if g.random.random() < 0.5 else scans)


def emit_slices(g: Generator) -> None:
    """A stencil of slices side by side: of a vector, or of the rows and columns of a matrix."""
    rank = g.random.choice((1, 1, 2))
    array = _array(g, rank)
    if array is None or not g.is_indexable(array.type):
        return
    inner = tuple(extent - 2 for extent in array.type.shape)
    if any(extent.constant is not None and extent.constant < 0 for extent in inner):
        return
    shifts = g.random.sample([(0, 1), (1, 1), (2, 1), (1, 0), (1, 2)], 3)
    parts = [
        g.b.bind(
            nodes.Slice(array, tuple(nodes.SliceDimension(size(s), n) for s, n in zip(shift, inner, strict=False)))
        )
        for shift in shifts
    ]

    def point(*rows: Variable) -> Atom:
        if rows[0].type.rank:
            return g.b.map(rows, point)
        return _mixed(g, _mixed(g, rows[0], rows[1]), rows[2])

    g.add(g.b.map(parts, point))


def emit_histogram_of_rows(g: Generator) -> None:
    """Rows added into the bins that an index gives, or a histogram of every row."""
    rows = _array(g, 2, _real)
    if rows is None:
        return
    element, (outer, inner) = rows.type.element, rows.type.shape
    operator = random_fold(g.b, g.random, element, accumulating=True)
    bins = size(g.random.choice((1, 3, 5)))
    most = nodes.index_literal(g.random.choice((2, 4, 7)))

    def spread(count: Size) -> Variable:
        return g.b.map([g.b.bind(nodes.Iota(count))], lambda i: g.b.apply("mod", i, most))

    if g.random.random() < 0.5:
        row = g.b.bind(nodes.Replicate(inner, operator.neutral[0]))
        combine = g.b.function(
            [rows.type.row] * 2, lambda p, q: g.b.map([p, q], lambda x, y: combine_two(g.b, operator.name, x, y))
        )
        into = g.b.bind(nodes.Replicate(bins, row))
        _keep(g, g.b.emit(nodes.Hist((into,), combine, (row,), spread(outer), (rows,)))[0])
        return
    places = spread(inner)

    def one(row: Variable) -> Atom:
        into = g.b.bind(nodes.Replicate(bins, operator.neutral[0]))
        return g.b.emit(nodes.Hist((into,), operator.combine, operator.neutral, places, (row,)))[0]

    if g.affordable(outer, bins):
        _keep(g, g.b.map([rows], one))


def emit_recurrence(g: Generator) -> None:
    """Along every row (or one array) a loop that carries a scalar, and writes each of its values."""
    rows = _array(g, g.random.choice((1, 2)))
    if rows is None or not g.is_indexable(rows.type):
        return
    element = rows.type.element

    def along(row: Variable) -> Sequence[Atom]:
        extent = row.type.shape[0]
        fresh = g.b.bind(nodes.Replicate(extent, _literal(element, 0)))

        def step(k: Variable, carry: Variable, made: Variable) -> Sequence[Atom]:
            value = _mixed(g, carry, g.b.index(row, k))
            return value, g.b.bind(nodes.Update(made, (k,), value))

        return g.b.for_loop(extent, [_literal(element, 1), fresh], step)

    results = along(rows) if rows.type.rank == 1 else g.b.map_many([rows], along)
    g.add(*(one for one in results if isinstance(one, Variable)))


def emit_uneven_loops(g: Generator) -> None:
    """For every integer a loop of as many rounds as it says, with a branch and a read inside."""
    counts = _array(g, 1, lambda one: one.is_integer)
    table = _array(g, 1)
    if counts is None or table is None or not g.is_indexable(table.type):
        return
    if not g.affordable(*counts.type.shape, size(8)):
        return
    scalar, element = counts.type.element, table.type.element
    places, mask, bit = g.b.size_value(table.type.shape[0]), Literal(7, scalar), Literal(1, scalar)
    counted = g.random.random() < 0.4

    def changed(value: Variable, rounds: Variable) -> Atom:
        read = g.b.index(table, g.b.apply("mod", rounds, places))
        odd = g.b.apply("eq", g.b.apply("mod", rounds, nodes.index_literal(2)), nodes.index_literal(1))
        (found,) = g.b.cond(odd, lambda: [_mixed(g, value, read)], lambda: [value])
        return found

    def row(x: Variable) -> Sequence[Atom]:
        rest = g.b.apply("and", x, mask)
        start = _literal(element, 1)
        if counted:
            bound = g.b.cast(I64, rest)
            if isinstance(bound, Variable):
                return g.b.for_loop(size(bound.name), [start], lambda i, value: [changed(value, i)])
        rounds, value, _ = g.b.while_loop(
            [nodes.index_literal(0), start, rest],
            lambda rounds, value, rest: g.b.apply("ne", rest, Literal(0, scalar)),
            lambda rounds, value, rest: [
                g.b.apply("add", rounds, nodes.index_literal(1)),
                changed(value, rounds),
                g.b.apply("sub", rest, bit) if scalar.kind == "u" else g.b.apply("shr", rest, bit),
            ],
        )
        return [value, rounds]

    g.add(*g.b.map_many([counts], row))


def emit_product(g: Generator) -> None:
    """A matrix times a matrix or a vector, with sums or with the least of sums, or columns weighted and added."""
    left = _array(g, 2, lambda one: one != BOOL)
    if left is None:
        return
    element, (m, k) = left.type.element, left.type.shape
    names = ("mul", "add") if element.is_complex or g.random.random() < 0.7 else ("add", "min")
    neutral = _literal(element, 0) if names[1] == "add" else Literal(100 if element.is_integer else 100.0, element)
    if element.is_complex:
        neutral = Literal(0j, element)

    def dot(x: Variable, y: Variable) -> Atom:
        function = g.b.function([x.type.row, y.type.row], lambda p, q: g.b.apply(names[0], p, q))
        combine = g.b.operator(names[1], element)
        return g.b.bind(nodes.Redomap(k, combine, (neutral,), function, (x, y), g.random.random() < 0.5))

    vectors = g.arrays(lambda one: one.type == Type(element, (k,)))
    if vectors and g.random.random() < 0.4:
        vector = g.random.choice(vectors)
        _keep(g, g.b.map([left], lambda row: dot(row, vector)))
        return
    rights = g.arrays(lambda one: one.type.rank == 2 and one.type.element == element and k in one.type.shape)
    right = g.random.choice(rights)
    if right.type.shape[1] != k:
        right = g.b.rearrange(right, (1, 0))
    if g.affordable(m, right.type.shape[0], k):
        _keep(g, g.b.map([left], lambda row: g.b.map([right], lambda column: dot(row, column))))


def emit_nearest(g: Generator) -> None:
    """For every row the place and value of its largest element, or of the row of another array that differs least."""
    rows = _array(g, 2, lambda one: one.is_integer)
    if rows is None:
        return
    element, (outer, inner) = rows.type.element, rows.type.shape
    operator = largest_with_place(g.b, element)

    def most(values: Variable, value: Callable[[Variable], Atom]) -> Sequence[Atom]:
        width = values.type.shape[0]
        function = g.b.function([values.type.row, Type(I64)], lambda v, i: [value(v), i])
        ranks = g.b.bind(nodes.Iota(width))
        return g.b.emit(nodes.Redomap(width, operator.combine, operator.neutral, function, (values, ranks), True))

    def gap(row: Variable, other: Variable) -> Atom:
        add = g.b.operator("add", element)
        zero = Literal(0, element)
        return g.b.redomap(add, zero, [row, other], lambda x, y: g.b.apply("and", x, y), True)

    others = g.arrays(lambda one: one.type.rank == 2 and one.type.element == element and one.type.shape[1] == inner)
    if others and g.random.random() < 0.5 and g.affordable(outer, inner, inner):
        other = g.random.choice(others)
        if g.affordable(outer, *other.type.shape):
            g.add(*g.b.map_many([rows], lambda row: most(other, lambda candidate: gap(row, candidate))))
            return
    g.add(*g.b.map_many([rows], lambda row: most(row, lambda v: v)))


def emit_triangle(g: Generator) -> None:
    """For every place the fold of the rows before it: as many rounds as the place's number."""
    array = _array(g, 1)
    if array is None or not g.is_indexable(array.type) or not g.affordable(array.type.shape[0], array.type.shape[0]):
        return
    element = array.type.element
    down = g.random.random() < 0.3

    def row(i: Variable) -> Atom:
        def step(k: Variable, carry: Variable) -> Sequence[Atom]:
            place = g.b.apply("sub", i, k) if down else k
            return [_mixed(g, carry, g.b.bind(nodes.Index(array, (place,))))]

        return g.b.for_loop(size(i.name), [_literal(element, 0)], step)[0]

    g.add(g.b.map([g.b.bind(nodes.Iota(array.type.shape[0]))], row))


IDIOM_STATEMENTS: tuple[Callable[[Generator], None], ...] = (
    emit_filter, emit_offsets, emit_offsets, emit_sweep, emit_column_scans, emit_slices, emit_histogram_of_rows,
    emit_recurrence, emit_uneven_loops, emit_product, emit_product, emit_nearest, emit_triangle,
)  # fmt: skip
