"""Short cuts of programs: native entries that were learned from calls which took the long way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.frontend.einsum_quick import MOST_ENTRIES
from tilewright.runtime.environment import read_environment
from tilewright.runtime.thread_count import get_num_threads

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.program_entry import ProgramEntry

_MOST_LESSONS = 64  # so that a caller whose arrays never have the same form twice is not kept waiting
TARGET = b"TILEWRIGHT_TARGET"


class QuickProgram:
    """The entries of one program, by the number of threads and by what the variable of the target says.

    `known[get_num_threads(), read_environment(TARGET)]` are those for calls of now without a target, tried in turn:
    each gives None for arguments of another form. Calls look there themselves, since calling this takes as long as what
    it does.
    """

    def __init__(self) -> None:
        self.known: dict[Any, tuple[ProgramEntry, ...]] = {}
        self._lessons = 0

    def learn(self, executable: Executable, arguments: Sequence[Any], several: bool, out: Any) -> None:
        """Called after a call has taken the long way; the first call learns nothing."""
        self._lessons += 1
        if not 2 <= self._lessons <= _MOST_LESSONS:
            return
        entry = executable.entry(arguments, several, out)
        if entry is not None:
            key = get_num_threads(), read_environment(TARGET)
            # Where two threads learn at once, one entry may be lost, to be learned again.
            self.known[key] = (entry, *self.known.get(key, ()))[:MOST_ENTRIES]

    @property
    def entries(self) -> tuple[ProgramEntry, ...]:
        """All entries."""
        return tuple(one for some in self.known.values() for one in some)
