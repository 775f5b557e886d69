"""The model of trees' layouts computes with bits what its definition says index by index, and looks at few orders."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.frontend import tree_layout
from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_layout import Choices, TrafficModel, best_operands
from tilewright.frontend.tree_steps import Steps, TreeStep

SIZES = (1, 2, 3, 8, 40, 300)
WIDTH = 8
seeds = st.integers(0, 10**9).map(random.Random)


def volume(labels: Sequence[int]) -> int:
    return math.prod(SIZES[label] for label in labels)


def dimension(label: int, arrays: Sequence[Labels]) -> Labels:
    """The indices that stand together with one, in the same order, in every array that has any of them."""

    def follows(a: int, b: int) -> bool:
        holding = [one for one in arrays if a in one or b in one]
        return all(a in one and b in one and one.index(b) == one.index(a) + 1 for one in holding)

    others = {label for array in arrays for label in array}
    before = next((one for one in others if follows(one, label)), None)
    start = label if before is None else dimension(before, arrays)[0]
    chain = [start]
    while (after := next((one for one in others if follows(chain[-1], one)), None)) is not None:
        chain.append(after)
    return tuple(chain)


def defined_cost(operands: Sequence[Labels], result: Labels) -> float:
    """Bytes that a step moves, by the text of the module."""
    arrays = [tuple(label for label in one if SIZES[label] > 1) for one in (*operands, result)]
    line = tree_layout._LINE_BYTES / WIDTH
    several = len(operands) > 1

    def kind(label: int) -> list[bool]:
        return [label in one for one in arrays]

    def array_cost(order: Labels) -> float:
        moved = volume(order) * WIDTH
        if not order:
            return moved
        run = piece = 1
        if not (several and all(kind(order[-1]))):
            inner = list(itertools.takewhile(lambda one: kind(one) == kind(order[-1]), reversed(order)))
            outer = order[: -len(inner)]
            run, piece = volume(inner), volume(dimension(order[-1], arrays))
            if run <= tree_layout._SHORT_ROW and outer and all(kind(one) != kind(order[-1]) for one in outer):
                run *= volume(list(itertools.takewhile(lambda one: kind(one) == kind(outer[-1]), reversed(outer))))
        dimensions = len({dimension(label, arrays) for label in order})
        return moved * (
            1 + line / run + line * tree_layout._PER_PIECE / piece + tree_layout._PER_DIMENSION * dimensions
        )

    def across(order: Labels) -> float:
        if not arrays[-1] or not order or not several or all(kind(arrays[-1][-1])):
            return 0.0
        vectors, run = arrays[-1][-1], order[-1]
        moved = volume(order) * WIDTH
        if vectors not in order:
            return tree_layout._SPREAD * moved if run in arrays[-1] else 0.0
        if vectors == run:
            return 0.0
        return (tree_layout._ACROSS if run in arrays[-1] else tree_layout._TURNED) * moved

    total = array_cost(arrays[-1])
    for order in arrays[:-1]:
        others = {label for one in arrays[:-1] for label in one if label not in order}
        again = max(1.0, volume(list(others)) / tree_layout._BLOCK)
        total += again * array_cost(order) + across(order)
    return total


def drawn_step(draw: random.Random, operands: int) -> tuple[list[Labels], Labels, TreeStep]:
    arrays = [tuple(draw.sample(range(len(SIZES)), draw.randint(0, len(SIZES)))) for _ in range(operands)]
    labels = list(dict.fromkeys(label for one in arrays for label in one))
    result = tuple(label for label in draw.sample(labels, len(labels)) if draw.random() < 0.7)
    step = TreeStep(tuple(range(operands)), result, tuple(label for label in labels if label not in result))
    return arrays, result, step


@given(seeds, st.integers(1, 2))
def test_costs_are_what_the_definition_says(draw: random.Random, operands: int) -> None:
    arrays, result, step = drawn_step(draw, operands)
    model = TrafficModel(Steps(tuple(arrays), (step,), SIZES), SIZES, WIDTH)
    for _ in range(4):  # what is remembered of one combination of orders is right for the next one
        orders = [tuple(draw.sample(one, len(one))) for one in arrays]
        order = tuple(draw.sample(result, len(result)))
        cost = model.step_cost(step, tuple(orders), order)
        assert cost == pytest.approx(defined_cost(orders, order), rel=1e-12)


@given(seeds)
def test_bounds_leave_out_nothing_that_is_best(draw: random.Random) -> None:
    arrays, result, step = drawn_step(draw, 2)
    model = TrafficModel(Steps(tuple(arrays), (step,), SIZES), SIZES, WIDTH)
    tables: list[Choices] = [
        {tuple(draw.sample(one, len(one))): (float(draw.choice((0, 5, 5000))), ()) for _ in range(5)} for one in arrays
    ]
    orders = [tuple(draw.sample(result, len(result))) for _ in range(3)]
    found = best_operands(model, step, orders, tables)
    assert list(found) == list(dict.fromkeys(orders))
    kinds = model.kinds(step)
    for order in orders:
        costs = {}
        for first, second in itertools.product(*tables):
            pair = (kinds.array(0, first), kinds.array(1, second))
            alone = model.step_cost(step, (first, second), order)
            assert pair[0].least + pair[1].least + kinds.array(2, order).least <= alone * (1 + 1e-12)
            costs[first, second] = alone + (tables[0][first][0] + tables[1][second][0])
        assert found[order][0] == pytest.approx(min(costs.values()), rel=1e-12)
        first, second = found[order][1]
        assert costs[first, second] == found[order][0]
