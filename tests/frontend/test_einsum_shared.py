"""Repeated calls whose kernels are shared among threads: their short cuts are those of the number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from children import true_in_a_child
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.frontend import einsum as einsum_module
from tilewright.frontend.einsum_stored import StoredEinsum
from tilewright.runtime import cpu_entry, cpu_pool
from tilewright.runtime.executable import Executable
from tilewright.runtime.recycling import LARGE
from tilewright.runtime.thread_limits import register_with_threadpoolctl

pytestmark = pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")

E2 = "ij,jk->ik"
N = 192  # so many multiplications that they are worth several threads
THREADS = (1, 2, 3)


def some(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def shared(plan: Any, *arrays: Any) -> bool:
    """Whether a plan's kernels have several blocks for these arrays."""
    flat = plan.bound.executable.flat_plan(arrays, np.empty(plan.bound.shape, plan.bound.dtype))
    assert flat is not None
    return any(one.blocks > 1 for one in flat.launches)


def taught(expression: str, *arrays: Any) -> list[Callable[..., Any]]:
    """A plan, and einsum, that know these arrays on each number of threads."""

    def einsum(*operands: Any, out: Any = None) -> Any:
        return tw.einsum(expression, *operands, out=out, target="cpu")

    plan = tw.plan(expression, *arrays, target="cpu")
    for threads in THREADS:
        with tw.num_threads(threads):
            for call in (plan, einsum):
                for _ in range(3):
                    out = call(*arrays)
                    call(*arrays, out=out)
            assert threads == 1 or shared(plan, *arrays), "too little work to be shared"
    return [plan, einsum]


@pytest.fixture
def the_long_way_fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What makes calls fail from then on that take the long way."""

    def fail(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the long way was taken")

    def begin() -> None:
        monkeypatch.setattr(Executable, "__call__", fail)
        monkeypatch.setattr(StoredEinsum, "run", fail)
        monkeypatch.setattr(einsum_module, "record_key", lambda *call: None)

    return begin


@pytest.mark.parametrize("n", [N, 600])  # results that native code makes, and large ones, which are recycled
def test_the_short_way_on_any_number_of_threads(n: int, the_long_way_fails: Callable[[], None]) -> None:
    assert (n * n * 4 >= LARGE) == (n == 600)
    a, b = some(n, n), some(n, n, seed=1)
    calls = taught(E2, a, b)
    the_long_way_fails()
    expected = a @ b
    for threads in (*THREADS, *THREADS[::-1]):
        with tw.num_threads(threads):
            for call in calls:
                result = call(a, b)
                np.testing.assert_array_equal(result, expected)
                assert result.flags.c_contiguous and result.flags.writeable and result is not call(a, b)
                out = np.zeros_like(a)
                assert call(a, b, out=out) is out
                np.testing.assert_array_equal(out, expected)
                with pytest.raises(AssertionError, match="the long way"):
                    call(a[:, ::-1], b)
    with tw.num_threads(4), pytest.raises(AssertionError, match="the long way"):
        calls[0](a, b)


def test_set_num_threads_between_calls() -> None:
    a, b = some(N, N), some(N, N, seed=1)
    calls = taught(E2, a, b)
    before = tw.get_num_threads()
    try:
        for threads in (2, 1, 5, 2, 3, 1):
            tw.set_num_threads(threads)
            for call in calls:
                for _ in range(3):
                    np.testing.assert_array_equal(call(a, b), a @ b)
    finally:
        tw.set_num_threads(before)


def test_limits_by_threadpoolctl() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    register_with_threadpoolctl()
    a, b = some(N, N), some(N, N, seed=1)
    calls = taught(E2, a, b)
    for limit in (1, 2):
        with threadpoolctl.threadpool_limits(limits=limit):
            assert tw.get_num_threads() == limit
            for call in calls:
                np.testing.assert_array_equal(call(a, b), a @ b)


TERMS = [E2, "ji,jk->ik", "ij,kj->ki", "bij,bjk->bik", "ij,ij->j", "i,j->ij", "ij,j->i", "ij,jk,kl->il", "ij,ij->"]


@settings(max_examples=25, deadline=None)
@given(
    expression=st.sampled_from(TERMS),
    sizes=st.fixed_dictionaries({one: st.integers(1, 160) for one in "ijkl"} | {"b": st.integers(1, 20)}),
    dtype=st.sampled_from([np.float32, np.float64, np.int64]),
    order=st.lists(st.sampled_from(THREADS), min_size=4, max_size=10),
)
def test_any_sizes_on_any_threads(expression: str, sizes: dict[str, int], dtype: Any, order: list[int]) -> None:
    """Whole numbers whose sums are exact: the results are the same on any number of threads, however they meet."""
    terms = expression.split("->", maxsplit=1)[0].split(",")
    arrays = [some(*(sizes[one] for one in term), seed=n, dtype=dtype) % 3 for n, term in enumerate(terms)]
    expected = np.einsum(expression, *arrays, optimize=True)
    plan = tw.plan(expression, *arrays, target="cpu")
    for threads in order:
        with tw.num_threads(threads):
            for _ in range(2):
                np.testing.assert_array_equal(plan(*arrays), expected)
                np.testing.assert_array_equal(tw.einsum(expression, *arrays, target="cpu"), expected)


def test_the_same_bits_by_the_short_way() -> None:
    generator = np.random.default_rng(5)
    a, b = (generator.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    for threads in THREADS:
        with tw.num_threads(threads):
            plan = tw.plan(E2, a, b, target="cpu")
            results = [plan(a, b) for _ in range(6)]
            assert plan.bound.quick.entries
            assert all((one == results[0]).all() for one in results)


def test_many_threads_at_once() -> None:
    """Each with its own number of threads; the pool serves one launch at a time, and the others run alone."""
    operands = [(some(N, N, seed=n), some(N, N, seed=n + 50)) for n in range(6)]
    expected = [a @ b for a, b in operands]
    calls = taught(E2, *operands[0])
    wrong: list[int] = []

    def work(number: int) -> None:
        with tw.num_threads(THREADS[number % len(THREADS)]):
            for turn in range(60):
                (a, b), right = operands[(number + turn) % 6], expected[(number + turn) % 6]
                if not all((call(a, b) == right).all() for call in calls):
                    wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_fork_has_its_own_workers() -> None:
    a, b = some(N, N), some(N, N, seed=1)
    calls = taught(E2, a, b)
    expected = a @ b

    def has_workers() -> bool:
        right = True
        for threads in (2, 3, 1, 2):  # three threads need one worker more than two had started
            with tw.num_threads(threads):
                right &= all((call(a, b) == expected).all() for call in calls for _ in range(20))
            pool = cpu_pool._state.pool
            right &= pool is not None and len(pool.threads) >= threads - 1
        return right

    assert true_in_a_child(has_workers)


def test_more_threads_than_blocks() -> None:
    """Workers that nothing is left for are not asked for, so that their number does not matter."""
    a, b = some(N, N), some(N, N, seed=1)
    plan = tw.plan(E2, a, b, target="cpu")
    with tw.num_threads(500):
        for _ in range(4):
            np.testing.assert_array_equal(plan(a, b), a @ b)
        assert plan.bound.quick is not None
        assert all(entry(a, b, None) is not None for entry in plan.bound.quick.entries)
    pool = cpu_pool._state.pool
    assert pool is not None and len(pool.threads) < 100
