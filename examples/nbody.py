"""N-body: the gravitational acceleration of every body by all others, with softening [S3 1 (A)].

    python examples/nbody.py --size medium

A map of reductions: every body reads all bodies, so a block's copy of a piece of them serves all of its threads.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": 60, "small": 1_000, "medium": 4_096, "large": 16_384}
_SOFTENING = 0.05


@tw.program
def nbody(xs: tw.f32["n"], ys: tw.f32["n"], zs: tw.f32["n"], masses: tw.f32["n"], softening: tw.f32) -> Any:
    def acceleration(x: Any, y: Any, z: Any) -> Any:
        def pull(other_x: Any, other_y: Any, other_z: Any, mass: Any) -> Any:
            dx, dy, dz = other_x - x, other_y - y, other_z - z
            inverse = tw.rsqrt(softening + dx * dx + dy * dy + dz * dz)
            strength = mass * inverse * inverse * inverse
            return strength * dx, strength * dy, strength * dz

        pulls = tw.map(pull, xs, ys, zs, masses)
        return tuple(tw.reduce("add", 0, one) for one in pulls)

    return tw.map(acceleration, xs, ys, zs)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(size) for name, size in _SIZES.items()}


def _arguments(size: int) -> Arguments:
    rng = np.random.default_rng(2)
    places = [rng.uniform(-1, 1, size).astype(np.float32) for _ in range(3)]
    return (*places, rng.uniform(0.5, 1.5, size).astype(np.float32), np.float32(_SOFTENING))


def work(xs: Any, *_: Any) -> dict[str, float]:
    """Twenty operations for a pair, as such programs are counted by custom [Nyland et al., GPU Gems 3, 31]."""
    return {"flops": 20.0 * len(xs) ** 2}


def reference(xs: Any, ys: Any, zs: Any, masses: Any, softening: Any) -> Any:
    """In double precision, 256 bodies at a time.

    A term has relative errors from the difference (1 u of the coordinates), the cubed root, and the products: below
    30 u of what it would be with coordinates in place of differences; a sum of n terms adds n u.
    """
    places = np.array([xs, ys, zs], dtype=np.float64)
    exact, magnitude = np.empty_like(places), np.empty_like(places)
    for start in range(0, len(xs), 256):
        piece = slice(start, start + 256)
        differences = places[:, None, :] - places[:, piece, None]
        strength = masses / (np.sum(differences**2, axis=0) + float(softening)) ** 1.5
        exact[:, piece] = np.sum(strength * differences, axis=-1)
        magnitude[:, piece] = np.sum(strength * np.abs(differences), axis=-1)
    allowed = rounding(len(xs) + 30, np.float32) * magnitude
    return list(zip(exact, allowed, strict=True))


references = {"nbody": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
