"""The examples as loops for numba, which compiles them with LLVM as we do; parallel loops are shared out to threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from numba import njit, prange

one, two, four, half = np.float32(1), np.float32(2), np.float32(4), np.float32(0.5)
ORDER = np.float32(0.2316419), np.float32(0.3989422804014327)
C0, C1, C2, C3, C4 = (np.float32(c) for c in (0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429))
SLOPE, DENSITY = ORDER


@njit(parallel=True, fastmath=True)
def nbody(xs: Any, ys: Any, zs: Any, masses: Any, softening: Any) -> Any:
    ax, ay, az = np.empty_like(xs), np.empty_like(xs), np.empty_like(xs)
    for i in prange(len(xs)):
        x, y, z = xs[i], ys[i], zs[i]
        sx, sy, sz = np.float32(0), np.float32(0), np.float32(0)
        for j in range(len(xs)):
            dx, dy, dz = xs[j] - x, ys[j] - y, zs[j] - z
            inverse = one / math.sqrt(dx * dx + dy * dy + dz * dz + softening)
            strength = masses[j] * inverse * inverse * inverse
            sx += strength * dx
            sy += strength * dy
            sz += strength * dz
        ax[i], ay[i], az[i] = sx, sy, sz
    return ax, ay, az


@njit(parallel=True, fastmath=True)
def lavamd(xs: Any, ys: Any, zs: Any, charges: Any, neighbours: Any, alpha: Any) -> Any:
    out = np.empty((4, *xs.shape), np.float32)
    a2 = two * alpha * alpha
    for b in prange(xs.shape[0]):
        for p in range(xs.shape[1]):
            x, y, z = xs[b, p], ys[b, p], zs[b, p]
            s, sx, sy, sz = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for k in range(neighbours.shape[1]):
                n = neighbours[b, k]
                for q in range(xs.shape[1]):
                    dx, dy, dz = x - xs[n, q], y - ys[n, q], z - zs[n, q]
                    potential = charges[n, q] * math.exp(-a2 * (dx * dx + dy * dy + dz * dz))
                    strength = two * potential
                    s += potential
                    sx += strength * dx
                    sy += strength * dy
                    sz += strength * dz
            out[0, b, p], out[1, b, p], out[2, b, p], out[3, b, p] = s, sx, sy, sz
    return out[0], out[1], out[2], out[3]


@njit(inline="always", fastmath=True)
def normal(x: Any) -> Any:
    k = one / (one + SLOPE * abs(x))
    series = k * (C0 + k * (C1 + k * (C2 + k * (C3 + k * C4))))
    tail = DENSITY * math.exp(-half * x * x) * series
    return tail if x < 0 else one - tail


@njit(parallel=True, fastmath=True)
def blackscholes(stocks: Any, strikes: Any, years: Any, rate: Any, volatility: Any) -> Any:
    calls, puts = np.empty_like(stocks), np.empty_like(stocks)
    for i in prange(len(stocks)):
        stock, strike, time = stocks[i], strikes[i], years[i]
        spread = volatility * math.sqrt(time)
        d1 = (math.log(stock / strike) + (rate + half * volatility * volatility) * time) / spread
        discounted = strike * math.exp(-rate * time)
        calls[i] = stock * normal(d1) - discounted * normal(d1 - spread)
        puts[i] = calls[i] + discounted - stock
    return calls, puts


@njit(parallel=True, fastmath=True)
def mandelbrot(real: Any, imaginary: Any, limit: Any) -> Any:
    out = np.empty((len(imaginary), len(real)), np.int32)
    for i in prange(len(imaginary)):
        for j in range(len(real)):
            a, b = real[j], imaginary[i]
            x, y, count = np.float32(0), np.float32(0), 0
            while x * x + y * y < four and count < limit:
                x, y = x * x - y * y + a, two * x * y + b
                count += 1
            out[i, j] = count
    return out


@njit
def histogram(values: Any, weights: Any, bins: int) -> Any:
    out, scale = np.zeros(bins, np.int32), np.float32(bins)
    for i in range(len(values)):
        out[np.int64(values[i] * scale)] += 1
    return out


@njit
def weighted(values: Any, weights: Any, bins: int) -> Any:
    out, scale = np.zeros(bins, np.float32), np.float32(bins)
    for i in range(len(values)):
        out[np.int64(values[i] * scale)] += weights[i]
    return out


@njit(parallel=True)
def shared_histogram(values: Any, weights: Any, bins: int) -> Any:
    """Bins for each of the threads."""
    parts = numba.get_num_threads()
    own, scale = np.zeros((parts, bins), np.int32), np.float32(bins)
    for p in prange(parts):
        for i in range(p * len(values) // parts, (p + 1) * len(values) // parts):
            own[p, np.int64(values[i] * scale)] += 1
    return own.sum(axis=0)


@njit(parallel=True)
def shared_weighted(values: Any, weights: Any, bins: int) -> Any:
    parts = numba.get_num_threads()
    own, scale = np.zeros((parts, bins), np.float32), np.float32(bins)
    for p in prange(parts):
        for i in range(p * len(values) // parts, (p + 1) * len(values) // parts):
            own[p, np.int64(values[i] * scale)] += weights[i]
    return own.sum(axis=0)


@njit
def filtered(values: Any, threshold: Any) -> Any:
    out, count = np.empty_like(values), 0
    for i in range(len(values)):
        out[count] = values[i]
        count += values[i] > threshold
    out[count:] = 0
    return out, count


@njit(parallel=True, fastmath=True)
def padded(entries: Any, places: Any, values: Any, columns: Any, starts: Any, x: Any) -> Any:
    out = np.empty(entries.shape[0], np.float32)
    for i in prange(entries.shape[0]):
        total = np.float32(0)
        for k in range(entries.shape[1]):
            total += entries[i, k] * x[places[i, k]]
        out[i] = total
    return out


@njit(parallel=True, fastmath=True)
def segmented(entries: Any, places: Any, values: Any, columns: Any, starts: Any, x: Any) -> Any:
    out = np.empty(len(x), np.float32)
    for i in prange(len(x)):
        total = np.float32(0)
        for k in range(starts[i], starts[i + 1]):
            total += values[k] * x[columns[k]]
        out[i] = total
    return out


@njit(parallel=True, fastmath=True)
def kmeans(points: Any, start: Any, rounds: int) -> Any:
    centres, owners = start.copy(), np.empty(len(points), np.int64)
    clusters, size = start.shape
    for _ in range(rounds):
        for i in prange(len(points)):
            best, place = np.float32(np.inf), 0
            for c in range(clusters):
                total = np.float32(0)
                for d in range(size):
                    total += (points[i, d] - centres[c, d]) ** 2
                if total < best:
                    best, place = total, c
            owners[i] = place
        sums, counts = np.zeros((clusters, size), np.float32), np.zeros(clusters, np.float32)
        for i in range(len(points)):
            counts[owners[i]] += one
            for d in range(size):
                sums[owners[i], d] += points[i, d]
        for c in range(clusters):
            centres[c] = sums[c] / counts[c]
    return centres


@njit
def needleman(first: Any, second: Any, gap: Any) -> Any:
    row = -gap * np.arange(len(second) + 1).astype(np.int32)
    for i in range(len(first)):
        diagonal, row[0] = row[0], -gap * (i + 1)
        for j in range(1, len(second) + 1):
            score = 3 if first[i] == second[j - 1] else -2
            best = max(diagonal + score, max(row[j], row[j - 1]) - gap)
            diagonal, row[j] = row[j], best
    return row[1:]


@njit(parallel=True, fastmath=True)
def heat(plate: Any, rate: Any, steps: int) -> Any:
    n, m = plate.shape
    now, after = np.zeros((n + 2, m + 2), np.float32), np.zeros((n + 2, m + 2), np.float32)
    now[1:-1, 1:-1] = plate
    for _ in range(steps):
        for i in prange(1, n + 1):
            for j in range(1, m + 1):
                around = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1]
                after[i, j] = now[i, j] + rate * (around - four * now[i, j])
        now, after = after, now
    return now[1:-1, 1:-1]


@njit(fastmath=True)
def eliminated(a: Any, b: Any, c: Any, right: Any, pivots: Any) -> None:
    """A tridiagonal solve in place."""
    pivots[0] = b[0]
    for i in range(1, len(right)):
        factor = a[i] / pivots[i - 1]
        pivots[i] = b[i] - factor * c[i - 1]
        right[i] -= factor * right[i - 1]
    right[-1] /= pivots[-1]
    for i in range(len(right) - 2, -1, -1):
        right[i] = (right[i] - c[i] * right[i + 1]) / pivots[i]


@njit(parallel=True, fastmath=True)
def locvolcalib(strikes: Any, x: Any, y: Any, times: Any, dxx: Any, dyy: Any, nu: float, beta: float) -> Any:
    n, m = len(x), len(y)
    out = np.empty((len(strikes), n, m))
    for o in prange(len(strikes)):
        now, u, v = out[o], np.empty((m, n)), np.empty((n, m))
        longest = max(n, m)
        a, b, c, pivots = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
        for i in range(n):
            now[i, :] = max(x[i] - strikes[o], 0.0)
        for at in range(len(times) - 2, -1, -1):
            rate = 1 / (times[at + 1] - times[at])
            for i in range(n):
                for j in range(m):
                    low, high = now[i, max(j - 1, 0)], now[i, min(j + 1, m - 1)]
                    v[i, j] = 0.5 * nu * nu * (low * dyy[j, 0] + now[i, j] * dyy[j, 1] + high * dyy[j, 2])
            for j in range(m):
                for i in range(n):
                    variance = 0.5 * math.exp(2 * (beta * math.log(x[i]) + y[j] - 0.5 * nu * nu * times[at]))
                    low, high = now[max(i - 1, 0), j], now[min(i + 1, n - 1), j]
                    second = low * dxx[i, 0] + now[i, j] * dxx[i, 1] + high * dxx[i, 2]
                    u[j, i] = rate * now[i, j] + 0.5 * variance * second + v[i, j]
                    a[i], b[i] = -0.5 * variance * dxx[i, 0], rate - 0.5 * variance * dxx[i, 1]
                    c[i] = -0.5 * variance * dxx[i, 2]
                eliminated(a[:n], b[:n], c[:n], u[j], pivots[:n])
            for j in range(m):
                a[j], b[j] = -0.25 * nu * nu * dyy[j, 0], rate - 0.25 * nu * nu * dyy[j, 1]
                c[j] = -0.25 * nu * nu * dyy[j, 2]
            for i in range(n):
                for j in range(m):
                    now[i, j] = rate * u[j, i] - 0.5 * v[i, j]
                eliminated(a[:m], b[:m], c[:m], now[i], pivots[:m])
    return out


@njit(parallel=True, fastmath=True)
def solve(matrices: Any, sides: Any) -> Any:
    systems, unknowns = sides.shape
    out = np.empty_like(sides)
    for s in prange(systems):
        rows, side = matrices[s].copy(), sides[s].copy()
        for pivot in range(unknowns):
            scale = 1 / rows[pivot, pivot]
            side[pivot] *= scale
            for j in range(pivot, unknowns):
                rows[pivot, j] *= scale
            for i in range(unknowns):
                if i != pivot:
                    factor = rows[i, pivot]
                    side[i] -= factor * side[pivot]
                    for j in range(pivot, unknowns):
                        rows[i, j] -= factor * rows[pivot, j]
        out[s] = side
    return out


def numba_peers(threads: int) -> dict[str, Callable[..., Callable[[], Any]]]:
    numba.set_num_threads(threads)
    found = {
        "nbody": nbody, "lavamd": lavamd, "blackscholes": blackscholes, "mandelbrot": mandelbrot,
        "histogram": histogram if threads == 1 else shared_histogram, "filter_above": filtered, "padded": padded,
        "weighted_histogram": weighted if threads == 1 else shared_weighted, "segmented": segmented,
        "kmeans": kmeans, "needleman": needleman, "heat": heat, "heat_indexed": heat, "locvolcalib": locvolcalib,
        "solve": solve,
    }  # fmt: skip
    return {name: partial(partial, function) for name, function in found.items()}
