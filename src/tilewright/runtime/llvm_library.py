"""LLVM's library, loaded by another thread while the compiler is imported.

The linker needs some 13 ms for it, during which Python's own way of loading libraries lets no other thread run. When
llvmlite asks for the library, it is there.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder

from tilewright.machine.forking import ForkSafeLock, hold_at_fork

_LOADING: list[threading.Thread] = []
_LOCK = ForkSafeLock()  # held while a thread begins to load, and while the process forks


def load_ahead() -> None:
    """Begin to load the library, unless that has been done; what is wrong with it llvmlite will tell.

    Example:
        >>> load_ahead()
    """
    if _LOADING or sys.platform != "linux" or "llvmlite.binding" in sys.modules:
        return
    found = PathFinder.find_spec("llvmlite")
    if found is None or not found.origin:
        return
    path = os.path.join(os.path.dirname(found.origin), "binding", "libllvmlite.so")
    with _LOCK:
        if not _LOADING:
            thread = threading.Thread(target=_load, args=(path,), name="tilewright-llvm", daemon=True)
            _LOADING.append(thread)
            with suppress(RuntimeError):  # the system allows no more threads: llvmlite loads the library itself
                thread.start()


def _load(path: str) -> None:
    with suppress(AttributeError):  # a C library without it
        dlopen = ctypes.CDLL(None).dlopen
        dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        dlopen(os.fsencode(path), os.RTLD_NOW)


@contextmanager
def _loaded() -> Iterator[None]:
    """A child must not inherit the linker in the middle of its work, which no thread begins meanwhile either."""
    with _LOCK:
        for one in _LOADING:
            if one.is_alive():
                one.join()
        yield


hold_at_fork(_loaded)
