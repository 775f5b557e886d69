"""Folds of numbers by one worker of a CPU, with partial results in the lanes of vector registers.

    lane l: acc[l] = x[l] op x[l + LANES] op ...;   then the lanes by halves

What is left of the rows is folded in the lanes that have one. The rounds of a lane are a tree of `LEVELS` levels, at
whose nodes `PIECE` values are folded, so that a value of a sum of n rows goes through LEVELS PIECE +
n / (LANES PIECE^LEVELS) + log2(LANES) + 1 additions. What does not round (min, max, the first of the best) is no tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.nodes import Atom, Lambda, Literal
from tilewright.ir.scalars import BOOL, I32, I64, ScalarType
from tilewright.ir.sizes import ZERO, Size, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Load, VectorType, add, element_of, integer, multiply, operation
from tilewright.passes.items.accumulators import Accumulators
from tilewright.passes.items.first_best import FirstBest
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Fold
from tilewright.passes.items.lower_items import AnyValue, call
from tilewright.passes.items.lower_scalar import lower_atom, lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.sum_trees import grows_errors
from tilewright.passes.lanes.lane_code import write_group
from tilewright.passes.lanes.lane_variance import NotInLanes, lane_variance
from tilewright.passes.lanes.vectorise import is_vectorisable, lower_lambda_vector

LANES, PIECE, LEVELS = 32, 16, 3


def goes_in_registers(fold: Fold) -> bool:
    """Whether a fold of straight-line code can have its partial results in registers."""
    wide = all(atom.type.element.bytes >= 4 for atom in fold.neutral)
    return not fold.mapped and wide and goes_in_vectors(fold.neutral, fold.combine)


def goes_in_vectors(neutral: Sequence[Atom], *functions: Lambda) -> bool:
    """Whether functions of a fold's partial results can be applied to all lanes at once."""
    elements = [atom.type.element for atom in neutral]
    return not any(one.is_complex or one == BOOL for one in elements) and is_vectorisable(functions)


def fold_in_registers(
    fold: Fold,
    merge: Lambda,
    beside: bool = False,
    lanes: int = LANES,
    levels: int = LEVELS,
    best: FirstBest | None = None,
) -> list[AnyValue]:
    """`lower_folds.fold` of a fold that maps nothing; `merge` combines what lanes give.

    Without levels the rounds of a lane are a chain, which must be short. For the `best` row lanes keep the round in
    which they met it, as a number no wider than what is compared, in place of the number of the row.

    Raises:
        NotInLanes: where the rows do something that vectors do not do; with `beside`, where neighbours read what is not
            side by side, too.
    """
    item, neutral, types, start = fold.item, fold.neutral, fold.types, fold.start
    emit, count = item.emit, len(neutral)
    lane, lane_size = item.index("lane", size(lanes))
    places = [item.own("lanes", one.element, lanes) for one in types]
    whole = fold.extent // lanes
    initial, step = [*neutral], fold.combine
    if best is not None:
        number = I64 if neutral[best.by].type.element.bytes > I32.bytes else I32
        initial[best.number], step = Literal(-1, number), best.counting(number)

    def accumulators() -> Accumulators:
        found = Accumulators(item)
        found.begin(initial, [one.type for one in initial], [None] * count)
        return found

    def take(round_: Size, into: Accumulators) -> None:
        at = item.known_index(start + round_ * lanes + lane_size, start + fold.extent)
        values = [*fold.rows(at, [None] * count)][:count]
        if best is not None:
            values[best.number] = (kernel.Cast(lower_size(round_, emit), initial[best.number].type.element),)
        into.update(step, [*into.values, *values])

    def numbered(value: Value) -> Value:
        """The number of the row that a lane met in a round; what the neutral element has if it met none."""
        assert best is not None
        (met,) = value
        wide = emit.let(kernel.Cast(met, I64), "round")
        at = add(add(multiply(wide, integer(lanes)), lane), lower_size(start, emit))
        none = lower_atom(neutral[best.number], emit)[0]
        element = types[best.number].element
        row = at if element == I64 else kernel.Cast(at, element)
        return (operation("select", operation("lt", wide, integer(0)), none, row),)

    def rounds(first: Size, number: Size, into: Accumulators, levels: int) -> None:
        if not levels:
            item.loop(number, "round", lambda k: take(first + k, into))
            return
        length = size(PIECE**levels)

        def piece(k: Size) -> None:
            inner, begin = accumulators(), k * length
            rounds(first + begin, minimum(length, number - begin), inner, levels - 1)
            into.update(fold.combine, [*into.values, *inner.values])

        item.loop((number + length - 1) // length, "piece", piece)

    with emit.scope() as statements:
        total = accumulators()
        rounds(ZERO, whole, total, levels if grows_errors(fold.combine) else 0)
        rest = emit.let(lower_size(fold.extent - whole * lanes, emit), "rest")
        emit.when(operation("lt", lane, rest), lambda: take(whole, total))
        for position, (place, value) in enumerate(zip(places, total.values, strict=True)):
            assert isinstance(value, tuple)
            is_number = best is not None and position == best.number
            item.store(place, (lane_size,), numbered(value) if is_number else value)

    def memory(element: ScalarType, count: int) -> Buffer:
        return item.buffers[item.own("wide", element, count, kernel.Space.PRIVATE).buffer]

    if beside and not lane_variance(lane, statements, apart=True).reads_side_by_side(statements):
        raise NotInLanes("memory is read at places that are not side by side")
    write_group(statements, lane, lanes, emit, memory)
    item.scalar_loops = True
    return folded_halves(item, merge, places, lanes)


def folded_halves(item: Item, merge: Lambda, places: Sequence[ArrayView], lanes: int = LANES) -> list[AnyValue]:
    """The values of all lanes as one, by halves."""
    emit = item.emit
    vectors = [emit.let(one, "x") for one in lanes_of(item, places, lanes)]
    half = lanes
    while (half := half // 2) > 1:
        sides: list[Value] = []
        for first in (0, half):
            chosen = tuple(range(first, first + half))
            sides += [
                (emit.let(kernel.Shuffle(one, one, chosen, VectorType(element_of(one.type), half)), "side"),)
                for one in vectors
            ]
        vectors = [emit.let(part, "x") for (part,) in lower_lambda_vector(merge, sides, half, emit)]
    pair = [(emit.let(kernel.Lane(one, lane, element_of(one.type)), "x"),) for lane in (0, 1) for one in vectors]
    return call(item, merge, pair)


def lanes_of(item: Item, places: Sequence[ArrayView], lanes: int = LANES) -> list[Load]:
    """All lanes of partial results in memory as vectors."""
    return [Load(item.buffer_of(one), integer(0), VectorType(one.element, lanes)) for one in places]
