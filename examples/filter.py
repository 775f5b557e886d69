"""A filter by a scan and a scatter: the values above a threshold, in their order, and how many there are.

    python examples/filter.py --size large

Regular arrays have no size that depends on values, so the result is as long as the input, and zero at its end.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, exactly, main

import tilewright as tw

_SIZES = {"tiny": 50, "small": 10_000, "medium": 500_000, "large": 5_000_000}


@tw.program
def filter_above(values: tw.f32["n"], threshold: tw.f32) -> Any:
    kept = tw.map(lambda x: x > threshold, values)
    before = tw.scan("add", 0, tw.map(lambda one: one.astype("i64"), kept))
    places = tw.map(lambda one, place: tw.where(one, place - 1, -1), kept, before)
    zeros = tw.replicate(values.shape[0], 0, "f32")
    return tw.scatter(zeros, places, values), tw.reduce("add", 0, tw.map(lambda one: one.astype("i64"), kept))


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(size) for name, size in _SIZES.items()}


def _arguments(size: int) -> Arguments:
    return np.random.default_rng(6).random(size, dtype=np.float32), np.float32(0.5)


def work(values: Any, threshold: Any) -> dict[str, float]:
    return {"bytes": 2.0 * values.nbytes}


def reference(values: Any, threshold: Any) -> Any:
    kept = values[values > threshold]
    return exactly(np.concatenate([kept, np.zeros(len(values) - len(kept), np.float32)]), len(kept))


references = {"filter_above": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
