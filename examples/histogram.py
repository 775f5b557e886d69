"""Histograms of values: how many fall into each bin, and the sum of their weights.

python examples/histogram.py --size large
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, exactly, main, rounding

import tilewright as tw

_SIZES = {"tiny": (100, 7), "small": (10_000, 64), "medium": (500_000, 256), "large": (5_000_000, 1024)}


def _bins_of(values: Any, bins: Any) -> Any:
    scale = bins.astype("f32")
    return tw.map(lambda x: tw.floor(x * scale).astype("i64"), values)


@tw.program
def histogram(values: tw.f32["n"], weights: tw.f32["n"], bins: tw.i64) -> Any:
    return tw.hist("add", 0, bins, _bins_of(values, bins), tw.replicate(values.shape[0], 1, "i32"))


@tw.program
def weighted_histogram(values: tw.f32["n"], weights: tw.f32["n"], bins: tw.i64) -> Any:
    return tw.hist("add", 0, bins, _bins_of(values, bins), weights)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(size: int, bins: int) -> Arguments:
    rng = np.random.default_rng(5)
    return rng.random(size, dtype=np.float32), rng.random(size, dtype=np.float32), bins


def work(values: Any, weights: Any, bins: Any) -> dict[str, float]:
    return {"bytes": float(values.nbytes)}


def _places(values: Any, bins: int) -> Any:
    return np.floor(values * np.float32(bins)).astype(np.int64)


def counts(values: Any, weights: Any, bins: int) -> Any:
    places = _places(values, bins)
    return exactly(np.bincount(places[places < bins], minlength=bins))


def sums(values: Any, weights: Any, bins: int) -> Any:
    places = _places(values, bins)
    inside = places < bins
    exact = np.bincount(places[inside], weights[inside].astype(np.float64), minlength=bins)
    return [(exact, rounding(int(np.max(np.bincount(places))) + 1, np.float32) * exact)]


references = {"histogram": counts, "weighted_histogram": sums}

if __name__ == "__main__":
    sys.exit(main(globals()))
