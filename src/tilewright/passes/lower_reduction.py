"""The first stage of a parallel reduction: chunks of rows, each folded by one worker.

A commutative operator on scalars is folded in `LANES` interleaved partial results, which a CPU keeps in vector
registers; any other one in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.lmad import row_major
from tilewright.ir.nodes import Atom, Type
from tilewright.ir.scalars import I64, compute_type
from tilewright.ir.sizes import ZERO, Size, minimum, size
from tilewright.ir.traversal import all_statements
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Buffer, Constant, For, Space
from tilewright.passes import lower_folds
from tilewright.passes.item_memory import Item
from tilewright.passes.lower_general import Places, Points
from tilewright.passes.lower_items import AnyValue, call, row_of, write
from tilewright.passes.lower_scalar import lower_atom
from tilewright.passes.scalar_values import memory_element

LANES = 32

Reduction = nodes.Reduce | nodes.Redomap


def chunk_points(reduction: Reduction, chunks: str, chunk_length: str, interleave: bool) -> Points:
    """Point p folds the rows from p*length on; mapped results are written whole.

    Args:
        reduction: with scalar accumulators.
        chunks, chunk_length: names of the number of chunks and of the rows of one.
        interleave: fold in lanes where the operator allows it.
    """
    count = len(reduction.neutral)
    function = reduction.function if isinstance(reduction, nodes.Redomap) else None
    lanes = interleave and _allows_lanes(reduction)

    def write_chunk(item: Item, at: Sequence[Size], places: Places) -> None:
        start = at[0] * size(chunk_length)
        length = minimum(size(chunk_length), reduction.width - start)
        rows = lower_folds.function_rows(item, function, lower_folds.arrays_of(item, reduction.arrays))
        fold = _fold_in_lanes if lanes else lower_folds.fold
        values = fold(
            item, length, reduction.combine, reduction.neutral, rows, [None] * count, places[count:], start=start
        )
        for value, place in zip(values, places, strict=False):
            write(item, value, row_of(place, at[0]))

    return Points((size(chunks),), write_chunk)


def _allows_lanes(reduction: Reduction) -> bool:
    """Whether the operator is a commutative one on real scalars, and the rows are scalars computed without loops."""
    functions = [reduction.combine] + ([reduction.function] if isinstance(reduction, nodes.Redomap) else [])
    simple = all(
        isinstance(one.expression, nodes.Apply | nodes.Cast | nodes.Alias | nodes.SizeValue)
        for function in functions
        for one in all_statements(function.body)
    )
    reals = not any(atom.type.element.is_complex for atom in reduction.neutral)
    return reduction.commutative and simple and reals and all(one.type.rank == 1 for one in reduction.arrays)


def _fold_in_lanes(
    item: Item,
    extent: Size,
    combine: nodes.Lambda,
    neutral: Sequence[Atom],
    rows: lower_folds.Rows,
    accumulator_places: Sequence[ArrayView | None],
    mapped: Sequence[ArrayView],
    scanned: Sequence[ArrayView] = (),
    start: Size = ZERO,
) -> list[AnyValue]:
    """`lower_folds.fold` for scalars: lane l takes the rows l, l + LANES, ...; then the rest, then all lanes."""
    partial = [_lane_array(item, atom.type) for atom in neutral]
    for place, atom in zip(partial, neutral, strict=True):
        initial = lower_atom(atom, item.emit)
        item.loop(size(LANES), "lane", lambda lane: item.store(place, (lane,), initial))  # noqa: B023
    whole = extent // LANES

    def round_(number: Size) -> None:
        index, lane = item.index("lane", size(LANES))
        with item.emit.scope() as body:
            at = start + number * LANES + lane
            nothing: list[ArrayView | None] = [None] * len(neutral)
            values = rows(at, nothing + [row_of(place, at) for place in mapped])
            old = [item.load(place, (lane,)) for place in partial]
            for place, value in zip(partial, call(item, combine, [*old, *values[: len(neutral)]]), strict=True):
                write(item, value, row_of(place, lane))
        stop = Constant(LANES, I64)
        item.emit.emit(For(index.name, Constant(0, I64), stop, tuple(body), independent=True))

    item.loop(whole, "round", round_)
    done = whole * LANES
    rest = lower_folds.fold(item, extent - done, combine, neutral, rows, accumulator_places, mapped, start=start + done)
    accumulators = lower_folds.Accumulators(item, rest, [None] * len(rest))
    item.loop(
        size(LANES),
        "lane",
        lambda lane: accumulators.update(combine, [*rest, *(item.load(place, (lane,)) for place in partial)]),
    )
    return rest


def _lane_array(item: Item, type_: Type) -> ArrayView:
    """One private element per lane. Small floats are carried in f32 here, as in variables."""
    carried = compute_type(type_.element)
    buffer = Buffer(item.emit.name("lanes"), memory_element(carried), Space.PRIVATE, LANES)
    item.private.append(buffer)
    item.buffers[buffer.name] = buffer
    return ArrayView(buffer.name, carried, row_major((size(LANES),)))
