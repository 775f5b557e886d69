"""Indices that count with a loop are checked at its ends; loops are split at several places; what is out is told."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.index_ranges import is_within
from tilewright.ir.sizes import maximum, minimum, size
from tilewright.kernel.ir import For, Kernel, Let, Load
from tilewright.kernel.traversal import walk
from tilewright.runtime import cpu_device


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels that are compiled for the CPU."""
    found: list[Kernel] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        found.append(kernel)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    return found


def unchecked(loop: For) -> bool:
    """Whether a loop reads elements and compares no index with an extent."""
    lets = [one for one in walk(loop.body) if isinstance(one, Let)]
    return any(isinstance(one.value, Load) for one in lets) and not any(one.name.startswith("outside") for one in lets)


def quick_loops(found: list[Kernel]) -> int:
    """Innermost loops over points without checks."""
    loops = [one for each in found for one in walk(each.body) if isinstance(one, For) and one.independent]
    return sum(map(unchecked, loops))


def rolled(shifts: tuple[int, int]) -> tw.TracedProgram:
    @tw.program
    def moved(x: tw.i64["n", "m"]) -> Any:
        rows = tw.roll(x, shifts[0], 0) + x
        return rows + 3 * tw.roll(rows, shifts[1], 1) + 5 * tw.roll(rows, -shifts[1], 1)

    return moved


def shifted() -> tw.TracedProgram:
    @tw.program
    def differences(x: tw.f64["n"], count: tw.i64, by: tw.i64) -> Any:
        return tw.map(lambda i: x[i + by] - x[i], tw.iota(count))

    return differences


DIFFERENCES = shifted()


def test_an_index_below_one_more_than_a_number_tells_that_it_is_not_negative() -> None:
    i, n = size("i"), size("n")
    assert is_within(minimum(i + 1, n), n + 1, {"i": n + 1})
    assert is_within(minimum(i, n - 3), n - 2, {"i": n - 2})
    assert not is_within(minimum(i + 1, n - 1), n, {"i": n + 1})  # n may be 0
    assert not is_within(maximum(i - 1, n), n + 1, {"i": n + 2})
    assert not is_within(minimum(i + 1, n), n + 1, {})


@given(st.integers(0, 5), st.integers(0, 70), st.integers(-80, 80), st.integers(-80, 80))
@settings(deadline=None, max_examples=40)
def test_rolled_arrays(n: int, m: int, down: int, right: int) -> None:
    x = np.arange(n * m).reshape(n, m) * 7 % 31
    rows = np.roll(x, down, 0) + x
    expected = rows + 3 * np.roll(rows, right, 1) + 5 * np.roll(rows, -right, 1)
    assert (rolled((down, right))(x) == expected).all()


def test_rolled_arrays_are_read_where_they_lie(kernels: list[Kernel]) -> None:
    assert rolled((2, 2))(np.ones((9, 50), np.int64)).sum() == 18 * 450
    assert quick_loops(kernels) >= 4


def test_shifted_reads_are_checked_at_the_ends(kernels: list[Kernel]) -> None:
    assert (shifted()(np.arange(90.0), 80, 10) == 10).all()
    assert quick_loops(kernels) == 1


@given(st.integers(1, 40), st.integers(0, 45), st.integers(-3, 45))
@settings(deadline=None, max_examples=60)
def test_what_is_out_of_range_is_told(n: int, count: int, by: int) -> None:
    x = np.arange(float(n)) ** 2
    bad = [one for i in range(count) for one in (i + by, i) if not 0 <= one < n]
    if bad:
        with pytest.raises(IndexError, match=rf"index {bad[0]} "):
            DIFFERENCES(x, count, by)
    else:
        assert (DIFFERENCES(x, count, by) == x[by : by + count] - x[:count]).all()


@tw.program
def binomial_tree(v: tw.f64["k"], steps: tw.i64, q: tw.f64) -> Any:
    """Values on the way back through a tree; what lies beyond the round's stays."""

    def step(n: Any, v: Any) -> Any:
        def at(i: Any) -> Any:
            return tw.where(i < steps - n, q * v[tw.minimum(i + 1, steps)] + (1.0 - q) * v[i], v[i])

        return tw.map(at, tw.iota(steps + 1))

    return tw.loop(steps, tw.map(lambda i: v[i], tw.iota(steps + 1)), step)


@given(st.integers(0, 50), st.integers(0, 9))
@settings(deadline=None, max_examples=25)
def test_two_cuts_one_inside_of_the_other(steps: int, seed: int) -> None:
    v = np.random.default_rng(seed).random(steps + 1)
    expected = v.copy()
    for n in range(steps):
        expected[: steps - n] = 0.3 * expected[1 : steps - n + 1] + 0.7 * expected[: steps - n]
    np.testing.assert_allclose(binomial_tree(v, steps, 0.3), expected, rtol=1e-12)


@tw.program
def three_joined(x: tw.f64["a"], y: tw.f64["b"], z: tw.f64["c"], w: tw.f64["a+b+c"]) -> Any:
    return tw.concat(x, y, z) * 2 + w


@given(*(st.integers(0, 100) for _ in range(3)))
@settings(deadline=None, max_examples=25)
def test_several_joined_arrays(a: int, b: int, c: int) -> None:
    x, y, z = (np.arange(float(n)) + k for k, n in enumerate((a, b, c)))
    w = np.arange(float(a + b + c)) ** 2
    assert (three_joined(x, y, z, w) == np.concatenate((x, y, z)) * 2 + w).all()


@tw.program
def guarded(x: tw.f64["n"], wanted: tw.bool_["n"]) -> Any:
    """What the last element would read does not exist, and it need not, where it is not wanted."""

    def at(i: Any, chosen: Any, e: Any) -> Any:
        return tw.cond(chosen, lambda: x[i + 1] + e, lambda: e)

    return tw.map(at, tw.iota(x.shape[0]), wanted, x)


@pytest.mark.parametrize("n", [1, 2, 33, 100])
def test_guarded_reads_beyond_the_end(n: int) -> None:
    x = np.arange(float(n))
    wanted = np.arange(n) % 3 == 1
    wanted[-1] = False
    following = np.append(x[1:], 0.0)
    assert (guarded(x, wanted) == x + np.where(wanted, following, 0)).all()
    wanted[-1] = True
    with pytest.raises(IndexError, match=rf"index {n} "):
        guarded(x, wanted)
