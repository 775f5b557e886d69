"""Native entries (`cpu_entry`) of bound plans: repeated small calls of whole programs.

A plan with anything in it that native code does not do has none: arrays without elements, unusual types of scalars,
 results that the host knows, much memory. Its calls go on taking the long way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.scalars import F32, F64, I32, I64, ScalarType
from tilewright.kernel.launch import ScalarReference
from tilewright.runtime.bound_plan import BoundPlan, Result, address_mask
from tilewright.runtime.cpu_entry import NativeEntry, ScalarForm, make_entry
from tilewright.runtime.cpu_entry_text import EXACT_INTEGER, F32_SCALAR, F64_SCALAR, I32_SCALAR, I64_SCALAR
from tilewright.runtime.entry_memory import shared_places
from tilewright.runtime.entry_plan import ArrayForm
from tilewright.runtime.entry_steps import steps_of
from tilewright.runtime.flat_plan import Unfit, row_major_strides, span_of
from tilewright.runtime.memory import aligned_empty
from tilewright.runtime.recording import Allocation, CheckErrors, Counter, RecordedLaunch, counters_of, flattened
from tilewright.runtime.recycling import LARGE

_KINDS: dict[ScalarType, int] = {F64: F64_SCALAR, F32: F32_SCALAR, I64: I64_SCALAR, I32: I32_SCALAR}
_INTEGERS: tuple[Any, ...] = (int, np.int64, np.int32)
_NUMBERS = (*_INTEGERS, float, np.float64, np.float32)
_RESULT_MASK, _TEMPORARY_MASK = 15, 63  # NumPy's memory is aligned to 16 bytes, an entry's workspace to 64


ProgramEntry: TypeAlias = Callable[..., Any]
"""`entry(*arguments)` or `entry(*arguments, out)`: what a call gives; None if these are of another form."""


def entry_of(
    plan: BoundPlan, arguments: Sequence[Any], fixed: Collection[int], threads: int, gives_tuple: bool
) -> ProgramEntry | None:
    """The native entry of a plan, or None.

    Args:
        plan: made for these arguments, whose scalars may change.
        arguments: of a call that used the plan.
        fixed: positions of the scalars whose values the plan depends on.
        threads: that launches of several blocks are shared among.
        gives_tuple: whether the program's results are a tuple.
    """
    checked = {one.slot for one in flattened(plan.recording.records) if isinstance(one, CheckErrors)}
    if not _is_usual(plan, arguments, fixed, checked):
        return None
    given, slots = plan.scalar_types, [one.slot for one in plan.results]
    inputs = {position: (slot, element) for position, slot, element in plan.inputs}
    operands = [
        _scalar_form(position, one, given, fixed)
        if position in given
        else _form(one, address_mask(plan, *inputs[position]))
        for position, one in enumerate(arguments)
    ]
    results = [_result_form(plan, one) for one in plan.results]
    places = shared_places(plan.recording.records, slots)
    if any(form is None for form in results) or any(
        address_mask(plan, slot, F64) > _TEMPORARY_MASK for slot in places.of
    ):
        return None
    before = [inputs[position][0] if position in inputs else -1 for position in range(len(arguments))] + slots
    numbers: dict[int | Counter, int] = {slot: number for number, slot in enumerate(before) if slot >= 0}
    numbers |= {slot: len(before) + place for slot, place in places.of.items()}
    counters = counters_of(plan.recording.records)
    numbers |= {counter: len(before) + len(places.sizes) + number for number, counter in enumerate(counters)}

    def scalar(reference: ScalarReference, type_: ScalarType) -> int:
        position = int(reference.name)
        if reference.component or type_ != given[position]:
            raise Unfit
        return position

    try:
        steps = steps_of(plan.recording.records, numbers, scalar)
    except Unfit:
        return None
    entry = make_entry(
        steps,
        operands,
        [one for one in results if one is not None],
        places.sizes,
        makes_results=True,
        gives_tuple=gives_tuple,
        records=[] if places.errors is None else [places.errors],
        counters=len(counters),
        threads=threads,
    )
    if entry is None:
        return None
    large = [None if _nbytes(one) < LARGE else (one.shape, one.element.numpy) for one in plan.results]
    if len(large) == 1 and not (large[0] or checked or gives_tuple):
        return entry  # which takes and gives what callers do
    return _with_results(entry, len(operands), large, bool(checked))


def _is_usual(plan: BoundPlan, arguments: Sequence[Any], fixed: Collection[int], checked: Collection[int]) -> bool:
    """Whether native code has words for what a plan takes and gives; `checked`: the slots of its error records."""
    records = [*flattened(plan.recording.records)]
    zeroed = {one.slot for one in records if isinstance(one, Allocation) and one.zeros}
    slots, given = [one.slot for one in plan.results], plan.scalar_types
    return (
        not plan.empty
        and any(isinstance(one, RecordedLaunch) for one in records)
        and len(set(slots)) == len(slots)
        and all(slot >= 0 for slot in slots)
        and checked == zeroed
        and all(type_ in _KINDS for type_ in given.values())
        and all(type(arguments[position]) in _INTEGERS for position in fixed)
        and all(type(arguments[position]) in _NUMBERS for position in given)
        and len(plan.inputs) + len(given) == len(arguments)
    )


def _with_results(
    native: NativeEntry, operands: int, large: Sequence[tuple[tuple[int, ...], np.dtype[Any]] | None], may_fail: bool
) -> ProgramEntry:
    """The entry that gives native code an array or None for each result.

    Args:
        native: takes the arguments and the results.
        operands: how many arguments the program has.
        large: for each result its shape and dtype if it is large, so that its memory is recycled.
        may_fail: whether it may give up with results half written, so that they must not be a caller's.
    """

    makes = any(large)

    def entry(*given: Any) -> Any:
        if len(given) == operands:
            fresh = [None if one is None else aligned_empty(*one) for one in large] if makes else ()
            return native(*given, *fresh)
        *arguments, out = given
        return None if may_fail else native(*arguments, *(out if type(out) is tuple else (out,)))

    return entry


def with_new_results(plan: BoundPlan, out: Sequence[np.ndarray[Any, Any] | None]) -> BoundPlan | None:
    """The plan with memory of its own for results that were written to the caller's arrays; None where one of those was
    not in C order, as new ones are.
    """
    if any(one is not None and not one.flags.c_contiguous for one in out):
        return None
    made = [Allocation(one.slot, one.shape, one.element.numpy) for one in plan.results if one.direct]
    if not made:
        return plan
    recording = replace(plan.recording, records=[*made, *plan.recording.records])
    results = tuple(replace(one, direct=False) for one in plan.results)
    return replace(plan, recording=recording, outputs=(), results=results)


def _scalar_form(position: int, value: Any, given: dict[int, ScalarType], fixed: Collection[int]) -> ScalarForm:
    return ScalarForm(EXACT_INTEGER, int(value)) if position in fixed else ScalarForm(_KINDS[given[position]])


def _nbytes(result: Result) -> int:
    return math.prod(result.shape) * result.element.numpy.itemsize


def _form(array: np.ndarray[Any, Any], mask: int) -> ArrayForm:
    return ArrayForm(array.dtype, array.shape, array.strides, mask, span_of(array))


def _result_form(plan: BoundPlan, result: Result) -> ArrayForm | None:
    """Of a new result in C order."""
    dtype = result.element.numpy
    nbytes = _nbytes(result)
    mask = address_mask(plan, result.slot, result.element)
    if not nbytes or mask > _RESULT_MASK or result.direct or result.array != bool(result.shape):
        return None
    strides = tuple(stride * dtype.itemsize for stride in row_major_strides(result.shape))
    return ArrayForm(dtype, result.shape, strides, mask, (0, nbytes))
