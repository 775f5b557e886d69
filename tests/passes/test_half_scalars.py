"""Scalars of 16 bits that follow a fold are computed by kernels, rounded each time, and calls are repeated."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f16["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.recording import Recording


def length(x: tw.f16["n", "m"]) -> Any:
    return np.linalg.norm(x.reshape(-1))


def chain(x: tw.f16["n", "m"]) -> Any:
    total = x.sum()
    return (total / 3 + total * total) / np.sqrt(total)


def normalised(x: tw.f16["n", "m"]) -> Any:
    centred = x - x.mean()
    return centred / np.sqrt((centred * centred).mean() + 1e-5)


@pytest.mark.parametrize("function", [length, chain, normalised])
def test_the_host_computes_nothing(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    refuse = Recording.refuse
    monkeypatch.setattr(Recording, "refuse", lambda self, reason: (refused.append(reason), refuse(self, reason))[1])
    x = np.random.default_rng(4).uniform(0, 0.5, (9, 7)).astype(np.float16)
    program = tw.program(function)
    first, second = program(x), program(x)
    assert refused == []
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, function(x), rtol=4e-3, atol=4e-3)


def test_each_operation_is_rounded() -> None:
    program = tw.program(chain)
    for seed in range(20):
        x = np.random.default_rng(seed).integers(0, 9, (5, 7)).astype(np.float16)
        total = np.float16(x.sum())
        assert program(x) == (total / np.float16(3) + total * total) / np.sqrt(total)
