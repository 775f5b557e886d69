"""Short cuts of programs: native entries that were learned from calls which took the long way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.frontend.einsum_quick import MOST_ENTRIES
from tilewright.runtime.environment import read_environment
from tilewright.runtime.thread_count import get_num_threads

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.program_entry import ProgramEntry
    from tilewright.runtime.stored_program import StoredProgram

_MOST_LESSONS = 64  # so that a caller whose arrays never have the same form twice is not kept waiting
_SHORT = 10e-6  # seconds: work that a thread has done before another one is awake
_TIMINGS = 5  # after which a call that never was short is taken for a long one
TARGET = b"TILEWRIGHT_TARGET"


class QuickProgram:
    """The entries of one program.

    `calls[read_environment(TARGET)]` are for calls of now without a target, tried in turn: each gives None for
    arguments of another form. Calls look there themselves, since calling this takes as long as what it does. The last
    of them tries those for the present number of threads, in `known`; before it are those of short work on one thread,
    where asking for that number would be part of the time.
    """

    def __init__(self) -> None:
        self.calls: dict[Any, tuple[ProgramEntry, ...]] = {}
        self.known: dict[Any, tuple[ProgramEntry, ...]] = {}
        self._lessons = 0
        self._timings: dict[ProgramEntry, int] = {}  # how often those that may be short are still timed

    def learn(self, executable: Executable | StoredProgram, arguments: Sequence[Any], several: bool, out: Any) -> None:
        """Called after a call has taken the long way; the first call learns nothing."""
        self._lessons += 1
        if not 2 <= self._lessons <= _MOST_LESSONS:
            return
        entry = executable.entry(arguments, several, out)
        if entry is not None:
            place = read_environment(TARGET)
            key = get_num_threads(), place
            # Where two threads learn at once, one entry may be lost, to be learned again.
            self.known[key] = (entry, *self.known.get(key, ()))[:MOST_ENTRIES]
            self.calls.setdefault(place, (self._for_threads(place),))
            launched = executable.launched(*arguments, out=out)
            if launched is not None and all(blocks <= 1 for _, blocks, _ in launched):
                self._timings[entry] = _TIMINGS

    @property
    def entries(self) -> tuple[ProgramEntry, ...]:
        """All entries."""
        return tuple(one for some in self.known.values() for one in some)

    def _for_threads(self, place: Any) -> ProgramEntry:
        """What tries the entries for the present number of threads."""
        known, timings, timed = self.known, self._timings, self._timed

        def entry(*given: Any) -> Any:
            for one in known.get((get_num_threads(), place), ()):
                found = timed(one, place, given) if timings and one in timings else one(*given)
                if found is not None:
                    return found
            return None

        return entry

    def _timed(self, entry: ProgramEntry, place: Any, given: tuple[Any, ...]) -> Any:
        """What an entry gives that runs on one thread whatever their number; it is called first if it is short."""
        start = time.perf_counter()
        found = entry(*given)
        if found is not None:
            seconds = time.perf_counter() - start
            left = self._timings.pop(entry, 0) - 1
            if seconds < _SHORT:
                *short, last = self.calls[place]
                self.calls[place] = (*[entry, *short][: MOST_ENTRIES - 1], last)
            elif left > 0:
                self._timings[entry] = left
        return found
