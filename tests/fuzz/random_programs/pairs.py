"""Pairs of constructs for the random program generator: what the first gives, the second alone reads.

Most rewrite rules are for such pairs: a fold of a map, a slice of a slice, a map of an array that a branch computes or
that is joined of parts, a view of each row of an array, a fold of nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from random_programs.scalars import random_fold, within_one
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ONE, ZERO, Size, minimum, size

if TYPE_CHECKING:
    from random_programs.generator import Generator


def _source(g: Generator) -> Variable:
    """A vector in scope, or numbers in order, of which there may be none."""
    found = g.choose(g.arrays(lambda one: one.type.rank == 1 and g.affordable(one.type.shape[0], size(2))))
    if found is None or g.random.random() < 0.1:
        return g.b.bind(nodes.Iota(g.random.choice((ZERO, ZERO, size(3)))))
    return found


def _part(g: Generator, extent: Size) -> nodes.SliceDimension:
    """A part that is in range of any extent."""
    ways = (nodes.SliceDimension(ZERO, minimum(extent, 2)), nodes.SliceDimension(ZERO, (extent + 1) // 2, 2),
            nodes.SliceDimension(extent - 1, extent, -1), nodes.SliceDimension(ZERO, extent))  # fmt: skip
    return g.random.choice(ways)


def _changed(g: Generator, x: Atom) -> Atom:
    """Another value of the same type, as tame as it is."""
    element = x.type.element
    if element == BOOL:
        return g.b.apply("xor", x, g.atom(BOOL))
    if element.is_integer:
        x = x if g.random.random() < 0.7 else g.b.bind(nodes.Cast(element, g.b.bind(nodes.Cast(I64, x))))
        return g.b.apply(g.random.choice(("add", "xor", "max")), x, g.atom(element))
    return g.b.apply("neg", g.b.bind(nodes.Cast(element, x)))


def _mapped(g: Generator, array: Variable) -> Variable:
    return g.b.map([array], lambda x: _changed(g, x))


def _sliced(g: Generator, array: Variable) -> Variable:
    return g.b.bind(nodes.Slice(array, tuple(_part(g, one) for one in array.type.shape)))


def _joined(g: Generator, array: Variable) -> Variable:
    edge = g.b.bind(nodes.Replicate(size(g.random.randint(0, 2)), g.atom(array.type.element)))
    return g.b.bind(nodes.Concat(0, (edge, array) if g.random.random() < 0.5 else (array, edge)))


def _branched(g: Generator, array: Variable) -> Variable:
    """Mapped in one branch, sometimes of what is mapped before it, and as it is in the other."""
    before = _mapped(g, array) if g.random.random() < 0.5 else array
    branches: list[Callable[[], Sequence[Atom]]] = [lambda: [_mapped(g, before)], lambda: [array]]
    if g.random.random() < 0.5:
        branches.reverse()
    (result,) = g.b.cond(g.atom(BOOL), *branches)
    return result


def _repeated(g: Generator, array: Variable) -> Variable:
    return g.b.bind(nodes.Replicate(array.type.shape[0], g.atom(array.type.element)))


def _reshaped(g: Generator, array: Variable) -> Variable:
    """As it was, by way of a matrix of one row."""
    return g.b.bind(nodes.Reshape(g.b.bind(nodes.Reshape(array, (ONE, array.type.shape[0]))), array.type.shape))


def _whole(g: Generator, array: Variable) -> Variable:
    return g.b.bind(nodes.Index(array, ()))


def _folded(g: Generator, array: Variable) -> Variable:
    """A fold or scan of a function of every element."""
    operator = random_fold(g.b, g.random, array.type.element, accumulating=True)

    def function(x: Variable) -> Atom:
        value = _changed(g, x)
        return within_one(g.b, value) if operator.shrink else value

    kind = g.random.choice((nodes.Redomap, nodes.Scanomap))
    of_each = g.b.function([array.type.row], function)
    result = g.b.emit(kind(array.type.shape[0], operator.combine, operator.neutral, of_each, (array,)))[0]
    tamed = result if operator.bounded else g.tame(result)
    assert isinstance(tamed, Variable)
    return tamed


def emit_pair_of_scans(g: Generator) -> None:
    """Two scans side by side."""
    array = _source(g)
    for _ in range(2):
        operator = random_fold(g.b, g.random, array.type.element, accumulating=True)
        result = g.b.scan(operator.combine, operator.neutral[0], array)
        tamed = result if operator.bounded else g.tame(result)
        assert isinstance(tamed, Variable)
        g.add(tamed)


_FIRST = (_mapped, _mapped, _sliced, _joined, _branched, _branched, _branched, _repeated, _reshaped, _whole)
_SECOND = (_mapped, _sliced, _folded, _folded, _reshaped, _joined)


def emit_pair(g: Generator) -> None:
    """One construct of another one of a vector."""
    g.add(g.random.choice(_SECOND)(g, g.random.choice(_FIRST)(g, _source(g))))


def emit_views_of_rows(g: Generator) -> None:
    """A part, a repetition, another shape of every row of a matrix."""
    rows = g.choose(g.arrays(lambda one: one.type.rank == 2 and g.affordable(*one.type.shape, size(2))))
    if rows is not None:
        view = g.random.choice((_sliced, _sliced, _joined, _reshaped, _repeated))
        g.add(g.b.map([rows], lambda row: view(g, row)))


PAIR_STATEMENTS: tuple[Callable[[Generator], None], ...] = (
    emit_pair, emit_pair, emit_pair, emit_pair_of_scans, emit_views_of_rows,
)  # fmt: skip
