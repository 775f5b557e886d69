"""Python's and NumPy's own functions of traced values mean what they mean on NumPy's arrays."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from program_checks import check, opencl_or_skip

import tilewright as tw

FLOATS = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 2.675, 1e9, -np.inf, np.inf, np.nan])
FINITE = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 2.675, -1234.5678])
WHOLE = np.array([0, 1, -1, 7, -8, 127, -128])

FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., Any], str]] = [
    (tw.abs, np.abs, "fi"),
    (tw.sign, np.sign, "fi"),
    (tw.square, np.square, "fi"),
    (tw.isfinite, np.isfinite, "fi"),
    (lambda x: tw.clip(x, -1, 2), lambda x: np.clip(x, -1, 2), "fi"),
    (lambda x: tw.clip(x, None, 2), lambda x: np.clip(x, None, 2), "fi"),
    (np.sign, np.sign, "fi"),
    (np.square, np.square, "fi"),
    (np.isfinite, np.isfinite, "fi"),
    (np.positive, np.positive, "fi"),
    (lambda x: np.clip(x, -1, 2), lambda x: np.clip(x, -1, 2), "fi"),
    (lambda x: np.where(x > 0, x, 0), lambda x: np.where(x > 0, x, x.dtype.type(0)), "fi"),
    (lambda x: np.logical_and(x > 0, x), lambda x: np.logical_and(x > 0, x), "fi"),
    (lambda x: np.logical_or(x > 0, x), lambda x: np.logical_or(x > 0, x), "fi"),
    (lambda x: np.logical_xor(x > 0, x), lambda x: np.logical_xor(x > 0, x), "fi"),
    (np.logical_not, np.logical_not, "fi"),
    (lambda x: np.concatenate((x, x[::-1])), lambda x: np.concatenate((x, x[::-1])), "fi"),
    (np.transpose, np.transpose, "fi"),
    (lambda x: x.real + x.imag + np.real(x) + x.conj(), lambda x: x.real + x.imag + x.real + x, "fi"),
    (lambda x: divmod(x, 3)[0] + divmod(x, 3)[1], lambda x: x // 3 + x % 3, "i"),
    (lambda x: divmod(100, x)[0], lambda x: np.where(x == 0, 0, 100 // np.where(x == 0, 1, x)), "i"),
]


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
def test_as_in_numpy(dtype: str, target: str) -> None:
    if target == "opencl":
        opencl_or_skip()
    chosen = [(ours, numpys) for ours, numpys, kinds in FUNCTIONS if np.dtype(dtype).kind in kinds]

    @tw.program
    def all_of_them(xs: tw.array["n"]) -> Any:
        return tuple(ours(xs) for ours, _ in chosen)

    xs = (FLOATS if dtype.startswith("float") else WHOLE).astype(dtype)
    with np.errstate(all="ignore"):
        check(all_of_them, (xs,), tuple(numpys(xs) for _, numpys in chosen), (target,))


@pytest.mark.parametrize("ours", [tw.abs, tw.sign, tw.square, tw.isfinite])
def test_on_plain_numbers_and_arrays(ours: Callable[..., Any]) -> None:
    numpys = getattr(np, ours.__name__)
    np.testing.assert_array_equal(ours(FLOATS), numpys(FLOATS))
    assert ours(-2.0) == numpys(-2.0)


def test_round_gives_whole_numbers_or_digits() -> None:
    @tw.program
    def rounded(xs: tw.float_["n"], ks: tw.i32["n"]) -> Any:
        return round(xs), round(xs, 2), round(xs, -2), tw.map(round, xs), round(ks), round(ks, 1)

    ks = np.arange(len(FINITE), dtype=np.int32)
    for dtype in (np.float32, np.float64):
        xs = FINITE.astype(dtype)
        whole = np.array([round(one) for one in xs.tolist()])
        check(rounded, (xs, ks), (whole, np.round(xs, 2), np.round(xs, -2), whole, ks, ks))


def test_complex_parts_of_arrays() -> None:
    @tw.program
    def parts(zs: tw.c128["n"]) -> Any:
        return zs.real, zs.imag, zs.conj(), abs(zs), tw.abs(zs), np.real(zs), np.imag(zs)

    zs = np.array([1 + 2j, -3j, 4])
    check(parts, (zs,), (zs.real, zs.imag, zs.conj(), np.abs(zs), np.abs(zs), zs.real, zs.imag))


def test_rounded_numbers_are_indices() -> None:
    @tw.program
    def nearest(xs: tw.f64["n"], at: tw.f64["m"]) -> Any:
        return tw.map(lambda where: xs[round(where)], at)

    check(nearest, (np.arange(5.0) * 10, np.array([0.4, 0.6, 3.5])), np.array([0.0, 10.0, 40.0]))
