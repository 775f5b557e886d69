"""Loops that carry several arrays, for the random program generator: rounds as solvers and filters have them.

A round makes arrays one after another: of those carried, of those made before in the round, of scalars that are folds
of either. Then some of all these are carried on, at any place: arrays are swapped, kept, replaced by what was made
before others were read, or changed where they lie. Such loops stand alone, in each point of a map, or in a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from random_programs.scalars import clamp, random_fold, within_one
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Literal, Type, Variable
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.ir.sizes import ONE, ZERO, Size, product, size

if TYPE_CHECKING:
    from random_programs.generator import Generator

_MOST_ROUNDS = 4
_COLUMNS = (1, 2, 3, 5, 8, 9, 16, 17, 33)
_MOST_CARRIED = 700
"""Elements of an array that all points together carry: more than others have, so that rows fill vectors and points
lanes."""


def _alike(g: Generator, first: Variable) -> list[Variable]:
    return g.arrays(lambda one: one.type == first.type)


def _source(g: Generator, rank: int) -> Variable | None:
    """An array of so many dimensions whose loop may be run, and whose elements may be read at indices."""
    return g.choose(
        g.arrays(lambda one: one.type.rank == rank and g.is_indexable(one.type) and _is_small(g, *one.type.shape))
    )


def _is_small(g: Generator, *shape: Size) -> bool:
    elements = g.most(product(shape))
    return elements <= _MOST_CARRIED and g.work * elements <= g.variety.most_work


def _rows(g: Generator) -> Variable | None:
    """A matrix; sometimes one that is made of a vector, with rows of any constant length."""
    found = _source(g, 2)
    vector = _source(g, 1)
    if vector is None or (found is not None and g.random.random() < 0.4):
        return found
    columns = size(g.random.choice(_COLUMNS))
    return rows_of(g, vector, columns) if _is_small(g, *vector.type.shape, columns) else found


def rows_of(g: Generator, vector: Variable, columns: Size) -> Variable:
    """A matrix with a row for every element of a vector, whose elements differ from it and from each other."""
    element = vector.type.element
    few = g.b.map([g.b.bind(nodes.Iota(columns))], lambda j: g.b.apply("mod", j, nodes.index_literal(3)))

    def number(j: Variable) -> Atom:
        return g.b.apply("eq", j, nodes.index_literal(1)) if element == BOOL else g.b.cast(element, j)

    return g.b.map([vector], lambda x: g.b.map([few], lambda j: _mixed(g, x, number(j))))


def _constant(element: ScalarType, value: float) -> Literal:
    if element == BOOL:
        return Literal(bool(value), element)
    return Literal(complex(value) if element.is_complex else value if element.is_float else int(value), element)


def _mixed(g: Generator, x: Atom, y: Atom) -> Atom:
    """Two numbers in one; errors of floats do not grow by it, however many rounds there are."""
    element = x.type.element
    if element == BOOL:
        return g.b.apply(g.random.choice(("xor", "and")), x, y)
    if element.is_integer:
        return g.b.apply(g.random.choice(("add", "sub", "xor", "mul")), x, y)
    if element.is_float and g.random.random() < 0.4:
        name = g.random.choice(("min", "max", "mul"))
        return g.b.apply(name, *(within_one(g.b, one) if name == "mul" else one for one in (x, y)))
    return g.b.apply("mul", g.b.apply(g.random.choice(("add", "sub")), x, y), _constant(element, 0.5))


def _fold(g: Generator, x: Variable, y: Variable) -> Atom:
    """A scalar of two arrays, as tame as they are."""
    element = x.type.element
    if element == BOOL or element.is_integer:
        combine = g.b.operator(g.random.choice(("xor", "or")), element)
        return g.b.redomap(combine, _constant(element, 0), [x, y], lambda p, q: _mixed(g, p, q), True)
    eighth = _constant(element, 0.125)

    def product(p: Variable, q: Variable) -> Atom:
        return g.b.apply("mul", g.b.apply("mul", within_one(g.b, p), within_one(g.b, q)), eighth)

    return clamp(g.b, g.b.redomap(g.b.operator("add", element), _constant(element, 0), [x, y], product, True))


def _moved(g: Generator, x: Variable, y: Variable) -> Variable:
    """Every element of one array with a neighbour in the other one, in a ring."""
    extent, offset = x.type.shape[0], nodes.index_literal(g.random.choice((-1, 1, 2)))

    def point(i: Variable, own: Variable) -> Atom:
        place = g.b.apply("mod", g.b.apply("add", i, offset), g.b.size_value(extent))
        return _mixed(g, own, g.b.index(y, place))

    return g.b.map([g.b.bind(nodes.Iota(extent)), x], point)


def _rotated(g: Generator, x: Variable) -> Variable:
    extent = x.type.shape[0]
    rest = g.b.bind(nodes.Slice(x, (nodes.SliceDimension(ONE, extent - 1),)))
    return g.b.bind(nodes.Concat(0, (rest, g.b.bind(nodes.Slice(x, (nodes.SliceDimension(ZERO, ONE),))))))


def _replaced(g: Generator, x: Variable, y: Variable, number: Atom) -> Variable:
    """One element of an array, or every second one, is another's."""
    extent = x.type.shape[0]
    place = g.b.apply("mod", number, g.b.size_value(extent))
    if g.random.random() < 0.7:
        other = g.b.apply("mod", g.b.apply("add", number, nodes.index_literal(1)), g.b.size_value(extent))
        value = _mixed(g, g.b.index(x, place), g.b.index(y, other))
        return g.b.bind(nodes.Update(x, (place,), value))
    two = nodes.index_literal(2)
    places = g.b.map([g.b.bind(nodes.Iota(extent))], lambda i: g.b.apply("add", g.b.apply("mul", i, two), place))
    return g.b.bind(nodes.Scatter(x, places, y))


