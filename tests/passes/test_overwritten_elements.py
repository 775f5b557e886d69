"""Elements picked out of arrays that are written over afterwards: what is computed with them has what they were."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.runtime import steps
from tilewright.runtime.executor import Executor

N = 12
B = np.arange(1.0, N + 1)
AT = np.array([3, 0, 7])
V = np.array([100.0, 200.0, 300.0])


def squared(b: Any) -> Any:
    return tw.map(lambda e: e * e, b)


def times(array: Any, factor: Any) -> Any:
    return tw.map(lambda e: e * factor, array)


def used_after(b: Any, at: Any, v: Any) -> Any:
    made = squared(b)
    first = made[0]
    return times(tw.scatter(made, at, v), first)


def used_by_the_scatter(b: Any, at: Any, v: Any) -> Any:
    made = squared(b)
    return tw.scatter(made, at, times(v, made[3]))


def a_result(b: Any, at: Any, v: Any) -> Any:
    made = squared(b)
    first = made[0]
    return tw.scatter(made, at, v), first


def after_an_update(b: Any, at: Any, v: Any) -> Any:
    made = squared(b)
    first = made[0]
    return times(tw.update(made, 0, v[1]), first)


def of_a_choice(b: Any, at: Any, v: Any) -> Any:
    made = squared(b)
    some = tw.cond(b[1] > 0, lambda: made[0], lambda: made[1])
    return times(tw.scatter(made, at, v), some)


def in_rounds(b: Any, at: Any, v: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        first = a[i]
        return times(tw.scatter(a, at, v), first)

    return tw.loop(3, b, body)


def carried(b: Any, at: Any, v: Any) -> Any:
    def body(i: Any, a: Any, first: Any) -> Any:
        return tw.scatter(a, at, times(v, 0.5)), a[0]

    made, first = tw.loop(2, (squared(b), b[2]), body)
    return times(tw.scatter(made, at, v), first)


WAYS: list[Callable[..., Any]] = [
    used_after, used_by_the_scatter, a_result, after_an_update, of_a_choice, in_rounds, carried,
]  # fmt: skip


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("flattening", [None, "full"])
@pytest.mark.parametrize("way", WAYS)
def test_an_element_is_what_it_was(way: Callable[..., Any], flattening: Any, on_host: bool) -> None:
    @tw.program(flattening=flattening)
    def program(b: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        return way(b, at, v)

    wanted = interpret(program.trace(), (B, AT, V))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: not on_host)
        for _ in range(3):  # as it is computed, as it was recorded, by native code
            found = program(B, AT, V, target="cpu")
            for one, other in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_an_element_that_is_moved_within_its_array_needs_no_copy() -> None:
    @tw.program
    def program(b: tw.f64["n"]) -> Any:
        return tw.loop(5, b, lambda i, a: tw.update(a, i, a[i + 1]))

    copied = []
    copy = Executor.copy

    def seen(self: Executor, source: Any, destination: Any) -> None:
        copied.append(destination.shape)
        copy(self, source, destination)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: False)
        patch.setattr(Executor, "copy", seen)
        result = program(B, target="cpu")
    np.testing.assert_array_equal(result, np.concatenate([B[1:6], B[5:]]))
    assert copied.count((N,)) == 1  # into the loop's own memory


WORDS = ("pick", "pick", "times", "scatter", "update", "row")


@given(
    st.lists(st.tuples(st.sampled_from(WORDS), *2 * [st.integers(0, 9)]),
             min_size=3, max_size=9),
    st.sampled_from([None, "incremental", "full"]),
    st.booleans(),
)  # fmt: skip
@example([("pick", 0, 3), ("scatter", 0, 3), ("times", 0, 3)], None, False)
@example([("pick", 0, 0), ("row", 0, 0), ("times", 0, 0)], None, True)
@settings(max_examples=40, deadline=None)
def test_random_elements(made_by: list[tuple[str, int, int]], flattening: Any, on_host: bool) -> None:
    @tw.program(flattening=flattening)
    def program(b: tw.f64["n"], at: tw.i64["k"], v: tw.f64["k"]) -> Any:
        arrays, elements = [squared(b)], [b[1]]
        for way, first, second in made_by:
            array, element = arrays[-1 - (first > 6 and len(arrays) > 1)], elements[-1 - second % min(2, len(elements))]
            if way == "pick":
                elements.append(array[second % N])
            elif way == "times":
                arrays.append(tw.map(lambda e, s=element: e * 0.5 + s, array))
            elif way == "scatter":
                arrays.append(tw.scatter(array, at, times(v, element) if second % 2 else v))
            elif way == "update":
                arrays.append(tw.update(array, second % N, element))
            else:
                arrays.append(tw.loop(2, array, lambda i, a, s=element: tw.update(a, i, a[i + 1] + s)))
        return arrays[-1], elements[-1]

    wanted = interpret(program.trace(), (B, AT, V))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: not on_host)
        for _ in range(2):
            for one, other in zip(program(B, AT, V, target="cpu"), wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-13)
