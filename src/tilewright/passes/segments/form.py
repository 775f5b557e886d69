"""Folds and scans of segments, in one form whoever wrote them: `reduce`, `redomap`, `scan`, `scanomap`, `segred` and
`segscan` all combine the rows of each segment of a space with an associative operator on scalars [S2].

    segred (i < n, j < m) (+) 0 do x[i, j]   has the segments (n) of width m
    reduce n (+) 0 x                         has one segment of width n
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, ScalarCode, Type, Variable
from tilewright.ir.scalars import compute_type
from tilewright.ir.sizes import ZERO, Size, minimum, size
from tilewright.ir.traversal import all_statements, is_plain, used_variables
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Space
from tilewright.passes.items import lower_folds, lower_segments
from tilewright.passes.items.first_best import FirstBest, first_best
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Rows
from tilewright.passes.items.lower_items import AnyValue, bind_index
from tilewright.passes.items.lower_scalar import lower_atom
from tilewright.passes.items.scalar_values import Value

Fold: TypeAlias = nodes.Fold | nodes.SegRed | nodes.SegScan


def no_best(item: Item) -> None:
    """Partial results can only be combined in the order of their rows."""


@dataclass(frozen=True)
class Segments:
    """What is combined in each segment.

    Attributes:
        outer: the extents of the space of segments, outermost first.
        width: rows of one segment.
        combine, neutral: the operator, on scalars.
        commutative: rows may be combined in any order; otherwise only bracketed in any way.
        simple: rows and operator are straight-line code on real scalars.
        sources: arrays whose elements are the rows, if these are no more than that.
        plain: rows are code on scalars without loops, which may read elements of arrays.
        adjacent: neighbouring segments lie next to each other in memory, the rows of one do not (if arrays are dense).
        rows: the rows of the segment at some indices, as code of a work item.
        strides: arrays whose elements vary from row to row, with the dimension along which they do, and the one along
            which they vary with the innermost index of the segments (None: with none); empty if that is not known.
        chain: the rows are combined one after another in any case, as one worker does with chunks.
        rows_first: arrays of results have the rows as their outermost dimension, not behind those of the segments.
        best: what it keeps in a work item, if it keeps the first of the best rows (items/first_best.py).
        own_neutral: arrays of neutral elements, where each segment has its own by its last index; `neutral` are names.
    """

    outer: tuple[Size, ...]
    width: Size
    combine: Lambda
    neutral: tuple[Atom, ...]
    commutative: bool
    simple: bool
    adjacent: bool
    rows: Callable[[Item, Sequence[Size]], Rows]
    strides: tuple[tuple[Variable, int, int | None], ...] = ()
    rows_first: bool = False
    plain: bool = True
    sources: tuple[Variable, ...] = ()
    chain: bool = False
    own_neutral: tuple[Variable, ...] = ()
    best: Callable[[Item], FirstBest | None] = no_best

    def bind_neutral(self, item: Item, at: Sequence[Size]) -> None:
        """Make the neutral elements of the segment at these indices known, if it has its own."""
        for name, array in zip(map(str, self.neutral), self.own_neutral, strict=False):
            item.emit.values[name] = item.load(item.as_view(item.arrays[array.name]), at[-1:])

    def part(self, place: ArrayView, at: Sequence[Size]) -> ArrayView:
        """Where the rows of the segment at these indices lie in an array of results."""
        lmad, rank = place.lmad, place.lmad.rank
        if self.rows_first:
            lmad = lmad.rearrange((*range(1, rank), 0))
        return ArrayView(place.buffer, place.element, lmad.fix(at))

    @property
    def bytes_per_row(self) -> int:
        """What the accumulators of one row take in registers or shared memory."""
        return sum(compute_type(atom.type.element).bytes for atom in self.neutral)


def segments_of(expression: Expression) -> Segments | None:
    """The segments that an expression folds or scans; None if it does neither, or its accumulators are arrays."""
    if not isinstance(expression, Fold) or any(atom.type.rank for atom in expression.neutral):
        return None
    commutative = isinstance(expression, nodes.Reduction | nodes.SegRed) and expression.commutative
    common = (expression.combine, expression.neutral, commutative)
    real = not any(atom.type.element.is_complex for atom in expression.neutral)
    if isinstance(expression, nodes.SegRed | nodes.SegScan):
        outer = expression.space.shape[:-1]
        simple = real and _is_simple(expression.combine.body) and _is_simple(expression.body, nodes.Index)
        rows = _space_rows(expression)
        width, adjacent = expression.space.shape[-1], _is_adjacent(expression)
        plain = is_plain(expression.body)
        strides = _strides(expression)
        return Segments(outer, width, *common, simple, adjacent, rows, strides, plain=plain, best=_best(expression))
    function = expression.function if isinstance(expression, nodes.Redomap | nodes.Scanomap) else None
    simple = real and _is_simple(expression.combine.body) and (function is None or _is_simple(function.body))
    simple = simple and all(one.type.rank == 1 for one in expression.arrays)
    arrays = expression.arrays

    def plain_rows(item: Item, at: Sequence[Size]) -> Rows:
        return lower_folds.function_rows(item, function, lower_folds.arrays_of(item, arrays))

    plain = function is None or is_plain(function.body)
    sources = () if function else arrays
    return Segments(
        (), expression.width, *common, simple, False, plain_rows, plain=plain, sources=sources, best=_best(expression)
    )


def _best(expression: Fold) -> Callable[[Item], FirstBest | None]:
    if not isinstance(expression, nodes.Reduction | nodes.SegRed) or expression.commutative:
        return no_best
    return partial(first_best, fold=expression)


def _is_simple(body: Body, *further: type) -> bool:
    """Whether a body is straight-line scalar code; elements read by an Index of the `further` kinds are scalars."""
    return all(
        isinstance(one.expression, (ScalarCode, *further)) and all(target.type.rank == 0 for target in one.targets)
        for one in all_statements(body)
    )


_COMMUTATIVE = {"add", "mul", "min", "max", "and", "or", "xor"}


def is_commutative(combine: Lambda) -> bool:
    """Whether each result is one commutative operator of the two values at that place."""
    count = len(combine.parameters) // 2
    applied = {one.targets[0]: one.expression for one in combine.body.statements}
    if len(applied) != count:
        return False
    for result, *pair in zip(combine.body.results, combine.parameters, combine.parameters[count:], strict=False):
        match applied.get(result) if isinstance(result, Variable) else None:
            case nodes.Apply(operator, operands) if operator in _COMMUTATIVE and set(operands) == set(pair):
                continue
        return False
    return True


def _is_adjacent(expression: nodes.SegRed | nodes.SegScan) -> bool:
    """Whether what varies from row to row is read with the innermost index of the segments last."""
    if len(expression.space.dimensions) < 2:
        return False
    (neighbour, _), (row, _) = expression.space.dimensions[-2:]
    reads = [
        one.expression.indices
        for one in all_statements(expression.body)
        if isinstance(one.expression, nodes.Index) and row in used_variables(one.expression)
    ]
    return bool(reads) and all(indices[-1] == neighbour for indices in reads)


def _strides(expression: nodes.SegRed | nodes.SegScan) -> tuple[tuple[Variable, int, int | None], ...]:
    """`Segments.strides`: empty if an index is computed from one that varies, or an array is made in the body."""
    if len(expression.space.dimensions) < 2:
        return ()
    (neighbour, _), (row, _) = expression.space.dimensions[-2:]
    made = {target.name for one in all_statements(expression.body) for target in one.targets}
    found = []
    for one in all_statements(expression.body):
        match one.expression:
            case nodes.Index(array, indices):
                if array.name in made or any(str(index) in made for index in indices):
                    return ()
                if row in indices:
                    axis = indices.index(neighbour) if neighbour in indices else None
                    found.append((array, indices.index(row), axis))
    return tuple(found)


def _space_rows(expression: nodes.SegRed | nodes.SegScan) -> Callable[[Item, Sequence[Size]], Rows]:
    def rows(item: Item, at: Sequence[Size]) -> Rows:
        for (variable, extent), index in zip(expression.space.dimensions, at, strict=False):
            bind_index(item, variable, index, extent)
        return lower_segments.segment_rows(item, expression)

    return rows


# --- histograms -------------------------------------------------------------------------------------------------------


Row: TypeAlias = Callable[[Size], Sequence[AnyValue]]


@dataclass(frozen=True)
class Histograms:
    """Reductions by index of segments.

    Attributes:
        outer, width: the extents of the segments, and the rows of each.
        bins: of each segment.
        combine, neutral: as of `hist`. given: what the bins begin as, arrays or scalars.
        row: the bin and the values of a row of the segment at some indices.
        inner: the extents of a bin that holds an array, each element of which is a histogram of its own: `combine` is
            of elements, `neutral` are arrays of them, and indices of segments have those of the element behind them.
        narrow: the same with the bin as an i32, if that is easier to compute; wrong only where no such bin exists.
    """

    outer: tuple[Size, ...]
    width: Size
    bins: Size
    combine: Lambda
    neutral: tuple[nodes.Atom, ...]
    given: tuple[Atom, ...]
    row: Callable[[Item, Sequence[Size]], Row]
    narrow: Callable[[Item, Sequence[Size]], Row] | None = None
    inner: tuple[Size, ...] = ()

    def bins_at(self, place: ArrayView, at: Sequence[Size]) -> ArrayView:
        """The bins at some indices, the last of which are those of the element, in an array of bins."""
        lmad, before = place.lmad, len(at) - len(self.inner)
        order = (*range(before), *range(before + 1, lmad.rank), before)
        return ArrayView(place.buffer, place.element, lmad.rearrange(order).fix(at))

    def neutral_at(self, item: Item, at: Sequence[Size]) -> list[Value]:
        """The neutral elements there."""
        element = at[len(at) - len(self.inner) :]
        return [
            item.load(item.as_view(item.arrays[str(one)]), element) if one.type.rank else lower_atom(one, item.emit)
            for one in self.neutral
        ]


# --- chunks of segments -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunks:
    """Segments cut into `count` pieces of `length` rows (the last may be shorter); names of sizes known at launch."""

    count: str
    length: str

    def of(self, segments: Segments, chunk: Size) -> tuple[Size, Size]:
        """The first row of a chunk and how many it has."""
        start = chunk * size(self.length)
        return start, minimum(size(self.length), segments.width - start)


def split_point(segments: Segments, chunks: Chunks | None, at: Sequence[Size]) -> tuple[Size, Size, Sequence[Size]]:
    """A point's first row, its rows, and the indices of its segment: chunks are the outermost dimension of a space."""
    return (ZERO, segments.width, at) if chunks is None else (*chunks.of(segments, at[0]), at[1:])


