"""Maps inside of points whose results are only joined to others are written where these lie."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check
from naive import examples

import tilewright as tw
from tilewright.kernel.ir import Kernel, Space
from tilewright.runtime import cpu_device


def tree(v: tw.f64["n"], rounds: tw.i64) -> Any:
    return tw.loop(rounds, v, lambda r, v: tw.concat(0.25 * v[1:] + 0.75 * v[:-1], v[-1:]))


def turned(v: tw.f64["n"], rounds: tw.i64) -> Any:
    """Reads, after the map, what the map must not have replaced."""
    return tw.loop(rounds, v, lambda r, v: tw.concat(2.0 - v[1:], v[:1]))


def between(v: tw.f64["n"], rounds: tw.i64) -> Any:
    return tw.loop(rounds, v, lambda r, v: tw.concat(v[:1], v[:-2] + v[2:], v[-1:]))


def rows(x: tw.f64["n", "m"], rounds: tw.i64) -> Any:
    def row(one: Any) -> Any:
        return tw.concat(tw.map(lambda e: 3.0 - e, one[1:]), one[:1])

    return tw.loop(rounds, x, lambda r, x: tw.map(row, x))


def columns(x: tw.f64["n", "m"], rounds: tw.i64) -> Any:
    def step(r: Any, x: Any) -> Any:
        middle = tw.map(lambda row: tw.map(lambda e: e * 0.5 + r, row[1:]), x)
        return tw.concat(x[:, :1], middle, axis=1)

    return tw.loop(rounds, x, step)


def twice(v: tw.f64["n"], rounds: tw.i64) -> Any:
    def step(r: Any, v: Any) -> Any:
        part = v[1:] * 0.5
        return tw.concat(part, v[:1]) + part.sum()

    return tw.loop(rounds, v, step)


def unknown(v: tw.f64["n"], rounds: tw.i64, k: tw.i64) -> Any:
    """The second part may have any size: of one below 0 the whole is shorter than the first part."""
    return tw.map(lambda i: tw.concat(tw.map(lambda e: e + i, v), tw.replicate(k, 1.0)).sum(), tw.iota(rounds))


def stepwise(v: tw.f64["n"], rounds: tw.i64) -> Any:
    """As many elements more in each round as are joined to it, of an array inside of a point."""

    def point(i: Any) -> Any:
        longer = tw.concat(tw.map(lambda e: e * 2.0 + i, v), tw.replicate(2, 7.0))
        return tw.concat(longer, tw.map(lambda e: -e, longer))

    return tw.map(point, tw.iota(rounds))


PROGRAMS: list[Callable[..., Any]] = [tree, turned, between, twice, stepwise]


@settings(max_examples=examples(40), deadline=None)
@given(
    function=st.sampled_from([*PROGRAMS, rows, columns]),
    length=st.sampled_from([1, 2, 3, 5, 8, 9, 17, 40]),
    rounds=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_joined_in_rounds(function: Callable[..., Any], length: int, rounds: int, seed: int) -> None:
    shape = (3, length) if function in (rows, columns) else (length,)
    if function is between and length == 1:
        length, shape = 2, (2,)
    x = np.random.default_rng(seed).standard_normal(shape)
    check(tw.program(function).trace(), [x, rounds], optimise=True)


@pytest.mark.parametrize("k", [0, 1, 5])
def test_parts_of_any_size(k: int) -> None:
    v = np.arange(6.0)
    found = tw.program(unknown)(v, 4, k)
    np.testing.assert_allclose(found, [v.sum() + 6 * i + k for i in range(4)])


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    kernels: list[Kernel] = []
    compile_ = cpu_device._compile
    monkeypatch.setattr(cpu_device, "_compile", lambda kernel: (kernels.append(kernel), compile_(kernel))[1])
    v = np.random.default_rng(0).standard_normal(50)
    expected = v
    for _ in range(40):
        expected = np.concatenate([0.25 * expected[1:] + 0.75 * expected[:-1], expected[-1:]])
    np.testing.assert_allclose(tw.program(tree)(v, 40), expected)
    (whole,) = [one for one in kernels if one.name.endswith("_whole")]
    own = [one.name for one in whole.buffers if one.space is Space.GLOBAL and "own" in one.name]
    assert len(own) == 1, "beside the two that rounds take turns with there is none"
