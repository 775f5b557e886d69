"""Orders of intermediates: what the model says, what is chosen, and that no permutation is left as a copy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tree_checks import CASES, NAMES, case_named, random_arrays

import tilewright as tw
from tilewright.frontend.einsum_parse import Labels
from tilewright.frontend.tree_layout import TrafficModel, choose_orders
from tilewright.frontend.tree_parse import parse_tree, sizes_of
from tilewright.frontend.tree_steps import ResolvedTree, resolve_tree
from tilewright.passes.compile import program_block
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime.host import ContractionStep, ViewStep

CONTRACTIONS = [case["name"] for case in CASES if case.get("contractions")] + ["mlc_chain", "mlp_relu"]


def resolved(text: str, sizes: list[int]) -> ResolvedTree:
    tree = parse_tree(text)
    return resolve_tree(tree, sizes_of(tree, sizes))


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_every_step_is_a_contraction_and_nothing_is_copied(name: str) -> None:
    tree, sizes = case_named(name)
    plan = tw.plan_tree(tree, sizes, dtype="f32", target="cpu")
    block, notes = program_block(run_pipeline(plan.main.program), plan.device)
    kinds = [type(step) for step in block.steps]
    count = len(plan.resolved.inputs) - 1
    assert kinds.count(ContractionStep) == count == len(plan.resolved.steps)
    assert set(kinds) <= {ContractionStep, ViewStep}
    assert all(note.lowered.startswith("a contraction") and not note.reasons for note in notes)
    plan(*random_arrays(tree, sizes, np.float32))
    assert "for the sizes of a call: general lowering" not in plan.explain()


@pytest.mark.parametrize("case", [case for case in CASES if "flops" in case], ids=lambda case: case["name"])
def test_costs_of_the_projects_trees(case: dict[str, Any]) -> None:
    tree = resolved(case["tree"], case["sizes"])
    assert sum(map(tree.flops, tree.steps)) == case["flops"]
    inner = [tree.volume(step.output) for step in tree.steps[:-1]]
    assert max(inner, default=0) == case["max_intermediate_elems"]
    assert tree.volume(tree.output) == case["output_elems"]


def test_permutation_nodes_leave_no_step() -> None:
    tree = resolved("[[[[0,1]->[1,0]],[[1,2]->[2,1]]->[0,2]]->[2,0]],[[2,3]->[3,2]]->[3,0]", [4, 5, 6, 7])
    assert [step.operands for step in tree.steps] == [(0, 1), (3, 2)]
    assert tree.steps[0].output == tree.labels(3) and tree.output == (0, 1)


def test_activations_are_epilogues_of_the_step_below() -> None:
    tree = resolved("[[[[0,1],[1,2]->[0,2]r]->[2,0]r],[2,3]->[0,3]]->[3,0]r", [4, 5, 6, 7])
    assert [step.activations for step in tree.steps] == [("relu", "relu"), ("relu",)]
    alone = resolved("[[0,1]->[1,0]r],[1,2]->[0,2]", [4, 5, 6])
    assert [(step.operands, step.activations) for step in alone.steps] == [((0,), ("relu",)), ((2, 1), ())]


def test_sums_over_lone_indices_go_down_to_where_the_index_is() -> None:
    # 3 is only in the second input and 0 only in the first one: both are summed before anything is multiplied.
    tree = resolved("[[[0,1],[1,2,3]->[0,2,3]]->[0,2]],[2,4]->[4]", [4, 5, 6, 7, 8])
    sums = [(step.operands, len(step.contracted)) for step in tree.steps if len(step.operands) == 1]
    assert sums == [((0,), 1), ((1,), 1)]
    # A shared index that nothing needs is contracted where it is shared.
    batch = resolved("[[0,1],[0,2]->[0,1,2]]->[1,2]", [4, 5, 6])
    assert [(step.operands, len(step.contracted)) for step in batch.steps] == [((0, 1), 1)]
    # But no sum crosses an activation.
    kept = resolved("[[0,1],[1,2]->[0,2]r]->[0]", [4, 5, 6])
    assert [(len(step.operands), step.activations) for step in kept.steps] == [(2, ("relu",)), (1, ())]


def best_cost(tree: ResolvedTree, model: TrafficModel) -> float:
    """Over all orders of all intermediates."""
    table: dict[int, dict[Labels, float]] = {number: {labels: 0.0} for number, labels in enumerate(tree.inputs)}
    for value in range(len(tree.inputs), tree.root + 1):
        step = tree.step(value)
        orders = [tree.output] if value == tree.root else list(itertools.permutations(step.output))
        below = list(itertools.product(*(table[one].items() for one in step.operands)))
        table[value] = {
            order: min(
                model.step_cost(step, tuple(one for one, _ in parts), order) + sum(cost for _, cost in parts)
                for parts in below
            )
            for order in orders
        }
    return min(table[tree.root].values())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("course_lowering_2", "course_optimization_2")])
def test_the_chosen_orders_are_nearly_the_best_of_all(name: str) -> None:
    case = next(one for one in CASES if one["name"] == name)
    tree = resolved(case["tree"], case["sizes"])
    model = TrafficModel(tree, tree.sizes, 4)
    chosen = choose_orders(tree, tree.inputs, tree.output, tree.sizes, 4)
    cost = model.cost([*tree.inputs, *chosen])
    assert cost <= 1.02 * best_cost(tree, model)
    assert cost <= model.cost([*tree.inputs, *(step.output for step in tree.steps)])


def test_short_runs_are_avoided() -> None:
    # Declared with the index of size 2 innermost, and with the two indices of each group apart.
    tree = resolved("[0,1,4],[4,2,3]->[2,0,3,1]", [2, 64, 2, 64, 64])
    nested = resolved("[[0,1,4],[4,2,3]->[1,3,0,2]],[0,1,5]->[2,3,5]", [2, 64, 2, 64, 64, 64])
    assert choose_orders(tree, tree.inputs, tree.output, tree.sizes, 4) == (tree.output,)
    (first, last) = choose_orders(nested, nested.inputs, nested.output, nested.sizes, 4)
    assert nested.text(first) in ("[0,1,2,3]", "[2,3,0,1]") and last == nested.output


def test_the_order_in_memory_of_inputs_and_results_counts() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(-2, 3, (8, 4)), rng.integers(-2, 3, (4, 6)), rng.integers(-2, 3, (6, 5))
    for first in (a, np.asfortranarray(a)):
        out = np.empty((5, 8), a.dtype).T
        tw.einsum_tree("[[0,1],[1,2]->[0,2]],[2,3]->[0,3]", None, [first, b, c], out=out)
        np.testing.assert_array_equal(out, a @ b @ c)


def test_a_plan_prints_its_tree() -> None:
    plan = tw.plan_tree("[[[0,1],[1,2]->[2,0]r],[2,3]->[0,3]]->[3,0]", [40, 50, 60, 70], dtype="f32", target="cpu")
    lines = repr(plan).splitlines()
    assert lines[0] == "TreePlan [[[0,1],[1,2]->[2,0]r],[2,3]->[0,3]]->[3,0]"
    assert lines[1].startswith("f32[70, 40] on cpu")
    assert lines[1].endswith("2 steps, 578 kflop, peak memory 20800 bytes (20.3 KiB)")
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "[3,0] 70x40 step 2 M=40 N=70 K=60 336 kflop",
        "├─ [0,2] 40x60 step 1 M=40 N=60 K=50 relu 242 kflop",
        "│ ├─ [0,1] 40x50 input 0",
        "│ └─ [1,2] 50x60 input 1",
        "└─ [2,3] 60x70 input 2",
    ]
    small = tw.plan_tree("[[0,1],[1,2]->[0,2]],[2,3]->[0,3]", [40, 5, 60, 7], dtype="f32", memory_limit=6000)
    assert repr(small).splitlines()[2] == "2 slices of 0=40 by 20, written into the result"


def test_an_operand_that_is_read_again_keeps_its_runs_long() -> None:
    """The small operand is read for each block of the large one: what is summed lies together in it, and the rest."""
    plan = tw.plan_tree(
        "[[2,7,3],[3,8,4]->[2,7,8,4]],[[4,9,0],[[0,5,1],[1,6,2]->[0,5,6,2]]->[4,9,5,6,2]]->[5,6,7,8,9]",
        [26, 26, 26, 26, 26, 16, 16, 16, 16, 16], dtype="f32", target="cpu",
    )  # fmt: skip
    tree = plan.resolved
    left, right = tree.step(tree.root).operands
    assert len(plan.orders[left]) == 4
    for operand in (left, right):
        order = plan.orders[operand]
        summed = [label in tree.step(tree.root).contracted for label in order]
        assert sum(one != two for one, two in itertools.pairwise(summed)) == 1, tree.text(order)


def test_vectors_do_not_run_across_the_runs_of_their_operand() -> None:
    """The result's innermost index is innermost in its operand, or else a summed one is."""
    plan = tw.plan_tree("[[0,1,2],[2,3]->[3,0,1]],[3,4]->[4,0,1]", [30, 40, 50, 60, 70], dtype="f32", target="cpu")
    tree = plan.resolved
    middle = plan.orders[tree.step(tree.root).operands[0]]
    assert tree.text(middle)[1:-1].split(",")[-1] in ("1", "3")


def test_what_is_broadcast_lies_together_along_what_is_summed() -> None:
    """A large operand without the index that the result's vectors run along is read element by element."""
    plan = tw.plan_tree(
        "[[8,4],[7,3,8]->[7,3,4]],[[[2,6,7],[1,5,6]->[1,2,5,7]],[0,5]->[0,1,2,7]]->[0,1,2,3,4]",
        [56, 40, 72, 72, 2, 40, 171, 18, 2], dtype="f32", target="cpu",
    )  # fmt: skip
    tree = plan.resolved
    assert tree.text(plan.orders[tree.step(tree.root).operands[1]])[1:-1].split(",")[-1] == "7"
