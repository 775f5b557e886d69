"""The steps of native code that records become: launches, looks at error records, and rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.scalars import I64, ScalarType
from tilewright.kernel.launch import ScalarReference
from tilewright.runtime.backends import argument_block
from tilewright.runtime.entry_plan import EntryCheck, EntryRounds, EntryStep
from tilewright.runtime.flat_plan import EntryLaunch, Unfit
from tilewright.runtime.recording import Allocation, CheckErrors, Counter, Record, RecordedLaunch, Release, Rounds

ScalarNumber = Callable[[ScalarReference, ScalarType], int]
"""The number of the value that is a scalar argument, as a kernel's scalar of a type; raises Unfit if there is none."""


def steps_of(
    records: Sequence[Record], numbers: Mapping[int | Counter, int], scalar: ScalarNumber, start: int = 0
) -> tuple[EntryStep, ...]:
    """The steps that do what the records say.

    Args:
        records: of launches on the CPU.
        numbers: of the values that the slots of arrays, and counters, are.
        scalar: numbers scalar arguments.
        start: the first round of rounds that are not inside of others.

    Raises:
        Unfit: if native code cannot do that.
    """
    steps: list[EntryStep] = []
    for one in records:
        match one:
            case RecordedLaunch():
                steps.append(_launch(one, numbers, scalar))
            case CheckErrors(slot, checks):
                steps.append(EntryCheck(numbers[slot], 24 * len(checks)))
            case Rounds():
                steps.append(_rounds(one, numbers, scalar, start))
            case Allocation() | Release():
                pass
    return tuple(steps)


def _rounds(one: Rounds, numbers: Mapping[int | Counter, int], scalar: ScalarNumber, start: int) -> EntryRounds:
    cell = None if one.cell is None else (numbers[one.cell[0]], one.cell[1])
    asked, steps = (steps_of(part, numbers, scalar) for part in (one.asked, one.records))
    turns = tuple(tuple(numbers[slot] for slot in turn) for turn in one.turns)
    others = tuple(
        (number, counter.first + start * counter.step, counter.step)
        for counter, number in numbers.items()
        if isinstance(counter, Counter) and counter.slot == one.counter and counter != Counter(one.counter)
    )
    return EntryRounds(numbers[Counter(one.counter)], start, one.stop, others, asked, cell, steps, turns)


def _launch(record: RecordedLaunch, numbers: Mapping[int | Counter, int], scalar: ScalarNumber) -> EntryLaunch:
    kernel, native = record.compiled
    fixed: list[int | float | bool] = []
    given: list[tuple[int, int]] = []
    for place, (one, parameter) in enumerate(zip(record.scalars, kernel.scalars, strict=True)):
        if isinstance(one, Counter):
            if parameter.type != I64:
                raise Unfit
            given.append((place, numbers[one]))
        elif isinstance(one, ScalarReference):
            given.append((place, scalar(one, parameter.type)))
        fixed.append(0 if isinstance(one, ScalarReference | Counter) else one)
    words = tuple(argument_block(kernel, fixed))[len(kernel.buffers) :]
    return EntryLaunch(native, record.blocks, tuple(numbers[slot] for slot in record.slots), words, tuple(given))
