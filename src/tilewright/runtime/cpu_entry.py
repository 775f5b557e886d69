"""Native functions that do a small repeated call on their own: check the arrays, make the result, run the kernel.

For arrays of 8 x 8 the arithmetic takes a tenth of a microsecond, and Python needs several to look at three arrays.
An entry is a built-in function of Python's fast calling convention whose code, the same for all entries, walks over a
description of the arrays that it was made for:

    entry(*operands, *results) -> the results, or None if the arguments are not of this form: the caller takes the long
                                  way; a result given as None is made, and all are where none are given

It takes the arrays' types, shapes, strides and addresses from where NumPy's C interface keeps them. All of it is
decided with the interpreter's lock held; the kernel runs without. The argument block lies on the stack and workspaces
wait in a list that is touched only under the lock, so that entries may be called from any number of threads.

Where the interpreter or NumPy is not laid out as expected there are no entries, only the long way.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tilewright.runtime import cpu_entry_text, cpu_pool
from tilewright.runtime.cpu_entry_steps import CHECK, DONE, GROW, NEXT, PAUSED, START, TURN, UNLESS
from tilewright.runtime.entry_plan import (
    ArrayForm,
    EntryCheck,
    EntryRounds,
    EntryStep,
    forms_of,
    launches_in,
    renumbered,
)  # fmt: skip
from tilewright.runtime.flat_plan import EntryLaunch, FlatPlan
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.native_code import native_functions
from tilewright.runtime.recycling import LARGE

__all__ = ["ArrayForm", "EntryLaunch", "NativeEntry", "ScalarForm", "entries_are_possible", "entry_for", "make_entry"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
NativeEntry: TypeAlias = Callable[..., Any]

_METH_FASTCALL = 0x80
_NEW_FROM_DESCRIPTOR, _RETURN = 94, 76  # the places of PyArray_NewFromDescr and PyArray_Return in NumPy's table
_HEADER = 16
_BYTES = np.dtype(np.uint8)
_ALIGNMENT_MASK = 63  # of temporary arrays, wherever they lie
_SCALARS: dict[str, Any] = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32}
_SAMPLE_SHAPE, _SAMPLE_STRIDES = (3, 5), (4, 12)


class ScalarForm(NamedTuple):
    """What an entry demands of a scalar operand: a float or int, of Python or NumPy, that the kernel's type can hold.

    Attributes:
        kind: how the kernel reads it, of `cpu_entry_text`: F64_SCALAR and the like.
        value: the only one, for EXACT_INTEGER.
    """

    kind: int
    value: int = 0


def make_entry(
    steps: Sequence[EntryStep],
    operands: Sequence[ArrayForm | ScalarForm],
    results: Sequence[ArrayForm],
    temporaries: Sequence[int] = (),
    *,
    makes_results: bool,
    gives_tuple: bool = False,
    records: Sequence[int] = (),
    counters: int = 0,
    threads: int = 1,
) -> NativeEntry | None:
    """An entry that runs kernels one after the other, or None where there are none.

    Args:
        steps: the launches, which are looked after, and rounds of them.
        operands: the forms of the operands.
        results: those of the results, which must not share bytes with the operands, or each other.
        temporaries: sizes in bytes of arrays that live between launches; error records are less than `LARGE`.
        makes_results: whether None may be given for a result, so that an array of its form is made (without
            dimensions: a NumPy scalar).
        gives_tuple: whether the results are given back as a tuple; there is one otherwise.
        records: which of the temporary arrays are error records: zero before the first launch, and later if nothing was
            wrong; where a step finds that something was, the entry gives None, with results half written.
        counters: how many values that count rounds there are, behind the temporary arrays.
        threads: launches of several blocks are shared among so many threads.
    """
    if sum(temporaries) > cpu_entry_text.TEMPORARY_BYTES and max(temporaries) >= LARGE:
        return _with_large_operands(
            steps, operands, results, temporaries, makes_results=makes_results, gives_tuple=gives_tuple,
            records=records, counters=counters, threads=threads,
        )  # fmt: skip
    offsets = [cpu_entry_text.WORKSPACE_BYTES]
    for size in temporaries:
        offsets.append(offsets[-1] + -(-size // 64) * 64)
    launches = [*launches_in(steps)]
    workspace = max(one.native.workspace_bytes for one in launches)
    if (
        len(operands) + len(results) + len(temporaries) + counters > cpu_entry_text.MOST_VALUES
        or len(results) > cpu_entry_text.MOST_RESULTS
        or any(len(one.buffers) + len(one.scalars) > cpu_entry_text.MOST_SLOTS for one in launches)
        or workspace > cpu_entry_text.WORKSPACE_BYTES
        or offsets.pop() > cpu_entry_text.WORKSPACE_BYTES + cpu_entry_text.TEMPORARY_BYTES
    ):
        return None
    code = _code()
    if code is None:
        return None
    checked = {number: -(-temporaries[number] // 8) * 8 for number in records}
    helpers, together = _help_for(launches, threads)
    if helpers > cpu_pool.POOL_WORDS[3] or together > cpu_pool.POOL_WORDS[2]:  # nothing was launched before, say
        cpu_pool.provide(helpers, together)
    told = _words(steps)
    head = {
        "STATE": code.state_address, "OPERANDS": len(operands), "RESULTS": len(results), "MAKES": int(makes_results),
        "WORKS": int(workspace > 0 or bool(temporaries)), "TEMPORARIES": len(temporaries),
        "STEPS": len(told), "TUPLE": int(gives_tuple), "TICKETS": helpers, "SHARED": together,
    }  # fmt: skip
    words = [
        *(head[name] for name in cpu_entry_text.DESCRIPTION),
        *(word for one in (*operands, *results) for word in _form_words(one)),
        *(word for number, offset in enumerate(offsets) for word in (offset, checked.get(number, 0))),
        *told,
    ]
    description = b"".join((word & (2**64 - 1)).to_bytes(8, sys.byteorder) for word in words)
    arrays = [one for one in (*operands, *results) if isinstance(one, ArrayForm)]
    kept = (code, tuple(one.native for one in launches), tuple(one.dtype for one in arrays))
    return code.function(description, kept)


def _with_large_operands(
    steps: Sequence[EntryStep],
    operands: Sequence[ArrayForm | ScalarForm],
    results: Sequence[ArrayForm],
    temporaries: Sequence[int],
    *,
    records: Sequence[int],
    counters: int,
    **options: Any,
) -> NativeEntry | None:
    """As `make_entry`, where the large ones of the temporary arrays are further operands, in memory that is recycled:
    workspaces stay as long as the process does.
    """
    large = [number for number, size in enumerate(temporaries) if size >= LARGE]
    small = [number for number, size in enumerate(temporaries) if size < LARGE]
    given, made = len(operands), len(operands) + len(results)
    order = [*range(given), *(made + number for number in large), *range(given, made), *(made + one for one in small)]
    order += range(made + len(temporaries), made + len(temporaries) + counters)
    sizes = [temporaries[number] for number in large]
    native = make_entry(
        renumbered(steps, {old: new for new, old in enumerate(order)}),
        [*operands, *(ArrayForm(_BYTES, (size,), (1,), _ALIGNMENT_MASK, (0, size)) for size in sizes)],
        results,
        [temporaries[number] for number in small],
        records=[small.index(number) for number in records],
        counters=counters,
        **options,
    )
    if native is None:
        return None
    shapes = [(place, one.shape) for place, one in enumerate(operands) if isinstance(one, ArrayForm)]

    def entry(*arguments: Any) -> Any:
        if len(arguments) < given or any(getattr(arguments[place], "shape", None) != shape for place, shape in shapes):
            return None  # before memory is asked for
        fresh = (aligned_empty((size,), _BYTES, "a temporary array") for size in sizes)
        return native(*arguments[:given], *fresh, *arguments[given:])

    return entry


def _form_words(form: ArrayForm | ScalarForm) -> list[int]:
    if isinstance(form, ScalarForm):
        return [3, form.kind, form.value]
    words = [cpu_entry_text.ARRAY, id(form.dtype), len(form.shape), form.mask, *form.span, *form.shape, *form.strides]
    return [len(words) + 1, *words]


def _help_for(launches: Sequence[EntryLaunch], threads: int) -> tuple[int, int]:
    """How many threads of the pool may help, and the workspace that each of them needs."""
    together = max((one.native.workspace_bytes for one in launches if one.blocks > 1), default=0)
    return max((min(threads, one.blocks) for one in launches), default=1) - 1, together


def _words(steps: Sequence[EntryStep]) -> list[int]:
    """The words that tell of steps."""
    words: list[int] = []
    for one in steps:
        match one:
            case EntryLaunch():
                words += _launch_words(one)
            case EntryCheck(record, nbytes):
                words += [CHECK, 4, record, nbytes]
            case EntryRounds():
                words += _round_words(one)
    return words


def _round_words(rounds: EntryRounds) -> list[int]:
    body = [*_words(rounds.steps), *(word for turn in rounds.turns for word in (TURN, 2 + len(turn), *turn))]
    body += [word for number, _, step in rounds.counters for word in (GROW, 4, number, step)]
    if rounds.cell is not None:
        body = [*_words(rounds.asked), UNLESS, 5, *rounds.cell, 5 + len(body) + 5, *body]
    begun = [word for number, first, _ in rounds.counters for word in (START, 4, number, first)]
    return [*begun, START, 4, rounds.counter, rounds.start, *body, NEXT, 5, rounds.counter, rounds.stop, len(body)]


def _launch_words(launch: EntryLaunch) -> list[int]:
    given = dict(launch.given)
    slots = [(1, number) for number in launch.buffers]
    slots += [(1, given[place]) if place in given else (0, word) for place, word in enumerate(launch.scalars)]
    return [launch.native.address, launch.blocks, len(slots), *(word for one in slots for word in one)]


def run_steps(steps: Sequence[EntryStep], values: Sequence[int], threads: int) -> tuple[bool, list[int]]:
    """Do steps now: whether no error record was found that is not zero, and the values afterwards.

    Signals are looked at meanwhile, so that rounds can be interrupted.

    Args:
        steps: see `make_entry`.
        values: addresses of arrays, and what counters are to begin with.
        threads: that launches of several blocks are shared among.
    """
    code = _code()
    assert code is not None, "asked for before"
    launches = [*launches_in(steps)]
    helpers, together = _help_for(launches, threads)
    workspace = cpu_pool.workspace(max((one.native.workspace_bytes for one in launches), default=0))
    if helpers:
        cpu_pool.provide(helpers, together)
    if together > cpu_pool.POOL_WORDS[2]:  # there was no memory for that
        helpers = 0
    told = _words(steps)
    words = (ctypes.c_uint64 * len(told))(*(word & (2**64 - 1) for word in told))
    places = (ctypes.c_int64 * len(values))(*values)
    position = ctypes.c_void_p(ctypes.addressof(words))
    end = ctypes.addressof(words) + ctypes.sizeof(words)
    status = PAUSED
    while status == PAUSED:
        status = code.run(ctypes.byref(position), end, places, workspace.address, cpu_pool.POOL_WORDS, helpers)
    return status == DONE, list(places)


def entry_for(plan: FlatPlan, arrays: Sequence[Array], *, makes_result: bool, threads: int) -> NativeEntry | None:
    """An entry that does what a flat plan does for arrays of these forms (the operands, the result), or None.

    Kernels of several blocks are shared among so many threads.
    """
    *operands, result = forms_of(plan, arrays)
    return make_entry(plan.launches, operands, [result], plan.temporaries, makes_results=makes_result, threads=threads)


def entries_are_possible() -> bool:
    """Whether this interpreter and NumPy are laid out as the native code needs them."""
    return _code() is not None


class _MethodDefinition(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("text", ctypes.c_char_p),
    ]  # fmt: skip


def _advice_on_pages() -> dict[str, int]:
    """The system's `madvise`, and what tells it that huge pages are wanted; zeros where it knows none."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return {"ADVISE": 0, "HUGE": 0}
    advise = ctypes.cast(ctypes.CDLL(None).madvise, ctypes.c_void_p).value or 0
    return {"ADVISE": advise, "HUGE": mmap.MADV_HUGEPAGE}


