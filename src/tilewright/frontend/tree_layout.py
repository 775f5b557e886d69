"""The order of each intermediate's indices in memory: dynamic programming over a few candidates for each.

A contraction reads and writes any order without a copy; what the order decides is how long the runs are that lie
together, and how often they are read. Neighbouring indices of one kind (M: left and result, N: right and result, K:
summed, C: in all three) that stand in the same order in every array are one dimension. The model counts the bytes of
the three arrays, each several times over:

- a cache line is moved whole, so short runs cost more: the innermost indices of one kind are read together, the
  innermost dimension in one piece; a run inside C serves no tile at all;
- an operand is copied into panels again for every block of the other one's own indices;
- vectors are computed along the innermost index of the result: its operand should have this index, or else a
  summed one, innermost; the other operand, whose elements are broadcast one by one, a summed one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter, mul
from typing import TypeAlias

from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_steps import Steps, TreeStep
from tilewright.ir.dataclass import dataclass

Choices: TypeAlias = dict[Labels, tuple[float, tuple[Labels, ...]]]
"""Orders of a value, each with what it costs together with all steps before it, and the orders of its operands then."""

_LINE_BYTES = 64
_MOST_CANDIDATES = 24
_ROUNDS = 2
_PER_DIMENSION = 0.05
"""What another dimension that is not fused costs, as a share of the array's bytes: loops, and shorter copies."""
_PER_PIECE = 0.3
"""What short dimensions inside a run cost, as a share of what short runs do."""
_BLOCK = 256
"""Elements of a block of one operand's own indices, for which the other operand is read again."""
_SHORT_ROW = 32
"""Elements of rows that hold all of their kind: a tile reads them whole, and their neighbours after them."""
_ACROSS = 4.0
"""How often an operand's bytes count that has another index innermost than the vectors of the result run along."""
_TURNED = 0.3
"""The same for a summed index: vectors are read along it and turned in registers."""
_SPREAD = 1.0
"""How often the bytes of the other operand, whose elements are broadcast, count if no summed index is innermost."""


def choose_orders(
    tree: Steps, inputs: Sequence[Labels], output: Labels, sizes: tuple[int, ...], width: int
) -> tuple[Labels, ...]:
    """The order of each step's result, outermost first.

    Args:
        tree: the steps.
        inputs: the order in which each input lies in memory.
        output: the order in which the result is to lie.
        sizes: of the indices (of slices of them, where they are sliced).
        width: bytes of an element.
    """
    model = TrafficModel(tree, sizes, width)
    chosen = [*inputs, *(step.output for step in tree.steps)]
    chosen[tree.root] = output
    best = model.cost(chosen)
    for _ in range(_ROUNDS):
        found = _by_dynamic_programming(tree, model, chosen)
        cost = model.cost(found)
        if cost >= best:
            break
        best, chosen = cost, found
    return tuple(chosen[len(inputs) :])


def _by_dynamic_programming(tree: Steps, model: TrafficModel, current: Sequence[Labels]) -> list[Labels]:
    """The best combination of candidates; these are made of the orders that hold now."""
    table: dict[int, Choices] = {number: {current[number]: (0.0, ())} for number in range(len(tree.inputs))}
    for value in range(len(tree.inputs), tree.root + 1):
        step = tree.step(value)
        options = [current[value]] if value == tree.root else candidates(tree, value, current)
        table[value] = best_operands(model, step, options, [table[one] for one in step.operands])
    chosen = list(current)
    for value in range(tree.root, len(tree.inputs) - 1, -1):
        operands = table[value][chosen[value]][1]
        for one, order in zip(tree.step(value).operands, operands, strict=True):
            chosen[one] = order
    return chosen


def best_operands(model: TrafficModel, step: TreeStep, orders: Iterable[Labels], tables: Sequence[Choices]) -> Choices:
    """The least cost of a step with its result in each of some orders, with that of all before it, and its operands'
    orders. Of the combinations of these those are looked at whose bound is no more than the best.

    Args:
        model: of the costs.
        step: the step.
        orders: of its result.
        tables: for each operand the orders to choose from, and what they cost.
    """
    kinds = model.kinds(step)
    choices = [
        [(kinds.array(position, order), cost) for order, (cost, _) in table.items()]
        for position, table in enumerate(tables)
    ]
    combinations = []
    for number, chosen in enumerate(itertools.product(*choices)):
        bound = before = 0.0
        for array, cost in chosen:
            bound += array.least
            before += cost
        combinations.append((bound + before, number, before, tuple(array for array, _ in chosen)))
    combinations.sort(key=itemgetter(0))
    found: Choices = {}
    for order in orders:
        result = kinds.array(len(tables), order)
        best, operands, best_number = math.inf, combinations[0][3], -1
        for bound, number, before, arrays in combinations:
            if bound + result.least > best:
                break
            cost = kinds.cost(arrays, result) + before
            if cost < best or (cost == best and number < best_number):
                best, operands, best_number = cost, arrays, number
        found[order] = (best, tuple(array.order for array in operands))
    return found


