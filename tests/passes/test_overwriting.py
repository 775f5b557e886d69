"""Arrays of loops that are written where they lie: which may be, and that no value is lost by it."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.interpreter import interpret
from tilewright.ir.parser import parse_program
from tilewright.passes.compile import prepare_program
from tilewright.passes.core.overwriting import overwriting
from tilewright.runtime import host, steps
from tilewright.runtime.devices import device_for


def _written_over(body: str, results: str, carried: str = "a: [n]f64, c: [n]f64") -> dict[str, str]:
    names = ", ".join(one.replace(":", "_out:", 1) for one in carried.split(", "))
    text = f"""def f (x: [n]f64, z: [n]f64) =
  let ({names}) = loop ({carried}) = (x, z) for i: i64 < n do
{body}
    in ({results})
  in (a_out)"""
    (statement,) = parse_program(text).body.statements
    return {name: array.name for name, array in overwriting(statement).items()}


def test_an_update_whose_array_is_not_needed_again() -> None:
    body = "    let (b: [n]f64) = a with [i] = 1.0f64"
    assert _written_over(body, "b, c") == {"b": "a", "a": "a", "c": "c"}


def test_reads_before_the_update_are_no_obstacle() -> None:
    body = """    let (row: [n - i]f64) = a[i:+n - i]
    let (e: f64) = row[0i64]
    let (b: [n]f64) = a with [i] = e"""
    assert _written_over(body, "b, c") == {"b": "a", "a": "a", "c": "c"}


@pytest.mark.parametrize(
    ("body", "results"),
    [
        ("    let (b: [n]f64) = a with [i] = 1.0f64\n    let (d: [n]f64) = c with [i] = 2.0f64", "d, b"),
        (
            "    let (b: [n]f64) = a with [i] = 1.0f64\n    let (e: f64) = a[i]\n"
            "    let (d: [n]f64) = b with [i] = e\n    let (g: [n]f64) = map n (\\(s: f64) ->\n"
            "      let (t: f64) = s + e\n      in (t)) z",
            "d, g",
        ),
        (
            "    let (r: [n]f64) = a[n - 1:+n by -1]\n    let (b: [n]f64) = a with [i] = 1.0f64\n"
            "    let (e: f64) = r[i]\n    let (d: [n]f64) = b with [i] = e\n"
            "    let (g: [n]f64) = map n (\\(s: f64) ->\n      let (t: f64) = s + e\n      in (t)) z",
            "d, g",
        ),
        ("    let (b: [n]f64) = a with [i] = 1.0f64\n    let (d: [n]f64) = b[n - 1:+n by -1]", "b, d"),
    ],
    ids=["exchanged", "old element read later", "old view read later", "a view is another result"],
)
def test_what_is_needed_again_is_kept(body: str, results: str) -> None:
    assert _written_over(body, results) == {}


def test_an_array_replaced_by_a_view_of_itself_is_kept() -> None:
    text = """def f (x: [n][n]f64) =
  let (y: [n][n]f64) = loop (a: [n][n]f64) = (x) for i: i64 < n do
    let (r: [n]f64) = a[i]
    let (turned: [n]f64) = r[n - 1:+n by -1]
    let (b: [n][n]f64) = a with [i] = turned
    in (b)
  in (y)"""
    assert overwriting(parse_program(text).body.statements[0]) == {}


# --- executed ---------------------------------------------------------------------------------------------------------


def test_rounds_of_a_kernel_write_one_element() -> None:
    @tw.program
    def filtered(x: tw.f64["n"], a: tw.f64) -> Any:
        first = tw.update(tw.replicate(x.shape[0], 0.0), 0, x[0])
        return tw.loop(x.shape[0] - 1, first, lambda i, y: tw.update(y, i + 1, a * y[i] + x[i + 1]))

    x = np.arange(1.0, 9.0)
    wanted = functools.reduce(lambda y, one: [*y, 0.5 * y[-1] + one], x[1:], [x[0]])
    np.testing.assert_allclose(filtered(x, 0.5), wanted, rtol=1e-15)
    block = prepare_program(filtered.trace(), device_for("cpu"))[0].block
    kernel = next(one for one in block.steps if isinstance(one, host.KernelStep) and "t_10" in one.label)
    layouts = tuple((one.name, host.Layout((), dense=True, at_start=True)) for one in (*kernel.reads, *kernel.targets))
    assert kernel.lower(layouts).scratch == ()


def test_nested_loops_and_choices_on_the_host() -> None:
    @tw.program
    def table(x: tw.f64["n"], size: tw.i64) -> Any:
        def outer(i: Any, t: Any) -> Any:
            def inner(j: Any, t: Any) -> Any:
                def best() -> Any:
                    return tw.update(t, (i, j), tw.reduce("max", -np.inf, tw.map(lambda e: e * t[i, j], x)))

                return tw.cond(x[j] > 1, best, lambda: t)

            return tw.loop(size, tw.scatter(t, tw.iota(1), tw.replicate((1, size), 2.0)), inner)

        return tw.loop(size, tw.replicate((size, size), 1.0), outer)

    def blocks(block: host.Block) -> Any:
        for one in block.steps:
            yield one
            for name in ("body", "then"):
                yield from blocks(getattr(one, name)) if hasattr(one, name) else ()

    x = np.array([2.0, 4.0, -1.0])
    found = list(blocks(prepare_program(table.trace(), device_for("cpu"))[0].block))
    assert [one.in_place for one in found if isinstance(one, host.UpdateStep)] == [True]
    assert [one.own for one in found if isinstance(one, host.LoopStep)] == [(0,), ()]
    assert [one.in_place for one in found if isinstance(one, host.KernelStep) and one.copied] == [(0,)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: False)
        (wanted,) = interpret(table.trace(), (x, 3))
        np.testing.assert_array_equal(table(x, 3), wanted)


def test_a_choice_by_a_kernel_in_a_loop_of_the_host() -> None:
    @tw.program
    def marked(x: tw.f64["n"], rounds: tw.i64) -> Any:
        def step(i: Any, seen: Any, count: Any) -> Any:
            best = tw.reduce("max", -np.inf, tw.map(lambda e: e * i, x))
            other = tw.scan("add", 0, tw.map(lambda e: e * i, x))
            seen, count = tw.cond(
                best > 3,
                lambda: (tw.update(seen, i, best), tw.update(count, 0, count[0] + other[1])),
                lambda: (seen, count),
            )
            return seen, count

        return tw.loop(rounds, (tw.replicate(rounds, 1.0), tw.replicate(2, 0.0)), step)

    x = np.array([2.0, 1.0, -1.0])
    (loop,) = [one for one in prepare_program(marked.trace(), device_for("cpu"))[0].block.steps if hasattr(one, "own")]
    assert loop.own == (0, 1)
    assert [one.in_place for one in loop.body.steps if getattr(one, "copied", ())] == [(0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: False)
        seen, count = marked(x, 4)
    np.testing.assert_array_equal(seen, [1, 1, 4, 6])
    np.testing.assert_array_equal(count, [15, 0])


_WAYS = ("element", "row", "turned", "either", "loop", "scatter", "read", "old")


def _round(instructions: list[tuple[str, int, int]], order: list[int]) -> Any:
    """A loop's body: instructions on arrays of 4 x 3, each of which makes one; some of all of them are given back."""

    def body(i: Any, *carried: Any) -> Any:
        made, total = list(carried), tw.reduce("add", 0, tw.map(lambda e: e, carried[0][0]))
        for way, first, second in instructions:
            a, b = made[first % len(made)], made[second % len(made)]
            at = (i + second) % 4
            if way == "element":
                made.append(tw.update(a, (at, first % 3), b[first % 4, second % 3] + total))
            elif way == "row":
                made.append(tw.update(a, at, b[second % 4]))
            elif way == "turned":
                made.append(tw.update(a, at, b[first % 4][::-1]))
            elif way == "either":
                made.append(tw.cond(total > 3, lambda a=a: tw.update(a, (0, 1), 1.5), lambda b=b: b))
            elif way == "loop":
                made.append(tw.loop(2, a, lambda j, c, b=b: tw.update(c, (j, 1), b[j, 0] + c[j + 1, 2])))
            elif way == "scatter":
                made.append(tw.scatter(a, tw.map(lambda k: k * 2, tw.iota(2)), b[1:3]))
            elif way == "read":
                total = total + a[at, 1]
            else:
                made.append(a)
        return tuple(made[-1 - one % len(made)] for one in order)

    return body


@given(
    st.lists(st.tuples(st.sampled_from(_WAYS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    st.lists(st.integers(0, 6), min_size=2, max_size=2),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_random_rounds(instructions: list[tuple[str, int, int]], order: list[int], on_host: bool) -> None:
    @tw.program
    def rounds(x: tw.f64[4, 3], z: tw.f64[4, 3]) -> Any:
        return tw.loop(3, (x, z), _round(instructions, order))

    x, z = np.arange(12.0).reshape(4, 3) / 8, np.arange(12.0, 0, -1).reshape(4, 3) / 4
    given_x, given_z = x.copy(), z.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: not on_host)
        found = rounds(x, z)
        again = rounds(x, z)
    for one, two, wanted in zip(found, again, interpret(rounds.trace(), (x, z)), strict=True):
        np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(two, wanted)
    np.testing.assert_array_equal(x, given_x)
    np.testing.assert_array_equal(z, given_z)
