"""Folds of neighbouring segments are shared out by lines of their rows, for which few columns suffice."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.passes.points import point_kernels
from tilewright.runtime.scheduling import schedule


@pytest.mark.parametrize(("columns", "blocks"), [(3, 3), (16, 4), (64, 4), (200, 7), (4096, 32)])
def test_few_columns_are_shared_by_cores(columns: int, blocks: int) -> None:
    found: list[Any] = []
    plan = point_kernels._plan

    def seen(*values: Any) -> Any:
        found.append(plan(*values))
        return found[-1]

    @tw.program(flattening="full")
    def sums(x: tw.f32["n", "m"]) -> Any:
        return tw.map(lambda row: tw.reduce("add", 0, row), x)

    x = np.random.default_rng(0).integers(0, 9, (40, columns)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_kernels, "_plan", seen)
        result = sums(x.T, target="cpu")
    np.testing.assert_array_equal(result, x.sum(0))
    (one,) = [made for made in found if made.by_rows][:1]
    backend = SimpleNamespace(machine=SimpleNamespace(cores=2))
    number, own = schedule(one, (columns,), backend, [0] * len(one.scratch))  # type: ignore[arg-type]
    assert number == blocks and own["%chunk"] * number >= columns
