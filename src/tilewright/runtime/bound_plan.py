"""Bound plans: what a run did, ready to be repeated for other arguments of the same shapes, strides and dtypes.

On the CPU a repeated run is little more than filling addresses into prepared argument blocks.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.ir.arguments import as_scalar, holds
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import F32, F64, ScalarType
from tilewright.kernel.launch import ScalarReference
from tilewright.runtime import cpu_pool
from tilewright.runtime.backends import NOTHING, Backend, Memory, argument_block, array_at, slot_bytes
from tilewright.runtime.flat_plan import EntryLaunch, FlatPlan, Unfit, address_of
from tilewright.runtime.index_errors import component_of, index_error, raise_errors
from tilewright.runtime.memory import SMALL_ALLOCATION, aligned_empty
from tilewright.runtime.recording import Allocation, CheckErrors, Counter, RecordedLaunch, Recording, Release, Rounds

if TYPE_CHECKING:  # programs from the disk do without the kernel language
    from tilewright.kernel.ir import Kernel

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Result:
    """One result: in memory (`slot`; a scalar if `shape` is ()), or a value known to the host, or an argument.

    `direct` says that it was written to the caller's array already.
    """

    element: ScalarType
    shape: tuple[int, ...]
    slot: int = -1
    value: Any = None
    argument: int | None = None
    direct: bool = False
    array: bool = True


@dataclass(frozen=True)
class BoundPlan:
    """A recording with its arguments' slots and its results.

    `inputs` pairs positions of array arguments with slots, `outputs` those of the caller's result arrays. `scalars`
    are the types of the scalar arguments by position, `empty` the slots of arrays without elements, `spans` the
    bytes that inputs and outputs cover from their addresses on, `alignments` what launches were promised of slots.
    """

    name: str
    recording: Recording
    inputs: tuple[tuple[int, int, ScalarType], ...]
    outputs: tuple[tuple[int, int, ScalarType], ...]
    results: tuple[Result, ...]
    scalar_types: dict[int, ScalarType]
    empty: frozenset[int] = frozenset()
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    alignments: dict[int, int] = field(default_factory=dict)

    @property
    def has_rounds(self) -> bool:
        """Whether only native code repeats it."""
        return any(isinstance(one, Rounds) for one in self.recording.records)


Runner: TypeAlias = Callable[[Sequence[Any], Sequence[Array | None]], list[Any]]


def deliver(results: Sequence[Result], values: Sequence[Any], out: Sequence[Array | None]) -> list[Any]:
    """The values for the caller; those that he gave arrays for are written there."""
    delivered = []
    for result, value, given in zip(results, values, out, strict=True):
        if given is not None:
            if not result.direct:
                np.copyto(given, value)
            delivered.append(given)
        else:
            delivered.append(value)
    return delivered


# --- on the CPU -------------------------------------------------------------------------------------------------------


def cpu_runner(plan: BoundPlan) -> Runner:
    """The plan as a function of arguments and result arrays; Unfit, each time, for rounds."""
    if plan.has_rounds:
        return _unfit
    scalars = changing_scalars(plan)
    steps = [_cpu_step(plan, record, scalars) for record in plan.recording.records]
    count = plan.recording.slots
    inputs = [
        (position, slot, address_mask(plan, slot, element))
        for position, slot, element in plan.inputs
        if slot not in plan.empty
    ]
    outputs = [(position, slot, address_mask(plan, slot, element)) for position, slot, element in plan.outputs]
    results = plan.results
    # The caller's arrays are written directly, so that they must not overlap anything that is read meanwhile.
    conflicts = [
        (one, *plan.spans[one], other, *plan.spans[other])
        for position, (_, one, _) in enumerate(outputs)
        for other in [slot for _, slot, _ in inputs] + [slot for _, slot, _ in outputs[position + 1 :]]
    ]
    start = [NOTHING.ctypes.data if slot in plan.empty else 0 for slot in range(count)]

    def run(arguments: Sequence[Any], out: Sequence[Array | None]) -> list[Any]:
        addresses = start.copy()
        kept: list[Any] = [None] * count
        for position, slot, mask in inputs:
            address = address_of(arguments[position])
            if address & mask:
                raise Unfit
            addresses[slot] = address
        for position, slot, mask in outputs:
            address = address_of(out[position])  # type: ignore[arg-type]
            if address & mask:
                raise Unfit
            addresses[slot] = address
        for one, low, high, other, other_low, other_high in conflicts:
            distance = addresses[other] - addresses[one]
            if distance + other_low < high and low < distance + other_high:
                raise Unfit
        words = [word(arguments) for word in scalars.values()]
        for step in steps:
            step(addresses, kept, words)
        values = [_cpu_result(one, kept, addresses, arguments) for one in results]
        return deliver(results, values, out)

    return run


def _unfit(arguments: Sequence[Any], out: Sequence[Array | None]) -> list[Any]:
    raise Unfit


def address_mask(plan: BoundPlan, slot: int, element: ScalarType) -> int:
    """The bits that must be 0 in the address of an array."""
    return max(plan.alignments.get(slot, 0), element.numpy.alignment) - 1


CpuStep: TypeAlias = Callable[[list[int], list[Any], Sequence[int]], None]


def _cpu_result(result: Result, kept: Sequence[Any], addresses: Sequence[int], arguments: Sequence[Any]) -> Any:
    if result.direct:
        return None
    if result.slot >= 0:
        array = kept[result.slot]
        if array is None:
            array = array_at(addresses[result.slot], 1, result.element.numpy).reshape(result.shape)
        return array if result.array else array[()]
    return _known(result, arguments)


def _known(result: Result, arguments: Sequence[Any]) -> Any:
    if result.argument is None:
        return result.value
    value = arguments[result.argument]
    converted = _scalar(value, result.element)
    # Integers by way of a float: the type of bf16 takes none beyond i64. Others are rounded once.
    with np.errstate(over="ignore"):
        return result.element.numpy.type(converted if type(value) is int else value)


def _cpu_step(plan: BoundPlan, record: object, scalars: Scalars) -> CpuStep:
    if isinstance(record, Allocation):
        return _cpu_allocation(record, plan.alignments.get(record.slot, 0), plan.name)
    if isinstance(record, CheckErrors):
        return _cpu_check(record, plan.name)
    if isinstance(record, Release):
        return _cpu_release(record)
    assert isinstance(record, RecordedLaunch)
    return _cpu_launch(record, plan, scalars)


def _cpu_allocation(record: Allocation, alignment: int, name: str) -> CpuStep:
    slot, shape, dtype, nbytes = record.slot, record.shape, record.dtype, record.nbytes
    make: Callable[..., Array] = np.zeros if record.zeros else np.empty

    def small(addresses: list[int], kept: list[Any], words: Sequence[int]) -> None:
        kept[slot] = array = make(shape, dtype)
        addresses[slot] = address_of(array)

    def large(addresses: list[int], kept: list[Any], words: Sequence[int]) -> None:
        kept[slot] = array = aligned_empty(shape, dtype, f"an array of {name}")
        addresses[slot] = address_of(array)

    return small if nbytes < min(SMALL_ALLOCATION, 4096) and alignment <= 16 else large


def _cpu_release(record: Release) -> CpuStep:
    def release(addresses: list[int], kept: list[Any], words: Sequence[int]) -> None:
        kept[record.slot] = None

    return release


def _cpu_check(record: CheckErrors, name: str) -> CpuStep:
    def check(addresses: list[int], kept: list[Any], words: Sequence[int]) -> None:
        errors = kept[record.slot]
        if errors.any():
            for (code, index, extent), one in zip(errors.reshape(-1, 3), record.checks, strict=True):
                if code:
                    raise index_error(name, one, int(index), int(extent))

    return check


def _scalar(value: Any, type_: ScalarType) -> np.generic[Any]:
    """A scalar argument as its kernel reads it; integers that the type does not hold are for the long way to refuse."""
    if not holds(type_, value):
        raise Unfit
    try:
        return as_scalar(value, type_)
    except OverflowError as error:  # an integer beyond all floats: the long way tells of it
        raise Unfit from error


Scalars: TypeAlias = dict[tuple[int, int, ScalarType], Callable[[Sequence[Any]], int]]
"""Numbered by their order: the argument, component and type of a kernel's scalar, and its slot's bytes as a number."""


def changing_scalars(plan: BoundPlan) -> Scalars:
    """The scalars that a plan's kernels take from arguments: each is converted once for all launches of a run."""
    found: Scalars = {}
    for record in plan.recording.records:
        if isinstance(record, RecordedLaunch):
            for key in _references(record).values():
                found.setdefault(key, _word_of(*key, plan.scalar_types[key[0]]))
    return found


