"""Black-Scholes prices of European call and put options.

    python examples/blackscholes.py --size large

One map; the normal distribution is the polynomial 26.2.17 of [Abramowitz and Stegun, 1964], as in PARSEC's benchmark.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Arguments, main, rounding

import tilewright as tw

_SIZES = {"tiny": 37, "small": 10_000, "medium": 200_000, "large": 2_000_000}
COEFFICIENTS = (0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
RATE, VOLATILITY = 0.02, 0.3


def _normal(x: Any) -> Any:
    """The distribution function of the standard normal distribution."""
    k = 1 / (1 + 0.2316419 * abs(x))
    series = 0.0
    for one in reversed(COEFFICIENTS):
        series = k * (one + series)
    tail = 0.3989422804014327 * tw.exp(-0.5 * x * x) * series
    return tw.where(x < 0, tail, 1 - tail)


@tw.program
def blackscholes(
    stocks: tw.f32["n"], strikes: tw.f32["n"], years: tw.f32["n"], rate: tw.f32, volatility: tw.f32
) -> Any:
    def option(stock: Any, strike: Any, time: Any) -> Any:
        spread = volatility * tw.sqrt(time)
        d1 = (tw.log(stock / strike) + (rate + 0.5 * volatility * volatility) * time) / spread
        d2 = d1 - spread
        discounted = strike * tw.exp(-rate * time)
        call = stock * _normal(d1) - discounted * _normal(d2)
        return call, call + discounted - stock

    return tw.map(option, stocks, strikes, years)


def datasets() -> dict[str, Callable[[], Arguments]]:
    return {name: lambda size=size: _arguments(size) for name, size in _SIZES.items()}


def _arguments(size: int) -> Arguments:
    rng = np.random.default_rng(4)
    ranges = ((5, 30), (1, 100), (0.25, 10))
    arrays = [rng.uniform(low, high, size).astype(np.float32) for low, high in ranges]
    return (*arrays, np.float32(RATE), np.float32(VOLATILITY))


def work(stocks: Any, *_: Any) -> dict[str, float]:
    return {"bytes": 5.0 * 4 * len(stocks)}


def reference(stocks: Any, strikes: Any, years: Any, rate: Any, volatility: Any) -> Any:
    """In double precision. Both terms of a price are right to some 100 u of stock and strike, |d| being below 64."""
    s, k, t, r, v = (np.asarray(one, np.float64) for one in (stocks, strikes, years, rate, volatility))

    def normal(x: Any) -> Any:
        y = 1 / (1 + 0.2316419 * np.abs(x))
        tail = 0.3989422804014327 * np.exp(-0.5 * x * x) * np.polyval([*reversed(COEFFICIENTS), 0], y)
        return np.where(x < 0, tail, 1 - tail)

    d1 = (np.log(s / k) + (r + 0.5 * v * v) * t) / (v * np.sqrt(t))
    discounted = k * np.exp(-r * t)
    call = s * normal(d1) - discounted * normal(d1 - v * np.sqrt(t))
    allowed = rounding(100, np.float32) * (s + k)
    return [(call, allowed), (call + discounted - s, allowed)]


references = {"blackscholes": reference}

if __name__ == "__main__":
    sys.exit(main(globals()))
