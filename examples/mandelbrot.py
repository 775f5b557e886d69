"""The Mandelbrot set: for every pixel a loop that ends when its number escapes.

python examples/mandelbrot.py --size medium
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main

import tilewright as tw

_SIZES = {"tiny": (20, 50), "small": (100, 100), "medium": (400, 200), "large": (800, 500)}  # pixels an edge, limit


@tw.program
def mandelbrot(real: tw.f32["w"], imaginary: tw.f32["h"], limit: tw.i32) -> Any:
    def pixel(a: Any, b: Any) -> Any:
        def inside(x: Any, y: Any, count: Any) -> Any:
            return (x * x + y * y < 4) & (count < limit)

        def step(x: Any, y: Any, count: Any) -> Any:
            return x * x - y * y + a, 2 * x * y + b, count + 1

        zero = 0 * a
        return tw.while_loop(inside, (zero, zero, tw.cast(0, "i32")), step)[2]

    return tw.map(lambda b: tw.map(lambda a: pixel(a, b), real), imaginary)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(edge: int, limit: int) -> Arguments:
    """Coordinates that are multiples of 1/1024, so that fewer steps than 4 of them are rounded."""
    real, imaginary = (np.round(np.linspace(low, low + 2.5, edge) * 1024) / 1024 for low in (-2.0, -1.25))
    return real.astype(np.float32), imaginary.astype(np.float32), np.int32(limit)


def steps(real: Any, imaginary: Any, limit: Any, dtype: Any = np.float32) -> Any:
    """How many steps every pixel takes."""
    a, b = np.broadcast_arrays(real.astype(dtype)[None, :], imaginary.astype(dtype)[:, None])
    x, y, counts = np.zeros_like(a), np.zeros_like(a), np.zeros(a.shape, np.int32)
    inside = np.ones(a.shape, bool)
    for _ in range(int(limit)):
        inside &= x * x + y * y < 4
        counts += inside
        x, y = np.where(inside, x * x - y * y + a, x), np.where(inside, 2 * x * y + b, y)
    return counts


def work(real: Any, imaginary: Any, limit: Any) -> dict[str, float]:
    return {"flops": 10.0 * float(np.sum(steps(real, imaginary, limit)))}


def reference(real: Any, imaginary: Any, limit: Any) -> Any:
    """Exact where the count is the same in double precision, and when the point is moved by some roundings.

    Elsewhere, on the fringe of the set, rounding (or a fused multiply-add) may give any count.
    """
    counts = steps(real, imaginary, limit)
    stable = counts == steps(real, imaginary, limit, np.float64)
    for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        moved = real.astype(np.float64) + a * 2.0**-20, imaginary.astype(np.float64) + b * 2.0**-20
        stable &= counts == steps(*moved, limit, np.float64)
    return [(counts, np.where(stable, 0.0, float(limit)))]


references = {"mandelbrot": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
