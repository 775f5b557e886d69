"""Constructs of the random program generator that are compositions: each function emits one, or nothing.

Reads at computed places, stencils, rotations, arrays joined of several kinds of parts, folds of pairs fused with a map,
histograms of several arrays, loops that end when the data say so, operators that branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from random_programs.scalars import affine_composition, largest_with_place, random_fold
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Literal, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ZERO, Size, minimum

if TYPE_CHECKING:
    from random_programs.generator import Generator


def _read_from(g: Generator) -> Variable | None:
    """An array whose outermost indices from 0 to its largest extent may be read."""
    return g.choose(g.arrays(lambda one: g.is_indexable(one.type) and g.affordable(*one.type.shape)))


def _integers(g: Generator) -> Variable | None:
    """An array of integers."""
    return g.choose(
        g.arrays(lambda one: one.type.rank == 1 and one.type.element.is_integer and g.affordable(*one.type.shape))
    )


def _whole(extents: Sequence[Size]) -> tuple[nodes.SliceDimension, ...]:
    return tuple(nodes.SliceDimension(ZERO, one) for one in extents)


def emit_gather(g: Generator) -> None:
    """Elements or rows of an array at places that another array gives."""
    array = _read_from(g)
    places = g.choose(g.arrays(lambda one: one.type.rank == 1 and one.type.element == I64))
    if array is None:
        return
    if places is None or not g.affordable(*places.type.shape, *array.type.row.shape):
        places = g.b.bind(nodes.Iota(array.type.shape[0]))
    if g.affordable(*places.type.shape, *array.type.row.shape):
        count = array.type.shape[0]
        careless = g.random.random() < g.variety.careless
        most = count + 1 if careless else count
        read = g.b.map([places], lambda i: g.b.index(array, g.b.apply("mod", i, g.b.size_value(most))))
        g.add(read)


def emit_stencil(g: Generator) -> None:
    """Every element with one at its left or right, the ends repeated or the ring closed."""
    array = _read_from(g)
    if array is None or array.type.rank > 1:
        return
    extent = array.type.shape[0]
    offset = g.random.choice((-2, -1, 1, 2))
    ring = g.random.random() < 0.4

    def point(i: Variable) -> Atom:
        count = g.b.size_value(extent)
        moved = g.b.apply("add", i, nodes.index_literal(offset))
        if ring:
            place = g.b.apply("mod", moved, count)
        else:
            last = g.b.apply("sub", count, nodes.index_literal(1))
            place = g.b.apply("max", nodes.index_literal(0), g.b.apply("min", moved, last))
        one, other = g.b.index(array, i), g.b.index(array, place)
        if array.type.element.kind in "fc":
            half = Literal(0.5, array.type.element)
            return g.b.apply("mul", g.b.apply(g.random.choice(("add", "sub")), one, other), half)
        return g.b.apply(g.random.choice(("xor", "and")), one, other)

    g.add(g.b.map([g.b.bind(nodes.Iota(extent))], point))


def emit_rotation(g: Generator) -> None:
    """The first row put last."""
    array = _read_from(g)
    if array is not None:
        count, *inner = array.type.shape
        rest = g.b.bind(nodes.Slice(array, (nodes.SliceDimension(ZERO + 1, count - 1), *_whole(inner))))
        first = g.b.bind(nodes.Slice(array, (nodes.SliceDimension(ZERO, ZERO + 1), *_whole(inner))))
        g.add(g.b.bind(nodes.Concat(0, (rest, first))))


def emit_padding(g: Generator) -> None:
    """Constants, a part of an array (sometimes turned over), an array, constants."""
    array = _read_from(g)
    if array is None:
        return
    count, *inner = array.type.shape
    if not g.affordable(count * 2 + 3, *inner):
        return
    value: Atom = g.atom(array.type.element)
    for extent in reversed(inner):
        value = g.b.bind(nodes.Replicate(extent, value))
    edge = g.b.bind(nodes.Replicate(ZERO + g.random.randint(1, 2), value))
    part = (
        nodes.SliceDimension(count - 1, count, -1)
        if g.random.random() < 0.5
        else nodes.SliceDimension(ZERO, minimum(count, 2))
    )
    parts = [edge, g.b.bind(nodes.Slice(array, (part, *_whole(inner)))), array, edge]
    g.random.shuffle(parts)
    g.add(g.b.bind(nodes.Concat(0, tuple(parts[: g.random.randint(2, 4)]))))


def emit_pair_of_maps(g: Generator) -> None:
    """redomap or scanomap with an operator on pairs of integers."""
    array = _integers(g)
    if array is None:
        return
    width, scalar = array.type.shape[0], array.type.element
    places = g.b.bind(nodes.Iota(width))
    affine = g.random.random() < 0.6
    operator = affine_composition(g.b, scalar) if affine else largest_with_place(g.b, scalar)

    def pair(x: Variable, i: Variable) -> Sequence[Atom]:
        changed = g.b.apply(g.random.choice(("add", "xor")), x, Literal(g.random.randint(0, 3), scalar))
        second = g.b.apply("and", x, changed) if affine else i
        return (changed, second, g.b.apply("mul", changed, x)) if g.random.random() < 0.4 else (changed, second)

    function = g.b.function([array.type.row, Type(I64)], pair)
    common = (width, operator.combine, operator.neutral, function, (array, places))
    fused = nodes.Redomap(*common) if g.random.random() < 0.5 else nodes.Scanomap(*common)
    g.add(*g.b.emit(fused))


def emit_branching_fold(g: Generator) -> None:
    """reduce or scan with an operator that branches: the larger, or the first that is not zero."""
    array = _integers(g)
    if array is None:
        return
    scalar = array.type.element
    first = g.random.random() < 0.5

    def combine(x: Variable, y: Variable) -> Atom:
        takes_x = g.b.apply("ne", x, Literal(0, scalar)) if first else g.b.apply("gt", x, y)
        (result,) = g.b.cond(takes_x, lambda: [x], lambda: [y])
        return result

    neutral = Literal(0 if first or scalar.kind == "u" else -(2 ** (scalar.bits - 1)), scalar)
    function = g.b.function([Type(scalar)] * 2, combine, ("x", "y"))
    if g.random.random() < 0.5:
        g.add(g.b.reduce(function, neutral, array, not first))
    else:
        g.add(g.b.scan(function, neutral, array))


def emit_pair_histogram(g: Generator) -> None:
    """hist into two arrays at once."""
    values = _integers(g)
    if values is None:
        return
    width, element = values.type.shape[0], values.type.element
    bins = g.random.choice(g.arrays(lambda one: one.type.rank == 1 and one.type.element == element))
    counted = g.b.bind(nodes.Replicate(bins.type.shape[0], Literal(2**63 - 1, I64)))
    operator = largest_with_place(g.b, element)
    ranks = g.b.bind(nodes.Iota(width))
    count = g.b.size_value(bins.type.shape[0] + 2)
    shift, factor = nodes.index_literal(g.random.randint(0, 3)), nodes.index_literal(g.random.choice((1, 3)))

    def place(i: Variable) -> Atom:
        moved = g.b.apply("mod", g.b.apply("add", g.b.apply("mul", i, factor), shift), count)
        return g.b.apply("sub", moved, nodes.index_literal(1))

    places = g.b.map([ranks], place)
    g.add(*g.b.emit(nodes.Hist((bins, counted), operator.combine, operator.neutral, places, (values, ranks))))


def emit_halving(g: Generator) -> None:
    """For every element of an array: a while loop that halves it until it is zero, and counts."""
    array = _integers(g)
    if array is None:
        return
    scalar = array.type.element
    mask, one_bit = Literal(15, scalar), Literal(1, scalar)

    def row(x: Variable) -> Sequence[Atom]:
        initial: list[Atom] = [g.b.apply("and", x, mask), nodes.index_literal(0)]
        return g.b.while_loop(
            initial,
            lambda rest, _: g.b.apply("ne", rest, Literal(0, scalar)),
            lambda rest, rounds: [g.b.apply("shr", rest, one_bit), g.b.apply("add", rounds, nodes.index_literal(1))],
        )

    mapped = g.b.map([array], lambda x: row(x)[1])
    g.add(mapped)


def emit_mixed_fold(g: Generator) -> None:
    """A fold of the rows of an array inside a map, by an operator of their type."""
    array = g.choose(g.arrays(lambda one: one.type.rank == 2 and g.affordable(*one.type.shape)))
    if array is None:
        return
    operator = random_fold(g.b, g.random, array.type.element, accumulating=True)
    if g.random.random() < 0.5:
        array = g.b.rearrange(array, (1, 0))
    if g.random.random() < 0.5:
        result = g.b.map([array], lambda row: g.b.reduce(operator.combine, operator.neutral[0], row))
    else:
        result = g.b.map([array], lambda row: g.b.scan(operator.combine, operator.neutral[0], row))
    tamed = result if operator.bounded else g.tame(result)
    assert isinstance(tamed, Variable)
    g.add(tamed)


FURTHER_STATEMENTS: tuple[Callable[[Generator], None], ...] = (
    emit_gather, emit_gather, emit_stencil, emit_stencil, emit_rotation, emit_padding, emit_padding, emit_pair_of_maps,
    emit_branching_fold, emit_pair_histogram, emit_halving, emit_mixed_fold, emit_mixed_fold,
)  # fmt: skip
