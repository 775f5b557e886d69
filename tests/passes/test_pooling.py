"""Blocks of a constant size are folded without checks of their indices, and without memory of their own."""

# ruff: noqa: F821, UP037

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.machine.named import named_machine

SIDES = st.integers(0, 70)


@tw.program
def pooled(x: tw.f32["n", "m"]) -> Any:
    """The greatest of each block of two by two; what is left at odd ends is left out."""
    n, m = x.shape

    def block(i: Any, j: Any) -> Any:
        return tw.reduce("max", -math.inf, tw.map(lambda k: x[2 * i + k // 2, 2 * j + k % 2], tw.iota(4)))

    return tw.map(lambda i: tw.map(lambda j: block(i, j), tw.iota(m // 2)), tw.iota(n // 2))


@tw.program
def beyond(x: tw.f32["n", "m"]) -> Any:
    """Reads the column after each block's."""
    n, m = x.shape
    return tw.map(
        lambda i: tw.map(
            lambda j: tw.reduce("max", -math.inf, tw.map(lambda k: x[i, 2 * j + k % 2 + 1], tw.iota(2))),
            tw.iota(m // 2),
        ),
        tw.iota(n),
    )


@tw.program
def sums_of_three(x: tw.f64["n", 3]) -> Any:
    return tw.map(lambda row: tw.reduce("add", 0.0, row), x)


@tw.program
def sums_of_forty(x: tw.f64["n", 40]) -> Any:
    return tw.map(lambda row: tw.reduce("add", 0.0, tw.map(lambda e: e * e, row)), x)


@given(SIDES, SIDES, st.integers(0, 9))
@settings(deadline=None, max_examples=25)
def test_pooled(n: int, m: int, seed: int) -> None:
    x = np.random.default_rng(seed).random((n, m), dtype=np.float32)
    even = x[: n // 2 * 2, : m // 2 * 2].reshape(n // 2, 2, m // 2, 2)
    np.testing.assert_array_equal(pooled(x), even.max(axis=(1, 3)))


def test_an_index_out_of_range_is_told() -> None:
    np.testing.assert_array_equal(beyond(np.arange(15, dtype="f4").reshape(3, 5))[:, 1], [4, 9, 14])
    with pytest.raises(IndexError, match="index 4 "):
        beyond(np.ones((3, 4), np.float32))


@given(SIDES, st.integers(0, 9))
@settings(deadline=None, max_examples=15)
def test_folds_of_constant_lengths(n: int, seed: int) -> None:
    x = np.random.default_rng(seed).random((n, 40))
    np.testing.assert_allclose(sums_of_three(x[:, :3]), x[:, :3].sum(axis=1), rtol=1e-15)
    np.testing.assert_allclose(sums_of_forty(x), (x * x).sum(axis=1), rtol=1e-14)


def test_no_arrays_of_their_own() -> None:
    text = pooled.explain(target=named_machine("cpu-avx512")).split("its versions otherwise")[0]
    assert "a kernel over" in text and "keeps arrays of its own" not in text
