"""The kernels of folds between offsets (offset_form.py) on a CPU: a guard, and the folds in vectors.

The rows of all folds of a worker lie one after another: they are computed strip by strip, by a loop that LLVM puts into
vectors however short the folds are, and each fold takes its rows from the strip, a vector of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.lmad import row_major
from tilewright.ir.scalars import BOOL, I64, compute_type
from tilewright.ir.sizes import ONE, ZERO, Size, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import (
    Broadcast,
    Buffer,
    Constant,
    Expression,
    FirstLanes,
    For,
    Lane,
    Load,
    Name,
    Shuffle,
    Space,
    Store,
    VectorType,
    While,
    add,
    integer,
    operation,
)
from tilewright.passes import lower_folds
from tilewright.passes.item_memory import Item
from tilewright.passes.lower_general import Places, Points, Range
from tilewright.passes.lower_items import call, row_of, view
from tilewright.passes.lower_scalar import lower_atom, lower_size
from tilewright.passes.offset_form import Offsets
from tilewright.passes.scalar_values import LoweringError, memory_element
from tilewright.passes.scan_lanes import STRIP, VECTOR_BYTES, each_row
from tilewright.passes.vectorise import lower_lambda_vector
from tilewright.runtime.host import ERRORS, CheckedIndex


def guard_points(offsets: Offsets) -> Points:
    """One point that checks whether the offsets ascend and lie inside; its error record says where they do not."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        emit = item.emit
        starts = view(item, offsets.starts)
        length, count = starts.lmad.shape[0], offsets.count
        bad = emit.declare(Constant(True, BOOL), "bad")

        def look() -> None:
            (first,), (last,) = item.load(starts, (ZERO,)), item.load(starts, (count,))
            outside = operation("gt", last, lower_size(offsets.width, emit))
            emit.assign(bad, operation("or", operation("lt", first, integer(0)), outside))

            def compare(k: Size) -> None:
                (one,), (two,) = item.load(starts, (k,)), item.load(starts, (k + ONE,))
                emit.assign(bad, operation("or", bad, operation("gt", one, two)))

            item.loop(length - 1, "k", compare)

        emit.when(operation("gt", lower_size(length, emit), lower_size(count, emit)), look)
        item.checks.append(CheckedIndex(str(offsets.starts), 0, is_guard=True))
        errors = item.buffers.setdefault(ERRORS, Buffer("errors_0", I64))
        item.buffer_names[errors.name] = ERRORS
        emit.when(bad, lambda: emit.emit(Store(errors, integer(0), integer(1))))

    return Points((), write_point)


