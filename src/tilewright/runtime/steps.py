"""What each kind of step of a `HostProgram` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.ir import nodes
from tilewright.ir.arguments import as_scalar
from tilewright.ir.joined import Part, check_part
from tilewright.ir.lmad import row_major
from tilewright.ir.nodes import Atom, Expression, Variable
from tilewright.ir.operators import OPERATORS, result_type
from tilewright.ir.scalars import I64, wrapped_i64
from tilewright.ir.sizes import Size, size
from tilewright.kernel.launch import Launch, LaunchDeclined
from tilewright.runtime import host
from tilewright.runtime.executor import Executor
from tilewright.runtime.flat_plan import Unfit
from tilewright.runtime.index_errors import index_error
from tilewright.runtime.scope import Entry, Placed, Scalar


def run_contraction(e: Executor, step: host.ContractionStep) -> None:
    """Launch a contraction's kernels, or what is done otherwise."""
    e.force_sizes([*(variable.name for variable in step.reads), *step.size_names])
    e.force_sizes(sorted({name for variable in step.reads for e in variable.type.shape for name in e.names}))
    target = e.scope.entries[step.target.name] = e.destination(step.target)
    try:
        launches = contraction_launches(e, step, target)
    except LaunchDeclined as error:
        e.told[step.label, f"general lowering: {error}"] = None
        e.destinations[step.target.name] = target
        otherwise = step.otherwise()
        _RUN[type(otherwise)](e, otherwise)
        return
    made = [temporary for launch in launches for temporary in launch.temporaries]
    for one in made:
        e.scope.entries[one.name] = e.allocate_shape(one.element, (one.elements,), one.name)
    for launch in launches:
        e.launch_given(launch)
    for one in made:
        del e.scope.entries[one.name]
    place = e.scope.entries[step.target.name]
    if place is not target:
        e.copy(place, target)
        e.scope.entries[step.target.name] = target
    if e.scope.used_changing:
        e.recording.refuse("a size depends on a scalar argument")


def contraction_launches(e: Executor, step: host.ContractionStep, target: Placed) -> tuple[Launch, ...]:
    """The launches; arrays that are not aligned as they need are replaced by copies in the scope."""
    launches = step.launches(e.scope)
    if e.backend.threads_per_block > 1:
        return launches
    moved = False
    for launch in launches:
        for buffer, name in zip(launch.kernel.buffers, launch.buffers, strict=True):
            place = e.scope.entries.get(name)  # temporary arrays are made, and aligned, later
            if buffer.alignment and isinstance(place, Placed) and place.memory.address % buffer.alignment:
                aligned = e.allocate_shape(place.element, place.shape, name)
                if place is not target:
                    e.copy(place, aligned)
                e.scope.entries[name] = aligned
                moved = True
    return step.launches(e.scope) if moved else launches


def run_block(e: Executor, block: host.Block, dead: Sequence[Sequence[str]] = ()) -> list[Entry]:
    """Run steps; what the block is for. The arrays in `dead`, a list for each step, are dropped after it."""
    for position, step in enumerate(block.steps):
        _RUN[type(step)](e, step)
        for name in dead[position] if dead else ():
            e.drop(name)
    return [e.entry(atom) for atom in block.results]


def run_view(e: Executor, step: host.ViewStep) -> None:
    """An array or scalar seen in another way."""
    e.scope.entries[step.target.name] = view(e, step.expression, step.target)


