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

ONE = {
    "exp": (np.exp, (-110, 90), 2), "log": (np.log, None, 2), "rsqrt": (lambda x: 1 / np.sqrt(x), None, 1.5),
    "sqrt": (np.sqrt, None, 0.5), "sin": (np.sin, None, LIBRARY), "cos": (np.cos, None, LIBRARY),
    "tan": (np.tan, None, LIBRARY), "asin": (np.arcsin, (-1, 1), LIBRARY), "acos": (np.arccos, (-1, 1), LIBRARY),
    "atan": (np.arctan, None, LIBRARY), "sinh": (np.sinh, (-80, 80), LIBRARY), "cosh": (np.cosh, (-80, 80), LIBRARY),
    "tanh": (np.tanh, (-20, 20), LIBRARY), "log1p": (np.log1p, (-0.99, 100), LIBRARY),
    "expm1": (np.expm1, (-80, 80), LIBRARY),
}  # fmt: skip
"""For each function: what it is, an interval (None: numbers of all sizes), and the error allowed."""

POSITIVE = {"log", "rsqrt", "sqrt"}


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


TWO: dict[str, tuple[Any, Callable[..., Any]]] = {"pow": (powers, np.power), "atan2": (angles, np.arctan2)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name: str, dtype: type) -> None:
    program, reference = TWO[name]
    rng = np.random.default_rng(4)
    xs, ys = rng.uniform(0.01, 30, 100_000).astype(dtype), rng.uniform(-20, 20, 100_000).astype(dtype)
    if name == "atan2":
        xs *= rng.choice((-1, 1), xs.shape).astype(dtype)
    exact = reference(xs.astype(np.longdouble), ys.astype(np.longdouble))
    error = worst(program(xs, ys, target="cpu"), exact)
    assert error <= LIBRARY, f"{name}: {error} units in the last place"
