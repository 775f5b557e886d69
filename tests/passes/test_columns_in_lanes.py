"""Folds of columns by more than a few operations: of neighbouring columns together, in the lanes of vectors."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw

PIECE, LEVELS = 256, 2


def greatest(x: tw.f32["n", "m"], y: tw.f32["n", "m"]) -> Any:
    return np.argmax(x, axis=0), np.argmin(y, axis=0)


def exponentials(x: tw.f32["n", "m"], y: tw.f32["n", "m"]) -> Any:
    return np.exp(x).sum(axis=0)


def distances(x: tw.f32["n", "m"], y: tw.f32["n", "m"]) -> Any:
    """Where the rows of two arrays are the farthest apart, and how far."""
    return np.sqrt(((x - y) ** 2 + np.abs(x)).max(axis=0)), np.argmax(np.abs(x - y), axis=0)


PROGRAMS: dict[str, Callable[..., Any]] = {one.__name__: one for one in (greatest, exponentials, distances)}


def check(name: str, found: Any, x: np.ndarray, y: np.ndarray) -> None:
    wide = x.astype(np.float64)
    if name == "exponentials":
        terms = np.exp(wide)
        # Each exponential is right to 2 units; a value goes through the pieces of two levels, and one of all the rest.
        most = 2 * PIECE + len(x) // PIECE**LEVELS + 1 + 2
        assert np.all(np.abs(found - terms.sum(axis=0)) <= most * 2.0**-24 * terms.sum(axis=0))
    elif name == "greatest":
        np.testing.assert_array_equal(found[0], x.argmax(axis=0))
        np.testing.assert_array_equal(found[1], y.argmin(axis=0))
    else:
        np.testing.assert_allclose(found[0], np.sqrt(((x - y) ** 2 + np.abs(x)).max(axis=0)), rtol=1e-6)
        np.testing.assert_array_equal(found[1], np.abs(x - y).argmax(axis=0))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_columns(name: str) -> None:
    program = tw.program(PROGRAMS[name])

    @settings(max_examples=examples(25))
    @given(
        n=st.one_of(st.integers(1, 40), st.sampled_from([255, 257, 700])),
        m=st.one_of(st.integers(1, 70), st.sampled_from([512, 513, 600])),
        place=st.sampled_from([lambda a: a, lambda a: a[::-1], lambda a: a[:, ::-1], np.asfortranarray,
                               lambda a: np.repeat(a, 2, axis=1)[:, ::2]]),
        seed=st.integers(0, 99),
    )  # fmt: skip
    def sizes(n: int, m: int, place: Callable[[np.ndarray], np.ndarray], seed: int) -> None:
        rng = np.random.default_rng(seed)
        x, y = (place(rng.standard_normal((n, m), dtype=np.float32)) for _ in range(2))
        if seed % 3 == 0:
            x[n // 2, m // 2] = np.nan if name == "greatest" else -np.inf
        check(name, program(x, y, target="cpu"), np.asarray(x), np.asarray(y))

    sizes()
