"""Threads that were put aside are brought to the core of one that waits for them; their masks stay what they were."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from needed_cores import two_cores

from tilewright.runtime.cpu_driver import driver_text
from tilewright.runtime.cpu_fetch import fetch_text
from tilewright.runtime.cpu_jit import compile_text, host_cpu, load_code
from tilewright.runtime.cpu_pool import launch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells whether a thread runs")

# What is internal to the driver, for these tests.
OPENED = """
define i64 @open_clock() {
  %result = call i64 @own_clock()
  ret i64 %result
}
define i8 @open_stands_still(i64 %clock) {
  %result = call i1 @stands_still(i64 %clock)
  %wide = zext i1 %result to i8
  ret i8 %wide
}
define i8 @open_fetch(i64 %clock) {
  %result = call i1 @fetch(i64 %clock)
  %wide = zext i1 %result to i8
  ret i8 %wide
}
define i8 @open_step_aside(i64 %clock) {
  %result = call i1 @step_aside(i64 %clock)
  %wide = zext i1 %result to i8
  ret i8 %wide
}
"""


@pytest.fixture(scope="module")
def native() -> Any:
    """The driver's functions that move threads."""
    code = load_code(compile_text(driver_text(host_cpu()) + OPENED, "none"))
    number = ctypes.c_int64

    def function(name: str, result: Any, *types: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *types)(code.address(name))

    return SimpleNamespace(
        kept=code,
        clock=function("open_clock", number),
        stands_still=function("open_stands_still", ctypes.c_bool, number),
        fetch=function("open_fetch", ctypes.c_bool, number),
        step_aside=function("open_step_aside", ctypes.c_bool, number),
        core=ctypes.CDLL(None).sched_getcpu,
    )


@contextmanager
def another_thread(native: Any, work: Callable[[], None], mask: set[int] | None = None) -> Iterator[tuple[int, int]]:
    """(its number, its clock) of a thread that does this work again and again, on these cores."""
    ready, over, told = threading.Event(), threading.Event(), []

    def run() -> None:
        if mask is not None:
            os.sched_setaffinity(0, mask)
        told.extend((threading.get_native_id(), native.clock()))
        ready.set()
        while not over.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield told[0], told[1]
    finally:
        over.set()
        thread.join()


DATA = bytes(1 << 22)


def busy() -> None:
    """Milliseconds without the interpreter's lock."""
    zlib.crc32(DATA)


def in_a_thread_on(mask: set[int], function: Callable[[], Any]) -> Any:
    """What the function gives in a thread that may use these cores."""

    def run() -> Any:
        os.sched_setaffinity(0, mask)
        return function()

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


def at_last(condition: Callable[[], bool]) -> bool:
    """Whether it holds, now or once other programs leave time for it."""
    until = time.monotonic() + 300
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.001)
    return found


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def mask_of(thread: threading.Thread) -> set[int]:
    return os.sched_getaffinity(thread.native_id or 0)


