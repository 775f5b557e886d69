"""The array combinators inside one work item: maps, folds, scans, scatters and streams as sequential loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Lambda, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ZERO, Size, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant
from tilewright.passes.items.accumulators import PIECE, Accumulators, write_prefixes
from tilewright.passes.items.fold_groups import FoldRows, emit_rows
from tilewright.passes.items.item_memory import ArrayValue, Item
from tilewright.passes.items.lower_items import (
    AnyValue,
    bind,
    call,
    lower_body,
    lower_expression,
    row_of,
    value_of,
    view,
    write,
)
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.sum_trees import grows_errors
from tilewright.passes.lanes.lane_loops import in_lanes, wants_lanes

LEVELS = 2

Rows: TypeAlias = Callable[[Size, Sequence[ArrayView | None]], Sequence[AnyValue]]


def fold(
    item: Item,
    extent: Size,
    combine: Lambda,
    neutral: Sequence[Atom],
    rows: Rows,
    accumulator_places: Sequence[ArrayView | None],
    mapped: Sequence[ArrayView],
    scanned: Sequence[ArrayView] = (),
    start: Size | None = None,
    short: bool = False,
    initial: Sequence[Atom] | None = None,
) -> list[AnyValue]:
    """Fold `rows(index, destinations)` for extent indices from `start`; the accumulators at the end.

    The first results of `rows` are combined in order, the further ones written to rows of `mapped`. With `scanned`,
    each accumulator is written there after every step. Long sums (unless `short` says that there are few rows) are
    those of pieces, so that their error hardly grows with their length. The accumulators begin as `initial`, or as the
    neutral element.
    """
    types = [atom.type for atom in neutral]

    def step(counter: Size, accumulators: Accumulators) -> None:
        index, values = row(counter)
        accumulators.update(combine, [*accumulators.values, *values[: len(neutral)]])
        for value, place in zip(accumulators.values, scanned, strict=bool(scanned)):
            write(item, value, row_of(place, index))

    def some(first: Size, count: Size, into: Accumulators) -> None:
        """Rows that are added up without a tree of pieces."""

        def value(k: Size) -> list[Value]:
            counter = item.known_index(first + k, extent)
            values = rows(counter if start is None else start + counter, [None] * len(neutral))
            return _scalars(values[: len(neutral)])

        if mapped or any(one.rank for one in types):
            item.loop(count, "k", lambda k: step(item.known_index(first + k, extent), into))
            return
        combined = FoldRows(
            value,
            lambda one, two: _scalars(call(item, combine, [*one, *two])),
            lambda found: into.update(combine, [*into.values, *found]),
        )
        emit_rows(item, count, combined)

    def pieces(first: Size, count: Size, into: Accumulators, levels: int) -> None:
        """A tree of so many levels above the rows."""
        if not levels:
            some(first, count, into)
            return
        length = size(PIECE**levels)

        def piece(number: Size) -> None:
            inner = Accumulators(item)
            inner.begin(neutral, types, [None] * len(neutral))
            pieces(first + number * length, minimum(length, count - number * length), inner, levels - 1)
            into.update(combine, [*into.values, *inner.values])

        item.loop((count + length - 1) // length, "piece", piece)

    def in_order() -> None:
        item.loop(extent, "k", lambda k: step(k, accumulators))

    def row(k: Size) -> tuple[Size, Sequence[AnyValue]]:
        index = k if start is None else start + k
        nothing: list[ArrayView | None] = [None] * len(neutral)
        return index, rows(index, nothing + [row_of(place, index) for place in mapped])

    accumulators = Accumulators(item)
    accumulators.begin(neutral if initial is None else initial, types, accumulator_places)
    if short or not grows_errors(combine):
        in_order()
    elif scanned:
        if_long(
            item, extent, lambda: write_prefixes(item, extent, combine, neutral, row, accumulators, scanned), in_order
        )
    else:
        if_long(
            item,
            extent,
            lambda: pieces(ZERO, extent, accumulators, LEVELS),
            lambda: some(ZERO, extent, accumulators),
        )
    return accumulators.values


def _scalars(values: Sequence[AnyValue]) -> list[Value]:
    found = [one for one in values if isinstance(one, tuple)]
    assert len(found) == len(values)
    return found


def if_long(item: Item, extent: Size, pieces: Callable[[], None], in_order: Callable[[], None]) -> None:
    """Short folds are done in order. Inside of another such fold all are done in pieces, or else the code would double
    with every fold around it.
    """
    if item.in_pieces or extent.constant is not None:
        in_order() if extent.constant is not None and extent.constant <= PIECE else pieces()
        return
    item.in_pieces = True
    with item.emit.scope() as long:
        pieces()
    with item.emit.scope() as short:
        in_order()
    item.in_pieces = False
    many = kernel.operation("gt", lower_size(extent, item.emit), Constant(PIECE, I64))
    item.emit.emit(kernel.If(many, tuple(long), tuple(short)))


def function_rows(item: Item, function: Lambda | None, arrays: Sequence[ArrayValue]) -> Rows:
    """The rows of arrays, with a function applied to them if there is one."""

    def rows(index: Size, destinations: Sequence[ArrayView | None]) -> Sequence[AnyValue]:
        elements = [item.row(one, index) for one in arrays]
        return elements if function is None else call(item, function, elements, destinations)

    return rows


def arrays_of(item: Item, variables: Sequence[Variable]) -> list[ArrayValue]:
    """The arrays that a combinator runs over."""
    found = [value_of(item, one) for one in variables]
    return [one for one in found if not isinstance(one, tuple)]


@lower_expression.register
def _(expression: nodes.Map, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    places = [item.target(target) for target in targets]
    rows = function_rows(item, expression.function, arrays_of(item, expression.arrays))

    def write_row(i: Size) -> None:
        rows(i, [row_of(place, i) for place in places])

    if item.vector_lanes and item.lanes is None and wants_lanes(expression.function.body):
        bounds = Constant(0, I64), item.emit.let(lower_size(expression.width, item.emit), "stop")
        in_lanes(item, bounds, expression.width, write_row, lambda: item.loop(expression.width, "i", write_row))
    else:
        item.loop(expression.width, "i", write_row)
    return places


def _discard(values: Sequence[AnyValue]) -> None:
    """The values were written to their destinations."""


def when_bin_exists(item: Item, bin_: kernel.Expression, bins: Size, put: Callable[[Size], None]) -> None:
    """put(bin) if 0 <= bin < bins."""
    item.emit.values[(name := f"%bin.{item.emit.name('bin')}")] = (bin_,)
    item.inner.add(name)
    extent = item.emit.let(lower_size(bins, item.emit), "bins")
    inside = kernel.operation(
        "and", kernel.operation("ge", bin_, Constant(0, I64)), kernel.operation("lt", bin_, extent)
    )
    item.emit.when(item.emit.let(inside, "inside"), lambda: put(size(name)))


def scatter_one(item: Item, expression: nodes.Scatter, place: ArrayView, index: Size) -> None:
    """The effect of value number `index` of a scatter."""
    (bin_,) = _scalar(item.row(view(item, expression.indices), index))
    value = item.row(view(item, expression.values), index)
    when_bin_exists(item, bin_, place.lmad.shape[0], lambda at: write(item, value, row_of(place, at)))


def _scalar(value: AnyValue) -> tuple[kernel.Expression, ...]:
    assert isinstance(value, tuple)
    return value


@lower_expression.register
def _(expression: nodes.Scatter, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    source = view(item, expression.destination)
    place = item.target(targets[0])
    item.copy(source, place)
    item.loop(expression.indices.type.shape[0], "i", lambda i: scatter_one(item, expression, place, i))
    return (place,)


@lower_expression.register
def _(expression: nodes.Hist, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    sources = [view(item, one) for one in expression.destinations]
    places = [item.target(target) for target in targets]
    for source, place in zip(sources, places, strict=True):
        item.copy(source, place)
    indices = view(item, expression.indices)
    values = arrays_of(item, expression.values)

    def step(i: Size) -> None:
        bin_ = item.row(indices, i)
        combine_into_bin(item, expression.combine, places, bin_, [item.row(one, i) for one in values])

    item.loop(expression.indices.type.shape[0], "i", step)
    return places


def combine_into_bin(
    item: Item, combine: Lambda, places: Sequence[ArrayView], bin_: AnyValue, values: Sequence[AnyValue]
) -> None:
    """places[bin] = combine(places[bin], values) if the bin exists."""
    (number,) = _scalar(bin_)

    def put(at: Size) -> None:
        rows = [row_of(one, at) for one in places]
        old: list[AnyValue] = [item.load(one, ()) if one.lmad.rank == 0 else one for one in rows]
        spare = [item.allocate(one.type, "bin_next") if one.lmad.rank else None for one in rows]
        new = call(item, combine, [*old, *values], spare)
        for value, one in zip(new, rows, strict=True):
            write(item, value, one)

    when_bin_exists(item, number, places[0].lmad.shape[0], put)


@lower_expression.register
def _(expression: nodes.StreamSeq, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    count = len(expression.initial)
    places = [item.target(target) if target.type.rank else None for target in targets[:count]]
    mapped = [item.target(target) for target in targets[count:]]
    arrays = [view(item, one) for one in expression.arrays]
    accumulators = Accumulators(item)
    accumulators.begin(expression.initial, [target.type for target in targets[:count]], places)
    length_parameter = expression.function.parameters[0]
    chunks = (expression.width + expression.chunk - 1) // expression.chunk

    def step(c: Size) -> None:
        start = c * expression.chunk
        length = item.emit.let(lower_size(minimum(expression.chunk, expression.width - start), item.emit), "length")
        item.ranges[length_parameter.name] = expression.chunk + 1
        bind(item, length_parameter, (length,))
        count_ = size(length_parameter.name)
        pieces = [_rows_from(one, start, count_) for one in arrays]
        outputs = [_rows_from(one, start, count_) for one in mapped]
        results = call(
            item,
            expression.function,
            [(length,), *accumulators.values, *pieces],
            [*accumulators.spare, *outputs],
        )
        accumulators.assign(results[:count])

    item.loop(chunks, "chunk", step)
    return [*accumulators.values, *mapped]


def _rows_from(array: ArrayView, start: Size, count: Size) -> ArrayView:
    whole = [nodes.SliceDimension(size(0), extent) for extent in array.lmad.shape[1:]]
    lmad = array.lmad.slice([nodes.SliceDimension(start, count), *whole])
    return ArrayView(array.buffer, array.element, lmad)


# --- segmented operations ---------------------------------------------------------------------------------------------


def bind_index(item: Item, variable: Variable, index: Size, extent: Size) -> None:
    """Let a variable of the program be an index below `extent`."""
    value = item.emit.let(lower_size(index, item.emit), variable.name)
    bind(item, variable, (value,))
    item.ranges[variable.name] = extent


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
    over_space(
        item, expression.space.dimensions, places, lambda parts: _discard(lower_body(item, expression.body, parts))
    )
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
    if isinstance(expression, nodes.SegScan):
        nowhere = [None] * count
        fold(item, extent, expression.combine, expression.neutral, rows, nowhere, parts[count:], parts[:count])
        return
    places = [part if part.lmad.rank else None for part in parts[:count]]
    values = fold(item, extent, expression.combine, expression.neutral, rows, places, parts[count:])
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
        values = fold(item, extent, expression.combine, expression.neutral, rows, places, mapped)
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
