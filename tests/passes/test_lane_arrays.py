"""Points in lanes whose loops carry arrays: states that lie side by side, take turns, or are read where rounds say."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.passes.lanes.lane_loops import LANES, reads_at_computed_places

POINTS = st.sampled_from([0, 1, LANES - 1, LANES, LANES + 1, 2 * LANES + 5])
TOGETHER = f"{LANES} of them at once in the lanes of vectors"


@tw.program
def nearest(points: tw.f64["n", "d"], queries: tw.f64["m", "d"], best: tw.f64["m", "k"]) -> Any:
    """Distances are put into sorted rows: a round makes both of them anew from elements and those before."""

    def one(query: Any, best: Any) -> Any:
        k = best.shape[0]

        def step(i: Any, best: Any, at: Any) -> Any:
            distance = tw.reduce("add", 0.0, tw.map(lambda a, b: (a - b) * (a - b), points[i], query))

            def place(j: Any, mine: Any, number: Any) -> Any:
                before = tw.maximum(j - 1, 0)
                moves = (j > 0) & (distance < best[before])
                return (
                    tw.where(distance < mine, tw.where(moves, best[before], distance), mine),
                    tw.where(distance < mine, tw.where(moves, at[before], i), number),
                )

            return tw.map(place, tw.iota(k), best, at)

        return tw.loop(points.shape[0], (best, tw.replicate(k, -1)), step)

    return tw.map(one, queries, best)


@settings(deadline=None, max_examples=30)
@given(m=POINTS, n=st.integers(0, 9), d=st.integers(1, 4), k=st.sampled_from([1, 2, 8, 9, 20]), seed=st.integers(0, 99))
def test_states_that_take_turns(m: int, n: int, d: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    points, queries = random.random((n, d)), random.random((m, d))
    found, numbers = nearest(points, queries, np.full((m, k), np.inf), target="cpu")
    distances = ((queries[:, None] - points) ** 2).sum(axis=2)
    order = np.argsort(distances, axis=1)[:, :k]
    expected = np.take_along_axis(distances, order, axis=1)
    np.testing.assert_allclose(found[:, : min(n, k)], expected, rtol=1e-12)
    np.testing.assert_array_equal(numbers[:, : min(n, k)], order)
    assert np.all(np.isinf(found[:, n:]))
    assert np.all(numbers[:, n:] == -1)


@tw.program
def mixed(x: tw.f64["m", "n"], places: tw.i64["t", "n"]) -> Any:
    """Each round mixes a row with its elements at computed places, by a map or where it lies."""

    def one(row: Any) -> Any:
        def anew(t: Any, now: Any) -> Any:
            return tw.map(lambda j, e: e + 2.0 * now[places[t, j]], tw.iota(row.shape[0]), now)

        def there(t: Any, now: Any) -> Any:
            def single(j: Any, now: Any) -> Any:
                return tw.update(now, j, now[j] - now[places[t, j]])

            return tw.loop(row.shape[0], now, single)

        first = tw.loop(places.shape[0], row, anew)
        return first, tw.loop(places.shape[0], first, there)

    return tw.map(one, x)


@settings(deadline=None, max_examples=30)
@given(m=POINTS, n=st.sampled_from([1, 3, 16, 33]), t=st.integers(0, 4), seed=st.integers(0, 99))
def test_states_read_at_computed_places(m: int, n: int, t: int, seed: int) -> None:
    """Whole numbers, whose sums are exact; the first result is also where the second loop starts from."""
    random = np.random.default_rng(seed)
    x, places = random.integers(-3, 4, (m, n)).astype(float), random.integers(0, n, (t, n))
    found = mixed(x, places, target="cpu")
    expected = x.copy()
    for one in places:
        expected = expected + 2.0 * expected[:, one]
    np.testing.assert_array_equal(found[0], expected)
    for one in places:
        for j in range(n):
            expected[:, j] -= expected[:, one[j]]
    np.testing.assert_array_equal(found[1], expected)


@tw.program
def read_later(x: tw.f64["m", "n"], outer: tw.i64, rounds: tw.i64) -> Any:
    """A row that rounds go through in a loop that may have no round, and that is read after it once more."""

    def one(row: Any) -> Any:
        def far(i: Any, now: Any) -> Any:
            def near(j: Any, now: Any) -> Any:
                return tw.map(lambda e: e + tw.reduce("add", 0.0, tw.map(lambda a: a * 2.0, row)), now)

            return tw.loop(rounds, now, near)

        sums = tw.loop(outer, tw.replicate(3, 1.0), far)
        return sums, tw.loop(2, row, lambda i, now: tw.map(lambda a, b: a - 3.0 * b, now, row))

    return tw.map(one, x)


@settings(deadline=None, max_examples=30)
@given(m=POINTS, n=st.sampled_from([1, 4, 8]), outer=st.integers(0, 2), rounds=st.integers(0, 2))
def test_rows_in_loops_without_rounds_are_read_later(m: int, n: int, outer: int, rounds: int) -> None:
    x = np.random.default_rng(m + n).integers(-3, 4, (m, n)).astype(float)
    sums, rest = read_later(x, outer, rounds, target="cpu")
    np.testing.assert_array_equal(sums, np.repeat(1.0 + outer * rounds * 2.0 * x.sum(axis=1)[:, None], 3, axis=1))
    np.testing.assert_array_equal(rest, -5.0 * x)


def test_they_are_said_to_go_in_lanes() -> None:
    assert all(TOGETHER in one.explain() for one in (nearest, mixed, read_later))


def test_which_loops_read_at_computed_places() -> None:
    text = """def f (x: [n]f64, p: [n]i64) =
      let (y: [n]f64) = loop (a: [n]f64) = (x) for i: i64 < n do
        let (q: i64) = PLACE
        let (e: f64) = a[q]
        let (b: [n]f64) = a with [i] = e
        in (b)
      in (y)"""

    def computed(place: str) -> bool:
        loop: Any = parse_program(text.replace("PLACE", place)).body.statements[0].expression
        return reads_at_computed_places(loop)

    assert computed("p[i]")
    assert not computed("size(i + 0)")
    assert not computed("size(max(0, i - 1))")
