"""Arrays whose memory lies between pages that nobody may touch: what reads or writes outside of one ends the process.

NumPy is given other functions to allocate memory (guarded_memory.c), so that operands, results and what lies between
them are all guarded; new memory is full of ones, which are undefined floats, so that what is read before it is written
shows in results. The memory that kernels work in, and what starts at a multiple of 64 bytes, end at such a page, too.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

AT_END, AT_START, BY_TURNS = range(3)
_SET_HANDLER = 304  # the place of PyDataMem_SetHandler in NumPy's table
_OPERANDS = ("arguments", "further", "operands", "out")  # fields of trials that hold arrays, or sequences of them


def has_guards() -> bool:
    """True where memory can be guarded: pages are protected as on Linux, and there is a compiler."""
    return sys.platform == "linux" and shutil.which("cc") is not None


class _Functions(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p)] + [
        (name, ctypes.c_void_p) for name in ("malloc", "calloc", "realloc", "free")
    ]


class _Handler(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("functions", _Functions)]


class _Guard:
    """The compiled functions, and NumPy's way to take them; lives as long as the process, as arrays may."""

    def __init__(self) -> None:
        source = Path(__file__).with_name("guarded_memory.c")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "guarded_memory.so")
            subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", path, str(source)], check=True)
            library = ctypes.CDLL(path)
        self.mode = ctypes.c_int.in_dll(library, "guarded_mode")
        addresses = [
            ctypes.cast(getattr(library, f"guarded_{name}"), ctypes.c_void_p)
            for name in ("malloc", "calloc", "realloc", "free")
        ]
        self.handler = _Handler(b"guarded", 1, _Functions(None, *addresses))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self.handler), b"mem_handler", None)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        table = ctypes.cast(pointer(_table(), None), ctypes.POINTER(ctypes.c_void_p))
        self.set = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])

    def array(self, nbytes: int) -> Any:
        """Bytes that end at a page that nobody may touch."""
        before, self.mode.value = self.mode.value, AT_END
        try:
            return np.empty(nbytes, np.uint8)
        finally:
            self.mode.value = before


@functools.cache
def _the_guard() -> _Guard:
    return _Guard()


def _table() -> Any:
    try:
        from numpy._core import _multiarray_umath
    except ImportError:  # NumPy 1
        from numpy.core import _multiarray_umath
    return _multiarray_umath._ARRAY_API


@contextmanager
def guarded() -> Iterator[None]:
    """New arrays of this thread, and the memory of kernels, are guarded inside. Only where `has_guards()`."""
    from tilewright.frontend import tree_plan
    from tilewright.runtime import backends, bound_plan, cpu_pool, flat_plan, memory, program_entry

    guard = _the_guard()
    with ExitStack() as stack:

        def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any], what: str = "") -> Any:
            nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            return guard.array(-(-nbytes // 64) * 64)[:nbytes].view(dtype).reshape(shape)

        class Memory:
            def __init__(self, size: int) -> None:
                self.size, self._bytes = size, guard.array(-(-size // 64) * 64 or 64)
                self.address = self._bytes.ctypes.data

        for module in (backends, bound_plan, memory, program_entry, tree_plan):
            stack.enter_context(mock.patch.object(module, "aligned_empty", aligned_empty))
        stack.enter_context(mock.patch.object(cpu_pool, "_Memory", Memory))
        stack.enter_context(
            mock.patch.object(flat_plan, "_temporary", lambda nbytes: aligned_empty((nbytes,), np.dtype(np.uint8)))
        )
        stack.callback(guard.set, guard.set(guard.capsule))
        yield


def tight(one: Any) -> Any:
    """The same array, alone in memory that has not a byte more than its elements and what lies between them."""
    if not isinstance(one, np.ndarray) or not one.size:
        return one
    steps = [(extent - 1) * step for extent, step in zip(one.shape, one.strides, strict=True)]
    before = -sum(step for step in steps if step < 0)
    nbytes = before + sum(step for step in steps if step > 0) + one.itemsize
    memory = np.zeros(nbytes, np.uint8)
    copy = np.ndarray(one.shape, one.dtype, memory, before, one.strides)
    if one.flags.writeable:
        copy[...] = one
        return copy
    copy[...] = one
    copy.flags.writeable = False
    return copy


def tightened(trial: Any) -> Any:
    """The trial with its arrays alone in memory."""
    found = {one.name: getattr(trial, one.name) for one in dataclasses.fields(trial) if one.name in _OPERANDS}

    def alone(value: Any) -> Any:
        return type(value)(map(alone, value)) if isinstance(value, tuple | list) else tight(value)

    return dataclasses.replace(trial, **{name: alone(value) for name, value in found.items()})
