"""The combinators of the random program generator: each function emits one, or nothing if nothing suits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from random_programs.scalars import (
    FoldOperator,
    affine_composition,
    combine_two,
    largest_with_place,
    random_fold,
    within_one,
)
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Lambda, Type, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import Size, size

if TYPE_CHECKING:
    from random_programs.generator import Generator


def _choose_arrays(g: Generator, most: int, accept: Callable[[Variable], bool] = lambda _: True) -> list[Variable]:
    """One to `most` arrays of one outer size (the same one may come twice), or none."""
    first = g.choose(g.arrays(lambda one: accept(one) and g.affordable(one.type.shape[0])))
    if first is None:
        return []
    width = first.type.shape[0]
    alike = g.arrays(lambda one: one.type.shape[0] == width)
    return [first, *(g.random.choice(alike) for _ in range(g.random.randint(0, most - 1)))]


def _mapped_function(
    g: Generator, arrays: Sequence[Variable], times: int, depth: int, write: Callable[[], Sequence[Atom]]
) -> Lambda:
    """A function of the arrays' rows, called `times` times: some statements, then what `write` gives."""

    def body(*parameters: Variable) -> Sequence[Atom]:
        with g.inside(parameters, times, host=False):
            g.statements(g.random.randint(1, 2), depth)
            return write()

    return g.b.function([one.type.row for one in arrays], body)


def emit_map(g: Generator, depth: int) -> None:
    """map of any function."""
    if arrays := _choose_arrays(g, 3):
        width = arrays[0].type.shape[0]
        function = _mapped_function(g, arrays, g.most(width), depth, lambda: g.results(width))
        g.add(*g.b.emit(nodes.Map(width, function, tuple(arrays))))


def keep_fold(g: Generator, operator: FoldOperator, value: Variable) -> None:
    """Make a fold's result available: cut to the limits if it may exceed them, or else only as a program's result."""
    if operator.bounded or value.type.element.kind not in "fc":
        g.add(value)
    elif len(g.scopes) == 1 and operator.name == "add" and g.random.random() < 0.5:
        g.extra_results.append(value)
    else:
        tamed = g.tame(value)
        if isinstance(tamed, Variable):
            g.add(tamed)


def _declared(g: Generator, operator: FoldOperator) -> bool:
    """Whether to declare the operator commutative: sometimes not although it is."""
    return operator.commutative and g.random.random() < 0.7


def emit_fold(g: Generator, depth: int) -> None:
    """reduce or scan of one array of scalars."""
    array = g.choose(g.arrays(lambda one: one.type.rank == 1 and g.affordable(*one.type.shape)))
    if array is None:
        return
    operator = random_fold(g.b, g.random, array.type.element)
    if operator.shrink:
        array = g.each(array, lambda one: within_one(g.b, one))
    if g.random.random() < 0.5:
        result = g.b.reduce(operator.combine, operator.neutral[0], array, _declared(g, operator))
    else:
        result = g.b.scan(operator.combine, operator.neutral[0], array)
    keep_fold(g, operator, result)


def emit_fused_fold(g: Generator, depth: int) -> None:
    """redomap or scanomap, sometimes with further arrays mapped out."""
    arrays = _choose_arrays(g, 3)
    if not arrays:
        return
    width = arrays[0].type.shape[0]
    scalar = g.random.choice(g.scalars)
    operator = random_fold(g.b, g.random, scalar)

    def results() -> Sequence[Atom]:
        value = g.scalar(scalar)
        if operator.shrink:
            value = within_one(g.b, value)
        return [value, *(g.results(width) if g.random.random() < 0.4 else [])]

    function = _mapped_function(g, arrays, g.most(width), depth, results)
    if g.random.random() < 0.5:
        declared = _declared(g, operator)
        fold, *mapped = g.b.emit(
            nodes.Redomap(width, operator.combine, operator.neutral, function, tuple(arrays), declared)
        )
    else:
        fold, *mapped = g.b.emit(nodes.Scanomap(width, operator.combine, operator.neutral, function, tuple(arrays)))
    keep_fold(g, operator, fold)
    g.add(*mapped)


def emit_pair_fold(g: Generator, depth: int) -> None:
    """reduce or scan with an operator on pairs."""
    array = g.choose(
        g.arrays(lambda one: one.type.rank == 1 and one.type.element.is_integer and g.affordable(*one.type.shape))
    )
    if array is None:
        return
    width, scalar = array.type.shape[0], array.type.element
    if g.random.random() < 0.6:
        operator = affine_composition(g.b, scalar)
        other = g.random.choice(g.arrays(lambda one: one.type == array.type))
    else:
        operator = largest_with_place(g.b, scalar)
        other = g.b.bind(nodes.Iota(width))
    if g.random.random() < 0.5:
        declared = _declared(g, operator)
        g.add(*g.b.emit(nodes.Reduce(width, operator.combine, operator.neutral, (array, other), declared)))
    else:
        g.add(*g.b.emit(nodes.Scan(width, operator.combine, operator.neutral, (array, other))))


