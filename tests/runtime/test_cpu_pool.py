"""The CPU's thread pool: every block exactly once, concurrent callers, fork, workspaces."""

import ctypes
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright
from tilewright.ir.scalars import F32, I64
from tilewright.kernel.ir import BlockIndex, Buffer, For, Kernel, Name, Space, Store, add, integer, load, multiply
from tilewright.runtime import cpu_entry, cpu_pool
from tilewright.runtime.cpu_jit import compile_kernel
from tilewright.runtime.cpu_pool import launch, prepare
from tilewright.runtime.recycling import HUGE_PAGE


@pytest.fixture(scope="module")
def counting():
    """y[block] += 1."""
    y = Buffer("y", I64)
    body = (Store(y, BlockIndex(), add(load(y, BlockIndex()), integer(1))),)
    return compile_kernel(Kernel("counting", (y,), (), (), body))


@pytest.fixture(scope="module")
def through_workspace():
    """y[block, :] = block, written to a workspace of 1000 numbers first and copied from there."""
    y, scratch = Buffer("y", I64), Buffer("scratch", I64, Space.WORKSPACE, 1000)
    i, j = Name("i", I64), Name("j", I64)
    at = add(multiply(BlockIndex(), integer(1000)), j)
    body = (
        For("i", integer(0), integer(1000), (Store(scratch, i, BlockIndex()),)),
        For("j", integer(0), integer(1000), (Store(y, at, load(scratch, j)),)),
    )
    return compile_kernel(Kernel("through_workspace", (y,), (), (scratch,), body))


def kernel_of_python(function):
    """What the pool needs of a native kernel."""
    kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(function)
    address = ctypes.cast(kept, ctypes.c_void_p).value
    return SimpleNamespace(name="python", address=address, workspace_bytes=0, kept=kept)


def block_of(*arrays: np.ndarray) -> ctypes.Array:
    return (ctypes.c_int64 * len(arrays))(*(array.ctypes.data for array in arrays))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("grain", [1, 7, 1000])
def test_every_block_runs_exactly_once(counting, threads, grain):
    for blocks in (0, 1, 2, 13, 999, 1000, 20011):
        out = np.zeros(blocks + 5, np.int64)
        launch(counting, block_of(out), blocks, threads, grain)
        assert np.all(out[:blocks] == 1) and np.all(out[blocks:] == 0)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("grain", [1, 5])