class _Code:
    """The native code of all entries and the addresses that it needs."""

    def __init__(self) -> None:
        addresses = native_functions("entry", ("entry", "run"), lambda cpu: cpu_entry_text.entry_text())
        api = ctypes.pythonapi
        table = _array_functions()
        functions = {
            "SAVE_THREAD": api.PyEval_SaveThread, "RESTORE_THREAD": api.PyEval_RestoreThread,
            "INCREASE": api.Py_IncRef, "DECREASE": api.Py_DecRef, "ALLOCATE": api.PyMem_RawMalloc,
            "NEW_TUPLE": api.PyTuple_New, "SET_ITEM": api.PyTuple_SetItem,
            "AS_INTEGER": api.PyLong_AsLongLongAndOverflow, "CHECK_SIGNALS": api.PyErr_CheckSignals,
        }  # fmt: skip
        words = {name: ctypes.cast(one, ctypes.c_void_p).value or 0 for name, one in functions.items()}
        words |= {
            "FREE": 0, "POOL": ctypes.addressof(cpu_pool.POOL_WORDS), "NEW_ARRAY": table[_NEW_FROM_DESCRIPTOR],
            **_advice_on_pages(),
            "AS_SCALAR": table[_RETURN], "ARRAY_TYPE": id(np.ndarray), "FLOAT_TYPE": id(float), "INTEGER_TYPE": id(int),
            **{f"{name}_TYPE": id(type_) for name, type_ in _SCALARS.items()},
            "NONE": id(None),
        }  # fmt: skip
        self.state = (ctypes.c_int64 * len(cpu_entry_text.STATE))(*(words[name] for name in cpu_entry_text.STATE))
        self.state_address = ctypes.addressof(self.state)
        self.definition = _MethodDefinition(b"tilewright_entry", addresses["entry"], _METH_FASTCALL, None)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.run = ctypes.CFUNCTYPE(number, pointer, pointer, pointer, pointer, pointer, number)(addresses["run"])
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
    if platform.python_implementation() != "CPython" or _is_free_threaded():
        return False
    sizes = (ctypes.sizeof(ctypes.c_void_p), object.__basicsize__, bytes.__basicsize__, float.__basicsize__)
    if sizes != (8, _HEADER, cpu_entry_text.BYTES_HEADER + 1, _HEADER + 8):
        return False
    scalars = [type_(3) for type_ in _SCALARS.values()]
    if not all(ctypes.string_at(id(one) + _HEADER, one.nbytes) == one.tobytes() for one in scalars):
        return False
    probes: list[Array] = [np.zeros((4, 7), np.float32)[1:, ::-2], np.zeros((2, 3, 4), np.int16).T, np.zeros(1)]
    probes[1].flags.writeable = False
    if not all(_fields(one) == _interface(one) for one in probes):
        return False
    dtypes = [np.dtype(one) for one in ("?", "i2", ">f8", "c8")]
    if not all(_dtype_fields(one) == (id(one.type), f"{one.kind}{one.char}{one.byteorder}", one.num) for one in dtypes):
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


