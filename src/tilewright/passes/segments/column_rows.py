"""Loops over neighbouring segments, a row of all of them at a time, in vectors; past the caches where they write much.

    for j < count: acc[j] = combine(acc[j], x[k, j]); y[k, j] = acc[j]
=>  vector after vector of js, the last one masked; if no cache holds y: up to the first whole line of the row, then
    line after line past the caches, what is left, and meanwhile the row after the next one is asked for

Pieces of rows that lie a page or more apart begin where no prefetcher expects them. On a Zen 5 running sums of 4000
columns of 4000 f32, 1024 columns at a time, run at 20 GB/s in C as they are, at 24 with either of both, past the caches
and asked for ahead, and at 45-50 with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, I64, compute_type
from tilewright.ir.sizes import Size
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, Name, Statement, add, integer, multiply, operation
from tilewright.kernel.traversal import expressions
from tilewright.machine.model import Machine
from tilewright.passes.items.item_memory import Item
from tilewright.passes.lanes.lane_code import LaneCode
from tilewright.passes.lanes.lane_strips import at_round
from tilewright.passes.lanes.lane_variance import LINEAR, LaneVariance, NotInLanes, lane_variance, loads
from tilewright.passes.lanes.past_caches import SHORTEST, has_lines, inlined

PAGE = 4096
ROWS_AHEAD = 2
"""Of what is asked for where rows lie a page or more apart."""


@dataclass(frozen=True)
class ScannedRows:
    """Rows whose prefixes are written on a machine, past the caches if these do not hold all of them."""

    machine: Machine
    past: bool


def write_row(
    item: Item,
    scan: ScannedRows,
    count: Expression,
    extent: Size,
    write_column: Callable[[Size], None],
    steps: Mapping[str, Expression],
) -> None:
    """for column < count: what `write_column(column)` emits, whose rounds do not read what others write.

    Args:
        item: where to.
        scan: how rows are written.
        count: of the columns, which are below `extent`.
        write_column: of one column.
        steps: of buffers that differ from row to row the elements from one to the next.
    """
    emit = item.emit
    before = len(item.checks), len(item.scratch), len(item.private)
    name, core = item.index("column", extent)
    with emit.scope() as body:
        write_column(core)
    independent = (len(item.checks), len(item.scratch), len(item.private)) == before
    variance = _side_by_side(name, body) if independent and scan.machine.vector_bytes else None
    if variance is None:
        emit.emit(kernel.For(name.name, integer(0), count, tuple(body), independent=independent))
        return
    item.scalar_loops = True
    row = _Row(item, scan.machine, name, body, variance, steps)
    store = row.whole_lines() if scan.past else None
    if store is None:
        row.write(integer(0), count)
        return
    is_long = operation("ge", count, integer(SHORTEST * row.lanes))
    emit.when(is_long, lambda: row.write_past(count, store), lambda: row.write(integer(0), count))


def _side_by_side(index: Name, body: Sequence[Statement]) -> LaneVariance | None:
    """How the columns of a body differ; None unless it is straight-line code that reads and writes side by side."""
    if not all(isinstance(one, kernel.Let | kernel.Store) for one in body):
        return None
    try:
        variance = lane_variance(index, body, apart=True)
    except NotInLanes:
        return None
    stores = [one for one in body if isinstance(one, kernel.Store)]
    if not stores or any(variance.kind(one.index) != LINEAR or one.value.type == BOOL for one in stores):
        return None
    return variance if variance.reads_side_by_side(body) else None


class _Row:
    """The columns of a row."""

    def __init__(
        self, item: Item, machine: Machine, index: Name, body: Sequence[Statement], variance: LaneVariance,
        steps: Mapping[str, Expression],
    ) -> None:  # fmt: skip
        self.emit, self.index, self.body, self.variance, self.steps = item.emit, index, body, variance, steps
        self.stores = [one for one in body if isinstance(one, kernel.Store)]
        self.line = machine.transaction_bytes
        self.lanes = self.line // max(compute_type(one.buffer.element).bytes for one in self.stores)

    def whole_lines(self) -> kernel.Store | None:
        """The store to an array of results, if there is one alone and a vector of it is a line."""
        results = [one for one in self.stores if one.buffer.space is kernel.Space.GLOBAL]
        if len(results) != 1 or not has_lines(results[0].buffer):
            return None
        return results[0] if self.lanes * results[0].buffer.element.bytes == self.line else None

    def write(self, low: Expression, high: Expression) -> None:
        """The columns from `low` on, below `high`."""
        span = operation("sub", high, low)
        whole = self.emit.let(operation("sub", high, operation("mod", span, integer(self.lanes))), "whole")
        self._vectors(low, whole, past=False)
        self._some(whole, operation("sub", high, whole))

    def write_past(self, count: Expression, store: kernel.Store) -> None:
        """All columns, whole lines past the caches."""
        emit, bytes_ = self.emit, store.buffer.element.bytes
        bound = {one.name: one.value for one in self.body if isinstance(one, kernel.Let)}
        place = inlined(store.index, bound)
        assert place is not None
        address = add(
            kernel.Address(store.buffer), multiply(at_round(place, self.index.name, integer(0)), integer(bytes_))
        )
        odd = operation("and", operation("sub", integer(0), address), integer(self.line - 1))
        first = emit.let(operation("floordiv", odd, integer(bytes_)), "first")
        self._some(integer(0), first)
        span = operation("sub", count, first)
        last = emit.let(operation("sub", count, operation("mod", span, integer(self.lanes))), "last")
        self._vectors(first, last, past=True)
        self._some(last, operation("sub", count, last))

    def _vectors(self, low: Expression, high: Expression, past: bool) -> None:
        begin = Name(self.emit.name("columns"), I64)
        writer = self._writer(begin, past)
        with self.emit.scope() as inside:
            writer.run(self.body, None)
            if past:
                self._ask(writer)
        self.emit.emit(kernel.For(begin.name, low, high, tuple(inside), step=integer(self.lanes)))

    def _some(self, first: Expression, count: Expression) -> None:
        """Fewer columns than a vector has."""
        count = self.emit.let(count, "some")

        def masked() -> None:
            mask = self.emit.let(kernel.FirstLanes(count, kernel.VectorType(BOOL, self.lanes)), "mask")
            self._writer(first, past=False).run(self.body, [mask])

        self.emit.when(operation("gt", count, integer(0)), masked)

    def _writer(self, first: Expression, past: bool) -> LaneCode:
        writer = LaneCode(self.emit, self.variance, self.lanes, 1, past_caches=past)
        writer.begin(self.index, first)
        return writer

    def _ask(self, writer: LaneCode) -> None:
        """For the same columns of a later row."""
        for statement in self.body:
            for value in expressions(statement):
                for one in loads(value):
                    step = self.steps.get(one.buffer.name)
                    if step is not None and self.variance.kind(one.index) == LINEAR:
                        apart = operation("ge", multiply(step, integer(one.buffer.element.bytes)), integer(PAGE))
                        ahead = operation("select", apart, multiply(step, integer(ROWS_AHEAD)), integer(0))
                        base = writer.values.line(one.index).base
                        self.emit.emit(kernel.Prefetch(one.buffer, add(base, self.emit.let(ahead, "ahead"))))
