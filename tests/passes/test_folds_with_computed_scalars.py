"""Folds to scalars that use scalars which kernels compute: no run of theirs waits for the host."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.recording import Recording


@tw.program
def scaled(x: tw.f64["n"], y: tw.f64["n"]) -> Any:
    total = x.sum()
    return tw.reduce("add", 0, tw.map(lambda a, b: a * total * b, x, y))


@tw.program
def centred(x: tw.f64["n", "m"]) -> Any:
    mean = x.mean()
    return ((x - mean) ** 2).sum(), (x * mean).sum(axis=0)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(Recording, "refuse", lambda self, reason: told.append(reason))
    return told


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_products_with_a_computed_factor_are_repeated(target: str, refusals: list[str]) -> None:
    x, y = np.arange(50.0), np.arange(50.0)[::-1].copy()
    for _ in range(3):
        np.testing.assert_allclose(scaled(x, y, target=target), (x * x.sum() * y).sum())
    wide = np.arange(12.0).reshape(3, 4)
    found, columns = centred(wide, target=target)
    np.testing.assert_allclose(found, ((wide - wide.mean()) ** 2).sum())
    np.testing.assert_allclose(columns, (wide * wide.mean()).sum(axis=0))
    assert refusals == []


def test_einsums_with_a_computed_factor_are_repeated(refusals: list[str]) -> None:
    a, b, c = np.arange(7.0), np.arange(5.0), np.arange(21.0).reshape(3, 7)
    plan = tw.plan("l,l,i,jl->", a, a, b, c, optimize=[(0, 2), (0, 1), (0, 1)])
    for _ in range(3):
        np.testing.assert_allclose(plan(a, a, b, c), np.einsum("l,l,i,jl->", a, a, b, c))
    assert refusals == []
