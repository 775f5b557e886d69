"""Short cuts for repeated small calls: native functions that were learned from calls which took the long way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.frontend.einsum_layout import Array

if TYPE_CHECKING:  # imported with the compiler, when something is compiled
    from tilewright.runtime.cpu_entry import NativeEntry
    from tilewright.runtime.executable import Executable

MOST_ENTRIES = 8
_SERIAL_POINTS = 1 << 13  # less work than this is done before other threads are awake
_MOST_LESSONS = 64  # so that a caller whose arrays never have the same form twice is not kept waiting


def with_first(entry: NativeEntry, entries: tuple[NativeEntry, ...]) -> tuple[NativeEntry, ...]:
    """The entries with this one first; the last is dropped where there are too many."""
    return (entry, *(one for one in entries if one is not entry))[:MOST_ENTRIES]


class QuickCalls:
    """The entries of one einsum, tried in turn: `entry(*arrays, out)` gives None if the arrays are of another form."""

    def __init__(self, executable: Executable, fresh_strides: tuple[int, ...], points: int) -> None:
        """Of an einsum whose operands go to the executable as they are.

        Args:
            executable: the compiled program.
            fresh_strides: those of a new result.
            points: of the whole index space.
        """
        self.entries: tuple[NativeEntry, ...] = ()
        self._executable = executable
        self._fresh_strides = fresh_strides
        self._serial = points <= _SERIAL_POINTS
        self._calls = 0

    def learn(self, arrays: Sequence[Array], result: Array | None) -> None:
        """Called after the executable has computed `result` (None: a scalar); the first call learns nothing."""
        self._calls += 1
        if not 2 <= self._calls <= _MOST_LESSONS:
            return
        fresh = result is None or result.strides == self._fresh_strides
        entry = self._executable.entry(arrays, result, fresh, self._serial)
        if entry is not None:
            # Where two threads learn at once, one entry may be lost, to be learned again.
            self.entries = with_first(entry, self.entries)
