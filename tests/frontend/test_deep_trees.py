"""Chains of more tensors than Python allows calls in one another."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend.tree_parse import Leaf, Node, TreeError, parse_tree

SITES = 400


def chain_text(sites: int) -> str:
    """The product of that many matrices, one after the other from the left."""
    text = "[0,1],[1,2]->[0,2]"
    for site in range(2, sites):
        text = f"[{text}],[{site},{site + 1}]->[0,{site + 1}]"
    return text


def rotations(sites: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Matrices whose product neither grows nor vanishes, and that product."""
    angles = np.random.default_rng(0).uniform(-3, 3, sites)
    turn = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)], axis=1).reshape(sites, 2, 2)
    total = angles.sum()
    return list(turn), np.array([[np.cos(total), -np.sin(total)], [np.sin(total), np.cos(total)]])


def test_a_chain_is_computed_as_a_tree() -> None:
    matrices, expected = rotations(SITES)
    np.testing.assert_allclose(tw.einsum_tree(chain_text(SITES), None, matrices), expected, rtol=0, atol=1e-12)


def test_a_chain_is_computed_within_a_limit() -> None:
    matrices, expected = rotations(SITES)
    operands = [part for site, matrix in enumerate(matrices) for part in (matrix, [site, site + 1])]
    path = [(0, 1), *((0, SITES - 1 - done) for done in range(1, SITES - 1))]
    found = tw.einsum(*operands, [0, SITES], optimize=path, memory_limit=100_000)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_the_plan_of_a_chain_is_printed() -> None:
    plan = tw.plan_tree(chain_text(SITES), [2] * (SITES + 1))
    lines = repr(plan).splitlines()
    assert len(lines) == 2 + SITES + SITES - 1
    assert lines[0] == f"TreePlan {chain_text(SITES)}"


def test_the_plan_of_a_chain_is_pickled() -> None:
    matrices, expected = rotations(SITES)
    plan = pickle.loads(pickle.dumps(tw.plan_tree(chain_text(SITES), [2] * (SITES + 1))))
    np.testing.assert_allclose(plan(*matrices), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("text", ["[0]->[0]", "[[1,0]->[0,1]],[[a],[a,1]->[1]r]->[0]r", "[],[[[],[]->[]],[]->[]]->[]"])
def test_a_tree_is_itself_again_after_pickling(text: str) -> None:
    tree = parse_tree(text)
    again = pickle.loads(pickle.dumps(tree))
    assert again == tree
    assert str(again) == text
    assert again.position == tree.position
    assert copy.deepcopy(tree) == tree


def test_brackets_of_any_depth_are_read() -> None:
    deep = 5000
    tree = parse_tree("[" * deep + "[0]->[0]" + "]->[0]" * deep)
    assert str(tree) == "[" * deep + "[0]->[0]" + "]->[0]" * deep
    with pytest.raises(TreeError, match=f"at position {deep + 1}: expected an index"):
        parse_tree("[" * (deep + 1))


def test_deep_trees_are_equal_where_all_their_nodes_are() -> None:
    def column(label: int, activation: str | None = None) -> Node:
        node = Node((Leaf((label,), 3),), (label,), activation)
        for _ in range(5000):
            node = Node((node,), (label,))
        return node

    assert column(0) == column(0)
    assert hash(column(0)) == hash(column(0))
    assert column(0) != column(1)
    assert column(0) != column(0, "relu")
    assert Node((Leaf((0,)), Leaf((1,))), (0,)) != Node((Node((Leaf((0,)),), (1,)),), (0,))
    assert column(0) != "a tree"
