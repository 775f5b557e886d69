"""Contractions in loops that the host runs are written once, not in every round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.passes import bound_contraction


def test_rounds_of_a_loop_share_the_kernels_of_a_contraction(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.program
    def shrunk(x: tw.f64[300, 300], z: tw.f64[300]) -> Any:
        def step(total: Any, y: Any) -> Any:
            y = tw.map(lambda row: tw.map(lambda e: e / 2, row), y)
            rows = tw.map(lambda row: tw.reduce("add", 0, tw.map("mul", row, z)), y)
            return tw.reduce("add", 0, tw.map("mul", rows, z)), y

        return tw.while_loop(lambda total, y: total > 100, (1e9, x), step)[0]

    written: list[int] = []
    launches = bound_contraction.contraction_launches

    def counted(*given: Any) -> Any:
        written.append(1)
        return launches(*given)

    monkeypatch.setattr(bound_contraction, "contraction_launches", counted)
    bound_contraction._written.cache_clear()
    x, total = np.ones((300, 300)), 1e9
    found = shrunk(x, np.ones(300))
    rounds = len(written)
    while total > 100:
        x = x / 2
        total = float(np.sum(x))
    np.testing.assert_allclose(found, total, rtol=1e-12)
    assert 1 <= rounds <= 2
