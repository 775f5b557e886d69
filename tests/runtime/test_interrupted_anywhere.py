"""Ctrl-C at any instruction leaves no lock taken, no search for cycles switched off, and nothing half done."""

from __future__ import annotations

import contextlib
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from interrupts import interrupts

from tilewright.machine import forking
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime import cache, collecting, cpu_pool
from tilewright.runtime.cache import DiskCache, MemoryCache
from tilewright.runtime.collecting import collection_later
from tilewright.tune import store as store_module
from tilewright.tune.store import TuningStore

SECONDS = 600

# An interrupt may come between a file's opening and the block that closes it; then its last reference does.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def in_another_thread(call: Callable[[], object]) -> bool:
    """Whether it comes to its end there."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return not thread.is_alive()


@pytest.fixture(autouse=True)
def searched() -> Iterator[None]:
    before = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if before else gc.disable)()


def test_a_lock() -> None:
    lock = ForkSafeLock()

    def hold() -> None:
        with lock, lock:
            pass

    for _ in interrupts(hold, [forking.__file__, __file__]):
        assert in_another_thread(hold)


def test_a_value_that_is_built() -> None:
    built: MemoryCache[int, int] = MemoryCache()
    places = 0
    for _ in interrupts(lambda: built.get_or_build(1, lambda: 2), [cache.__file__, forking.__file__]):
        assert in_another_thread(lambda: built.get_or_build(1, lambda: 2))
        assert built.get_or_build(1, lambda: 3) == 2
        built.clear()
        places += 1
    assert places > 3


def test_a_value_that_several_threads_wait_for() -> None:
    """Whoever is interrupted takes nothing from those that go on."""
    built: MemoryCache[int, int] = MemoryCache()
    for _ in interrupts(lambda: built.get_or_build(1, lambda: 2), [cache.__file__]):
        built.clear()
        assert _asked_by_two(built) == [5, 5]
        built.clear()


def _asked_by_two(built: MemoryCache[int, int]) -> list[int]:
    inside, leave, found = threading.Event(), threading.Event(), list[int]()

    def build() -> int:
        inside.set()
        assert leave.wait(SECONDS)
        return 5

    def ask() -> None:
        found.append(built.get_or_build(1, build))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert inside.wait(SECONDS)
    threads[1].start()
    leave.set()
    for one in threads:
        one.join(SECONDS)
    return found


def test_the_search_for_cycles() -> None:
    def compile_something() -> None:
        with collection_later():
            gc.isenabled()

    files = [collecting.__file__, contextlib.__file__, __file__]
    places = 0
    for _ in interrupts(compile_something, files):
        assert gc.isenabled() and gc.get_freeze_count() == 0
        places += 1
    assert places > 10


def test_what_is_stored_on_the_disk(tmp_path: Path) -> None:
    places = 0
    for _ in interrupts(lambda: DiskCache(tmp_path / "cache").put(("key",), b"value"), [cache.__file__]):
        assert DiskCache(tmp_path / "cache").get(("key",)) in (None, b"value")
        places += 1
    assert places > 20 and DiskCache(tmp_path / "cache").get(("key",)) == b"value"


def test_a_tuning_that_is_stored(tmp_path: Path) -> None:
    store = TuningStore(tmp_path / "tunings.sqlite3")
    places = 0
    for _ in interrupts(lambda: store.put("p", "cpu", {"outer_0": 1.0}), [store_module.__file__]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert in_another_thread(lambda: store.put("q", "cpu", {"outer_0": 2.0}))
        assert store.get("p", "cpu") in ({}, {"outer_0": 1.0}) and store.get("q", "cpu") == {"outer_0": 2.0}
        store.put("p", "cpu", {})
        places += 1
    assert places > 5


def test_workers_that_are_started() -> None:
    pools = [cpu_pool._Pool()]
    places = 0
    for _ in interrupts(lambda: pools[-1].provide(2, 4096), [cpu_pool.__file__]):
        assert in_another_thread(lambda: pools[-1].provide(2, 8192))
        assert pools[-1].workspace_bytes >= 8192 and len(pools[-1].threads) == 2
        pools[-1].close()
        pools.append(cpu_pool._Pool())
        places += 1
    assert places > 20
