"""Rows combined with bins that registers hold: as long as rows go into one bin, it is neither read nor written.

    for each row r:  if index[r] != held: write bin held; held = index[r]; acc = bin held
                     acc = combine(acc, rows[r])
    write bin held

Of rows in the order of their bins, each would wait until what the last one wrote can be read from memory again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Lambda
from tilewright.ir.scalars import BOOL, ScalarType, compute_type
from tilewright.ir.sizes import Size, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import (
    Broadcast,
    Constant,
    Expression,
    FirstLanes,
    Load,
    Name,
    Store,
    VectorType,
    integer,
    operation,
)
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import row_of
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.lanes.vectorise import lower_lambda_vector

ReadRow = Callable[[Size], tuple[Expression, Sequence[ArrayView]]]
"""The number of the bin of a row, and the rows of arrays that it is made of."""


@dataclass(frozen=True)
class HeldRows:
    """How rows are combined: `vectors` of `lanes` are held, `full` of them are in all rows; `elements` and `combine`
    as of histograms of rows.
    """

    elements: Lambda
    combine: Lambda
    lanes: int
    vectors: int
    full: int = 0


def combine_held(item: Item, how: HeldRows, own: Sequence[ArrayView], read: ReadRow, first: Size, count: Size) -> None:
    """Combine `count` rows from `first` on, of at most that many vectors, with their bins, if these exist: the rows of
    `own`.
    """
    emit = item.emit
    length = emit.let(lower_size(own[0].lmad.shape[1], emit), "length")

    def in_part() -> None:
        lanes = VectorType(BOOL, how.lanes)
        rest = (operation("sub", length, integer(v * how.lanes)) for v in range(how.full, how.vectors))
        masks = [emit.let(FirstLanes(operation("max", one, integer(0)), lanes), "mask") for one in rest]
        _Held(item, how, own, [*[None] * how.full, *masks]).write(read, first, count)

    emit.when(
        emit.let(operation("ge", length, integer(how.lanes * how.vectors)), "whole"),
        lambda: _Held(item, how, own, [None] * how.vectors).write(read, first, count),
        in_part,
    )


class _Held:
    """The bin in registers, of whose vectors the lanes of `masks` count (None: all)."""

    def __init__(self, item: Item, how: HeldRows, own: Sequence[ArrayView], masks: Sequence[Expression | None]) -> None:
        self.item, self.how, self.own, self.masks = item, how, own, masks
        emit = item.emit
        self.held = emit.declare(integer(-1), "held")
        self.values: list[list[Name]] = []  # by vectors, then by what is combined
        for _ in masks:
            nothing = [Broadcast(_zero(one.element), self._type(one)) for one in own]
            self.values.append([emit.declare(one, "acc") for one in nothing])

    def write(self, read: ReadRow, first: Size, count: Size) -> None:
        """Combine these rows."""
        item, emit = self.item, self.item.emit
        bins = emit.let(lower_size(self.own[0].lmad.shape[0], emit), "bins")

        def row(k: Size) -> None:
            number, rows = read(first + k)
            inside = operation("and", operation("ge", number, integer(0)), operation("lt", number, bins))
            emit.when(emit.let(inside, "inside"), lambda: self._combine(number, rows))

        item.loop(count, "k", row)
        self._write_held()

    def _combine(self, number: Expression, rows: Sequence[ArrayView]) -> None:
        emit, how = self.item.emit, self.how

        def change() -> None:
            self._write_held()
            emit.assign(self.held, number)
            at = self.item.named(number, "bin")
            for v, values in enumerate(self.values):
                for value, place in zip(values, self.own, strict=True):
                    emit.assign(value, self._load(row_of(place, at), v))

        emit.when(emit.let(operation("ne", number, self.held), "other"), change)
        for v, values in enumerate(self.values):
            read = [(self._load(one, v),) for one in rows]
            made = lower_lambda_vector(how.elements, read, how.lanes, emit)
            found = lower_lambda_vector(how.combine, [*((one,) for one in values), *made], how.lanes, emit)
            for value, (new,) in zip(values, [(emit.snapshot(one, "new"),) for (one,) in found], strict=True):
                emit.assign(value, new)

    def _write_held(self) -> None:
        item, emit = self.item, self.item.emit

        def write() -> None:
            at = item.named(emit.snapshot(self.held, "bin"), "bin")
            for v, (values, mask) in enumerate(zip(self.values, self.masks, strict=True)):
                for value, place in zip(values, self.own, strict=True):
                    emit.emit(Store(item.buffer_of(place), self._place(row_of(place, at), v), value, mask=mask))

        emit.when(operation("ge", self.held, integer(0)), write)

    def _load(self, row: ArrayView, v: int) -> Expression:
        load = Load(self.item.buffer_of(row), self._place(row, v), self._type(row), mask=self.masks[v])
        return self.item.emit.let(load, "v")

    def _place(self, row: ArrayView, v: int) -> Expression:
        return lower_size(row.lmad.flat((size(v * self.how.lanes),)), self.item.emit)

    def _type(self, array: ArrayView) -> VectorType:
        return VectorType(compute_type(array.element), self.how.lanes)


def _zero(element: ScalarType) -> Constant:
    kind = compute_type(element)
    return Constant(0.0 if kind.is_float else 0, kind)
