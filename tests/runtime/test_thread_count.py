"""How many threads a launch uses: who decides, and for whom."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

import tilewright as tw
from tilewright.runtime import thread_count
from tilewright.runtime.thread_count import (
    OPENMP_VARIABLE,
    THREADS_VARIABLE,
    available_cores,
    get_num_threads,
    num_threads,
    set_num_threads,
)


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has just started, with three cores."""
    monkeypatch.setattr(thread_count, "_state", thread_count._State())
    monkeypatch.setattr(thread_count, "usable_cores", lambda: 3)
    monkeypatch.delenv(THREADS_VARIABLE, raising=False)
    monkeypatch.delenv(OPENMP_VARIABLE, raising=False)
    yield


def test_the_cores_by_default() -> None:
    assert get_num_threads() == available_cores() == 3


def test_set_for_the_process() -> None:
    set_num_threads(5)
    assert get_num_threads() == 5
    for wrong in (0, -1, 513):
        with pytest.raises(ValueError, match=f"is {wrong}; it must be from 1 to 512"):
            set_num_threads(wrong)
        with pytest.raises(ValueError, match=f"is {wrong}; it must be from 1 to 512"), num_threads(wrong):
            pass
    assert get_num_threads() == 5


@pytest.mark.parametrize(
    ("ours", "openmp", "expected"),
    [
        ("5", None, 5), ("5", "2", 5), (" 1 ", "2", 1), ("", "2", 2), (None, "2", 2), (None, "1,4", 1),
        (None, "64", 3), (None, "0", 3), (None, "many", 3), (None, "", 3),
    ],
)  # fmt: skip
def test_the_environment(monkeypatch: pytest.MonkeyPatch, ours: str | None, openmp: str | None, expected: int) -> None:
    for name, value in ((THREADS_VARIABLE, ours), (OPENMP_VARIABLE, openmp)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert get_num_threads() == expected
    set_num_threads(7)
    assert get_num_threads() == 7


@pytest.mark.parametrize("text", ["many", "0", "-2", "1.5", "513"])
def test_a_wrong_variable_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(THREADS_VARIABLE, text)
    for _ in range(2):
        with pytest.raises(ValueError, match=THREADS_VARIABLE):
            get_num_threads()


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS_VARIABLE, "5")
    assert get_num_threads() == 5
    monkeypatch.setenv(THREADS_VARIABLE, "4")
    assert get_num_threads() == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_reads_the_environment_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_num_threads() == 3
    monkeypatch.setenv(THREADS_VARIABLE, "9")
    thread_count._state.forget()  # what a child after fork does; the fork's own hook belongs to the real state
    assert get_num_threads() == 9


def test_blocks_nest_and_end() -> None:
    set_num_threads(6)
    with num_threads(4):
        assert get_num_threads() == 4
        with num_threads(2):
            set_num_threads(8)
            assert get_num_threads() == 2
        assert get_num_threads() == 4
        with pytest.raises(KeyError), num_threads(1):
            raise KeyError
        assert get_num_threads() == 4
    assert get_num_threads() == 8


def test_a_block_serves_as_decorator() -> None:
    @num_threads(2)
    def inside() -> int:
        return get_num_threads()

    assert (inside(), inside(), get_num_threads()) == (2, 2, 3)


def test_a_block_is_of_one_thread() -> None:
    seen: list[int] = []
    inside, outside = threading.Barrier(2), threading.Barrier(2)

    def other() -> None:
        seen.append(get_num_threads())
        with num_threads(2):
            inside.wait(600)
            outside.wait(600)
            seen.append(get_num_threads())

    with num_threads(1):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(600)
        assert get_num_threads() == 1
    assert get_num_threads() == 3
    outside.wait(600)
    thread.join(600)
    assert seen == [3, 2]


def test_a_block_is_of_one_task() -> None:
    async def task(number: int) -> int:
        with num_threads(number):
            await asyncio.sleep(0)
            return get_num_threads()

    async def both() -> list[int]:
        return await asyncio.gather(task(1), task(2))

    assert asyncio.run(both()) == [1, 2]
    assert get_num_threads() == 3


def test_threadpoolctl() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    tw.register_with_threadpoolctl()
    tw.register_with_threadpoolctl()

    def told() -> list[int]:
        return [one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "tilewright"]

    assert told() == [3]
    with threadpoolctl.threadpool_limits(1):
        assert (get_num_threads(), told()) == (1, [1])
    assert get_num_threads() == 3
    with threadpoolctl.threadpool_limits(limits={"tilewright": 2}):
        assert get_num_threads() == 2
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            assert get_num_threads() == 2
    set_num_threads(5)
    assert get_num_threads() == 5, "after a limit has ended the process decides again"
