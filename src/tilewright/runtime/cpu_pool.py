"""Run a native kernel's blocks on the cores of this process.

Threads of a persistent pool take blocks from a shared counter; all of that is native code
(`cpu_driver`), so that a launch costs microseconds. The pool serves one launch at a time: a launch that finds it busy
runs on its own thread alone, so that programs with many threads of their own do not end up with more than one each.
A child after fork has no pool and makes its own when it needs one. How many threads there may be is the matter of
`thread_count`; it is asked at each launch that has blocks to share out.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.cpu_driver import CALL_SLOTS, MAXIMUM_WORKERS, POOL_BYTES, WORKSPACES, driver_text
from tilewright.runtime.native_code import native_functions
from tilewright.runtime.native_image import NativeKernel
from tilewright.runtime.recycling import HUGE_PAGE, huge_pages
from tilewright.runtime.thread_count import MOST_THREADS, available_cores, get_num_threads, set_num_threads, when_asked

__all__ = ["Arguments", "available_cores", "get_num_threads", "launch", "prepare", "set_num_threads"]

PATIENCE_AT_EXIT = 1.0  # seconds for workers to return
PATIENCE_WITH_SYSTEM = 1.0  # seconds until a system that allowed no more threads or memory is asked again
assert MAXIMUM_WORKERS + 1 == MOST_THREADS

Arguments = int | ctypes.Array[Any]


POOL_WORDS = (ctypes.c_int64 * 4)()
"""For native code that launches: the address of the driver's `launch`, the pool's (0: none), the bytes of its
workers' workspaces, and how many workers there are."""


class _State:
    """What this process has started."""

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.forget()

    def forget(self) -> None:
        """In a child after fork the pool's threads do not exist."""
        self.pool: _Pool | None = None
        POOL_WORDS[:] = [0, 0, 0, 0]


_state = _State()


# --- native code and memory -------------------------------------------------------------------------------------------


class _Driver:
    """The native functions; made once per process, when a launch first has several threads."""

    def __init__(self) -> None:
        addresses = native_functions("driver", ("launch", "worker", "prepare", "stop"), driver_text)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.launch_address = addresses["launch"]

        def function(name: str, *types: Any) -> Callable[..., None]:
            native: Callable[..., None] = ctypes.CFUNCTYPE(None, *types)(addresses[name])
            return native

        self.launch = function("launch", pointer)
        self.worker = function("worker", pointer, number)
        self.prepare = function("prepare", pointer)
        self.stop = function("stop", pointer)


@functools.cache
def _loaded_driver() -> _Driver:
    return _Driver()


