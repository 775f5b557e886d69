"""Maps of folds whose neighbouring points lie together in memory: sums of the columns of a row-major matrix, say.

Point by point, each fold would walk through memory in steps of a whole row. Here `COLUMNS` points are folded together:
the rows are read one after another, and the loop over the points of a row runs in vectors.

    for each point j: for each k: acc = combine(acc, f(x[k, j]))
    =>  for each COLUMNS points: for each k: for each point j of them: acc[j] = combine(acc[j], f(x[k, j]))

What all points share of a row, such as its number, is read beside (the places of the columns' greatest elements).

Where little is computed of a row, `ROWS` of them are taken at a time, and what was folded before is read and written
once for all of these. Points that lie apart are then folded one by one: to gather them takes a processor several times
as long as to read them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Lambda, Reduction, ScalarCode, Statement, Variable
from tilewright.ir.scalars import I64, ScalarType, compute_type
from tilewright.ir.sizes import ONE, ZERO, Size, minimum, size, whole_groups
from tilewright.ir.traversal import all_statements, mentioned
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, For, Prefetch, add, integer, multiply, operation
from tilewright.passes.items import lower_folds
from tilewright.passes.items.accumulators import PIECE
from tilewright.passes.items.attempts import ItemState
from tilewright.passes.items.item_memory import ArrayValue, Item
from tilewright.passes.items.lower_items import AnyValue, bind, call, lower_statement, row_of, value_of, write
from tilewright.passes.items.lower_scalar import lower_atom, lower_size
from tilewright.passes.items.scalar_values import KernelBuilder, Value
from tilewright.passes.items.sum_trees import grows_errors

COLUMNS = 512
ROWS = 4
CHEAP = {"add", "sub", "mul", "min", "max", "abs", "neg"}
MOST_STATEMENTS = 4
"""Of a row, where `ROWS` are taken at a time."""
LINE, PAGE = 64, 4096
ROWS_AHEAD = 4
"""Of what is asked for where rows lie half a page or more apart."""
CACHED_BYTES = 1 << 23
"""Of rows that are not asked for."""
LEAST_COLUMNS = 16
"""Fewer do not fill vectors."""
LEAST_FEW, FEW_COLUMNS = 6, 512
"""Elements from a row to the next, up to which each point's fold stays in registers: of 16 columns 100000 rows take a
ninth of the time that partial results in memory do.
"""


def has_simple_rows(reduction: Reduction) -> bool:
    """Whether a fold is one of real scalars by straight-line code."""
    return _is_of(reduction, ScalarCode)


def has_read_rows(reduction: Reduction) -> bool:
    """Whether a fold is one of real scalars by straight-line code that reads elements of arrays."""
    read = (one for one in all_statements(_functions(reduction)[-1].body) if isinstance(one.expression, nodes.Index))
    whole = all(target.type.rank == 0 for one in read for target in one.targets)
    return whole and _is_of(reduction, ScalarCode | nodes.Index)


def _functions(reduction: Reduction) -> list[Lambda]:
    return [reduction.combine] + ([reduction.function] if isinstance(reduction, nodes.Redomap) else [])


def _is_of(reduction: Reduction, kinds: Any) -> bool:
    """Whether a fold is one of real scalars by statements of these kinds."""
    simple = all(
        isinstance(one.expression, kinds) for function in _functions(reduction) for one in all_statements(function.body)
    )
    reals = not any(atom.type.element.is_complex for atom in reduction.neutral)
    return simple and reals and all(one.type.rank == 1 for one in reduction.arrays)


def column_fold(function: Lambda) -> Reduction | None:
    """The fold that the points of a map are, if it reads rows of the map's arrays, and beside them nothing but arrays
    that all points share (the numbers of the rows, say). What is computed of its values may follow.
    """
    before, whole, after = _parts(function.body)
    if whole is None or not all(map(_is_shared, before)):
        return None
    fold = whole.expression
    if not isinstance(fold, Reduction) or not has_simple_rows(fold) or len(whole.targets) != len(fold.neutral):
        return None
    functions = (fold.combine, fold.function if isinstance(fold, nodes.Redomap) else fold.combine, fold.neutral)
    if not mentioned((*functions, before)).isdisjoint(one.name for one in function.parameters):
        return None
    known = {one.name for one in function.parameters if one.type.rank}
    known |= {one.name for each in before for one in each.targets if one.type.rank}
    simple = all(isinstance(one.expression, ScalarCode) for one in after)
    if not simple or not mentioned((after, function.body.results)).isdisjoint(known):
        return None
    return fold if set(fold.arrays) & set(function.parameters) else None


def _is_shared(statement: Statement) -> bool:
    """Whether a statement counts, or reads a number unchecked: once for all points, if it mentions none of theirs."""
    match statement.expression:
        case nodes.Iota():
            return True
        case nodes.Index(checked=checked):
            return not checked and statement.targets[0].type.rank == 0
    return False


def _parts(body: Body) -> tuple[tuple[Statement, ...], Statement | None, tuple[Statement, ...]]:
    """What stands before the first fold of a body, the fold, and what follows."""
    place = next((k for k, one in enumerate(body.statements) if isinstance(one.expression, Reduction)), None)
    if place is None:
        return body.statements, None, ()
    return body.statements[:place], body.statements[place], body.statements[place + 1 :]


def write_columns(
    item: Item,
    function: Lambda,
    variables: Sequence[Variable],
    bounds: tuple[Expression, Expression],
    places: Sequence[ArrayView],
    otherwise: Callable[[], None],
    in_lanes: Callable[[Callable[[Size], None]], int],
) -> None:
    """The points from bounds[0] to bounds[1] of a map over `variables`, together where that reads memory in order.

    Args:
        item: the work item, in which the points of the maps around this one are bound.
        function, variables: the map's; `column_fold` gives its fold.
        bounds: the first point and the end.
        places: where the function's results go.
        otherwise: writes the points one by one.
        in_lanes: writes each point by a function, with as many of them in the lanes of vectors as it gives.
    """
    fold = column_fold(function)
    assert fold is not None
    views = dict(zip(function.parameters, lower_folds.arrays_of(item, variables), strict=True))
    taken = [views[one] for one in fold.arrays if one in views]
    arrays = [one for one in taken if isinstance(one, ArrayView) and one.lmad.rank == 2]
    if len(arrays) != len(taken):
        otherwise()
        return
    nearer = functools.reduce(functools.partial(operation, "and"), [is_nearer(item, one) for one in arrays])
    before, whole, after = _parts(function.body)
    assert whole is not None
    for one in before:
        lower_statement(item, one)
    shared = {one: value for one in fold.arrays if one not in views for value in lower_folds.arrays_of(item, [one])}
    own = [(one, view) for one, view in views.items() if one.type.rank == 0]

    def finish(index: Size, values: Sequence[AnyValue]) -> None:
        """What is computed of a column's fold."""
        for parameter, view in own:
            bind(item, parameter, item.row(view, index))
        for target, value in zip(whole.targets, values, strict=True):
            bind(item, target, value)
        for statement in after:
            lower_statement(item, statement)
        for result, place in zip(function.body.results, places, strict=True):
            write(item, value_of(item, result), row_of(place, index))

    by_rows = functools.partial(_write_together, item, fold, arrays, shared, bounds, finish)
    near, side_by_side = _side_by_side(item, arrays)
    few = _few_in_lanes(item, fold, near, shared, finish, in_lanes) if near and not is_cheap(fold) else None

    count = operation("sub", bounds[1], bounds[0])

    def many() -> None:
        if is_cheap(fold):
            by_rows()
            return
        fills = operation("ge", count, Constant(LEAST_COLUMNS, I64))
        item.emit.when(item.emit.let(fills, "fills"), by_rows, otherwise)

    def together() -> None:
        if few is None:
            many()
            return
        tests = [*side_by_side, operation("ge", count, Constant(LEAST_FEW, I64))]
        for one in arrays:
            row = operation("abs", lower_size(one.lmad.strides[1], item.emit))
            tests.append(operation("le", row, Constant(FEW_COLUMNS, I64)))
        in_registers = functools.reduce(functools.partial(operation, "and"), tests)
        item.emit.when(item.emit.let(in_registers, "few"), lambda: _emit_all(item, few), many)

    item.emit.when(item.emit.let(nearer, "together"), together, otherwise)


