"""Programs with several versions, for the tests of tuning."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import tilewright as tw


def _product(a: Any, b: Any) -> Any:
    def dot(row: Any, column: Any) -> Any:
        return tw.reduce("add", 0, tw.map(lambda x, y: x * y, row, column))

    return tw.map(lambda row: tw.map(lambda column: dot(row, column), tw.transpose(b)), a)


@tw.program
def matmul(a: tw.float_["n", "k"], b: tw.float_["k", "m"]) -> Any:
    return _product(a, b)


@tw.program
def normalised(a: tw.f64["p", "n", "k"], b: tw.f64["p", "k", "m"]) -> Any:
    """Products whose rows are divided by their sums, for every p."""

    def one(x: Any, y: Any) -> Any:
        return tw.map(lambda row: tw.map(lambda e: e / tw.reduce("add", 0, row), row), _product(x, y))

    return tw.map(one, a, b)


@tw.program
def row_sums(xss: tw.f64["n", "m"]) -> Any:
    return tw.map(lambda xs: tw.reduce("add", 0, xs), xss)
