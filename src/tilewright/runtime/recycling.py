"""Memory of large arrays, kept for the next one when an array dies.

The first write to a fresh page costs far more than the arithmetic that fills it (a page fault and the kernel's zeroing:
1.7 GB/s on small pages of a virtual machine, 14 GB/s on huge ones, against 30 GB/s on warm memory). Large arrays
therefore live in anonymous mappings on huge pages, which return to a pool when the last view of the array is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref
from collections import OrderedDict

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

    def take(self, nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Writable bytes with undefined content; their memory comes back when no array refers to it any more."""
        size = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
        mapping = self._reuse(size) or _map(size)
        holder = (ctypes.c_char * len(mapping)).from_buffer(mapping)
        weakref.finalize(holder, self._give_back, mapping).atexit = False
        return np.frombuffer(memoryview(holder), np.uint8, nbytes)

    def trim(self) -> None:
        """Give all waiting memory back to the system."""
        with self._lock:
            self._free.clear()
            self._held = 0

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


def recycled_bytes(nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Bytes of the process-wide pool (`TILEWRIGHT_RECYCLE_LIMIT` bytes are kept at most; default 1 GiB)."""
    global _POOL  # noqa: PLW0603
    if _POOL is None:
        with _POOL_LOCK:
            _POOL = _POOL or MappingPool(_limit_from_environment())
    return _POOL.take(nbytes)
