"""The array constructs of the random program generator: each function emits one, or nothing if nothing suits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.ir import nodes
from tilewright.ir.nodes import Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE, ZERO, Size, minimum, product, size

if TYPE_CHECKING:
    from random_programs.generator import Generator


def emit_index(g: Generator) -> None:
    """An element or sub-array at indices in range."""
    array = g.choose(g.arrays(lambda one: g.is_indexable(one.type)))
    if array is not None:
        count = g.random.randint(1, array.type.rank)
        g.add(g.b.index(array, *(g.index_below(extent) for extent in array.type.shape[:count])))


def emit_update(g: Generator) -> None:
    """One element or sub-array replaced."""
    array = g.choose(g.arrays(lambda one: g.is_indexable(one.type) and g.affordable(*one.type.shape)))
    if array is not None:
        count = g.random.randint(1, array.type.rank)
        indices = tuple(g.index_below(extent) for extent in array.type.shape[:count])
        row = array.type
        for _ in range(count):
            row = row.row
        value = g.value(row)
        g.add(g.b.bind(nodes.Update(array, indices, g.b.index(array, *indices) if value is None else value)))


def _slice_dimension(g: Generator, extent: Size) -> nodes.SliceDimension:
    match g.random.randrange(6):
        case 0:
            return nodes.SliceDimension(extent - 1, extent, -1)
        case 1:
            return nodes.SliceDimension(ONE, extent - 1)
        case 2:
            return nodes.SliceDimension(extent - 1, extent - 1, -1)
        case 3:
            return nodes.SliceDimension(ZERO, (extent + 1) // 2, 2)
        case 4:
            return nodes.SliceDimension(ZERO, minimum(extent, 2))
        case _:
            return nodes.SliceDimension(ZERO, extent)


def emit_slice(g: Generator) -> None:
    """A slice: everything, reversed, all but one, every second element, or at most two."""
    array = g.choose(g.arrays(lambda one: g.is_indexable(one.type) and g.affordable(*one.type.shape)))
    if array is not None:
        g.add(g.b.bind(nodes.Slice(array, tuple(_slice_dimension(g, extent) for extent in array.type.shape))))


def random_extent(g: Generator) -> Size:
    """A size: one of the program's, a constant, or (seldom) one computed here."""
    if g.random.random() < 0.15:
        count = g.b.apply("mod", g.atom(I64), nodes.index_literal(4))
        g.add(count)
        return size(count.name)
    return g.random.choice([*map(size, sorted(g.size_names)), ONE, size(3)])


def emit_iota(g: Generator) -> None:
    """0, 1, 2, ..."""
    g.add(g.b.bind(nodes.Iota(random_extent(g), g.random.choice(g.variety.integers))))


def emit_replicate(g: Generator) -> None:
    """Copies of a scalar or array."""
    choices = g.visible(lambda one: one.type.rank < 3)
    value, count = g.choose(choices), random_extent(g)
    if value is not None and g.affordable(count, *value.type.shape):
        g.add(g.b.bind(nodes.Replicate(count, value)))


def emit_concat(g: Generator) -> None:
    """Two arrays joined."""
    first = g.choose(g.arrays())
    if first is None:
        return
    axis = g.random.randrange(first.type.rank)

    def joins(one: Variable) -> bool:
        a, b = one.type, first.type
        same = a.element == b.element and a.rank == b.rank
        return same and all(x == y for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)) if d != axis)

    second = g.choose(g.arrays(joins))
    if second is not None and g.affordable(*first.type.shape, size(2)) and g.affordable(*second.type.shape, size(2)):
        g.add(g.b.bind(nodes.Concat(axis, (first, second))))


def emit_reshape(g: Generator) -> None:
    """Dimensions joined, exchanged in name only, or a dimension of 1 added."""
    array = g.choose(g.arrays(lambda one: g.affordable(*one.type.shape)))
    if array is not None:
        shape = array.type.shape
        reversed_shape = tuple(reversed(shape))
        shapes = [(product(shape),), reversed_shape, (ONE, product(shape)), (*shape[:2], ONE, *shape[2:])]
        g.add(g.b.bind(nodes.Reshape(array, g.random.choice([one for one in shapes if len(one) <= 3]))))


def emit_rearrange(g: Generator) -> None:
    """Dimensions permuted."""
    array = g.choose(g.arrays(lambda one: one.type.rank > 1))
    if array is not None:
        permutation = list(range(array.type.rank))
        g.random.shuffle(permutation)
        result = g.b.rearrange(array, permutation)
        if result is not array:
            g.add(result)


def emit_copy(g: Generator) -> None:
    """A fresh copy."""
    array = g.choose(g.arrays(lambda one: g.affordable(*one.type.shape)))
    if array is not None:
        g.add(g.b.bind(nodes.Copy(array, g.random.choice((None, None, nodes.Level.BLOCK)))))


def emit_size(g: Generator) -> None:
    """A size as a scalar."""
    array = g.choose(g.arrays())
    extent = size(g.random.choice(sorted(g.size_names))) if array is None else g.random.choice(array.type.shape)
    g.add(g.b.bind(nodes.SizeValue(extent)))


ARRAY_STATEMENTS: tuple[Callable[[Generator], None], ...] = (
    emit_index, emit_index, emit_update, emit_slice, emit_iota, emit_replicate, emit_concat, emit_reshape,
    emit_rearrange, emit_rearrange, emit_copy, emit_size,
)  # fmt: skip
