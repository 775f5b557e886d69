"""The segmented operations inside one work item: loops over their space."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Variable
from tilewright.ir.sizes import Size
from tilewright.ir.views import ArrayView
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Fold, Rows, combine_into_bin, fold
from tilewright.passes.items.lower_items import AnyValue, bind_index, lower_body, lower_expression, row_of, view, write


def over_space(
    item: Item,
    dimensions: Sequence[tuple[Variable, Size]],
    places: Sequence[ArrayView],
    write_point: Callable[[Sequence[ArrayView]], None],
) -> None:
    """Loops over the dimensions; `write_point` gets the part of each place that belongs to the point."""
    if not dimensions:
        write_point(places)
        return
    (variable, extent), *rest = dimensions

    def step(index: Size) -> None:
        bind_index(item, variable, index, extent)
        over_space(item, rest, [row_of(place, index) for place in places], write_point)

    item.loop(extent, variable.name, step)


@lower_expression.register
def _(expression: nodes.SegMap, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    places = [item.target(target) for target in targets]

    def point(parts: Sequence[ArrayView]) -> None:
        lower_body(item, expression.body, parts)

    over_space(item, expression.space.dimensions, places, point)
    return places


def segment_rows(item: Item, expression: nodes.SegRed | nodes.SegScan) -> Rows:
    """The body's results for each index of the innermost dimension."""
    variable, extent = expression.space.dimensions[-1]

    def rows(index: Size, destinations: Sequence[ArrayView | None]) -> Sequence[AnyValue]:
        bind_index(item, variable, index, extent)
        return lower_body(item, expression.body, destinations)

    return rows


def write_segment(item: Item, expression: nodes.SegRed | nodes.SegScan, parts: Sequence[ArrayView]) -> None:
    """Fold one segment into its part of the results."""
    count = len(expression.neutral)
    extent = expression.space.dimensions[-1][1]
    rows = segment_rows(item, expression)
    whole = Fold(item, extent, expression.combine, expression.neutral, rows, parts[count:])
    if isinstance(expression, nodes.SegScan):
        fold(whole, scanned=parts[:count])
        return
    places = [part if part.lmad.rank else None for part in parts[:count]]
    values = fold(whole, places)
    for value, part in zip(values, parts, strict=False):
        write(item, value, part)


@lower_expression.register(nodes.SegRed)
@lower_expression.register(nodes.SegScan)
def _(expression: nodes.SegRed | nodes.SegScan, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    outer = expression.space.dimensions[:-1]
    if isinstance(expression, nodes.SegRed) and not outer:
        count = len(expression.neutral)
        places = [item.target(target) if target.type.rank else None for target in targets[:count]]
        mapped = [item.target(target) for target in targets[count:]]
        extent = expression.space.dimensions[-1][1]
        rows = segment_rows(item, expression)
        values = fold(Fold(item, extent, expression.combine, expression.neutral, rows, mapped), places)
        return [*values, *mapped]
    whole = [item.target(target) for target in targets]
    over_space(item, outer, whole, lambda parts: write_segment(item, expression, parts))
    return whole


@lower_expression.register
def _(expression: nodes.SegHist, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    sources = [view(item, one) for one in expression.destinations]
    places = [item.target(target) for target in targets]
    for source, place in zip(sources, places, strict=True):
        item.copy(source, place)
    over_space(item, expression.space.dimensions[:-1], places, lambda parts: write_histogram(item, expression, parts))
    return places


def bin_row(item: Item, expression: nodes.SegHist, at: Sequence[Size]) -> Callable[[Size], Sequence[AnyValue]]:
    """The bin and the values for each index of the innermost dimension, of the segment at some indices."""
    for (variable, extent), index in zip(expression.space.dimensions, at, strict=False):
        bind_index(item, variable, index, extent)
    variable, extent = expression.space.dimensions[-1]

    def row(index: Size) -> Sequence[AnyValue]:
        bind_index(item, variable, index, extent)
        return lower_body(item, expression.body)

    return row


def write_histogram(item: Item, expression: nodes.SegHist, parts: Sequence[ArrayView]) -> None:
    """Combine the values of one segment, whose indices are bound, into its bins."""
    variable, extent = expression.space.dimensions[-1]
    row = bin_row(item, expression, ())

    def step(index: Size) -> None:
        bin_, *values = row(index)
        combine_into_bin(item, expression.combine, parts, bin_, values)

    item.loop(extent, variable.name, step)