def core_of(thread: int) -> int:
    with open(f"/proc/self/task/{thread}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[36])


def test_a_clock_tells_its_thread(native: Any) -> None:
    with another_thread(native, busy) as (thread, clock):
        assert ~(clock >> 3) == thread
    assert ~(native.clock() >> 3) == threading.get_native_id()


def test_a_thread_that_sleeps_stands_still(native: Any) -> None:
    with another_thread(native, lambda: time.sleep(0.5)) as (_, clock):
        assert at_last(lambda: sum(native.stands_still(clock) for _ in range(20)) >= 18)  # it wakes now and then


@two_cores
def test_a_thread_that_runs_does_not_stand_still(native: Any) -> None:
    """Other programs may have its core for a while; with a single core it stands still whenever somebody asks."""
    with another_thread(native, busy) as (_, clock):
        assert at_last(lambda: not all(native.stands_still(clock) for _ in range(2000)))


def test_of_a_thread_that_ended_nothing_is_known(native: Any) -> None:
    with another_thread(native, busy) as (thread, clock):
        pass
    while os.path.exists(f"/proc/self/task/{thread}"):  # Python has joined it a little earlier
        time.sleep(0.001)
    assert not native.stands_still(clock)
    assert not native.fetch(clock)


@two_cores
def test_a_thread_is_brought_here(native: Any) -> None:
    """Also one that runs; whoever calls this has seen that it does not."""
    here, there = cores()[:2]

    def bring() -> bool:
        with another_thread(native, busy, {there}) as (thread, clock):
            os.sched_setaffinity(thread, {here, there})  # it stays where it is
            found = native.fetch(clock), core_of(thread)
            return found == (True, here) and os.sched_getaffinity(thread) == {here, there}

    assert at_last(lambda: in_a_thread_on({here}, bring))  # the system may move it back at once


@two_cores
def test_its_mask_stays_what_it_was(native: Any) -> None:
    here, there = cores()[:2]
    for mask, comes in ((set(cores()), True), ({here, there}, True), ({here}, True), ({there}, False)):
        with another_thread(native, busy, mask) as (thread, clock):
            assert in_a_thread_on({here}, lambda clock=clock: native.fetch(clock)) == comes
            assert os.sched_getaffinity(thread) == mask


@two_cores
def test_a_thread_steps_aside(native: Any) -> None:
    def step() -> bool:
        before = native.core()
        return native.step_aside(native.clock()) and native.core() != before

    for mask in (set(cores()), set(cores()[:2])):
        assert at_last(lambda mask=mask: in_a_thread_on(mask, step))  # the system may move it there before, or back
        after = in_a_thread_on(mask, lambda: native.step_aside(native.clock()) and os.sched_getaffinity(0))
        assert after == mask


def test_there_is_nowhere_to_step_with_one_core(native: Any) -> None:
    only = {cores()[-1]}
    assert in_a_thread_on(only, lambda: (native.step_aside(native.clock()), os.sched_getaffinity(0))) == (False, only)


@pytest.mark.parametrize("late", ["launcher", "worker"])
def test_launches_in_which_one_is_late_leave_all_masks(late: str) -> None:
    """Who is late sleeps in its blocks, so that it is taken for one that was put aside."""
    every, narrow = set(cores()), set(cores()[:1])
    workers = [one for one in threading.enumerate() if one.name.startswith("tilewright-")]

    def check(mask: set[int]) -> None:
        launcher, both, done = threading.get_ident(), threading.Barrier(2), []

        def kernel(arguments: int, begin: int, end: int, workspace: int) -> None:
            both.wait(600)
            if (threading.get_ident() == launcher) == (late == "launcher"):
                threading.Event().wait(1e-3)
            done.append(begin)

        kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(kernel)
        address = ctypes.cast(kept, ctypes.c_void_p).value
        python = SimpleNamespace(name="python", address=address, workspace_bytes=0, kept=kept)
        for _ in range(50):
            done.clear()
            launch(python, (ctypes.c_int64 * 1)(), 2, 2)  # type: ignore[arg-type]
            assert sorted(done) == [0, 1]
            assert os.sched_getaffinity(0) == mask

    for mask in (every, narrow):
        in_a_thread_on(mask, lambda mask=mask: check(mask))
    workers = workers or [one for one in threading.enumerate() if one.name == "tilewright-0"]
    # One that steps aside waits for the other core; one of another test's pool may end meanwhile.
    assert at_last(lambda: all(not one.is_alive() or mask_of(one) == every for one in workers))


def test_other_systems_have_the_same_driver_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "sched_setaffinity" not in fetch_text()
    text = driver_text(host_cpu())
    assert "sched_setaffinity" not in text and "pthread_getcpuclockid" not in text
    monkeypatch.undo()
    load_code(compile_text(text, "none"))


def test_a_process_on_one_core_shares_it() -> None:
    """Two threads where the process has a single core: nobody can step aside, and nobody waits for ever."""
    code = f"""
import os
os.sched_setaffinity(0, {{{cores()[-1]}}})
import numpy as np, tilewright as tw
tw.set_num_threads(2)
a = np.random.default_rng(0).uniform(-1, 1, (160, 160))
for _ in range(200):
    b = tw.einsum("ij,jk->ik", a, a)
assert np.allclose(b, a @ a)
print(len(os.sched_getaffinity(0)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


@two_cores
def test_a_thread_on_one_core_does_not_bind_the_workers_that_it_starts() -> None:
    code = """
import os, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np, tilewright as tw
every = os.sched_getaffinity(0)
a = np.ones((300, 300))

def masks():
    return [os.sched_getaffinity(one.native_id) for one in threading.enumerate() if one.name.startswith("tilewright-")]

def first():
    os.sched_setaffinity(0, {max(every)})
    with tw.num_threads(2):
        tw.einsum("ij,jk->ik", a, a)
    return os.sched_getaffinity(0)

with ThreadPoolExecutor(1) as executor:
    assert executor.submit(first).result() == {max(every)}
until = time.monotonic() + 500
while masks() != [every] and time.monotonic() < until:  # the launch may have ended before the worker began
    time.sleep(0.01)
assert masks() == [every], masks()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