def view(e: Executor, expression: Expression, target: Variable) -> Entry:
    """The value of an expression that needs no memory, or of a reshape that does."""
    match expression:
        case nodes.Alias(atom):
            return e.entry(atom)
        case nodes.Copy(array) | nodes.Index(array, ()):
            return e.entry(array)
        case nodes.Slice(array) | nodes.Rearrange(array) if array.type.rank == 0:
            return e.entry(array)
        case nodes.Index(array, indices, line):
            source = array_in_memory(e, array)
            places = [checked_index(e, one, source.shape[d], array, d, line) for d, one in enumerate(indices)]
            return element(e, source, indices, places)
        case nodes.Slice(array, dimensions, line):
            source = array_in_memory(e, array)
            known = [
                replace(one, start=size(e.size(one.start)), count=size(count))
                for one, count in zip(dimensions, e.shape([one.count for one in dimensions]), strict=True)
            ]
            for d, one in enumerate(known):
                check_slice(e, host.CheckedIndex(array.name, d, line), one, source.shape[d])
            return source.seen_as(source.lmad.slice(known))
        case nodes.Rearrange(array, permutation):
            source = array_in_memory(e, array)
            return source.seen_as(source.lmad.rearrange(permutation))
        case nodes.Replicate(count, value):
            source = array_in_memory(e, value)
            return source.seen_as(source.lmad.broadcast(*e.shape([count])))
        case nodes.Reshape(array, shape) if array.type.rank == 0:
            cell = e.allocate(target.type, target.name)
            e.copy(e.entry(array), cell)
            return cell
        case nodes.Reshape(array, shape):
            return reshape(e, array_in_memory(e, array), e.shape(shape), array)
    raise TypeError(f"{type(expression).__name__} is not a view")


def array_in_memory(e: Executor, atom: Atom) -> Placed:
    """An array."""
    entry = e.entry(atom)
    assert isinstance(entry, Placed), f"{atom} is not an array in memory"
    return entry


def checked_index(e: Executor, atom: Atom, extent: int, array: Variable, dimension: int, line: str) -> int:
    """An index that the host knows, checked."""
    scalar = e.scalar(atom)
    last = int(scalar.value)
    if scalar.step is not None and scalar.step[0] in e.counts:
        last += scalar.step[1] * (e.counts[scalar.step[0]] - 1)
    if scalar.rounds and (scalar.step is None or scalar.step[0] not in e.counts or not 0 <= last < extent):
        e.scope.used_rounds |= scalar.rounds
    if scalar.changing or scalar.argument is not None:
        e.recording.refuse(f"an index of {array} is a scalar argument")
    index = int(scalar.value)
    if not 0 <= index < extent:
        raise index_error(e.program_name, host.CheckedIndex(array.name, dimension, line), index, extent)
    return index


def element(e: Executor, array: Placed, indices: Sequence[Atom], places: Sequence[int]) -> Placed:
    """A part of an array, at places that indices are; these may grow from round to round of a loop."""
    part = array.seen_as(array.lmad.fix(places))
    entries = [e.entry(one) for one in indices]
    steps = [
        (one.step[0], one.step[1] * stride)
        for one, stride in zip(entries, array.strides, strict=False)
        if isinstance(one, Scalar) and one.step is not None
    ]
    steps += [] if part.step is None else [part.step]
    if len({counter for counter, _ in steps}) > 1:
        e.scope.used_rounds |= {counter for counter, _ in steps}
        return replace(part, step=None)
    return replace(part, step=(steps[0][0], sum(step for _, step in steps))) if steps else part


def check_slice(e: Executor, check: host.CheckedIndex, cut: nodes.SliceDimension, extent: int) -> None:
    """Refuse a slice (of known sizes) that is out of range."""
    start, count = cut.start.evaluate({}), cut.count.evaluate({})
    last = start + cut.step * (count - 1)
    if count > 0 and not (0 <= start < extent and 0 <= last < extent):
        outside = start if not 0 <= start < extent else last
        raise index_error(e.program_name, check, outside, extent)


def reshape(e: Executor, source: Placed, shape: tuple[int, ...], array: Variable) -> Placed:
    """A view where the strides allow it, else a copy; it is as fresh as what it shows, all of it."""
    if int(np.prod(source.shape, dtype=object)) != int(np.prod(shape, dtype=object)):
        raise ValueError(f"program {e.program_name}: {array} of shape {source.shape} cannot be reshaped to {shape}")
    if 0 in shape:
        return replace(source, shape=shape, strides=(0,) * len(shape), fresh=False)
    lmad = source.lmad.reshape(shape)
    if lmad is None:
        dense = e.allocate_shape(source.element, source.shape, str(array))
        e.copy(source, dense)
        source, lmad = dense, row_major(tuple(map(size, shape)))
    return replace(source.seen_as(lmad), fresh=source.fresh)


