"""Reading expressions: what NumPy reads, more indices than letters, and messages that name what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.frontend.einsum_lists import interleaved_key
from tilewright.frontend.einsum_parse import BROADCAST, EinsumSpec, parse_interleaved, parse_string, resolve
from tilewright.frontend.einsum_path import PathError, contraction_path, hashable_optimize, steps_of


def spec(expression: str, *shapes: tuple[int, ...]) -> EinsumSpec:
    return resolve(parse_string(expression), shapes).spec


def test_explicit_and_implicit_outputs() -> None:
    assert spec("ij,jk->ik", (2, 3), (3, 4)) == EinsumSpec(((0, 1), (1, 2)), (0, 2))
    assert spec("ij,jk", (2, 3), (3, 4)) == spec(" i j , jk -> ik ", (2, 3), (3, 4))
    assert spec("ba", (2, 3)).output == (1, 0)
    assert spec("ii", (2, 2)).output == ()
    assert spec("bA", (2, 3)).output == (1, 0)  # upper case first, as in NumPy
    assert spec(",->", (), ()) == EinsumSpec(((), ()), ())
    assert spec("i->ii", (3,)).output == (0, 0)


def test_equal_up_to_names_is_equal() -> None:
    assert spec("ab,bc->ac", (2, 3), (3, 4)) == spec("xy,yz->xz", (2, 3), (3, 4))


def test_ellipsis_aligns_on_the_right() -> None:
    assert spec("...ij,...jk->...ik", (5, 2, 3), (3, 4)) == EinsumSpec(((0, 1, 2), (2, 3)), (0, 1, 3))
    assert spec("...i", (2, 3)).output == (0, 1)
    assert spec("i...", (2, 3)).output == (1, 0)
    assert spec("i->...i", (2,)).output == (0,)
    assert spec("...,...", (2, 1), (3,)) == EinsumSpec(((0, BROADCAST), (1,)), (0, 1))


def test_size_one_is_broadcast() -> None:
    assert spec("ij,ij->j", (1, 3), (2, 3)) == EinsumSpec(((BROADCAST, 1), (0, 1)), (1,))
    assert spec("i,i->i", (1,), (0,)) == EinsumSpec(((BROADCAST,), (0,)), (0,))
    assert spec("i,i->i", (1,), (1,)) == EinsumSpec(((0,), (0,)), (0,))


def test_interleaved_labels_are_anything_hashable() -> None:
    def read(*arguments: object) -> EinsumSpec:
        return resolve(
            parse_interleaved(*interleaved_key(arguments)), [np.shape(one) for one in arguments[::2][:2]]
        ).spec

    a, b = np.ones((2, 3)), np.ones((3, 4))
    expected = EinsumSpec(((0, 1), (1, 2)), (0, 2))
    assert read(a, [0, 1], b, [1, 2], [0, 2]) == expected
    assert read(a, [100, 7], b, [7, 200], [100, 200]) == expected
    assert read(a, ("row", None), b, (None, 3.5), ("row", 3.5)) == expected
    assert read(a, np.array([0, 1]), b, [np.int8(1), 2]) == expected
    assert read(a, "ij", b, "jk", "ik") == expected
    assert read(a, [..., 1], b, [1, 2], [..., 2]) == expected


def test_more_than_52_indices() -> None:
    letters = [chr(0x100 + n) for n in range(60)]
    resolved = resolve(parse_string("".join(letters) + "->" + letters[59]), [(1,) * 59 + (4,)])
    assert resolved.spec.label_count == 60 and resolved.output_shape == (4,)


@pytest.mark.parametrize(
    ("expression", "shapes", "message"),
    [
        ("ij->k", [(2, 3)], "output index 'k' occurs in no operand; their indices are i, j"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "index 'j' has size 3 in operand 0, but size 4 in operand 1"),
        ("ij,jk->ik", [(2, 3), (4,)], r"operand 1 \(jk\) needs 2 dimensions, but has 1"),
        ("ij...", [(2,)], r"operand 0 \(ij...\) needs at least 2 dimensions, but has 1"),
        ("ii->i", [(1, 3)], "index 'i' is repeated in operand 0, whose sizes there are 1 and 3"),
        ("ij,jk->ik", [(2, 3)], r"is of 2 operands \(0: ij, 1: jk\), but 1 were given"),
        ("i", [(2,), (2,)], "is of 1 operands"),
        ("...i->i", [(2, 3)], "the output needs an ellipsis too"),
        ("i%j", [(2, 3)], "unexpected '%' in 'i%j'; an index is one letter"),
        ("i..", [(2, 3)], "unexpected '.' in 'i..'; an ellipsis is three dots"),
        ("...i...", [(2, 3)], "more than one ellipsis"),
        ("i->j->k", [(2,)], "the arrow -> may occur once"),
        ("[[i,j],[j,k]->[i,k]],[k,l]->[i,l]", [(2, 2)], "brackets are the notation of trees, which einsum_tree"),
        ("[i,j],[j,k]->[i,k]", [(2, 2)], "brackets are the notation of trees, which einsum_tree"),
        ("i>j", [(2,)], "the arrow -> may occur once"),
        ("i->i,i", [(2,)], "there is one output"),
    ],
)
def test_errors_name_what_is_wrong(expression: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(parse_string(expression), shapes)


def test_interleaved_errors() -> None:
    with pytest.raises(TypeError, match="operand 0 needs a sequence of indices, not 3"):
        interleaved_key([np.ones(2), 3])
    with pytest.raises(TypeError, match=r"index .* of operand 0 is of type list, which is not hashable"):
        interleaved_key([np.ones(2), [[1]]])
    with pytest.raises(ValueError, match="more than one ellipsis"):
        interleaved_key([np.ones(2), [..., ...]])


CHAIN = EinsumSpec(((0, 1), (1, 2), (2, 3)), (0, 3))


def test_paths() -> None:
    sizes = (2, 50, 50, 3)
    for optimize in (True, "greedy", "optimal", "dp", ("greedy", 10**6)):
        assert len(contraction_path(CHAIN, sizes, optimize)) == 2
    assert contraction_path(CHAIN, sizes, False) == ((0, 1, 2),)
    assert contraction_path(CHAIN, sizes, ("greedy", 0)) == ((0, 1, 2),)
    assert contraction_path(CHAIN, sizes, True, distributive=False) == ((0, 1, 2),)
    assert contraction_path(CHAIN, sizes, ("einsum_path", (1, 2), (0, 1))) == ((1, 2), (0, 1))
    assert contraction_path(CHAIN, sizes, ((2,), (0, 2), (-1, -2))) == ((2,), (0, 2), (0, 1))


def test_optimisers_are_asked_for_a_path() -> None:
    from opt_einsum import DynamicProgramming, RandomGreedy

    sizes = (2, 50, 50, 3)
    assert contraction_path(CHAIN, sizes, DynamicProgramming()) == ((0, 1), (0, 1))
    assert len(contraction_path(CHAIN, sizes, (RandomGreedy(max_repeats=2), 10**6))) == 2
    asked: list[Any] = []

    def last_first(inputs: Any, output: Any, extents: Any, memory_limit: Any) -> Any:
        asked.append((inputs, output, extents, memory_limit))
        return [[2, 1], [1, 0]]

    assert contraction_path(CHAIN, sizes, last_first) == contraction_path(CHAIN, sizes, last_first) == ((1, 2), (0, 1))
    assert asked == [([{"a", "b"}, {"b", "c"}, {"c", "d"}], {"a", "d"}, {"a": 2, "b": 50, "c": 50, "d": 3}, None)]
    with pytest.raises(PathError, match="ends with 2 operands left"):
        contraction_path(CHAIN, sizes, lambda *_: [(0, 1)])


@pytest.mark.parametrize(
    ("optimize", "message"),
    [
        (((0, 1),), "ends with 2 operands left"),
        (((0, 3), (0, 1)), "step 0 is .*, but 3 operands are left"),
        (((0, 1), (-1, 1)), r"step 1 is \(-1, 1\), which has one position twice"),
        (((0, 0), (0, 1)), "step 0"),
        ((0, 1), "a tuple of positions is needed"),
        ((), "ends with 3 operands left"),
    ],
)
def test_bad_paths(optimize: tuple[object, ...], message: str) -> None:
    with pytest.raises(PathError, match=message):
        contraction_path(CHAIN, (2, 2, 2, 2), optimize)


def test_positions_of_a_path_may_be_integers_of_numpy() -> None:
    for head in ((), ("einsum_path",)):
        path = hashable_optimize([*head, (np.int64(0), np.int32(1)), [0, 1]])
        assert contraction_path(CHAIN, (2, 2, 2, 2), path) == ((0, 1), (0, 1))


@pytest.mark.parametrize("optimize", [np.array([[0, 1], [0, 1]]), [{0, 1}, (0, 1)], {"path": (0, 1)}])
def test_what_is_no_path_is_told(optimize: object) -> None:
    with pytest.raises(TypeError, match=r"(?s)optimize is .*a path is a list of tuples of positions"):
        hashable_optimize(optimize)


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match="unknown optimize 'gredy'; did you mean 'greedy'"):
        contraction_path(CHAIN, (2, 2, 2, 2), "gredy")
    with pytest.raises(PathError, match="not declared distributive"):
        contraction_path(CHAIN, (2, 2, 2, 2), ((0, 1), (0, 1)), distributive=False)


def test_steps_fold_lone_labels_first_and_keep_the_output_order() -> None:
    lone = EinsumSpec(((0, 1), (2, 3)), (2, 0))
    (step,) = steps_of(lone, ((0, 1),))
    assert step.summed == ((1,), (3,)) and step.contracted == () and step.output == (2, 0)
    (step,) = steps_of(lone, ((0, 1),), distributive=False)
    assert step.summed == ((), ()) and step.contracted == (1, 3)
    first, second = steps_of(EinsumSpec(((0, 1), (1, 2), (3, 2, 0)), (3, 0)), ((0, 1), (0, 1)))
    assert first.output == (0, 2) and first.contracted == (1,)
    assert second.inputs == ((3, 2, 0), (0, 2)) and second.contracted == (2,)


def test_sizes_are_not_negative() -> None:
    with pytest.raises(ValueError, match=r"operand 1 has the shape \(3, -4\), and a size cannot be negative"):
        resolve(parse_string("ij,jk->ik"), [(2, 3), (3, -4)])
