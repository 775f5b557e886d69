"""Short folds by one worker of a CPU, of rows that lie one after another: rows and folds both in vectors.

The rows are computed strip by strip, by a loop that LLVM puts into vectors however short the folds are, and each fold
takes its rows from the strip, a vector of them at a time. In a vector neighbours are combined in log2(lanes) steps,
which keeps their order; the vectors of a fold are combined one after another.

    for each i: r[i] = redomap op f xs[i]   =>   for each strip: ys = f of its rows; for each i in it: r[i] = fold op ys
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import nodes
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Atom, Lambda, Reduction, Variable
from tilewright.ir.scalars import BOOL, compute_type
from tilewright.ir.sizes import ONE, Size, size
from tilewright.ir.traversal import all_statements, is_plain
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, Load, Name, VectorType, add, integer, operation
from tilewright.passes.core.used_names import free_variables
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Rows
from tilewright.passes.items.lower_items import call, row_of, write
from tilewright.passes.items.lower_scalar import lower_atom, lower_size
from tilewright.passes.lanes.vectorise import is_vectorisable, lower_lambda_vector
from tilewright.passes.points.scan_strips import STRIP, VECTOR_BYTES, each_row, strip_array

Finish = Callable[[Size, Expression, Expression, Expression], None]
MOST_ROWS = 128
"""Longer folds have enough rows for lanes of their own."""


class ShortFolds:
    """The folds of a range of points.

    Args:
        item: the work item.
        combine, neutral: the operator, on real numbers.
        rows: the value of the row at a place.
        offset: the place of a point's first row; point i ends where point i + 1 begins.
        finish: what is done with (point, first place, end, fold).
    """

    def __init__(
        self, item: Item, combine: Lambda, neutral: Atom, rows: Rows, offset: Callable[[Size], Expression],
        finish: Finish,
    ) -> None:  # fmt: skip
        self.item, self.combine, self.neutral = item, combine, neutral
        self.rows, self.offset, self.finish = rows, offset, finish
        item.scalar_loops = True
        kept = compute_type(neutral.type.element)
        self.kind = VectorType(kept, VECTOR_BYTES // max(4, kept.bytes))
        self.strip = strip_array(item, kept, self.kind.lanes)
        # The strip holds the rows base .. filled - 1.
        self.base = item.emit.declare(integer(0), "base")
        self.filled = item.emit.declare(integer(0), "filled")

    def write(self, bounds: tuple[Expression, Expression], count: Size) -> None:
        """The points from bounds[0] to bounds[1] of `count`."""
        emit = self.item.emit
        low, high = (self._named(one) for one in bounds)
        stop = emit.let(self.offset(high), "stop")
        emit.assign(self.base, self.offset(low))
        emit.assign(self.filled, self.base)

        def fold(point: Size) -> None:
            start, end = emit.let(self.offset(point), "start"), emit.let(self.offset(point + ONE), "end")
            total = emit.declare(lower_atom(self.neutral, emit)[0], "total")
            at = emit.declare(start, "at")
            with emit.scope() as inside:
                emit.when(operation("ge", at, self.filled), lambda: self._fill(at, stop))
                self._take(at, end, total)
            emit.emit(kernel.While((), operation("lt", at, end), tuple(inside)))
            self.finish(point, start, end, emit.snapshot(total, "fold"))

        self.item.loop_from(lower_size(low, emit), lower_size(high, emit), count, "i", fold)

    def _named(self, value: Expression) -> Size:
        core = f"%offset.{self.item.emit.name('offset')}"
        self.item.emit.values[core] = (self.item.emit.snapshot(value, "offset"),)
        self.item.inner.add(core)
        return size(core)

    def _fill(self, at: Name, stop: Expression) -> None:
        """Compute the rows from `at` on, as many as the strip holds."""
        item, emit = self.item, self.item.emit
        emit.assign(self.base, at)
        first = self._named(at)
        count = self._named(operation("min", integer(STRIP), operation("sub", stop, at)))

        def row(k: Size) -> None:
            (value,) = self.rows(first + k, [None])
            assert isinstance(value, tuple)
            item.store(self.strip, (k,), value)

        each_row(item, count, row)
        emit.assign(self.filled, add(at, lower_size(count, emit)))

    def _take(self, at: Name, end: Expression, total: Name) -> None:
        """Combine the rows of the strip from `at` on, up to `end` at most, with `total`."""
        item, emit, lanes = self.item, self.item.emit, self.kind.lanes
        count = emit.let(operation("sub", operation("min", end, self.filled), at), "rows")
        offset = emit.let(operation("sub", at, self.base), "from")
        neutral = emit.let(kernel.Broadcast(lower_atom(self.neutral, emit)[0], self.kind), "neutral")

        def take(index: Name) -> None:
            rest = operation("sub", count, index)
            mask = emit.let(kernel.FirstLanes(rest, VectorType(BOOL, lanes)), "mask")
            loaded = emit.let(Load(item.buffer_of(self.strip), add(offset, index), self.kind), "x")
            x: Expression = emit.let(operation("select", mask, loaded, neutral), "x")
            distance = 1
            while distance < lanes:
                places = tuple(min(lane + distance, lanes - 1) for lane in range(lanes))
                x = self._combined(x, emit.let(kernel.Shuffle(x, x, places, self.kind), "next"))
                distance *= 2
            pair = [(emit.snapshot(total, "old"),), (emit.let(kernel.Lane(x, 0, self.kind.element), "x"),)]
            (value,) = call(item, self.combine, pair)
            assert isinstance(value, tuple)
            emit.assign(total, value[0])

        emit.loop("v", integer(0), count, take, lanes)
        emit.assign(at, add(at, count))

    def _combined(self, left: Expression, right: Expression) -> Expression:
        ((value,),) = lower_lambda_vector(self.combine, [(left,), (right,)], self.kind.lanes, self.item.emit)
        return self.item.emit.let(value, "x")


# --- rows of matrices -------------------------------------------------------------------------------------------------


def short_fold(function: Lambda) -> Reduction | None:
    """The fold that the points of a map are, if it is one of real scalars computed from rows of the map's arrays."""
    body = function.body
    if len(body.statements) != 1 or body.results != body.statements[0].targets or len(body.results) != 1:
        return None
    fold = body.statements[0].expression
    if not isinstance(fold, Reduction) or not set(fold.arrays) <= set(function.parameters) or not fold.arrays:
        return None
    element = fold.neutral[0].type.element
    plain = isinstance(fold, nodes.Reduce) or is_plain(fold.function.body)
    if not plain or any(one.type.rank != 1 for one in fold.arrays) or body.results[0].type.rank:
        return None
    inside = all_statements(fold.function.body) if isinstance(fold, nodes.Redomap) else ()
    others = {one.name for one in function.parameters if one not in fold.arrays}
    if not others.isdisjoint(one.name for one in free_variables(fold)):
        return None  # what a point has besides its rows is not known while a strip with rows of several is computed
    if any(isinstance(one.expression, nodes.Index) for one in inside):
        return None  # elements from anywhere come one by one, and such folds add up groups of them (fold_groups.py)
    simple = not element.is_complex and element != BOOL
    return fold if simple and is_vectorisable([fold.combine]) else None


