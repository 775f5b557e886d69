"""A compiled program that can be called: binding of arguments, checks, and the cache of bound plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.ir.arguments import convert_arguments, infer_sizes
from tilewright.ir.joined import check_parts
from tilewright.ir.nodes import Literal, Program
from tilewright.ir.scalars import ScalarType
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.backends import Memory, backend_for, usable_strides
from tilewright.runtime.bound_plan import BoundPlan, Result, Runner, cpu_runner, deliver, device_runner
from tilewright.runtime.bound_plans import BoundPlans
from tilewright.runtime.devices import Device
from tilewright.runtime.executor import Executor
from tilewright.runtime.flat_plan import FlatPlan, row_major_strides, span_of
from tilewright.runtime.host import Copier, HostProgram, written_by
from tilewright.runtime.liveness import dead_after, with_releases
from tilewright.runtime.recording import Rounds, alignments_of
from tilewright.runtime.result_arrays import overlap
from tilewright.runtime.scope import Entry, Placed, Scalar
from tilewright.runtime.steps import run_block
from tilewright.runtime.thresholds import banded, check_values, merged, resolved
from tilewright.runtime.versions import Versions, told

if TYPE_CHECKING:  # imported when a call is repeated
    from tilewright.runtime.program_entry import ProgramEntry

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Executable:
    """A program compiled for a device. Call it with NumPy arrays and scalars; calls may come from several threads.

    Arrays may have any strides. A scalar parameter takes a Python or NumPy scalar. With `out`, an array or (for several
    results) a tuple of arrays, the results are written there; it is checked before anything is written, and nothing is
    written to it if the program fails. Fresh arrays never share memory with the arguments.

    Raises (when called):
        TypeError: for an array of another dtype than declared, or a scalar of another kind.
        ValueError: for a rank or size that disagrees, naming parameter, dimension and sizes.
        IndexError: for an index out of range, naming program, array, index and extent.
        MemoryError: if the results or temporary arrays do not fit.
    """

    def __init__(
        self,
        written: HostProgram | None,
        device: Device,
        copier: Copier,
        versions: Versions | None = None,
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        """Made by `compile_program`: the program as written, its versions, or both; and values of thresholds given."""
        self.device = device
        self.given: Mapping[str, float] = dict(thresholds or {})
        self._written = None if self.given else written
        self._all = written, versions
        self._copier = copier
        self._versions = versions
        self._known = self._written or self._made
        self._backend = backend_for(device)
        self.bound = BoundPlans(self._known.program, device.machine.kind == "cpu", self._known.size_arguments)
        self._lock = ForkSafeLock()
        self.found: dict[tuple[str, str], None] = {}
        parameters = self._known.program.parameters
        self._scalars = tuple(p for p, parameter in enumerate(parameters) if parameter.type.rank == 0)

    @property
    def name(self) -> str:
        """The program's."""
        return self._known.program.name

    @property
    def has_versions(self) -> bool:
        """Whether there may be versions, picked by thresholds; they need not have been made."""
        return self._versions is not None

    @property
    def asks(self) -> bool:
        """Whether calls ask which version to run."""
        fills = None if self._versions is None else self._versions.fills
        return self._versions is not None and (self._written is None or (fills is not None and not fills.always))

    @property
    def program(self) -> Program:
        """The program with all its versions, which are made now if they have not been yet."""
        return self._made.program

    @property
    def thresholds(self) -> dict[str, float]:
        """The values that pick versions: those given, else the machine's model's."""
        return {} if self._versions is None else merged(self._versions.made[1], self.given)

    @property
    def _made(self) -> HostProgram:
        """The program with all its versions."""
        if self._versions is not None:
            return self._versions.made[0]
        assert self._all[0] is not None, "a program has steps as it is written, or versions"
        return self._all[0]

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        """Run the program on these arguments; see the class."""
        given = self.bound.given(out)
        key = self.bound.key(arguments, given)
        found = self.bound.repeated(key, arguments, given)
        if found is not None:
            return found
        copies = self.bound.addressable(arguments)  # whose form has a plan, or gets one
        return self.bound.delivered(self._run(arguments, given, key)) if copies is None else self(*copies, out=out)

    def flat_plan(self, arguments: Sequence[Array], out: Array | None) -> FlatPlan | None:
        """See `BoundPlans.flat_plan`."""
        return self.bound.flat_plan(arguments, out)

    def entry(self, arguments: Sequence[Any], gives_tuple: bool, out: Any = None) -> ProgramEntry | None:
        """See `BoundPlans.entry`."""
        return self.bound.entry(arguments, gives_tuple, out)

    def launched(self, *arguments: Any, out: Any = None) -> tuple[Any, ...] | None:
        """See `BoundPlans.launched`."""
        return self.bound.launched(arguments, out)

    @property
    def _plans(self) -> Mapping[Any, tuple[Runner, BoundPlan]]:
        return self.bound.plans

    def with_thresholds(self, values: Mapping[str, float]) -> Executable:
        """The same compiled program with other values of some of its thresholds; nothing is compiled again.

        Raises:
            ValueError: for a threshold that the program does not have, and a value that is no number of at least 0.
        """
        check_values(self.name, resolved(self.thresholds, {}), values)
        if not values:
            return self
        written, versions = self._all
        return Executable(written, self.device, self._copier, versions, merged(self.given, values))

    def inside(self, *arguments: Any) -> dict[str, int]:
        """How many points are inside each of those that a threshold asks about, where sizes of arguments say it."""
        return self._inside(infer_sizes(self._known.program, arguments))

    def _inside(self, sizes: Mapping[str, int]) -> dict[str, int]:
        found = {} if self._versions is None else self._versions.inside
        return {name: points.evaluate(sizes) for name, points in found.items()}

    def comparisons(self, *arguments: Any) -> tuple[tuple[str, int], ...]:
        """What one run compares with thresholds: (name, parallelism), in order; those not reached do not occur."""
        compared: list[tuple[str, int]] = []
        self._run(arguments, self.bound.given(None), None, compared)
        return tuple(compared)

    def explain(self) -> str:
        """How each statement was lowered, and why not otherwise."""
        lines = [f"{self.name} on {self.device.name} ({self.device.machine.name})"]
        lines += told(self._written, self._versions)
        lines += [f"  {label}, for the sizes of a call: {what}" for label, what in [*self.found]]
        return "\n".join(lines)

    @property
    def notes(self) -> tuple[Any, ...]:
        """How each statement was lowered, as data: of the program as written, if it ever is run so."""
        return self._known.notes

    def _check_shapes(self, executor: Executor, out: Sequence[Array | None]) -> None:
        """Shapes of `out` that the arguments determine are checked before anything runs."""
        for position, (atom, one) in enumerate(zip(self._known.program.body.results, out, strict=True)):
            names = {name for extent in atom.type.shape for name in extent.names}
            if one is not None and names <= executor.scope.entries.keys():
                self._check_shape(position, one, executor.shape(atom.type.shape))

    def _check_shape(self, position: int, one: Array, shape: tuple[int, ...]) -> None:
        if one.shape != shape:
            raise ValueError(f"{self.name}: out[{position}] has shape {one.shape}, the result has {shape}")

    # --- the first run with a form of arguments

    def _run(
        self,
        arguments: Sequence[Any],
        out: Sequence[Array | None],
        key: Any,
        compared: list[tuple[str, int]] | None = None,
    ) -> list[Any]:
        sizes = infer_sizes(self._known.program, arguments)
        values = convert_arguments(self._known.program, arguments)
        check_parts(self._known.program, self._known.parts, sizes, values)
        host = self._host_for(sizes, values) if compared is None else self._made
        if key is not None:
            key = self.bound.key(arguments, out)  # that of a version depends on its arguments in sizes too
        thresholds = {} if host is self._written else self.thresholds
        if banded(thresholds):
            thresholds = resolved(thresholds, self._inside(sizes))
        executor = Executor(self._backend, self.name, self._copier, thresholds)
        executor.scope.entries.update({name: Scalar(np.int64(value)) for name, value in sizes.items()})
        inputs = self._place_arguments(executor, arguments, values)
        self._check_shapes(executor, out)
        outputs = self._place_outputs(executor, host, arguments, out)
        entries = run_block(executor, host.block, dead_after(host.block))
        executor.raise_errors()
        if compared is not None:
            compared.extend(executor.compared)
        for position, (one, entry) in enumerate(zip(out, entries, strict=True)):
            if one is not None:
                self._check_shape(position, one, entry.shape if isinstance(entry, Placed) else ())
        with self._lock:
            self.found.update(executor.told)
        results = self._results(executor, host, entries, outputs)
        read = [self._read(result, memory) for result, memory in results]
        self._remember(executor, key, arguments, inputs, outputs, [result for result, _ in results])
        return deliver([result for result, _ in results], read, out)

    def _host_for(self, sizes: Mapping[str, int], values: Sequence[Any]) -> HostProgram:
        """The program as written where that fills the machine, else the one with all versions."""
        if self._written is not None:
            fills = None if self._versions is None else self._versions.fills
            names = self._written.program.parameters
            scalars = {names[p].name: int(values[p]) for p in self._written.size_arguments}
            if fills is None or fills({**scalars, **sizes}):
                return self._written
        self.bound.size_arguments |= self._made.size_arguments
        return self._made

    def _place_arguments(
        self, executor: Executor, arguments: Sequence[Any], values: Sequence[Any]
    ) -> list[tuple[int, int, ScalarType]]:
        inputs = []
        for position, (parameter, value) in enumerate(zip(self._known.program.parameters, values, strict=True)):
            if parameter.type.rank == 0:
                argument = None if position in self.bound.size_arguments else position
                executor.scope.entries[parameter.name] = Scalar(value, argument=argument)
                continue
            array = arguments[position]
            if not (array is value and usable_strides(array)) and self._backend.threads_per_block == 1 and array.size:
                executor.recording.refuse(f"argument {parameter} must be copied first")
            memory, strides = self._backend.place(value)
            executor.recording.slot(memory)
            inputs.append((position, memory.slot, parameter.type.element))
            executor.scope.entries[parameter.name] = Placed(
                memory, parameter.type.element, value.shape, tuple(stride // value.itemsize for stride in strides)
            )
        return inputs

    def _place_outputs(
        self, executor: Executor, host: HostProgram, arguments: Sequence[Any], out: Sequence[Array | None]
    ) -> dict[int, Placed]:
        """The caller's arrays that kernels may write to, and those of them that the last step computes into."""
        outputs: dict[int, Placed] = {}
        if self.device.machine.kind != "cpu" or all(one is None for one in out):
            return outputs
        if overlap(arguments, out):
            executor.recording.refuse("a result overlaps an argument")
            return outputs
        # Only the last step may: a failure after an earlier one would leave results half written.
        last = written_by(host.block.steps[-1]) if host.block.steps and not host.checked else ()
        for position, (atom, one) in enumerate(zip(host.program.body.results, out, strict=True)):
            if one is None or isinstance(atom, Literal) or not atom.type.rank:
                continue
            if not one.size or not usable_strides(one):
                continue
            memory = Memory(one.ctypes.data, one)
            executor.recording.slot(memory)
            strides = tuple(stride // one.itemsize for stride in one.strides)
            outputs[position] = Placed(memory, atom.type.element, one.shape, strides)
            if atom.name in last:
                executor.destinations.setdefault(atom.name, outputs[position])
        return outputs

    def _results(
        self, executor: Executor, host: HostProgram, entries: Sequence[Entry], outputs: dict[int, Placed]
    ) -> list[tuple[Result, Memory | None]]:
        """Every result in fresh memory of its own, or in the caller's array: what does not lie there yet is copied
        when nothing can fail any more.
        """
        used: set[int] = set()
        copies: list[tuple[Placed, Placed]] = []
        results: list[tuple[Result, Memory | None]] = []
        for position, (atom, entry) in enumerate(zip(host.program.body.results, entries, strict=True)):
            element = atom.type.element
            if isinstance(entry, Scalar):
                with np.errstate(over="ignore"):  # what is too large for an f16 is infinite, as in arrays
                    value = element.numpy.type(entry.value)
                if entry.changing:
                    executor.recording.refuse("a result is computed by the host")
                results.append((Result(element, (), value=value, argument=entry.argument, array=False), None))
                continue
            owned = entry.fresh and entry.offset == 0 and id(entry.memory) not in used
            direct = position in outputs
            if direct:
                if entry.memory is not outputs[position].memory:
                    copies.append((entry, outputs[position]))
                entry = outputs[position]
            elif not (owned and entry.strides == _own_strides(entry.shape) and executor.is_shaped(entry)):
                copy = executor.allocate_shape(element, entry.shape, f"result {position}")
                executor.copy(entry, copy)
                entry = copy
            used.add(id(entry.memory))
            array = atom.type.rank > 0
            result = Result(element, entry.shape, entry.memory.slot, direct=direct, array=array)
            results.append((result, entry.memory))
        for entry, place in copies:
            executor.copy(entry, place)
        return results

    def _read(self, result: Result, memory: Memory | None) -> Any:
        if memory is None:
            return result.value
        if result.direct:
            return None
        array = self._backend.result(memory, result.shape, result.element.numpy)
        return array if result.array else array[()]

    def _remember(
        self,
        executor: Executor,
        key: Any,
        arguments: Sequence[Any],
        inputs: Sequence[tuple[int, int, ScalarType]],
        outputs: dict[int, Placed],
        results: Sequence[Result],
    ) -> None:
        if (
            key is None
            or executor.recording.reason is not None
            or executor.scope.used_changing
            or key in self.bound.plans
        ):
            return
        elements = self._known.program.body.results
        records = executor.recording.records
        if not any(isinstance(one, Rounds) for one in records):  # whose memory native code alone looks after
            executor.recording.records = with_releases(records, (one.slot for one in results if one.slot >= 0))
        plan = BoundPlan(
            self.name,
            executor.recording,
            tuple((position, slot, element) for position, slot, element in inputs),
            tuple((position, one.memory.slot, elements[position].type.element) for position, one in outputs.items()),
            tuple(results),
            {position: self._known.program.parameters[position].type.element for position in self._scalars},
            frozenset(slot for position, slot, _ in inputs if 0 in key[position + 1][0]),
            _spans(arguments, inputs) | {one.memory.slot: span_of(one.memory.array) for one in outputs.values()},
            alignments_of(executor.recording.records) if self.device.machine.kind == "cpu" else {},
        )
        runner = cpu_runner(plan) if self.device.machine.kind == "cpu" else device_runner(plan, self._backend)
        self.bound.remember(key, runner, plan)


def _own_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (0,) * len(shape) if 0 in shape else row_major_strides(shape)


def _spans(arguments: Sequence[Any], inputs: Sequence[tuple[int, int, ScalarType]]) -> dict[int, tuple[int, int]]:
    return {slot: span_of(arguments[position]) for position, slot, _ in inputs}
