"""The bracket notation: what is read, what is printed, and what is refused where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_checks import CASES, random_tree

from tilewright.frontend.tree_parse import Leaf, Node, TreeError, check_tree, leaves, parse_tree, sizes_of


def test_names_may_have_any_letters() -> None:
    assert str(parse_tree("[[α,β_1],[β_1,γ]->[α,γ]],[γ,d]->[d,α]")) == "[[α,β_1],[β_1,γ]->[α,γ]],[γ,d]->[d,α]"
    with pytest.raises(TreeError, match="unexpected character '€'"):
        parse_tree("[€,1]->[1]")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_projects_trees_are_printed_as_they_are_written(case: dict[str, str]) -> None:
    tree = parse_tree(case["tree"])
    assert str(tree) == case["tree"]
    assert parse_tree(str(tree)) == tree
    if "contractions" in case:
        assert len(leaves(tree)) == int(case["contractions"]) + 1


@given(st.integers(0, 10**9))
def test_random_trees_survive_printing_and_parsing(seed: int) -> None:
    tree, _ = random_tree(seed)
    assert parse_tree(str(tree)) == tree


def test_the_parts_of_a_tree() -> None:
    tree = parse_tree(" [[0,1] , [1,2]->[0,2]r] ,[2 ,3]\n->[3,0]")
    assert tree == Node((Node((Leaf((0, 1)), Leaf((1, 2))), (0, 2), "relu"), Leaf((2, 3))), (3, 0))
    assert [leaf.labels for leaf in leaves(tree)] == [(0, 1), (1, 2), (2, 3)]
    assert parse_tree("[],[a_1]->[]").operands == (Leaf(()), Leaf(("a_1",)))


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, r"expected '\[' and an operand, but the text ends"),
        ("[0,1]", 5, "expected ',' or '->' and the node's indices, but the text ends"),
        ("[0,1],[1,2]->[0,2", 17, r"expected ',' or '\]' in a list of indices, but the text ends"),
        ("[0,1],[1,2]->[0,2]]", 18, r"expected the end of the text, but found '\]'"),
        ("[0,1],[1,2],[2,3]->[0,3]", 0, "a node has one or two operands, this one has 3"),
        ("[0,1],[1,2]->[0,2]q", 18, r"unknown suffix 'q'; there is 'r' \(relu\)"),
        ("[0,1],[1;2]->[0,2]", 8, "unexpected character ';'"),
        ("[0,,1]->[0]", 3, r"expected an index \(a number or a name\)"),
        ("[[0,1],[1,2]],[2,3]->[0,3]", 12, "expected ',' or '->' and the node's indices"),
        ("[3,4],[[0,0]->[0]]->[3]", 7, r"index 0 occurs twice in \[0,0\]; trees take no diagonals"),
        ("[0,1],[1,2]->[0,3]", 0, r"output index 3 of \[0,3\] is not in \[0,1\] nor \[1,2\]"),
        ("[5],[[0,1]->[2]]->[5]", 5, r"output index 2 of \[2\] is not in \[0,1\]"),
    ],
)
def test_what_is_wrong_is_shown_where_it_is(text: str, position: int, message: str) -> None:
    with pytest.raises(TreeError, match=f"at position {position}: {message}") as caught:
        parse_tree(text)
    shown, caret = str(caught.value).splitlines()[-2:]
    assert shown.strip() == text.strip()
    assert caret.index("^") == 2 + position


def test_trees_made_by_hand_are_checked_too() -> None:
    with pytest.raises(TreeError, match="output index 9"):
        check_tree(Node((Leaf((0, 1)),), (9,)))
    with pytest.raises(TreeError, match="one or two operands, this one has 0"):
        check_tree(Node((), ()))
    with pytest.raises(TreeError, match="unknown activation 'selu'"):
        check_tree(Node((Leaf((0,)),), (0,), "selu"))
    with pytest.raises(TypeError, match=r"a tree is a string or a Node, not 3"):
        parse_tree(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([4, 5], "index 2 has no size; sizes has 2 entries"),
        ([4, 5, 6, 7], "sizes has 4 entries, but the largest index is 2"),
        ([4, -1, 6], "the size of index 1 is -1"),
        ([4, 2.5, 6], "the size of index 1 is 2.5"),
        ({"0": 4, "1": 5}, "index 2 has no size"),
        ({0: 4, 1: 5, 2: 6, "x": 1}, "sizes has 'x', which is no index of the tree"),
        ({0: 4, 1: 5, 2: 6, "²": 6}, "sizes has '²', which is no index of the tree"),
        ({0: 4, 1: 5, 2: 6, "1": 7}, "sizes has index 1 twice, the second time as '1'"),
        ({"0": 4, "1": 5, "2": 6, "01": 5}, "sizes has index 1 twice"),
    ],
)
def test_sizes_that_do_not_fit(sizes: object, message: str) -> None:
    with pytest.raises(TreeError, match=message):
        sizes_of(parse_tree("[0,1],[1,2]->[0,2]"), sizes)  # type: ignore[arg-type]


def test_sizes_of_named_indices() -> None:
    tree = parse_tree("[i,0],[0,j]->[i,j]")
    assert sizes_of(tree, {"i": 2, "0": 3, "j": 4}) == {"i": 2, 0: 3, "j": 4}
    with pytest.raises(TreeError, match="index 'i' is a name, so that sizes must be a mapping"):
        sizes_of(tree, [3])


@pytest.mark.parametrize("sizes", [None, 3, "456", {4, 5, 6}])
def test_what_gives_no_sizes_is_refused(sizes: object) -> None:
    with pytest.raises(TypeError, match=r"sizes must be a mapping or a sequence, not "):
        sizes_of(parse_tree("[0,1],[1,2]->[0,2]"), sizes)  # type: ignore[arg-type]
