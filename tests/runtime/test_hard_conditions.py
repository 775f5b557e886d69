"""A system that refuses what is asked of it, folders that vanish, forks and the collector where nobody expects them."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime import cpu_entry, cpu_pool, fingerprint, llvm_library
from tilewright.runtime.cache import DiskCache, cache_folder
from tilewright.runtime.errors import CacheWarning
from tilewright.runtime.recycling import HUGE_PAGE, MappingPool
from tilewright.tune import store as store_module
from tilewright.tune.keys import TuningWarning
from tilewright.tune.store import TuningStore

SECONDS = 600
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def output_of(code: str, *arguments: str) -> str:
    """What a Python process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- threads that cannot be started


def test_calls_do_without_threads_that_the_system_refuses() -> None:
    code = """
        import threading, time, warnings
        import numpy as np
        import tilewright as tw
        from tilewright.runtime import cpu_pool

        start = threading.Thread.start
        def refuse(thread):
            raise RuntimeError("can't start new thread")

        tw.set_num_threads(4)
        a = np.ones((300, 300))
        threading.Thread.start = refuse
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(5):
                assert (tw.einsum("ij,jk->ik", a, a) == 300).all()
        assert told and all("launches use fewer threads" in str(one.message) for one in told), told
        threading.Thread.start = start
        cpu_pool._state.pool.refused_until = 0.0
        for _ in range(3):
            assert (tw.einsum("ij,jk->ik", a, a) == 300).all()
        print(len(cpu_pool._state.pool.threads))
    """
    assert output_of(code) == "3"


def test_a_system_that_refuses_threads_is_not_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(thread: threading.Thread) -> None:
        asked.append(1)
        raise RuntimeError("can't start new thread")

    pool, words = cpu_pool._Pool(), list(cpu_pool.POOL_WORDS)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    try:
        with pytest.warns(RuntimeWarning, match="launches use fewer threads"):
            pool.provide(3, 64)
        pool.provide(3, 128)
        assert len(asked) == 1 and not pool.threads and list(cpu_pool.POOL_WORDS)[2:] == [64, 0]
        monkeypatch.undo()
        pool.refused_until = 0.0
        pool.provide(3, 64)
        assert len(pool.threads) == 3
    finally:
        pool.close()
        cpu_pool.POOL_WORDS[:] = words


def test_launches_do_without_workers_that_there_is_no_memory_for() -> None:
    """A worker whose workspace is too small must not take part."""
    code = """
        import ctypes, warnings
        import numpy as np
        from tilewright.ir.scalars import I64
        from tilewright.kernel.ir import *
        from tilewright.runtime import cpu_pool
        from tilewright.runtime.cpu_entry import run_steps
        from tilewright.runtime.cpu_jit import compile_kernel
        from tilewright.runtime.flat_plan import EntryLaunch

        def through(count):
            y, scratch = Buffer("y", I64), Buffer("scratch", I64, Space.WORKSPACE, count)
            i, j = Name("i", I64), Name("j", I64)
            at = add(multiply(BlockIndex(), integer(count)), j)
            body = (
                For("i", integer(0), integer(count), (Store(scratch, i, BlockIndex()),)),
                For("j", integer(0), integer(count), (Store(y, at, load(scratch, j)),)),
            )
            return compile_kernel(Kernel(f"through_{count}", (y,), (), (scratch,), body))

        def launched(kernel, count):
            out = np.full((300, count), -1)
            cpu_pool.launch(kernel, (ctypes.c_int64 * 1)(out.ctypes.data), 300, 3)
            return (out == np.arange(300)[:, None]).all()

        def stepped(kernel, count):
            out = np.full((300, count), -1)
            right, _ = run_steps([EntryLaunch(kernel, 300, (0,), ())], [out.ctypes.data], 3)
            return right and (out == np.arange(300)[:, None]).all()

        small, large = through(100), through(5000)
        assert launched(small, 100) and stepped(small, 100)
        pool = cpu_pool._state.pool
        assert len(pool.threads) == 2
        give = pool._give_workspace

        def refuse(number, size):
            if number == 1:
                raise MemoryError
            give(number, size)

        pool._give_workspace = refuse
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(10):
                assert launched(large, 5000) and launched(small, 100) and stepped(large, 5000)
        assert told and all("launches use fewer threads" in str(one.message) for one in told), told
        pool._give_workspace, pool.refused_until = give, 0.0
        assert launched(large, 5000) and stepped(large, 5000)
        print(pool.workspace_bytes >= large.workspace_bytes)
    """
    assert output_of(code) == "True"


