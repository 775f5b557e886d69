"""Heat on a plate: the five-point stencil, a number of steps, the edge held at zero.

python examples/heat.py --size medium
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": (12, 4), "small": (100, 20), "medium": (500, 50), "large": (2_000, 20)}


@tw.program
def heat(plate: tw.f32["n", "m"], rate: tw.f32, steps: tw.i64) -> Any:
    """The plate lies within a frame of zeros, which the slices of the neighbours reach into."""
    n, m = plate.shape
    side = tw.replicate((n, 1), 0, "f32")
    end = tw.replicate((1, m), 0, "f32")

    def point(here: Any, up: Any, down: Any, left: Any, right: Any) -> Any:
        return here + rate * (up + down + left + right - 4 * here)

    def step(_: Any, now: Any) -> Any:
        up, down = (tw.concat(end, now[:-1]), tw.concat(now[1:], end))
        left, right = (tw.concat(side, now[:, :-1], axis=1), tw.concat(now[:, 1:], side, axis=1))
        return tw.map(lambda *rows: tw.map(point, *rows), now, up, down, left, right)

    return tw.loop(steps, plate, step)


@tw.program
def heat_indexed(plate: tw.f32["n", "m"], rate: tw.f32, steps: tw.i64) -> Any:
    """The same, by indices that stop at the edge."""
    n, m = plate.shape

    def step(_: Any, now: Any) -> Any:
        def point(i: Any, j: Any) -> Any:
            here = now[i, j]
            up = tw.where(i > 0, now[tw.maximum(i - 1, 0), j], 0)
            down = tw.where(i < n - 1, now[tw.minimum(i + 1, n - 1), j], 0)
            left = tw.where(j > 0, now[i, tw.maximum(j - 1, 0)], 0)
            right = tw.where(j < m - 1, now[i, tw.minimum(j + 1, m - 1)], 0)
            return here + rate * (up + down + left + right - 4 * here)

        return tw.map(lambda i: tw.map(lambda j: point(i, j), tw.iota(m)), tw.iota(n))

    return tw.loop(steps, plate, step)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(edge: int, steps: int) -> Arguments:
    plate = np.random.default_rng(10).random((edge, edge + 4), dtype=np.float32)
    return plate, np.float32(0.2), steps


def work(plate: Any, rate: Any, steps: int) -> dict[str, float]:
    return {"flops": 7.0 * plate.size * steps}


def reference(plate: Any, rate: Any, steps: int) -> Any:
    """In double precision. A step is a mean with positive weights, so errors add: 8 u of the largest value each."""
    now = np.pad(plate.astype(np.float64), 1)
    for _ in range(steps):
        inner = now[1:-1, 1:-1]
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        now = np.pad(inner + float(rate) * (around - 4 * inner), 1)
    allowed = rounding(8 * steps, np.float32) * np.full(plate.shape, float(plate.max()))
    return [(now[1:-1, 1:-1], allowed)]


references = {"heat": reference, "heat_indexed": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