def _scanned(g: Generator, x: Variable) -> Variable:
    operator = random_fold(g.b, g.random, x.type.element, accumulating=True)
    result = g.b.scan(operator.combine, operator.neutral[0], x)
    tamed = result if operator.bounded else g.tame(result)
    assert isinstance(tamed, Variable)
    return tamed


def _product(g: Generator, rows: Variable, x: Variable) -> Variable:
    """A square matrix times an array."""
    return g.b.map([rows], lambda row: _fold(g, row, x))


def _round(
    g: Generator, number: Atom, state: Sequence[Variable], fixed: Sequence[Variable], squares: Sequence[Variable]
) -> list[Atom]:
    """What is carried on: as many arrays and scalars as `state` has; `fixed` are arrays from outside of the loop."""
    old = [one for one in state if one.type.rank]
    scalars: list[Atom] = [one for one in state if not one.type.rank]
    made: list[Variable] = []
    for _ in range(g.random.randint(len(old), len(old) + 4)):
        x = g.random.choice([*old, *made])
        y = g.random.choice([*old, *old, *made, *made, *fixed])
        match g.random.randrange(11):
            case 0 | 1 | 2:
                last = made[-1] if made and g.random.random() < 0.6 else x
                scalars.append(_fold(g, last, g.random.choice([last, y])))
            case 3:
                made.append(_moved(g, x, y))
            case 4:
                made.append(_replaced(g, x, y, number))
            case 5:
                made.append(_rotated(g, x) if g.random.random() < 0.6 else _scanned(g, x))
            case 6 if squares:
                made.append(_product(g, g.random.choice(squares), x))
            case 7 | 8 if scalars:
                factor = g.random.choice(scalars)
                made.append(g.b.map([x, y], lambda p, q: _mixed(g, p, _mixed(g, factor, q))))  # noqa: B023
            case _:
                made.append(g.b.map([x, y], lambda p, q: _mixed(g, p, q)))
    carried: list[Atom] = [g.random.choice(made if made and g.random.random() < 0.75 else old) for _ in old]
    return carried + [g.random.choice(scalars[-2:]) for one in state if not one.type.rank]