def _few_in_lanes(
    item: Item, fold: Reduction, near: Sequence[ArrayView], shared: Mapping[Variable, ArrayValue],
    finish: Callable[[Size, Sequence[AnyValue]], None], in_lanes: Callable[[Callable[[Size], None]], int],
) -> Sequence[kernel.Statement] | None:  # fmt: skip
    """Each column's fold by itself in the lanes of vectors; None if these do not do it."""
    columns = _Columns(item, fold, near, shared, (), ZERO, integer(0))

    def point(index: Size) -> None:
        rows = lower_folds.Fold(item, fold.width, fold.combine, fold.neutral, lambda k, _: columns.row(index, k, near))
        finish(index, lower_folds.fold(rows))

    state = ItemState(item)
    with item.emit.scope() as statements:
        group = in_lanes(point)
    if group > 1:
        return statements
    state.restore(item)
    return None


def _emit_all(item: Item, statements: Sequence[kernel.Statement]) -> None:
    for one in statements:
        item.emit.emit(one)


def is_nearer(item: Item, view: ArrayView) -> Expression:
    """Whether the next point is nearer in memory than the next row."""
    point, row = (operation("abs", lower_size(view.lmad.strides[axis], item.emit)) for axis in (0, 1))
    return operation("lt", point, row)


