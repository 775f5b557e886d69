"""The errors of all functions of scalars as the CPU's vectors compute them, against long doubles.

Arguments are of all sizes, also those of sines that are many turns: their reduction must be right to the last place.
"""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.float_["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

LIBRARY = 4.0
"""Units in the last place, by glibc's promise for its vector functions (libm manual, "Errors in Math Functions")."""


def _series(xs: np.ndarray) -> np.ndarray:
    """erf by 2 / sqrt(pi) exp(-x^2) sum of 2^n x^(2n + 1) / (2n + 1)!!, whose terms have one sign [A&S 7.1.6]."""
    term, total = xs.copy(), xs.copy()
    for n in range(1, 300):
        term = term * (2 * xs * xs) / (2 * n + 1)
        total = total + term
    return 2 / np.sqrt(np.longdouble(np.pi) + PI_REST) * np.exp(-xs * xs) * total


def _fraction(xs: np.ndarray) -> np.ndarray:
    """erfc of numbers from 1.5 on by a continued fraction, from its end [A&S 7.1.14]."""
    tail = np.zeros_like(xs)
    for n in range(400, 0, -1):
        tail = (np.longdouble(n) / 2) / (xs + tail)
    return np.exp(-xs * xs) / (np.sqrt(np.longdouble(np.pi) + PI_REST) * (xs + tail))


PI_REST = np.longdouble(1.2246467991473532e-16)
"""What pi is more than the nearest double."""


def error_function(xs: np.ndarray) -> np.ndarray:
    small, far = np.minimum(np.abs(xs), 2), np.maximum(np.abs(xs), 2)
    return np.copysign(np.where(np.abs(xs) <= 2, _series(small), 1 - _fraction(far)), xs)


def complement(xs: np.ndarray) -> np.ndarray:
    small, far = np.clip(xs, -7, 2), np.maximum(xs, 2)
    return np.where(xs <= 2, 1 - error_function(small), _fraction(far))


ONE = {
    "exp": (np.exp, (-110, 90), 2), "log": (np.log, None, 2), "rsqrt": (lambda x: 1 / np.sqrt(x), None, 1.5),
    "sqrt": (np.sqrt, None, 0.5), "sin": (np.sin, None, LIBRARY), "cos": (np.cos, None, LIBRARY),
    "tan": (np.tan, None, LIBRARY), "asin": (np.arcsin, (-1, 1), LIBRARY), "acos": (np.arccos, (-1, 1), LIBRARY),
    "atan": (np.arctan, None, LIBRARY), "sinh": (np.sinh, (-80, 80), LIBRARY), "cosh": (np.cosh, (-80, 80), LIBRARY),
    "tanh": (np.tanh, (-20, 20), LIBRARY), "log1p": (np.log1p, (-0.99, 100), LIBRARY),
    "expm1": (np.expm1, (-80, 80), LIBRARY), "exp2": (np.exp2, (-160, 127), LIBRARY), "log2": (np.log2, None, LIBRARY),
    "log10": (np.log10, None, LIBRARY), "cbrt": (np.cbrt, None, LIBRARY), "asinh": (np.arcsinh, None, LIBRARY),
    "acosh": (np.arccosh, (1, 1e6), LIBRARY), "atanh": (np.arctanh, (-1, 1), LIBRARY),
    "erf": (error_function, (-7, 7), LIBRARY), "erfc": (complement, (-6, 9), LIBRARY),
}  # fmt: skip
"""For each function: what it is, an interval (None: numbers of all sizes), and the error allowed."""

POSITIVE = {"log", "log2", "log10", "rsqrt", "sqrt"}


def program_of(name: str) -> Any:
    function = getattr(tw, name)

    @tw.program
    def applied(xs: tw.float_["n"]) -> Any:
        return tw.map(lambda x: function(x) * 1, xs)

    return applied


def arguments(dtype: type, interval: tuple[float, float] | None, positive: bool) -> np.ndarray:
    rng = np.random.default_rng(3)
    if interval is not None:
        near = rng.uniform(*interval, 60_000) * 2.0 ** rng.integers(-30, 1, 60_000)  # many close to 0
        return np.concatenate([rng.uniform(*interval, 60_000), np.clip(near, *interval)]).astype(dtype)
    most = 120 if dtype is np.float32 else 1000
    sizes = rng.uniform(-most, most, 60_000)
    values = np.concatenate([2.0**sizes * rng.choice((-1, 1), sizes.shape), rng.uniform(-10, 10, 60_000)])
    return (np.abs(values) if positive else values).astype(dtype)


def worst(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units in the last place."""
    rounded = exact.astype(found.dtype)
    assert np.isfinite(rounded).all() and np.isfinite(found).all()
    return float(np.max(np.abs(found - exact) / np.spacing(np.abs(rounded))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name: str, dtype: type) -> None:
    reference, interval, allowed = ONE[name]
    allowed = LIBRARY if dtype is np.float64 and name in ("exp", "log") else allowed
    xs = arguments(dtype, interval, name in POSITIVE)
    with np.errstate(all="ignore"):
        exact = reference(xs.astype(np.longdouble))
        keep = np.isfinite(exact.astype(dtype))
        error = worst(program_of(name)(xs, target="cpu")[keep], exact[keep])
    assert error <= allowed, f"{name}: {error} units in the last place"


@tw.program
def powers(xs: tw.float_["n"], ys: tw.float_["n"]) -> Any:
    return tw.map(lambda x, y: x**y, xs, ys)


@tw.program
def angles(xs: tw.float_["n"], ys: tw.float_["n"]) -> Any:
    return tw.map(tw.atan2, xs, ys)


@tw.program
def lengths(xs: tw.float_["n"], ys: tw.float_["n"]) -> Any:
    return tw.map(tw.hypot, xs, ys)


TWO: dict[str, tuple[Any, Callable[..., Any]]] = {
    "pow": (powers, np.power), "atan2": (angles, np.arctan2), "hypot": (lengths, np.hypot),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name: str, dtype: type) -> None:
    program, reference = TWO[name]
    rng = np.random.default_rng(4)
    xs, ys = rng.uniform(0.01, 30, 100_000).astype(dtype), rng.uniform(-20, 20, 100_000).astype(dtype)
    if name != "pow":
        xs *= rng.choice((-1, 1), xs.shape).astype(dtype)
    exact = reference(xs.astype(np.longdouble), ys.astype(np.longdouble))
    error = worst(program(xs, ys, target="cpu"), exact)
    assert error <= LIBRARY, f"{name}: {error} units in the last place"
