"""Native functions that do a small repeated call on their own: check the arrays, make the result, run the kernel.

For arrays of 8 x 8 the arithmetic takes a tenth of a microsecond, and Python needs several to look at three arrays.
An entry is a built-in function of Python's fast calling convention whose code, the same for all entries, walks over a
description of the arrays that it was made for:

    entry(*arrays, out) -> the result, or None if the arrays are not of this form: the caller takes the long way

It takes the arrays' types, shapes, strides and addresses from where NumPy's C interface keeps them. All of it is
decided with the interpreter's lock held; the kernel runs without. The argument block lies on the stack and workspaces
wait in a list that is touched only under the lock, so that entries may be called from any number of threads.

Where the interpreter or NumPy is not laid out as expected there are no entries, only the long way.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import sysconfig
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.runtime.cpu_entry_text import (
    BYTES_HEADER,
    MOST_ARRAYS,
    MOST_SLOTS,
    TEMPORARY_BYTES,
    WORKSPACE_BYTES,
    WRITEABLE,
    WRITEABLE_BITS,
    entry_text,
)
from tilewright.runtime.flat_plan import ArrayForm, EntryLaunch, FlatPlan
from tilewright.runtime.native_code import native_functions

__all__ = ["ArrayForm", "EntryLaunch", "NativeEntry", "entries_are_possible", "entry_for", "make_entry"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
NativeEntry: TypeAlias = Callable[..., Any]

_METH_FASTCALL = 0x80
_NEW_FROM_DESCRIPTOR, _RETURN = 94, 76  # the places of PyArray_NewFromDescr and PyArray_Return in NumPy's table
_HEADER = 16
_SAMPLE_SHAPE, _SAMPLE_STRIDES = (3, 5), (4, 12)


def make_entry(
    launches: Sequence[EntryLaunch], arrays: Sequence[ArrayForm], temporaries: Sequence[int], makes_result: bool
) -> NativeEntry | None:
    """An entry that runs kernels one after the other, or None where there are none.

    Args:
        launches: the kernels.
        arrays: the forms of the operands, then of the result, which must not share bytes with them.
        temporaries: sizes in bytes of arrays that live between launches.
        makes_result: whether None may be given as the result, so that an array of its form is made (without
            dimensions: a NumPy scalar).
    """
    offsets = [WORKSPACE_BYTES]
    for size in temporaries:
        offsets.append(offsets[-1] + -(-size // 64) * 64)
    workspace = max(one.native.workspace_bytes for one in launches)
    if (
        len(arrays) + len(temporaries) > MOST_ARRAYS
        or any(len(one.buffers) + len(one.scalars) > MOST_SLOTS for one in launches)
        or workspace > WORKSPACE_BYTES
        or offsets.pop() > WORKSPACE_BYTES + TEMPORARY_BYTES
    ):
        return None
    code = _code()
    if code is None:
        return None
    words = [
        code.state_address, len(arrays), int(workspace > 0 or bool(temporaries)), int(makes_result),
        len(temporaries), len(launches), *(word for one in arrays for word in one.words), *offsets,
        *(word for one in launches for word in one.words),
    ]  # fmt: skip
    description = b"".join((word & (2**64 - 1)).to_bytes(8, sys.byteorder) for word in words)
    kept = (code, tuple(one.native for one in launches), tuple(one.dtype for one in arrays))
    return code.function(description, kept)


def entry_for(plan: FlatPlan, arrays: Sequence[Array], makes_result: bool, serial: bool) -> NativeEntry | None:
    """An entry that does what a flat plan does for arrays of these forms (the operands, the result), or None.

    Kernels of several blocks are left to several threads unless `serial` says that the calling one shall do all.
    """
    if not serial and any(one.blocks != 1 for one in plan.launches):
        return None
    return make_entry(plan.launches, plan.forms(arrays), plan.temporaries, makes_result)


def entries_are_possible() -> bool:
    """Whether this interpreter and NumPy are laid out as the native code needs them."""
    return _code() is not None


class _MethodDefinition(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("text", ctypes.c_char_p),
    ]  # fmt: skip


class _Code:
    """The native code of all entries and the addresses that it needs."""

    def __init__(self) -> None:
        address = native_functions("entry", ("entry",), lambda cpu: entry_text())["entry"]
        api = ctypes.pythonapi
        functions = (api.PyEval_SaveThread, api.PyEval_RestoreThread, api.Py_IncRef, api.Py_DecRef, api.PyMem_RawMalloc)
        addresses = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions]
        table = _array_functions()
        self.state = (ctypes.c_int64 * 10)(
            0, *addresses, table[_NEW_FROM_DESCRIPTOR], id(np.ndarray), id(None), table[_RETURN]
        )
        self.state_address = ctypes.addressof(self.state)
        self.definition = _MethodDefinition(b"tilewright_entry", address, _METH_FASTCALL, None)
        self._new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
            ("PyCFunction_NewEx", api)
        )

    def function(self, description: bytes, kept: object) -> NativeEntry:
        """A built-in function whose self is the description; it keeps `kept`, as its module, alive."""
        made: NativeEntry = self._new(ctypes.addressof(self.definition), description, kept)
        return made


@functools.cache
def _code() -> _Code | None:
    return _Code() if _is_as_expected() else None


def _array_functions() -> Any:
    """NumPy's table of C functions."""
    module = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return (ctypes.c_void_p * (_NEW_FROM_DESCRIPTOR + 1)).from_address(pointer(module._ARRAY_API, None))


