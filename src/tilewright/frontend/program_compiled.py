"""What was compiled of a traced program, by element types and device, and what runs its calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.frontend.program_options import ProgramOptions
from tilewright.frontend.program_stored import stored_program
from tilewright.frontend.program_trace import Traced
from tilewright.ir.scalars import ScalarType
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.devices import TARGET_VARIABLE, Device, device_for

if TYPE_CHECKING:  # the compiler is imported when something is compiled
    from tilewright.frontend.program_tiles import TunedTiles
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.stored_program import StoredProgram

Types: TypeAlias = tuple[ScalarType, ...]
Compiled: TypeAlias = "dict[tuple[Types, Device], Executable]"


class CompiledProgram:
    """A program with its options, compiled when that is asked for.

    Args:
        trace: gives the core program for element types.
        options: of the user.
        source: the file that the function is written in, beside which a tuning may lie.
        lock: guards all of this.

    Attributes:
        calls: what runs calls, and whether the function gives a tuple, by element types and the target asked for.
        tiles: the same with tuned tile sizes.
        compiled: what was compiled, with tuned thresholds but not those that the user gives.
    """

    def __init__(
        self, trace: Callable[[Types], Traced], options: ProgramOptions, source: str | None, lock: ForkSafeLock
    ) -> None:
        self.calls: dict[Any, tuple[Executable | StoredProgram, bool]] = {}
        self.tiles: dict[Any, TunedTiles] = {}
        self.compiled: Compiled = {}
        self._trace, self._options, self._source, self._lock = trace, options, source, lock
        self._chosen: Compiled = {}
        self._tuned: set[tuple[Types, Device]] = set()  # in this process, and perhaps nowhere else
        self._stored: dict[tuple[Types, Device], StoredProgram] = {}

    def call(self, types: Types, target: str | Device | None) -> tuple[Executable | StoredProgram, bool]:
        """What runs calls: the program compiled, or what an earlier process has left of it on the disk."""
        asked = target if target is not None else os.environ.get(TARGET_VARIABLE, "")
        device = device_for(target)
        with self._lock:
            traced = self._trace(types)
            found = self._stored.get((types, device))
            if found is None and (types, device) not in self._tuned:
                found = stored_program(
                    traced.program, self._options, device, self._source, lambda: self.executable(types, device)
                )
                if found is not None:
                    self._stored[types, device] = found
            known = self.calls[types, asked] = found or self.executable(types, device), traced.several
        return known

    def executable(self, types: Types, device: Device) -> Executable:
        """The program compiled, with the thresholds and tiles that count."""
        with self._lock:
            if (types, device) not in self._chosen:
                program = self._trace(types).program
                if (types, device) not in self.compiled:
                    self.compiled[types, device] = self._options.tuned(
                        self._options.compiled(program, device), self._source
                    )
                executable = self.compiled[types, device]
                if self._options.thresholds:
                    executable = executable.with_thresholds(self._options.thresholds)
                tiles = self._options.tuned_tiles(executable, program, device)
                if tiles is not None:
                    self.tiles[executable] = tiles
                self._chosen[types, device] = executable
                if (types, device) in self._stored:
                    self._stored[types, device].adopt(executable)
            return self._chosen[types, device]

    def share(self, other: CompiledProgram) -> None:
        """Have in common what was compiled: the options differ in nothing that it depends on."""
        self.compiled, self._tuned, self._lock = other.compiled, other._tuned, other._lock

    def measured(self, types: Types, device: Device) -> Executable:
        """The program as a tuner needs it: without the tuning that there is."""
        with self._lock:
            found = self.compiled.get((types, device))
            return found or self._options.compiled(self._trace(types).program, device)

    def retuned(self, executables: Sequence[tuple[Types, Device, Executable]] = ()) -> None:
        """Choose anew from now on: these are compiled, with what a tuner has found."""
        with self._lock:
            for types, device, executable in executables:
                self.compiled[types, device] = executable
                self._tuned.add((types, device))
            for one in (self.calls, self.tiles, self._chosen, self._stored):
                one.clear()
