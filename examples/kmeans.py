"""k-means: points to the nearest centre, centres to the mean of their points, a number of times.

python examples/kmeans.py --size medium
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": (60, 2, 3, 2), "small": (1_000, 4, 8, 5), "medium": (20_000, 8, 16, 5), "large": (200_000, 16, 32, 5)}


@tw.program
def kmeans(points: tw.f32["n", "d"], start: tw.f32["k", "d"], rounds: tw.i64) -> Any:
    count = start.shape[0]

    def nearest(point: Any, centres: Any) -> Any:
        def distance(centre: Any) -> Any:
            return tw.reduce("add", 0, tw.map(lambda x, c: (x - c) * (x - c), point, centre))

        def closer(one: Any, two: Any) -> Any:
            first = (one[0] < two[0]) | ((one[0] == two[0]) & (one[1] < two[1]))
            return tw.where(first, one[0], two[0]), tw.where(first, one[1], two[1])

        distances = tw.map(distance, centres)
        return tw.reduce(closer, (np.inf, 2**62), distances, tw.iota(count))[1]

    def step(_: Any, centres: Any) -> Any:
        owners = tw.map(lambda point: nearest(point, centres), points)
        members = tw.hist("add", 0, count, owners, tw.replicate(points.shape[0], 1.0, "f32"))
        add = tw.hist(lambda one, two: tw.map("add", one, two), 0, count, owners, points)

        def mean(total: Any, number: Any, old: Any) -> Any:
            return tw.map(lambda x, y: tw.where(number > 0, x / tw.maximum(number, 1), y), total, old)

        return tw.map(mean, add, members, centres)

    return tw.loop(rounds, start, step)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _arguments(count: int, size: int, clusters: int, rounds: int) -> Arguments:
    """Clouds of points around centres on a circle, so far apart that no rounding moves a point to another one."""
    rng = np.random.default_rng(8)
    angles = 2 * np.pi * np.arange(clusters) / clusters
    middle = np.zeros((clusters, size))
    middle[:, 0], middle[:, 1] = 40 * np.cos(angles), 40 * np.sin(angles)
    owners = np.arange(count) % clusters
    points = (middle[owners] + rng.uniform(-1, 1, (count, size))).astype(np.float32)
    return points, points[:clusters].copy(), rounds


def work(points: Any, start: Any, rounds: int) -> dict[str, float]:
    return {"flops": 3.0 * points.size * len(start) * rounds}


def reference(points: Any, start: Any, rounds: int) -> Any:
    """In double precision; a centre is a sum of its points, divided."""
    centres, wide = start.astype(np.float64), points.astype(np.float64)
    for _ in range(rounds):
        distances = np.array([np.sum((wide - one) ** 2, axis=1) for one in centres])
        owners = np.argmin(distances, axis=0)
        centres = np.array([wide[owners == one].mean(axis=0) for one in range(len(centres))])
    largest = np.max(np.bincount(owners))
    return [(centres, rounding(largest + 2, np.float32) * np.abs(points).max() * np.ones_like(centres))]


references = {"kmeans": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