def _references(record: RecordedLaunch) -> dict[int, tuple[int, int, ScalarType]]:
    """Which argument, component and type a launch's scalars are, by position, for those that are arguments."""
    kernel: Kernel = record.compiled[0]
    scalars = zip(kernel.scalars, record.scalars, strict=True)
    return {
        position: (int(one.name), one.component, parameter.type)
        for position, (parameter, one) in enumerate(scalars)
        if isinstance(one, ScalarReference)
    }


def _word_of(
    argument: int, component: int, parameter: ScalarType, declared: ScalarType
) -> Callable[[Sequence[Any]], int]:
    fast = _FAST.get(parameter) if parameter == declared else None

    def word(arguments: Sequence[Any]) -> int:
        given = arguments[argument]
        if fast is not None and type(given) is float:
            return int.from_bytes(fast(given), "little")
        return int.from_bytes(slot_bytes(parameter, component_of(_scalar(given, declared), component)), "little")

    return word


# Of Python floats; `struct` would refuse an f32 that overflows.
_FAST: dict[ScalarType, Callable[[float], bytes]] = {
    F64: struct.Struct("<d").pack, F32: lambda value: bytes(ctypes.c_float(value)),
}  # fmt: skip


def _cpu_launch(record: RecordedLaunch, plan: BoundPlan, scalars: Scalars) -> CpuStep:
    kernel, native = record.compiled
    slots = tuple(enumerate(record.slots))
    fixed = [0 if isinstance(one, ScalarReference | Counter) else one for one in record.scalars]
    numbers = {key: number for number, key in enumerate(scalars)}
    changing = [(len(record.slots) + position, numbers[key]) for position, key in _references(record).items()]
    free: list[tuple[Any, Callable[[], None]]] = []

    def make() -> tuple[Any, Callable[[], None]]:
        block = argument_block(kernel, fixed)
        return block, cpu_pool.prepare(native, block, record.blocks)

    def run(addresses: list[int], kept: list[Any], words: Sequence[int]) -> None:
        try:
            entry = free.pop()
        except IndexError:
            entry = make()
        block, launch = entry
        for position, slot in slots:
            block[position] = addresses[slot]
        for position, number in changing:
            block[position] = words[number]
        launch()
        free.append(entry)

    free.append(make())
    return run


