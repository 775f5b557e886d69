"""One thread at a time is at work in LLVM, and none while the process forks."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import ExitStack

LLVM_LOCK = threading.RLock()
_held_at_fork = ExitStack()


def _hold_at_fork() -> None:
    """llvmlite has a lock of its own, which its finalizers take on any thread. It is the inner one of the two."""
    llvmlite = sys.modules.get("llvmlite.binding.ffi")
    if llvmlite is not None:
        _held_at_fork.enter_context(llvmlite.lib._lock)


# A child must not inherit these locks in other hands, nor LLVM in the middle of its work, nor its library half loaded.
# What is registered last is called first before a fork and last after it: while one thread forks, another one that
# wants to waits for LLVM_LOCK, and does not touch what is held for the first.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_at_fork, after_in_parent=_held_at_fork.close, after_in_child=_held_at_fork.close)
    os.register_at_fork(before=LLVM_LOCK.acquire, after_in_parent=LLVM_LOCK.release, after_in_child=LLVM_LOCK.release)
