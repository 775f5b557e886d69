"""Checks of what a work item may only find out while it runs, and what it tells of those that fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.ir.counts import same_count
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Variable
from tilewright.ir.scalars import BOOL, I64
from tilewright.ir.sizes import ZERO, Size, maximum, product
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Store
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.runtime.host import ERRORS, ERRORS_BUFFER, CheckedIndex

if TYPE_CHECKING:
    from tilewright.passes.items.item_memory import Item


def record(
    item: Item, wrong: kernel.Expression, found: kernel.Expression, wanted: kernel.Expression, check: CheckedIndex
) -> kernel.Expression:
    """Whether a check has failed; the first one of a worker that does is recorded with what it is about."""
    wrong = item.emit.let(wrong, "bad")
    position = 3 * len(item.checks)
    item.checks.append(check)
    errors = item.buffers.setdefault(ERRORS, Buffer(ERRORS_BUFFER, I64))
    item.buffer_names[errors.name] = ERRORS

    def told() -> None:
        for place, value in enumerate((Constant(1, I64), found, wanted)):
            item.emit.emit(Store(errors, Constant(position + place, I64), value))
        item.emit.assign(item.failed, Constant(True, BOOL))

    item.emit.when(kernel.operation("and", wrong, kernel.operation("not", item.failed)), told)
    return wrong


def checked_count(item: Item, array: Variable, shape: Sequence[Size]) -> Size | None:
    """None if an array surely has as many elements as a shape; else 1, or 0 after recording that it has not."""
    before, after = ([item.resolved(one) for one in sizes] for sizes in (array.type.shape, shape))
    if same_count(before, after, item.is_size):
        return None
    found, wanted = (
        item.emit.let(lower_size(product(maximum(one, ZERO) for one in sizes), item.emit), "count")
        for sizes in (after, before)
    )
    wrong: kernel.Expression = kernel.operation("ne", found, wanted)
    if item.speculation is not None:
        wrong = item.speculation.note(wrong, item.emit)
    else:
        wrong = record(item, wrong, found, wanted, CheckedIndex(array.name, 0, is_count=True))
    return item.named(kernel.operation("select", wrong, Constant(0, I64), Constant(1, I64)), "right")


def only_if(right: Size | None, view: ArrayView) -> ArrayView:
    """The view where `right` is 1 (or None); where it is 0, one that only reads the first element of the memory."""
    if right is None:
        return view
    lmad = view.lmad
    strides = tuple(stride * right for stride in lmad.strides)
    return ArrayView(view.buffer, view.element, LMAD(lmad.offset * right, lmad.shape, strides))
