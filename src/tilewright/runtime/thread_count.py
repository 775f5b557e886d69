"""How many threads a launch on the CPU may use.

The first of these that is given counts:

    1. `with num_threads(n)`, in the thread (or asyncio task) that entered it
    2. `set_num_threads(n)`, in the whole process
    3. the environment variable TILEWRIGHT_NUM_THREADS
    4. the environment variable OMP_NUM_THREADS (of a list "4,2" the first number), but no more than there are cores:
       joblib, Dask, PyTorch and others set it in the processes that they start, to share out the cores
    5. the cores that this process may use (`machine.cores`): its affinity, asked for again every second (the threads
       of the pool then follow it, too), and the quota of its container, read once

The environment is read when the first launch happens, and again in a child after fork.
"""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tilewright.machine.cores import usable_cores

THREADS_VARIABLE, OPENMP_VARIABLE = "TILEWRIGHT_NUM_THREADS", "OMP_NUM_THREADS"
MOST_THREADS = 512
CORES_ARE_KNOWN_FOR = 1.0  # seconds until the system is asked again, which costs more than a small launch

when_asked: list[Callable[[], None]] = []
"""What is done when the system was asked for the cores of this process, which may have changed."""

_scoped: ContextVar[int | None] = ContextVar("tilewright_num_threads", default=None)


class _State:
    """What this process has chosen, and what it was told."""

    def __init__(self) -> None:
        self.chosen: int | None = None
        self.forget()

    def forget(self) -> None:
        """A child after fork may have another environment and affinity."""
        self.most: float | None = None  # by the environment
        self.known, self.known_until = 0, -math.inf


_state = _State()


def set_num_threads(number: int) -> None:
    """Let later launches of the whole process use up to `number` threads each, the calling one included.

    Raises:
        ValueError: unless 1 <= number <= 512.
        TypeError: for what is no integer.

    Example:
        >>> before = get_num_threads()
        >>> set_num_threads(1)
        >>> get_num_threads()
        1
        >>> set_num_threads(before)
    """
    _state.chosen = _checked(number, "the number of threads")


@contextmanager
def num_threads(number: int) -> Iterator[None]:
    """Inside the block, let launches of this thread (and no other) use up to `number` threads.

    A thread that is started inside the block begins without it. In asyncio it belongs to the task, as all context
    variables do. Blocks nest; the innermost counts, also before `set_num_threads`. It also serves as a decorator.

    Raises:
        ValueError: unless 1 <= number <= 512.

    Example:
        >>> with num_threads(1):
        ...     get_num_threads()
        1
    """
    token = _scoped.set(_checked(number, "the number of threads"))
    try:
        yield
    finally:
        _scoped.reset(token)


def limit_this_thread(number: int) -> None:
    """Like `num_threads`, until it is called again; with the number that holds without it, nothing is limited."""
    _scoped.set(None if number == _of_this_process() else _checked(number, "the number of threads"))


def get_num_threads() -> int:
    """Threads that a launch of this thread may use, the calling one included.

    The innermost `num_threads` around the call decides; without one the last `set_num_threads`, TILEWRIGHT_NUM_THREADS,
    OMP_NUM_THREADS as an upper bound, and how many cores this process may use.

    Raises:
        ValueError: if TILEWRIGHT_NUM_THREADS is not a number from 1 to 512.

    Example:
        >>> get_num_threads() >= 1
        True
    """
    scoped, chosen = _scoped.get(), _state.chosen  # without further calls, for the sake of small programs
    if scoped is not None:
        return scoped
    if chosen is not None:
        return chosen
    return _state.known if time.monotonic() < _state.known_until else _of_this_process()


def _of_this_process() -> int:
    if _state.chosen is not None:
        return _state.chosen
    if time.monotonic() >= _state.known_until:
        _find_out()
    return _state.known


def available_cores() -> int:
    """Cores that this process may use, as far as there may be threads."""
    return min(usable_cores(), MOST_THREADS)


def _find_out() -> None:
    if _state.most is None:
        text = os.environ.get(THREADS_VARIABLE, "").strip()
        if text:
            try:
                number = int(text)
            except ValueError:
                raise ValueError(f"{THREADS_VARIABLE} is {text!r}, not a number") from None
            _state.known, _state.known_until = _checked(number, THREADS_VARIABLE), math.inf
            return
        # What is wrong with a variable of OpenMP is for OpenMP to say.
        first = os.environ.get(OPENMP_VARIABLE, "").split(",")[0].strip()
        _state.most = int(first) if first.isdecimal() and int(first) > 0 else math.inf
    _state.known = int(min(available_cores(), _state.most))
    _state.known_until = time.monotonic() + CORES_ARE_KNOWN_FOR
    for follow in when_asked:
        follow()


def _checked(number: int, what: str) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        from tilewright.runtime.messages import value_text  # calls from the disk do without

        raise TypeError(f"{what} is {value_text(number)}; it must be an integer")
    if not 1 <= number <= MOST_THREADS:
        raise ValueError(f"{what} is {number}; it must be from 1 to {MOST_THREADS}")
    return operator.index(number)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.forget)
