"""Products of arrays, for the random program generator: each function emits one, or nothing.

Contractions of one to three arrays with any indices, of mixed types, over semirings, written as nests of maps over
rearranged rows or over places, with what follows each of their sums: a bias, a factor, a cut, another type. Windows
that move along the dimensions of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from random_programs.scalars import clamp, range_of
from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Literal, Variable
from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.ir.sizes import Size, product, size

if TYPE_CHECKING:
    from random_programs.generator import Generator

View: TypeAlias = tuple[str, Atom]
"""The indices that are still to be gone through, in the order of the nest, and the row that is left."""


@dataclass(frozen=True)
class Contraction:
    """What is multiplied, and which indices its result has; the others are summed over."""

    operands: tuple[View, ...]
    sizes: Mapping[str, Size]
    output: str
    summed: str


@dataclass(frozen=True)
class Semiring:
    """What multiplies and adds numbers of a type; sums of products are multiplied by `scale`, to be tame again."""

    multiply: str
    add: str
    element: ScalarType
    neutral: Literal
    scale: float = 1.0

    def products(self, g: Generator, values: Sequence[Atom]) -> Atom:
        """All values in one."""
        result = values[0]
        for one in values[1:]:
            if self.multiply == "gap":
                gap = g.b.apply("sub", result, one)
                result = g.b.apply("mul", gap, gap)
            else:
                result = g.b.apply(self.multiply, result, one)
        return result


def literal(element: ScalarType, value: float) -> Literal:
    """A constant of any type of numbers."""
    return Literal(complex(value) if element.is_complex else value if element.is_float else int(value), element)


def random_semiring(g: Generator, element: ScalarType, operands: int) -> Semiring:
    """One that is for this type."""
    if element == BOOL:
        return Semiring("and", "or", element, Literal(False, element))
    if element.is_complex:
        return Semiring("mul", "add", element, literal(element, 0), 8.0**-operands)
    pairs = [("mul", "add")] * 4 + [("add", "min"), ("add", "max"), ("mul", "max"), ("min", "max")]
    pairs.append(("and", "xor") if element.is_integer else ("gap", "add"))
    multiply, add = g.random.choice(pairs)
    if element.is_integer:
        least, most = range_of(element)
        return Semiring(multiply, add, element, Literal({"min": most, "max": least}.get(add, 0), element))
    far = g.random.choice((1000.0, float("inf")))
    neutral = literal(element, {"min": far, "max": -far}.get(add, 0.0))
    return Semiring(multiply, add, element, neutral, 8.0**-operands if add == "add" else 1.0)


def becomes(source: ScalarType, element: ScalarType) -> bool:
    """Whether numbers of one type may be taken for another's without a jump."""
    if BOOL in (source, element) or element.is_integer:
        return source == element or (element != BOOL and (source == BOOL or source.is_integer))
    return (source.is_float or source.is_complex) if element.is_complex else not source.is_complex


def lifted(g: Generator, value: Atom, element: ScalarType) -> Atom:
    """A number in another type, as tame as floats are."""
    source = value.type.element
    made = g.b.cast(element, value)
    return clamp(g.b, made) if element.is_float and source.is_integer else made


def _split(g: Generator, array: Variable) -> Variable:
    """Sometimes the last dimension in two, as heads and their elements are."""
    last, parts = array.type.shape[-1].constant, {4: (2, 2), 8: (2, 4), 12: (3, 4), 16: (4, 4)}
    if last not in parts or array.type.rank > 2 or g.random.random() < 0.5:
        return array
    shape = (*array.type.shape[:-1], *map(size, parts[last]))
    return g.b.bind(nodes.Reshape(array, shape))


def _labelled(g: Generator, arrays: Sequence[Variable]) -> tuple[list[str], dict[str, Size]]:
    """A letter for every dimension; only dimensions of one size have the same one."""
    sizes: dict[str, Size] = {}
    words = []
    for one in arrays:
        word = ""
        for extent in one.type.shape:
            twice = g.random.random() < 0.04
            alike = [label for label, of in sizes.items() if of == extent and (twice or label not in word)]
            label = g.random.choice(alike) if alike and g.random.random() < 0.8 else "abcdefghi"[len(sizes)]
            sizes[label] = extent
            word += label
        words.append(word)
    return words, sizes


