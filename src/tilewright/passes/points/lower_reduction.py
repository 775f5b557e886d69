"""Folds by one worker of a CPU.

A commutative operator on scalars is folded in `LANES` interleaved partial results, which a CPU keeps in vector
registers; any other one in the order of the rows, in vectors too (lower_order.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tilewright.contraction.recognise import is_commutative
from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Reduction, Variable
from tilewright.ir.scalars import I32, compute_type
from tilewright.ir.sizes import ZERO, Size, minimum, size, whole_groups
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Broadcast, If, Store, VectorType, integer, operation
from tilewright.passes.items import lower_folds
from tilewright.passes.items.attempts import ItemState
from tilewright.passes.items.first_best import FirstBest, first_best
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_columns import has_read_rows, has_simple_rows
from tilewright.passes.items.lower_folds import Fold
from tilewright.passes.items.lower_items import AnyValue, call, lower_expression, row_of, write
from tilewright.passes.items.lower_scalar import assign_values, declare_value, lower_atom, lower_size
from tilewright.passes.items.sum_trees import LEAST_ROWS, grows_errors
from tilewright.passes.lanes.lane_variance import NotInLanes
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.points.lower_order import SHORT, fold_in_order
from tilewright.passes.points.register_folds import (
    PIECE,
    fold_in_registers,
    folded_halves,
    goes_in_registers,
    goes_in_vectors,
    lanes_of,
)

LANES, STEP = 32, 8
"""Rows that are folded side by side, and so many at a time of those that are left."""
BRANCHES, LEVELS = 16, 3
FEW = 24
"""Rows from which on folds go in the lanes of registers; other lanes want `LEAST_ROWS`."""
LEAST, WIDEST = 4, 64
"""Rows from which on the first of the best is found in one vector of so many bytes."""
MANY, CHAINS = 256, 4
"""Rows from which on it is found in so many of them: a step of it waits for three instructions, one after another."""


@lower_expression.register(nodes.Reduce)
@lower_expression.register(nodes.Redomap)
def _(expression: Reduction, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    """A fold inside a work item, on a CPU in lanes where there are enough rows."""
    if targets[0].name in item.streams:
        staged: Sequence[AnyValue] = item.streams[targets[0].name](expression, item)
        return staged
    count = len(expression.neutral)
    places = [item.target(target) if target.type.rank else None for target in targets[:count]]
    mapped = [item.target(target) for target in targets[count:]]
    function = expression.function if isinstance(expression, nodes.Redomap) else None
    rows = lower_folds.function_rows(item, function, lower_folds.arrays_of(item, expression.arrays))
    commutes, simple = expression.commutative, has_simple_rows(expression)
    best = None if commutes else first_best(item, expression)
    number = None if best is None else expression.neutral[best.number].type.element
    combine = expression.combine if best is None or number is None else best.counting(number)
    whole = Fold(item, expression.width, combine, expression.neutral, rows, mapped)
    reads = not simple and commutes and has_read_rows(expression) and (not item.speculation or item.gather_bytes > 0)
    if not (item.vector_lanes and item.lanes is None and (simple or reads)):
        return [*lower_folds.fold(whole, places), *mapped]
    if reads:
        return [*_fold_what_is_read(whole), *mapped]
    return [*fold_rows(whole, commutes, in_order=not commutes, best=best), *mapped]


def fold_rows(whole: Fold, lanes: bool, in_order: bool = False, best: FirstBest | None = None) -> Sequence[AnyValue]:
    """`lower_folds.fold` of scalars; with `lanes`, or `in_order`, in vectors where there are enough rows. One that
    keeps the first of the best rows is in lanes, too.
    """
    item, combine, neutral = whole.item, whole.combine, whole.neutral
    lanes, merge = lanes or best is not None, None if best is None else best.merging()
    # LLVM puts folds of integers by one operator into vectors by itself, and our lanes would be in its way.
    exact = not any(atom.type.element.is_float for atom in neutral) and is_commutative(combine)
    if not (lanes or in_order) or exact:
        return lower_folds.fold(whole)
    together: Callable[[], Sequence[AnyValue]]
    if lanes:
        least, together = LEAST_ROWS, functools.partial(_fold_in_lanes, whole, merge or combine)
        if goes_in_registers(whole, best):
            otherwise = together
            held = functools.partial(fold_in_registers, whole, merge or combine, best=best)
            least, together = FEW, lambda: _unless_refused(item, held, otherwise)
            if whole.mapped:
                one_vector = functools.partial(held, lanes=_of_one_vector(neutral), levels=0)
                plain = functools.partial(lower_folds.fold, whole, short=True)
                return _unless_refused(item, lambda: _by_length(whole, FEW, held, one_vector), plain)
            if item.round is not None:
                least, together = _in_rounds(whole, held, together)
            elif best is not None:
                one, some = _of_one_vector(neutral[best.by : best.by + 1]), together
                few, many = (
                    functools.partial(_unless_refused, item, functools.partial(held, lanes=lanes_), otherwise)
                    for lanes_ in (one, CHAINS * one)
                )
                longer = functools.partial(_by_length, whole, MANY, many, some)
                least, together = LEAST, lambda: _by_length(whole, FEW, longer, few)
    else:
        least, together = SHORT, functools.partial(fold_in_order, whole)
    short = functools.partial(lower_folds.fold, whole, short=True)
    return _by_length(whole, least, together, short)


def _of_one_vector(neutral: Sequence[Atom]) -> int:
    """Partial results in `WIDEST` bytes."""
    return WIDEST // max(I32.bytes, *(one.type.element.bytes for one in neutral))


def _in_rounds(
    whole: Fold, held: Callable[..., Sequence[AnyValue]], otherwise: Callable[[], Sequence[AnyValue]]
) -> tuple[int, Callable[[], Sequence[AnyValue]]]:
    """From how many rows on, and how, a fold goes in registers for which the rest of a round waits: in one at first,
    and as a tree only if there are enough rows for one.
    """
    item = whole.item
    vector = item.machine.vector_bytes if item.machine is not None else 0
    one = vector // max(atom.type.element.bytes for atom in whole.neutral)
    if one < 2:
        return FEW, otherwise

    def few() -> Sequence[AnyValue]:
        return _unless_refused(item, lambda: held(lanes=one, levels=0), otherwise)

    def some() -> Sequence[AnyValue]:
        return _unless_refused(item, lambda: held(levels=0), otherwise)

    def not_many() -> Sequence[AnyValue]:
        return _by_length(whole, FEW, some, few)

    if not grows_errors(whole.combine):
        return one, not_many
    return one, lambda: _by_length(whole, PIECE * LANES, otherwise, not_many)


def _fold_what_is_read(whole: Fold) -> Sequence[AnyValue]:
    """`lower_folds.fold` of rows that read elements of arrays: in registers where neighbours read neighbours."""
    plain = functools.partial(lower_folds.fold, whole)
    if not goes_in_registers(whole):
        return plain()
    if whole.item.gather_bytes:
        return _unless_refused(whole.item, lambda: _gathered(whole, plain), plain)
    held = functools.partial(fold_in_registers, whole, whole.combine, beside=True)
    return _unless_refused(whole.item, lambda: _by_length(whole, FEW, held, plain), plain)


def _gathered(whole: Fold, otherwise: Callable[[], Sequence[AnyValue]]) -> Sequence[AnyValue]:
    """`lower_folds.fold` of rows that read elements from anywhere, a vector of them at a time."""
    lanes = whole.item.gather_bytes // max(atom.type.element.bytes for atom in whole.neutral)
    if lanes < 2 or whole.mapped:
        return otherwise()
    together = functools.partial(fold_in_registers, whole, whole.combine, lanes=lanes)
    chain = functools.partial(together, levels=0)
    tree = functools.partial(_by_length, whole, PIECE * lanes, together, chain)
    return _by_length(whole, lanes, tree if grows_errors(whole.combine) else chain, otherwise)


def _by_length(
    whole: Fold, least: int, long: Callable[[], Sequence[AnyValue]], short: Callable[[], Sequence[AnyValue]]
) -> list[AnyValue]:
    """What one fold gives from so many rows on, and another one for fewer: results of scalars. Where it is known how
    many there are, there is nothing of the other fold, not even its memory.
    """
    item, extent = whole.item, whole.extent
    if extent.constant is not None:
        return [*(long() if extent.constant >= least else short())]
    results = [declare_value(lower_atom(atom, item.emit), "folded", item.emit) for atom in whole.neutral]
    branches = []
    for fold in (long, short):
        with item.emit.scope() as statements:
            assign_values(results, [one for one in fold() if isinstance(one, tuple)], item.emit)
        branches.append(tuple(statements))
    item.emit.emit(If(operation("ge", lower_size(extent, item.emit), integer(least)), *branches))
    return [*results]


def _unless_refused(
    item: Item, fold: Callable[[], Sequence[AnyValue]], otherwise: Callable[[], Sequence[AnyValue]]
) -> Sequence[AnyValue]:
    """What a fold gives in vectors, or another one where its rows do something that vectors do not do."""
    kept = ItemState(item)
    try:
        with item.emit.scope() as statements:
            values = fold()
    except NotInLanes:
        kept.restore(item)
        return otherwise()
    for one in statements:
        item.emit.emit(one)
    return values


def _fold_in_lanes(whole: Fold, merge: nodes.Lambda) -> list[AnyValue]:
    """`lower_folds.fold` for scalars: lane l takes the rows l, l + LANES, ...; then all lanes are folded by `merge`.

    The rounds of a lane are a tree of `LEVELS` levels, at whose nodes `BRANCHES` values are folded, and the lanes are
    folded by halves. So the error of a sum hardly grows with its length. Where vectors can hold the lanes, only their
    rows are loops: LLVM takes far longer to make vectors of loops than to print them.
    """
    item, combine, neutral = whole.item, whole.combine, whole.neutral
    vectors = goes_in_vectors(neutral, combine, merge)
    item.scalar_loops |= vectors
    full, partial = whole_groups(whole.extent, LANES), _lanes(item, neutral, vectors)

    def take_rows(first: Size, count: int | Size, into: Sequence[ArrayView], lane_from: Size = ZERO) -> None:
        """Row `first` + l for each of `count` lanes from `lane_from` on."""

        def step(number: Size) -> None:
            lane = lane_from + number
            _, values = whole.row(first + number)
            old = [item.load(place, (lane,)) for place in into]
            for place, value in zip(into, call(item, combine, [*old, *values[: len(neutral)]]), strict=True):
                write(item, value, row_of(place, lane))

        item.loop_in_lanes(lower_size(size(count), item.emit), size(count), "lane", step)

    def rounds(first: Size, count: Size, into: Sequence[ArrayView], levels: int) -> None:
        if not levels:
            item.loop(count, "round", lambda number: take_rows((first + number) * LANES, LANES, into))
            return
        length = size(BRANCHES**levels)

        def piece(number: Size) -> None:
            begin = number * length
            inner = _lanes(item, neutral, vectors)
            rounds(first + begin, minimum(length, count - begin), inner, levels - 1)
            if vectors:
                _take_over_all(item, combine, into, inner)
            else:
                _each_lane(item, LANES, lambda lane: _take_over(item, combine, into, lane, inner, lane))

        item.loop((count + length - 1) // length, "piece", piece)

    rounds(ZERO, full, partial, LEVELS)
    done = full * LANES
    steps = whole_groups(whole.extent - done, STEP)
    item.loop(steps, "step", lambda number: take_rows(done + number * STEP, STEP, partial, number * STEP))
    take_rows(done + steps * STEP, whole.extent - done - steps * STEP, partial, steps * STEP)
    if vectors:
        return folded_halves(item, merge, partial)
    half = LANES
    while half := half // 2:
        far = size(half)
        _each_lane(
            item,
            half,
            lambda lane, far=far: _take_over(item, merge, partial, lane, partial, lane + far),  # type: ignore[misc]
        )
    return [item.load(place, (ZERO,)) for place in partial]


def _take_over_all(item: Item, combine: nodes.Lambda, into: Sequence[ArrayView], other: Sequence[ArrayView]) -> None:
    """`_take_over` in all lanes at once."""
    vectors = [(item.emit.let(one, "x"),) for one in lanes_of(item, [*into, *other])]
    for place, (value,) in zip(into, lower_lambda_vector(combine, vectors, LANES, item.emit), strict=True):
        item.emit.emit(Store(item.buffer_of(place), integer(0), value))


def _take_over(
    item: Item, combine: nodes.Lambda, into: Sequence[ArrayView], at: Size, other: Sequence[ArrayView], where: Size
) -> None:
    """into[at] = combine(into[at], other[where])."""
    values = [*(item.load(place, (at,)) for place in into), *(item.load(place, (where,)) for place in other)]
    for place, value in zip(into, call(item, combine, values), strict=True):
        write(item, value, row_of(place, at))


def _each_lane(item: Item, lanes: int, write_lane: Callable[[Size], None]) -> None:
    """A loop over lanes that the CPU may run in vectors."""
    item.loop_in_lanes(integer(lanes), size(lanes), "lane", write_lane)


def _lanes(item: Item, neutral: Sequence[Atom], vectors: bool) -> list[ArrayView]:
    """For each accumulator one private element per lane, the neutral element at first."""
    places = [item.own("lanes", compute_type(atom.type.element), LANES) for atom in neutral]
    initial = [lower_atom(atom, item.emit) for atom in neutral]
    if vectors:
        for place, (value,) in zip(places, initial, strict=True):
            all_lanes = Broadcast(value, VectorType(place.element, LANES))
            item.emit.emit(Store(item.buffer_of(place), integer(0), all_lanes))
        return places

    def begin(lane: Size) -> None:
        for place, value in zip(places, initial, strict=True):
            item.store(place, (lane,), value)

    _each_lane(item, LANES, begin)
    return places