def _is_free_threaded() -> bool:
    """Whether this interpreter was built without its lock."""
    if sys.version_info < (3, 13):
        return False
    import sysconfig  # whose table of the build takes a millisecond to import

    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _fields(array: Array) -> tuple[Any, ...]:
    """Address, dtype object, shape, strides, and whether it may be written, as the native code reads them."""
    start, rank = id(array), array.ndim
    word, number = ctypes.c_int64.from_address, ctypes.c_int32.from_address
    shape, strides = (tuple((ctypes.c_int64 * rank).from_address(word(start + at).value)) for at in (32, 40))
    own_type = word(start + 8).value == id(np.ndarray) and number(start + 24).value == rank
    writeable = number(start + 64).value & cpu_entry_text.WRITEABLE_BITS == cpu_entry_text.WRITEABLE
    return own_type, word(start + 16).value, word(start + 56).value, shape, strides, writeable


def _dtype_fields(dtype: np.dtype[Any]) -> tuple[int, str, int]:
    """The type of scalars, kind, letter and order of bytes, and number of a dtype, as the native code compares them."""
    start = id(dtype)
    letters = ctypes.string_at(start + 24, 3).decode("latin-1")
    return ctypes.c_int64.from_address(start + 16).value, letters, ctypes.c_int32.from_address(start + 28).value


def _interface(array: Array) -> tuple[Any, ...]:
    return True, array.ctypes.data, id(array.dtype), array.shape, array.strides, array.flags.writeable
