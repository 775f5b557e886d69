"""Peaks: the order of evaluation, what slices save, and that an evaluation takes no more than its plan says."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from tree_checks import random_tree

import tilewright as tw
from tilewright.frontend.tree_memory import Widths, plan_memory, sliceable
from tilewright.frontend.tree_parse import parse_tree, sizes_of
from tilewright.frontend.tree_steps import ResolvedTree, resolve_tree


def resolved(text: str, sizes: list[int]) -> ResolvedTree:
    tree = parse_tree(text)
    return resolve_tree(tree, sizes_of(tree, sizes))


def replayed_peak(tree: ResolvedTree, order: tuple[int, ...], width: int) -> int:
    """The peak of steps in an order, by simulation."""
    alive: dict[int, int] = {}
    peak = 0
    for value in order:
        alive[value] = tree.volume(tree.labels(value)) * width
        peak = max(peak, sum(alive.values()))
        for one in tree.step(value).operands:
            alive.pop(one, None)
    return peak


def test_the_operand_that_falls_most_goes_first() -> None:
    # The right operand needs a large array on its way to a small result.
    tree = resolved("[[0,1],[1,2]->[0,2]],[[[2,3],[3,4]->[2,4]],[4,5]->[2,5]]->[0,5]", [10, 10, 10, 10, 1000, 10])
    plan = plan_memory(tree, Widths(4, 4))
    assert [tree.text(tree.labels(value)) for value in plan.main.order] == ["[2,4]", "[2,5]", "[0,2]", "[0,5]"]
    assert plan.peak == 4 * (10 * 1000 + 10 * 10)


@pytest.mark.parametrize("seed", range(40))
def test_no_depth_first_order_has_a_smaller_peak(seed: int) -> None:
    node, sizes = random_tree(seed, depth=4)
    tree = resolve_tree(node, sizes)
    plan = plan_memory(tree, Widths(8, 8))
    assert sorted(plan.main.order) == list(range(len(tree.inputs), tree.root + 1))
    assert plan.peak == replayed_peak(tree, plan.main.order, 8)
    assert plan.peak == min(replayed_peak(tree, order, 8) for order in depth_first(tree, tree.root))


def depth_first(tree: ResolvedTree, value: int) -> list[tuple[int, ...]]:
    """All orders of evaluation that finish one operand before the next."""
    if value < len(tree.inputs):
        return [()]
    parts = [depth_first(tree, one) for one in tree.step(value).operands]
    orders = []
    for chosen in itertools.product(*parts):
        orders += [(*itertools.chain(*arranged), value) for arranged in itertools.permutations(chosen)]
    return orders


CHAIN = "[[[0,1],[1,2]->[0,2]],[2,3]->[0,3]],[3,4]->[0,4]"


def test_a_result_that_the_caller_brings_does_not_count() -> None:
    tree = resolved(CHAIN, [10, 20, 30, 40, 50])
    assert plan_memory(tree, Widths(4, 4)).peak == 4 * 10 * (40 + 50)
    assert plan_memory(tree, Widths(4, 4, given=True)).peak == 4 * 10 * (30 + 40)


def test_slices_of_the_cheapest_index() -> None:
    tree = resolved(CHAIN, [100, 20, 30, 40, 5])
    whole = plan_memory(tree, Widths(4, 4))
    plan = plan_memory(tree, Widths(4, 4), whole.peak // 2)
    assert [tree.names[label] for label, _ in plan.pieces] == ["0"]  # nothing is computed twice
    assert plan.flops == whole.flops and not plan.accumulates and plan.peak <= whole.peak // 2


def test_values_without_a_sliced_index_are_computed_once() -> None:
    tree = resolved("[0,1],[[1,2],[2,3]->[1,3]]->[0,3]", [1000, 10, 50, 10])
    narrow = resolved("[[0,1],[1,4]->[0,4]],[[4,2],[2,3]->[4,3]]->[0,3]", [1000, 10, 50, 10, 200])
    plan = plan_memory(narrow, Widths(4, 4), 4 * (1000 * 10 + 200 * 10 + 200 * 130))
    assert [narrow.text(narrow.labels(value)) for value, _ in plan.first] == ["[4,3]"]
    assert plan.flops == plan_memory(narrow, Widths(4, 4)).flops
    assert plan_memory(tree, Widths(4, 4), 10**6).first == ()


def test_contracted_indices_are_added_up_unless_an_activation_follows() -> None:
    text = "[0,1],[[1,2],[2,3]->[1,3]]->[0,3]"
    tree = resolved(text, [4, 1000, 4, 4])
    plan = plan_memory(tree, Widths(4, 4), 4 * (16 + 16 + 4 * 100))
    assert plan.accumulates and plan.pieces == ((tree.inputs[0][1], 100),)
    barred = resolved(text + "r", [4, 1000, 4, 4])
    assert [barred.names[label] for label in sliceable(barred)] == ["0", "3"]
    message = r"the least that slices of its indices can reach is \d+ bytes.* \(\[1,2\] cannot be sliced: activations"
    with pytest.raises(MemoryError, match=message):
        plan_memory(barred, Widths(4, 4), 4 * (16 + 16 + 4 * 100))


def test_a_limit_below_the_result_cannot_be_met() -> None:
    with pytest.raises(MemoryError, match=r"needs 3600 bytes .* memory_limit is 10 bytes; the least .* is 2008 bytes"):
        tw.plan_tree(CHAIN, [10, 20, 30, 40, 50], dtype="f32", memory_limit=10)


def test_the_least_that_is_told_can_be_met() -> None:
    with pytest.raises(MemoryError) as caught:
        tw.plan_tree(CHAIN, [10, 20, 30, 40, 50], dtype="f32", memory_limit=0)
    least = int(str(caught.value).partition("can reach is ")[2].split()[0])
    assert tw.plan_tree(CHAIN, [10, 20, 30, 40, 50], dtype="f32", memory_limit=least).peak_bytes == least


LONG = "[[[[[0,1],[1,2]->[0,2]],[2,3]->[0,3]],[3,4]->[0,4]],[4,5]->[0,5]],[5,6]->[0,6]"


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_an_evaluation_takes_no_more_than_its_plan_says(share: float, traced_peak: Callable[[str, str], int]) -> None:
    sizes = [240] * 7  # arrays of 460800 bytes: five results, of which two are alive at a time
    whole = tw.plan_tree(LONG, sizes, dtype="f64", target="cpu")
    assert whole.peak_bytes == 2 * 240 * 240 * 8
    limit = int(share * whole.peak_bytes)
    plan = tw.plan_tree(LONG, sizes, dtype="f64", target="cpu", memory_limit=limit)
    before = f"""
        import numpy as np
        import tilewright as tw

        plan = tw.plan_tree({LONG!r}, {sizes}, dtype="f64", target="cpu", memory_limit={limit})
        plan(*(np.ones((240, 240)) for _ in range(6)))  # compiles, and makes what stays
        fresh = [np.ones((240, 240)) for _ in range(6)]
    """
    peak = traced_peak(before, "plan(*fresh)")
    assert plan.peak_bytes <= limit
    assert peak <= plan.peak_bytes + 50_000
