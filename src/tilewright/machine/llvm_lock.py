"""One thread at a time is at work in LLVM, and none while the process forks."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from tilewright.machine.forking import ForkSafeLock, hold_at_fork

LLVM_LOCK = ForkSafeLock()


def _lock_of_llvmlite() -> AbstractContextManager[object]:
    """llvmlite has a lock of its own, which its finalizers take on any thread. It is the inner one of the two."""
    llvmlite = sys.modules.get("llvmlite.binding.ffi")
    return nullcontext() if llvmlite is None else cast(AbstractContextManager[object], llvmlite.lib._lock)


# A child must not inherit these locks in other hands, nor LLVM in the middle of its work, nor its library half loaded.
hold_at_fork(lambda: LLVM_LOCK)
hold_at_fork(_lock_of_llvmlite)
