"""The running values of folds inside one work item, and the prefixes of long sums.

    out[k] = x[0] + ... + x[k]
    =>  for each PIECE^2 rows: { mid = 0; for each piece of PIECE of them: { before = top + mid; low = 0
            for each row k of it: low += x[k]; out[k] = before + low
            mid += low }  top += mid }

A value goes through 2 PIECE + n / PIECE^2 + 3 additions at most, where a chain has n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Lambda, Type
from tilewright.ir.sizes import Size, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Name
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, call, row_of, value_of, write
from tilewright.passes.items.lower_scalar import assign_values, declare_value

PIECE = 128


@dataclass
class Accumulators:
    """The running values of a fold: variables for scalars, memory of the work item for arrays."""

    item: Item
    values: list[AnyValue] = field(default_factory=list)
    spare: list[ArrayView | None] = field(default_factory=list)

    def begin(self, initial: Sequence[Atom], types: Sequence[Type], places: Sequence[ArrayView | None]) -> None:
        """Start from atoms; an array accumulator lies at its place, or in new memory."""
        for atom, type_, place in zip(initial, types, places, strict=True):
            value = value_of(self.item, atom)
            if isinstance(value, tuple):
                self.values.append(declare_value(value, "acc", self.item.emit))
                self.spare.append(None)
            else:
                memory = place if place is not None else self.item.allocate(type_, "acc")
                self.item.copy(value, memory)
                self.values.append(memory)
                self.spare.append(self.item.allocate(type_, "acc_next"))

    def again(self, initial: Sequence[Atom]) -> None:
        """Start from atoms once more."""
        values = [value_of(self.item, atom) for atom in initial]
        for value, place in zip(values, self.values, strict=True):
            if isinstance(place, ArrayView):
                write(self.item, value, place)
        variables = [_names(value) for value in self.values if isinstance(value, tuple)]
        assign_values(variables, [value for value in values if isinstance(value, tuple)], self.item.emit)

    def update(self, function: Lambda, arguments: Sequence[AnyValue]) -> None:
        """The accumulators become the function's first results."""
        self.assign(call(self.item, function, arguments, self.spare))

    def assign(self, results: Sequence[AnyValue]) -> None:
        """Take over results of which the arrays were written to `spare`."""
        variables = [_names(value) for value in self.values if isinstance(value, tuple)]
        assign_values(variables, [value for value in results if isinstance(value, tuple)], self.item.emit)
        for old, new in zip(self.values, self.spare, strict=True):
            if isinstance(old, ArrayView) and new is not None:
                self.item.copy(new, old)


def _names(value: Sequence[kernel.Expression]) -> tuple[Name, ...]:
    names = tuple(part for part in value if isinstance(part, Name))
    assert len(names) == len(value)
    return names


def write_prefixes(
    item: Item,
    extent: Size,
    combine: Lambda,
    neutral: Sequence[Atom],
    row: Callable[[Size], tuple[Size, Sequence[AnyValue]]],
    top: Accumulators,
    scanned: Sequence[ArrayView],
) -> None:
    """Write the prefixes as a tree, and have them all in `top`, which holds what stands before.

    Args:
        item: the work item.
        extent: how many rows there are.
        combine, neutral: the operator.
        row: where the prefix of row k goes, and its values, perhaps with more behind.
        top: the accumulators.
        scanned: where the prefixes are written.
    """
    count = len(neutral)
    middle, lowest, before = (Accumulators(item) for _ in range(3))
    for one in (middle, lowest, before):
        one.begin(neutral, [atom.type for atom in neutral], [None] * count)

    def write_row(k: Size) -> None:
        index, values = row(k)
        lowest.update(combine, [*lowest.values, *values[:count]])
        places = [row_of(place, index) for place in scanned]
        arrays = [place if place.lmad.rank else None for place in places]
        for value, place in zip(call(item, combine, [*before.values, *lowest.values], arrays), places, strict=True):
            write(item, value, place)

    def piece(first: Size, rows: Size) -> None:
        before.update(combine, [*top.values, *middle.values])
        lowest.again(neutral)
        item.loop(rows, "k", lambda k: write_row(item.known_index(first + k, extent)))
        middle.update(combine, [*middle.values, *lowest.values])

    def larger(number: Size) -> None:
        first = number * large
        rows = minimum(large, extent - first)
        middle.again(neutral)
        pieces = (rows + PIECE - 1) // PIECE
        item.loop(pieces, "piece", lambda k: piece(first + k * PIECE, minimum(size(PIECE), rows - k * PIECE)))
        top.update(combine, [*top.values, *middle.values])

    large = size(PIECE * PIECE)
    item.loop((extent + large - 1) // large, "large", larger)
