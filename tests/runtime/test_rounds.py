"""Loops of the host whose rounds native code repeats: their values, what ends them, and what interrupts them."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.frontend.program import TracedProgram
from tilewright.ir.interpreter import interpret
from tilewright.runtime import cpu_entry, rounds, steps
from tilewright.runtime.recording import flattened

pytestmark = pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")


@pytest.fixture(autouse=True, scope="module")
def small_rounds_on_the_host() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "pays_alone", lambda *_: False)
        patch.setattr(rounds, "FEWEST_ROUNDS", 2)
        yield


def dot(x: Any, y: Any) -> Any:
    return tw.reduce("add", 0.0, tw.map(lambda a, b: a * b, x, y))


def both(x: Any, y: Any) -> Any:
    return tw.map(lambda u, v: u + v / 2, x, y)


@tw.program
def in_turns(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    return tw.loop(count, (x, y, x), lambda i, a, b, c: (b, c, both(a, b)))


@tw.program
def exchanged(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    return tw.loop(count, (x, y), lambda i, a, b: (b, a))


@tw.program
def twice_the_same(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    def one_round(_: Any, a: Any, b: Any) -> Any:
        c = both(a, b)
        return c, c, y

    return tw.loop(count, (x, y, x), lambda i, a, b, c: one_round(i, a, b))


@tw.program
def counted(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    """The number of the round is a scalar of kernels, by itself and computed; what is carried are scalars too."""

    def one_round(i: Any, a: Any, s: Any, k: Any) -> Any:
        factor = 1.0 / (i + 1).astype(tw.f64)
        return tw.map(lambda u, v: u * factor + v * s + i.astype(tw.f64), a, y), s / 2, k + i

    return tw.loop(count, (x, 1.0, 3), one_round)


@tw.program
def within(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    def one_round(i: Any, a: Any) -> Any:
        inner = tw.loop(
            count, a, lambda j, b: tw.map(lambda u, v: u / 2 + i.astype(tw.f64) - j.astype(tw.f64) * v, b, y)
        )
        return tw.map(lambda u, v: u - v, inner, a)

    return tw.loop(3, x, one_round)


@tw.program
def halved(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    return tw.while_loop(
        lambda a, size, k: (size > 0.5) & (k < count),
        (x, 1e9, 0),
        lambda a, size, k: (tw.map(lambda u: u / 2, a), dot(a, a), k + 1),
    )


@tw.program
def halved_in_rounds(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    def one_round(_: Any, a: Any) -> Any:
        small, _ = tw.while_loop(
            lambda b, size: size > 1.0, (a, 1e9), lambda b, size: (tw.map(lambda u: u / 2, b), dot(b, b))
        )
        return tw.map(lambda u, v: u * 8.0 + v, small, y)

    return tw.loop(count, x, one_round)


@tw.program
def rounds_until_small(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    def one_round(a: Any, size: Any) -> Any:
        b = tw.loop(count, a, lambda i, c: tw.map(lambda u: u / 2, c))
        return tw.map(lambda u: u / 2, b), dot(b, b)

    return tw.while_loop(lambda a, size: size > 1e-3, (x, 1e9), one_round)


@tw.program
def one_element_each(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    """Rounds write into what they carry; where they do is checked."""
    places = tw.map(lambda v: (v * v).astype(tw.i64) % 2, y)

    def one_round(i: Any, a: Any) -> Any:
        return tw.scatter(a, places, tw.map(lambda u, v: u + v + i.astype(tw.f64), a, y))

    return tw.loop(count, x, one_round)


@tw.program
def row_by_row(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    """Rounds read and write parts of arrays whose places grow with the number of the round."""
    table = tw.map(lambda j: tw.map(lambda u: u + j.astype(tw.f64), x), tw.iota(2 * count + 2))

    def one_round(i: Any, a: Any, last: Any, kept: Any) -> Any:
        now = tw.map(lambda u, v, w: u / 2 + v - w, a, table[2 * i + 1], table[count - i])
        inner = tw.loop(2 * count, now, lambda j, b: tw.map(lambda u, v: u / 2 + v, b, table[1 + j]))
        return inner, table[i + 2, 1] + last / 2, tw.update(kept, i + 1, inner)

    return tw.loop(count, (x, 0.5, table), one_round)


@tw.program
def out_of_rows(x: tw.f64["n"], y: tw.f64["n"], count: tw.i64) -> Any:
    """Places that are no multiple of the number of the round."""
    table = tw.map(lambda j: tw.map(lambda u: u + j.astype(tw.f64), x), tw.iota(count * count + 2))
    return tw.loop(count, x, lambda i, a: tw.map(lambda u, v, w: u / 2 + v - w, a, table[i * i], table[i // 2]))


PROGRAMS = [
    in_turns, exchanged, twice_the_same, counted, within, halved, halved_in_rounds, rounds_until_small,
    one_element_each, row_by_row, out_of_rows,
]  # fmt: skip


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.function.__name__)
@settings(max_examples=examples(20))
@given(size=st.integers(2, 40), count=st.integers(0, 21), seed=st.integers(0, 999), threads=st.sampled_from([1, 2]))
def test_rounds_give_what_the_interpreter_does(
    program: TracedProgram, size: int, count: int, seed: int, threads: int
) -> None:
    random = np.random.default_rng(seed)
    x, y = random.integers(-8, 8, (2, size)) / 8
    if program is one_element_each:
        y = np.arange(size) % 2.0  # places that occur once
        x, y = x[:2], y[:2]
    expected = interpret(program.trace(), (x, y, np.int64(count)))
    before = tw.get_num_threads()
    tw.set_num_threads(threads)
    try:
        found = [as_tuple(program(x, y, count)) for _ in range(4)]  # the long way, by a plan, by native code
        given_arrays = tuple(np.zeros_like(one) for one in found[0])
        if all(one.ndim for one in given_arrays):
            program(x, y, count, out=given_arrays if len(given_arrays) > 1 else given_arrays[0])
            found.append(given_arrays)
    finally:
        tw.set_num_threads(before)
    for one in found:
        for got, wanted in zip(one, as_tuple(expected), strict=True):
            # Sums of so few squares of eighths are exact, so that both go through as many rounds.
            np.testing.assert_allclose(got, wanted, rtol=1e-13 * (1 + count), atol=1e-300)


def plans_of(program: TracedProgram) -> list[Any]:
    return [plan for executable, _ in program._executables.values() for _, plan in executable._plans.values()]


@pytest.mark.parametrize("program", [in_turns, twice_the_same, counted, halved, rounds_until_small, row_by_row])
def test_rounds_are_recorded_once(program: TracedProgram) -> None:
    own = tw.program(program.function)
    x = np.linspace(1, 2, 50)
    own(x, x, 1_000)
    plan = plans_of(own)[-1]
    assert plan.has_rounds
    assert len(list(flattened(plan.recording.records))) < 60


@tw.program
def looked_up(x: tw.f64["n"], places: tw.i64["m"], limit: tw.f64) -> Any:
    def one_round(a: Any, size: Any, k: Any) -> Any:
        found = tw.map(lambda place: a[place + k], places)
        return tw.map(lambda u: u + 1.0, a), tw.reduce("add", 0.0, found), k + 1

    return tw.while_loop(lambda a, size, k: size < limit, (x, 0.0, 0), one_round)


def test_an_index_out_of_range_in_a_later_round() -> None:
    own = tw.program(looked_up.function)
    x, places = np.zeros(40), np.array([3, 5])
    line = looked_up.function.__code__.co_firstlineno + 3
    for _ in range(4):
        assert own(x, places, 20.0)[2] > 5
        # The first place is out of range when k is 37; sums are 2 k.
        with pytest.raises(IndexError, match=rf"test_rounds.py:{line}: in program looked_up: index 40 of .* 40"):
            own(x, places, 1e9)


@tw.program
def summed_rows(table: tw.f64["m", "n"], count: tw.i64) -> Any:
    return tw.loop(count, table[0], lambda i, a: tw.map(lambda u, v: u + v, a, table[2 * i + 1]))


def test_a_row_out_of_range_in_a_later_round() -> None:
    own = tw.program(summed_rows.function)
    table = np.arange(44.0 * 6).reshape(44, 6)
    for _ in range(4):
        np.testing.assert_array_equal(own(table, 20), table[0] + table[1:40:2].sum(0))
        with pytest.raises(IndexError, match=r"in program summed_rows: index 45 of table .* 0 of extent 44"):
            own(table, 40)


_FAILING = """
    import gc, os
    import numpy as np
    import tilewright as tw
    from tilewright.runtime import rounds, steps

    steps.pays_alone = lambda *_: False
    rounds.FEWEST_ROUNDS = 2

    @tw.program
    def looked_up(x: tw.f64["n"], places: tw.i64["m"], limit: tw.f64):
        def one_round(a, size, k):
            found = tw.map(lambda place: a[place + k], places)
            return tw.map(lambda u: u + 1.0, a), tw.reduce("add", 0.0, found), k + 1

        return tw.while_loop(lambda a, size, k: size < limit, (x, 0.0, 0), one_round)

    x, places = np.zeros(1 << 20), np.array([0, (1 << 20) - 40])
    used, failed = [], 0
    for _ in range(6):
        try:
            looked_up(x, places, 1e9)
        except IndexError:
            failed += 1
        gc.collect()
        with open("/proc/self/statm") as statm:
            used.append(int(statm.read().split()[1]))
    print(failed, (used[-1] - used[1]) * os.sysconf("SC_PAGE_SIZE") / x.nbytes)