def emit_row_fold(g: Generator, depth: int) -> None:
    """reduce or scan of rows with a mapped operator."""
    array = g.choose(g.arrays(lambda one: one.type.rank == 2 and g.affordable(*one.type.shape)))
    if array is None:
        return
    operator = random_fold(g.b, g.random, array.type.element, accumulating=True)
    neutral = g.b.bind(nodes.Replicate(array.type.shape[1], operator.neutral[0]))
    combine = g.b.function(
        [array.type.row] * 2,
        lambda p, q: g.b.map([p, q], lambda x, y: combine_two(g.b, operator.name, x, y)),
        ("p", "q"),
    )
    if g.random.random() < 0.5:
        result = g.b.reduce(combine, neutral, array, _declared(g, operator))
    else:
        result = g.b.scan(combine, neutral, array)
    keep_fold(g, operator, result)


def emit_scatter(g: Generator, depth: int) -> None:
    """scatter to places that differ, some of them out of range."""
    values = g.choose(g.arrays(lambda one: g.affordable(*one.type.shape)))
    if values is None:
        return
    destinations = g.arrays(lambda one: one.type.row == values.type.row and g.affordable(*one.type.shape))
    destination = g.random.choice(destinations)
    width = values.type.shape[0]
    factor, shift = g.random.choice((1, 1, 2, -1)), g.random.randint(-2, 3)

    def place(one: Variable) -> Atom:
        return g.b.apply("add", g.b.apply("mul", one, nodes.index_literal(factor)), nodes.index_literal(shift))

    g.add(g.b.bind(nodes.Scatter(destination, g.b.map([g.b.bind(nodes.Iota(width))], place), values)))


def _random_places(g: Generator, width: Size, bins: Size) -> Variable:
    """Indices from -1 to `bins`, hence some out of range."""
    sources = g.arrays(lambda one: one.type == Type(I64, (width,)))
    source = g.random.choice(sources) if sources else g.b.bind(nodes.Iota(width))
    count = g.b.size_value(bins + 2)
    return g.b.map([source], lambda one: g.b.apply("sub", g.b.apply("mod", one, count), nodes.index_literal(1)))


def emit_hist(g: Generator, depth: int) -> None:
    """hist of scalars."""
    values = g.choose(g.arrays(lambda one: one.type.rank == 1 and g.affordable(*one.type.shape)))
    if values is None:
        return
    element = values.type.element
    bins = g.random.choice(g.arrays(lambda one: one.type.rank == 1 and one.type.element == element))
    operator = random_fold(g.b, g.random, element, accumulating=True)
    places = _random_places(g, values.type.shape[0], bins.type.shape[0])
    (result,) = g.b.emit(nodes.Hist((bins,), operator.combine, operator.neutral, places, (values,)))
    keep_fold(g, operator, result)


def emit_stream(g: Generator, depth: int) -> None:
    """stream_seq that folds its first array and maps over the rows of all: it does not depend on the chunks."""
    arrays = _choose_arrays(g, 2, lambda one: one.type.rank == 1 and one.type.element != BOOL)
    if not arrays:
        return
    width, element = arrays[0].type.shape[0], arrays[0].type.element
    operator = random_fold(g.b, g.random, element, accumulating=True)
    length = g.b.variable("length", Type(I64))
    total = g.b.variable("total", Type(element))
    parts = [g.b.variable("part", one.type.row.array_of(length.name)) for one in arrays]

    def body() -> Sequence[Atom]:
        folded = g.b.reduce(operator.combine, operator.neutral[0], parts[0])
        function = _mapped_function(g, parts, g.most(width), depth, lambda: g.results(width))
        mapped = g.b.emit(nodes.Map(size(length.name), function, tuple(parts)))
        return combine_two(g.b, operator.name, total, folded), *mapped

    function = Lambda((length, total, *parts), g.b.body(body))
    chunk = size(g.random.randint(1, 3))
    folded, *mapped = g.b.emit(nodes.StreamSeq(width, chunk, function, operator.neutral, tuple(arrays)))
    keep_fold(g, operator, folded)
    g.add(*mapped)


SOAC_STATEMENTS: tuple[Callable[[Generator, int], None], ...] = (
    emit_map, emit_map, emit_map, emit_map, emit_fold, emit_fold, emit_fused_fold, emit_fused_fold, emit_pair_fold,
    emit_row_fold, emit_scatter, emit_hist, emit_stream,
)  # fmt: skip
