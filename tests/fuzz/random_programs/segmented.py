"""The segmented operations of the random program generator: each function emits one, or nothing if nothing suits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from random_programs.scalars import FoldOperator, random_fold, within_one
from random_programs.soacs import keep_fold
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Type
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE, Size, product, size

if TYPE_CHECKING:
    from random_programs.generator import Generator

_DEEPER = {
    None: (nodes.Level.CLUSTER, nodes.Level.BLOCK, nodes.Level.BLOCK, nodes.Level.THREAD),
    nodes.Level.CLUSTER: (nodes.Level.BLOCK, nodes.Level.THREAD),
    nodes.Level.BLOCK: (nodes.Level.THREAD,),
    nodes.Level.THREAD: (),
}  # fmt: skip


def _level(g: Generator) -> nodes.Level | None:
    """A level deeper than the one here, if there is one."""
    return g.random.choice(_DEEPER[g.level]) if _DEEPER[g.level] else None


def _extents(g: Generator, most: int) -> list[Size]:
    """One to `most` extents whose space is small enough."""
    names = [*map(size, sorted(g.size_names)), ONE, size(2)]
    extents = [g.random.choice(names) for _ in range(g.random.randint(1, most))]
    while extents and not g.affordable(*extents):
        extents.pop()
    return extents


def _space(g: Generator, extents: Sequence[Size]) -> nodes.SegSpace:
    return nodes.SegSpace(tuple((g.b.variable("i", Type(I64)), extent) for extent in extents))


def _body(
    g: Generator, level: nodes.Level, space: nodes.SegSpace, depth: int, write: Callable[[], Sequence[Atom]]
) -> Body:
    """Elements of arrays at the space's point, some statements, then what `write` gives."""
    indices = [index for index, _ in space.dimensions]

    def body() -> Sequence[Atom]:
        outside, g.level = g.level, level
        with g.inside(indices, g.most(product(space.shape)), host=False):
            for _ in range(g.random.randint(0, 2)):
                _read(g, space)
            g.statements(g.random.randint(1, 2), depth)
            results = write()
        g.level = outside
        return results

    return g.b.body(body)


def _read(g: Generator, space: nodes.SegSpace) -> None:
    """An array at the innermost indices that its outer dimensions fit."""
    dimension = g.random.randrange(len(space.dimensions))
    dimensions = space.dimensions[dimension:]
    array = g.choose(g.arrays(lambda one: one.type.shape[0] == dimensions[0][1]))
    if array is not None:
        count = 1
        while count < min(array.type.rank, len(dimensions)) and array.type.shape[count] == dimensions[count][1]:
            count += 1
        g.add(g.b.index(array, *(index for index, _ in dimensions[:count])))


def emit_segmap(g: Generator, depth: int) -> None:
    """segmap of any body."""
    level, extents = _level(g), _extents(g, 3)
    if level is not None and extents:
        space = _space(g, extents)
        body = _body(g, level, space, depth, lambda: g.results(product(extents)))
        g.add(*g.b.emit(nodes.SegMap(level, space, body)))


def emit_segmented_fold(g: Generator, depth: int) -> None:
    """segred or segscan, sometimes with further arrays mapped out."""
    level, extents = _level(g), _extents(g, 3)
    if level is None or not extents:
        return
    scalar = g.random.choice(g.scalars)
    operator = random_fold(g.b, g.random, scalar)
    space = _space(g, extents)

    def results() -> Sequence[Atom]:
        further = g.results(product(extents)) if g.random.random() < 0.4 else []
        return [_value(g, operator), *further]

    body = _body(g, level, space, depth, results)
    if g.random.random() < 0.5:
        declared = operator.commutative and g.random.random() < 0.7
        fold, *mapped = g.b.emit(nodes.SegRed(level, space, operator.combine, operator.neutral, body, declared))
    else:
        fold, *mapped = g.b.emit(nodes.SegScan(level, space, operator.combine, operator.neutral, body))
    keep_fold(g, operator, fold)
    g.add(*mapped)


def _value(g: Generator, operator: FoldOperator) -> Atom:
    value = g.scalar(operator.neutral[0].scalar)
    return within_one(g.b, value) if operator.shrink else value


def emit_seghist(g: Generator, depth: int) -> None:
    """seghist of scalars into the rows of an array, some places out of range."""
    level = _level(g)
    bins = g.choose(g.arrays(lambda one: g.affordable(*one.type.shape)))
    extents = _extents(g, 1)
    if level is None or bins is None or not extents or not g.affordable(*bins.type.shape[:-1], *extents):
        return
    operator = random_fold(g.b, g.random, bins.type.element, accumulating=True)
    space = _space(g, (*bins.type.shape[:-1], *extents))

    def results() -> Sequence[Atom]:
        count = g.b.size_value(bins.type.shape[-1] + 2)
        place = g.b.apply("sub", g.b.apply("mod", g.atom(I64), count), nodes.index_literal(1))
        return [place, _value(g, operator)]

    body = _body(g, level, space, depth, results)
    (result,) = g.b.emit(nodes.SegHist(level, space, (bins,), operator.combine, operator.neutral, body))
    keep_fold(g, operator, result)


def emit_threshold(g: Generator, depth: int) -> None:
    """A threshold, which later conditions may use; only the host can ask."""
    if not g.host:
        return
    name = g.random.choice(("outer_0", "outer_1", "block_0"))
    g.add(g.b.bind(nodes.Threshold(name, size(g.random.choice(sorted(g.size_names))))))


SEGMENTED_STATEMENTS: tuple[Callable[[Generator, int], None], ...] = (
    emit_segmap, emit_segmap, emit_segmented_fold, emit_segmented_fold, emit_seghist, emit_threshold,
)  # fmt: skip
