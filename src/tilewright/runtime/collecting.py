"""Python's search for cycles of dead objects, put off while something is compiled or imported.

A compiler makes very many small objects, most of which stay for a while. Their number alone has Python search all
objects of the process again and again, NumPy's and the user's too: a third of compiling a large program. They are freed
without it, but for a few. What is imported stays altogether; searching all objects once, NumPy's among them, takes
milliseconds, and importing what a first call needs makes enough objects for several searches.

There is one switch for all threads of a process. What others leave in cycles meanwhile waits until the compiler is
done; where one thread begins to compile before the other one is done, again and again, one of them makes the search.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from typing import Any

from tilewright.machine.forking import ForkSafeLock

LONGEST = 10.0
"""Seconds without a search, after which whoever begins to compile makes one."""


class _Compilations:
    """Which are under way, since when, and whether cycles are searched for otherwise.

    An interrupt may come anywhere in here: `end` puts right what `begin` has left half done, and may be called twice.
    """

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.under_way: set[object] = set()
        self.searched = False
        self.since = 0.0

    def begin(self, one: object) -> None:
        with self.lock:
            now = monotonic()
            first = not self.under_way
            late = not first and self.searched and now - self.since > LONGEST
            if first:
                self.searched = gc.isenabled()
            if first or late:
                self.since = now
            self.under_way.add(one)
            if first:
                gc.disable()
        if late:  # without the lock: what is freed may do anything
            gc.collect()

    def end(self, one: object) -> None:
        with self.lock:
            if self.under_way == {one} and self.searched:
                if gc.get_freeze_count() == 0:  # else the user keeps objects apart, which would be mixed with others
                    try:
                        gc.freeze()
                    finally:  # all objects are old ones now; those of the compiler would be searched as new ones
                        gc.unfreeze()
                gc.enable()
            self.under_way.discard(one)

    def forget_other_threads(self) -> None:
        """A child after a fork has only the thread that forked, which compiles nothing meanwhile."""
        if self.under_way and self.searched:
            gc.enable()
        self.under_way.clear()


_COMPILATIONS = _Compilations()


@contextmanager
def collection_later() -> Iterator[None]:
    """No search for cycles until this ends, on all threads of the process; nothing changes where there is none anyway.

    Example:
        >>> before = gc.isenabled()
        >>> with collection_later(), collection_later():
        ...     gc.isenabled()
        False
        >>> gc.isenabled() == before
        True
    """
    one = object()
    try:
        try:
            _COMPILATIONS.begin(one)
            yield
        finally:
            _COMPILATIONS.end(one)
    finally:  # an interrupt may have come before the first of these did anything
        _COMPILATIONS.end(one)


def imported(name: str) -> Any:
    """A module, with no search for cycles while it is imported for the first time.

    Example:
        >>> imported("tilewright.ir.sizes").size("n")
        n
    """
    if name in sys.modules:  # perhaps another thread imports it just now, for which this waits
        return import_module(name)
    with collection_later():
        return import_module(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPILATIONS.forget_other_threads)
