"""Memory of large arrays comes back when the last view dies, never before, and within the limit."""

from __future__ import annotations

import gc
import mmap
import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import memory, recycling
from tilewright.runtime.recycling import HUGE_PAGE, MappingPool


def taken(pool: MappingPool, nbytes: int) -> np.ndarray[Any, Any]:
    return pool.take((nbytes,), np.dtype(np.uint8))


def test_memory_returns_when_the_last_view_is_gone() -> None:
    pool = MappingPool(limit=1 << 26)
    block = taken(pool, 3 * HUGE_PAGE)
    address, view = block.ctypes.data, block[10:20].view(np.int8)
    del block
    gc.collect()
    assert pool.held == 0
    other = taken(pool, 3 * HUGE_PAGE)
    assert other.ctypes.data != address
    view[:] = 7
    other[:] = 1
    assert (view == 7).all()
    del view
    assert pool.held == 3 * HUGE_PAGE
    assert taken(pool, 3 * HUGE_PAGE).ctypes.data == address


def test_parts_of_a_base_keep_its_memory() -> None:
    pool = MappingPool(limit=1 << 26)
    array = pool.take((1 << 20,), np.dtype(np.float32))
    part = array.base[:16]
    del array
    gc.collect()
    assert pool.held == 0
    del part
    assert pool.held > 0


def test_a_block_is_not_used_for_much_smaller_arrays() -> None:
    pool = MappingPool(limit=1 << 28)
    large = taken(pool, 8 * HUGE_PAGE)
    del large
    small = taken(pool, HUGE_PAGE)
    assert pool.held == 8 * HUGE_PAGE and small.size == HUGE_PAGE


def test_the_limit_holds_and_the_longest_unused_goes_first() -> None:
    pool = MappingPool(limit=3 * HUGE_PAGE)
    blocks = [taken(pool, HUGE_PAGE) for _ in range(5)]
    addresses = [one.ctypes.data for one in blocks]
    while blocks:
        blocks.pop(0)
    assert pool.held == 3 * HUGE_PAGE
    assert {taken(pool, HUGE_PAGE).ctypes.data for _ in range(1)} <= set(addresses[2:])
    too_large = taken(pool, 4 * HUGE_PAGE)
    del too_large
    assert pool.held <= 3 * HUGE_PAGE
    pool.trim()
    assert pool.held == 0


def test_an_array_may_die_in_the_middle_of_the_pool() -> None:
    """As when the garbage collector interrupts it."""
    pool = MappingPool(limit=1 << 28)
    dying = [taken(pool, HUGE_PAGE) for _ in range(3)]
    waiting = taken(pool, 5 * HUGE_PAGE)

    class Interrupted(mmap.mmap):
        def __len__(self) -> int:
            if dying:
                dying.pop()
            return super().__len__()

    pool.give_back(Interrupted(-1, 2 * HUGE_PAGE))
    del waiting
    assert taken(pool, 5 * HUGE_PAGE).size == 5 * HUGE_PAGE
    assert not dying
    assert pool.held == 10 * HUGE_PAGE


def test_threads_never_share_a_block() -> None:
    pool = MappingPool(limit=1 << 26)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            block = taken(pool, HUGE_PAGE)
            block[:64] = number
            if (block[:64] != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_large_results_are_recycled_and_stay_right() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random((800, 30)), generator.random((30, 900))
    first = tw.einsum("ij,jk->ik", a, b)
    kept = first.copy()
    second = tw.einsum("ij,jk->ik", a, 2 * b)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(second, 2 * kept, rtol=1e-12)
    address = second.ctypes.data
    del second
    assert tw.einsum("ij,jk->ik", a, b).ctypes.data == address


def test_a_bad_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_RECYCLE_LIMIT", "much")
    monkeypatch.setattr(recycling, "_POOL", None)
    with pytest.raises(ValueError, match="TILEWRIGHT_RECYCLE_LIMIT='much' is not a number of bytes"):
        tw.einsum("i,j->ij", np.ones(1000), np.ones(1000))


@pytest.mark.parametrize(("given", "limit"), [("512K", 1 << 19), ("2m", 1 << 21), ("", 1 << 30), (" 7 ", 7)])
def test_limits_are_written_as_those_of_the_cache(monkeypatch: pytest.MonkeyPatch, given: str, limit: int) -> None:
    monkeypatch.setenv("TILEWRIGHT_RECYCLE_LIMIT", given)
    monkeypatch.setattr(recycling, "_POOL", None)
    recycling.recycled_empty((1000, 1000), np.dtype(np.float64))
    assert recycling._POOL is not None and recycling._POOL.limit == limit


def test_waiting_memory_is_given_back_before_an_allocation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = MappingPool(limit=1 << 28)
    monkeypatch.setattr(recycling, "_POOL", pool)
    taken(pool, 8 * HUGE_PAGE)
    gc.collect()
    assert pool.held == 8 * HUGE_PAGE
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 10 * HUGE_PAGE - pool.held)
    memory.check_host_allocation(2 * HUGE_PAGE + memory.SMALL_ALLOCATION, "an array")
    assert pool.held == 0
    with pytest.raises(MemoryError, match="another array needs"):
        memory.check_host_allocation(11 * HUGE_PAGE, "another array")


def test_a_mapping_that_fails_is_tried_again_without_the_waiting_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = MappingPool(limit=1 << 28)
    taken(pool, 4 * HUGE_PAGE)
    gc.collect()
    made = recycling._map

    def scarce(size: int) -> mmap.mmap:
        if size + pool.held > 6 * HUGE_PAGE:
            raise OSError(12, "Cannot allocate memory")
        return made(size)

    monkeypatch.setattr(recycling, "_map", scarce)
    assert taken(pool, 5 * HUGE_PAGE).size == 5 * HUGE_PAGE
    with pytest.raises(MemoryError, match="no 14680064 bytes"):
        taken(pool, 7 * HUGE_PAGE)


def test_the_host_is_asked_for_new_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(recycling, "_POOL", MappingPool(limit=1 << 28))
    monkeypatch.setattr(memory, "check_host_allocation", lambda nbytes, what: asked.append(nbytes))
    shape, bytes_ = (9 * HUGE_PAGE,), np.dtype(np.uint8)
    array = memory.aligned_empty(shape, bytes_)
    del array
    array = memory.aligned_empty(shape, bytes_)
    assert asked == [9 * HUGE_PAGE]
    other = memory.aligned_empty(shape, bytes_)
    assert asked == [9 * HUGE_PAGE] * 2
    assert not np.may_share_memory(array, other)
