"""The reciprocal square root on the CPU: its error, over all numbers, and what it gives at the ends."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvm_support import run

import tilewright as tw
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Operation, Store, integer, load, multiply

LANES = {F32: (1, 4, 8, 16, 32), F64: (1, 2, 4, 8)}


def roots(xs: np.ndarray, scalar: ScalarType, lanes: int) -> np.ndarray:
    source, target = Buffer("source", scalar, read_only=True), Buffer("target", scalar)
    at = multiply(BlockIndex(), integer(lanes))
    value = load(source, at, lanes)
    kernel = Kernel("k", (source, target), (), (), (Store(target, at, Operation("rsqrt", (value,), value.type)),))
    padded = np.concatenate([xs, np.ones(-xs.size % lanes, xs.dtype)])
    out = np.empty_like(padded)
    run(kernel, [padded, out], (), padded.size // lanes)
    return out[: xs.size]


def check(found: np.ndarray, xs: np.ndarray) -> None:
    """Less than 1.5 units in the last place of the exact result (in long doubles)."""
    exact = 1 / np.sqrt(xs.astype(np.longdouble))
    error = np.abs(found - exact) / np.spacing(exact.astype(xs.dtype))
    assert np.max(error) < 1.5, f"{np.max(error)} units in the last place"


def all_exponents(scalar: ScalarType, count: int, seed: int) -> np.ndarray:
    """Positive numbers of all exponents, those below the normal ones too."""
    kind, infinity = (np.uint32, 0x7F800000) if scalar == F32 else (np.uint64, 0x7FF0 << 48)
    return np.random.default_rng(seed).integers(1, infinity, count, dtype=kind).view(scalar.numpy)


@pytest.mark.parametrize(("scalar", "lanes"), [(s, n) for s, sizes in LANES.items() for n in sizes], ids=str)
def test_less_than_two_units_in_the_last_place(scalar: ScalarType, lanes: int) -> None:
    xs = all_exponents(scalar, 400_000, lanes)
    near = 1 + np.random.default_rng(lanes).uniform(0, 3, 200_000)  # both parities of the exponent
    xs = np.concatenate([xs, near.astype(scalar.numpy)])
    check(roots(xs, scalar, lanes), xs)


@pytest.mark.slow
def test_all_numbers_of_f32() -> None:
    """The error repeats every four binades but for the ends: all of four, and samples of the others."""
    for start in range(0x3F800000, 0x40800000, 1 << 20):
        xs = np.arange(start, start + (1 << 20), dtype=np.uint32).view(np.float32)
        check(roots(xs, F32, 16), xs)


@pytest.mark.parametrize(("scalar", "lanes"), [(s, n) for s, sizes in LANES.items() for n in sizes], ids=str)
def test_ends(scalar: ScalarType, lanes: int) -> None:
    xs = np.array([0, -0.0, np.inf, -np.inf, -1, -1e-30, np.nan, 1, 4, 0.25], scalar.numpy)
    expected = [np.inf, -np.inf, 0, np.nan, np.nan, np.nan, np.nan, 1, 0.5, 2]
    np.testing.assert_array_equal(roots(xs, scalar, lanes), np.array(expected, scalar.numpy))


@tw.program
def scaled(xs: tw.f32["n"]) -> Any:
    return tw.map(lambda x: 3 * tw.rsqrt(x), xs)


def test_in_programs() -> None:
    xs = np.array([1, 4, 16, 64], np.float32)
    np.testing.assert_array_equal(scaled(xs, target="cpu"), [3, 1.5, 0.75, 0.375])
    assert float(tw.rsqrt(4.0)) == 0.5