class _Memory:
    """Bytes that start at a multiple of 64; many of them lie on huge pages, since panels are read again and again, from
    more small pages than a processor remembers the addresses of.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept: object
        if size >= HUGE_PAGE:
            self.address, self._kept = huge_pages(size)
        else:
            self._kept = held = (ctypes.c_char * (size + 63))()
            self.address = -(-ctypes.addressof(held) // 64) * 64


class _Local(threading.local):
    """What each calling thread keeps: its workspace, grown when a kernel needs more.

    Who launches holds on to it meanwhile: when the interpreter ends, it takes this away from daemon threads.
    """

    workspace = _Memory(0)

    def memory(self, size: int) -> _Memory:
        if self.workspace.size < size:
            self.workspace = _Memory(size)
        return self.workspace


_local = _Local()


class _Pool:
    """Worker threads (Python threads that stay inside native code) and the memory through which they are told."""

    def __init__(self) -> None:
        self.driver = _loaded_driver()
        self.lock = ForkSafeLock()
        self.memory = _Memory(POOL_BYTES)
        self.threads: list[threading.Thread] = []
        self.workspace_bytes = 0  # of every worker
        self.kept: list[_Memory] = []
        self.refused_until = -math.inf  # nothing is asked of the system before
        self.cores = _cores_of_process()
        self.follows = 0  # how often the workers are still to be told of these
        self.driver.prepare(self.memory.address)

    def provide(self, workers: int, workspace_bytes: int) -> None:
        """See to it that there are so many workers, with workspaces of so many bytes; there may be a launch meanwhile.

        Any worker may take a ticket, so all of them need the workspace. The old ones stay, for workers may be using
        them; each is at least twice as large as the one before. Where the system allows no more threads or memory there
        are fewer workers, or smaller workspaces, and a warning: launches do with those that fit.
        """
        refused: Exception | None = None
        with self.lock:
            if time.monotonic() >= self.refused_until:
                try:
                    self._provide(workers, workspace_bytes)
                except (RuntimeError, MemoryError) as error:  # also of an interpreter that is about to end
                    refused, self.refused_until = error, time.monotonic() + PATIENCE_WITH_SYSTEM
            POOL_WORDS[:] = [self.driver.launch_address, self.memory.address, self.workspace_bytes, len(self.threads)]
        if refused is not None:
            warnings.warn(f"launches use fewer threads than they might: {refused!r}", RuntimeWarning, stacklevel=2)

    def _provide(self, workers: int, workspace_bytes: int) -> None:
        if workspace_bytes > self.workspace_bytes:
            size = max(workspace_bytes, 2 * self.workspace_bytes)
            for number in range(len(self.threads)):
                self._give_workspace(number, size)
            self.workspace_bytes = size
        while len(self.threads) < workers:
            self._start()

    def _give_workspace(self, number: int, size: int) -> None:
        memory = _Memory(size)
        self.kept.append(memory)
        ctypes.c_int64.from_address(self.memory.address + WORKSPACES + 8 * number).value = memory.address

    def _start(self) -> None:
        number = len(self.threads)
        if self.workspace_bytes:
            self._give_workspace(number, self.workspace_bytes)
        arguments = (number, _cores_for_workers())
        thread = threading.Thread(target=self._work, args=arguments, name=f"tilewright-{number}", daemon=True)
        # Its number is taken before it starts: an exception (Ctrl-C) may come after it has started.
        self.threads.append(thread)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads, and says so
            self.threads.pop()
            raise

    def follow_cores(self) -> None:
        """Let the workers use the cores that the process may use now, where these are others than before.

        They are told twice: one that steps aside in that moment puts back the mask that it had.
        """
        cores = _cores_of_process()
        with self.lock:
            if cores != self.cores:
                self.cores, self.follows = cores, 2
            if not self.follows:
                return
            self.follows -= 1
            for thread in self.threads:
                if thread.native_id is not None:
                    with contextlib.suppress(OSError):  # it has ended, or some cores are gone by now
                        os.sched_setaffinity(thread.native_id, cores | os.sched_getaffinity(0))

    def _work(self, number: int, cores: set[int] | None) -> None:
        if cores is not None:
            with contextlib.suppress(OSError):  # some of them are gone by now
                os.sched_setaffinity(0, cores)
        self.driver.worker(self.memory.address, number)

    def close(self) -> None:
        """Let the workers return. Runs at exit; a daemon thread may still have a launch, which then goes on without
        workers that have not joined it, and which is not waited for. Native code launches on it no more: its memory may
        be gone soon.
        """
        with self.lock:
            if POOL_WORDS[1] == self.memory.address:
                POOL_WORDS[:] = [0, 0, 0, 0]
        self.driver.stop(self.memory.address)
        for thread in self.threads:
            if thread.is_alive():
                thread.join(timeout=PATIENCE_AT_EXIT / len(self.threads))


def _cores_of_process() -> set[int]:
    """Those that its main thread may use; none where that is not known."""
    return os.sched_getaffinity(os.getpid()) if hasattr(os, "sched_getaffinity") else set()


def _cores_for_workers() -> set[int] | None:
    """The cores of a new worker; None where those that it has anyway are right.

    Workers serve every thread that calls, so one that is bound to a core must not bind those that it happens to start:
    they may use the cores of the process, too, which are those of its main thread.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    own, main = os.sched_getaffinity(0), _cores_of_process()
    return None if main <= own else own | main


def _the_pool() -> _Pool:
    if _state.pool is not None:
        return _state.pool
    with _state.lock:
        pool = _Pool()  # which takes long, and where a handler of signals may launch, too
        if _state.pool is None:
            _state.pool = pool
            atexit.register(_close_pool)
        return _state.pool


def _close_pool() -> None:
    if _state.pool is not None:
        _state.pool.close()


def _follow_cores() -> None:
    if _state.pool is not None:
        _state.pool.follow_cores()


when_asked.append(_follow_cores)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.forget)


