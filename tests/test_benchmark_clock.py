"""The clock of the process: what other threads still do after a contender's call is not the next one's time."""

from __future__ import annotations

import functools
import importlib.util
import threading
import time
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location(
    "benchmark_support", Path(__file__).parent.parent / "benchmarks" / "support.py"
)
assert SPEC is not None and SPEC.loader is not None
support = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(support)


def busy(seconds: float) -> None:
    """So much processor time of this thread."""
    stop = time.thread_time() + seconds
    while time.thread_time() < stop:
        pass


def leaves_work() -> None:
    """Ends before its thread does, as calls of some packages do."""
    threading.Thread(target=busy, args=(0.03,)).start()


def test_what_a_call_leaves_to_a_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = functools.partial(support.let_others_finish, patience=300)  # others may have all cores for a while
    monkeypatch.setattr(support, "let_others_finish", patient)
    times = support.interleaved({"leaves": leaves_work, "next": lambda: time.sleep(0.3)}, 0.0, time.process_time)
    assert max(times["next"]) < 0.02


def test_waiting_for_others_ends() -> None:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            busy(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        support.let_others_finish(patience=0.05)
    finally:
        over.set()
        thread.join()
