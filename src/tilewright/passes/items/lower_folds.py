"""The array combinators inside one work item: maps, folds, scans, scatters and streams as sequential loops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Lambda, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ZERO, Size, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant
from tilewright.passes.items.accumulators import PIECE, Accumulators, write_prefixes
from tilewright.passes.items.fold_groups import FoldRows, emit_rows
from tilewright.passes.items.item_memory import ArrayValue, Item
from tilewright.passes.items.lower_items import AnyValue, bind, call, lower_expression, row_of, value_of, view, write
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.sum_trees import grows_errors

LEVELS = 2

Rows: TypeAlias = Callable[[Size, Sequence[ArrayView | None]], Sequence[AnyValue]]


@dataclass(frozen=True)
class Fold:
    """A fold in a work item: of `rows(index, destinations)` for `extent` indices from `start` on.

    The first results of `rows` are combined in order, the further ones written to rows of `mapped`.
    """

    item: Item
    extent: Size
    combine: Lambda
    neutral: Sequence[Atom]
    rows: Rows
    mapped: Sequence[ArrayView] = ()
    start: Size = ZERO

    @property
    def types(self) -> list[Type]:
        """Of what is combined."""
        return [atom.type for atom in self.neutral]

    def row(self, k: Size) -> tuple[Size, Sequence[AnyValue]]:
        """Where row k is, and its values; what is mapped is written."""
        index = self.start + k
        nothing: list[ArrayView | None] = [None] * len(self.neutral)
        return index, self.rows(index, nothing + [row_of(place, index) for place in self.mapped])

    def step(self, k: Size, into: Accumulators, scanned: Sequence[ArrayView] = ()) -> None:
        """Add row k."""
        index, values = self.row(k)
        into.update(self.combine, [*into.values, *values[: len(self.neutral)]])
        for value, place in zip(into.values, scanned, strict=bool(scanned)):
            write(self.item, value, row_of(place, index))

    def in_order(self, into: Accumulators, scanned: Sequence[ArrayView]) -> None:
        """Add all rows, one after another."""
        self.item.loop(self.extent, "k", lambda k: self.step(k, into, scanned))

    def some(self, first: Size, count: Size, into: Accumulators) -> None:
        """Rows that are added up without a tree of pieces."""
        item, combine = self.item, self.combine

        def value(k: Size) -> list[Value]:
            return _scalars(self.row(item.known_index(first + k, self.extent))[1][: len(self.neutral)])

        if self.mapped or any(one.rank for one in self.types):
            item.loop(count, "k", lambda k: self.step(item.known_index(first + k, self.extent), into))
            return
        combined = FoldRows(
            value,
            lambda one, two: _scalars(call(item, combine, [*one, *two])),
            lambda found: into.update(combine, [*into.values, *found]),
        )
        emit_rows(item, count, combined)

    def pieces(self, first: Size, count: Size, into: Accumulators, levels: int) -> None:
        """A tree of so many levels above the rows."""
        if not levels:
            self.some(first, count, into)
            return
        length = size(PIECE**levels)

        def piece(number: Size) -> None:
            inner = Accumulators(self.item)
            inner.begin(self.neutral, self.types, [None] * len(self.neutral))
            self.pieces(first + number * length, minimum(length, count - number * length), inner, levels - 1)
            into.update(self.combine, [*into.values, *inner.values])

        self.item.loop((count + length - 1) // length, "piece", piece)


def fold(
    whole: Fold,
    places: Sequence[ArrayView | None] | None = None,
    scanned: Sequence[ArrayView] = (),
    short: bool = False,
    initial: Sequence[Atom] | None = None,
) -> list[AnyValue]:
    """The accumulators of a fold at the end; those that are arrays lie in `places`.

    With `scanned`, each accumulator is written there after every step. Long sums (unless `short` says that there are
    few rows) are those of pieces, so that their error hardly grows with their length. The accumulators begin as
    `initial`, or as the neutral element.
    """
    item, extent = whole.item, whole.extent
    into = Accumulators(item)
    begun = whole.neutral if initial is None else initial
    into.begin(begun, whole.types, [None] * len(begun) if places is None else places)
    in_order = functools.partial(whole.in_order, into, scanned)
    if short or not grows_errors(whole.combine):
        in_order()
    elif scanned:
        arguments = item, extent, whole.combine, whole.neutral, whole.row, into, scanned
        if_long(item, extent, functools.partial(write_prefixes, *arguments), in_order)
    else:
        if_long(item, extent, lambda: whole.pieces(ZERO, extent, into, LEVELS), lambda: whole.some(ZERO, extent, into))
    return into.values


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
    many = kernel.operation("gt", lower_size(extent, item.emit), Constant(PIECE, I64))
    item.emit.when(many, pieces, in_order)
    item.in_pieces = False


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


def when_bin_exists(item: Item, bin_: kernel.Expression, bins: Size, put: Callable[[Size], None]) -> None:
    """put(bin) if 0 <= bin < bins."""
    at = item.named(bin_, "bin")
    extent = item.emit.let(lower_size(bins, item.emit), "bins")
    inside = kernel.operation(
        "and", kernel.operation("ge", bin_, Constant(0, I64)), kernel.operation("lt", bin_, extent)
    )
    item.emit.when(item.emit.let(inside, "inside"), lambda: put(at))


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
            item, expression.function, [(length,), *accumulators.values, *pieces], [*accumulators.spare, *outputs]
        )
        accumulators.assign(results[:count])

    item.loop(chunks, "chunk", step)
    return [*accumulators.values, *mapped]


def _rows_from(array: ArrayView, start: Size, count: Size) -> ArrayView:
    whole = [nodes.SliceDimension(size(0), extent) for extent in array.lmad.shape[1:]]
    lmad = array.lmad.slice([nodes.SliceDimension(start, count), *whole])
    return ArrayView(array.buffer, array.element, lmad)