def candidates(tree: Steps, value: int, current: Sequence[Labels]) -> list[Labels]:
    """Orders worth trying for an intermediate: its indices grouped by what producer and consumer do with them.

    Within a group they stand as in an operand of the producer, in the consumer's other operand, or in its result.
    """
    labels = current[value]
    producer = _kinds_of_result(tree.step(value), current)
    consumer = _kinds_of_operand(tree, value, current)
    parent = tree.step(tree.parents[value])
    references = [labels]
    references += [current[one] for one in (*parent.operands, *tree.step(value).operands) if one != value]
    references.append(current[tree.parents[value]])
    groups: list[Mapping[int, int]] = []
    for consumed, produced in itertools.product(("CFK", "CKF"), ("CMN", "CNM")):
        by_consumer = {label: consumed.index(consumer[label]) for label in labels}
        by_producer = {label: produced.index(producer[label]) for label in labels}
        groups.append(by_consumer)
        groups.append({label: 3 * by_consumer[label] + by_producer[label] for label in labels})
        groups.append({label: 3 * by_producer[label] + by_consumer[label] for label in labels})
    found: dict[Labels, None] = {labels: None}
    for reference in references:
        places = {label: place for place, label in enumerate(reference)}
        ordered = sorted(labels, key=lambda label, known=places: known.get(label, len(known)))  # type: ignore[misc]
        for group in groups:
            found.setdefault(tuple(sorted(ordered, key=group.__getitem__)))
    return list(found)[:_MOST_CANDIDATES]


def _kinds_of_result(step: TreeStep, current: Sequence[Labels]) -> Mapping[int, str]:
    held = [set(current[one]) for one in step.operands]
    return {
        label: "C" if all(label in one for one in held) and len(held) > 1 else "M" if label in held[0] else "N"
        for label in step.output
    }


def _kinds_of_operand(tree: Steps, value: int, current: Sequence[Labels]) -> Mapping[int, str]:
    """For the consumer: free (F: in its result), summed (K), or shared and kept (C)."""
    parent = tree.step(tree.parents[value])
    others = {label for one in parent.operands if one != value for label in current[one]}
    return {label: "K" if label in parent.contracted else "C" if label in others else "F" for label in current[value]}


@dataclass(frozen=True)
class _Array:
    """What an array of a step costs, as far as its own order says it.

    Attributes:
        order: of its indices.
        moved: its bytes, each as often as it is read.
        vectors: its innermost index that has more than one value, if any does.
        fixed: bytes, whatever order the others have.
        per_piece: bytes that are divided by the size of the innermost dimension.
        pieces: bits of the pairs that join the innermost dimension, from the inside, and its size with each.
        piece: its size without any.
        dimensions: how many it has where no pair is joined.
        joined: bits of the pairs of neighbours that may be joined as far as this array goes; all those that it does
            not have are among them.
        least: what it costs at the least, whatever order the others have.
    """

    order: Labels
    moved: float
    vectors: int | None
    fixed: float
    per_piece: float
    pieces: tuple[tuple[int, int], ...]
    piece: int
    dimensions: int
    joined: int
    least: float


class TrafficModel:
    """Costs of steps in bytes; what orders have in common is remembered for each step."""

    def __init__(self, tree: Steps, sizes: tuple[int, ...], width: int) -> None:
        self.tree = tree
        self.sizes = sizes
        self.width = width
        self._steps: dict[int, StepKinds] = {}

    def cost(self, orders: Sequence[Labels]) -> float:
        """Of all steps."""
        first = len(self.tree.inputs)
        return sum(
            self.step_cost(step, tuple(orders[one] for one in step.operands), orders[first + number])
            for number, step in enumerate(self.tree.steps)
        )

    def step_cost(self, step: TreeStep, operands: tuple[Labels, ...], order: Labels) -> float:
        """Bytes that a step moves with its arrays in these orders."""
        kinds = self.kinds(step)
        return kinds.cost([kinds.array(n, one) for n, one in enumerate(operands)], kinds.array(len(operands), order))

    def kinds(self, step: TreeStep) -> StepKinds:
        """What a step's costs are computed from."""
        found = self._steps.get(id(step))
        if found is None:
            arrays = (*(self.tree.labels(one) for one in step.operands), step.output)
            found = self._steps[id(step)] = StepKinds(arrays, self.sizes, self.width)
        return found