def flat_plan_of(plan: BoundPlan, arguments: int, out: Array | None) -> FlatPlan | None:
    """The plan without its special cases: launches alone, on so many operands and a result that is written directly.

    None if it has any: scalar arguments, checks, arrays without elements, results that the host computes. The result
    is `out`; where that is None it must be a scalar, for which there will be an array without dimensions.
    """
    records = [one for one in plan.recording.records if not isinstance(one, Release)]
    launches = [one for one in records if isinstance(one, RecordedLaunch)]
    allocations = [one for one in records if isinstance(one, Allocation) and not one.zeros]
    if (
        len(launches) + len(allocations) != len(records)
        or not launches
        or len(plan.results) != 1
        or plan.scalar_types
        or plan.empty
        or tuple(position for position, _, _ in plan.inputs) != tuple(range(arguments))
    ):
        return None
    (result,) = plan.results
    if out is None:
        if result.slot not in [one.slot for one in allocations] or result.shape or result.array:
            return None
        slot = result.slot
    else:
        if not result.direct or len(plan.outputs) != 1:
            return None
        slot = plan.outputs[0][1]
    from tilewright.runtime.entry_memory import shared_places  # not needed to run what comes from the disk

    inputs = [one for _, one, _ in plan.inputs]
    places = shared_places(records, {slot})
    numbers = {one: number for number, one in enumerate((*inputs, slot))}
    numbers |= {one: len(inputs) + 1 + place for one, place in places.of.items()}
    elements = [*((one, element) for _, one, element in plan.inputs), (slot, result.element)]
    return FlatPlan(
        tuple(address_mask(plan, one, element) for one, element in elements),
        places.sizes,
        tuple(_flat_launch(one, numbers) for one in launches),
    )


def _flat_launch(record: RecordedLaunch, numbers: Mapping[int, int]) -> EntryLaunch:
    kernel, native = record.compiled
    scalars = [
        one for one in record.scalars if not isinstance(one, ScalarReference | Counter)
    ]  # all, without scalar arguments
    slots = list(argument_block(kernel, scalars))[len(kernel.buffers) :]
    return EntryLaunch(native, record.blocks, tuple(numbers[slot] for slot in record.slots), tuple(slots))


# --- on other devices -------------------------------------------------------------------------------------------------


def device_runner(plan: BoundPlan, backend: Backend) -> Runner:
    """The plan as a function of arguments and result arrays."""

    def run(arguments: Sequence[Any], out: Sequence[Array | None]) -> list[Any]:
        memories: list[Memory] = [Memory() for _ in range(plan.recording.slots)]
        for position, slot, _ in plan.inputs:
            memories[slot] = backend.place(arguments[position])[0]
        for record in plan.recording.records:
            _device_step(plan, backend, record, memories, arguments)
        values = [_device_result(one, memories, arguments, backend) for one in plan.results]
        return deliver(plan.results, values, out)

    return run


def _device_step(
    plan: BoundPlan, backend: Backend, record: object, memories: list[Memory], arguments: Sequence[Any]
) -> None:
    match record:
        case Allocation(slot, shape, dtype, zeros):
            memories[slot] = backend.zeros(shape[0]) if zeros else backend.allocate(shape, dtype, plan.name)
        case Release(slot):
            memories[slot] = Memory()
        case CheckErrors(slot, checks):
            raise_errors(backend, memories[slot], checks, plan.name)
        case RecordedLaunch(compiled, blocks, slots, scalars):
            values = [
                component_of(_scalar(arguments[int(one.name)], plan.scalar_types[int(one.name)]), one.component)
                if isinstance(one, ScalarReference)
                else one
                for one in scalars
                if not isinstance(one, Counter)  # which only rounds on the CPU have
            ]
            backend.launch(compiled, blocks, [memories[slot] for slot in slots], values)


def _device_result(result: Result, memories: Sequence[Memory], arguments: Sequence[Any], backend: Backend) -> Any:
    if result.slot < 0:
        return _known(result, arguments)
    array = backend.result(memories[result.slot], result.shape, result.element.numpy)
    return array if result.array else array[()]
