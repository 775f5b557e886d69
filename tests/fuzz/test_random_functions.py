"""Random Python programs: compositions of array functions, as they are written by hand, against NumPy.

A program is a list of steps drawn by chance. Each step has two meanings: one in `tw` on traced arrays, one in NumPy on
real ones; both take vectors and matrices from a pool and put their result there.
"""

# ruff: noqa: UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.runtime.devices import DeviceError, device_for

Meaning = Callable[..., Any]
EXAMPLES = 15 if os.environ.get("HYPOTHESIS_PROFILE") != "fuzz" else 1000
EXTENTS = ((1, 1), (2, 3), (3, 7), (5, 17), (4, 33), (7, 64), (3, 200))


def _halved(start: float) -> tuple[float, int]:
    rounds = 0
    while abs(start) > 0.3 and rounds < 9:
        start, rounds = start / 2, rounds + 1
    return start + rounds


def _smooth_tw(x: Any, k: int) -> Any:
    n = x.shape[0]
    return tw.map(lambda i: (x[tw.maximum(i - k, 0)] + x[tw.minimum(i + 1, n - 1)]) / 2 + x[i] / 4, tw.iota(n))


def _smooth_np(x: Any, k: int) -> Any:
    i = np.arange(len(x))
    return (x[np.maximum(i - k, 0)] + x[np.minimum(i + 1, len(x) - 1)]) / 2 + x[i] / 4


def _steps_tw(x: Any, k: int) -> Any:
    def once(_: Any, state: Any) -> Any:
        return tw.concat([state[1:], state[:1]])

    return tw.loop(k, x, once)


def _bins_tw(x: Any, k: int) -> Any:
    n = x.shape[0]
    places = tw.map(lambda i: (i * 3) % (n + 1), tw.iota(n))
    return tw.hist("add", 0, tw.map(lambda e: e / 8, x), places, tw.map(lambda e: e / 4, x))


def _bins_np(x: Any, k: int) -> Any:
    n = len(x)
    result = x / 8
    for i in range(n):
        if (i * 3) % (n + 1) < n:
            result[(i * 3) % (n + 1)] += x[i] / 4
    return result


def _scattered_np(x: Any, y: Any, k: int) -> Any:
    result = x.copy()
    places = 2 * np.arange(len(y)) - k
    inside = (places >= 0) & (places < len(x))
    result[places[inside]] = y[inside]
    return result


# (kinds of the operands, kind of the result, in tw, in NumPy); `k` is a small number; v: vectors of n, m: m x n.
STEPS: tuple[tuple[str, str, Meaning, Meaning], ...] = (
    ("v", "v", lambda x, k: tw.map(lambda e: tw.tanh(e) * k, x), lambda x, k: np.tanh(x) * k),
    ("vv", "v", lambda x, y, k: tw.map(lambda a, b: (a - b) / 2, x, y), lambda x, y, k: (x - y) / 2),
    ("vv", "v", lambda x, y, k: tw.map(lambda a, b: tw.where(a < b, a * b, b * b) / 4, x, y),
     lambda x, y, k: np.where(x < y, x * y, y * y) / 4),
    ("v", "v", lambda x, k: x[::-1], lambda x, k: x[::-1]),
    ("v", "v", _smooth_tw, _smooth_np),
    ("v", "v", _steps_tw, lambda x, k: np.roll(x, -k)),
    ("v", "v", lambda x, k: tw.scan("max", -9, x), lambda x, k: np.maximum.accumulate(x)),
    ("v", "v", lambda x, k: tw.scan("add", 0, tw.map(lambda e: e / 256, x)), lambda x, k: np.cumsum(x / 256)),
    ("v", "v", _bins_tw, _bins_np),
    ("vv", "v", lambda x, y, k: tw.scatter(x, tw.map(lambda i: 2 * i - k, tw.iota(y.shape[0])), y), _scattered_np),
    ("v", "v", lambda x, k: tw.update(x, 0, tw.reduce("min", 9, x)), lambda x, k: np.append(x.min(), x[1:])),
    ("v", "v",
     lambda x, k: tw.map(_while_tw, x), lambda x, k: np.array([_halved(float(e)) for e in x]) / 4),
    ("v", "v", lambda x, k: tw.map(lambda e: tw.cond(e > 0.5, lambda: e, lambda: e / 2 + 0.25), x),
     lambda x, k: np.where(x > 0.5, x, x / 2 + 0.25)),
    ("vm", "m", lambda x, xss, k: tw.map(lambda i: tw.map(lambda e: e * (i % 3) / 2, x), tw.iota(xss.shape[0])),
     lambda x, xss, k: np.outer(np.arange(len(xss)) % 3 / 2, x)),
    ("m", "m", lambda xss, k: tw.map(lambda xs: tw.map(lambda e: e * e / 4, xs), xss), lambda xss, k: xss**2 / 4),
    ("m", "m", lambda xss, k: tw.map(lambda xs: tw.scan("min", 9, xs), xss),
     lambda xss, k: np.minimum.accumulate(xss, 1)),
    ("m", "m", lambda xss, k: tw.transpose(tw.map(lambda c: tw.scan("add", 0, tw.map(lambda e: e / 16, c)),
     tw.transpose(xss))), lambda xss, k: np.cumsum(xss / 16, 0)),
    ("mv", "m", lambda xss, y, k: tw.map(lambda xs: tw.map(lambda a, b: (a + b) / 2, xs, y), xss),
     lambda xss, y, k: (xss + y) / 2),
    ("m", "m", lambda xss, k: xss[::-1, ::-1], lambda xss, k: xss[::-1, ::-1]),
    ("m", "m", lambda xss, k: tw.map(lambda xs: _smooth_tw(xs, k), xss),
     lambda xss, k: np.stack([_smooth_np(xs, k) for xs in xss])),
    ("m", "v", lambda xss, k: tw.map(lambda c: tw.reduce("add", 0, c) / 16, tw.transpose(xss)),
     lambda xss, k: xss.sum(0) / 16),
    ("m", "v", lambda xss, k: xss[xss.shape[0] - 1], lambda xss, k: xss[-1]),
    ("mv", "v", lambda xss, y, k: tw.map(lambda b, c: b / 2 + tw.reduce("max", -9, c) / 4, y, tw.transpose(xss)),
     lambda xss, y, k: y / 2 + xss.max(0) / 4),
    ("mm", "m", lambda a, b, k: tw.map(lambda x, y: tw.map(tw.minimum, x, y), a, b),
     lambda a, b, k: np.minimum(a, b)),
)  # fmt: skip