def run_scalar(e: Executor, step: host.ScalarStep) -> None:
    """Scalar code by NumPy."""
    grows: tuple[int, int] | None = None
    with np.errstate(all="ignore"):
        match step.expression:
            case nodes.Apply(operator, operands):
                scalars = [e.scalar(one) for one in operands]
                result = result_type(operator, tuple(one.type.element for one in operands))
                value = as_scalar(OPERATORS[operator].meaning(*(one.value for one in scalars)), result)
            case nodes.Cast(scalar, operand):
                scalars = [e.scalar(operand)]
                value = as_scalar(scalars[0].value, scalar)
            case nodes.SizeValue(extent):
                scalars, grows = growing_size(e, extent)
                value = wrapped_i64(e.size(extent) if grows is None else sum(int(one.value) for one in scalars))
            case _:
                raise TypeError(f"{type(step.expression).__name__} is not scalar code")
    changing = any(one.changing or one.argument is not None for one in scalars)
    counters = frozenset[int]().union(*(one.rounds for one in scalars))
    grows = grows or (growth(step.expression, scalars) if counters else None)
    e.scope.entries[step.targets[0].name] = Scalar(value, changing=changing, rounds=counters, step=grows)


def growing_size(e: Executor, extent: Size) -> tuple[list[Scalar], tuple[int, int] | None]:
    """The parts that a size is the sum of, one of which grows from round to round, and how; nothing otherwise."""
    entries = {name: e.scope.entries.get(name) for name in extent.names}
    growing = {name: one for name, one in entries.items() if isinstance(one, Scalar) and one.step is not None}
    if len(growing) != 1:
        return [], None
    ((name, one),) = growing.items()
    parts = extent.coefficient_of(name)
    if one.step is None or parts is None:
        return [], None
    factor, rest = map(e.size, parts)
    return [replace(one, value=factor * int(one.value)), Scalar(rest)], (one.step[0], factor * one.step[1])


def growth(expression: Expression, scalars: Sequence[Scalar]) -> tuple[int, int] | None:
    """By how much a sum, difference or multiple of integers grows from round to round, if that is always as much."""
    if not isinstance(expression, nodes.Apply) or expression.operands[0].type.element != I64:
        return None
    known = all(one.step is not None or not one.rounds for one in scalars)
    counters = {one.step[0] for one in scalars if one.step is not None}
    if not known or len(counters) != 1:
        return None
    (counter,) = counters
    steps = [0 if one.step is None else one.step[1] for one in scalars]
    match expression.operator:
        case "add":
            return counter, steps[0] + steps[1]
        case "sub":
            return counter, steps[0] - steps[1]
        case "mul" if 0 in steps:
            return counter, steps[0] * int(scalars[1].value) + steps[1] * int(scalars[0].value)
    return None


def run_concat(e: Executor, step: host.ConcatStep) -> None:
    """Copy the parts."""
    parts = [array_in_memory(e, variable) for variable in step.arrays]
    for number, variable in enumerate(step.arrays):
        extent = variable.type.shape[step.axis]
        check_part(e.program_name, Part(variable.name, number, step.axis, extent), e.size(extent))
    whole = e.destination(step.target)
    start = 0
    for part in parts:
        strides, offset = whole.strides, whole.offset + start * whole.strides[step.axis]
        e.copy(part, replace(whole, shape=part.shape, strides=strides, offset=offset, fresh=False))
        start += part.shape[step.axis]
    e.scope.entries[step.target.name] = whole


def run_update(e: Executor, step: host.UpdateStep) -> None:
    """Copy, then overwrite a part."""
    source = array_in_memory(e, step.array)
    places = [checked_index(e, one, source.shape[d], step.array, d, step.line) for d, one in enumerate(step.indices)]
    if step.in_place:
        whole = replace(source)  # another entry, as copies in other orders (turning.py) are those of an entry
    else:
        whole = e.destination(step.target)
        e.copy(source, whole)
    e.copy(e.entry(step.value), element(e, whole, step.indices, places))
    e.scope.entries[step.target.name] = whole


def run_segments(e: Executor, step: host.SegmentStep) -> None:
    """Choose by the sizes, then run."""
    plan = step.choose(e.shape(step.extents))
    for name, value in plan.sizes:
        e.scope.entries[name] = Scalar(np.int64(value))
    for kernel in plan.steps:
        e.run_kernel(kernel)


