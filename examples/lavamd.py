"""lavaMD: particles in boxes, each pulled by all particles of its own and the neighbouring boxes [S3 1 (B)].

    python examples/lavamd.py --size medium

The box whose particles are read is picked by an index that is loaded: tiling is indirect. Formulas of Rodinia's lavaMD
[Che et al., Rodinia: A Benchmark Suite for Heterogeneous Computing, 2009].
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": (2, 6), "small": (3, 32), "medium": (5, 64), "large": (8, 100)}  # boxes along an edge, particles
_ALPHA = 0.5


@tw.program
def lavamd(
    xs: tw.f32["b", "p"], ys: tw.f32["b", "p"], zs: tw.f32["b", "p"], charges: tw.f32["b", "p"],
    neighbours: tw.i32["b", "k"], alpha: tw.f32,
) -> Any:  # fmt: skip
    a2 = 2 * alpha * alpha

    def box(bx: Any, by: Any, bz: Any, near: Any) -> Any:
        def particle(x: Any, y: Any, z: Any) -> Any:
            def of_box(which: Any) -> Any:
                def force(other_x: Any, other_y: Any, other_z: Any, charge: Any) -> Any:
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    potential = charge * tw.exp(-a2 * (dx * dx + dy * dy + dz * dz))
                    strength = 2 * potential
                    return potential, strength * dx, strength * dy, strength * dz

                parts = tw.map(force, xs[which], ys[which], zs[which], charges[which])
                return tuple(tw.reduce("add", 0, one) for one in parts)

            return tuple(tw.reduce("add", 0, one) for one in tw.map(of_box, near))

        return tw.map(particle, bx, by, bz)

    return tw.map(box, xs, ys, zs, neighbours)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(edge: int, particles: int) -> Arguments:
    """A cube of boxes with the 27 boxes around each (its own among them), around the edges to the other side."""
    rng = np.random.default_rng(3)
    boxes = np.array(list(itertools.product(range(edge), repeat=3)))
    steps = np.array(list(itertools.product((-1, 0, 1), repeat=3)))
    near = (boxes[:, None, :] + steps) % edge
    neighbours = (near @ np.array([edge * edge, edge, 1])).astype(np.int32)
    places = boxes.T[:, :, None] + rng.uniform(0, 1, (3, len(boxes), particles))
    charges = rng.uniform(0.1, 1, (len(boxes), particles)).astype(np.float32)
    return (*places.astype(np.float32), charges, neighbours, np.float32(_ALPHA))


def work(xs: Any, ys: Any, zs: Any, charges: Any, neighbours: Any, alpha: Any) -> dict[str, float]:
    """Eighteen operations for a pair, the exponential counted as one."""
    return {"flops": 18.0 * neighbours.size * xs.shape[1] ** 2}


def reference(xs: Any, ys: Any, zs: Any, charges: Any, neighbours: Any, alpha: Any) -> Any:
    """In double precision, box by box.

    The exponent e is off by some 4 u e; e <= 2 alpha^2 * 3 edge^2, so exp is off by that, 2 u of its own, and the
    differences of coordinates by nothing more (both are exact, their difference rounded once).
    """
    a2 = 2 * float(alpha) ** 2
    places = np.array([xs, ys, zs], dtype=np.float64)
    exact, magnitude = np.zeros((4, *xs.shape)), np.zeros((4, *xs.shape))
    for box, near in enumerate(neighbours):
        others = places[:, near].reshape(3, -1)
        differences = places[:, box, :, None] - others[:, None, :]
        exponent = a2 * np.sum(differences**2, axis=0)
        potential = charges[near].reshape(-1).astype(np.float64) * np.exp(-exponent)
        parts = np.array([potential, *(2 * potential * differences)])
        exact[:, box], magnitude[:, box] = np.sum(parts, axis=-1), np.sum(np.abs(parts) * (1 + exponent), axis=-1)
    allowed = rounding(neighbours.shape[1] + xs.shape[1] + 20, np.float32) * magnitude
    return list(zip(exact, allowed, strict=True))


references = {"lavamd": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
