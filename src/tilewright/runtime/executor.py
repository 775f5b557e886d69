"""One run of a program: the scope of its names, memory for arrays, and launches, all of it recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.arguments import as_scalar
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Literal, Type, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size
from tilewright.kernel.launch import Launch, ScalarReference
from tilewright.runtime import host
from tilewright.runtime.backends import Backend, Memory
from tilewright.runtime.flat_plan import row_major_strides
from tilewright.runtime.index_errors import component_of, raise_errors
from tilewright.runtime.recording import LONGEST_RECORDING, Allocation, CheckErrors, Counter, RecordedLaunch, Recording
from tilewright.runtime.scheduling import loops_by_memory, schedule
from tilewright.runtime.scope import Entry, Placed, Scalar, Scope

if TYPE_CHECKING:
    from tilewright.kernel.ir import Kernel
    from tilewright.runtime.turning import Copied

MOST_UNREAD = 64
"""Records of errors that are kept until they are read together: each waits for the device."""


class Executor:
    """One run of a program. `compared` lists what was compared with thresholds: (name, parallelism), in order.

    `told`: what was found out of steps, by their labels, when sizes were known. `unread`: the records of launches in
    which indices may have been out of range; they are read before the host looks at anything that was computed.
    `memories` are those of the rounds that are being recorded, by their slots, if any are. `choices` counts what the
    host did because of values that kernels computed; `counts` are how often the loops of counters go round, if known.
    """

    def __init__(
        self, backend: Backend, name: str, copier: host.Copier, thresholds: Mapping[str, float] | None = None
    ) -> None:
        self.backend = backend
        self.program_name = name
        self.copier = copier
        self.scope = Scope()
        self.recording = Recording()
        self.destinations: dict[str, Placed] = {}
        self.told: dict[tuple[str, str], None] = {}
        self.turned: dict[tuple[str, int], Copied] = {}
        self.thresholds: Mapping[str, float] = thresholds or {}
        self.compared: list[tuple[str, int]] = []
        self.unread: list[tuple[Memory, tuple[host.CheckedIndex, ...]]] = []
        self.memories: dict[int, Memory] | None = None
        self.choices = 0
        self.counts: dict[int, int] = {}

    def drop(self, name: str) -> None:
        """Forget an array that is not used any more; a scalar may count what is inside of later kernels."""
        if isinstance(self.scope.entries.get(name), Placed) and self.cell(name) is None:
            del self.scope.entries[name]
        for key in [one for one in self.turned if one[0] == name]:
            del self.turned[key]

    # --- values

    def entry(self, atom: Atom) -> Entry:
        """What an atom stands for."""
        if isinstance(atom, Literal):
            return Scalar(as_scalar(atom.value, atom.scalar))
        return self.scope.entries[atom.name]

    def scalar(self, atom: Atom) -> Scalar:
        """A scalar on the host; one in memory is read."""
        entry = self.entry(atom)
        if isinstance(entry, Scalar):
            return entry
        value = Scalar(self.read_scalar(entry), changing=True)
        self.recording.refuse(f"the host reads {atom}")
        self.choices += 1
        assert isinstance(atom, Variable)
        self.scope.entries[atom.name] = value
        return value

    def read_scalar(self, cell: Placed) -> Any:
        """The value of a scalar in memory."""
        self.raise_errors()
        if cell.offset and self.backend.threads_per_block > 1:
            fresh = self.allocate(Type(cell.element), "a scalar")
            self.copy(cell, fresh)
            cell = fresh
        value = self.backend.read(cell.memory, cell.offset, 1, cell.element.numpy)[0]
        return as_scalar(value, cell.element)

    def force_sizes(self, names: Sequence[str]) -> None:
        """Read scalars that sizes mention."""
        for name in names:
            cell = self.cell(name)
            if cell is not None:
                self.scalar(Variable(name, Type(cell.element)))

    def cell(self, name: str) -> Placed | None:
        """A scalar in memory, if the name is that of one."""
        entry = self.scope.entries.get(name)
        return entry if isinstance(entry, Placed) and not entry.shape else None

    def size(self, value: Size) -> int:
        """The value of a size."""
        if value.constant is not None:
            return value.constant
        self.force_sizes(sorted(value.names))
        result = self.scope.size(value)
        if self.scope.used_changing:
            self.recording.refuse(f"the size {value} depends on a scalar argument")
        return result

    def shape(self, extents: Sequence[Size]) -> tuple[int, ...]:
        """The values of extents."""
        return tuple(max(0, self.size(extent)) for extent in extents)

    # --- memory

    def allocate(self, type_: Type, what: str) -> Placed:
        """A fresh row-major array."""
        return self.allocate_shape(type_.element, self.shape(type_.shape), what)

    def allocate_shape(self, element: ScalarType, shape: tuple[int, ...], what: str) -> Placed:
        """A fresh row-major array of known extents."""
        memory = self.backend.allocate(shape, element.numpy, f"{what} of {self.program_name}")
        self.record_allocation(memory, shape, element.numpy)
        strides = row_major_strides(shape) if 0 not in shape else (0,) * len(shape)
        return Placed(memory, element, shape, strides, fresh=True)

    def record_allocation(
        self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any], zeros: bool = False
    ) -> None:
        """Note that memory was made."""
        self.recording.slot(memory)
        self.recording.records.append(Allocation(memory.slot, shape, dtype, zeros))

    def is_shaped(self, fresh: Placed) -> bool:
        """Whether its memory, made in this run, is or becomes an array of its shape: it may have been reshaped."""
        memory, shape = fresh.memory, fresh.shape
        if memory.array is None or memory.array.shape == shape:
            return True
        if not self.recording.reshape(memory.slot, shape):
            return False
        memory.array = memory.array.reshape(shape)
        return True

    def destination(self, target: Variable) -> Placed:
        """Where a step's result goes: the caller's array, or a fresh one."""
        given = self.destinations.pop(target.name, None)
        return given if given is not None else self.allocate(target.type, target.name)

    def copy(self, source: Entry, destination: Placed) -> None:
        """Copy all elements (a scalar fills the destination)."""
        if isinstance(source, Scalar) and destination.shape:
            cell = self.allocate_shape(destination.element, (), "a scalar")
            self.copy(source, cell)
            source = cell
        if isinstance(source, Placed) and source.shape != destination.shape:
            missing = len(destination.shape) - len(source.shape)
            source = replace(source, shape=destination.shape, strides=(0,) * missing + source.strides)
        element, shape = destination.element, destination.shape
        saved, self.scope = self.scope, Scope()
        self.scope.entries["source"], self.scope.entries["target"] = source, destination
        launch = None
        if isinstance(source, Placed) and source.step is None and destination.step is None:
            offsets = (source.offset, destination.offset)
            launch = self.copier.launch(element, shape, source.strides, destination.strides, offsets)
        if launch is not None:
            self.launch_given(launch)
        else:
            self.scope.entries.update({f"n{d}": Scalar(extent) for d, extent in enumerate(shape)})
            self.launch_step(self.copier.step(element, len(shape)))
        saved.used_rounds |= self.scope.used_rounds
        self.scope = saved

    # --- kernels

    def run_kernel(self, step: host.KernelStep) -> None:
        """Allocate the targets and launch; a size below 0 leaves nothing to do, and kernels do not expect one."""
        names = {name for variable in (*step.targets, *step.reads) for e in variable.type.shape for name in e.names}
        self.force_sizes(sorted(names | set(step.size_names)))
        for position, target in enumerate(step.targets):
            given = next((self.scope.entries[source.name] for at, source in step.copied if at == position), None)
            if isinstance(given, Placed) and position in step.in_place:
                self.scope.entries[target.name] = replace(given)  # another entry, as in `steps.run_update`
                continue
            self.scope.entries[target.name] = place = self.destination(target)
            if given is not None:
                self.copy(given, place)
        if any(self.size(extent) < 0 for target in step.targets for extent in target.type.shape):
            return
        plan = step.lower(self.scope.layouts([variable.name for variable in (*step.reads, *step.targets)]))
        self.force_sizes([name for name, _ in plan.scalars])  # rounds of loops, ends of slices
        before: dict[str, Entry] = {}
        if self.backend.machine.warp > 1:
            from tilewright.runtime.turning import turn

            before = turn(self, step)
        self.launch_step(step)
        self.scope.entries.update(before)

    def launch_step(self, step: host.KernelStep) -> None:
        """Launch a kernel whose targets exist."""
        variables = (*step.reads, *step.targets)
        plan = step.lower(self.scope.layouts([variable.name for variable in variables]))
        extents = self.shape(plan.space)
        blocks, own = schedule(plan, extents, self.backend, [self.size(one.size) for one in plan.scratch])
        if blocks == 0:
            return
        memories = {}
        workers = own.get(host.THREADS_TOTAL, blocks)
        for scratch in plan.scratch:
            room = max(1, self.size(scratch.size))
            own[f"%room.{scratch.name}"] = room
            memories[scratch.name] = self.allocate_shape(scratch.element, (workers * room,), "scratch memory").memory
        errors: Memory | None = None
        if plan.checks:
            errors = memories[host.ERRORS] = self.backend.zeros(3 * len(plan.checks))
            self.record_allocation(errors, (3 * len(plan.checks),), np.dtype(np.int64), zeros=True)
        given = [memories[name] if name in memories else self.memory(name) for name in plan.buffers]
        scalars = [own[name] if name in own else self.launch_scalar(name, part) for name, part in plan.scalars]
        self.launch(self.compiled(plan.kernel, scalars), blocks, given, scalars)
        if errors is not None:
            self.unread.append((errors, plan.checks))
            soon = any(check.is_guard for check in plan.checks) or len(self.unread) >= MOST_UNREAD
            if soon or self.backend.threads_per_block == 1:  # what is in memory of the host is read at once
                self.raise_errors()

    def raise_errors(self) -> None:
        """Raise the first error of the launches so far. Each later one was safe: it checks its own indices."""
        unread, self.unread = self.unread, []
        for errors, checks in unread:
            self.recording.records.append(CheckErrors(errors.slot, checks))
            raise_errors(self.backend, errors, checks, self.program_name)

    def memory(self, name: str) -> Memory:
        """The memory of an array in scope."""
        entry = self.scope.entries[name]
        assert isinstance(entry, Placed), f"{name} is a scalar of the host"
        return entry.memory

    def launch_scalar(self, name: str, component: int) -> Any:
        """A kernel's scalar: the value, or a reference where it may change between calls."""
        entry = self.scope.entries.get(name)
        if not isinstance(entry, Scalar):
            array = self.scope.entries.get(name.removesuffix(".offset"))
            if isinstance(array, Placed) and array.step is not None and name.endswith(".offset"):
                return _Changing(array.offset, Counter(array.step[0], array.offset, array.step[1]))
            return self.scope[name]
        if entry.changing:
            self.recording.refuse(f"the scalar {name} was computed from arguments")
        if entry.step is not None:
            return _Changing(int(entry.value), Counter(entry.step[0], int(entry.value), entry.step[1]))
        self.scope.used_rounds |= entry.rounds
        if entry.argument is not None:
            return _Changing(component_of(entry.value, component), ScalarReference(str(entry.argument), component))
        return component_of(entry.value, component)

    def compiled(self, kernel: Kernel, scalars: Sequence[Any]) -> Any:
        """A kernel as this launch and its repetitions need it, in which scalars that change may have any value."""
        fixed = {
            parameter.name: int(value)
            for parameter, value in zip(kernel.scalars, scalars, strict=True)
            if parameter.type.is_integer and not isinstance(value, _Changing)
        }
        return self.backend.compile(kernel, fixed)

    def launch(self, compiled: Any, blocks: int, memories: Sequence[Memory], scalars: Sequence[Any]) -> None:
        """Launch and record."""
        if self.unread and loops_by_memory(compiled.kernel):
            self.raise_errors()  # what it reads may not have been written, and it might go round for ever
        values = [one.value if isinstance(one, _Changing) else one for one in scalars]
        self.backend.launch(compiled, blocks, memories, values)
        if self.memories is not None:
            self.memories.update((memory.slot, memory) for memory in memories)
        recorded = tuple(one.reference if isinstance(one, _Changing) else one for one in scalars)
        slots = tuple(memory.slot for memory in memories)
        self.recording.records.append(RecordedLaunch(compiled, blocks, slots, recorded))
        if len(self.recording.records) > LONGEST_RECORDING:
            self.recording.refuse("it launches too many kernels")
            self.recording.records = []

    def launch_given(self, launch: Launch) -> None:
        """A launch made by another lowering."""
        if launch.blocks == 0:
            return
        memories = [self.memory(name) for name in launch.buffers]
        scalars = [
            self.launch_scalar(one.name, one.component) if isinstance(one, ScalarReference) else one
            for one in launch.scalars
        ]
        self.launch(self.compiled(launch.kernel, scalars), launch.blocks, memories, scalars)


@dataclass(frozen=True)
class _Changing:
    value: Any
    reference: ScalarReference | Counter
