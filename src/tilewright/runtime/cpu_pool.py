"""Run a native kernel's blocks on the cores of this process.

Threads of a persistent pool take chunks of blocks from a shared counter; all of that is native code
(`cpu_driver`), so that a launch costs microseconds. The pool serves one launch at a time: a launch that finds it busy
runs on its own thread alone. A child after fork has no pool and makes its own when it needs one.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tilewright.runtime.cpu_driver import CALL_SLOTS, MAXIMUM_WORKERS, POOL_BYTES, WORKSPACES, driver_text
from tilewright.runtime.native_code import native_functions
from tilewright.runtime.native_image import NativeKernel

THREADS_VARIABLE = "TILEWRIGHT_NUM_THREADS"
CORES_ARE_KNOWN_FOR = 1.0  # seconds until the system is asked again, which costs more than a small launch
CHUNKS_PER_THREAD = 8  # enough that a thread delayed by others does not hold up the rest

Arguments = int | ctypes.Array[Any]


# --- number of threads ------------------------------------------------------------------------------------------------


class _State:
    """What this process has chosen and started."""

    def __init__(self) -> None:
        self.chosen_threads: int | None = None
        self.cores = 0
        self.cores_until = -math.inf
        self.forget()

    def forget(self) -> None:
        """In a child after fork the pool's threads do not exist, and its locks may be held by nobody."""
        self.pool: _Pool | None = None
        self.pool_lock = threading.Lock()
        self.driver_lock = threading.Lock()


_state = _State()


def set_num_threads(number: int) -> None:
    """Let later launches use up to `number` threads, the calling one included.

    Raises:
        ValueError: unless 1 <= number <= 512.
    """
    _state.chosen_threads = _checked(number, "the number of threads")


def get_num_threads() -> int:
    """Threads that a launch may use: as set, else TILEWRIGHT_NUM_THREADS, else the cores that this process may use.

    Raises:
        ValueError: if the environment variable is not a number from 1 to 512.
    """
    if _state.chosen_threads is not None:
        return _state.chosen_threads
    text = os.environ.get(THREADS_VARIABLE, "").strip()
    if not text:
        now = time.monotonic()
        if now >= _state.cores_until:
            _state.cores, _state.cores_until = available_cores(), now + CORES_ARE_KNOWN_FOR
        return _state.cores
    if not text.lstrip("-").isdecimal():
        raise ValueError(f"{THREADS_VARIABLE} is {text!r}, not a number")
    _state.chosen_threads = _checked(int(text), THREADS_VARIABLE)
    return _state.chosen_threads


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAXIMUM_WORKERS + 1)
    return min(os.cpu_count() or 1, MAXIMUM_WORKERS + 1)


def _checked(number: int, what: str) -> int:
    if not 1 <= number <= MAXIMUM_WORKERS + 1:
        raise ValueError(f"{what} is {number}; it must be from 1 to {MAXIMUM_WORKERS + 1}")
    return number


# --- native code and memory -------------------------------------------------------------------------------------------


class _Driver:
    """The native functions; made once per process, when a launch first has several threads."""

    def __init__(self) -> None:
        addresses = native_functions("driver", ("launch", "worker", "prepare", "stop"), driver_text)
        pointer, number = ctypes.c_void_p, ctypes.c_int64

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


def _driver() -> _Driver:
    with _state.driver_lock:
        return _loaded_driver()


