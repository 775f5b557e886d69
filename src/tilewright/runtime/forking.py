"""Locks that a process's child after a fork does not wait for.

A child has only the thread that forked. A lock that another thread held at that moment would stay locked in it for
ever, and threads of a server or a data loader fork at any moment. Python's own locks of modules that are being imported
are such locks, and first calls import much: in a child those of `IMPORTED_ANEW` are free, and what was half imported of
them is imported anew. Modules of other packages are left alone: many can be initialised only once in a process.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from types import TracebackType

IMPORTED_ANEW = frozenset({"tilewright", "llvmlite", "opt_einsum", *sys.stdlib_module_names})
"""What first calls import that can be imported once more: these packages, and Python's own library."""


class ForkSafeLock:
    """A reentrant lock; what another thread held when the process forked is free in the child.

    What the lock guards must stay usable if that thread is stopped anywhere while it holds the lock.

    Example:
        >>> lock = ForkSafeLock()
        >>> with lock, lock:
        ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def forget_other_threads(self) -> None:
        """Only for a child after a fork, whose one thread keeps the locks that it held itself."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _forget_other_threads() -> None:
    for lock in list(_LOCKS):
        lock.forget_other_threads()


def _forget_imports_of_other_threads() -> None:
    importer = sys.modules.get("_frozen_importlib")
    locks = getattr(importer, "_module_locks", {})  # by the names of modules; each has the thread that imports it
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner == threading.get_ident() or name.partition(".")[0] not in IMPORTED_ANEW:
            continue
        del locks[name]
        specification = getattr(sys.modules.get(name), "__spec__", None)
        if owner is not None and getattr(specification, "_initializing", False):
            del sys.modules[name]
    waiting = getattr(importer, "_blocking_on", None)  # by threads: a child's one thread forks, and waits for nothing
    if waiting is not None:
        waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
    os.register_at_fork(after_in_child=_forget_imports_of_other_threads)
