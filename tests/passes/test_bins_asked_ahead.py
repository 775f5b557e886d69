"""Many bins of histograms are asked for a batch at a time, and few are not; the sums are the same."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.kernel.ir import Kernel, Prefetch
from tilewright.kernel.traversal import walk
from tilewright.passes.points import point_kernels
from tilewright.passes.segments import bins as bins_of_rows


@pytest.mark.parametrize("least", [-1, 1 << 40])
@pytest.mark.parametrize("rows", [0, 1, 255, 256, 700])
def test_sums_of_many_bins(least: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.program
    def sums(at: tw.i64["n"], x: tw.f64["n"], bins: tw.i64) -> Any:
        return tw.hist("add", 0.0, bins, at, x), tw.hist("max", -np.inf, bins, at, x)

    found: list[Kernel] = []
    plan = point_kernels._plan

    def seen(*values: Any) -> Any:
        made = plan(*values)
        found.append(made.kernel)
        return made

    monkeypatch.setattr(point_kernels, "_plan", seen)
    monkeypatch.setattr(bins_of_rows, "READ_BYTES", least)
    bins = 30000
    random = np.random.default_rng(rows)
    at, x = random.integers(-3, bins + 3, rows), random.integers(-9, 9, rows).astype(np.float64)
    totals, tops = sums(at, x, bins, target="cpu")
    inside = (at >= 0) & (at < bins)
    np.testing.assert_array_equal(totals, np.bincount(at[inside], x[inside], bins))
    wanted = np.full(bins, -np.inf)
    np.maximum.at(wanted, at[inside], x[inside])
    np.testing.assert_array_equal(tops, wanted)
    asked = [one for kernel in found for one in walk(kernel.body) if isinstance(one, Prefetch)]
    assert asked if rows else found