def _random_contraction(g: Generator, element: ScalarType) -> Contraction | None:
    """Of one to three arrays in scope."""
    sources = g.arrays(lambda one: one.type.rank <= 3 and becomes(one.type.element, element))
    count = g.random.choice((1, 2, 2, 2, 2, 2, 3))
    if not sources:
        return None
    arrays = [_split(g, g.random.choice(sources)) for _ in range(count)]
    words, sizes = _labelled(g, arrays)
    shared = {label for label in sizes if sum(label in word for word in words) > 1}
    kept = [label for label in sizes if g.random.random() >= (0.65 if label in shared else 0.2)]
    g.random.shuffle(kept)
    output = "".join(kept[:3])
    points = g.most(product([*sizes.values()]))
    if g.work * points > g.variety.most_points or not g.affordable(*(sizes[label] for label in output)):
        return None
    summed = [label for label in sizes if label not in output]
    g.random.shuffle(summed)
    return Contraction(tuple(zip(words, arrays, strict=True)), sizes, output, "".join(summed))


def _sorted_rows(g: Generator, view: View, order: str) -> View:
    """The array with its dimensions in the order of the nest."""
    word, array = view
    assert isinstance(array, Variable)
    permutation = sorted(range(len(word)), key=lambda axis: order.index(word[axis]))
    return "".join(word[axis] for axis in permutation), g.b.rearrange(array, permutation)


def _entered(views: Sequence[View], label: str, rows: Sequence[Atom]) -> list[View]:
    """What is left of the views inside of the nest's part of `label`."""
    given = iter(rows)
    return [(word[1:], next(given)) if word[:1] == label else (word, one) for word, one in views]


def by_rows(
    g: Generator, asked: Contraction, semiring: Semiring, extras: Sequence[View], finish: Callable[..., Atom]
) -> Atom:
    """The nest of maps and folds over rows; `finish` gives an element of a sum and of an element of each extra."""
    order = asked.output + asked.summed
    count, declared = len(asked.operands), g.random.random() < 0.7

    def fold(summed: str, views: Sequence[View]) -> Atom:
        if not summed:
            return semiring.products(g, [lifted(g, one, semiring.element) for _, one in views])
        label = summed[0]
        arrays = [one for word, one in views if word[:1] == label and isinstance(one, Variable)]
        combine = g.b.operator(semiring.add, semiring.element)
        return g.b.redomap(
            combine, semiring.neutral, arrays, lambda *rows: fold(summed[1:], _entered(views, label, rows)), declared
        )

    def level(output: str, views: Sequence[View]) -> Atom:
        if not output:
            return finish(fold(asked.summed, views[:count]), *(one for _, one in views[count:]))
        label = output[0]
        arrays = [one for word, one in views if word[:1] == label and isinstance(one, Variable)]
        return g.b.map(arrays, lambda *rows: level(output[1:], _entered(views, label, rows)))

    return level(asked.output, [_sorted_rows(g, one, order) for one in (*asked.operands, *extras)])


def by_places(
    g: Generator, asked: Contraction, semiring: Semiring, extras: Sequence[View], finish: Callable[..., Atom]
) -> Atom:
    """The same as a nest over numbers, at whose innermost point the arrays are read."""
    declared = g.random.random() < 0.7

    def read(view: View, places: Mapping[str, Atom]) -> Atom:
        word, array = view
        assert isinstance(array, Variable)
        return g.b.index(array, *(places[label] for label in word))

    def ranks(label: str) -> Variable:
        return g.b.bind(nodes.Iota(asked.sizes[label]))

    def fold(summed: str, places: Mapping[str, Atom]) -> Atom:
        if not summed:
            values = [lifted(g, read(one, places), semiring.element) for one in asked.operands]
            return semiring.products(g, values)
        label = summed[0]
        combine = g.b.operator(semiring.add, semiring.element)
        return g.b.redomap(
            combine, semiring.neutral, [ranks(label)], lambda i: fold(summed[1:], {**places, label: i}), declared
        )

    def level(output: str, places: Mapping[str, Atom]) -> Atom:
        if not output:
            return finish(fold(asked.summed, places), *(read(one, places) for one in extras))
        return g.b.map([ranks(output[0])], lambda i: level(output[1:], {**places, output[0]: i}))

    return level(asked.output, {})


def _random_epilogue(g: Generator, semiring: Semiring) -> Callable[..., Atom]:
    """A few functions of a sum, cut to the limits, and of further numbers."""
    element = semiring.element
    inexact = element.is_float or element.is_complex
    ways = [g.random.choice(("relu", "factor", "literal", "tanh", "other type")) for _ in range(g.random.randint(0, 2))]
    narrow = g.random.choice([one for one in g.variety.scalars if one.is_float])

    def finish(total: Atom, *extras: Atom) -> Atom:
        if semiring.scale != 1.0:
            total = g.b.apply("mul", total, literal(element, semiring.scale))
        value = clamp(g.b, total)
        for one in extras:
            mixed = "xor" if element == BOOL else g.random.choice(("add", "sub", "mul"))
            value = clamp(g.b, g.b.apply(mixed, value, lifted(g, one, element)))
        for way in ways:
            if way == "relu" and not element.is_complex and element != BOOL:
                value = g.b.apply("max", value, literal(element, 0))
            elif way == "factor" and element != BOOL:
                value = clamp(g.b, g.b.apply("mul", value, g.atom(element)))
            elif way == "literal" and inexact:
                value = g.b.apply("mul", value, literal(element, 0.25))
            elif way == "tanh" and element.is_float:
                value = g.b.apply("tanh", value)
            elif way == "other type" and element.is_float:
                value = g.b.cast(narrow, value)
                break
        return value

    return finish


