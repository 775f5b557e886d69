"""Indices that wrap around, (i + shift) mod extent: what NumPy gives, side by side but at the edges, and unchecked."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.scalars import I64
from tilewright.kernel.ir import Constant, Expression, For, Kernel, Let, Load, Name, Operation, Statement
from tilewright.kernel.traversal import expressions, walk
from tilewright.passes.items.loop_cuts import cuts_of
from tilewright.runtime import cpu_device


def neighbours(shift: int, back: int) -> Any:
    """At indices from the left, with whole rounds on top, and from the right."""

    @tw.program
    def shifted(xs: tw.i64["n", "m"]) -> Any:
        n, m = xs.shape

        def cell(i: Any, j: Any) -> Any:
            left, right = xs[(i + shift) % n, (j + 2 * m + shift) % m], xs[(back - i) % n, (back - n * m - j) % m]
            return 100 * left + 10 * right + j % 2

        return tw.map(lambda i: tw.map(lambda j: cell(i, j), tw.iota(m)), tw.iota(n))

    return shifted


SHIFTED = {(shift, back): neighbours(shift, back) for shift, back in ((-1, 0), (1, -1), (0, 3), (-9, 9), (70, -70))}


@given(st.sampled_from(sorted(SHIFTED)), st.integers(1, 4), st.integers(1, 80), st.integers(0, 9))
def test_wrapped_indices(shifts: tuple[int, int], n: int, m: int, seed: int) -> None:
    xs = np.random.default_rng(seed).integers(0, 10, (n, m))
    i, j = np.arange(n)[:, None], np.arange(m)[None, :]
    shift, back = shifts
    expected = 100 * xs[(i + shift) % n, (j + shift) % m] + 10 * xs[(back - i) % n, (back - j) % m] + j % 2
    np.testing.assert_array_equal(SHIFTED[shifts](xs, target="cpu"), expected)


@tw.program
def taken(xs: tw.f64["n"], places: tw.i64["m"]) -> Any:
    """Nothing says that there are elements."""
    (n,) = xs.shape
    return tw.map(lambda place: xs[place % n], places)


@given(st.integers(1, 9), st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_places_anywhere(n: int, places: list[int]) -> None:
    xs, at = np.random.default_rng(n).random(n), np.array(places, np.int64)
    np.testing.assert_array_equal(taken(xs, at, target="cpu"), xs[at % n])


def test_of_nothing_there_is_no_element() -> None:
    with pytest.raises(IndexError, match="index 0 of xs is out of range in dimension 0 of extent 0"):
        taken(np.ones(0), np.arange(3), target="cpu")


@tw.program
def life(cells: tw.u8["n", "m"]) -> Any:
    n, m = cells.shape

    def cell(i: Any, j: Any) -> Any:
        around = [cells[(i + a) % n, (j + m + b) % m] for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
        alive = sum(around[1:], start=around[0])
        return tw.where((alive == 3) | ((alive == 2) & (cells[i, j] == 1)), 1, 0).astype(tw.u8)

    return tw.map(lambda i: tw.map(lambda j: cell(i, j), tw.iota(m)), tw.iota(n))


def remainders(statements: tuple[Statement, ...], index: str) -> int:
    """How many remainders of what mentions a loop's index its body computes."""
    bound = {one.name: one.value for one in walk(statements) if isinstance(one, Let)}

    def mentions(value: Expression) -> bool:
        if isinstance(value, Name):
            return value.name == index or (value.name in bound and mentions(bound[value.name]))
        return not isinstance(value, Load) and any(map(mentions, expressions(value)))

    every = [value for one in walk(statements) for value in expressions(one)]
    return sum(isinstance(one, Operation) and one.operator == "mod" and mentions(one) for one in every)


def test_neighbours_in_the_middle_are_side_by_side_and_unchecked(monkeypatch: Any) -> None:
    found: list[Kernel] = []
    compiled = cpu_device._compile

    def compiling(kernel: Kernel, *options: Any) -> Any:
        found.append(kernel)
        return compiled(kernel, *options)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    cells = np.random.default_rng(0).integers(0, 2, (30, 50)).astype("u1")
    alive = sum(np.roll(cells, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)
    np.testing.assert_array_equal(life(cells, target="cpu"), (alive == 3) | ((alive == 2) & (cells == 1)))
    loops = [one for kernel in found for one in walk(kernel.body) if isinstance(one, For) and one.independent]
    counts = sorted(remainders(one.body, one.index) for one in loops)
    assert counts[-1] == 3  # at the edges
    assert 0 in counts[:-1]
    assert not any("errors" in one.name for kernel in found for one in kernel.buffers)


def test_where_an_index_wraps() -> None:
    i, n = Name("i", I64), Name("n", I64)
    shifted = Let("t", Operation("mod", (Operation("add", (i, Constant(-2, I64)), I64), n), I64))
    mirrored = Let("t", Operation("mod", (Operation("sub", (Constant(3, I64), i), I64), n), I64))
    for statement, size in ((shifted, 10), (mirrored, 10), (shifted, 1), (mirrored, 2)):
        above, below = cuts_of([statement], i)
        assert above.above and not below.above and above.value == below.value == statement.value.operands[0]
        low, high = (value_of(one.edge, {"n": size}) for one in (above, below))
        for index in range(-20, 20):
            number = value_of(above.value, {"i": index, "n": size})
            assert (number % size == number) == (low <= index < high)


def value_of(expression: Any, known: dict[str, int]) -> int:
    if isinstance(expression, Name):
        return known[expression.name]
    if isinstance(expression, Constant):
        return int(expression.value)
    left, right = (value_of(one, known) for one in expression.operands)
    return left + right if expression.operator == "add" else left - right
