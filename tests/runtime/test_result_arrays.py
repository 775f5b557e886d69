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