def offset_points(offsets: Offsets) -> Points:
    """The folds, those of neighbouring points together."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        raise LoweringError("folds between offsets are written for a range of points")

    def columns(item: Item, at: Sequence[Size], bounds: Range, places: Places, otherwise: Callable[[], None]) -> None:
        _Folds(item, offsets, places).write(bounds)

    return Points((offsets.count,), write_point, columns=columns)


class _Folds:
    """The folds of a range of points: the strip holds the rows `base` .. `filled` - 1."""

    def __init__(self, item: Item, offsets: Offsets, places: Places) -> None:
        self.item, self.offsets, self.places = item, offsets, places
        item.scalar_loops = True
        kept = compute_type(offsets.neutral.type.element)
        self.lanes = VECTOR_BYTES // max(4, kept.bytes)
        self.kind = VectorType(kept, self.lanes)
        buffer = Buffer(item.emit.name("strip"), memory_element(kept), Space.PRIVATE, STRIP + self.lanes)
        item.private.append(buffer)
        item.buffers[buffer.name] = buffer
        self.strip = ArrayView(buffer.name, kept, row_major((size(STRIP + self.lanes),)))
        self.starts = view(item, offsets.starts)
        self.base = item.emit.declare(integer(0), "base")
        self.filled = item.emit.declare(integer(0), "filled")

    def write(self, bounds: Range) -> None:
        """All of them."""
        item, emit = self.item, self.item.emit
        low, high = (self._named(one) for one in bounds)
        (stop,) = item.load(self.starts, (high,))
        (first,) = item.load(self.starts, (low,))
        emit.assign(self.base, first)
        emit.assign(self.filled, first)
        index, point = item.index("i", self.offsets.count)
        with emit.scope() as body:
            (start,), (end,) = item.load(self.starts, (point,)), item.load(self.starts, (point + ONE,))
            total = emit.declare(lower_atom(self.offsets.neutral, emit)[0], "total")
            at = emit.declare(start, "at")
            with emit.scope() as inside:
                emit.when(operation("ge", at, self.filled), lambda: self._fill(at, stop))
                self._take(at, end, total)
            emit.emit(While((), operation("lt", at, end), tuple(inside)))
            known = [(index,), (start,), (end,), (emit.snapshot(total, "fold"),)]
            parts = [row_of(place, point) for place in self.places]
            call(item, self.offsets.result, known, parts)
        emit.emit(For(index.name, lower_size(low, emit), lower_size(high, emit), tuple(body)))

    def _named(self, value: Expression) -> Size:
        core = f"%offset.{self.item.emit.name('offset')}"
        self.item.emit.values[core] = (self.item.emit.snapshot(value, "offset"),)
        self.item.inner.add(core)
        return size(core)

    def _fill(self, at: Name, stop: Expression) -> None:
        """Compute the rows from `at` on, as many as the strip holds."""
        item, emit, offsets = self.item, self.item.emit, self.offsets
        emit.assign(self.base, at)
        first = self._named(at)
        count = self._named(operation("min", integer(STRIP), operation("sub", stop, at)))
        rows = lower_folds.function_rows(item, offsets.function, lower_folds.arrays_of(item, offsets.arrays))

        def row(k: Size) -> None:
            (value,) = rows(first + k, [None])
            assert isinstance(value, tuple)
            item.store(self.strip, (k,), value)

        each_row(item, count, row)
        emit.assign(self.filled, add(at, lower_size(count, emit)))

    def _take(self, at: Name, end: Expression, total: Name) -> None:
        """Combine the rows of the strip from `at` on, up to `end` at most, with `total`."""
        item, emit, lanes = self.item, self.item.emit, self.lanes
        count = emit.let(operation("sub", operation("min", end, self.filled), at), "rows")
        offset = emit.let(operation("sub", at, self.base), "from")
        neutral = emit.let(Broadcast(lower_atom(self.offsets.neutral, emit)[0], self.kind), "neutral")
        index = Name(emit.name("v"), I64)
        with emit.scope() as body:
            rest = operation("sub", count, index)
            mask = emit.let(FirstLanes(rest, VectorType(BOOL, lanes)), "mask")
            loaded = emit.let(Load(item.buffer_of(self.strip), add(offset, index), self.kind), "x")
            x: Expression = emit.let(operation("select", mask, loaded, neutral), "x")
            distance = 1
            while distance < lanes:
                places = tuple(min(lane + distance, lanes - 1) for lane in range(lanes))
                x = self._combined(x, emit.let(Shuffle(x, x, places, self.kind), "next"))
                distance *= 2
            ((value,),) = call_scalars(item, self.offsets, total, emit.let(Lane(x, 0, self.kind.element), "x"))
            emit.assign(total, value)
        emit.emit(For(index.name, integer(0), count, tuple(body), step=integer(lanes)))
        emit.assign(at, add(at, count))

    def _combined(self, left: Expression, right: Expression) -> Expression:
        ((value,),) = lower_lambda_vector(self.offsets.combine, [(left,), (right,)], self.lanes, self.item.emit)
        return self.item.emit.let(value, "x")


def call_scalars(item: Item, offsets: Offsets, left: Expression, right: Expression) -> list[tuple[Expression, ...]]:
    """combine(left, right)."""
    results = call(item, offsets.combine, [(item.emit.snapshot(left, "old"),), (right,)])
    return [one for one in results if isinstance(one, tuple)]