def test_shares_become_smaller_and_a_late_thread_holds_up_nobody(threads, grain):
    """A kernel of Python: the launcher stays in its first share until the workers have taken all the rest."""
    blocks, taken, noted, late = 500, [], threading.Event(), threading.Event()

    def kernel(arguments, begin, end, workspace):
        if begin != 0:  # a worker that was awake may be in Python before the launcher, which took its share earlier
            assert noted.wait(600)
        taken.append((begin, end))
        noted.set()
        if sum(end - begin for begin, end in taken) == blocks:
            late.set()
        if begin == 0:
            assert late.wait(600)

    time.sleep(0.01)  # so that the workers sleep, and the launcher takes the first share, if the system lets it
    launch(kernel_of_python(kernel), (ctypes.c_int64 * 1)(), blocks, threads, grain)
    sizes = [end - begin for begin, end in taken]
    if threads == 2:  # of several workers one may note its share after another has noted the next, smaller one
        of_the_worker = [end - begin for begin, end in taken if begin != 0]  # which may be faster than the launcher
        assert of_the_worker == sorted(of_the_worker, reverse=True)
    assert min(sizes) == grain
    assert grain < max(sizes) <= -(-blocks // (2 * threads * grain)) * grain
    taken.sort()
    assert [begin for begin, _ in taken] == [0, *(end for _, end in taken[:-1])] and taken[-1][1] == blocks


@pytest.mark.parametrize("late", ["launcher", "worker"])
def test_who_waits_for_a_late_thread_goes_to_sleep_and_is_woken(late):
    """The other one is late by less and by more than it takes to go to sleep, and by just as much; none waits for ever,
    and none leaves before all blocks are done.
    """
    launcher, both, done, delay = threading.get_ident(), threading.Barrier(2), [], 0.0
    delays = [0.0, 5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 5e-4, 2e-3, 2e-2] * 20

    def kernel(arguments, begin, end, workspace):
        both.wait(600)
        if (threading.get_ident() == launcher) == (late == "launcher"):
            until = time.perf_counter() + delay
            while time.perf_counter() < until:
                time.sleep(0 if delay < 1e-3 else 1e-3)
        done.append(begin)

    native = kernel_of_python(kernel)
    for delay in delays:  # noqa: B007, the kernel reads it
        done.clear()
        launch(native, (ctypes.c_int64 * 1)(), 2, 2)
        assert sorted(done) == [0, 1]


def test_a_core_has_the_same_blocks_at_each_launch():
    """The launcher takes blocks from the start, the worker from the end."""
    owners, both = {}, threading.Barrier(2)

    def kernel(arguments, begin, end, workspace):
        owner = threading.get_ident()
        if owner not in owners.values():
            both.wait(600)
        owners[begin] = owner

    for _ in range(20):
        owners.clear()
        both.reset()
        launch(kernel_of_python(kernel), (ctypes.c_int64 * 1)(), 64, 2)
        in_order = [owners[begin] for begin in sorted(owners)]
        changes = sum(one != other for one, other in itertools.pairwise(in_order))
        assert in_order[0] == threading.get_ident() and changes == 1


def test_more_blocks_than_half_of_a_counter_holds():
    """Blocks are counted by twos, threes, ...; the kernel gets them by ranges, and only notes these."""
    for blocks in ((1 << 31) - 1, 1 << 31, (1 << 33) + 5, 1 << 40):
        taken = []
        launch(kernel_of_python(lambda _, begin, end, __, taken=taken: taken.append((begin, end))), 0, blocks, 2)
        taken.sort()
        assert [begin for begin, _ in taken] == [0, *(end for _, end in taken[:-1])] and taken[-1][1] == blocks


def test_many_launches_in_a_row(counting):
    """Workers sometimes sleep and sometimes are awake, and no launch is lost or counted twice."""
    out = np.zeros(64, np.int64)
    arguments = block_of(out)
    call = prepare(counting, arguments, 64, 4)
    for number in range(3000):
        call()
        if number % 500 == 0:
            threading.Event().wait(0.002)
        if number % 100 == 0:
            assert np.all(out == number + 1)
    assert np.all(out == 3000)


def test_a_prepared_launch_reads_its_arguments_anew(counting):
    first, second = np.zeros(4, np.int64), np.zeros(4, np.int64)
    arguments = block_of(first)
    for threads in (1, 2):
        call = prepare(counting, arguments, 4, threads)
        arguments[0] = first.ctypes.data
        call()
        arguments[0] = second.ctypes.data
        call()
    assert np.all(first == 2) and np.all(second == 2)


def test_an_address_serves_as_arguments(counting):
    out = np.zeros(4, np.int64)
    arguments = block_of(out)
    launch(counting, ctypes.addressof(arguments), 4, 1)
    assert np.all(out == 1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_thread_has_its_own_aligned_workspace(through_workspace, threads):
    out = np.zeros((300, 1000), np.int64)
    for _ in range(5):
        out[...] = -1
        launch(through_workspace, block_of(out), 300, threads)
        np.testing.assert_array_equal(out, np.arange(300)[:, None] * np.ones(1000, np.int64))


def test_the_workspace_is_aligned():
    y, scratch = Buffer("y", F32), Buffer("scratch", F32, Space.WORKSPACE, 16)
    value = load(scratch, integer(0), 16, aligned=True)
    body = (
        Store(scratch, integer(0), load(y, integer(0), 16), aligned=True),
        Store(y, multiply(BlockIndex(), integer(16)), value),
    )
    native = compile_kernel(Kernel("aligned", (y,), (), (scratch,), body), "none")
    out = np.zeros((8, 16), np.float32)
    out[0] = np.arange(16)
    launch(native, block_of(out), 8, 4)
    np.testing.assert_array_equal(out, np.broadcast_to(np.arange(16), out.shape))
    assert cpu_pool._Memory(100).address % 64 == 0


def asked_for_huge_pages(address: int) -> bool:
    """Whether the mapping there says so (`hg` among the flags)."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("VmFlags:"):
            if inside:
                return "hg" in line.split()
        elif not line.split()[0].endswith(":"):
            first, last = (int(one, 16) for one in line.split()[0].split("-"))
            inside = first <= address < last
    raise LookupError(f"there is no mapping at {address:#x}")


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system has no huge pages")
def test_large_workspaces_lie_on_huge_pages():
    memory = cpu_pool._Memory(3 << 20)
    assert memory.address % HUGE_PAGE == 0 and asked_for_huge_pages(memory.address)
    assert ctypes.string_at(memory.address, 3 << 20) == bytes(3 << 20)
    a, out = np.ones((300, 300)), np.empty((300, 300))
    for _ in range(20):  # until there is an entry, which keeps its workspace for the next call
        tilewright.einsum("ij,jk->ik", a, a, out=out)
    free = cpu_entry._code().state[0]
    assert free and free % HUGE_PAGE == 0 and asked_for_huge_pages(free) and np.all(out == 300)


def test_many_threads_call_at_once(counting, through_workspace):
    failures = []

    def work(seed: int) -> None:
        for round_ in range(60):
            out = np.zeros(200, np.int64)
            launch(counting, block_of(out), 200, 1 + (seed + round_) % 4)
            if not np.all(out == 1):
                failures.append((seed, round_, out))
            wide = np.zeros((20, 1000), np.int64)
            launch(through_workspace, block_of(wide), 20, 3)
            if not np.all(wide == np.arange(20)[:, None]):
                failures.append((seed, round_, wide))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


FORKING = """
import ctypes, faulthandler, os, signal, sys, threading, warnings
import numpy as np
warnings.simplefilter("ignore")
faulthandler.register(signal.SIGALRM, chain=True)  # who hangs says where, the parent and each child
signal.alarm(550)
from tilewright.ir.scalars import I64
from tilewright.kernel.ir import *
from tilewright.runtime.cpu_jit import compile_kernel
from tilewright.runtime.cpu_pool import launch

def kernel(name):
    y = Buffer("y", I64)
    return compile_kernel(Kernel(name, (y,), (), (), (Store(y, BlockIndex(), add(load(y, BlockIndex()), integer(1))),)))

def check(native, rounds):
    for _ in range(rounds):
        out = np.zeros(100, np.int64)
        launch(native, (ctypes.c_int64 * 1)(out.ctypes.data), 100, 3)
        assert np.all(out == 1)

native = kernel("before")
check(native, 3)
going = True
def background():
    while going:
        check(native, 1)
busy = threading.Thread(target=background)
busy.start()
children = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        signal.alarm(500)
        try:
            check(native, 20)
            check(kernel("in_child"), 5)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    children.append(child)
    check(native, 5)
going = False
busy.join()
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [0] * 5, codes
check(native, 3)
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_in_the_middle():
    """Children forked while another thread launches make pools of their own; the parent goes on."""
    result = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=600, check=False)
    assert (result.returncode, result.stdout.strip()) == (0, "done"), result.stderr


def test_the_process_ends_with_sleeping_workers():
    code = FORKING.split("going = True", maxsplit=1)[0] + "import time; time.sleep(0.01); print('end')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "end", "")


def test_native_code_launches_on_no_pool_that_is_closed():
    """Its memory may be that of something else by then: the launch waited for ever."""
    words = list(cpu_pool.POOL_WORDS)
    pool = cpu_pool._Pool()
    try:
        pool.provide(1, 64)
        assert cpu_pool.POOL_WORDS[1] == pool.memory.address
        pool.close()
        assert list(cpu_pool.POOL_WORDS) == [0, 0, 0, 0]
    finally:
        cpu_pool.POOL_WORDS[:] = words


def test_wrong_launches_are_refused(counting):
    out = np.zeros(4, np.int64)
    for options, message in (({"blocks": -1}, "-1 blocks"), ({"blocks": 4, "grain": 0}, "grain 0"),
                             ({"blocks": 4, "threads": 0}, "is 0")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            launch(counting, block_of(out), **options)
    assert np.all(out == 0)
