"""Programs that mention themselves, or what is bound only later, in the functions around them."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

X = np.ones(3, np.float32)


def test_a_program_that_calls_itself_without_end() -> None:
    @tw.program
    def endless(xs: tw.f32["n"]) -> Any:
        return endless(xs)

    for _ in range(2):
        with pytest.raises(RecursionError, match="program endless: calls nest too deeply while it is traced"):
            endless(X)


def test_a_function_that_is_defined_later() -> None:
    @tw.program
    def first(xs: tw.f32["n"]) -> Any:
        return twice(xs)

    def twice(xs: Any) -> Any:
        return tw.map(lambda x: 2 * x, xs)

    assert first(X).tolist() == [2, 2, 2]
