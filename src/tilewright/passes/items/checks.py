"""Checks of what a work item may only find out while it runs, and what it tells of those that fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from tilewright.ir.counts import same_count
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Index, Slice, SliceDimension, Update, Variable
from tilewright.ir.scalars import BOOL, I64, U32, U64
from tilewright.ir.sizes import ONE, ZERO, Size, maximum, product
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import AtomicUpdate, Buffer, Constant, Name, Store
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.runtime.host import CLAIMS_BUFFER, ERRORS, ERRORS_BUFFER, CheckedIndex

if TYPE_CHECKING:
    from tilewright.passes.items.item_memory import Item

Access: TypeAlias = Index | Slice | Update
_RECORDS, _CLAIMS = Buffer(ERRORS_BUFFER, I64), Buffer(CLAIMS_BUFFER, U32)


def checked(item: Item, index: Size, extent: Size, access: Access, dimension: int) -> Size:
    """The index, or 0 after recording that it is out of range."""
    if not access.checked or item.in_range(index, extent):
        return index
    at = item.emit.let(lower_size(index, item.emit), "index")
    wrong = _record_outside(item, at, extent, access, dimension)
    return item.named(kernel.operation("select", wrong, Constant(0, I64), at), "safe")


def checked_slice(
    item: Item, one: SliceDimension, extent: Size, access: Access, dimension: int
) -> tuple[SliceDimension, Size]:
    """A slice and 1; or, after recording that it is out of range, one that only reads index 0, and stride 0."""
    if not access.checked:
        return one, ONE
    last = one.start + (one.count - 1) * one.step
    low, high = (one.start, last) if one.step > 0 else (last, one.start)
    if one.count == ONE:
        return dataclasses.replace(one, start=checked(item, one.start, extent, access, dimension)), ONE
    if all(item.in_range(end, end + 1) for end in (low, extent - 1 - high)):  # neither is negative
        return one, ONE
    count = item.emit.let(lower_size(one.count, item.emit), "count")
    some = kernel.operation("gt", count, Constant(0, I64))
    # With no element there is nothing to check; index 0 stands for it, or the extent's own last one.
    ends = [
        item.emit.let(kernel.operation("select", some, lower_size(end, item.emit), Constant(0, I64)), "end")
        for end in (low, high)
    ]
    outside = [_record_outside(item, end, extent, access, dimension, some) for end in ends]
    wrong = item.emit.let(kernel.operation("or", *outside), "bad")
    if item.round is not None and item.round.leave_where(wrong):
        return one, ONE
    start, stride = (
        item.named(kernel.operation("select", wrong, Constant(0, I64), right), "safe")
        for right in (lower_size(one.start, item.emit), Constant(1, I64))
    )
    return dataclasses.replace(one, start=start), stride


def _record_outside(
    item: Item, at: kernel.Expression, extent: Size, access: Access, dimension: int,
    condition: kernel.Expression | None = None,
) -> kernel.Expression:  # fmt: skip
    """Whether an index is out of range; the first such index of a worker is recorded."""
    stop = item.emit.let(lower_size(extent, item.emit), "extent")
    below = kernel.operation("lt", at, Constant(0, I64))
    wrong: kernel.Expression = kernel.operation("or", below, kernel.operation("ge", at, stop))
    if condition is not None:
        wrong = kernel.operation("and", condition, wrong)
    if item.speculation is not None:
        if condition is None:  # a negative number is a large one without a sign
            wrong = kernel.operation("ge", kernel.Cast(at, U64), kernel.Cast(stop, U64))
        return item.speculation.note(wrong, item.emit)
    return record(item, wrong, at, stop, CheckedIndex(access.array.name, dimension, access.line))


def record(
    item: Item, wrong: kernel.Expression, found: kernel.Expression, wanted: kernel.Expression, check: CheckedIndex
) -> kernel.Expression:
    """Whether a check has failed; the first one of a worker that does is recorded with what it is about."""
    wrong = item.emit.let(wrong, "bad")
    position = 3 * len(item.checks)
    item.checks.append(check)
    errors = error_record(item)

    def tell(*values: kernel.Expression, behind: int = 0) -> None:
        for place, value in enumerate(values, position + behind):
            item.emit.emit(Store(errors, Constant(place, I64), value))

    def told() -> None:
        if item.by_threads:
            is_first = _claimed(item, position)
            item.emit.when(is_first, lambda: tell(found, wanted, behind=1))
        else:
            tell(Constant(1, I64), found, wanted)
        item.emit.assign(item.failed, Constant(True, BOOL))

    item.emit.when(kernel.operation("and", wrong, kernel.operation("not", item.failed)), told)
    return wrong


def _claimed(item: Item, position: int) -> kernel.Expression:
    """Whether this thread is the first that has anything to record there: the numbers of two would be mixed.

    It puts the 1 into the lower half of the number that says so.
    """
    claims, old = error_record(item, _CLAIMS), Name(item.emit.name("claimed"), U32)
    item.emit.emit(AtomicUpdate(old.name, "or", claims, Constant(2 * position, I64), Constant(1, U32)))
    return kernel.operation("eq", old, Constant(0, U32))


def error_record(item: Item, seen_as: Buffer = _RECORDS) -> Buffer:
    """The buffer in which a kernel records the checks that fail; or the same memory as words (`CLAIMS_BUFFER`)."""
    item.buffer_names[seen_as.name] = ERRORS
    return item.buffers.setdefault(f"%{seen_as.name}", seen_as)


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
