"""Folds of numbers by one worker of a CPU, with partial results in the lanes of vector registers.

    lane l: acc[l] = x[l] op x[l + LANES] op ...;   then the lanes by halves

What is left of the rows is folded in the lanes that have one. The rounds of a lane are a tree of `LEVELS` levels, at
whose nodes `PIECE` values are folded, so that a value of a sum of n rows goes through LEVELS PIECE +
n / (LANES PIECE^LEVELS) + log2(LANES) + 1 additions. What does not round (min, max, the first of the best) is no tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Lambda, Literal
from tilewright.ir.scalars import BOOL, I32, I64, ScalarType, compute_type
from tilewright.ir.sizes import ONE, ZERO, Size, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Load, Name, VectorType, add, element_of, integer, multiply, operation
from tilewright.passes.items.accumulators import Accumulators
from tilewright.passes.items.first_best import FirstBest
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Fold
from tilewright.passes.items.lower_items import AnyValue, call, row_of
from tilewright.passes.items.lower_scalar import lower_atom, lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.sum_trees import grows_errors
from tilewright.passes.lanes.lane_code import write_group
from tilewright.passes.lanes.lane_variance import NotInLanes, lane_variance
from tilewright.passes.lanes.vectorise import is_vectorisable, lower_lambda_vector

LANES, PIECE, LEVELS = 32, 16, 3


def goes_in_registers(fold: Fold, best: FirstBest | None = None) -> bool:
    """Whether a fold of straight-line code can have its partial results in registers."""
    elements = [atom.type.element for atom in fold.neutral]
    narrow = best is not None and all(compute_type(one) == one for one in elements)
    wide = narrow or all(one.bytes >= I32.bytes for one in elements)
    return all(map(_has_vectors, fold.mapped)) and wide and goes_in_vectors(fold.neutral, fold.combine)


def _has_vectors(place: ArrayView) -> bool:
    """Whether what rows give beside is written side by side, as it is computed."""
    element = place.element
    return place.lmad.strides == (ONE,) and element.bytes >= I32.bytes and compute_type(element) == element


def goes_in_vectors(neutral: Sequence[Atom], *functions: Lambda) -> bool:
    """Whether functions of a fold's partial results can be applied to all lanes at once."""
    elements = [atom.type.element for atom in neutral]
    return not any(one.is_complex or one == BOOL for one in elements) and is_vectorisable(functions)


@dataclass(frozen=True)
class _Lane:
    """What one lane computes: the rows from its own number on that are `lanes` apart, one in each round.

    For the `best` row it keeps the round in which it met it, as a number no wider than what is compared, in place of
    the number of the row. `at` is the `index` as a size.
    """

    fold: Fold
    index: Name
    at: Size
    lanes: int
    best: FirstBest | None

    @property
    def _round_type(self) -> ScalarType:
        assert self.best is not None
        return I64 if self.fold.neutral[self.best.by].type.element.bytes > I32.bytes else I32

    def begin(self) -> Accumulators:
        """What partial results begin as."""
        initial = [*self.fold.neutral]
        if self.best is not None:
            initial[self.best.number] = Literal(-1, self._round_type)
        found = Accumulators(self.fold.item)
        found.begin(initial, [one.type for one in initial], [None] * len(initial))
        return found

    def take(self, round_: Size, into: Accumulators) -> None:
        """Combine the row of a round."""
        fold, count = self.fold, len(self.fold.neutral)
        at = fold.item.known_index(fold.start + round_ * self.lanes + self.at, fold.start + fold.extent)
        beside = [row_of(place, at) for place in fold.mapped]
        values, step = [*fold.rows(at, [*[None] * count, *beside])][:count], fold.combine
        if self.best is not None:
            number = self._round_type
            values[self.best.number] = (kernel.Cast(lower_size(round_, fold.item.emit), number),)
            step = self.best.counting(number)
        into.update(step, [*into.values, *values])

    def rounds(self, first: Size, number: Size, into: Accumulators, levels: int) -> None:
        """So many rounds, as a tree of so many levels."""
        item = self.fold.item
        if not levels:
            item.loop(number, "round", lambda k: self.take(first + k, into))
            return
        length = size(PIECE**levels)

        def piece(k: Size) -> None:
            inner, begin = self.begin(), k * length
            self.rounds(first + begin, minimum(length, number - begin), inner, levels - 1)
            into.update(self.fold.combine, [*into.values, *inner.values])

        item.loop((number + length - 1) // length, "piece", piece)

    def result(self, position: int, value: AnyValue) -> Value:
        """A partial result: of the round of the best row its number, or the neutral element's if there was none."""
        assert isinstance(value, tuple)
        if self.best is None or position != self.best.number:
            return value
        fold, emit = self.fold, self.fold.item.emit
        wide = emit.let(kernel.Cast(value[0], I64), "round")
        at = add(add(multiply(wide, integer(self.lanes)), self.index), lower_size(fold.start, emit))
        none = lower_atom(fold.neutral[position], emit)[0]
        element = fold.types[position].element
        row = at if element == I64 else kernel.Cast(at, element)
        return (operation("select", operation("lt", wide, integer(0)), none, row),)


def fold_in_registers(
    fold: Fold,
    merge: Lambda,
    beside: bool = False,
    lanes: int = LANES,
    levels: int = LEVELS,
    best: FirstBest | None = None,
) -> list[AnyValue]:
    """`lower_folds.fold`; `merge` combines what lanes give.

    Without levels the rounds of a lane are a chain, which must be short.

    Raises:
        NotInLanes: where the rows do something that vectors do not do; with `beside`, where neighbours read what is not
            side by side, too.
    """
    item, emit = fold.item, fold.item.emit
    one = _Lane(fold, *item.index("lane", size(lanes)), lanes, best)
    places = [item.own("lanes", type_.element, lanes) for type_ in fold.types]
    whole = fold.extent // lanes
    with emit.scope() as statements:
        total = one.begin()
        one.rounds(ZERO, whole, total, levels if grows_errors(fold.combine) else 0)
        rest = emit.let(lower_size(fold.extent - whole * lanes, emit), "rest")
        emit.when(operation("lt", one.index, rest), lambda: one.take(whole, total))
        for position, (place, value) in enumerate(zip(places, total.values, strict=True)):
            item.store(place, (one.at,), one.result(position, value))

    def memory(element: ScalarType, count: int) -> Buffer:
        return item.buffers[item.own("wide", element, count, kernel.Space.PRIVATE).buffer]

    flags = [] if item.speculation is None else [item.speculation.bad]
    if beside and not lane_variance(one.index, statements, apart=True).reads_side_by_side(statements):
        raise NotInLanes("memory is read at places that are not side by side")
    write_group(statements, one.index, lanes, emit, memory, flags)
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