def _iterated(g: Generator, given: Sequence[Variable], fixed: Sequence[Variable], bound: Size) -> list[Variable]:
    """Some of what such a loop gives; it begins with `given` arrays, or constants."""
    first = given[0].type
    element, extent = first.element, first.shape[0]
    squares = g.arrays(lambda one: one.type == Type(element, (extent, extent)))
    initial: list[Atom] = [g.random.choice(given) for _ in range(g.random.randint(2, 4))]
    if g.random.random() < 0.4:
        initial[g.random.randrange(len(initial))] = g.b.bind(nodes.Replicate(extent, _constant(element, 1)))
    initial += [_constant(element, 1)] * g.random.choice((0, 1, 1, 2))

    def goes_on(counter: Variable, *_: Variable) -> Atom:
        return g.b.apply("lt", counter, nodes.index_literal(g.random.randint(0, _MOST_ROUNDS)))

    def counted(counter: Variable, *state: Variable) -> list[Atom]:
        further = g.b.apply("add", counter, nodes.index_literal(1))
        return [further, *_round(g, counter, state, fixed, squares)]

    if g.random.random() < 0.2:
        results = g.b.while_loop([nodes.index_literal(0), *initial], goes_on, counted)[1:]
    else:
        results = g.b.for_loop(bound, initial, lambda i, *state: _round(g, i, state, fixed, squares))
    kept = [one for one in results if g.random.random() < 0.7] or [results[0]]
    arrays = [one for one in kept if one.type.rank]
    if arrays and g.random.random() < 0.4:  # read once more where the loop has ended
        kept.append(g.b.map([arrays[0], g.random.choice(given)], lambda p, q: _mixed(g, p, q)))
    return kept


def _bound(g: Generator, shape: Sequence[Size]) -> Size:
    """How many rounds: known when the program is compiled, given by a size, or computed."""
    names = [size(one) for one in sorted(g.size_names) if g.affordable(*shape, size(one))]
    if names and g.random.random() < 0.2:
        return g.random.choice(names)
    if g.random.random() < 0.6:
        rounds = g.b.apply("mod", g.atom(I64), nodes.index_literal(_MOST_ROUNDS + 1))
        g.add(rounds)
        return size(rounds.name)
    return size(g.random.choice((0, 1, 2, 3, _MOST_ROUNDS)))


def emit_iteration(g: Generator) -> None:
    """A loop by itself, on vectors."""
    first = _source(g, 1)
    if first is not None:
        given = _alike(g, first)
        g.add(*_iterated(g, given, given, _bound(g, first.type.shape)))


def emit_iteration_of_each(g: Generator) -> None:
    """A loop for every row of matrices, which it changes; it may read vectors that all rows have."""
    first = _rows(g)
    if first is None:
        return
    rows = [first, *(g.random.choice([first, *_alike(g, first)]) for _ in range(g.random.randint(0, 2)))]
    shared = g.arrays(lambda one: one.type == first.type.row)
    bound = _bound(g, first.type.shape)
    g.add(*g.b.map_many(rows, lambda *row: _iterated(g, row, [*row, *shared], bound)))


def emit_iteration_of_one(g: Generator) -> None:
    """A loop in the only point of a map, or in few points that differ by their number alone."""
    first = _source(g, 1)
    if first is None:
        return
    given, bound = _alike(g, first), _bound(g, (size(3), *first.type.shape))
    points = g.b.bind(nodes.Iota(size(g.random.choice((1, 1, 3)))))

    def point(number: Variable) -> list[Variable]:
        moved = _replaced(g, first, g.random.choice(given), number)
        return _iterated(g, [moved, *given], given, bound)

    g.add(*g.b.map_many([points], point))


LOOP_STATEMENTS: tuple[Callable[[Generator], None], ...] = (
    emit_iteration, emit_iteration, emit_iteration_of_each, emit_iteration_of_each, emit_iteration_of_one,
)  # fmt: skip