def write_short_folds(
    item: Item,
    function: Lambda,
    variables: Sequence[Variable],
    bounds: tuple[Expression, Expression],
    place: ArrayView,
    otherwise: Callable[[], None],
) -> None:
    """The points from bounds[0] to bounds[1] of a map over `variables`, whose folds have few rows, if these lie one
    after another in all arrays; else what `otherwise` writes. `short_fold` gives the fold of the map's function.
    """
    fold = short_fold(function)
    assert fold is not None
    views = dict(zip(function.parameters, lower_folds.arrays_of(item, variables), strict=True))
    arrays = [_in_one(views[one], fold.width) for one in fold.arrays]
    if not item.vector_lanes or item.lanes is not None or None in arrays:
        otherwise()
        return
    inner = fold.function if isinstance(fold, nodes.Redomap) else None
    rows = lower_folds.function_rows(item, inner, [one for one in arrays if one is not None])

    def finish(point: Size, start: Expression, end: Expression, total: Expression) -> None:
        write(item, (total,), row_of(place, point))

    def together() -> None:
        folds = ShortFolds(
            item, fold.combine, fold.neutral[0], rows, lambda i: lower_size(i * fold.width, item.emit), finish
        )
        folds.write(bounds, place.lmad.shape[0])

    few = operation("lt", lower_size(fold.width, item.emit), integer(MOST_ROWS))
    item.emit.when(item.emit.let(few, "few"), together, otherwise)


def _in_one(array: object, width: Size) -> ArrayView | None:
    """The rows of a matrix one after another, if they lie so."""
    if not isinstance(array, ArrayView) or array.lmad.rank != 2:
        return None
    (outer, inner), (count, _) = array.lmad.strides, array.lmad.shape
    if outer != inner * width:
        return None
    return ArrayView(array.buffer, array.element, LMAD(array.lmad.offset, (count * width,), (inner,)))
