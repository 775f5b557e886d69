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
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_steps import Steps, TreeStep
from tilewright.ir.dataclass import dataclass

_LINE_BYTES = 64
_MOST_CANDIDATES = 24
_MOST_COMBINATIONS = 4000
"""Of the orders of a step's result with those of its operands; where there would be more, fewer orders are tried."""
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
    table: dict[int, dict[Labels, tuple[float, tuple[Labels, ...]]]] = {
        number: {current[number]: (0.0, ())} for number in range(len(tree.inputs))
    }
    for value in range(len(tree.inputs), tree.root + 1):
        step = tree.step(value)
        options = [current[value]] if value == tree.root else candidates(tree, value, current)
        combinations = math.prod(len(table[one]) for one in step.operands)
        options = options[: max(4, _MOST_COMBINATIONS // combinations)]
        table[value] = {}
        for order in options:
            table[value][order] = _best_operands(model, step, order, [table[one] for one in step.operands])
    chosen = list(current)
    for value in range(tree.root, len(tree.inputs) - 1, -1):
        operands = table[value][chosen[value]][1]
        for one, order in zip(tree.step(value).operands, operands, strict=True):
            chosen[one] = order
    return chosen


def _best_operands(
    model: TrafficModel, step: TreeStep, order: Labels, tables: Sequence[Mapping[Labels, tuple[float, Any]]]
) -> tuple[float, tuple[Labels, ...]]:
    """The least cost of a step with its result in an order, with that of all before it, and its operands' orders. Of
    the combinations of these those are looked at whose bound is no more than the best.
    """
    written, read = model.least(step, [list(table) for table in tables], order)
    choices = [
        [(mine, cost, least[mine]) for mine, (cost, _) in table.items()]
        for table, least in zip(tables, read, strict=True)
    ]
    bounds = []
    for number, chosen in enumerate(itertools.product(*choices)):
        bound, before = written, 0.0
        for _, cost, least in chosen:
            bound += least
            before += cost
        bounds.append((bound + before, number, before, chosen))
    bounds.sort(key=itemgetter(0))
    best: tuple[float, int, tuple[Labels, ...]] | None = None
    for bound, number, before, chosen in bounds:
        if best is not None and bound > best[0]:
            break
        operands = tuple(mine for mine, _, _ in chosen)
        cost = model.step_cost(step, operands, order) + before
        if best is None or (cost, number) < best[:2]:
            best = (cost, number, operands)
    assert best is not None
    return best[0], best[2]


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
    found: dict[Labels, None] = {labels: None}
    outer = (("C", "F", "K"), ("C", "K", "F"))
    inner = (("C", "M", "N"), ("C", "N", "M"))
    for reference in references:
        rank = partial(_place, {label: n for n, label in enumerate(reference)})
        for consumed, produced in itertools.product(outer, inner):
            by_consumer = sorted(
                labels, key=lambda a: (consumed.index(consumer[a]), produced.index(producer[a]), rank(a))
            )
            by_producer = sorted(
                labels, key=lambda a: (produced.index(producer[a]), consumed.index(consumer[a]), rank(a))
            )
            grouped = sorted(labels, key=lambda a: (consumed.index(consumer[a]), rank(a)))
            for order in (grouped, by_consumer, by_producer):
                found.setdefault(tuple(order))
    return list(found)[:_MOST_CANDIDATES]


def _place(places: Mapping[int, int], label: int) -> int:
    return places.get(label, len(places))


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
        moved: its bytes.
        long: its indices that have more than one value, in its order.
        together: elements that its innermost indices of one kind have together, and those before them in short rows;
            None where that kind is in all arrays.
        least: what it costs at the least, in whatever order the others are.
    """

    moved: float
    long: Labels
    together: int | None
    least: float


class TrafficModel:
    """Costs of steps in bytes, remembered; so is what many combinations of orders have in common."""

    def __init__(self, tree: Steps, sizes: tuple[int, ...], width: int) -> None:
        self.tree = tree
        self.sizes = sizes
        self.width = width
        self._known: dict[tuple[int, tuple[Labels, ...], Labels], float] = {}
        self._masks: dict[int, Mapping[int, tuple[bool, ...]]] = {}
        self._again: dict[int, tuple[float, ...]] = {}
        self._arrays: dict[tuple[int, Labels], _Array] = {}
        self._volumes: dict[Labels, int] = {}

    def cost(self, orders: Sequence[Labels]) -> float:
        """Of all steps."""
        first = len(self.tree.inputs)
        return sum(
            self.step_cost(step, tuple(orders[one] for one in step.operands), orders[first + number])
            for number, step in enumerate(self.tree.steps)
        )

    def step_cost(self, step: TreeStep, operands: tuple[Labels, ...], order: Labels) -> float:
        """Bytes that a step moves with its arrays in these orders."""
        key = (id(step), operands, order)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._sum_of_costs(step, operands, order)
        return found

    def least(
        self, step: TreeStep, operands: Sequence[Sequence[Labels]], order: Labels
    ) -> tuple[float, list[dict[Labels, float]]]:
        """What a step's result and each of its operands, by their orders, add to its cost at the least: as if the
        innermost indices of one kind were one dimension.
        """
        masks, several = self._masks_of(step, (*(orders[0] for orders in operands), order)), len(operands) > 1
        read = [
            {one: again * self._array(step, one, masks, several).least for one in orders}
            for orders, again in zip(operands, self._again[id(step)], strict=True)
        ]
        return self._array(step, order, masks, several).least, read

    def _masks_of(self, step: TreeStep, arrays: Sequence[Labels]) -> Mapping[int, tuple[bool, ...]]:
        """Which arrays of a step have an index: the same in whatever orders they are."""
        masks = self._masks.get(id(step))
        if masks is None:
            operands = arrays[:-1]
            masks = {label: tuple(label in one for one in arrays) for label in {a for one in arrays for a in one}}
            self._masks[id(step)] = masks
            self._again[id(step)] = tuple(
                max(1.0, self._volume(tuple({a for other in operands for a in other if a not in one})) / _BLOCK)
                for one in operands
            )
        return masks

    def _sum_of_costs(self, step: TreeStep, operands: tuple[Labels, ...], order: Labels) -> float:
        arrays = (*operands, order)
        masks = self._masks_of(step, arrays)
        dimensions = _fused(arrays)
        known = [self._array(step, one, masks, len(operands) > 1) for one in arrays]
        cost = self._array_cost(known[-1], dimensions)
        for position, again in enumerate(self._again[id(step)]):
            cost += again * self._array_cost(known[position], dimensions)
            if len(operands) > 1:
                cost += self._across(position, known, dimensions, masks)
        return cost

    def _across(
        self,
        position: int,
        arrays: Sequence[_Array],
        dimensions: Mapping[int, Labels],
        masks: Mapping[int, tuple[bool, ...]],
    ) -> float:
        """What it costs that vectors of the result lie across the runs of the operand that has their index."""
        if not arrays[-1].long or not arrays[position].long:
            return 0.0
        vectors, run = arrays[-1].long[-1], arrays[position].long[-1]
        if all(masks[vectors]):
            return 0.0
        if not masks[vectors][position]:  # its elements are broadcast, one after another along what is summed
            return _SPREAD * masks[run][-1] * arrays[position].moved
        if dimensions[run] == dimensions[vectors]:
            return 0.0
        return (_ACROSS if masks[run][-1] else _TURNED) * arrays[position].moved

    def _volume(self, labels: Labels) -> int:
        found = self._volumes.get(labels)
        if found is None:
            found = self._volumes[labels] = self.tree.volume(labels, self.sizes)
        return found

    def _array(self, step: TreeStep, order: Labels, masks: Mapping[int, tuple[bool, ...]], has_batch: bool) -> _Array:
        key = (id(step), order)
        found = self._arrays.get(key)
        if found is None:
            long = tuple(label for label in order if self.sizes[label] > 1)
            moved = least = float(self._volume(order) * self.width)
            together = None
            if long:
                together, piece = self._together(long, masks, has_batch)
                least = self._cost(moved, together or 1, piece, 1)
            found = self._arrays[key] = _Array(moved, long, together, least)
        return found

    def _together(self, long: Labels, masks: Mapping[int, tuple[bool, ...]], has_batch: bool) -> tuple[int | None, int]:
        """See `_Array`; and the most elements that the innermost dimension can have."""
        kind = masks[long[-1]]
        inner = tuple(itertools.takewhile(lambda label: masks[label] == kind, reversed(long)))
        in_all = has_batch and all(kind)
        run = 1 if in_all else self._volume(inner)
        outer = long[: -len(inner)]
        if 1 < run <= _SHORT_ROW and outer and all(masks[label] != kind for label in outer):
            following = itertools.takewhile(lambda label: masks[label] == masks[outer[-1]], reversed(outer))
            run *= self._volume(tuple(following))
        return (None, 1) if in_all else (run, self._volume(inner))

    def _cost(self, moved: float, run: int, piece: int, dimensions: int) -> float:
        waste = 1.0 + _LINE_BYTES / self.width * (1 / max(1, run) + _PER_PIECE / max(1, piece))
        return moved * (waste + _PER_DIMENSION * dimensions)

    def _array_cost(self, array: _Array, dimensions: Mapping[int, Labels]) -> float:
        if not array.long:
            return array.moved
        run = piece = 1
        if array.together is not None:
            run, piece = array.together, self._volume(dimensions[array.long[-1]])
        return self._cost(array.moved, run, piece, len({dimensions[label] for label in array.long}))


def fused(arrays: Sequence[Labels]) -> Mapping[int, Labels]:
    """The dimension that each index is part of: indices that stand together in the same order wherever they occur.

    Example:
        >>> fused([(0, 1, 2), (2, 3), (0, 1, 3)])[1]
        (0, 1)
    """
    return _fused(tuple(arrays))


@lru_cache(maxsize=1 << 13)
def _fused(arrays: tuple[Labels, ...]) -> Mapping[int, Labels]:
    following: dict[int, int | None] = {}
    held: dict[int, tuple[int, ...]] = {}
    for number, order in enumerate(arrays):
        after: int | None = None
        for label in reversed(order):
            following[label] = after if following.get(label, after) == after else None
            held[label] = (*held.get(label, ()), number)
            after = label
    successor = {label: one for label, one in following.items() if one is not None and held[label] == held[one]}
    return dict(_chains(held, successor))


def _chains(labels: Iterable[int], successor: Mapping[int, int]) -> Iterable[tuple[int, Labels]]:
    starts = set(labels) - set(successor.values())
    for label in starts:
        chain = [label]
        while chain[-1] in successor:
            chain.append(successor[chain[-1]])
        for one in chain:
            yield one, tuple(chain)
