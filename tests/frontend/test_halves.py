"""Sizes that a number divides: every second element, and what is said where that is not known."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


def test_every_second_element_of_an_even_size() -> None:
    @tw.program
    def pairs(x: tw.f64["2*n"], n: tw.i64) -> Any:
        return x[::2] + x[1::2], tw.concat(x[:1], x[1:-1:2] * x[2::2], x[-1:])

    x = np.arange(8.0)
    found, inner = pairs(x, 4)
    np.testing.assert_array_equal(found, x[::2] + x[1::2])
    np.testing.assert_array_equal(inner, [x[0], *(x[1:-1:2] * x[2::2]), x[-1]])
    with pytest.raises(ValueError, match="2\\*n"):
        pairs(np.arange(7.0), 3)


def test_every_second_element_up_to_an_even_place() -> None:
    @tw.program
    def pairs(x: tw.f64["n", "m"]) -> Any:
        half = x.shape[1] // 2
        return x[:, : 2 * half : 2] + x[:, 1 : 2 * half : 2]

    x = np.arange(14.0).reshape(2, 7)
    np.testing.assert_array_equal(pairs(x), x[:, 0:6:2] + x[:, 1:6:2])


@pytest.mark.parametrize("rank", [1, 2])
def test_halves_of_any_size_say_how_they_are_stated(rank: int) -> None:
    @tw.program
    def pairs(x: tw.f64["n"]) -> Any:
        return x[::2] + x[1::2]

    @tw.program
    def columns(x: tw.f64["m", "n"]) -> Any:
        return x[:, ::2] + x[:, 1::2]

    with pytest.raises(TypeError, match=r"cut at a multiple of 2 are equal: x\[: 2 \* m : 2\] with m"):
        (pairs if rank == 1 else columns)(np.ones((8,) * rank))
