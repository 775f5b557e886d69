"""Memory of large arrays, kept for the next one when an array dies.

The first write to a fresh page costs far more than the arithmetic that fills it (a page fault and the kernel's zeroing:
1.7 GB/s on small pages of a virtual machine, 14 GB/s on huge ones, against 30 GB/s on warm memory). Large arrays
therefore live in anonymous mappings on huge pages, which return to a pool when the last view of the array is gone. The
pool is emptied before an allocation is refused, and keeps `TILEWRIGHT_RECYCLE_LIMIT` bytes at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.runtime.environment import byte_count

HUGE_PAGE = 2 << 20
LARGE = 1 << 20
"""Arrays of at least this many bytes are recycled."""

_ENOUGH_OF_A_BLOCK = 0.75
_LIMIT_VARIABLE = "TILEWRIGHT_RECYCLE_LIMIT"
_DEFAULT_LIMIT = 1 << 30


class MappingPool:
    """Mappings that wait for their next use, the longest unused given back first when they are more than `limit` bytes.

    There is no lock: arrays die anywhere, also where the garbage collector interrupts a thread that is in here, and
    threads fork anywhere. Every step takes or adds one entry of a dictionary, or copies all of it, which is atomic: a
    list of its entries is not, since the collector may run while tuples are made for them.

    Example:
        >>> pool = MappingPool(limit=1 << 26)
        >>> block = pool.take((1 << 18,), np.dtype(np.float32))
        >>> address = block.ctypes.data
        >>> del block
        >>> pool.take((1 << 9, 1 << 9), np.dtype(np.float32)).ctypes.data == address
        True
    """

    def __init__(self, limit: int) -> None:
        """A pool that keeps at most `limit` bytes for later."""
        self.limit = limit
        self._free: dict[int, mmap.mmap] = {}

    def take(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], before_mapping: Callable[[], None] | None = None
    ) -> np.ndarray[Any, Any]:
        """An array in C order with undefined content; its memory comes back when no array refers to it any more.

        Args:
            shape, dtype: the array's.
            before_mapping: called if nothing that waits is large enough, before the system is asked for more. It may
                refuse by raising.

        Raises:
            MemoryError: if the system has no such memory, even after all that waits was given back.
        """
        size = -(-math.prod(shape) * dtype.itemsize // HUGE_PAGE) * HUGE_PAGE
        mapping = self._reuse(size)
        if mapping is None:
            if before_mapping is not None:
                before_mapping()
            mapping = self.map(size)
        block = np.ndarray.__new__(_Block, len(mapping), np.uint8, mapping)
        block.pool, block.mapping = self, mapping
        return np.ndarray(shape, dtype, block)

    def trim(self) -> int:
        """Give all waiting memory back to the system; how many bytes that are."""
        return sum(self._drop(key) for key in list(self._free))

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return sum(map(len, list(self._free.values())))

    def give_back(self, mapping: mmap.mmap) -> None:
        """Keep a mapping for later: nothing may refer to its memory."""
        if len(mapping) > self.limit:
            return
        self._free[id(mapping)] = mapping
        while self.held > self.limit:
            self._drop(next(iter(list(self._free)), 0))

    def _drop(self, key: int) -> int:
        """Give one mapping back to the system, unless another thread took it meanwhile; its bytes."""
        mapping = self._free.pop(key, None)
        return 0 if mapping is None else len(mapping)

    def _reuse(self, size: int) -> mmap.mmap | None:
        for key, mapping in reversed(self._free.copy().items()):
            fits = size <= len(mapping) and size >= _ENOUGH_OF_A_BLOCK * len(mapping)
            if fits and self._free.pop(key, None) is not None:
                return mapping
        return None

    def map(self, size: int) -> mmap.mmap:
        """A fresh mapping; see `take`."""
        try:
            return _map(size)
        except OSError as error:  # a limit on the process's addresses, or a system that promises no more than it has
            if self.trim() == 0:
                raise MemoryError(f"the system has no {size} bytes of memory for a large array: {error}") from error
        return self.map(size)


class _Block(np.ndarray[Any, Any]):
    """The bytes of a mapping, as an array refers to them; dies with the last such array.

    An array, since NumPy makes one in a fifth of the time that a buffer of `ctypes` takes. Whoever asks an array for
    its base, and that for parts of it, gets objects of this class that have no mapping, and refer to this one.
    """

    pool: MappingPool
    mapping: mmap.mmap | None = None

    def __del__(self) -> None:
        if self.mapping is not None:
            self.pool.give_back(self.mapping)


def _map(size: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages serves as well, only slower at first
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


_POOL: MappingPool | None = None


def _pool() -> MappingPool:
    global _POOL  # noqa: PLW0603
    if _POOL is None:
        _POOL = MappingPool(byte_count(_LIMIT_VARIABLE, _DEFAULT_LIMIT))
    return _POOL


def huge_pages(size: int) -> tuple[int, object]:
    """Zeros on huge pages, where the system has such: the address of so many bytes, which begin with a page, and what
    keeps them.

    Raises:
        MemoryError: if the system has no such memory, even after all that waits was given back.

    Example:
        >>> address, kept = huge_pages(1 << 20)
        >>> address % HUGE_PAGE
        0
    """
    mapping = _pool().map(size + HUGE_PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    return -(-start // HUGE_PAGE) * HUGE_PAGE, mapping


def recycled_empty(
    shape: tuple[int, ...], dtype: np.dtype[Any], before_mapping: Callable[[], None] | None = None
) -> np.ndarray[Any, Any]:
    """An array from the process-wide pool (`TILEWRIGHT_RECYCLE_LIMIT` bytes are kept at most; default 1 GiB); see
    `MappingPool.take`."""
    return _pool().take(shape, dtype, before_mapping)


def give_back_waiting() -> int:
    """Give the memory that waits in the process-wide pool back to the system; how many bytes that are."""
    return 0 if _POOL is None else _POOL.trim()
