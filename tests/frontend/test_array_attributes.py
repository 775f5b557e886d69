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
        (lambda xs: xs @ 2.0, TypeError, "@: argument 1 must be an array, not 2.0"),
        (lambda xs: xs @ tw.iota(3), TypeError, r"xs of type \[n\]f64 and .*\[3\]i64: the shapes must be equal"),
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


@pytest.mark.parametrize(
    ("left", "right"),
    [("k", "k"), ("nk", "k"), ("k", "km"), ("nk", "km"), ("bnk", "bkm"), ("bnk", "km"), ("bnk", "k"), ("nk", "bkm")],
)
@pytest.mark.parametrize("dtype", ["f64", "i32", "bool"])
def test_products_of_vectors_matrices_and_stacks(left: str, right: str, dtype: str) -> None:
    def product(x: Any, y: Any) -> Any:
        return x @ y, np.matmul(x, y)

    def typed(name: str) -> Any:
        return getattr(tw, "bool_" if dtype == "bool" else dtype)[tuple(name)]

    product.__annotations__ = {"x": typed(left), "y": typed(right)}
    sizes = {"b": 2, "n": 3, "k": 4, "m": 5}
    a, b = (
        np.arange(1 + np.prod([sizes[one] for one in name]))[1:].reshape([sizes[one] for one in name]) % 7
        for name in (left, right)
    )
    a, b = ((one % 2 == 0) if dtype == "bool" else one.astype({"f64": "f8", "i32": "i4"}[dtype]) for one in (a, b))
    for result in tw.program(product)(a, b):
        assert np.asarray(result).dtype == (a @ b).dtype
        np.testing.assert_array_equal(result, a @ b)


def test_products_of_matrices_are_contractions() -> None:
    @tw.program
    def product(a: tw.f64["n", "k"], b: tw.f64["k", "m"]) -> Any:
        return a @ b

    assert "a contraction over n:M[n], m:N[m], k:K[k]" in product.explain()
