"""Matrix products in the four forms of transposed operands, as maps and a reduction.

    python examples/matmul.py --size medium

Each is recognised as a contraction; no transposed copy is made.
"""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, Reference, main, rounding

import tilewright as tw

_SIZES = {"tiny": 24, "small": 128, "medium": 512, "large": 1024}


def _products(rows: Any, columns: Any) -> Any:
    def dot(row: Any, column: Any) -> Any:
        return tw.reduce("add", 0, tw.map(lambda x, y: x * y, row, column))

    return tw.map(lambda row: tw.map(lambda column: dot(row, column), columns), rows)


@tw.program
def matmul(a: tw.f32["n", "k"], b: tw.f32["k", "m"]) -> Any:
    return _products(a, tw.transpose(b))


@tw.program
def matmul_left_transposed(a: tw.f32["k", "n"], b: tw.f32["k", "m"]) -> Any:
    return _products(tw.transpose(a), tw.transpose(b))


@tw.program
def matmul_right_transposed(a: tw.f32["n", "k"], b: tw.f32["m", "k"]) -> Any:
    return _products(a, b)


@tw.program
def matmul_both_transposed(a: tw.f32["k", "n"], b: tw.f32["m", "k"]) -> Any:
    return _products(tw.transpose(a), b)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(size) for name, size in _SIZES.items()}


def _arguments(size: int) -> Arguments:
    rng = np.random.default_rng(1)
    return tuple(rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))


def work(a: Any, b: Any) -> dict[str, float]:
    return {"flops": 2.0 * a.shape[0] * a.size}


def _reference(expression: str) -> Reference:
    def reference(a: Any, b: Any) -> Any:
        left, right = a.astype(np.float64), b.astype(np.float64)
        magnitude = np.einsum(expression, np.abs(left), np.abs(right), optimize=True)
        return [(np.einsum(expression, left, right, optimize=True), rounding(len(a) + 2, np.float32) * magnitude)]

    return reference


references: dict[str, Reference] = {
    "matmul": _reference("nk,km->nm"),
    "matmul_left_transposed": _reference("kn,km->nm"),
    "matmul_right_transposed": _reference("nk,mk->nm"),
    "matmul_both_transposed": _reference("kn,mk->nm"),
}

if __name__ == "__main__":
    sys.exit(main(globals()))