class StepKinds:
    """The indices of a step by the arrays that have them, and its costs.

    Two neighbours (a, b) are one dimension where every array that has one of them has b right behind a: each such pair
    is a bit, so that what three orders have in common is one operation. Indices of one value do not count.

    Args:
        arrays: the indices of its operands and of its result, in any order.
        sizes: of all indices.
        width: bytes of an element.
    """

    def __init__(self, arrays: Sequence[Labels], sizes: tuple[int, ...], width: int) -> None:
        self._sizes = sizes
        self._width = width
        self._has_batch = len(arrays) > 2
        distinct = dict.fromkeys(label for one in arrays for label in one)
        self._masks = {label: tuple(label in one for one in arrays) for label in distinct}
        self._again = [
            max(1.0, math.prod(sizes[label] for label in distinct if label not in one) / _BLOCK) for one in arrays[:-1]
        ] + [1.0]
        numbers = {label: number for number, label in enumerate(distinct)}
        self._bits = {
            (a, b): 1 << (numbers[a] * len(distinct) + numbers[b])
            for a, b in itertools.permutations(distinct, 2)
            if self._masks[a] == self._masks[b]
        }
        self._held = [
            sum(bit for (label, _), bit in self._bits.items() if self._masks[label][position])
            for position in range(len(arrays))
        ]
        self._everything = sum(self._bits.values())
        self._arrays: list[dict[Labels, _Array]] = [{} for _ in arrays]

    def array(self, position: int, order: Labels) -> _Array:
        """One of the arrays in an order of its indices; the result is the last one."""
        found = self._arrays[position].get(order)
        if found is None:
            found = self._arrays[position][order] = self._described(position, order)
        return found

    def cost(self, operands: Sequence[_Array], result: _Array) -> float:
        """Bytes that are moved."""
        joined = result.joined
        for one in operands:
            joined &= one.joined
        total = self._array_cost(result, joined & self._held[-1], joined)
        for position, one in enumerate(operands):
            total += self._array_cost(one, joined & self._held[position], joined)
            if self._has_batch:
                total += self._across(position, one, result)
        return total

    def _array_cost(self, array: _Array, joined_here: int, joined: int) -> float:
        piece = array.piece
        for bit, size in array.pieces:
            if not joined & bit:
                break
            piece = size
        dimensions = array.dimensions - joined_here.bit_count()
        return array.fixed + array.per_piece / piece + array.moved * _PER_DIMENSION * dimensions

    def _across(self, position: int, array: _Array, result: _Array) -> float:
        """What it costs that vectors of the result lie across the runs of the operand that has their index."""
        vectors, run = result.vectors, array.vectors
        if vectors is None or run is None or vectors == run:
            return 0.0
        kind = self._masks[vectors]
        moved = array.moved / self._again[position]
        if all(kind):
            return 0.0
        if not kind[position]:  # its elements are broadcast, one after another along what is summed
            return _SPREAD * moved if self._masks[run][-1] else 0.0
        return (_ACROSS if self._masks[run][-1] else _TURNED) * moved

    def _described(self, position: int, order: Labels) -> _Array:
        long = tuple(label for label in order if self._sizes[label] > 1)
        moved = float(self._volume(order) * self._width) * self._again[position]
        neighbours = [self._bits.get(pair) for pair in itertools.pairwise(long)]
        joined = sum(bit for bit in neighbours if bit) | (self._everything & ~self._held[position])
        if not long:
            return _Array(order, moved, None, moved, 0.0, (), 1, 0, joined, moved)
        kind, line = self._masks[long[-1]], _LINE_BYTES / self._width
        inner = tuple(itertools.takewhile(lambda label: self._masks[label] == kind, reversed(long)))
        run = piece = longest = 1
        pieces: tuple[tuple[int, int], ...] = ()
        if not (self._has_batch and all(kind)):  # a run of those serves no tile at all
            run, longest, piece = self._together(long, inner), self._volume(inner), self._sizes[long[-1]]
            grown = itertools.accumulate((self._sizes[label] for label in inner[1:]), initial=piece, func=mul)
            pieces = tuple(zip((self._bits[b, a] for a, b in itertools.pairwise(inner)), list(grown)[1:], strict=True))
        fixed, per_piece = moved * (1.0 + line / run), moved * line * _PER_PIECE
        least = fixed + per_piece / longest + moved * _PER_DIMENSION
        return _Array(order, moved, long[-1], fixed, per_piece, pieces, piece, len(long), joined, least)

    def _together(self, long: Labels, inner: Labels) -> int:
        """Elements that the innermost indices of one kind have together, and those before them in short rows."""
        run = self._volume(inner)
        outer = long[: -len(inner)]
        if run <= _SHORT_ROW and outer and all(self._masks[label] != self._masks[inner[0]] for label in outer):
            kind = self._masks[outer[-1]]
            run *= self._volume(itertools.takewhile(lambda label: self._masks[label] == kind, reversed(outer)))
        return run

    def _volume(self, labels: Iterable[int]) -> int:
        return math.prod(self._sizes[label] for label in labels)
