"""Kernels know small distances between elements, and read arrays of any distances right."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw

STEPS = st.sampled_from([-3, -2, -1, 1, 2, 3, 4, 5])


@tw.program
def combined(x: tw.any_["n", "m"], y: tw.any_["n", "m"]) -> Any:
    return x * 2 + y


@tw.program
def grey(x: tw.u8["n", "m", 3]) -> Any:
    return (x[:, :, 0].astype("int32") + 2 * x[:, :, 1].astype("int32") + x[:, :, 2]) // 4


@tw.program
def pooled(x: tw.f32["c", "n", "m"]) -> Any:
    c, n, m = x.shape
    return x.reshape(c, n // 2, 2, m // 2, 2).max(axis=(2, 4))


@given(st.sampled_from(["u1", "i2", "f4", "f8"]), STEPS, STEPS, st.integers(0, 70), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_any_distances(kind: str, rows: int, columns: int, extent: int, seed: int) -> None:
    whole = np.random.default_rng(seed).integers(0, 50, (7 * 5, extent * 5)).astype(kind)
    x = whole[::rows, ::columns][:7, :extent]
    y = np.asfortranarray(x)
    np.testing.assert_array_equal(combined(x, y), x * 2 + y)


@given(st.integers(0, 5), st.integers(0, 70))
@settings(deadline=None, max_examples=20)
def test_pixels(n: int, m: int) -> None:
    x = np.random.default_rng(n).integers(0, 255, (n, m, 3)).astype(np.uint8)
    wanted = (x[:, :, 0].astype("i4") + 2 * x[:, :, 1].astype("i4") + x[:, :, 2]) // 4
    np.testing.assert_array_equal(grey(x), wanted)


@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 34, 70), (2, 8, 130)])
def test_pooled(shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(1).random(shape, dtype=np.float32)
    c, n, m = shape
    np.testing.assert_array_equal(pooled(x), x.reshape(c, n // 2, 2, m // 2, 2).max(axis=(2, 4)))
