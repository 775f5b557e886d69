"""The last vector of a bin that lies in the result: what is behind the bin is another one, or no memory of ours."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


@tw.program
def greatest(bins: tw.f64["k", "m"], at: tw.i64["n"], rows: tw.f64["n", "m"]) -> Any:
    return tw.hist(lambda p, q: tw.map("max", p, q), -np.inf, bins, at, rows)


@pytest.mark.parametrize("m", [33, 34, 39, 73, 100])
@pytest.mark.parametrize("threads", [1, 2])
def test_bins_beside_each_other_keep_what_they_have(m: int, threads: int) -> None:
    """Numbers below 0, which the greatest of them and 0 would replace; the result begins a larger array."""
    generator = np.random.default_rng(m)
    bins, rows = -9 - generator.random((64, m)), -1 - generator.random((64, m))
    at = 2 * generator.integers(0, 32, 64)
    at[:2] = -1, 64
    wide = np.full((65, m), -7.0)
    with tw.num_threads(threads):
        for out in (wide[:64], None):
            got = greatest(bins, at, rows, target="cpu", **({} if out is None else {"out": out}))
            want = bins.copy()
            for bin_ in set(at.tolist()) - {-1, 64}:
                want[bin_] = rows[at == bin_].max(axis=0)
            np.testing.assert_array_equal(wide[:64] if out is not None else got, want)
    assert (wide[64] == -7.0).all()
