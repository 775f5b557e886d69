"""Maps, folds and carried arrays inside one work item of a CPU: loops of small rounds as one sequential kernel."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.kernel import ir as kernel
from tilewright.kernel.traversal import walk
from tilewright.passes.lanes.lane_loops import LANES as POINTS
from tilewright.passes.points import point_kernels
from tilewright.passes.points.lower_reduction import FEW, LANES
from tilewright.runtime import steps

EPS = np.finfo("f8").eps
SIZES = st.sampled_from([0, 1, 3, FEW - 1, FEW, LANES + 9, 3 * LANES, 16 * LANES + 5, POINTS, POINTS + 1, 2 * POINTS])


def kernels_of(program: Any, *arguments: Any) -> list[kernel.Kernel]:
    """The kernels that a program's first call makes."""
    found: list[kernel.Kernel] = []
    plan = point_kernels._plan
    with pytest.MonkeyPatch.context() as patch:

        def seen(*values: Any) -> Any:
            made = plan(*values)
            found.append(made.kernel)
            return made

        patch.setattr(point_kernels, "_plan", seen)
        tw.program(program.function)(*arguments, target="cpu")
    return [one for one in found if one.name.endswith("_whole")]


def on_the_host(program: Any, *arguments: Any) -> Any:
    """The results of the program with its rounds launched one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: False)
        return tw.program(program.function)(*arguments, target="cpu")


@tw.program
def power(matrix: tw.f64["n", "m"], x: tw.f64["m"], rounds: tw.i64) -> Any:
    """Folds of rows and of columns, with functions of what they give."""

    def step(_: Any, x: Any) -> Any:
        y = tw.map(lambda row: tw.tanh(tw.reduce("add", 0, tw.map(lambda a, b: a * b, row, x))), matrix)
        columns = tw.transpose(matrix)
        return tw.map(lambda column, old: old / 2 + tw.reduce("add", 0, tw.map(lambda a, b: a * b, column, y)),
                      columns, x)  # fmt: skip

    return tw.loop(rounds, x, step)


@settings(max_examples=examples(25))
@given(n=SIZES, m=SIZES, rounds=st.integers(0, 3), order=st.sampled_from("CF"), seed=st.integers(0, 99))
def test_folds_of_rows_and_columns(n: int, m: int, rounds: int, order: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = max(n, m, 1)
    matrix, x = np.asarray(rng.uniform(-1, 1, (n, m)) / scale, order=order), rng.uniform(-1, 1, m)
    expected = x
    for _ in range(rounds):
        expected = expected / 2 + np.tanh(matrix @ expected) @ matrix
    # Each round's sums are of at most n and m terms of at most 1 / scale, and shrink what was wrong before.
    bound = 4 * EPS * (rounds + 1) * (n + m + 8)
    got = power(matrix, x, rounds, target="cpu")
    assert np.abs(got - expected).max(initial=0) <= bound
    assert np.abs(on_the_host(power, matrix, x, rounds) - expected).max(initial=0) <= bound


@tw.program
def best_steps(cost: tw.f64["n", "n"], start: tw.f64["n"], rounds: tw.i64) -> Any:
    """The cheapest step to each place, and where from: a fold of pairs over the columns."""
    n = start.shape[0]

    def less(one: Any, two: Any) -> Any:
        return tw.where(two[0] < one[0], two[0], one[0]), tw.where(two[0] < one[0], two[1], one[1])

    def step(i: Any, now: Any, chosen: Any) -> Any:
        def place(column: Any) -> Any:
            return tw.reduce(less, (np.inf, -1), tw.map(lambda a, b: a + b, now, column), tw.iota(n))

        value, origin = tw.map(place, tw.transpose(cost))
        return value, tw.update(chosen, i, origin)

    return tw.loop(rounds, (start, tw.replicate(rounds, tw.replicate(n, -1, "i64"))), step)


@settings(max_examples=examples(25))
@given(
    n=SIZES.filter(lambda n: n < 200), rounds=st.integers(0, 4), order=st.sampled_from("CF"), seed=st.integers(0, 99)
)
def test_first_of_the_best(n: int, rounds: int, order: Any, seed: int) -> None:
    """Whole numbers, so that there are equal ones, of which the first is taken, and nothing is rounded."""
    rng = np.random.default_rng(seed)
    cost, start = np.asarray(rng.integers(0, 5, (n, n)), float, order=order), rng.integers(0, 5, n).astype(float)
    now, chosen = start, np.full((rounds, n), -1)
    for i in range(rounds if n else 0):
        sums = now[:, None] + cost
        now, chosen[i] = sums.min(0), sums.argmin(0)
    value, origin = best_steps(cost, start, rounds, target="cpu")
    np.testing.assert_array_equal(value, now)
    np.testing.assert_array_equal(origin, chosen)


@tw.program
def turned(x: tw.f64["n"], y: tw.f64["n"], z: tw.f64["n"], rounds: tw.i64) -> Any:
    """Arrays that change places, one that is written in place, and one that is what another one was."""

    def step(i: Any, x: Any, y: Any, z: Any, old: Any, total: Any) -> Any:
        moved = tw.map(lambda a, b: a + 2 * b, x, y)
        return y, moved, tw.update(z, i % z.shape[0], total), x, total + moved[0]

    return tw.loop(rounds, (x, y, z, x, 1.0), step)


@given(n=st.integers(1, 40), rounds=st.integers(0, 9), seed=st.integers(0, 99))
def test_arrays_have_two_memories(n: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, z = (rng.integers(-3, 4, n).astype(float) for _ in range(3))
    a, b, c, old, total = x, y, z.copy(), x, 1.0
    for i in range(rounds):
        moved = a + 2 * b
        c[i % n] = total
        a, b, old, total = b, moved, a, total + moved[0]
    for got, want in zip(turned(x, y, z, rounds, target="cpu"), (a, b, c, old, total), strict=True):
        np.testing.assert_array_equal(got, want)


@tw.program
def heat(x: tw.f64["n"], rounds: tw.i64) -> Any:
    n = x.shape[0]

    def step(_: Any, x: Any) -> Any:
        def point(i: Any, v: Any) -> Any:
            return tw.cond((i > 0) & (i < n - 1), lambda: x[i - 1] + v + x[i + 1], lambda: v)

        return tw.map(point, tw.iota(n), x)

    return tw.loop(rounds, x, step)


@given(n=st.integers(0, 40), rounds=st.integers(0, 5))
def test_neighbours_inside_the_edges(n: int, rounds: int) -> None:
    x = np.arange(n, dtype=float) % 7
    expected = x.copy()
    for _ in range(rounds):
        expected[1:-1] = expected[:-2] + expected[1:-1] + expected[2:]
    np.testing.assert_array_equal(heat(x, rounds, target="cpu"), expected)


def test_conjunctions_say_which_indices_are_in_range_and_rounds_copy_nothing() -> None:
    (made,) = kernels_of(heat, np.ones(9), 3)
    assert not any(one.name.startswith("errors") for one in made.buffers)
    loops = [one for one in walk(made.body) if isinstance(one, kernel.For)]
    assert sum(isinstance(one.step, kernel.Constant) and one.step.value == 2 for one in loops) == 1
    assert any(one.independent for one in loops)


@tw.program
def neither(x: tw.f64["n"], rounds: tw.i64) -> Any:
    """The other side of a disjunction, and of a negation."""
    n = x.shape[0]

    def step(_: Any, x: Any) -> Any:
        def point(i: Any, v: Any) -> Any:
            inner = tw.cond(~(i < n - 2), lambda: v, lambda: x[i + 2])
            return tw.cond((i < 2) | (i >= n), lambda: v, lambda: x[i - 2] + inner)

        return tw.map(point, tw.iota(n), x)

    return tw.loop(rounds, x, step)


def test_disjunctions_and_negations_say_it_too() -> None:
    (made,) = kernels_of(neither, np.ones(9), 3)
    assert not any(one.name.startswith("errors") for one in made.buffers)
    x = np.arange(12.0)
    inner = np.where(np.arange(12) < 10, np.roll(x, -2), x)
    expected = np.where(np.arange(12) < 2, x, np.roll(x, 2) + inner)
    np.testing.assert_array_equal(neither(x, 1, target="cpu"), expected)


@tw.program
def reads(x: tw.f64["n"], places: tw.i64["n"], rounds: tw.i64) -> Any:
    return tw.loop(rounds, x, lambda _, x: tw.map(lambda p, v: x[p] + v, places, x))


def test_an_index_out_of_range_is_told_from_a_round() -> None:
    """The first one that is wrong, though all indices of a round are checked together."""
    places = np.arange(20)
    places[[7, 11]] = 20, -1
    with pytest.raises(IndexError, match="20"):
        reads(np.ones(20), places, 4, target="cpu")
    np.testing.assert_array_equal(reads(np.ones(20), places, 0, target="cpu"), np.ones(20))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    matrix, x = rng.normal(size=(70, 50)) / 70, rng.normal(size=50)
    results = []
    for threads in (1, 2):
        with tw.num_threads(threads):
            results.append(tw.program(power.function)(matrix, x, 5, target="cpu"))
    np.testing.assert_array_equal(*results)
