"""The kernels of folds between offsets (`ir.nodes.OffsetFolds`) on a CPU: a guard, and the folds in vectors.

The rows of all folds of a worker lie one after another, and are folded as points/short_folds.py does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.nodes import OffsetFolds, Statement, Variable
from tilewright.ir.scalars import BOOL
from tilewright.ir.sizes import ONE, ZERO, Size
from tilewright.ir.traversal import bound_variables, rebuild, used_variables
from tilewright.kernel.ir import Constant, Expression, Store, integer, operation
from tilewright.passes.items import lower_folds
from tilewright.passes.items.checks import error_record
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import call, row_of, view
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.points.lower_general import Places, Points, Range
from tilewright.passes.points.short_folds import ShortFolds
from tilewright.runtime.host import CheckedIndex


def guard_points(offsets: OffsetFolds) -> Points:
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
        errors = error_record(item)
        emit.when(bad, lambda: emit.emit(Store(errors, integer(0), integer(1))))

    return Points((), write_point)


def offset_points(offsets: OffsetFolds) -> Points:
    """The folds, those of neighbouring points together."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        raise LoweringError("folds between offsets are written for a range of points")

    def columns(item: Item, at: Sequence[Size], bounds: Range, places: Places, otherwise: Callable[[], None]) -> None:
        starts = view(item, offsets.starts)
        rows = lower_folds.function_rows(item, offsets.function, lower_folds.arrays_of(item, offsets.arrays))

        def finish(point: Size, start: Expression, end: Expression, total: Expression) -> None:
            known = [(lower_size(point, item.emit),), (start,), (end,), (total,)]
            call(item, offsets.result, known, [row_of(place, point) for place in places])

        def offset(point: Size) -> Expression:
            return item.load(starts, (point,))[0]

        ShortFolds(item, offsets.combine, offsets.neutral[0], rows, offset, finish).write(bounds, offsets.count)

    return Points((offsets.count,), write_point, columns=columns)


def reads_of_folds(offsets: OffsetFolds) -> tuple[Variable, ...]:
    """The arrays and scalars that the folds use."""
    functions = (offsets.function, offsets.combine, offsets.result)
    bound = {one.name for one in bound_variables(functions)}
    free = [one for one in used_variables((*functions, offsets.neutral)) if one.name not in bound]
    return tuple(dict.fromkeys((offsets.starts, *offsets.arrays, *free)))


def statements_otherwise(targets: Sequence[Variable], offsets: OffsetFolds) -> tuple[Statement, ...]:
    """What is done for other offsets, so that it gives the same targets."""
    body = offsets.otherwise
    made = {one.name for statement in body.statements for one in statement.targets}
    pairs = list(zip(targets, body.results, strict=True))
    inside = {str(result): target for target, result in pairs if str(result) in made}
    if len(inside) < len(pairs):
        raise LoweringError(f"offset_folds: what is done for other offsets gives {body.results}, not arrays of its own")
    return rebuild(body.statements, lambda one: inside.get(one.name, one), lambda one: one)