def _is_as_expected() -> bool:
    """Whether objects of this interpreter and of this NumPy lie in memory as the native code takes them to."""
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    sizes = (ctypes.sizeof(ctypes.c_void_p), object.__basicsize__, bytes.__basicsize__)
    if sizes != (8, _HEADER, BYTES_HEADER + 1):
        return False
    probes: list[Array] = [np.zeros((4, 7), np.float32)[1:, ::-2], np.zeros((2, 3, 4), np.int16).T, np.zeros(1)]
    probes[1].flags.writeable = False
    if not all(_fields(one) == _interface(one) for one in probes):
        return False
    dtype = np.dtype(np.float32)
    new = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_int,
        ctypes.c_void_p,
    )(_array_functions()[_NEW_FROM_DESCRIPTOR])  # fmt: skip
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # the call takes a reference for itself
    shape, strides = (ctypes.c_int64 * 2)(*_SAMPLE_SHAPE), (ctypes.c_int64 * 2)(*_SAMPLE_STRIDES)
    made = new(np.ndarray, dtype, 2, shape, strides, None, 0, None)
    if (made.dtype, made.shape, made.strides, made.flags.owndata) != (dtype, _SAMPLE_SHAPE, _SAMPLE_STRIDES, True):
        return False
    cell = np.array(7, dtype)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(cell))
    scalar = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_array_functions()[_RETURN])(cell)
    return type(scalar) is np.float32 and scalar == cell


def _fields(array: Array) -> tuple[Any, ...]:
    """Address, dtype object, shape, strides, and whether it may be written, as the native code reads them."""
    start, rank = id(array), array.ndim
    word, number = ctypes.c_int64.from_address, ctypes.c_int32.from_address
    shape, strides = (tuple((ctypes.c_int64 * rank).from_address(word(start + at).value)) for at in (32, 40))
    own_type = word(start + 8).value == id(np.ndarray) and number(start + 24).value == rank
    writeable = number(start + 64).value & WRITEABLE_BITS == WRITEABLE
    return own_type, word(start + 16).value, word(start + 56).value, shape, strides, writeable


def _interface(array: Array) -> tuple[Any, ...]:
    return True, array.ctypes.data, id(array.dtype), array.shape, array.strides, array.flags.writeable