def run_threshold(e: Executor, step: host.ThresholdStep) -> None:
    """Compare, and note what was compared."""
    value = e.size(step.parallelism)
    e.compared.append((step.name, value))
    e.scope.entries[step.target.name] = Scalar(np.bool_(value >= e.thresholds[step.name]))


def run_if(e: Executor, step: host.IfStep) -> None:
    """Decide on the host."""
    condition = e.scalar(step.condition)
    e.scope.used_rounds |= condition.rounds
    if condition.changing or condition.argument is not None:
        e.recording.refuse("a condition depends on the arguments' values")
    results = run_block(e, host.block_of(step.then if condition.value else step.otherwise))
    for target, value in zip(step.targets, results, strict=True):
        e.scope.entries[target.name] = value


def run_guarded(e: Executor, step: host.GuardedStep) -> None:
    """Run the guard, and what it allows."""
    try:
        e.run_kernel(step.guard)
    except Unfit:
        e.recording.refuse("a guard does not hold for these arguments")
        e.choices += 1
        run_block(e, step.otherwise)
    else:
        run_block(e, step.then)


LARGEST_SEQUENTIAL_ROUND = 3 << 17
"""Work of a round of a loop, in sixteenths of a nanosecond, that takes no longer than its launches and two cores do."""


def run_loop(e: Executor, step: host.LoopStep) -> None:
    """Loop by a kernel, or on the host."""
    if step.whole is not None and step.work is not None and pays_alone(e, step, step.work):
        e.run_kernel(step.whole)
    else:
        from tilewright.runtime import rounds  # with what makes native code of rounds

        rounds.run_loop(e, step, run_block)


def pays_alone(e: Executor, step: host.LoopStep, work: Size) -> bool:
    """Whether one core does a loop as fast as launches of all of them."""
    if e.size(work) <= LARGEST_SEQUENTIAL_ROUND:
        return True
    if step.shared is None:
        return False
    alone, launched = map(e.size, step.shared)
    return 3 * alone * e.backend.machine.cores <= 2 * launched  # launches read what they fold in larger pieces


def run_rows(e: Executor, step: host.RowsStep) -> None:
    """A map row by row."""
    width = e.size(step.width)
    wholes: list[Placed] = []
    for index in range(width):
        for parameter, array in zip(step.parameters, step.arrays, strict=True):
            source = array_in_memory(e, array)
            e.scope.entries[parameter.name] = source.seen_as(source.lmad.fix([index]))
        rows = run_block(e, step.body)
        if not wholes:
            wholes = [rows_of(e, target, row, width) for target, row in zip(step.targets, rows, strict=True)]
        for whole, row in zip(wholes, rows, strict=True):
            place = whole.seen_as(whole.lmad.fix([index]))
            if isinstance(row, Placed) and row.shape != place.shape:
                raise ValueError(f"program {e.program_name}: rows of shapes {place.shape} and {row.shape} in one array")
            e.copy(row, place)
    for position, target in enumerate(step.targets):
        if not wholes:
            rest = target.type.shape[1:]
            known = all(name in e.scope.entries for extent in rest for name in extent.names)
            shape = (0, *e.shape(rest)) if known else (0,) * target.type.rank
            e.scope.entries[target.name] = e.allocate_shape(target.type.element, shape, target.name)
        else:
            e.scope.entries[target.name] = wholes[position]


def rows_of(e: Executor, target: Variable, row: Entry, width: int) -> Placed:
    """The array of all rows, from the first one."""
    shape = row.shape if isinstance(row, Placed) else ()
    given = e.destinations.pop(target.name, None)
    return given or e.allocate_shape(target.type.element, (width, *shape), target.name)


_RUN: dict[type, Callable[[Executor, Any], None]] = {
    host.KernelStep: Executor.run_kernel,
    host.ContractionStep: run_contraction,
    host.ViewStep: run_view,
    host.ScalarStep: run_scalar,
    host.ConcatStep: run_concat,
    host.UpdateStep: run_update,
    host.SegmentStep: run_segments,
    host.ThresholdStep: run_threshold,
    host.IfStep: run_if,
    host.GuardedStep: run_guarded,
    host.LoopStep: run_loop,
    host.RowsStep: run_rows,
}
