"""Loops that read an array ahead of where they write it: no round waits for another one's elements."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.scalars import F64, I64
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Expression, Name, Statement, add, integer, multiply, operation
from tilewright.passes.points.waiting_last import all_waiting_last, read_ahead

X, HERE, INNER, OTHER = Buffer("x", F64), Name("i", I64), Name("j", I64), Name("k", I64)


def moved(read: Expression, written: Expression) -> tuple[Statement, ...]:
    return ir.Let("e", ir.Load(X, read, F64)), ir.Store(X, written, Name("e", F64))


@pytest.mark.parametrize(
    ("read", "written", "ahead"),
    [
        (add(HERE, integer(1)), HERE, True),
        (add(add(HERE, OTHER), integer(3)), add(add(OTHER, HERE), integer(2)), True),
        (multiply(integer(2), HERE), add(multiply(HERE, integer(2)), integer(-1)), True),
        (HERE, HERE, False),
        (HERE, add(HERE, integer(1)), False),
        (add(HERE, integer(1)), multiply(integer(-1), HERE), False),  # two directions
        (multiply(HERE, HERE), HERE, False),
        (add(OTHER, integer(1)), OTHER, False),  # one place in all rounds
        (add(HERE, OTHER), HERE, False),
    ],
)
def test_which_loops_read_ahead(read: Expression, written: Expression, ahead: bool) -> None:
    assert (read_ahead(moved(read, written), "i") == {"x"}) is ahead


def test_a_loop_inside_may_come_back() -> None:
    inner = ir.For("j", integer(0), integer(9), moved(add(add(HERE, INNER), integer(1)), add(HERE, INNER)))
    assert read_ahead((inner,), "i") == set()
    assert read_ahead(inner.body, "j") == {"x"}


def test_folds_wait_for_one_comparison() -> None:
    acc, e = Name("acc", F64), Name("e", F64)
    body = (ir.Let("e", ir.Load(X, HERE, F64)), ir.Let("t", operation("max", acc, e)), ir.Assign("acc", Name("t", F64)))
    (found,) = all_waiting_last((ir.For("i", integer(0), integer(9), body),))
    assert isinstance(found, ir.For) and found.body == (body[0], ir.Let("t", operation("max", e, acc)), body[2])
    together = ir.For("i", integer(0), integer(9), body, independent=True)
    assert all_waiting_last((together,)) == (together,)
    points = ir.For("j", integer(0), integer(9), (ir.For("i", integer(0), integer(9), body),), independent=True)
    (outer,) = all_waiting_last((points,))
    assert isinstance(outer, ir.For) and outer.body == (found,)


@tw.program
def sorted_by_bubbles(x: tw.f64["n"]) -> Any:
    (n,) = x.shape

    def outer(p: Any, x: Any) -> Any:
        def inner(i: Any, x: Any, most: Any) -> Any:
            here = x[i + 1]
            return tw.update(x, i, tw.minimum(most, here)), tw.maximum(most, here)

        x, most = tw.loop(n - 1, (x, x[0]), inner)
        return tw.update(x, n - 1, most)

    return tw.loop(n, x, outer)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-9, 9), min_size=1, max_size=20))
def test_bubbles_sort(numbers: list[float]) -> None:
    np.testing.assert_array_equal(sorted_by_bubbles(np.array(numbers), target="cpu"), np.sort(numbers))


def test_bubbles_keep_nan() -> None:
    found = sorted_by_bubbles(np.array([2.0, np.nan, 1.0]), target="cpu")
    assert np.isnan(found).any()