# --- launches ---------------------------------------------------------------------------------------------------------


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class _SerialLaunch:
    """A prepared launch on the calling thread, with a workspace."""

    def __init__(self, native: NativeKernel, address: int, blocks: int, kept: object) -> None:
        self.function, self.address, self.blocks, self.kept = _KERNEL(native.address), address, blocks, kept
        self.workspace_bytes = native.workspace_bytes

    def __call__(self) -> None:
        workspace = _local.memory(self.workspace_bytes)
        self.function(self.address, 0, self.blocks, workspace.address)


class _Launch:
    """A prepared launch on several threads. Call blocks are reused, one per call under way."""

    def __init__(
        self, native: NativeKernel, address: int, blocks: int, threads: int | None, grain: int, kept: object
    ) -> None:
        self.native, self.address, self.blocks, self.grain, self.kept = native, address, blocks, grain, kept
        self.threads, self.most, self.workspace_bytes = threads, -(-blocks // grain), native.workspace_bytes
        self.alone = _KERNEL(native.address)
        self.free: list[tuple[ctypes.Array[ctypes.c_int64], int, int, _Pool]] = []

    def __call__(self) -> None:
        threads = min(self.threads or get_num_threads(), self.most)
        workspace = _local.memory(self.workspace_bytes)
        if threads == 1:
            self.alone(self.address, 0, self.blocks, workspace.address)
            return
        pool = _state.pool or _the_pool()
        if threads > len(pool.threads) + 1 or self.workspace_bytes > pool.workspace_bytes:
            pool.provide(threads - 1, self.workspace_bytes)
        if self.workspace_bytes > pool.workspace_bytes:  # there was no memory for more
            self.alone(self.address, 0, self.blocks, workspace.address)
            return
        try:
            entry = self.free.pop()
        except IndexError:
            entry = self._call_block(threads, pool)
        if entry[2] != threads or entry[3] is not pool:
            entry = self._call_block(threads, pool)
        entry[0][4] = workspace.address
        pool.driver.launch(entry[1])
        self.free.append(entry)

    def _call_block(self, threads: int, pool: _Pool) -> tuple[ctypes.Array[ctypes.c_int64], int, int, _Pool]:
        slots = (self.native.address, self.address, self.blocks, self.grain, 0, pool.memory.address, threads - 1)
        block = (ctypes.c_int64 * CALL_SLOTS)(*slots)
        return block, ctypes.addressof(block), threads, pool


def prepare(
    native: NativeKernel, arguments: Arguments, blocks: int, threads: int | None = None, grain: int = 1
) -> Callable[[], None]:
    """A callable that launches with these arguments each time; see `launch`.

    What can be decided once is decided here: a serial launch without workspace costs a single native call. The
    argument block is read at each launch and may be rewritten between them, and so is the number of threads if none
    is given. Calls may come from several threads.
    """
    if blocks < 0 or grain < 1:
        raise ValueError(f"kernel {native.name} cannot run {blocks} blocks with grain {grain}")
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"the number of threads is {threads}; it must be from 1 to {MOST_THREADS}")
    address = arguments if isinstance(arguments, int) else ctypes.addressof(arguments)
    keep = (native, arguments)
    if blocks > grain and threads != 1:
        return _Launch(native, address, blocks, threads, grain, keep)
    if native.workspace_bytes:
        return _SerialLaunch(native, address, blocks, keep)
    direct = functools.partial(_KERNEL(native.address), address, 0, blocks, 0)
    direct.kept = keep  # type: ignore[attr-defined]
    return direct


def workspace(nbytes: int) -> _Memory:
    """The workspace of the calling thread, of at least so many bytes; it is to be held on to while it is used."""
    return _local.memory(nbytes)


def provide(workers: int, workspace_bytes: int) -> None:
    """See to it that there are so many threads that help, with workspaces of so many bytes."""
    _the_pool().provide(workers, workspace_bytes)


def launch(native: NativeKernel, arguments: Arguments, blocks: int, threads: int | None = None, grain: int = 1) -> None:
    """Run blocks 0 .. blocks-1 of a kernel and return when all are done.

    Args:
        native: the kernel.
        arguments: its argument block (`kernel/llvm.py` tells its form), a ctypes array or an address.
        blocks: how many blocks there are; they may run in any order and at the same time.
        threads: at most so many threads, the calling one included; by default `get_num_threads()`.
        grain: how many blocks are worth handing to a thread at the least.

    Raises:
        ValueError: for a negative number of blocks, a grain below 1, or a number of threads out of range.
    """
    prepare(native, arguments, blocks, threads, grain)()
