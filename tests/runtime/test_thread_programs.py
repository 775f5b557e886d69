"""Threads in whole programs: many callers at once, joblib, Dask, Ctrl-C, the end of the process, subinterpreters."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import cpu_pool
from tilewright.runtime.thread_count import OPENMP_VARIABLE, THREADS_VARIABLE

SECONDS = 600

# A kernel whose blocks take about as long as they are told to.
SPINNING = """
import ctypes, gc, os, signal, sys, threading, time
import numpy as np
from tilewright.ir.scalars import F64, I64
from tilewright.kernel.ir import *
from tilewright.runtime import cpu_pool
from tilewright.runtime.cpu_driver import BUSY
from tilewright.runtime.cpu_jit import compile_kernel
y, n = Buffer("y", F64), ScalarParameter("n", I64)
i = Name("i", I64)
halved = operation("sqrt", load(y, BlockIndex()))
spinning = compile_kernel(Kernel("spinning", (y,), (n,), (), (
    For("i", integer(0), Name("n", I64), (Store(y, BlockIndex(), halved),)),)), "none")
out = np.full(64, 2.0)

def call_for(steps, blocks=64, threads=2):
    arguments = (ctypes.c_int64 * 2)(out.ctypes.data, steps)
    return cpu_pool.prepare(spinning, arguments, blocks, threads), arguments

def is_busy():
    pool = cpu_pool._state.pool
    return pool is not None and ctypes.c_int64.from_address(pool.memory.address + BUSY).value == 1

def begin_for_minutes():
    call, kept = call_for(20 * per_second)
    thread = threading.Thread(target=call, daemon=True)
    thread.kept = kept
    thread.start()
    while not is_busy():
        time.sleep(0.001)
    return thread

def workers():
    return len([one for one in threading.enumerate() if one.name.startswith("tilewright-")])

