"""A child never waits for a lock that a thread of its parent held when the process forked."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from children import SECONDS, true_in_a_child

import tilewright as tw
from tilewright.ir.cached import cached_property
from tilewright.machine.processors import ask_llvm
from tilewright.runtime.cache import MemoryCache

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Busy:
    """A thread that does some work and is stopped in the middle of it while the block runs."""

    def __init__(self, work: Callable[[Callable[[], None]], object]) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=work, args=(self.wait,))

    def wait(self) -> None:
        self.reached.set()
        assert self.released.wait(SECONDS)

    def __enter__(self) -> None:
        self.thread.start()
        assert self.reached.wait(SECONDS)

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.thread.join()


def test_a_build_in_another_thread() -> None:
    cache: MemoryCache[str, int] = MemoryCache()

    def build(wait: Callable[[], None]) -> int:
        wait()
        return 7

    with Busy(lambda wait: cache.get_or_build("key", lambda: build(wait))):
        assert true_in_a_child(lambda: cache.get_or_build("key", lambda: 8) == 8)
    assert cache.get_or_build("key", lambda: 9) == 7


def test_a_build_that_forks() -> None:
    """The child of a build goes on with the build: it holds the key's lock itself."""
    cache: MemoryCache[str, int] = MemoryCache()

    def build() -> int:
        assert true_in_a_child(lambda: cache.get_or_build("other", lambda: 1) == 1)
        return 3

    assert cache.get_or_build("key", build) == 3


def test_a_program_that_another_thread_traces() -> None:
    stops: list[Callable[[], None]] = []

    @tw.program
    def doubled(x: tw.f64["n"]) -> object:  # noqa: F821, UP037
        if stops:
            stops.pop()()
        return tw.map(lambda one: 2 * one, x)

    data = np.arange(3.0)

    def call(wait: Callable[[], None]) -> None:
        stops.append(wait)
        doubled(data)

    with Busy(call):
        assert true_in_a_child(lambda: bool((doubled(data) == 2 * data).all()))
    assert (doubled(data) == 2 * data).all()


def test_llvm_at_work_in_another_thread() -> None:
    """The fork waits for it: no lock could tell in what state LLVM would be in the child."""
    from llvmlite import binding
    from llvmlite.binding import ffi

    data = np.arange(4.0)
    tw.einsum("i,i->", data, data)  # LLVM is loaded
    main = threading.get_ident()
    entered = threading.Event()

    def acquired() -> None:
        if threading.get_ident() != main and not entered.is_set():
            entered.set()
            ended.wait(0.5)

    def released() -> None:
        pass

    ended = threading.Event()
    with ExitStack() as stack:
        ffi.register_lock_callback(acquired, released)
        stack.callback(ffi.unregister_lock_callback, acquired, released)
        thread = threading.Thread(target=binding.get_host_cpu_name)
        thread.start()
        stack.callback(thread.join)
        assert entered.wait(SECONDS)
        assert true_in_a_child(lambda: bool(binding.get_host_cpu_name()))


def test_llvm_that_another_thread_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """To know the processor it is imported, too, where machine code comes from the disk."""
    events: list[str] = []
    entered = threading.Event()

    class Slow(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name == "binding" and not events:
                entered.set()
                time.sleep(0.3)
                events.append("imported")
            raise AttributeError(name)

    def ask() -> None:
        with suppress(ImportError):
            ask_llvm()

    monkeypatch.setitem(sys.modules, "llvmlite", Slow("llvmlite"))
    thread = threading.Thread(target=ask)
    thread.start()
    assert entered.wait(SECONDS)
    child = true_in_a_child(lambda: events == ["imported"])
    thread.join()
    assert child


def test_a_cached_property_in_another_thread() -> None:
    class Slow:
        def __init__(self, wait: Callable[[], None]) -> None:
            self.wait = wait

        @cached_property
        def value(self) -> int:
            self.wait()
            return 7

    with Busy(lambda wait: Slow(wait).value):
        assert true_in_a_child(lambda: Slow(lambda: None).value == 7)


def test_no_module_uses_the_standard_cached_property() -> None:
    """Before Python 3.12 it holds one lock for all objects while a value is computed."""
    texts = {path: path.read_text() for path in Path(tw.__file__).parent.rglob("*.py")}
    assert [path for path, text in texts.items() if re.search(r"from functools import .*cached_property", text)] == []