"""


def test_the_memory_of_rounds_that_fail_is_given_back() -> None:
    """In a process of its own: one of many tests has other memory that comes and goes."""
    command = [sys.executable, "-c", textwrap.dedent(_FAILING)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    failed, arrays = done.stdout.split()
    assert int(failed) == 6 and float(arrays) < 3


def test_several_threads_call_at_once() -> None:
    x = np.linspace(1, 2, 300)
    expected = counted(x, x, 200)
    wrong: list[int] = []

    def calls() -> None:
        for _ in range(30):
            found = counted(x, x, 200)
            if any(not np.array_equal(one, other) for one, other in zip(found, expected, strict=True)):
                wrong.append(1)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


_ENDLESS = """
    import os, signal, sys, threading
    import numpy as np
    import tilewright as tw
    from tilewright.runtime import steps

    steps.pays_alone = lambda *_: False

    @tw.program
    def endless(x: tw.f64["n"], limit: tw.f64):
        def one_round(a, k):
            return tw.map(lambda u: u * 0.5 + 1.0, a), k + 1.0

        return tw.while_loop(lambda a, k: k < limit, (x, 0.0), one_round)

    x = np.ones(100)
    tw.program(endless.function)(x, 20.0)  # LLVM compiles; an interrupt in what frees its objects would free them twice
    for _ in range({calls}):
        endless(x, 20.0)
    over = threading.Event()

    def interrupt():  # runs only if others may meanwhile; again where an interrupt is lost, as in __del__
        while not over.wait(0.2):
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(*_):
        if not over.is_set():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    interrupts = threading.Thread(target=interrupt)
    interrupts.start()
    try:
        endless(x, 1e300)
    except KeyboardInterrupt:
        over.set()
        interrupts.join()
        assert endless(x, 20.0)[1] == 20.0
        print("interrupted")
"""


@pytest.mark.parametrize("calls", [0, 5])
def test_an_interrupt_ends_endless_rounds(calls: int) -> None:
    """In the first call, and in native code that repeats it."""
    text = textwrap.dedent(_ENDLESS.format(calls=calls))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "interrupted\n", done.stderr
