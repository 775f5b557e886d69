"""Arrays that several results of a program are written to."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


@tw.program
def both(xs: tw.f64["n"]) -> Any:
    return tw.map(lambda x: x + 1, xs), tw.map(lambda x: x + 2, xs)


def test_results_with_elements_in_common_are_refused() -> None:
    out = np.zeros(5)
    for pair in ((out, out), (out[:4], out[1:])):
        with pytest.raises(ValueError, match=r"both: out\[0\] and out\[1\] share memory"):
            both(np.ones(len(pair[0])), out=pair)
        assert out.sum() == 0
    places = np.zeros(8)
    both(np.ones(4), out=(places[::2], places[1::2]))
    assert places.tolist() == [2, 3] * 4


def test_results_in_repeated_elements_are_refused() -> None:
    repeated = np.lib.stride_tricks.as_strided(np.zeros(1), (4,), (0,))
    with pytest.raises(ValueError, match=r"out\[1\] lie on one another in memory"):
        both(np.ones(4), out=(np.zeros(4), repeated))


def test_results_in_windows_of_an_array_are_refused() -> None:
    @tw.program
    def table(xs: tw.f64["n"], ys: tw.f64["m"]) -> Any:
        return tw.map(lambda x: tw.map(lambda y: x * y, ys), xs)

    kept = np.zeros(20)
    windows = np.lib.stride_tricks.as_strided(kept, (4, 5), (8, 8))
    with pytest.raises(ValueError, match=r"table: elements of out\[0\] lie on one another in memory"):
        table(np.ones(4), np.ones(5), out=windows)
    assert not kept.any()
    interleaved = np.lib.stride_tricks.as_strided(kept, (2, 3), (8, 16))  # no element twice, though rows are entangled
    table(np.ones(2), np.ones(3), out=interleaved)
    assert kept.tolist() == [1] * 6 + [0] * 14


def test_windows_are_seen_without_listing_their_elements() -> None:
    count = 1 << 20
    windows = np.lib.stride_tricks.as_strided(np.zeros(2 * count, np.int8), (count, count), (1, 1))
    with pytest.raises(ValueError, match="elements of out lie on one another in memory"):
        tw.einsum("i,j->ij", np.ones(count, np.int8), np.ones(count, np.int8), out=windows)


def test_masked_arrays_are_no_place_for_results() -> None:
    @tw.program
    def one_more(xs: tw.f64["n", "m"]) -> Any:
        return tw.map(lambda row: tw.map(lambda x: x + 1, row), xs)

    a, tree = np.ones((2, 2)), "[0,1],[1,2]->[0,2]"
    for _ in range(2):
        for call in (
            lambda out: tw.einsum("ij,jk->ik", a, a, out=out),
            lambda out: tw.einsum("ij,jk->ik", a, a, out=out, memory_limit=1000),
            lambda out: tw.plan("ij,jk->ik", (2, 2), (2, 2))(a, a, out=out),
            lambda out: tw.einsum_tree(tree, None, [a, a], out=out),
            lambda out: tw.plan_tree(tree, [2, 2, 2])(a, a, out=out),
            lambda out: one_more(a, out=out),
        ):
            masked = np.ma.masked_array(np.zeros((2, 2)), mask=[[True, False], [False, False]])
            with pytest.raises(TypeError, match=r"out(\[0\])? is a masked array .* give its .data"):
                call(masked)
            assert not masked.data.any()
            assert call(masked.data).any()


@pytest.mark.filterwarnings("error")
def test_sums_too_large_for_f16_are_infinite_without_a_warning() -> None:
    xs = np.full(300, 300, np.float16)
    for _ in range(3):
        assert tw.einsum("i,i->", xs, xs) == np.inf
        assert tw.einsum("i,i->", xs[:1], xs[:1]) == np.inf

    @tw.program
    def total(xs: tw.f16["n"]) -> Any:
        return tw.reduce("add", 0, tw.map(lambda x: x * x, xs))

    for _ in range(3):
        assert total(xs) == np.inf