def test_the_compiler_is_loaded_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(llvm_library, "_LOADING", [])
    monkeypatch.delitem(sys.modules, "llvmlite.binding", raising=False)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    llvm_library.load_ahead()
    llvm_library._loaded()  # before a fork


# --- files


def test_a_cache_folder_that_is_removed_is_made_again(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    cache = DiskCache(tmp_path / "deep" / "cache")
    cache.put(("key",), b"one")
    shutil.rmtree(tmp_path / "deep")
    assert cache.get(("key",)) is None
    cache.put(("key",), b"two")
    assert cache.get(("key",)) == b"two"
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700
    assert not [one for one in recwarn.list if one.category is not ResourceWarning]  # of what other tests have left


def test_a_user_without_a_home_gets_no_folder_where_the_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME", "TILEWRIGHT_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    cache, store = DiskCache(cache_folder()), TuningStore()
    with pytest.warns(CacheWarning, match="no home folder is known"):
        cache.put(("key",), b"value")
    assert cache.get(("key",)) is None
    with pytest.warns(TuningWarning, match="no home folder is known"):
        store.put("p", "cpu", {"outer_0": 1.0})
    assert store.get("p", "cpu") == {} and not [*tmp_path.iterdir()]


def test_a_package_that_is_being_replaced_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def vanished(folder: str) -> tuple[str, int]:
        raise FileNotFoundError(folder)

    monkeypatch.setattr(fingerprint, "source_stamp", vanished)
    assert fingerprint.fingerprint.__wrapped__() is None


def test_a_damaged_tuning_store_that_must_stay_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tunings.sqlite3"
    path.write_bytes(b"no database at all" * 100)
    path.chmod(0o600)

    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(TuningWarning, match="is damaged"):
        assert TuningStore(path).get("p", "cpu") == {}


def test_a_new_tuning_store_is_not_set_aside_with_the_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has been faster: the file that is there now is not the one that was found damaged."""
    path = tmp_path / "tunings.sqlite3"
    TuningStore(path).put("p", "cpu", {"outer_0": 1.0})
    store = TuningStore(path)
    tries: list[int] = []
    connect = sqlite3.connect

    def damaged_once(*given: object, **named: object) -> sqlite3.Connection:
        tries.append(1)
        if len(tries) == 1:
            os.replace(path, tmp_path / "of the other process")
            TuningStore(path).put("q", "cpu", {"outer_0": 2.0})
            raise sqlite3.DatabaseError("file is not a database")
        return connect(*given, **named)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(store_module.sqlite3, "connect", damaged_once)
    with pytest.warns(TuningWarning, match="is damaged"):
        assert store.get("q", "cpu") == {"outer_0": 2.0}
    assert not (tmp_path / "tunings.sqlite3.damaged").exists()


# --- forks


@needs_fork
def test_a_fork_waits_for_a_tuning_that_another_thread_stores(tmp_path: Path) -> None:
    """SQLite takes the child to have the locks that its parent has."""
    code = """
        import os, signal, sys, threading, warnings
        from tilewright.tune import store as store_module
        from tilewright.tune.store import TuningStore

        warnings.simplefilter("error")
        store_module._SECONDS_TO_WAIT = 5.0
        store = TuningStore(sys.argv[1])
        store.put("p", "cpu", {"outer_0": 1.0})
        inside, ended = threading.Event(), threading.Event()

        def write(connection):
            connection.execute("update choices set value = '2.0'")
            inside.set()
            ended.wait(0.5)

        thread = threading.Thread(target=store._attempt, args=(write, None))
        thread.start()
        assert inside.wait(600)
        child = os.fork()
        if child == 0:
            signal.alarm(500)
            store.put("q", "cpu", {"outer_0": 3.0})
            os._exit(0 if store.get("p", "cpu") == {"outer_0": 2.0} else 3)
        ended.set()
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert output_of(code, str(tmp_path / "tunings.sqlite3")) == "0"


@needs_fork
def test_threads_that_fork_at_the_same_time() -> None:
    """Each takes the compiler's locks before and gives back its own afterwards."""
    code = """
        import os, sys, threading
        from tilewright.machine.llvm_lock import LLVM_LOCK
        from tilewright.machine.processors import ask_llvm

        ask_llvm()
        failures = []
        sys.unraisablehook = lambda told: failures.append(told.exc_value)
        sys.setswitchinterval(1e-6)

        def fork():
            for _ in range(150):
                child = os.fork()
                if child == 0:
                    os._exit(0 if LLVM_LOCK.acquire(blocking=False) else 1)
                if os.waitpid(child, 0)[1]:
                    failures.append("a child has not got the lock")

        threads = [threading.Thread(target=fork, daemon=True) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(600)
        assert not any(one.is_alive() for one in threads), "a thread waits for ever"
        assert LLVM_LOCK.acquire(timeout=300), "nobody has the lock and nobody gets it"
        assert not failures, failures
        print("done")
    """
    assert output_of(code) == "done"


@needs_fork
@pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")
def test_a_handler_of_signals_forks_in_the_middle_of_rounds() -> None:
    """The child goes on with the rounds, without the pool."""
    code = """
        import os, signal, warnings
        import numpy as np
        import tilewright as tw
        from tilewright.runtime import rounds, steps

        warnings.simplefilter("ignore")
        steps.pays_alone = lambda *_: False
        rounds.FEWEST_ROUNDS = 2
        tw.set_num_threads(2)
        parent, children = os.getpid(), []

        @tw.program
        def stepped(x: tw.f64["n"], count: tw.i64):
            return tw.loop(count, x, lambda i, a: tw.map(lambda u: u + 1.0, a))

        def fork(*_):
            if os.getpid() == parent and not children:
                children.append(os.fork())
                if children == [0]:
                    signal.alarm(500)

        x = np.zeros(100_000)
        for _ in range(3):
            assert (stepped(x, 10) == 10).all()
        signal.signal(signal.SIGALRM, fork)
        count = 100
        while not children and count < 10**7:
            count *= 4
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            result = stepped(x, count)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert (result == count).all()
        if os.getpid() != parent:
            os._exit(0)
        assert children
        print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
    """
    assert output_of(code) == "0"


# --- the collector


@pytest.fixture
def collected_often() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


def test_arrays_that_die_while_another_is_made(collected_often: None) -> None:
    """The collector frees them anywhere: here one of them at each search."""
    pool = MappingPool(limit=1 << 40)
    waiting = [pool.take((HUGE_PAGE,), np.dtype(np.uint8)) for _ in range(60)]

    def free_one(phase: str, _: object) -> None:
        if phase == "stop" and waiting:
            waiting.pop()

    kept = [(number, str(number)) for number in range(3000)]  # so that no tuples wait for their next use
    for _ in range(5):
        waiting.pop()
    gc.callbacks.append(free_one)
    try:
        while waiting:
            left = len(waiting)
            kept.append((left, str(left)))
            array = pool.take((HUGE_PAGE,), np.dtype(np.uint8))
            assert array.size == HUGE_PAGE
    finally:
        gc.callbacks.remove(free_one)
    pool.trim()
