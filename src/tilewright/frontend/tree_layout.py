"""The order of each intermediate's indices in memory: dynamic programming over a few candidates for each.

A contraction reads and writes any order without a copy; what the order decides is how long the runs are that lie
together. Neighbouring indices of one kind (M: left and result, N: right and result, K: summed, C: in all three) that
stand in the same order in every array are one dimension; the innermost such dimension of an array is its run. The
model counts the bytes of the three arrays, those of arrays with short runs several times over: a cache line is moved
whole, and a run inside C serves no tile at all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_steps import ResolvedTree, TreeStep

_LINE_BYTES = 64
_MOST_CANDIDATES = 24
_MOST_COMBINATIONS = 4000
"""Of the orders of a step's result with those of its operands; where there would be more, fewer orders are tried."""
_ROUNDS = 2
_PER_DIMENSION = 0.02
"""What another dimension that is not fused costs, as a share of the array's bytes: loops, and shorter copies."""


def choose_orders(
    tree: ResolvedTree, inputs: Sequence[Labels], output: Labels, sizes: tuple[int, ...], width: int
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


def _by_dynamic_programming(tree: ResolvedTree, model: TrafficModel, current: Sequence[Labels]) -> list[Labels]:
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


def candidates(tree: ResolvedTree, value: int, current: Sequence[Labels]) -> list[Labels]:
    """Orders worth trying for an intermediate: its indices grouped by what producer and consumer do with them.

    Within a group they stand as in an operand of the producer, in the consumer's other operand, or in its result.
    """
    labels = current[value]
    producer = _kinds_of_result(tree, tree.step(value), current)
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


def _kinds_of_result(tree: ResolvedTree, step: TreeStep, current: Sequence[Labels]) -> Mapping[int, str]:
    held = [set(current[one]) for one in step.operands]
    return {
        label: "C" if all(label in one for one in held) and len(held) > 1 else "M" if label in held[0] else "N"
        for label in step.output
    }


def _kinds_of_operand(tree: ResolvedTree, value: int, current: Sequence[Labels]) -> Mapping[int, str]:
    """For the consumer: free (F: in its result), summed (K), or shared and kept (C)."""
    parent = tree.step(tree.parents[value])
    others = {label for one in parent.operands if one != value for label in current[one]}
    return {label: "K" if label in parent.contracted else "C" if label in others else "F" for label in current[value]}


class TrafficModel:
    """Costs of steps in bytes, remembered."""

    def __init__(self, tree: ResolvedTree, sizes: tuple[int, ...], width: int) -> None:
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
            arrays = (*operands, order)
            masks = {label: tuple(label in one for one in arrays) for label in {a for one in arrays for a in one}}
            dimensions = fused(arrays)
            every = (True,) * len(arrays)
            batch = every if len(operands) > 1 else None
            self.known[key] = sum(self._array_cost(one, dimensions, masks, batch) for one in arrays)
        return self.known[key]

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
        innermost = long[-1]
        run = 1 if masks[innermost] == batch else self.tree.volume(dimensions[innermost], self.sizes)
        waste = max(1.0, _LINE_BYTES / (run * self.width))
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
