"""Short cuts of repeated calls: trees, label lists and paths give what the first call gave, and only for their like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_checks import some

import tilewright as tw
from tilewright.frontend import tree as tree_module
from tilewright.runtime.cache import MemoryCache

TREE = "[[0,1],[1,2]->[0,2]],[2,3]->[3,0]"


def operands(dtype: Any = np.float32) -> list[Any]:
    return [some(5, 7, dtype=dtype), some(7, 6, seed=1, dtype=dtype), some(6, 4, seed=2, dtype=dtype)]


def long_way_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(tree_module, "as_arrays", fail)
    monkeypatch.setattr("tilewright.frontend.tree_plan.TreePlan._check", fail)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "c8"])
def test_trees(monkeypatch: pytest.MonkeyPatch, dtype: str, order: Any) -> None:
    a, b, c = operands(dtype)
    expected = (a @ b @ c).T
    out = np.zeros((4, 5), dtype, order=order)
    plan = tw.plan_tree(TREE, [5, 7, 6, 4], dtype=dtype)
    first = tw.einsum_tree(TREE, None, [a, b, c])
    for turn in range(5):
        if turn == 3:
            long_way_is_closed(monkeypatch)
        for sizes in (None, [5, 7, 6, 4]):
            result = tw.einsum_tree(TREE, sizes, [a, b, c])
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == first.dtype and result.strides == first.strides and result.flags.writeable
        np.testing.assert_array_equal(plan(a, b, c), expected)
        for call in (lambda: tw.einsum_tree(TREE, None, [a, b, c], out=out), lambda: plan(a, b, c, out=out)):
            out[...] = 0
            assert call() is out
            np.testing.assert_array_equal(out, expected)


def test_trees_with_a_number_as_result_and_without_elements() -> None:
    a, b = some(5, 7), some(5, 7, seed=1)
    for _ in range(4):
        result = tw.einsum_tree("[0,1],[0,1]->[]", None, [a, b])
        assert type(result) is np.float32 and result == (a * b).sum()
        assert tw.einsum_tree("[0,1],[1,2]->[0,2]", None, [a[:0], b.T]).shape == (0, 5)


def test_other_forms_of_trees_take_the_long_way() -> None:
    a, b, c = operands()
    expected = (a @ b @ c).T
    shared = np.zeros((4, 5), np.float32)
    for _ in range(4):
        np.testing.assert_array_equal(tw.einsum_tree(TREE, None, [a, b, c]), expected)
        np.testing.assert_array_equal(tw.einsum_tree(TREE, None, [a.astype("f8"), b, c]), expected)
        np.testing.assert_array_equal(tw.einsum_tree(TREE, None, [np.asfortranarray(a), b, c[:, ::-1]]), expected[::-1])
        np.testing.assert_array_equal(tw.einsum_tree(TREE, None, [a.tolist(), b, c]), expected)
        np.testing.assert_array_equal(tw.einsum_tree(TREE, None, [a, b, c], memory_limit=300), expected)
        np.testing.assert_array_equal(tw.einsum_tree(TREE, {0: 5, 1: 7, 2: 6, 3: 4}, [a, b, c]), expected)
        np.testing.assert_array_equal(tw.einsum_tree("[0,1],[1,2]->[0,2]r", None, [a, b]), np.maximum(a @ b, 0))
        tw.einsum_tree(TREE, None, [a, b, c], out=shared)
        shared.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            tw.einsum_tree(TREE, None, [a, b, c], out=shared)
        shared.flags.writeable = True
        with pytest.raises(ValueError, match="shape"):
            tw.einsum_tree(TREE, None, [a, b, c[:, :3]], out=shared)
        with pytest.raises(ValueError, match="inputs"):
            tw.einsum_tree(TREE, None, [a, b])
        overlapping = np.zeros(60, np.float32)
        mine, out = overlapping[:35].reshape(5, 7), overlapping[20:40].reshape(4, 5)
        with pytest.raises(ValueError, match="shares memory"):
            tw.einsum_tree(TREE, None, [mine, b, c], out=out)


def test_the_target_of_the_environment_counts_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = operands()
    for _ in range(3):
        tw.einsum_tree(TREE, None, [a, b, c])
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nowhere")
    with pytest.raises(RuntimeError, match="names no device"):
        tw.einsum_tree(TREE, None, [a, b, c])


@given(st.permutations([0, 1, 2]), st.permutations([0, 1, 2]), st.sets(st.integers(0, 2)), st.booleans())
@settings(max_examples=25)
def test_equal_arrays_with_other_labels(left: list[int], right: list[int], output: set[int], explicit: bool) -> None:
    a, b = some(3, 3, 3), some(3, 3, 3, seed=1)
    last = [sorted(output)] if explicit else []
    expected = np.einsum(a, left, b, right, *last)
    for kind in (list, tuple, list, tuple, list):
        result = tw.einsum(a, kind(left), b, kind(right), *map(kind, last))
        np.testing.assert_array_equal(result, expected)


def test_options_of_calls_with_labels() -> None:
    a, b = some(5, 7), some(7, 6, seed=1)
    for _ in range(4):
        np.testing.assert_array_equal(tw.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
        np.testing.assert_array_equal(tw.einsum(a, [0, 1], b, [1, 2], [2, 0]), (a @ b).T)
        np.testing.assert_array_equal(tw.einsum(a, [0, 1], b, [1, 2], [0, 2], alpha=3), 3 * (a @ b))
        np.testing.assert_array_equal(tw.einsum(a, [0, 1], b, [1, 2], [0, 2], epilogue=abs), abs(a @ b))
        shifted = tw.einsum(
            a, [0, 1], b, [1, 2], [0, 2], epilogue=lambda e, x: e + x, epilogue_operands=[(np.ones(6, "f4"), [2])]
        )
        np.testing.assert_array_equal(shifted, a @ b + 1)
        assert tw.einsum(a, [0, 1], b, [1, 2], [0, 2], dtype="f8").dtype == np.float64
        assert tw.einsum(a, [0, 1], b, [1, 2], [0, 2], order="F").flags.f_contiguous
        with pytest.raises(TypeError, match="needs a sequence of indices"):
            tw.einsum(a, b"ij", b, [1, 2])
        with pytest.raises(TypeError, match="not hashable"):
            tw.einsum(a, [[0], 1], b, [1, 2])
    for number in (2.0, 3.0):
        np.testing.assert_array_equal(tw.einsum(number, [], a, [0, 1], [0, 1]), number * a)
        np.testing.assert_array_equal(tw.einsum(number, [], a, [0, 1], [1, 0]), number * a.T)


@pytest.mark.parametrize("given_result", [False, True])
def test_short_cuts_keep_the_peak_that_is_told(monkeypatch: pytest.MonkeyPatch, given_result: bool) -> None:
    """Three intermediates, of which two are alive at a time, would all be kept by native code; one is kept anyway."""
    for text, short in (("[[[[0,1],[1,2]->[0,2]],[2,3]->[0,3]],[3,4]->[0,4]],[4,5]->[0,5]", False), (TREE, True)):
        count = 5 if not short else 3
        arrays = [some(136, 136, seed=number) for number in range(count)]
        out = np.zeros((136, 136), np.float32) if given_result else None
        made: list[Any] = []
        make = tree_module.make_plan

        def kept(*given: Any, made: list[Any] = made, make: Any = make, **options: Any) -> Any:
            made.append(make(*given, **options))
            return made[-1]

        monkeypatch.setattr(tree_module, "make_plan", kept)
        monkeypatch.setattr(tree_module, "_PLANS", MemoryCache(capacity=4))
        monkeypatch.setattr(tree_module, "_RECENT", {})
        for _ in range(4):
            tw.einsum_tree(text, None, arrays, out=out)
        monkeypatch.undo()
        (plan,) = {id(one): one for one in made}.values()
        assert plan.quick is None if not short else plan.quick is not None and plan.quick.entries