def _write_together(
    item: Item, fold: Reduction, arrays: Sequence[ArrayView], shared: Mapping[Variable, ArrayValue],
    bounds: tuple[Expression, Expression], finish: Callable[[Size, Sequence[AnyValue]], None],
) -> None:  # fmt: skip
    emit = item.emit
    totals = _column_arrays(item, fold)
    first, first_size = item.index("first", arrays[0].lmad.shape[0])
    with emit.scope() as group:
        count = emit.let(operation("min", Constant(COLUMNS, I64), operation("sub", bounds[1], first)), "count")
        initial = tuple(lower_atom(atom, emit) for atom in fold.neutral)
        columns = _Columns(item, fold, arrays, shared, initial, first_size, count)
        columns.begin(totals)
        whole = functools.partial(columns.pieces, ZERO, fold.width, totals)
        if grows_errors(fold.combine):
            lower_folds.if_long(item, fold.width, lambda: whole(lower_folds.LEVELS), lambda: whole(0))
        else:
            whole(0)
        columns.each(lambda column: finish(first_size + column, [item.load(total, (column,)) for total in totals]))
    emit.emit(For(first.name, bounds[0], bounds[1], tuple(group), step=Constant(COLUMNS, I64)))


@dataclass(frozen=True)
class _Columns:
    """Code for the `count` points from `first` on, which are folded together.

    Attributes:
        item, fold, arrays, shared: of the map; the points' own arrays, and those that all of its points share.
        initial: the fold's neutral values.
    """

    item: Item
    fold: Reduction
    arrays: Sequence[ArrayView]
    shared: Mapping[Variable, ArrayValue]
    initial: tuple[Value, ...]
    first: Size
    count: Expression

    def each(self, write: Callable[[Size], None], lanes: bool = True) -> None:
        """A loop over the columns."""
        start = Constant(0, I64)
        self.item.loop_from(start, self.count, size(COLUMNS), "column", write, independent=lanes, scalar=not lanes)

    def begin(self, into: Sequence[ArrayView]) -> None:
        """into = neutral"""

        def column(at: Size) -> None:
            for total, value in zip(into, self.initial, strict=True):
                self.item.store(total, (at,), value)

        self.each(column)

    def take(self, into: Sequence[ArrayView], column: Size, values: Sequence[AnyValue]) -> None:
        """into[column] = combine(into[column], values)"""
        before = [self.item.load(total, (column,)) for total in into]
        for total, value in zip(into, call(self.item, self.fold.combine, [*before, *values]), strict=True):
            write(self.item, value, row_of(total, column))

    def row(self, column: Size, k: Size, views: Sequence[ArrayView]) -> Sequence[AnyValue]:
        """What row k of a column gives to be combined."""
        own = iter(views)
        elements = [
            self.item.row(self.shared[one], k)
            if one in self.shared
            else self.item.load(next(own), (self.first + column, k))
            for one in self.fold.arrays
        ]
        if isinstance(self.fold, nodes.Reduce):
            return elements
        return call(self.item, self.fold.function, elements, [None] * len(self.fold.neutral))

    def rows(self, start: Size, rows: Size, into: Sequence[ArrayView], views: Sequence[ArrayView], lanes: bool) -> None:
        """Rows from `start` on, one after another, or a few together."""

        def some(first_row: Size, number: int) -> None:
            def step(column: Size) -> None:
                values = [self.row(column, first_row + one, views) for one in range(number)]
                while len(values) > 1:
                    pairs = zip(values[::2], values[1::2], strict=True)
                    values = [call(self.item, self.fold.combine, [*one, *two]) for one, two in pairs]
                self.take(into, column, values[0])

            self.each(step, lanes)

        def one(k: Size) -> None:
            some(start + k, 1)

        def one_asking(k: Size) -> None:
            self.ask(start + k + ROWS_AHEAD, views)
            one(k)

        if is_cheap(self.fold):
            together = whole_groups(rows, ROWS)
            self.item.loop(together, "rows", lambda number: some(start + number * ROWS, ROWS))
            start, rows = start + together * ROWS, rows - together * ROWS
        elif lanes and self.item.vector_lanes:
            far = self.item.emit.let(
                functools.reduce(functools.partial(operation, "or"), map(self.is_far, views)), "far"
            )
            self.item.emit.when(
                far, lambda: self.item.loop(rows, "k", one_asking), lambda: self.item.loop(rows, "k", one)
            )
            return
        self.item.loop(rows, "k", one)

    def is_far(self, view: ArrayView) -> Expression:
        """Whether rows lie so far apart that no processor reads ahead by itself, and caches do not hold all of them."""
        row = multiply(lower_size(view.lmad.strides[1], self.item.emit), integer(view.element.bytes))
        step = self.item.emit.let(operation("abs", row), "step")
        nbytes = multiply(lower_size(self.fold.width, self.item.emit), step)
        return operation(
            "and", operation("ge", step, integer(PAGE // 2)), operation("ge", nbytes, integer(CACHED_BYTES))
        )

    def ask(self, k: Size, views: Sequence[ArrayView]) -> None:
        """For the columns of row k."""
        emit = self.item.emit
        for view in views:
            buffer = self.item.buffer_of(view)
            row = emit.let(lower_size(view.lmad.flat((self.first, k)), emit), "row")
            line = functools.partial(_ask_for, emit, buffer, row)
            emit.loop("line", integer(0), self.count, line, step=max(1, LINE // buffer.element.bytes))

    def pieces(self, start: Size, rows: Size, into: Sequence[ArrayView], levels: int) -> None:
        """A tree of so many levels above the rows, as in `lower_folds.fold`."""
        if not levels:
            by_distance(self.item, self.fold, self.arrays, functools.partial(self.rows, start, rows, into))
            return
        length = size(PIECE**levels)
        inner = _column_arrays(self.item, self.fold)

        def piece(number: Size) -> None:
            self.begin(inner)
            self.pieces(start + number * length, minimum(length, rows - number * length), inner, levels - 1)
            self.each(lambda column: self.take(into, column, [self.item.load(one, (column,)) for one in inner]))

        self.item.loop((rows + length - 1) // length, "piece", piece)


def _ask_for(emit: KernelBuilder, buffer: Buffer, row: Expression, column: Expression) -> None:
    emit.emit(Prefetch(buffer, add(row, column)))


def is_cheap(fold: Reduction) -> bool:
    """Whether so little is computed of a row that reading it is most of the work."""
    statements = [one.expression for function in _functions(fold) for one in all_statements(function.body)]
    computed = [one for one in statements if isinstance(one, nodes.Apply)]
    return len(statements) <= MOST_STATEMENTS and all(one.operator in CHEAP for one in computed)


def by_distance(
    item: Item, fold: Reduction, arrays: Sequence[ArrayView], write_rows: Callable[[Sequence[ArrayView], bool], None]
) -> None:
    """`write_rows(views, lanes)`: in lanes unless points that are cheap to fold lie apart."""
    near, tests = _side_by_side(item, arrays)
    if not is_cheap(fold) or (near and not tests):
        write_rows(arrays, True)
        return
    if not near:
        write_rows(arrays, False)
        return
    side_by_side = item.emit.let(functools.reduce(functools.partial(operation, "and"), tests), "side_by_side")
    item.emit.when(side_by_side, lambda: write_rows(near, True), lambda: write_rows(arrays, False))


def _side_by_side(item: Item, arrays: Sequence[ArrayView]) -> tuple[Sequence[ArrayView], Sequence[Expression]]:
    """The arrays if neighbouring columns lie side by side in them, or are one, and what is to be asked for that; none
    if it is known that they do not.
    """
    steps = [one.lmad.strides[0] for one in arrays]
    if any(one.constant not in (None, 0, 1) for one in steps):
        return (), ()
    near = [
        replace(one, lmad=replace(one.lmad, strides=(ONE, one.lmad.strides[1]))) if step.constant is None else one
        for one, step in zip(arrays, steps, strict=True)
    ]
    tests = [operation("eq", lower_size(one, item.emit), Constant(1, I64)) for one in steps if one.constant is None]
    return near, tests


def column_array(item: Item, element: ScalarType) -> ArrayView:
    """One private element for each column. Small floats are carried in f32 here, as in variables."""
    return item.own("columns", compute_type(element), COLUMNS)


def _column_arrays(item: Item, fold: Reduction) -> list[ArrayView]:
    return [column_array(item, atom.type.element) for atom in fold.neutral]
