"""Running a `HostProgram` step by step, and recording what it did for later calls with arguments of the same form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.arguments import as_scalar
from tilewright.ir.lmad import row_major
from tilewright.ir.nodes import (
    Alias,
    Apply,
    Atom,
    Cast,
    Copy,
    Expression,
    Index,
    Literal,
    Rearrange,
    Replicate,
    Reshape,
    SizeValue,
    Slice,
    Type,
    Variable,
)
from tilewright.ir.operators import OPERATORS, result_type
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size, size
from tilewright.kernel.launch import Launch, ScalarReference
from tilewright.runtime import host
from tilewright.runtime.backends import Backend, Memory
from tilewright.runtime.host import KernelPlan, Schedule
from tilewright.runtime.scope import Entry, Placed, Scalar, Scope, row_major_strides

LONGEST_RECORDING = 512
"""Programs that launch more kernels than this are not recorded."""


@dataclass(frozen=True)
class Allocation:
    """Fresh memory; `zeros` makes it an error record."""

    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    zeros: bool = False


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


Record: TypeAlias = Allocation | RecordedLaunch | CheckErrors


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


class Executor:
    """One run of a program."""

    def __init__(self, backend: Backend, name: str, copier: Callable[[ScalarType, int], host.KernelStep]) -> None:
        self.backend = backend
        self.program_name = name
        self.copier = copier
        self.scope = Scope()
        self.recording = Recording()
        self.destinations: dict[str, Placed] = {}
        self.declined: list[tuple[str, str]] = []

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
        assert isinstance(atom, Variable)
        self.scope.entries[atom.name] = value
        return value

    def read_scalar(self, cell: Placed) -> Any:
        """The value of a scalar in memory."""
        if cell.offset and self.backend.threads_per_block > 1:
            fresh = self.allocate(Type(cell.element), "a scalar")
            self.copy(cell, fresh)
            cell = fresh
        value = self.backend.read(cell.memory, cell.offset, 1, cell.element.numpy)[0]
        return as_scalar(value, cell.element)

    def force_sizes(self, names: Sequence[str]) -> None:
        """Read scalars that sizes mention."""
        for name in names:
            entry = self.scope.entries.get(name)
            if isinstance(entry, Placed) and not entry.shape:
                self.scalar(Variable(name, Type(entry.element)))

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
        step = self.copier(destination.element, len(destination.shape))
        saved, self.scope = self.scope, Scope()
        if isinstance(source, Placed) and source.shape != destination.shape:
            missing = len(destination.shape) - len(source.shape)
            source = replace(source, shape=destination.shape, strides=(0,) * missing + source.strides)
        self.scope.entries.update({f"n{d}": Scalar(extent) for d, extent in enumerate(destination.shape)})
        self.scope.entries["source"], self.scope.entries["target"] = source, destination
        self.launch_step(step)
        self.scope = saved

    # --- kernels

    def run_kernel(self, step: host.KernelStep) -> None:
        """Allocate the targets and launch."""
        names = {name for variable in (*step.targets, *step.reads) for e in variable.type.shape for name in e.names}
        self.force_sizes(sorted(names | set(step.size_names)))
        for position, target in enumerate(step.targets):
            self.scope.entries[target.name] = place = self.destination(target)
            for copied, source in step.copied:
                if copied == position:
                    self.copy(self.scope.entries[source.name], place)
        self.launch_step(step)

    def launch_step(self, step: host.KernelStep) -> None:
        """Launch a kernel whose targets exist."""
        variables = (*step.reads, *step.targets)
        plan = step.lower(self.scope.layouts([variable.name for variable in variables]))
        extents = self.shape(plan.space)
        blocks, own = schedule(plan, extents, self.backend, [self.size(one.size) for one in plan.scratch])
        if blocks == 0:
            return
        memories = {}
        workers = blocks * plan.kernel.threads_per_block
        for scratch in plan.scratch:
            room = max(1, self.size(scratch.size))
            own[f"%room.{scratch.name}"] = room
            memories[scratch.name] = self.allocate_shape(scratch.element, (workers * room,), "scratch memory").memory
        errors: Memory | None = None
        if plan.checks:
            errors = memories[host.ERRORS] = self.backend.zeros(3 * len(plan.checks))
            self.record_allocation(errors, (3 * len(plan.checks),), np.dtype(np.int64), zeros=True)
        compiled = self.backend.compile(plan.kernel)
        given = [memories[name] if name in memories else self.memory(name) for name in plan.buffers]
        scalars = [own[name] if name in own else self.launch_scalar(name, part) for name, part in plan.scalars]
        self.launch(compiled, blocks, given, scalars)
        if errors is not None:
            self.recording.records.append(CheckErrors(errors.slot, plan.checks))
            raise_errors(self.backend, errors, plan.checks, self.program_name)

    def memory(self, name: str) -> Memory:
        """The memory of an array in scope."""
        entry = self.scope.entries[name]
        assert isinstance(entry, Placed), f"{name} is a scalar of the host"
        return entry.memory

    def launch_scalar(self, name: str, component: int) -> Any:
        """A kernel's scalar: the value, or a reference where it may change between calls."""
        entry = self.scope.entries.get(name)
        if not isinstance(entry, Scalar):
            return self.scope[name]
        if entry.changing:
            self.recording.refuse(f"the scalar {name} was computed from arguments")
        if entry.argument is not None:
            return _Changing(component_of(entry.value, component), ScalarReference(str(entry.argument), component))
        return component_of(entry.value, component)

    def launch(self, compiled: Any, blocks: int, memories: Sequence[Memory], scalars: Sequence[Any]) -> None:
        """Launch and record."""
        values = [one.value if isinstance(one, _Changing) else one for one in scalars]
        self.backend.launch(compiled, blocks, memories, values)
        recorded = tuple(one.reference if isinstance(one, _Changing) else one for one in scalars)
        slots = tuple(memory.slot for memory in memories)
        self.recording.records.append(RecordedLaunch(compiled, blocks, slots, recorded))
        if len(self.recording.records) > LONGEST_RECORDING:
            self.recording.refuse("it launches too many kernels")
            self.recording.records.clear()

    def run_contraction(self, step: host.ContractionStep) -> None:
        """Launch a contraction's kernels, or what is done otherwise."""
        self.force_sizes([variable.name for variable in step.reads])
        self.force_sizes(sorted({name for variable in step.reads for e in variable.type.shape for name in e.names}))
        target = self.scope.entries[step.target.name] = self.destination(step.target)
        try:
            launches = self.contraction_launches(step, target)
        except ValueError as error:
            self.declined.append((step.label, str(error)))
            self.destinations[step.target.name] = target
            _RUN[type(step.otherwise)](self, step.otherwise)
            return
        for launch in launches:
            self.launch_given(launch)
        place = self.scope.entries[step.target.name]
        if place is not target:
            self.copy(place, target)
            self.scope.entries[step.target.name] = target
        if self.scope.used_changing:
            self.recording.refuse("a size depends on a scalar argument")

    def contraction_launches(self, step: host.ContractionStep, target: Placed) -> tuple[Launch, ...]:
        """The launches; arrays that are not aligned as they need are replaced by copies in the scope."""
        launches = step.launches(self.scope)
        if self.backend.threads_per_block > 1:
            return launches
        moved = False
        for launch in launches:
            for buffer, name in zip(launch.kernel.buffers, launch.buffers, strict=True):
                place = self.scope.entries[name]
                if buffer.alignment and isinstance(place, Placed) and place.memory.address % buffer.alignment:
                    aligned = self.allocate_shape(place.element, place.shape, name)
                    if place is not target:
                        self.copy(place, aligned)
                    self.scope.entries[name] = aligned
                    moved = True
        return step.launches(self.scope) if moved else launches

    def launch_given(self, launch: Launch) -> None:
        """A launch made by another lowering."""
        if launch.blocks == 0:
            return
        compiled = self.backend.compile(launch.kernel)
        memories = [self.memory(name) for name in launch.buffers]
        scalars = [
            self.launch_scalar(one.name, one.component) if isinstance(one, ScalarReference) else one
            for one in launch.scalars
        ]
        self.launch(compiled, launch.blocks, memories, scalars)

    # --- other steps

    def run(self, block: host.Block) -> list[Entry]:
        """Run steps; what the block is for."""
        for step in block.steps:
            _RUN[type(step)](self, step)
        return [self.entry(atom) for atom in block.results]

    def run_view(self, step: host.ViewStep) -> None:
        """An array or scalar seen in another way."""
        self.scope.entries[step.target.name] = self.view(step.expression, step.target)

    def view(self, expression: Expression, target: Variable) -> Entry:
        """The value of an expression that needs no memory, or of a reshape that does."""
        match expression:
            case Alias(atom):
                return self.entry(atom)
            case Copy(array) | Index(array, ()):
                return self.entry(array)
            case Slice(array) | Rearrange(array) if array.type.rank == 0:
                return self.entry(array)
            case Index(array, indices):
                source = self.array(array)
                places = [self.index(one, source.shape[d], array, d) for d, one in enumerate(indices)]
                return source.seen_as(source.lmad.fix(places))
            case Slice(array, dimensions):
                source = self.array(array)
                for d, one in enumerate(dimensions):
                    self.check_slice(array, d, self.size(one.start), self.size(one.count), one.step, source.shape[d])
                known = [
                    replace(one, start=size(self.size(one.start)), count=size(self.size(one.count)))
                    for one in dimensions
                ]
                return source.seen_as(source.lmad.slice(known))
            case Rearrange(array, permutation):
                source = self.array(array)
                return source.seen_as(source.lmad.rearrange(permutation))
            case Replicate(count, value):
                source = self.array(value)
                return source.seen_as(source.lmad.broadcast(self.size(count)))
            case Reshape(array, shape) if array.type.rank == 0:
                cell = self.allocate(target.type, target.name)
                self.copy(self.entry(array), cell)
                return cell
            case Reshape(array, shape):
                return self.reshape(self.array(array), self.shape(shape), array)
        raise TypeError(f"{type(expression).__name__} is not a view")

    def array(self, atom: Atom) -> Placed:
        """An array."""
        entry = self.entry(atom)
        assert isinstance(entry, Placed), f"{atom} is not an array in memory"
        return entry

    def index(self, atom: Atom, extent: int, array: Variable, dimension: int) -> int:
        """An index that the host knows, checked."""
        scalar = self.scalar(atom)
        if scalar.changing or scalar.argument is not None:
            self.recording.refuse(f"an index of {array} is a scalar argument")
        index = int(scalar.value)
        if not 0 <= index < extent:
            raise index_error(self.program_name, host.CheckedIndex(array.name, dimension), index, extent)
        return index

    def check_slice(self, array: Variable, d: int, start: int, count: int, step: int, extent: int) -> None:
        """Refuse a slice that is out of range."""
        last = start + step * (count - 1)
        if count > 0 and not (0 <= start < extent and 0 <= last < extent):
            outside = start if not 0 <= start < extent else last
            raise index_error(self.program_name, host.CheckedIndex(array.name, d), outside, extent)

    def reshape(self, source: Placed, shape: tuple[int, ...], array: Variable) -> Placed:
        """A view where the strides allow it, else a copy."""
        if int(np.prod(source.shape, dtype=object)) != int(np.prod(shape, dtype=object)):
            raise ValueError(f"{self.program_name}: {array} of shape {source.shape} cannot be reshaped to {shape}")
        if 0 in shape:
            return replace(source, shape=shape, strides=(0,) * len(shape))
        lmad = source.lmad.reshape(shape)
        if lmad is None:
            dense = self.allocate_shape(source.element, source.shape, str(array))
            self.copy(source, dense)
            source, lmad = dense, row_major(tuple(map(size, shape)))
        return source.seen_as(lmad)

    def run_scalar(self, step: host.ScalarStep) -> None:
        """Scalar code by NumPy."""
        with np.errstate(all="ignore"):
            match step.expression:
                case Apply(operator, operands):
                    scalars = [self.scalar(one) for one in operands]
                    result = result_type(operator, tuple(one.type.element for one in operands))
                    value = as_scalar(OPERATORS[operator].meaning(*(one.value for one in scalars)), result)
                case Cast(scalar, operand):
                    scalars = [self.scalar(operand)]
                    value = as_scalar(scalars[0].value, scalar)
                case SizeValue(extent):
                    scalars = []
                    value = np.int64(self.size(extent))
                case _:
                    raise TypeError(f"{type(step.expression).__name__} is not scalar code")
        changing = any(one.changing or one.argument is not None for one in scalars)
        self.scope.entries[step.targets[0].name] = Scalar(value, changing=changing)

    def run_concat(self, step: host.ConcatStep) -> None:
        """Copy the parts."""
        whole = self.destination(step.target)
        start = 0
        for variable in step.arrays:
            part = self.array(variable)
            strides, offset = whole.strides, whole.offset + start * whole.strides[step.axis]
            self.copy(part, replace(whole, shape=part.shape, strides=strides, offset=offset, fresh=False))
            start += part.shape[step.axis]
        self.scope.entries[step.target.name] = whole

    def run_update(self, step: host.UpdateStep) -> None:
        """Copy, then overwrite a part."""
        source = self.array(step.array)
        places = [self.index(one, source.shape[d], step.array, d) for d, one in enumerate(step.indices)]
        whole = self.destination(step.target)
        self.copy(source, whole)
        self.copy(self.entry(step.value), whole.seen_as(whole.lmad.fix(places)))
        self.scope.entries[step.target.name] = whole

    def run_reduce(self, step: host.ChunkedReduceStep) -> None:
        """In two stages, if there is enough to do."""
        width = self.size(step.width)
        chunks, length = reduction_chunks(width, self.backend)
        if chunks < 2:
            self.run_kernel(step.whole)
            return
        self.scope.entries[step.chunks] = Scalar(chunks)
        self.scope.entries[step.chunk_length] = Scalar(length)
        self.run_kernel(step.first)
        self.run_kernel(step.second)

    def run_if(self, step: host.IfStep) -> None:
        """Decide on the host."""
        condition = self.scalar(step.condition)
        if condition.changing or condition.argument is not None:
            self.recording.refuse("a condition depends on the arguments' values")
        results = self.run(step.then if condition.value else step.otherwise)
        for target, value in zip(step.targets, results, strict=True):
            self.scope.entries[target.name] = value

    def run_loop(self, step: host.LoopStep) -> None:
        """Loop on the host."""
        carried = [self.entry(atom) for atom in step.initial]
        if step.condition is None:
            assert step.bound is not None and step.index is not None
            for index in range(self.size(step.bound)):
                self.scope.entries[step.index.name] = Scalar(np.int64(index))
                self.bind(step.parameters, carried)
                carried = self.run(step.body)
        else:
            while self.holds(step, carried):
                self.bind(step.parameters, carried)
                carried = self.run(step.body)
        self.bind(step.targets, carried)

    def holds(self, step: host.LoopStep, carried: Sequence[Entry]) -> bool:
        """Whether a while loop goes on."""
        assert step.condition is not None
        self.bind(step.condition_parameters, carried)
        self.run(step.condition)
        condition = self.scalar(step.condition.results[0])
        if condition.changing or condition.argument is not None:
            self.recording.refuse("a condition depends on the arguments' values")
        return bool(condition.value)

    def bind(self, variables: Sequence[Variable], entries: Sequence[Entry]) -> None:
        """Give variables their values."""
        for variable, entry in zip(variables, entries, strict=True):
            self.scope.entries[variable.name] = entry

    def run_rows(self, step: host.RowsStep) -> None:
        """A map row by row."""
        width = self.size(step.width)
        wholes: list[Placed] = []
        for index in range(width):
            for parameter, array in zip(step.parameters, step.arrays, strict=True):
                source = self.array(array)
                self.scope.entries[parameter.name] = source.seen_as(source.lmad.fix([index]))
            rows = self.run(step.body)
            if not wholes:
                wholes = [self.whole(target, row, width) for target, row in zip(step.targets, rows, strict=True)]
            for whole, row in zip(wholes, rows, strict=True):
                place = whole.seen_as(whole.lmad.fix([index]))
                if isinstance(row, Placed) and row.shape != place.shape:
                    raise ValueError(f"{self.program_name}: rows of shapes {place.shape} and {row.shape} in one array")
                self.copy(row, place)
        for position, target in enumerate(step.targets):
            if not wholes:
                rest = target.type.shape[1:]
                known = all(name in self.scope.entries for extent in rest for name in extent.names)
                shape = (0, *self.shape(rest)) if known else (0,) * target.type.rank
                self.scope.entries[target.name] = self.allocate_shape(target.type.element, shape, target.name)
            else:
                self.scope.entries[target.name] = wholes[position]

    def whole(self, target: Variable, row: Entry, width: int) -> Placed:
        """The array of all rows, from the first one."""
        shape = row.shape if isinstance(row, Placed) else ()
        given = self.destinations.pop(target.name, None)
        return given or self.allocate_shape(target.type.element, (width, *shape), target.name)


