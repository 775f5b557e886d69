"""Histograms of integers by blocks: the threads of a block combine their rows into bins in shared memory, atomically.

In whatever order they do it the result is the same, since these operators are exact, so that nothing of the promise is
lost that a result is the same in every run; floats, and operators of another kind, go the other way (hist.py).

A bin is held in one or two words of 32 bits, for which every device has atomic operations: a bool in the u32 0 or 1, a
narrow integer in a wider one of its sign, one of 64 bits in two halves. A sum of halves carries by what was there:

    old = atomic add low[b], v.low;  atomic add high[b], v.high + (old + v.low < old ? 1 : 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Variable
from tilewright.ir.scalars import BOOL, I32, I64, U32, ScalarType
from tilewright.ir.sizes import Size, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Name, operation
from tilewright.machine.model import Machine
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_scalar import Value, lower_atom, lower_size
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.segments.choice import shared_limit
from tilewright.passes.segments.form import Chunks, Histograms
from tilewright.passes.segments.groups import Group, in_groups
from tilewright.passes.segments.points import part

_OF_BOOLS = {"min": "and", "max": "or", "and": "and", "or": "or", "xor": "xor"}
SMALLEST = 64


@dataclass(frozen=True)
class AtomicBins:
    """How one accumulator is held: `operator` on `words` words of type `word`."""

    operator: str
    element: ScalarType
    word: ScalarType
    words: int


def atomic_bins(histograms: Histograms) -> tuple[AtomicBins, ...] | None:
    """For each accumulator how it can be combined atomically; None if one of them cannot."""
    combine = histograms.combine
    count = len(combine.parameters) // 2
    applied = {one.targets[0]: one.expression for one in combine.body.statements}
    if len(applied) != count:
        return None
    found = []
    for result, *pair in zip(combine.body.results, combine.parameters, combine.parameters[count:], strict=False):
        expression = applied.get(result) if isinstance(result, Variable) else None
        if not isinstance(expression, nodes.Apply) or set(expression.operands) != set(pair):
            return None
        bins = _bins(expression.operator, pair[0].type.element)
        if bins is None:
            return None
        found.append(bins)
    return tuple(found)


def _bins(operator: str, element: ScalarType) -> AtomicBins | None:
    if element == BOOL:
        return AtomicBins(_OF_BOOLS[operator], element, U32, 1) if operator in _OF_BOOLS else None
    if not element.is_integer or operator not in kernel.ATOMIC_OPERATORS:
        return None
    if element.bits == 64:
        return None if operator in ("min", "max") else AtomicBins(operator, element, U32, 2)
    return AtomicBins(operator, element, I32 if element.kind == "i" else U32, 1)


def room_for_bins(machine: Machine, bins: int, held: Sequence[AtomicBins]) -> int:
    """A power of two of bins that a block has room for and that suffice; 0 if there is none.

    Example:
        >>> from tilewright.machine.named import A100
        >>> counts = (AtomicBins("add", I32, I32, 1),)
        >>> room_for_bins(A100, 256, counts), room_for_bins(A100, 100, counts), room_for_bins(A100, 20_000, counts)
        (256, 128, 0)
    """
    room = SMALLEST
    while room < bins:
        room *= 2
    words = sum(one.words for one in held)
    return room if 4 * words * room <= shared_limit(machine) else 0


def block_points(points: Points, histograms: Histograms, pieces: Chunks, threads: int, room: int) -> Points:
    """`piece_points` with the `threads` threads of a block for each point; at most `room` bins."""
    held = atomic_bins(histograms)
    assert held is not None

    def write_group(item: Item, group: Group, at: Sequence[Size], places: Places) -> None:
        _Block(item, histograms, pieces, group, [_shared_words(item, one, room) for one in held]).write(at, places)

    return in_groups(points, threads, write_group)


@dataclass(frozen=True)
class _Words:
    """Words of the bins in shared memory: for values of two words, the low ones and the high ones."""

    bins: AtomicBins
    arrays: tuple[ArrayView, ...]


def _shared_words(item: Item, bins: AtomicBins, room: int) -> _Words:
    return _Words(bins, tuple(item.own("bins", bins.word, room, kernel.Space.SHARED) for _ in range(bins.words)))


@dataclass(frozen=True)
class _Block:
    """One point: a piece of a segment, by all threads of a block."""

    item: Item
    histograms: Histograms
    pieces: Chunks
    group: Group
    words: Sequence[_Words]

    def write(self, at: Sequence[Size], places: Places) -> None:
        """Set the bins, combine the rows into them, write them where this piece's own are."""
        item, histograms = self.item, self.histograms
        emit = item.emit
        *segment, piece = at
        given = [part(item.as_view(item.arrays[str(one)]), segment) for one in histograms.given]
        is_first = emit.let(operation("eq", lower_size(piece, emit), Constant(0, I64)), "is_first")
        neutral = [lower_atom(atom, emit) for atom in histograms.neutral]

        def begin(bin_: Size) -> None:
            for words, source, value in zip(self.words, given, neutral, strict=True):
                first = item.load(source, (bin_,))[0]
                chosen = emit.let(operation("select", is_first, first, value[0]), "first")
                for array, word in zip(words.arrays, encoded(item, words.bins, chosen), strict=True):
                    item.store(array, (bin_,), (word,))

        def end(bin_: Size) -> None:
            for words, place in zip(self.words, places, strict=True):
                parts = [item.load(array, (bin_,))[0] for array in words.arrays]
                item.store(part(place, (piece, *segment)), (bin_,), decoded(item, words.bins, parts))

        bins = lower_size(histograms.bins, emit)
        self._shared(Constant(0, I64), bins, histograms.bins, begin)
        emit.emit(kernel.Barrier())
        start = piece * size(self.pieces.length)
        length = minimum(size(self.pieces.length), histograms.width - start)
        low = emit.let(lower_size(start, emit), "low")
        row = histograms.row(item, segment)
        self._shared(low, lower_size(start + length, emit), histograms.width, lambda k: self._combine(row(k)))
        emit.emit(kernel.Barrier())
        self._shared(Constant(0, I64), bins, histograms.bins, end)
        emit.emit(kernel.Barrier())

    def _shared(self, start: Expression, stop: Expression, extent: Size, write: Callable[[Size], None]) -> None:
        """A loop shared out among the threads."""
        emit = self.item.emit
        first = emit.let(operation("add", start, self.group.thread), "mine")
        end = emit.let(stop, "stop")
        self.item.loop_from(first, end, extent, "k", write, self.group.block)

    def _combine(self, row: Sequence[object]) -> None:
        """One row into its bin, if that exists."""
        item = self.item
        (number,), *values = [value for value in row if isinstance(value, tuple)]

        def put(bin_: Size) -> None:
            for words, value in zip(self.words, values, strict=True):
                self._update(words, bin_, encoded(item, words.bins, value[0]))

        lower_folds.when_bin_exists(item, number, self.histograms.bins, put)

    def _update(self, words: _Words, bin_: Size, values: Sequence[Expression]) -> None:
        old = self._atomic(words.bins, words.arrays[0], bin_, values[0])
        if len(values) == 1:
            return
        high = values[1]
        if words.bins.operator == "add":
            carry = operation("lt", operation("add", old, values[0]), old)
            high = operation("add", high, kernel.Cast(carry, U32))
        self._atomic(words.bins, words.arrays[1], bin_, high)

    def _atomic(self, bins: AtomicBins, array: ArrayView, bin_: Size, value: Expression) -> Name:
        emit = self.item.emit
        at = emit.let(lower_size(bin_, emit), "at")
        old = Name(emit.name("old"), bins.word)
        emit.emit(kernel.AtomicUpdate(old.name, bins.operator, self.item.buffer_of(array), at, emit.let(value, "word")))
        return old


def encoded(item: Item, bins: AtomicBins, value: Expression) -> list[Expression]:
    """A value as words."""
    emit = item.emit
    if bins.words == 1:
        return [value if value.type == bins.word else emit.let(kernel.Cast(value, bins.word), "word")]
    half = Constant(32, bins.element)
    return [emit.let(kernel.Cast(part, U32), "word") for part in (value, operation("shr", value, half))]


def decoded(item: Item, bins: AtomicBins, words: Sequence[Expression]) -> Value:
    """The value that words hold."""
    emit = item.emit
    if bins.words == 1:
        return (words[0] if bins.element == bins.word else emit.let(kernel.Cast(words[0], bins.element), "value"),)
    low, high = (emit.let(kernel.Cast(word, bins.element), "half") for word in words)
    raised = operation("shl", high, Constant(32, bins.element))
    return (emit.let(operation("or", raised, low), "value"),)
