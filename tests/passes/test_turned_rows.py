"""Rows that rounds of points in lanes go through are copied where they are few and short, into memory for no more."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.passes.items.lane_arrays import LONGEST_TURNED, MOST_TURNED
from tilewright.passes.lanes.lane_loops import LANES
from tilewright.passes.points import point_kernels
from tilewright.runtime.host import KernelPlan


@tw.program
def damped(rows: tw.f64["m", "n"], rounds: tw.i64) -> Any:
    """Three numbers, each of whose rounds sums up a row."""

    def one(row: Any) -> Any:
        def step(_: Any, now: Any) -> Any:
            return tw.map(lambda a: a * 0.5 + tw.reduce("add", 0.0, tw.map(lambda b: a + b, row)), now)

        return tw.loop(rounds, tw.replicate(3, 1.0), step)

    return tw.map(one, rows)


@tw.program
def filled(rows: tw.f64["m", "k", "n"]) -> Any:
    """Elements that rounds only replace, of sums over a matrix of each point."""

    def one(matrix: Any) -> Any:
        def step(k: Any, total: Any, out: Any) -> Any:
            now = total * 0.5 + tw.reduce("add", 0.0, tw.map(lambda row: row[0] * row[row.shape[0] - 1], matrix))
            return now, tw.update(out, 2 - k, now)

        return tw.loop(3, (1.0, tw.replicate(4, 7.0)), step)[1]

    return tw.map(one, rows)


@pytest.mark.parametrize("m", [LANES - 1, 2 * LANES + 3])
@pytest.mark.parametrize("n", [1, LONGEST_TURNED, LONGEST_TURNED + 1])
def test_sums_over_short_and_long_rows(m: int, n: int) -> None:
    rows = np.random.default_rng(n).integers(-3, 4, (m, n)).astype(float)
    expected = np.ones(m)
    for _ in range(2):
        expected = expected * 0.5 + n * expected + rows.sum(axis=1)
    np.testing.assert_array_equal(damped(rows, 2, target="cpu"), np.repeat(expected[:, None], 3, axis=1))


@pytest.mark.parametrize("k", [1, MOST_TURNED // 4, MOST_TURNED // 4 + 1])
def test_few_and_many_rows(k: int) -> None:
    rows = np.random.default_rng(k).integers(-3, 4, (LANES + 1, k, 4)).astype(float)
    now, expected = np.ones(LANES + 1), np.full((LANES + 1, 4), 7.0)
    for place in (2, 1, 0):
        now = now * 0.5 + (rows[:, :, 0] * rows[:, :, 3]).sum(axis=1)
        expected[:, place] = now
    np.testing.assert_array_equal(filled(rows, target="cpu"), expected)


def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[KernelPlan] = []
    plan = point_kernels._plan

    def seen(*values: Any) -> KernelPlan:
        plans.append(plan(*values))
        return plans[-1]

    monkeypatch.setattr(point_kernels, "_plan", seen)
    tw.program(damped.function)(np.ones((2 * LANES, 4)), 1, target="cpu")
    rooms = [one.size.evaluate({"n": 10**6, "m": 2 * LANES}) for each in plans for one in each.scratch]
    assert rooms
    assert max(rooms) <= LANES * MOST_TURNED
