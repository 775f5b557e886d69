"""Loops of the host. One round is done step by step; where the others are the same, native code does them.

What a loop carries lies in memory of its own then. A round that makes it anew leaves the memory of what it was to the
next round: arrays take turns. Rounds differ where the host asks for the number of the round (as an index or size), or
for a value that a kernel computed: such loops go on step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tilewright.ir.nodes import Variable
from tilewright.ir.scalars import ScalarType
from tilewright.kernel.launch import ScalarReference
from tilewright.runtime import cpu_entry, host
from tilewright.runtime.backends import Memory, slot_bytes
from tilewright.runtime.cpu_pool import get_num_threads
from tilewright.runtime.entry_steps import steps_of
from tilewright.runtime.executor import Executor
from tilewright.runtime.flat_plan import Unfit
from tilewright.runtime.index_errors import component_of, raise_errors
from tilewright.runtime.recording import (
    CheckErrors,
    Counter,
    Record,
    RecordedLaunch,
    Rounds,
    counters_of,
    flattened,
    slots_of,
)
from tilewright.runtime.scope import Entry, Placed, Scalar

FEWEST_ROUNDS = 16
"""Loops of fewer rounds are done, and recorded, one round after the other."""
UNCOUNTED = 1 << 62

RunBlock: TypeAlias = Callable[[Executor, host.Block], list[Entry]]


def run_loop(e: Executor, step: host.LoopStep, run_block: RunBlock) -> None:
    """Do a loop, and bind its targets."""
    carried = [e.entry(atom) for atom in step.initial]
    count = UNCOUNTED if step.bound is None else e.size(step.bound)
    repeats = e.backend.threads_per_block == 1 and count >= FEWEST_ROUNDS and cpu_entry.entries_are_possible()
    for place in _renewed(step) if repeats else step.own:
        given, type_ = carried[place], step.parameters[place].type
        shape = given.shape if isinstance(given, Placed) else ()
        carried[place] = own = e.allocate_shape(type_.element, shape, step.parameters[place].name)
        e.copy(given, own)
    done = 0
    if repeats:
        outermost = e.memories is None
        e.memories = {} if e.memories is None else e.memories
        try:
            carried, done = _repeated(e, step, carried, count, run_block)
        finally:
            e.memories = None if outermost else e.memories
    while done < count and (step.condition is None or _holds(e, step, step.condition, carried, run_block)):
        carried = _round(e, step, carried, Scalar(np.int64(done)), run_block)
        done += 1
    _bind(e, step.targets, carried)


def _renewed(step: host.LoopStep) -> tuple[int, ...]:
    """The places of what rounds give anew, in memory."""
    by_host = {one.name for inside in step.body.steps if isinstance(inside, host.ScalarStep) for one in inside.targets}
    return tuple(
        place
        for place, (parameter, result) in enumerate(zip(step.parameters, step.body.results, strict=True))
        if not (isinstance(result, Variable) and (result.name == parameter.name or result.name in by_host))
        or place in step.own
    )


def _round(
    e: Executor, step: host.LoopStep, carried: Sequence[Entry], index: Scalar, run_block: RunBlock
) -> list[Entry]:
    if step.index is not None:
        e.scope.entries[step.index.name] = index
    _bind(e, step.parameters, carried)
    return run_block(e, step.body)


def _holds(
    e: Executor, step: host.LoopStep, condition: host.Block, carried: Sequence[Entry], run_block: RunBlock
) -> bool:
    """Whether a while loop goes on."""
    _bind(e, step.condition_parameters, carried)
    run_block(e, condition)
    asked = e.scalar(condition.results[0])
    e.scope.used_rounds |= asked.rounds
    if asked.changing or asked.argument is not None:
        e.recording.refuse("a condition depends on the arguments' values")
    return bool(asked.value)


def _bind(e: Executor, variables: Sequence[Variable], entries: Sequence[Entry]) -> None:
    """Give variables their values."""
    for variable, entry in zip(variables, entries, strict=True):
        e.scope.entries[variable.name] = entry


# --- by native code ---------------------------------------------------------------------------------------------------


def _repeated(
    e: Executor, step: host.LoopStep, carried: list[Entry], count: int, run_block: RunBlock
) -> tuple[list[Entry], int]:
    """Do one round, and all others if they are the same; what is carried then, and how many rounds that were."""
    counter, choices, records = e.recording.new_slot(), e.choices, e.recording.records
    first, start = e.recording.slots, len(records)
    if step.condition is None:
        e.counts[counter] = count
    assert e.memories is not None
    e.memories |= _memories(carried)
    cell: Placed | None = None
    if step.condition is not None:
        _bind(e, step.condition_parameters, carried)
        (condition,) = run_block(e, step.condition)
        if isinstance(condition, Scalar) or condition.step is not None:
            return carried, 0
        cell = condition
        if not e.read_scalar(cell):
            e.recording.refuse("nobody knows what a loop's rounds do that goes through none")
            e.choices += 1
            return carried, count
    asked = len(records)
    after = _round(e, step, carried, Scalar(np.int64(0), rounds=frozenset((counter,)), step=(counter, 1)), run_block)
    settled = _settled(e, step, carried, after, first)
    is_repeatable = e.choices == choices and counter not in e.scope.used_rounds and e.recording.records is records
    rounds = None
    if settled is not None and is_repeatable and not _has_guard(records[start:]):
        e.memories |= _memories(settled)
        pairs = zip(_memories(carried), _memories(settled), strict=True)
        turns = _turns({old: new for old, new in pairs if old != new})
        place = None if cell is None else (cell.memory.slot, cell.offset * cell.element.numpy.itemsize)
        rounds = Rounds(counter, count, tuple(records[start:asked]), place, tuple(records[asked:]), turns)
        if _finished(e, rounds):
            records[start:] = [rounds]
            return [_now(e, one, rounds) for one in carried], count
    if e.recording.records is records:
        records[start:] = [_in_first_round(one, counter) for one in records[start:]]
    if cell is not None:
        e.recording.refuse("a condition depends on the arguments' values")
        e.choices += 1
    return after, 1


def _memories(entries: Sequence[Entry]) -> dict[int, Memory]:
    """The memory of what lies in memory, by slots."""
    return {one.memory.slot: one.memory for one in entries if isinstance(one, Placed)}


def _has_guard(records: Sequence[Record]) -> bool:
    checks = (check for one in flattened(records) if isinstance(one, CheckErrors) for check in one.checks)
    return any(check.is_guard for check in checks)


def _settled(
    e: Executor, step: host.LoopStep, carried: Sequence[Entry], after: Sequence[Entry], first: int
) -> list[Entry] | None:
    """What a round gives in memory like that of what it was given, of this round or of another array that takes turns;
    None where it is of another form. Memory from slot `first` on is of this round.
    """
    renewed = _renewed(step)
    turning = {one.memory.slot for place in renewed if isinstance(one := carried[place], Placed)}
    settled: list[Entry] = []
    used: set[int] = set()
    for place, (old, new) in enumerate(zip(carried, after, strict=True)):
        if place not in renewed or isinstance(old, Scalar):
            is_same = new is old or (
                isinstance(old, Scalar) and isinstance(new, Scalar) and not new.rounds
                and (new.argument, new.changing) == (old.argument, old.changing)
                and np.asarray(new.value).tobytes() == np.asarray(old.value).tobytes()
            )  # fmt: skip
            if not is_same:
                return None
            settled.append(old)
            continue
        if isinstance(new, Placed) and new.shape != old.shape:
            return None
        fits = (
            isinstance(new, Placed) and new.step is None
            and (new.element, new.strides, new.offset) == (old.element, old.strides, 0)
            and (new.memory.slot in turning or new.memory.slot >= first) and new.memory.slot not in used
            and _nbytes(new) == _nbytes(old)
        )  # fmt: skip
        if not fits:
            fresh = e.allocate_shape(old.element, old.shape, step.parameters[place].name)
            e.copy(new, fresh)
            new = fresh
        assert isinstance(new, Placed)
        used.add(new.memory.slot)
        settled.append(new)
    return settled


def _nbytes(placed: Placed) -> int:
    return -1 if placed.memory.array is None else placed.memory.array.nbytes


def _turns(becomes: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """The turns in which each slot gets the memory of another one after a round; the last gets what nothing else does.

    >>> _turns({1: 5, 2: 1, 3: 4, 4: 3})
    ((2, 1, 5), (3, 4))
    """
    given = set(becomes.values())
    turns: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for start in sorted(becomes, key=lambda slot: slot in given):
        turn: list[int] = []
        slot = start
        while slot not in seen:
            turn.append(slot)
            seen.add(slot)
            slot = becomes.get(slot, start)
        if turn:
            turns.append(tuple(turn))
    return tuple(turns)


def _finished(e: Executor, rounds: Rounds) -> bool:
    """Do all rounds but the first one, which has been done; False if native code cannot."""
    assert e.memories is not None
    memories = e.memories
    slots = sorted(slots_of([rounds]))
    numbers: dict[int | Counter, int] = {slot: number for number, slot in enumerate(slots)}
    values = [0] * len(numbers)
    for counter in counters_of([rounds]):
        numbers[counter] = len(values)
        values.append(counter.first)  # of loops around it is the first round that is done
    arguments = {one.argument: one.value for one in e.scope.entries.values() if isinstance(one, Scalar)}

    def scalar(reference: ScalarReference, type_: ScalarType) -> int:
        value = component_of(arguments[int(reference.name)], reference.component)
        values.append(int.from_bytes(slot_bytes(type_, value), "little", signed=True))
        return len(values) - 1

    try:
        steps = steps_of([rounds], numbers, scalar, start=1)
    except Unfit:
        return False
    for turn in rounds.turns:
        _turn(memories, turn)
    values[: len(slots)] = [memories[slot].address for slot in slots]
    went_well, values = cpu_entry.run_steps(steps, values, get_num_threads())
    by_address = {memories[slot].address: memories[slot].array for slot in slots}
    for slot, address in zip(slots, values, strict=False):
        memories[slot] = Memory(address, by_address[address], slot=slot)
    if not went_well:
        for one in flattened([rounds]):
            if isinstance(one, CheckErrors):
                raise_errors(e.backend, memories[one.slot], one.checks, e.program_name)
    return True


def _turn(memories: dict[int, Memory], turn: Sequence[int]) -> None:
    """What native code does to addresses after a round."""
    given = [memories[slot] for slot in (*turn[1:], turn[0])]
    for slot, memory in zip(turn, given, strict=True):
        memories[slot] = Memory(memory.address, memory.array, slot=slot)


def _now(e: Executor, one: Entry, rounds: Rounds) -> Entry:
    """What is carried, where it lies after the last round. Its memory may be larger, and be used by the next run."""
    if isinstance(one, Scalar) or all(one.memory.slot not in turn for turn in rounds.turns):
        return one
    assert e.memories is not None
    return replace(one, memory=e.memories[one.memory.slot], fresh=False)


def _in_first_round(record: Record, counter: int) -> Record:
    """A record of a round, in the first one."""
    match record:
        case RecordedLaunch(scalars=scalars):
            values = (one.first if isinstance(one, Counter) and one.slot == counter else one for one in scalars)
            return replace(record, scalars=tuple(values))
        case Rounds(asked=asked, records=records):
            parts = (tuple(_in_first_round(one, counter) for one in part) for part in (asked, records))
            return replace(record, asked=next(parts), records=next(parts))
    return record