def _random_extras(g: Generator, asked: Contraction, element: ScalarType) -> list[View]:
    """Up to two arrays with some of the result's indices."""
    found = []
    for _ in range(g.random.choice((0, 0, 1, 2)) if asked.output else 0):
        labels = g.random.sample(asked.output, g.random.randint(1, min(2, len(asked.output))))
        shape = tuple(asked.sizes[label] for label in labels)
        array = g.choose(g.arrays(lambda one: one.type.shape == shape and becomes(one.type.element, element)))  # noqa: B023
        if array is not None:
            found.append(("".join(labels), array))
    return found


def emit_contraction(g: Generator) -> None:
    """Products of arrays, added over the indices that the result has not."""
    element = g.random.choice(g.variety.scalars)
    asked = _random_contraction(g, element)
    if asked is None:
        return
    semiring = random_semiring(g, element, len(asked.operands))
    extras = _random_extras(g, asked, element)
    views = (*asked.operands, *extras)
    in_range = all(g.is_indexable(one.type) for _, one in views)
    diagonal = any(len(set(word)) < len(word) for word, _ in views)
    if diagonal and not in_range:
        return
    write = by_places if diagonal or (in_range and g.random.random() < 0.25) else by_rows
    result = write(g, asked, semiring, extras, _random_epilogue(g, semiring))
    if isinstance(result, Variable):
        order = list(range(result.type.rank))
        g.random.shuffle(order)
        g.add(g.b.rearrange(result, order) if result.type.rank and g.random.random() < 0.3 else result)


def emit_windows(g: Generator) -> None:
    """Sums of weighted neighbours, or the greatest of them: windows move by one or two along each dimension."""
    array = g.choose(g.arrays(lambda one: one.type.rank <= 2 and one.type.element != BOOL and g.is_indexable(one.type)))
    if array is None:
        return
    element, rank = array.type.element, array.type.rank
    taps, step, apart = g.random.randint(1, 3), g.random.choice((1, 1, 2)), g.random.choice((1, 1, 2))
    reach = (taps - 1) * apart
    counts = [extent - reach if step == 1 else (extent - reach + 1) // 2 for extent in array.type.shape]
    if any(one.constant is not None and one.constant < 0 for one in counts) or not g.affordable(*array.type.shape):
        return
    semiring = random_semiring(g, element, 2)
    few, kept = g.b.bind(nodes.Iota(size(taps))), g.atom(element)

    def place(i: Atom, tap: Atom) -> Atom:
        moved = g.b.apply("mul", tap, nodes.index_literal(apart)) if apart > 1 else tap
        return g.b.apply("add", g.b.apply("mul", i, nodes.index_literal(step)) if step > 1 else i, moved)

    def weight(tap: Atom) -> Atom:
        return g.b.apply("select", g.b.apply("eq", tap, nodes.index_literal(0)), kept, literal(element, 1))

    weights = g.b.map([few], weight)

    def fold(starts: Sequence[Atom], places: Sequence[Atom], factor: Atom | None) -> Atom:
        if not starts:
            read = g.b.index(array, *places)
            return read if factor is None else semiring.products(g, [read, factor])
        combine = g.b.operator(semiring.add, element)
        return g.b.redomap(
            combine, semiring.neutral, [few, weights],
            lambda tap, w: fold(starts[1:], [*places, place(starts[0], tap)], w), True,
        )  # fmt: skip

    def level(axis: int, starts: Sequence[Atom]) -> Atom:
        if axis == rank:
            total = fold(starts, [], None)
            return clamp(
                g.b, g.b.apply("mul", total, literal(element, semiring.scale)) if semiring.scale != 1 else total
            )
        return g.b.map([g.b.bind(nodes.Iota(counts[axis]))], lambda i: level(axis + 1, [*starts, i]))

    result = level(0, [])
    assert isinstance(result, Variable)
    g.add(result)


PRODUCT_STATEMENTS: tuple[Callable[[Generator], None], ...] = (
    emit_contraction, emit_contraction, emit_contraction, emit_windows,
)  # fmt: skip