@dataclass(frozen=True)
class _Changing:
    value: Any
    reference: ScalarReference


_RUN: dict[type, Callable[[Executor, Any], None]] = {
    host.KernelStep: Executor.run_kernel,
    host.ContractionStep: Executor.run_contraction,
    host.ViewStep: Executor.run_view,
    host.ScalarStep: Executor.run_scalar,
    host.ConcatStep: Executor.run_concat,
    host.UpdateStep: Executor.run_update,
    host.ChunkedReduceStep: Executor.run_reduce,
    host.IfStep: Executor.run_if,
    host.LoopStep: Executor.run_loop,
    host.RowsStep: Executor.run_rows,
}


# --- sizes of launches ------------------------------------------------------------------------------------------------

POINTS_PER_BLOCK = 4096
SCRATCH_BYTES = 256 << 20


def schedule(
    plan: KernelPlan, extents: tuple[int, ...], backend: Backend, rooms: Sequence[int]
) -> tuple[int, dict[str, int]]:
    """The number of blocks and the launch's own scalars."""
    if plan.schedule is Schedule.SEQUENTIAL:
        return 1, {}
    points = 1
    for extent in extents:
        points *= extent
    if points == 0:
        return 0, {}
    per_worker = sum(max(1, room) * one.element.bytes for room, one in zip(rooms, plan.scratch, strict=True))
    most = max(1, SCRATCH_BYTES // per_worker) if per_worker else 1 << 30
    if plan.schedule is Schedule.BLOCKS:
        # Without scratch a block is about 4096 elementwise points; with it a block's points are probably heavy.
        wanted = -(-points // POINTS_PER_BLOCK) if not plan.heavy else points
        wanted = min(wanted, 8 * backend.machine.cores, most)
        innermost = extents[-1]
        runs = points // innermost
        chunk = innermost if runs >= wanted else -(-innermost // -(-wanted // runs))
        chunks = -(-innermost // chunk)
        items = runs * chunks
        per_block = -(-items // max(1, min(wanted, items)))
        blocks = -(-items // per_block)
        return blocks, {host.ITEMS: items, host.PER_BLOCK: per_block, host.CHUNK: chunk, host.CHUNKS: chunks}
    threads = plan.kernel.threads_per_block
    blocks = min(-(-points // threads), max(1, most // threads), 32 * backend.machine.cores)
    return blocks, {host.ITEMS: points, host.THREADS_TOTAL: blocks * threads}


def reduction_chunks(width: int, backend: Backend) -> tuple[int, int]:
    """How many chunks a reduction is cut into, and their length."""
    if backend.threads_per_block == 1:
        wanted = min(8 * backend.machine.cores, width // POINTS_PER_BLOCK)
    else:
        wanted = min(4096, width // 64)
    if wanted < 2:
        return 1, width
    length = -(-width // wanted)
    return -(-width // length), length


def component_of(value: Any, component: int) -> Any:
    """The real or imaginary part of a complex scalar, or a real scalar, as a Python number."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, complex):
        return number.imag if component else number.real
    return number


def index_error(program: str, check: host.CheckedIndex, index: int, extent: int) -> IndexError:
    """The error for an index out of range."""
    return IndexError(
        f"{program}: index {index} of {check.array} is out of range in dimension {check.dimension} of extent {extent}"
    )


def raise_errors(backend: Backend, errors: Memory, checks: Sequence[host.CheckedIndex], program: str) -> None:
    """Raise the first error that a kernel recorded."""
    record = backend.read(errors, 0, 3 * len(checks), np.dtype(np.int64)).reshape(-1, 3)
    for (code, index, extent), check in zip(record, checks, strict=True):
        if code:
            raise index_error(program, check, int(index), int(extent))
