"""Arrays that a program's steps make and only replace parts of: written where they lie, and no value is lost by it."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.runtime import steps
from tilewright.runtime.executor import Executor

N = 12


def copied(program: Any, *arguments: Any) -> tuple[Any, int]:
    """What a program gives, and how many arrays of N elements its first call copies."""
    count = [0]
    copy = Executor.copy

    def seen(self: Executor, source: Any, destination: Any) -> None:
        count[0] += destination.shape == (N,)
        copy(self, source, destination)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "copy", seen)
        result = program(*arguments, target="cpu")
    return result, count[0]


def scattered(x: Any, at: Any, values: Any) -> Any:
    result = x.copy()
    result[at] = values
    return result


AT = np.array([3, 1, 7])
X = np.arange(N, dtype=np.float64)
V = np.array([0.5, 1.5, 2.5])


def test_what_is_scattered_into_a_fill_lies_in_the_fill() -> None:
    @tw.program
    def into_zeros(at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        return tw.scatter(tw.replicate(N, 0.0), at, v)

    result, count = copied(into_zeros, AT, V)
    np.testing.assert_array_equal(result, scattered(np.zeros(N), AT, V))
    assert count == 0
    np.testing.assert_array_equal(into_zeros(AT, V, target="cpu"), result)  # as it was recorded


def test_replacements_one_after_another_copy_nothing() -> None:
    @tw.program
    def chain(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        t = tw.scatter(tw.map(lambda e: e + 1, x), at, v)
        return tw.update(tw.scatter(t, at[::-1] + 1, v), 0, 9.0)

    result, count = copied(chain, X, AT, V)
    expected = scattered(scattered(X + 1, AT, V), AT[::-1] + 1, V)
    expected[0] = 9
    np.testing.assert_array_equal(result, expected)
    assert count == 0


@pytest.mark.parametrize("kept", ["result", "read later", "view is a result", "view read later", "argument"])
def test_what_is_needed_again_is_copied(kept: str) -> None:
    @tw.program
    def program(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        t = x if kept == "argument" else tw.map(lambda e: e + 1, x)
        turned = t[::-1]
        y = tw.scatter(t, at, v)
        if kept == "result":
            return y, t
        if kept == "read later":
            return y, tw.map(lambda a, b: a * b, y, t)
        if kept == "view is a result":
            return y, turned
        return (y, tw.map(lambda a, b: a * b, y, turned)) if kept == "view read later" else (y, y)

    x = X.copy()
    (y, other), count = copied(program, x, AT, V)
    old = X if kept == "argument" else X + 1
    wanted = scattered(old, AT, V)
    others = {"result": old, "read later": wanted * old, "view is a result": old[::-1]}
    others |= {"view read later": wanted * old[::-1], "argument": wanted}
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(other, others[kept])
    np.testing.assert_array_equal(x, X)
    assert count > 0


def test_rounds_that_scatter_at_computed_places_copy_nothing() -> None:
    @tw.program
    def rounds(x: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        return tw.loop(5, x, lambda i, a: tw.scatter(a, at + i, v))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: False)
        result, count = copied(rounds, X, AT, V)
    expected = X
    for i in range(5):
        at = AT + i
        expected = scattered(expected, at[at < N], V[at < N])
    np.testing.assert_array_equal(result, expected)
    assert count == 1  # into the loop's own memory


_WAYS = ("element", "row", "turned", "either", "loop", "scatter", "fresh", "sum", "view", "fill")


def _with_added(array: Any, total: Any) -> Any:
    return tw.map(lambda row: tw.map(lambda s: s + total, row), array)


def _made(instructions: list[tuple[str, int, int]], x: Any, z: Any) -> list[Any]:
    """Arrays of 4 x 3, each made of those before."""
    made = [x, z]
    for way, first, second in instructions:
        a, b = made[first % len(made)], made[second % len(made)]
        if way == "element":
            made.append(tw.update(a, (second % 4, first % 3), b[first % 4, second % 3]))
        elif way == "row":
            made.append(tw.update(a, first % 4, b[second % 4]))
        elif way == "turned":
            made.append(tw.update(a, second % 4, b[first % 4][::-1]))
        elif way == "either":
            made.append(tw.cond(b[0, 0] > 1, lambda a=a: tw.update(a, (0, 1), 1.5), lambda a=a: tw.update(a, 1, a[2])))
        elif way == "loop":
            made.append(tw.loop(2, a, lambda j, c, b=b: tw.update(c, (j, 1), b[j, 0] + c[j + 1, 2])))
        elif way == "scatter":
            made.append(tw.scatter(a, tw.map(lambda k: k * 2, tw.iota(2)), b[1:3]))
        elif way == "fresh":
            made.append(tw.map(lambda p, q: tw.map(lambda s, t: s + t, p, q), a, b))
        elif way == "sum":
            total = tw.reduce("add", 0.0, tw.map(lambda row: row[1], b))
            made.append(_with_added(a, total))
        elif way == "view":
            made.append(a[::-1])
        else:
            made.append(tw.replicate(4, tw.replicate(3, 2.5)))
    return made


@given(
    st.lists(st.tuples(st.sampled_from(_WAYS), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=7),
    st.lists(st.integers(0, 8), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([None, "incremental", "full"]),
)
@settings(max_examples=60, deadline=None)
def test_random_replacements(
    instructions: list[tuple[str, int, int]], order: list[int], on_host: bool, flattening: Any
) -> None:
    @tw.program(flattening=flattening)
    def program(x: tw.f64[4, 3], z: tw.f64[4, 3]) -> Any:
        made = _made(instructions, x, z)
        return tuple(made[-1 - one % len(made)] for one in order)

    x, z = np.arange(12.0).reshape(4, 3) / 8, np.arange(12.0, 0, -1).reshape(4, 3) / 4
    given_x, given_z = x.copy(), z.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: not on_host)
        found = program(x, z, target="cpu")
        again = program(x, z, target="cpu")
    for one, two, wanted in zip(found, again, interpret(program.trace(), (x, z)), strict=True):
        np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(two, wanted)
    np.testing.assert_array_equal(x, given_x)
    np.testing.assert_array_equal(z, given_z)
