"""What traced arrays do not have is refused with what is written in its place."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (
            lambda xs: xs.sum(),
            AttributeError,
            r"\[n\]f64 has no attribute 'sum' .*tw.reduce\(\"add\", 0, xs\)",
        ),
        (lambda xs: xs.argmax(), AttributeError, "has no attribute 'argmax' .* use the functions of tilewright"),
        (lambda xs: xs @ xs, TypeError, r"xs @ ... cannot be traced; .* tw.reduce\(\"add\", 0, row \* column\)"),
    ],
)
def test_refused_with_what_is_right(use: Callable[..., Any], error: type[Exception], message: str) -> None:
    def program(xs: tw.f64["n"]) -> Any:
        return use(xs)

    with pytest.raises(error, match=message):
        tw.program(program)(np.ones(3))


def test_the_product_that_the_message_names() -> None:
    @tw.program
    def product(a: tw.f64["n", "k"], b: tw.f64["k", "m"]) -> Any:
        return tw.map(lambda row: tw.map(lambda column: tw.reduce("add", 0, row * column), tw.transpose(b)), a)

    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    assert np.array_equal(product(a, b), a @ b)
