"""Locks that a process's child after a fork does not wait for, and what no thread is in the middle of at a fork.

A child has only the thread that forked. A lock that another thread held at that moment would stay locked in it for
ever, and threads of a server or a data loader fork at any moment. Python's own locks of modules that are being imported
are such locks, and first calls import much: in a child those of `IMPORTED_ANEW` are free, and what was half imported of
them is imported anew. Modules of other packages are left alone: many can be initialised only once in a process.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

IMPORTED_ANEW = frozenset({"tilewright", "llvmlite", "opt_einsum", *sys.stdlib_module_names})
"""What first calls import that can be imported once more: these packages, and Python's own library."""


class ForkSafeLock(_thread.RLock):  # type: ignore[misc]  # it is final for type checkers only
    """A reentrant lock; what another thread held when the process forked is free in the child.

    What the lock guards must stay usable if that thread is stopped anywhere while it holds the lock. An interrupt
    (Ctrl-C) comes before the lock is taken or inside of the block: Python looks for one between steps of its own code
    only, and taking and registering a lock is none.

    Example:
        >>> lock = ForkSafeLock()
        >>> with lock, lock:
        ...     pass
    """

    def __init__(self) -> None:
        super().__init__()
        _LOCKS.add(weakref.ref(self, _LOCKS.discard))

    def forget_other_threads(self) -> None:
        """Only for a child after a fork, whose one thread keeps the locks that it held itself."""
        if self.acquire(blocking=False):
            self.release()
        else:
            self._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library frees its own


_LOCKS: set[weakref.ref[ForkSafeLock]] = set()


def _forget_other_threads() -> None:
    for reference in list(_LOCKS):
        lock = reference()
        if lock is not None:
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


class _Forks:
    """The forks of this process, one at a time, and what is held during each."""

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.held: list[Callable[[], AbstractContextManager[object]]] = []
        self.holding = ExitStack()

    def before(self) -> None:
        self.lock.acquire()
        for one in self.held:
            self.holding.enter_context(one())

    def after(self) -> None:
        """A fork may have begun before this module was imported, by another thread: then nothing is held for it."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            self.holding.close()
            self.lock.release()


_FORKS = _Forks()


def hold_at_fork(held: Callable[[], AbstractContextManager[object]]) -> None:
    """Whenever the process forks, enter this context before, and leave it after, in the parent and in the child.

    What is entered first must be what threads enter first that enter several. A caller holds none of them: another
    thread that forks at this moment holds or awaits them, and this one waits until it has forked.

    Args:
        held: gives the context of a fork, such as a lock.

    Example:
        >>> lock = ForkSafeLock()
        >>> hold_at_fork(lambda: lock)
    """
    with _FORKS.lock:
        _FORKS.held.append(held)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_FORKS.before, after_in_parent=_FORKS.after, after_in_child=_FORKS.after)
    os.register_at_fork(after_in_child=_forget_other_threads)
    os.register_at_fork(after_in_child=_forget_imports_of_other_threads)
