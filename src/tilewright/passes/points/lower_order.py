"""Folds in the order of the rows, in vectors, by one worker of a CPU: for operators that are not known to commute.

An associative operator may be bracketed in any way, so that neighbours are combined first, in a tree over a block:

    rows        x0 x1 x2 x3 ...  as vectors
    each level  the even lanes of two vectors (+) their odd lanes:  (x0+x1) (x2+x3) ...

A block of n rows takes n operators in all, as one after another would, but in vectors, and few wait for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir import nodes
from tilewright.ir.scalars import compute_type
from tilewright.ir.sizes import Size, size, whole_groups
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Lane, Load, Shuffle, VectorType, element_of, integer
from tilewright.passes.items import lower_folds
from tilewright.passes.items.accumulators import Accumulators
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Fold
from tilewright.passes.items.lower_items import AnyValue
from tilewright.passes.items.lower_scalar import Value
from tilewright.passes.lanes.vectorise import as_mask, lower_lambda_vector

LANES = 16
BLOCK, SHORT = 256, 32
"""Rows of a tree, and of one for what is left of these."""


def fold_in_order(whole: Fold) -> list[AnyValue]:
    """`lower_folds.fold` of real scalars by straight-line code; blocks of rows are folded as trees of vectors."""
    item, combine = whole.item, whole.combine
    accumulators = Accumulators(item)
    accumulators.begin(whole.neutral, whole.types, [None] * len(whole.neutral))
    staged = [item.own("rows", compute_type(one.element), BLOCK) for one in whole.types]
    item.scalar_loops = True

    def block(begin: Size, length: int) -> None:
        def stage(row: Size) -> None:
            _, values = whole.row(begin + row)
            for memory, value in zip(staged, values, strict=False):
                assert isinstance(value, tuple)
                item.store(memory, (row,), value)

        item.loop_in_lanes(integer(length), size(length), "row", stage)
        total = _tree(item, combine, staged, 0, length // LANES)
        for _ in range(LANES.bit_length() - 1):
            total = _neighbours(item, combine, total, total)
        lanes = [tuple(item.emit.let(Lane(one, 0, element_of(one.type))) for one in value) for value in total]
        accumulators.update(combine, [*accumulators.values, *lanes])

    done = size(0)
    for length in (BLOCK, SHORT):
        blocks = whole_groups(whole.extent - done, length)
        item.loop(blocks, "block", lambda k, begin=done, length=length: block(begin + k * length, length))  # type: ignore[misc]
        done = done + blocks * length
    rest = lower_folds.fold(replace(whole, extent=whole.extent - done, start=whole.start + done))
    accumulators.update(combine, [*accumulators.values, *rest])
    return accumulators.values


def _tree(item: Item, combine: nodes.Lambda, staged: Sequence[ArrayView], first: int, count: int) -> list[Value]:
    """`count` vectors of rows from vector number `first` on, as one: its lanes are folds of `count` rows each."""
    if count == 1:
        return [
            (item.emit.let(Load(item.buffer_of(one), integer(first * LANES), VectorType(one.element, LANES)), "row"),)
            for one in staged
        ]
    half = count // 2
    left, right = (_tree(item, combine, staged, first + part * half, half) for part in (0, 1))
    return _neighbours(item, combine, left, right)


def _neighbours(item: Item, combine: nodes.Lambda, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    """Neighbouring lanes of two vectors combined."""
    emit = item.emit
    sides: list[Value] = []
    for side in (0, 1):
        lanes = tuple(range(side, 2 * LANES, 2))
        for (a,), (b,) in zip(left, right, strict=True):
            assert isinstance(a.type, VectorType)
            sides.append((emit.let(Shuffle(a, b, lanes, a.type), "side"),))
    found = lower_lambda_vector(combine, sides, LANES, emit)
    masks = [one.type.element.name == "bool" for one in combine.parameters[: len(left)]]
    return [
        tuple(emit.let(as_mask(part) if mask else part) for part in value)
        for value, mask in zip(found, masks, strict=True)
    ]
