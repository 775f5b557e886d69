"""The model of trees' layouts remembers what combinations of orders have in common: it must not matter."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_layout import TrafficModel, _best_operands, fused
from tilewright.frontend.tree_steps import Steps, TreeStep

SIZES = (1, 2, 3, 8, 40, 300)
labels = st.permutations(range(len(SIZES)))


def some_of(order: list[int], count: int) -> Labels:
    return tuple(order[:count])


@given(st.lists(st.tuples(labels, st.integers(1, 6)), min_size=1, max_size=3))
def test_dimensions_are_indices_that_stand_together_everywhere(drawn: list[tuple[list[int], int]]) -> None:
    arrays = [some_of(order, count) for order, count in drawn]
    found = fused(arrays)
    for one, other in itertools.permutations({label for order in arrays for label in order}, 2):
        holding = [order for order in arrays if one in order or other in order]
        together = all(
            one in order and other in order and order.index(other) == order.index(one) + 1 for order in holding
        )
        dimension = found[one]
        place = dimension.index(one)
        assert together == (dimension[place + 1 : place + 2] == (other,))


@given(labels, labels, st.integers(1, 6), st.integers(1, 6), st.randoms(use_true_random=False))
def test_what_is_remembered_is_what_is_computed(
    left: list[int], right: list[int], first: int, second: int, random: object
) -> None:
    operands = some_of(left, first), some_of(right, second)
    contracted = tuple(one for one in operands[0] if one in operands[1])[::2]
    out = tuple(dict.fromkeys(one for term in operands for one in term if one not in contracted))
    step = TreeStep((0, 1), out, contracted)
    tree = Steps(operands, (step,), SIZES)
    together = TrafficModel(tree, SIZES, 8)
    for _ in range(6):
        orders = [tuple(random.sample(one, len(one))) for one in (*operands, out)]  # type: ignore[attr-defined]
        alone = TrafficModel(tree, SIZES, 8)
        pair = (orders[0], orders[1])
        assert together.step_cost(step, pair, orders[2]) == alone.step_cost(step, pair, orders[2])


@given(labels, labels, st.integers(1, 6), st.integers(1, 6), st.randoms(use_true_random=False))
def test_bounds_leave_out_nothing_that_is_best(
    left: list[int], right: list[int], first: int, second: int, random: object
) -> None:
    operands = some_of(left, first), some_of(right, second)
    contracted = tuple(one for one in operands[0] if one in operands[1])[1::2]
    out = tuple(dict.fromkeys(one for term in operands for one in term if one not in contracted))
    step = TreeStep((0, 1), out, contracted)
    model = TrafficModel(Steps(operands, (step,), SIZES), SIZES, 16)
    tables: list[dict[Labels, tuple[float, tuple[Labels, ...]]]] = [
        {tuple(random.sample(one, len(one))): (float(random.choice((0, 5, 5000))), ()) for _ in range(5)}  # type: ignore[attr-defined]
        for one in operands
    ]
    written, read = model.least(step, [list(table) for table in tables], out)
    costs = {}
    for pair in itertools.product(*tables):
        alone = model.step_cost(step, (pair[0], pair[1]), out)
        assert written + read[0][pair[0]] + read[1][pair[1]] <= alone
        costs[pair] = alone + (tables[0][pair[0]][0] + tables[1][pair[1]][0])
    best = min(costs, key=lambda pair: costs[pair])  # the first of those that cost as little
    assert _best_operands(model, step, out, tables) == (costs[best], best)