class _Memory:
    """Bytes that start at a multiple of 64."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = (ctypes.c_char * (size + 63))()
        self.address = -(-ctypes.addressof(self._bytes) // 64) * 64


class _Local(threading.local):
    """What each calling thread keeps: its workspace, grown when a kernel needs more."""

    workspace: _Memory | None = None

    def address(self, size: int) -> int:
        if size == 0:
            return 0
        if self.workspace is None or self.workspace.size < size:
            self.workspace = _Memory(size)
        return self.workspace.address


_local = _Local()


class _Pool:
    """Worker threads (Python threads that stay inside native code) and the memory through which they are told."""

    def __init__(self) -> None:
        self.driver = _driver()
        self.lock = threading.Lock()
        self.memory = _Memory(POOL_BYTES)
        self.threads: list[threading.Thread] = []
        self.workspaces: list[_Memory | None] = []
        self.driver.prepare(self.memory.address)

    def attach(self, call: ctypes.Array[ctypes.c_int64], workers: int, workspace_bytes: int) -> None:
        """Make a call block use up to `workers` workers beside the calling thread; `self.lock` is held."""
        while len(self.threads) < workers:
            self._start()
        # Any worker may take a ticket, so all of them need the workspace.
        for number in range(len(self.threads) if workspace_bytes else 0):
            memory = self.workspaces[number]
            if memory is None or memory.size < workspace_bytes:
                self.workspaces[number] = memory = _Memory(workspace_bytes)
                slot = ctypes.c_int64.from_address(self.memory.address + WORKSPACES + 8 * number)
                slot.value = memory.address
        call[5], call[6] = self.memory.address, workers

    def _start(self) -> None:
        number = len(self.threads)
        arguments = (self.memory.address, number)
        thread = threading.Thread(target=self.driver.worker, args=arguments, name=f"tilewright-{number}", daemon=True)
        thread.start()
        self.threads.append(thread)
        self.workspaces.append(None)

    def close(self) -> None:
        """Let the workers return. Runs at exit, when no launch can be under way but for one of a daemon thread."""
        if self.lock.acquire(timeout=1.0):
            self.driver.stop(self.memory.address)
            for thread in self.threads:
                thread.join()


def _the_pool() -> _Pool:
    if _state.pool is not None:
        return _state.pool
    with _state.pool_lock:
        if _state.pool is None:
            _state.pool = _Pool()
            atexit.register(_close_pool)
        return _state.pool


def _close_pool() -> None:
    if _state.pool is not None:
        _state.pool.close()


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
        self.function(self.address, 0, self.blocks, _local.address(self.workspace_bytes))


class _Launch:
    """A prepared launch on several threads. Call blocks are reused, one per call under way."""

    def __init__(self, slots: tuple[int, ...], threads: int, workspace_bytes: int, kept: object) -> None:
        self.slots, self.workers, self.workspace_bytes, self.kept = slots, threads - 1, workspace_bytes, kept
        self.native_launch = _driver().launch
        self.free: list[tuple[ctypes.Array[ctypes.c_int64], int]] = []

    def __call__(self) -> None:
        try:
            entry = self.free.pop()
        except IndexError:
            block = (ctypes.c_int64 * CALL_SLOTS)(*self.slots)
            entry = (block, ctypes.addressof(block))
        call, address = entry
        if self.workspace_bytes:
            call[4] = _local.address(self.workspace_bytes)
        pool = _the_pool()
        if pool.lock.acquire(blocking=False):
            try:
                pool.attach(call, self.workers, self.workspace_bytes)
                self.native_launch(address)
            finally:
                pool.lock.release()
        else:
            call[5] = 0
            self.native_launch(address)
        self.free.append(entry)


def prepare(
    native: NativeKernel, arguments: Arguments, blocks: int, threads: int | None = None, grain: int = 1
) -> Callable[[], None]:
    """A callable that launches with these arguments each time; see `launch`.

    What can be decided once is decided here: a serial launch without workspace costs a single native call. The
    argument block is read at each launch and may be rewritten between them. Calls may come from several threads.
    """
    if blocks < 0 or grain < 1:
        raise ValueError(f"kernel {native.name} cannot run {blocks} blocks with grain {grain}")
    address = arguments if isinstance(arguments, int) else ctypes.addressof(arguments)
    threads = get_num_threads() if threads is None else _checked(threads, "the number of threads")
    threads = max(1, min(threads, -(-blocks // grain)))
    chunk = max(grain, blocks // (threads * CHUNKS_PER_THREAD))
    keep = (native, arguments)
    if threads == 1 and native.workspace_bytes == 0:
        direct = functools.partial(_KERNEL(native.address), address, 0, blocks, 0)
        direct.kept = keep  # type: ignore[attr-defined]
        return direct
    if threads == 1:
        return _SerialLaunch(native, address, blocks, keep)
    slots = (native.address, address, blocks, chunk, 0, 0, 0)
    return _Launch(slots, threads, native.workspace_bytes, keep)


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