def space_of(segments: Segments, chunks: Chunks | None) -> tuple[Size, ...]:
    """The space of points."""
    return segments.outer if chunks is None else (size(chunks.count), *segments.outer)


def partial_variables(segments: Segments, targets: Sequence[Variable], chunks: Chunks, what: str) -> list[Variable]:
    """Arrays with one value for each chunk of each segment."""
    shape = space_of(segments, chunks)
    return [
        Variable(f"{target}.{what}", Type(compute_type(atom.type.element), shape))
        for target, atom in zip(targets, segments.neutral, strict=False)
    ]


def chunk_variables(neutral: Sequence[Atom], name: str, chunks: Chunks) -> tuple[Variable, ...]:
    """Arrays with one value for each chunk."""
    shape = (size(chunks.count),)
    return tuple(
        Variable(f"{name}.{k}", Type(compute_type(atom.type.element), shape)) for k, atom in enumerate(neutral)
    )


def partial_segments(segments: Segments, partial: Sequence[Variable], chunks: Chunks) -> Segments:
    """The segments whose rows are the values of the chunks."""

    def rows(item: Item, at: Sequence[Size]) -> Rows:
        views = [item.arrays[one.name] for one in partial]
        return lambda index, _: [item.load(item.as_view(view), (index, *at)) for view in views]

    return Segments(
        segments.outer, size(chunks.count), segments.combine, segments.neutral, segments.commutative,
        segments.simple, bool(segments.outer), rows, partial_strides(partial), own_neutral=segments.own_neutral,
    )  # fmt: skip


def partial_strides(partial: Sequence[Variable]) -> tuple[tuple[Variable, int, int | None], ...]:
    """`Segments.strides` of arrays with the rows first and the segments behind."""
    return tuple((one, 0, one.type.rank - 1) for one in partial if one.type.rank > 1)


# --- shared memory ----------------------------------------------------------------------------------------------------


def shared_arrays(item: Item, segments: Segments, count: int, hint: str) -> list[ArrayView]:
    """For each accumulator an array of `count` elements in the block's shared memory."""
    kept = [compute_type(atom.type.element) for atom in segments.neutral]  # small floats as f32, as in variables
    return [item.own(hint, one, count, Space.SHARED) for one in kept]
