"""LocVolCalib of the FinPar suite: option prices in a model with local volatility, by Crank-Nicolson steps [S2].

    python examples/locvolcalib.py --size small

For every strike a loop over time; in every step explicit terms along both axes, then a tridiagonal solve for every row
and for every column. A solve is three scans: of 2x2 matrices for the pivots, of linear functions forwards and backwards
[Blelloch, Prefix Sums and Their Applications, 1990]. The data sets are those of FinPar; `large` needs some 2 GB.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main

import tilewright as tw

# strikes, points along x, points along y, steps
_SIZES = {"tiny": (3, 7, 9, 4), "small": (16, 32, 256, 256), "medium": (128, 256, 32, 64), "large": (256, 256, 256, 64)}


def _solve(a: Any, b: Any, c: Any, right: Any) -> Any:
    """The solution u of a[i] u[i - 1] + b[i] u[i] + c[i] u[i + 1] = right[i]."""
    (count,) = right.shape
    places = tw.iota(count)

    def matrix(i: Any, ai: Any, bi: Any) -> Any:
        first = i == 0
        off = -ai * c[tw.maximum(i - 1, 0)]
        return tw.where(first, 1.0, bi), tw.where(first, 0.0, off), tw.where(first, 0.0, 1.0), tw.where(first, 1.0, 0.0)

    def times(one: Any, two: Any) -> Any:
        """The product two * one, scaled: only the ratio of its entries matters, and they would overflow."""
        (p, q, r, s), (t, u, v, w) = one, two
        scale = 1.0 / (p * t + u * r)
        e, f = scale * (t * p + u * r), scale * (t * q + u * s)
        return e, f, scale * (v * p + w * r), scale * (v * q + w * s)

    products = tw.scan(times, (1.0, 0.0, 0.0, 1.0), *tw.map(matrix, places, a, b))
    pivots = tw.map(lambda p, q, r, s: (p * b[0] + q) / (r * b[0] + s), *products)

    def then(one: Any, two: Any) -> Any:
        return two[0] + two[1] * one[0], two[1] * one[1]

    def forward(i: Any, ai: Any, r: Any) -> Any:
        return r, tw.where(i == 0, 0.0, -ai / pivots[tw.maximum(i - 1, 0)])

    ys, _ = tw.scan(then, (0.0, 1.0), *tw.map(forward, places, a, right))

    def backward(i: Any) -> Any:
        k = count - 1 - i
        return ys[k] / pivots[k], tw.where(i == 0, 0.0, -c[k] / pivots[k])

    xs, _ = tw.scan(then, (0.0, 1.0), *tw.map(backward, places))
    return tw.map(lambda i: xs[count - 1 - i], places)


@tw.program
def locvolcalib(
    strikes: tw.f64["o"], x: tw.f64["n"], y: tw.f64["m"], times: tw.f64["t"],
    dxx: tw.f64["n", 3], dyy: tw.f64["m", 3], nu: tw.f64, beta: tw.f64,
) -> Any:  # fmt: skip
    """The grids of prices, [strike][x][y]; `dxx` and `dyy` are the second differences along x and y."""
    (n,), (m,), (steps,) = x.shape, y.shape, times.shape
    logarithms = tw.map(tw.log, x)

    def step(number: Any, now: Any) -> Any:
        at = steps - 2 - number
        time = times[at]
        rate = 1.0 / (times[at + 1] - time)

        def variance(logarithm: Any, yj: Any) -> Any:
            return 0.5 * tw.exp(2.0 * (beta * logarithm + yj - 0.5 * nu * nu * time))

        def second(low: Any, here: Any, high: Any, factors: Any) -> Any:
            return low * factors[0] + here * factors[1] + high * factors[2]

        def along_y(i: Any) -> Any:
            def explicit(j: Any) -> Any:
                low, high = now[i, tw.maximum(j - 1, 0)], now[i, tw.minimum(j + 1, m - 1)]
                return 0.5 * nu * nu * second(low, now[i, j], high, dyy[j])

            return tw.map(explicit, tw.iota(m))

        v = tw.map(along_y, tw.iota(n))

        def along_x(j: Any, yj: Any) -> Any:
            half = tw.map(lambda logarithm: 0.5 * variance(logarithm, yj), logarithms)

            def explicit(i: Any, factor: Any) -> Any:
                low, high = now[tw.maximum(i - 1, 0), j], now[tw.minimum(i + 1, n - 1), j]
                return rate * now[i, j] + factor * second(low, now[i, j], high, dxx[i]) + v[i, j]

            right = tw.map(explicit, tw.iota(n), half)
            a, b, c = (tw.map(lambda factor, d, k=k: -factor * d[k], half, dxx) for k in range(3))
            return _solve(a, tw.map(lambda one: rate + one, b), c, right)

        u = tw.map(along_x, tw.iota(m), y)

        def finish(i: Any) -> Any:
            right = tw.map(lambda j: rate * u[j, i] - 0.5 * v[i, j], tw.iota(m))
            a, b, c = (tw.map(lambda d, k=k: -0.25 * nu * nu * d[k], dyy) for k in range(3))
            return _solve(a, tw.map(lambda one: rate + one, b), c, right)

        return tw.map(finish, tw.iota(n))

    def option(strike: Any) -> Any:
        start = tw.map(lambda xi: tw.map(lambda _: tw.maximum(xi - strike, 0.0), y), x)
        return tw.loop(steps - 1, start, step)

    return tw.map(option, strikes)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(*size) for name, size in _SIZES.items()}


def _second_differences(x: Any) -> Any:
    """Factors of the neighbours below, of the point, and of that above; none at the ends."""
    below, above = x[1:-1] - x[:-2], x[2:] - x[1:-1]
    whole = below + above
    inner = np.stack([2 / below / whole, -2 * (1 / below + 1 / above) / whole, 2 / above / whole], axis=1)
    return np.pad(inner, ((1, 1), (0, 0)))


def _arguments(strikes: int, n: int, m: int, steps: int) -> Arguments:
    """The grids of FinPar: start 0.03, five years, alpha 0.2, nu 0.6, beta 0.5."""
    start, years, alpha, nu, beta = 0.03, 5.0, 0.2, 0.6, 0.5
    width, height = 20 * alpha * start * np.sqrt(years) / n, 10 * nu * np.sqrt(years) / m
    x = (np.arange(n) - int(start / width)) * width + start
    x = np.maximum(x, 1e-4 * width + 0 * x) if x[0] <= 0 else x
    y = (np.arange(m) - m // 2) * height + np.log(alpha)
    times = np.linspace(0, years, steps)
    return 0.001 * np.arange(strikes), x, y, times, _second_differences(x), _second_differences(y), nu, beta


def work(strikes: Any, x: Any, y: Any, times: Any, *_: Any) -> dict[str, float]:
    """Forty operations for a point and step: explicit terms, and two solves by elimination."""
    return {"flops": 40.0 * len(strikes) * len(x) * len(y) * (len(times) - 1)}


def _eliminated(a: Any, b: Any, c: Any, right: Any) -> Any:
    """Tridiagonal solves along the first dimension by elimination, all others at once."""
    u, pivots = right.copy(), np.broadcast_to(b, right.shape).copy()
    for i in range(1, len(right)):
        factor = a[i] / pivots[i - 1]
        pivots[i] -= factor * c[i - 1]
        u[i] -= factor * u[i - 1]
    u[-1] /= pivots[-1]
    for i in reversed(range(len(right) - 1)):
        u[i] = (u[i] - c[i] * u[i + 1]) / pivots[i]
    return u


def solution(strikes: Any, x: Any, y: Any, times: Any, dxx: Any, dyy: Any, nu: float, beta: float) -> Any:
    """The same by elimination, with NumPy; grids are [x][y][strike] inside."""
    now = np.broadcast_to(np.maximum(x[:, None, None] - strikes, 0), (len(x), len(y), len(strikes))).copy()

    def second(values: Any, factors: Any) -> Any:
        padded = np.concatenate([values[:1], values, values[-1:]])
        parts = (padded[:-2], values, padded[2:])
        return sum(part * factors[:, k, None, None] for k, part in enumerate(parts))

    for at in reversed(range(len(times) - 1)):
        rate = 1 / (times[at + 1] - times[at])
        exponent = 2 * (beta * np.log(x)[:, None, None] + y[:, None] - 0.5 * nu * nu * times[at])
        variance = 0.5 * np.exp(exponent)
        v = (0.5 * nu * nu * second(now.swapaxes(0, 1), dyy)).swapaxes(0, 1)
        right = rate * now + 0.5 * variance * second(now, dxx) + v
        a, b, c = (-0.5 * variance * dxx[:, k, None, None] for k in range(3))
        u = _eliminated(a, rate + b, c, right)
        a, b, c = (-0.25 * nu * nu * dyy[:, k, None, None] for k in range(3))
        right = (rate * u - 0.5 * v).swapaxes(0, 1)
        now = _eliminated(a, rate + b, c, right).swapaxes(0, 1)
    return now.transpose(2, 0, 1)


def reference(*arguments: Any) -> Any:
    """By elimination; both ways are stable, as the systems are diagonally dominant, so errors of steps add.

    A step's error is below some hundred u for every point of a line, times the largest price.
    """
    exact = solution(*arguments)
    x, y, times = arguments[1:4]
    terms = 100.0 * (len(x) + len(y)) * len(times)
    allowed = terms * float(np.finfo(np.float64).eps) * float(np.max(np.abs(exact)))
    return [(exact, np.full(exact.shape, allowed))]


references = {"locvolcalib": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
