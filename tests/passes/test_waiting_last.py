"""Loops whose rounds wait for least and greatest values of one another."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.scalars import F64, I64
from tilewright.kernel.ir import (
    Assign,
    Buffer,
    Expression,
    If,
    Let,
    Load,
    Name,
    Operation,
    Statement,
    Store,
    add,
    integer,
    operation,
)
from tilewright.passes.points.waiting_last import with_waiting_last

LEFT, UP, CORNER, COST = (Name(name, F64) for name in ("left", "up", "corner", "cost"))


def least(*operands: Expression) -> Operation:
    return operation("min", *operands)


def t(number: int) -> Name:
    return Name(f"t{number}", F64)


def test_what_is_waited_for_comes_last() -> None:
    body = (
        Let("t1", least(LEFT, UP)),
        Let("t2", least(t(1), CORNER)),
        Let("t3", add(t(2), COST)),
        Assign("left", t(3)),
        Assign("corner", UP),
    )
    assert with_waiting_last(body) == (Let("t2", least(least(UP, CORNER), LEFT)), *body[2:])


def test_values_that_only_pass_are_not_waited_for() -> None:
    """`corner` is what another variable was in the round before: no chain goes through it."""
    body: tuple[Statement, ...] = (Let("t1", least(CORNER, UP)), Assign("corner", UP), Assign("other", t(1)))
    assert with_waiting_last(body) == body


def test_what_waits_longest_is_the_very_last() -> None:
    body = (Let("t1", add(LEFT, COST)), Let("t2", least(t(1), LEFT)), Let("t3", least(t(2), UP)), Assign("left", t(3)))
    assert with_waiting_last(body) == (body[0], Let("t3", least(least(UP, LEFT), t(1))), body[3])


def test_memory_that_rounds_read_and_write_is_waited_for() -> None:
    row = Buffer("row", F64)
    index = Name("j", I64)
    body = (Let("t1", Load(row, index, F64)), Let("t2", least(t(1), UP)), Store(row, add(index, integer(1)), t(2)))
    assert with_waiting_last(body) == (body[0], Let("t2", least(UP, t(1))), body[2])


def test_values_that_are_used_elsewhere_stay() -> None:
    body = (Let("t1", least(LEFT, UP)), Let("t2", least(t(1), CORNER)), Assign("left", t(2)), Assign("seen", t(1)))
    assert with_waiting_last(body) == (
        Let("t1", least(UP, LEFT)), Let("t2", least(CORNER, t(1))), *body[2:],
    )  # fmt: skip


@pytest.mark.parametrize("inside", [False, True])
def test_nothing_moves_past_an_assignment_of_what_it_reads(inside: bool) -> None:
    change: Statement = Assign("left", add(LEFT, COST))
    body = (
        Let("t1", least(LEFT, UP)),
        If(operation("lt", UP, COST), (change,), ()) if inside else change,
        Let("t2", least(t(1), LEFT)),
        Assign("left", t(2)),
    )
    found = with_waiting_last(body)
    assert len(found) == 4 and found[1] == body[1]
    assert found[0] == Let("t1", least(UP, LEFT))


@tw.program
def warped(a: tw.f64["n"], b: tw.f64["m"]) -> Any:
    """The last row of the table of dynamic time warping."""
    (m,) = b.shape

    def row(i: Any, before: Any) -> Any:
        def cell(j: Any, now: Any, left: Any, corner: Any) -> Any:
            up = before[j]
            here = tw.abs(a[i] - b[j]) + tw.minimum(tw.minimum(left, up), corner)
            return tw.update(now, j, here), here, up

        return tw.loop(m, (before, np.inf, tw.where(i == 0, 0.0, np.inf)), cell)[0]

    return tw.loop(a.shape[0], tw.replicate(m, np.inf), row)


def warped_by_numpy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    table = np.full((a.size + 1, b.size + 1), np.inf)
    table[0, 0] = 0
    for i, j in np.ndindex(a.size, b.size):
        around = np.minimum(np.minimum(table[i, j], table[i + 1, j]), table[i, j + 1])
        table[i + 1, j + 1] = np.abs(a[i] - b[j]) + around
    return table[-1, 1:]


NUMBERS = st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, np.inf, -np.inf, np.nan]), min_size=1, max_size=9)


@settings(deadline=None, max_examples=60)
@given(NUMBERS, NUMBERS)
def test_time_warping_of_any_numbers(a: list[float], b: list[float]) -> None:
    one, two = np.array(a), np.array(b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(warped(one, two, target="cpu"), warped_by_numpy(one, two))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30), st.integers(0, 3))
def test_greatest_sums_of_neighbours(numbers: list[int], gap: int) -> None:
    """Three extrema of a variable, of another one that waits longer, and of one that does not wait."""

    @tw.program
    def best(x: tw.i64["n"], gap: tw.i64) -> Any:
        def step(i: Any, most: Any, here: Any) -> Any:
            now = tw.maximum(tw.maximum(here + x[i] - gap, x[i]), tw.minimum(here, most) - 2)
            return tw.maximum(most, now), now

        return tw.loop(x.shape[0], (-100, -100), step)

    most, here = -100, -100
    for number in numbers:
        now = max(here + number - gap, number, min(here, most) - 2)
        most, here = max(most, now), now
    assert best(np.array(numbers), gap, target="cpu") == (most, here)
