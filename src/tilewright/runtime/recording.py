"""What a run of a program did, step by step, so that it can be repeated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.kernel.launch import ScalarReference
from tilewright.runtime.backends import Memory

if TYPE_CHECKING:  # programs from the disk do without the kernel language
    from tilewright.kernel.ir import Kernel
    from tilewright.runtime import host

LONGEST_RECORDING = 1 << 14
"""Programs that do more than this are not recorded: loops of the host with thousands of rounds."""


@dataclass(frozen=True)
class Allocation:
    """Fresh memory; `zeros` makes it an error record."""

    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    zeros: bool = False

    @property
    def nbytes(self) -> int:
        """How much."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Counter:
    """A scalar of launches in a loop: `first` and, in each round, `step` more. `slot` is that of the round's number."""

    slot: int
    first: int = 0
    step: int = 1


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch: slots of its buffers, its scalars (an argument's position and component where it may change)."""

    compiled: Any
    blocks: int
    slots: tuple[int, ...]
    scalars: tuple[int | float | bool | ScalarReference | Counter, ...]


@dataclass(frozen=True)
class CheckErrors:
    """Look at an error record."""

    slot: int
    checks: tuple[host.CheckedIndex, ...]


@dataclass(frozen=True)
class Release:
    """The memory is not used any more."""

    slot: int


@dataclass(frozen=True)
class Rounds:
    """Records that are repeated.

    Attributes:
        counter: the slot of the number of the round, from 0 on.
        stop: how many rounds there are at most.
        asked: what is done before each round to learn if there is to be one.
        cell: the slot of the scalar, and the byte in it, that says so then; None if that is not asked.
        records: of a round.
        turns: slots, each of which is after a round what the next one was, and the last what the first was. All arrays
            of a turn have as many bytes.
    """

    counter: int
    stop: int
    asked: tuple[Record, ...]
    cell: tuple[int, int] | None
    records: tuple[Record, ...]
    turns: tuple[tuple[int, ...], ...]


Record: TypeAlias = Allocation | RecordedLaunch | CheckErrors | Release | Rounds


def flattened(records: Sequence[Record]) -> Iterator[Record]:
    """The records with those of rounds, once, before the rounds themselves."""
    for one in records:
        if isinstance(one, Rounds):
            yield from flattened((*one.asked, *one.records))
        yield one


def counters_of(records: Sequence[Record]) -> set[Counter]:
    """The counters that records mention, and those of the numbers of their rounds."""
    found: set[Counter] = set()
    for one in flattened(records):
        if isinstance(one, RecordedLaunch):
            found.update(scalar for scalar in one.scalars if isinstance(scalar, Counter))
        elif isinstance(one, Rounds):
            found.add(Counter(one.counter))
    return found


def slots_of(records: Sequence[Record]) -> set[int]:
    """The slots of memory that launches and rounds use."""
    found: set[int] = set()
    for one in flattened(records):
        match one:
            case RecordedLaunch(slots=slots):
                found.update(slots)
            case CheckErrors(slot=slot):
                found.add(slot)
            case Rounds(turns=turns, cell=cell):
                found.update(slot for turn in turns for slot in turn)
                found.update(() if cell is None else cell[:1])
    return found


def alignments_of(records: Sequence[Record]) -> dict[int, int]:
    """What launches on the CPU were promised of the addresses of slots, in bytes."""
    found: dict[int, int] = {}
    for record in flattened(records):
        if isinstance(record, RecordedLaunch):
            kernel: Kernel = record.compiled[0]
            for buffer, slot in zip(kernel.buffers, record.slots, strict=True):
                found[slot] = max(found.get(slot, 0), buffer.alignment)
    return found


@dataclass
class Recording:
    """What a run did, if that can be repeated for other arguments of the same form."""

    records: list[Record] = field(default_factory=list)
    slots: int = 0
    reason: str | None = None

    def slot(self, memory: Memory) -> None:
        """Give memory a number."""
        memory.slot = self.new_slot()

    def new_slot(self) -> int:
        """A number that nothing has yet."""
        self.slots += 1
        return self.slots - 1

    def reshape(self, slot: int, shape: tuple[int, ...]) -> bool:
        """Have memory made in another shape; False if it is made in no step of its own, but in rounds."""
        for position, one in enumerate(self.records):
            if isinstance(one, Allocation) and one.slot == slot:
                self.records[position] = replace(one, shape=shape)
                return True
        return False

    def refuse(self, reason: str) -> None:
        """The run depends on values: it must be done step by step each time."""
        self.reason = self.reason or reason