def _while_tw(e: Any) -> Any:
    value, rounds = tw.while_loop(
        lambda v, r: (abs(v) > 0.3) & (r < 9), (e, tw.cast(0, "i64")), lambda v, r: (v / 2, r + 1)
    )
    return (value + rounds) / 4


def drawn(seed: int) -> list[tuple[int, tuple[int, ...], int]]:
    """Steps: which, of which of the vectors and matrices made so far (counted from the last), with which number."""
    random = Random(seed)
    return [
        (random.randrange(len(STEPS)), tuple(random.randrange(3) for _ in range(2)), random.randint(1, 3))
        for _ in range(random.randint(3, 9))
    ]


def evaluated(seed: int, vectors: Sequence[Any], matrices: Sequence[Any], traced: bool) -> tuple[Any, ...]:
    pools: dict[str, list[Any]] = {"v": list(vectors), "m": list(matrices)}
    for number, places, k in drawn(seed):
        kinds, result, *meanings = STEPS[number]
        taken = [pools[kind][-1 - place % len(pools[kind])] for kind, place in zip(kinds, places, strict=False)]
        pools[result].append(meanings[not traced](*taken, k))
    return pools["v"][-1], pools["m"][-1], pools["v"][-2]


def check(seed: int, target: str, flattening: Any = None) -> None:
    @tw.program(flattening=flattening)
    def composed(x: tw.f64["n"], y: tw.f64["n"], xss: tw.f64["m", "n"]):
        return evaluated(seed, (x, y), (xss,), traced=True)

    random = np.random.default_rng(seed)
    m, n = EXTENTS[seed % len(EXTENTS)]
    x, y, xss = (random.uniform(-2, 2, shape) for shape in ((n,), (n,), (m, n)))
    expected = evaluated(seed, (x, y), (xss,), traced=False)
    with tw.num_threads(1 + seed % 2):
        for _ in range(2):
            for found, wanted in zip(composed(x, y, xss, target=target), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}: {drawn(seed)}")


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_functions_on_the_cpu(seed: int) -> None:
    for flattening in (None, ("full", "outer", "incremental")[seed % 3]):
        check(seed, "cpu", flattening)


@pytest.mark.opencl
@pytest.mark.parametrize("seed", range(6))
def test_random_functions_on_opencl(seed: int) -> None:
    try:
        device_for("opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    check(seed, "opencl", (None, "incremental")[seed % 2])