def seconds_of(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

probe, _ = call_for(1_000_000, 1, 1)
probe()
per_second = int(1_000_000 / min(seconds_of(probe) for _ in range(5)))  # steps of one block on one thread
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, without variables that choose numbers of threads but those given."""
    plain = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False,
        env={**plain, **environment},
    )  # fmt: skip


def test_many_threads_call_at_once() -> None:
    """Results are right, and no more threads run than there are callers and workers of one pool."""
    generator = np.random.default_rng(0)
    sizes = [150 + 8 * number for number in range(8)]
    pairs = [generator.integers(-4, 5, (2, size, size)).astype(np.float64) for size in sizes]
    wanted = [a @ b for a, b in pairs]
    failures: list[int] = []

    def work(number: int) -> None:
        a, b = pairs[number]
        for _ in range(20):
            if not np.array_equal(tw.einsum("ij,jk->ik", a, b), wanted[number]):  # exact: sums of small integers
                failures.append(number)

    before = set(threading.enumerate())
    with tw.num_threads(2):
        work(0)  # this thread's number is no other's
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    started = set(threading.enumerate()) - before - set(threads)
    for one in threads:
        one.join(SECONDS)
    assert not failures
    assert not any(one.is_alive() for one in threads)
    assert len([one for one in started if one.name.startswith("tilewright-")]) <= max(1, tw.get_num_threads() - 1)


@tw.program
def _shifted(x: tw.f64["n", "m"]) -> object:  # noqa: F821, UP037
    return tw.map(lambda row: tw.map(lambda one: one + 1.0, row), x)


def test_every_way_of_calling_heeds_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was prepared for several threads takes one inside a block for one, and the other way round."""
    a = np.ones((256, 256))
    plan = tw.plan("ij,jk->ik", a.shape, a.shape, dtype=np.float64)
    operation = tw.TensorOperation(
        "f64",
        "gemm",
        [
            tw.TensorDimension("M", "shared", 64, 1024, 0, 1024),
            tw.TensorDimension("M", "prim", 4, 256, 0, 256),
            tw.TensorDimension("N", "prim", 256, 0, 1, 1),
            tw.TensorDimension("K", "prim", 256, 1, 256, 0),
        ],
        "zero",
    ).compile("cpu")
    big = np.ones((1000, 1000))
    ways = {
        "einsum": lambda: tw.einsum("ij,jk->ik", a, a),
        "einsum out": lambda: tw.einsum("ij,jk->ik", a, a, out=np.empty_like(a)),
        "plan": lambda: plan(a, a),
        "operation": lambda: operation(a, a, np.empty_like(a)),
        "program": lambda: _shifted(big),
        "sums": lambda: tw.einsum("ij->i", big),
    }
    launches: list[int] = []

    class Watched:
        """The pool, noting its launches."""

        def __init__(self, pool: object) -> None:
            self.pool, self.driver = pool, self

        def __getattr__(self, name: str) -> object:
            return getattr(self.pool, name)

        def launch(self, address: int) -> None:
            launches.append(address)
            self.pool.driver.launch(address)  # type: ignore[attr-defined]

    pool = cpu_pool._the_pool()
    pool.provide(1, 1 << 22)
    monkeypatch.setattr(cpu_pool._state, "pool", Watched(pool))

    def note(address: int) -> None:
        launches.append(address)
        pool.driver.launch(address)

    noted = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(note)  # native entries launch by themselves
    cpu_pool.POOL_WORDS[0] = ctypes.cast(noted, ctypes.c_void_p).value or 0
    try:
        for first, second in [(2, 1), (1, 2)]:
            for name, call in ways.items():
                for number in (first, second, first):
                    with tw.num_threads(number):
                        for _ in range(4):
                            launches.clear()
                            call()
                            assert bool(launches) == (number > 1), f"{name} with {number} threads"
    finally:
        cpu_pool.POOL_WORDS[0] = pool.driver.launch_address


def test_a_launch_that_finds_the_pool_busy_runs_on_its_own_thread() -> None:
    """While one thread's launch keeps the pool, others work alone and wait for nobody."""
    code = (
        SPINNING
        + """
thread = begin_for_minutes()
short, kept = call_for(1)
for _ in range(50):
    short()
assert thread.is_alive() and is_busy()
print(workers(), flush=True)
"""
    )
    done = run(code)
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_an_interrupt_during_launches() -> None:
    """Ctrl-C is seen when the launch ends; the pool is free afterwards, whenever the signal came."""
    code = (
        SPINNING
        + """
def interrupt():
    while not over:
        time.sleep(0.003)
        if not over:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def interrupted(*_):
    global armed  # so that no signal is answered outside of the innermost block
    if armed:
        armed = False
        raise KeyboardInterrupt

over, caught, armed = False, 0, False
signal.signal(signal.SIGINT, interrupted)
call, kept = call_for(200, 64, 3)
call()  # LLVM compiles the pool's driver; an interrupt in what frees its objects would be lost, or free them twice
gc.collect()
gc.disable()
thread = threading.Thread(target=interrupt)
thread.start()
try:
    until = time.perf_counter() + 400.0
    while caught <= 100 and time.perf_counter() < until:
        try:
            armed = True
            while time.perf_counter() < until:
                cpu_pool.launch(spinning, kept, 64, 3)
        except KeyboardInterrupt:
            caught += 1
finally:
    over, armed = True, False
    thread.join()
assert caught > 100, caught
assert not is_busy()
out[:] = 2.0
call()
assert np.isfinite(out).all()
print(workers())
"""
    )
    done = run(code)
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_an_interrupt_of_a_long_launch() -> None:
    code = (
        SPINNING
        + """
call, kept = call_for(per_second // 64)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background

def interrupt():
    while not is_busy():
        time.sleep(0.001)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

thread = threading.Thread(target=interrupt)
thread.start()
try:
    for _ in range(1000):  # of which the first is interrupted, unless this process stands still just then
        call()
    raise SystemExit("no interrupt")
except KeyboardInterrupt:
    thread.join()
assert not is_busy()
call()
print("done")
"""
    )
    done = run(code)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def test_the_process_ends_while_a_daemon_thread_launches() -> None:
    code = (
        SPINNING
        + """
begin_for_minutes()
print(workers(), flush=True)
"""
    )
    done = run(code)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "1", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_a_long_launch_is_under_way() -> None:
    """The child has a pool of its own at once; it does not wait for the launch of its parent's thread."""
    code = (
        SPINNING
        + """
import faulthandler, warnings
warnings.simplefilter("ignore")
thread = begin_for_minutes()
short, kept = call_for(10)
child = os.fork()
if child == 0:
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(500)
    for _ in range(20):
        short()
    os._exit(0 if workers() == 1 else 3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert thread.is_alive() and is_busy()
print(code)
"""
    )
    done = run(code)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


TASK = """
import os
import numpy as np
import tilewright as tw

def task(seed):
    generator = np.random.default_rng(seed)
    a, b = generator.integers(-4, 5, (2, 120, 120)).astype(np.float64)
    return os.getpid(), tw.get_num_threads(), bool((tw.einsum("ij,jk->ik", a, b) == a @ b).all())
"""


def test_joblib_processes(tmp_path: Path) -> None:
    """joblib tells its processes how many threads each may have, through OMP_NUM_THREADS; a number of ours wins."""
    pytest.importorskip("joblib")
    (tmp_path / "tilewright_task.py").write_text(TASK)
    code = """
import os, sys
sys.path.insert(0, os.environ["TASKS"])
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ["TASKS"], *sys.path])
import joblib
from tilewright_task import task
with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
    results = joblib.Parallel(n_jobs=2)(joblib.delayed(task)(seed) for seed in range(8))
assert all(right for _, _, right in results)
assert os.getpid() not in {pid for pid, _, _ in results}
print({threads for _, threads, _ in results})
"""
    done = run(code, TASKS=str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, "{1}"), done.stderr
    done = run(code, TASKS=str(tmp_path), **{THREADS_VARIABLE: "2"})
    assert (done.returncode, done.stdout.strip()) == (0, "{2}"), done.stderr


@pytest.mark.parametrize("scheduler", ["threads", "processes", "synchronous"])
def test_dask(tmp_path: Path, scheduler: str) -> None:
    """Many threads or processes of Dask at once; each launch of a thread that finds the pool busy is its own."""
    pytest.importorskip("dask")
    (tmp_path / "tilewright_task.py").write_text(TASK)
    code = f"""
import os, sys
sys.path.insert(0, os.environ["TASKS"])
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ["TASKS"], *sys.path])
if __name__ == "__main__":
    import dask
    from tilewright_task import task
    results = dask.compute(*[dask.delayed(task)(seed) for seed in range(12)], scheduler={scheduler!r}, num_workers=4)
    assert all(right for _, _, right in results)
    print({{pid == os.getpid() for pid, _, _ in results}})
"""
    done = run(code, TASKS=str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, str({scheduler != "processes"})), done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    """However processes are started, after launches of this one; a variable set between them reaches the new ones."""
    import multiprocessing

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not {method}")
    (tmp_path / "tilewright_task.py").write_text(TASK)
    code = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, os.environ["TASKS"])
