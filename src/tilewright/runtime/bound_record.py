"""Bound plans on the disk, machine code included, so that later processes run programs without compiler and LLVM.

A record is JSON: facts that the caller adds, and the plan. A kernel is its name, its workspace, the SHA-256 of its
image, how many buffers it has and the types of its scalars: all that launches need to know of it. Scalars are the bits
that a kernel reads, as numbers. What of a plan may fail keeps its message: arrays, dimensions and lines.

What is read here is going to be run: see `plan_record`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import SCALAR_TYPES, ScalarType, scalar_type_of
from tilewright.kernel.launch import ScalarReference
from tilewright.runtime.backends import slot_bytes
from tilewright.runtime.bound_plan import BoundPlan, Result
from tilewright.runtime.cache import DiskCache
from tilewright.runtime.plan_record import kernel_entry, stored_kernel, stored_record
from tilewright.runtime.recording import (
    Allocation,
    CheckErrors,
    Counter,
    Record,
    RecordedLaunch,
    Recording,
    Release,
    Rounds,
    flattened,
    slots_of,
)

_VERSION = 1
LONGEST = 1 << 12
"""Records of plans with more steps are read no faster than such programs are compiled."""


@dataclass(frozen=True)
class StoredScalar:
    """A scalar that a kernel takes."""

    type: ScalarType


@dataclass(frozen=True)
class StoredKernel:
    """What launches need to know of a kernel."""

    name: str
    buffers: Sequence[int]
    scalars: tuple[StoredScalar, ...]


def store_bound_plan(disk: DiskCache, key: tuple[str, ...], plan: BoundPlan, facts: dict[str, Any]) -> bool:
    """Store a plan under a key; False if it is too long, or a kernel has no image (LLVM linked it)."""
    records = plan.recording.records
    steps = [*flattened(records)]
    compiled = {id(one.compiled): one.compiled for one in steps if isinstance(one, RecordedLaunch)}
    if len(steps) > LONGEST or not all(native.image for _, native in compiled.values()):
        return False
    numbers = {one: number for number, one in enumerate(compiled)}
    try:
        written = [_written(one, numbers) for one in records]
    except (KeyError, TypeError):  # a scalar of a type that no argument block has
        return False
    record = {
        "version": _VERSION,
        "facts": facts,
        "name": plan.name,
        "slots": plan.recording.slots,
        "kernels": [
            [*kernel_entry(disk, native), len(kernel.buffers), [one.type.name for one in kernel.scalars]]
            for kernel, native in compiled.values()
        ],
        "records": written,
        "inputs": [[position, slot, element.name] for position, slot, element in plan.inputs],
        "outputs": [[position, slot, element.name] for position, slot, element in plan.outputs],
        "results": [_written_result(one) for one in plan.results],
        "scalars": [[position, type_.name] for position, type_ in plan.scalar_types.items()],
        "empty": sorted(plan.empty),
        "spans": [[slot, *span] for slot, span in plan.spans.items()],
        "alignments": [*plan.alignments.items()],
    }
    import json  # which nothing that reads records needs

    disk.put(key, json.dumps(record, separators=(",", ":")).encode())
    return True


def stored_bound_plan(disk: DiskCache, key: tuple[str, ...]) -> tuple[BoundPlan, dict[str, Any]] | None:
    """The plan of a key with its kernels loaded, and the facts; None if there is none that can be used here."""

    def read(record: dict[str, Any]) -> BoundPlan | None:
        plan = _plan(disk, record)
        return plan if _is_sound(plan) else None

    return stored_record(disk, key, _VERSION, read)


def _plan(disk: DiskCache, record: dict[str, Any]) -> BoundPlan:
    compiled = [_kernel(disk, *one) for one in record["kernels"]]
    records = [_read(one, compiled) for one in record["records"]]
    return BoundPlan(
        str(record["name"]),
        Recording(records, int(record["slots"])),
        tuple((int(position), int(slot), SCALAR_TYPES[element]) for position, slot, element in record["inputs"]),
        tuple((int(position), int(slot), SCALAR_TYPES[element]) for position, slot, element in record["outputs"]),
        tuple(_result(*one) for one in record["results"]),
        {int(position): SCALAR_TYPES[type_] for position, type_ in record["scalars"]},
        frozenset(map(int, record["empty"])),
        {int(slot): (int(low), int(high)) for slot, low, high in record["spans"]},
        {int(slot): int(alignment) for slot, alignment in record["alignments"]},
    )


def _is_sound(plan: BoundPlan) -> bool:
    """Whether everything that is mentioned is there."""
    records = plan.recording.records
    made = {one.slot for one in flattened(records) if isinstance(one, Allocation | Release)}
    used = slots_of(records) | made | plan.spans.keys() | plan.empty | plan.alignments.keys()
    used |= {slot for _, slot, _ in (*plan.inputs, *plan.outputs)}
    used |= {one.slot for one in plan.results if one.slot != -1}
    launches = [one for one in flattened(records) if isinstance(one, RecordedLaunch)]
    return all(0 <= slot < plan.recording.slots for slot in used) and all(
        len(one.slots) == len(one.compiled[0].buffers) and len(one.scalars) == len(one.compiled[0].scalars)
        for one in launches
    )


def _kernel(
    disk: DiskCache, name: str, workspace_bytes: int, digest: str, buffers: int, scalars: Sequence[str]
) -> tuple[StoredKernel, Any]:
    native = stored_kernel(disk, name, workspace_bytes, digest)
    return StoredKernel(name, range(buffers), tuple(StoredScalar(SCALAR_TYPES[one]) for one in scalars)), native


# --- records: lists that begin with what they are ---------------------------------------------------------------------


def _written(record: Record, numbers: dict[int, int]) -> list[Any]:
    match record:
        case Allocation(slot, shape, dtype, zeros):
            return ["allocate", slot, shape, scalar_type_of(dtype).name, zeros]
        case RecordedLaunch(compiled, blocks, slots, scalars):
            words = [_word(one, parameter.type) for one, parameter in zip(scalars, compiled[0].scalars, strict=True)]
            return ["launch", numbers[id(compiled)], blocks, slots, words]
        case CheckErrors(slot, checks):
            told = [[one.array, one.dimension, one.line, one.is_guard, one.is_count] for one in checks]
            return ["check", slot, told]
        case Release(slot):
            return ["release", slot]
        case Rounds(counter, stop, asked, cell, records, turns):
            parts = ([_written(one, numbers) for one in part] for part in (asked, records))
            return ["rounds", counter, stop, next(parts), cell, next(parts), turns]


def _read(record: Sequence[Any], compiled: Sequence[tuple[StoredKernel, Any]]) -> Record:
    match record:
        case ["allocate", slot, shape, element, zeros]:
            return Allocation(int(slot), _numbers(shape), SCALAR_TYPES[element].numpy, bool(zeros))
        case ["launch", number, blocks, slots, words]:
            kernel = compiled[number][0]
            scalars = tuple(_scalar(one, parameter.type) for one, parameter in zip(words, kernel.scalars, strict=True))
            return RecordedLaunch(compiled[number], int(blocks), _numbers(slots), scalars)
        case ["check", slot, checks]:
            from tilewright.runtime.host import CheckedIndex  # which is long to import

            return CheckErrors(
                int(slot),
                tuple(
                    CheckedIndex(str(one), int(at), str(line), bool(guard), bool(count))
                    for one, at, line, guard, count in checks
                ),
            )
        case ["release", slot]:
            return Release(int(slot))
        case ["rounds", counter, stop, asked, cell, records, turns]:
            before, again = (tuple(_read(one, compiled) for one in part) for part in (asked, records))
            place = None if cell is None else (int(cell[0]), int(cell[1]))
            return Rounds(int(counter), int(stop), before, place, again, tuple(map(_numbers, turns)))
    raise ValueError(f"no step is written like {record!r}")


def _word(scalar: Any, type_: ScalarType) -> Any:
    """A launch's scalar: its bits as a number, or a list that says where it comes from."""
    match scalar:
        case ScalarReference(name, component):
            return ["argument", name, component]
        case Counter(slot, first, step):
            return ["counter", slot, first, step]
    return int.from_bytes(slot_bytes(type_, scalar), "little")


def _scalar(word: Any, type_: ScalarType) -> Any:
    match word:
        case ["argument", name, component]:
            return ScalarReference(str(name), int(component))
        case ["counter", slot, first, step]:
            return Counter(int(slot), int(first), int(step))
    return np.frombuffer(int(word).to_bytes(8, "little"), type_.numpy)[0].item()


def _written_result(result: Result) -> list[Any]:
    bits = None if result.value is None else np.asarray(result.value, result.element.numpy).tobytes().hex()
    return [result.element.name, result.shape, result.slot, bits, result.argument, result.direct, result.array]


def _result(
    element: str, shape: Iterable[int], slot: int, bits: str | None, argument: int | None, direct: bool, array: bool
) -> Result:
    type_ = SCALAR_TYPES[element]
    value = None if bits is None else np.frombuffer(bytes.fromhex(bits), type_.numpy)[0]
    return Result(type_, _numbers(shape), int(slot), value, argument, bool(direct), bool(array))


def _numbers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(int, values))
