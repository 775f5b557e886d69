"""What a run of a program did, step by step, so that it can be repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.kernel.ir import Kernel
from tilewright.kernel.launch import ScalarReference
from tilewright.runtime import host
from tilewright.runtime.backends import Memory

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
class RecordedLaunch:
    """A launch: slots of its buffers, its scalars (an argument's position and component where it may change)."""

    compiled: Any
    blocks: int
    slots: tuple[int, ...]
    scalars: tuple[int | float | bool | ScalarReference, ...]


@dataclass(frozen=True)
class CheckErrors:
    """Look at an error record."""

    slot: int
    checks: tuple[host.CheckedIndex, ...]


@dataclass(frozen=True)
class Release:
    """The memory is not used any more."""

    slot: int


Record: TypeAlias = Allocation | RecordedLaunch | CheckErrors | Release


def alignments_of(records: Sequence[Record]) -> dict[int, int]:
    """What launches on the CPU were promised of the addresses of slots, in bytes."""
    found: dict[int, int] = {}
    for record in records:
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
        memory.slot = self.slots
        self.slots += 1

    def refuse(self, reason: str) -> None:
        """The run depends on values: it must be done step by step each time."""
        self.reason = self.reason or reason
