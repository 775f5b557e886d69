"""Folds and scans of segments as points: one worker folds or scans a segment, or a chunk of one, in the order of rows.

This is the whole story on a CPU, whose blocks are cores, and on a GPU for segments of a few rows. A worker of a CPU
folds a commutative operator in vector lanes (points/lower_reduction.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.nodes import Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE, Size, maximum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Constant, operation
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Fold
from tilewright.passes.items.lower_items import bind, write
from tilewright.passes.items.lower_scalar import Value, lower_atom, lower_size
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.points.lower_reduction import fold_rows
from tilewright.passes.points.scan_lanes import scan_rows, total_of_rows
from tilewright.passes.points.scan_strips import Before
from tilewright.passes.segments.form import Chunks, Segments, space_of, split_point


def part(place: ArrayView, at: Sequence[Size]) -> ArrayView:
    """place[at]."""
    return ArrayView(place.buffer, place.element, place.lmad.fix(at))


def fold_points(segments: Segments, chunks: Chunks | None = None) -> Points:
    """Each point folds a segment, or with `chunks` a chunk of one; what is mapped is written whole.

    Targets: for each accumulator an array over the points, then the mapped arrays.
    """
    count = len(segments.neutral)

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        start, length, segment = split_point(segments, chunks, at)
        segments.bind_neutral(item, segment)
        rows = segments.rows(item, segment)
        mapped = [segments.part(place, segment) for place in places[count:]]
        vectors, commutes = item.vector_lanes and segments.simple, segments.commutative
        whole = Fold(item, length, segments.combine, segments.neutral, rows, mapped, start)
        best = segments.best(item) if vectors else None
        values = fold_rows(whole, vectors and commutes, in_order=vectors and not commutes, best=best)
        for value, place in zip(values, places, strict=False):
            write(item, value, part(place, at))

    return Points(space_of(segments, chunks), write_point)


def total_points(segments: Segments, chunks: Chunks) -> Points:
    """Each point finds what a chunk of a scan gives, all but the last one with the bits that the scan itself has."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        start, length, segment = split_point(segments, chunks, at)
        rows = segments.rows(item, segment)
        whole = Fold(item, length, segments.combine, segments.neutral, rows, (), start)
        values = total_of_rows(whole, segments.sources)
        for value, place in zip(values, places, strict=True):
            write(item, value, part(place, at))

    return Points(space_of(segments, chunks), write_point)


def scan_points(
    segments: Segments, chunks: Chunks | None = None, before: Sequence[Variable] = (), inside: Chunks | None = None
) -> Points:
    """Each point scans a segment, or a chunk of one; a whole segment chunk by chunk if these are given as `inside`.

    `before` are arrays that hold what all chunks up to and including each one of them give; chunk c goes on from what
    stands there for chunk c - 1.
    """
    count = len(segments.neutral)

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        start, length, segment = split_point(segments, chunks, at)
        given: Before | None = None
        if before:
            given = Before(_bound_atoms(item, segments, values_before(item, segments, before, at)))
        elif inside is not None:
            given = Before(segments.neutral, size(inside.length))
        rows = segments.rows(item, segment)
        parts = [segments.part(place, segment) for place in places]
        whole = Fold(item, length, segments.combine, segments.neutral, rows, parts[count:], start)
        scan_rows(whole, parts[:count], segments.plain, given, segments.sources, segments.chain)

    return Points(space_of(segments, chunks), write_point)


def values_before(item: Item, segments: Segments, before: Sequence[Variable], at: Sequence[Size]) -> list[Value]:
    """What the chunks before chunk at[0] give: nothing before the first."""
    emit = item.emit
    is_first = emit.let(operation("eq", lower_size(at[0], emit), Constant(0, I64)), "is_first")
    last = (maximum(at[0], ONE) - 1, *at[1:])
    values: list[Value] = []
    for variable, neutral in zip(before, segments.neutral, strict=True):
        given = item.load(item.as_view(item.arrays[variable.name]), last)
        pairs = zip(lower_atom(neutral, emit), given, strict=True)
        values.append(tuple(emit.let(operation("select", is_first, a, b), "before") for a, b in pairs))
    return values


def _bound_atoms(item: Item, segments: Segments, values: Sequence[Value]) -> list[Variable]:
    """Values as atoms that a fold can begin with."""
    atoms = []
    for value, neutral in zip(values, segments.neutral, strict=True):
        atom = Variable(f"%before.{item.emit.name('before')}", Type(neutral.type.element))
        bind(item, atom, value)
        atoms.append(atom)
    return atoms
