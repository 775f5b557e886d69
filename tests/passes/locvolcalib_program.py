"""The core of LocVolCalib (FinPar) [S2]: batched tridiagonal solves by three scans, along both axes, in a time loop."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw


def _solve(v: Any, rate: Any, right: Any) -> Any:
    """The solution of (-s_i, 1 + 2 s_i, -s_i) u = right with s = rate * v: every recurrence is a scan.

    The pivots p_i = b_i - a_i c_(i-1) / p_(i-1) are fractions of products of 2x2 matrices; both substitutions are
    compositions of linear functions (Blelloch, Prefix Sums and Their Applications, 1990).
    """
    (count,) = right.shape
    places = tw.iota(count)

    def matrix(i: Any, e: Any) -> Any:
        before = rate * v[tw.maximum(i - 1, 0)]
        first = i == 0
        p, q = tw.where(first, 1.0, 1.0 + 2.0 * rate * e), tw.where(first, 0.0, -rate * e * before)
        return p, q, tw.where(first, 0.0, 1.0), tw.where(first, 1.0, 0.0)

    def times(one: Any, two: Any) -> Any:
        (a, b, c, d), (e, f, g, h) = one, two
        return e * a + f * c, e * b + f * d, g * a + h * c, g * b + h * d

    products = tw.scan(times, (1.0, 0.0, 0.0, 1.0), *tw.map(matrix, places, v))
    start = 1.0 + 2.0 * rate * v[0]
    pivots = tw.map(lambda a, b, c, d: (a * start + b) / (c * start + d), *products)

    def then(one: Any, two: Any) -> Any:
        return two[0] + two[1] * one[0], two[1] * one[1]

    def forward(i: Any, e: Any, r: Any) -> Any:
        return r, tw.where(i == 0, 0.0, rate * e / pivots[tw.maximum(i - 1, 0)])

    ys, _ = tw.scan(then, (0.0, 1.0), *tw.map(forward, places, v, right))

    def backward(i: Any) -> Any:
        k = count - 1 - i
        return ys[k] / pivots[k], tw.where(i == 0, 0.0, rate * v[k] / pivots[k])

    xs, _ = tw.scan(then, (0.0, 1.0), *tw.map(backward, places))
    return tw.map(lambda i: xs[count - 1 - i], places)


@tw.program
def locvolcalib(
    u: tw.f64["o", "y", "x"], rates: tw.f64["o"], vx: tw.f64["o", "y", "x"], vy: tw.f64["o", "x", "y"], steps: tw.i64
) -> Any:
    def option(u0: Any, rate: Any, along_x: Any, along_y: Any) -> Any:
        def step(t: Any, now: Any) -> Any:
            half = tw.map(lambda v, row: _solve(v, rate, row), along_x, now)
            return tw.transpose(tw.map(lambda v, column: _solve(v, rate, column), along_y, tw.transpose(half)))

        return tw.loop(steps, u0, step)

    return tw.map(option, u, rates, vx, vy)


@tw.program
def sweep(u: tw.f64["o", "y", "x"]) -> Any:
    """What the slides show of it: three dependent scans under two maps."""

    def row(e: Any) -> Any:
        first = tw.scan("add", 0, e)
        second = tw.scan("max", -np.inf, first)
        return tw.scan("min", np.inf, second)

    return tw.map(lambda plane: tw.map(row, plane), u)


def reference(u: Any, rates: Any, vx: Any, vy: Any, steps: int) -> Any:
    """The same with NumPy's dense solver."""

    def solve(s: Any, right: Any) -> Any:
        matrix = np.diag(1 + 2 * s) - np.diag(s[1:], -1) - np.diag(s[:-1], 1)
        return np.linalg.solve(matrix, right)

    u = u.copy()
    for o in range(len(u)):
        for _ in range(steps):
            half = np.array([solve(rates[o] * v, row) for v, row in zip(vx[o], u[o], strict=True)])
            u[o] = np.array([solve(rates[o] * v, row) for v, row in zip(vy[o], half.T, strict=True)]).T
    return u
