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
from functools import partial

from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_steps import Steps, TreeStep

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
            best: tuple[float, tuple[Labels, ...]] | None = None
            for operands in itertools.product(*(table[one] for one in step.operands)):
                cost = model.step_cost(step, operands, order)
                cost += sum(table[one][mine][0] for one, mine in zip(step.operands, operands, strict=True))
                if best is None or cost < best[0]:
                    best = (cost, operands)
            assert best is not None
            table[value][order] = best
    chosen = list(current)
    for value in range(tree.root, len(tree.inputs) - 1, -1):
        operands = table[value][chosen[value]][1]
        for one, order in zip(tree.step(value).operands, operands, strict=True):
            chosen[one] = order
    return chosen


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


class TrafficModel:
    """Costs of steps in bytes, remembered."""

    def __init__(self, tree: Steps, sizes: tuple[int, ...], width: int) -> None:
        self.tree = tree
        self.sizes = sizes
        self.width = width
        self.known: dict[tuple[int, tuple[Labels, ...], Labels], float] = {}

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
        if key not in self.known:
            self.known[key] = self._sum_of_costs(operands, order)
        return self.known[key]

    def _sum_of_costs(self, operands: tuple[Labels, ...], order: Labels) -> float:
        arrays = (*operands, order)
        masks = {label: tuple(label in one for one in arrays) for label in {a for one in arrays for a in one}}
        dimensions = fused(arrays)
        batch = (True,) * len(arrays) if len(operands) > 1 else None
        cost = self._array_cost(order, dimensions, masks, batch)
        for position, operand in enumerate(operands):
            own = {label for other in operands for label in other if label not in operand}
            again = max(1.0, self.tree.volume(tuple(own), self.sizes) / _BLOCK)
            cost += again * self._array_cost(operand, dimensions, masks, batch)
            if batch is not None:
                cost += self._across(position, arrays, dimensions, masks)
        return cost

    def _across(
        self,
        position: int,
        arrays: tuple[Labels, ...],
        dimensions: Mapping[int, Labels],
        masks: Mapping[int, tuple[bool, ...]],
    ) -> float:
        """What it costs that vectors of the result lie across the runs of the operand that has their index."""
        vectors, run = self._innermost(arrays[-1]), self._innermost(arrays[position])
        if vectors is None or run is None or all(masks[vectors]):
            return 0.0
        if not masks[vectors][position]:  # its elements are broadcast, one after another along what is summed
            return _SPREAD * masks[run][-1] * self.tree.volume(arrays[position], self.sizes) * self.width
        if dimensions[run] == dimensions[vectors]:
            return 0.0
        return (_ACROSS if masks[run][-1] else _TURNED) * self.tree.volume(arrays[position], self.sizes) * self.width

    def _innermost(self, order: Labels) -> int | None:
        return next((label for label in reversed(order) if self.sizes[label] > 1), None)

    def _array_cost(
        self,
        order: Labels,
        dimensions: Mapping[int, Labels],
        masks: Mapping[int, tuple[bool, ...]],
        batch: tuple[bool, ...] | None,
    ) -> float:
        moved = self.tree.volume(order, self.sizes) * self.width
        long = [label for label in order if self.sizes[label] > 1]
        if not long:
            return moved
        kind = masks[long[-1]]
        together = tuple(itertools.takewhile(lambda label: masks[label] == kind, reversed(long)))
        run, piece = (1, 1) if kind == batch else (
            self.tree.volume(together, self.sizes), self.tree.volume(dimensions[long[-1]], self.sizes)
        )  # fmt: skip
        outer = long[: -len(together)]
        if 1 < run <= _SHORT_ROW and outer and all(masks[label] != kind for label in outer):
            following = itertools.takewhile(lambda label: masks[label] == masks[outer[-1]], reversed(outer))
            run *= self.tree.volume(tuple(following), self.sizes)
        waste = 1.0 + _LINE_BYTES / self.width * (1 / max(1, run) + _PER_PIECE / max(1, piece))
        count = len({dimensions[label] for label in long})
        return moved * (waste + _PER_DIMENSION * count)


def fused(arrays: Sequence[Labels]) -> Mapping[int, Labels]:
    """The dimension that each index is part of: indices that stand together in the same order wherever they occur.

    Example:
        >>> fused([(0, 1, 2), (2, 3), (0, 1, 3)])[1]
        (0, 1)
    """
    following: dict[int, set[int | None]] = {}
    held: dict[int, list[int]] = {}
    for number, order in enumerate(arrays):
        for label, after in itertools.zip_longest(order, order[1:]):
            following.setdefault(label, set()).add(after)
            held.setdefault(label, []).append(number)
    successor: dict[int, int] = {}
    for label, after in following.items():
        (one,) = after if len(after) == 1 else (None,)
        if one is not None and held[label] == held[one]:
            successor[label] = one
    return dict(_chains(held, successor))


def _chains(labels: Iterable[int], successor: Mapping[int, int]) -> Iterable[tuple[int, Labels]]:
    starts = set(labels) - set(successor.values())
    for label in starts:
        chain = [label]
        while chain[-1] in successor:
            chain.append(successor[chain[-1]])
        for one in chain:
            yield one, tuple(chain)
