"""Memory of large arrays, kept for the next one when an array dies.

The first write to a fresh page costs far more than the arithmetic that fills it (a page fault and the kernel's zeroing:
1.7 GB/s on small pages of a virtual machine, 14 GB/s on huge ones, against 30 GB/s on warm memory). Large arrays
therefore live in anonymous mappings on huge pages, which return to a pool when the last view of the array is gone. The
pool is emptied before an allocation is refused, and keeps `TILEWRIGHT_RECYCLE_LIMIT` bytes at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from tilewright.runtime.forking import ForkSafeLock

HUGE_PAGE = 2 << 20
LARGE = 1 << 20
"""Arrays of at least this many bytes are recycled."""

_ENOUGH_OF_A_BLOCK = 0.75
_LIMIT_VARIABLE = "TILEWRIGHT_RECYCLE_LIMIT"
_DEFAULT_LIMIT = 1 << 30


class MappingPool:
    """Mappings that wait for their next use, the longest unused given back first when they are more than `limit` bytes.

    Example:
        >>> pool = MappingPool(limit=1 << 26)
        >>> block = pool.take(1 << 20)
        >>> address = block.ctypes.data
        >>> del block
        >>> pool.take(1 << 20).ctypes.data == address
        True
    """

    def __init__(self, limit: int) -> None:
        """A pool that keeps at most `limit` bytes for later."""
        self.limit = limit
        self._lock = ForkSafeLock()
        self._free: OrderedDict[int, mmap.mmap] = OrderedDict()
        self._held = 0

    def take(
        self, nbytes: int, before_mapping: Callable[[], None] | None = None
    ) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Writable bytes with undefined content; their memory comes back when no array refers to it any more.

        Args:
            nbytes: how many.
            before_mapping: called if nothing that waits is large enough, before the system is asked for more. It may
                refuse by raising.

        Raises:
            MemoryError: if the system has no such memory, even after all that waits was given back.
        """
        size = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
        mapping = self._reuse(size)
        if mapping is None:
            if before_mapping is not None:
                before_mapping()
            mapping = self._map(size)
        holder = (ctypes.c_char * len(mapping)).from_buffer(mapping)
        weakref.finalize(holder, self._give_back, mapping).atexit = False
        return np.frombuffer(memoryview(holder), np.uint8, nbytes)

    def trim(self) -> int:
        """Give all waiting memory back to the system; how many bytes that are."""
        with self._lock:
            waiting, self._held = self._held, 0
            self._free.clear()
        return waiting

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return self._held

    def _reuse(self, size: int) -> mmap.mmap | None:
        with self._lock:
            for key, mapping in reversed(self._free.items()):
                if size <= len(mapping) and size >= _ENOUGH_OF_A_BLOCK * len(mapping):
                    del self._free[key]
                    self._held -= len(mapping)
                    return mapping
        return None

    def _map(self, size: int) -> mmap.mmap:
        try:
            return _map(size)
        except OSError as error:  # a limit on the process's addresses, or a system that promises no more than it has
            if self.trim() == 0:
                raise MemoryError(f"the system has no {size} bytes of memory for a large array: {error}") from error
        return self._map(size)

    def _give_back(self, mapping: mmap.mmap) -> None:
        with self._lock:
            if len(mapping) > self.limit:
                return
            self._free[id(mapping)] = mapping
            self._held += len(mapping)
            while self._held > self.limit:
                _, oldest = self._free.popitem(last=False)
                self._held -= len(oldest)


def _map(size: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages serves as well, only slower at first
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def _limit_from_environment() -> int:
    given = os.environ.get(_LIMIT_VARIABLE)
    if given is None:
        return _DEFAULT_LIMIT
    if not given.isdigit():
        raise ValueError(f"{_LIMIT_VARIABLE} must be a number of bytes, not {given!r}")
    return int(given)


_POOL: MappingPool | None = None
_POOL_LOCK = ForkSafeLock()


def recycled_bytes(
    nbytes: int, before_mapping: Callable[[], None] | None = None
) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Bytes of the process-wide pool (`TILEWRIGHT_RECYCLE_LIMIT` bytes are kept at most; default 1 GiB); see `take`."""
    global _POOL  # noqa: PLW0603
    if _POOL is None:
        with _POOL_LOCK:
            _POOL = _POOL or MappingPool(_limit_from_environment())
    return _POOL.take(nbytes, before_mapping)


def give_back_waiting() -> int:
    """Give the memory that waits in the process-wide pool back to the system; how many bytes that are."""
    return 0 if _POOL is None else _POOL.trim()