os.environ["PYTHONPATH"] = os.pathsep.join([os.environ["TASKS"], *sys.path])
import multiprocessing
from tilewright_task import task
if __name__ == "__main__":
    assert task(0)[2]
    os.environ["{OPENMP_VARIABLE}"] = "1"
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        results = pool.map(task, range(6))
    assert all(right for _, _, right in results)
    print({{threads for _, threads, _ in results}})
"""
    done = run(code, TASKS=str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, "{1}"), done.stderr


def test_subinterpreters() -> None:
    """They work, or NumPy refuses them; nothing hangs and the first interpreter goes on."""
    code = """
import numpy as np
import tilewright as tw
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
a = np.ones((100, 100))
assert (tw.einsum("ij,jk->ik", a, a) == 100).all()
inner = '''
import warnings
warnings.simplefilter("ignore")
try:
    import numpy as np
    import tilewright as tw
    a = np.ones((100, 100))
    assert (tw.einsum("ij,jk->ik", a, a) == 100).all()
except ImportError as error:
    assert "more than once per process" in str(error) or "interpreter" in str(error), error  # so says NumPy
'''
one = interpreters.create()
error = interpreters.run_string(one, inner)
assert error is None, error
interpreters.destroy(one)
assert (tw.einsum("ij,jk->ik", a, a) == 100).all()
print("done")
"""
    done = run(code)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
