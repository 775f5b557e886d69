"""What one work item of a kernel has at hand: the arrays in scope, memory of its own, what it knows of indices.

Arrays are `ArrayView`s whose sizes mention core names; what the launch knows becomes a scalar parameter of the kernel
when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir.dataclass import dataclass
from tilewright.ir.index_ranges import is_within, is_within_where_positive, narrowed
from tilewright.ir.lmad import LMAD, row_major
from tilewright.ir.nodes import Type, Variable
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.ir.sizes import ONE, ZERO, Size, maximum, product, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, For, Name, ScalarParameter, Space
from tilewright.machine.model import Machine
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.rounds_left import RoundLeft
from tilewright.passes.items.scalar_values import (
    KernelBuilder,
    Value,
    component_types,
    load_element,
    memory_element,
    store_element,
)
from tilewright.passes.items.speculation import Speculation
from tilewright.passes.items.upper_bounds import upper_bound
from tilewright.runtime.host import THREADS_TOTAL, CheckedIndex, Layout, Scratch

PRIVATE_BYTES = 1024
"""A kernel's private arrays may take so many bytes; what is larger lies in scratch memory."""

WORKER = "%worker"


@dataclass(frozen=True)
class IotaArray:
    """0, 1, ..., count-1 without memory."""

    count: Size
    scalar: ScalarType


ArrayValue = ArrayView | IotaArray


class Item:
    """The state of lowering one work item.

    Args:
        outer: the scalars in scope at launch; every other unknown name is an i64 (a size, offset or stride).
        layouts: the arrays, and the scalars in memory, in scope at launch.
        written: those of them that the kernel stores into.
    """

    def __init__(self, outer: Mapping[str, Type], layouts: Mapping[str, Layout], written: Sequence[str]) -> None:
        self.emit = KernelBuilder(self._outer_scalar)
        self.arrays: dict[str, ArrayValue] = {}
        self.buffers: dict[str, Buffer] = {}
        self.buffer_names: dict[str, str] = {}  # kernel buffer -> core name
        self.scalars: dict[str, tuple[ScalarParameter, str, int]] = {}
        self.scratch: list[Scratch] = []
        self.private: list[Buffer] = []
        self.checks: list[CheckedIndex] = []
        self.in_pieces = False  # inside of a fold that is done in pieces
        self.ranges: dict[str, Size] = {}
        self.definitions: dict[str, Size] = {}
        self.conditions: dict[str, Size] = {}  # bools that say that a polynomial is negative
        self.junctions: dict[str, tuple[str, tuple[str, ...]]] = {}  # bools that are "and", "or" or "not" of others
        self.narrowed: dict[str, Size] = {}  # what indices are where conditions hold, in terms of narrower ones
        self.counted: dict[str, Size] = {}  # kernel names that hold elements of iota: the index
        self.inner: set[str] = set()
        self.extents: frozenset[str] = frozenset()  # names of sizes, which are 0 at least
        self.destinations: dict[str, ArrayView] = {}
        self.overwrites: dict[str, Variable] = {}  # arrays that take over the memory of another one
        self.failed = Name("failed_0", BOOL)
        self.streams: dict[str, Callable[..., Any]] = {}  # folds lowered in a way of their own, by their first target
        self.vector_lanes = False  # the processor runs loops over independent lanes in vectors
        self.gather_bytes = 0  # of its vectors, where it reads them from anywhere as fast as element by element
        self.lanes: tuple[int, Size] | None = None  # points written together, and the number of this one
        self.lane_names: frozenset[str] = frozenset()  # of that number, and of the point's index
        self.turned: list[tuple[Size, Size]] = []  # rows copied for points written together: their length, all elements
        self.turning: set[str] = set()  # buffers of which a round of a loop reads one part and writes another one
        self.taken = 0  # bytes of private arrays that `allocate` has given out
        self.machine: Machine | None = None  # has vectors, in whose lanes points of maps inside may go on
        self.wanted_inside = False  # there are such maps, if the points around them do not go on in lanes
        self.scalar_loops = False  # there are vectors and loops that LLVM shall put into vectors
        self.by_threads = False  # several threads run the kernel at the same time
        self.side_by_side = False  # threads run points: their own arrays interleave, for neighbours to coalesce
        self.together = 1  # points that go on together in lanes
        self.refused: list[str] = []  # why there are no lanes where there might be
        self.speculation: Speculation | None = None  # how indices are checked; None: by branches
        self.assumed: set[str] | None = None  # extents found to have to be positive, where that may be assumed
        self.round: RoundLeft | None = None  # what a slice that is out of range may leave out
        self._outer, self._read_only = dict(outer), frozenset(layouts) - frozenset(written)
        for name, layout in layouts.items():
            self._outer_array(name, outer[name], layout)

    # --- what comes from the launch

    def _outer_scalar(self, name: str) -> Value | None:
        if name in self.inner:
            return None
        element = self._outer[name].element if name in self._outer else I64
        parts = []
        for component, part in enumerate(component_types(element)):
            parameter = ScalarParameter(self.emit.name(name), part)
            self.scalars[parameter.name] = (parameter, name, component)
            parts.append(Name(parameter.name, part))
        return tuple(parts)

    def _outer_array(self, name: str, type_: Type, layout: Layout) -> None:
        offset = ZERO if layout.at_start else size(f"{name}.offset")
        if layout.dense:
            lmad = row_major(type_.shape, offset)
        else:
            strides = tuple(
                size(f"{name}.stride{d}") if known is None else size(known) for d, known in enumerate(layout.strides)
            )
            lmad = LMAD(offset, type_.shape, strides)
        self.arrays[name] = ArrayView(name, type_.element, lmad)

    def load_outer_scalars(self, names: Sequence[str]) -> None:
        """Read the scalars that lie in memory, once, at the start of the kernel."""
        for name in names:
            view = self.arrays[name]
            assert isinstance(view, ArrayView)
            self.emit.values[name] = self.load(view, ())

    def buffer_of(self, view: ArrayView) -> Buffer:
        """The kernel's buffer in which a view lies."""
        if view.buffer not in self.buffers:
            name = self.emit.name(view.buffer)
            self.buffers[view.buffer] = Buffer(
                name, memory_element(view.element), read_only=view.buffer in self._read_only
            )
            self.buffer_names[name] = view.buffer
        return self.buffers[view.buffer]

    # --- elements

    def load(self, view: ArrayView, indices: Sequence[Size]) -> Value:
        """The element at indices that are known to be in range."""
        at = self.emit.let(lower_size(view.lmad.flat(indices), self.emit), "at")
        return load_element(self.buffer_of(view), view.element, at, self.emit, "e")

    def store(self, view: ArrayView, indices: Sequence[Size], value: Value) -> None:
        """Write one element."""
        at = self.emit.let(lower_size(view.lmad.flat(indices), self.emit), "at")
        store_element(self.buffer_of(view), view.element, at, value, self.emit)

    def row(self, array: ArrayValue, index: Size) -> Value | ArrayValue:
        """array[index]: an element or a view of a row."""
        if isinstance(array, IotaArray):
            value = self.emit.let(lower_size(index, self.emit), "i")
            if isinstance(value, Name) and array.scalar == I64:
                self.counted[value.name] = index
            return (value if array.scalar == I64 else self.emit.let(kernel.Cast(value, array.scalar), "i"),)
        if array.lmad.rank == 1:
            return self.load(array, (index,))
        return ArrayView(array.buffer, array.element, array.lmad.fix([index]))

    # --- memory

    def allocate(self, type_: Type, hint: str) -> ArrayView:
        """Memory of this work item for an array: private if it is small and of constant size, else scratch.

        Of points that are written together each has an array, their elements side by side.

        Raises:
            LoweringError: if no bound of its size is known at launch.
        """
        if self.lanes is None:
            return self._allocate(type_, hint)
        count, lane = self.lanes
        whole = self._allocate(Type(type_.element, (*type_.shape, size(count))), hint)
        lmad = LMAD(whole.lmad.offset + lane, whole.lmad.shape[:-1], whole.lmad.strides[:-1])
        return ArrayView(whole.buffer, whole.element, lmad)

    def _allocate(self, type_: Type, hint: str) -> ArrayView:
        what, known = f"array {hint} of type {type_}", (self.inner, self.definitions, self.ranges)
        bounds = [upper_bound(extent, what, *known) for extent in type_.shape]
        # Room for one row even of an empty array: what a failed index check reads in its place.
        room = product(
            maximum(extent, ONE) if extent.constant is None else max(1, extent.constant) for extent in bounds
        )
        words = room * (2 if type_.element.is_complex else 1)
        name = self.emit.name(f"{hint}_own")
        element = memory_element(type_.element)
        if words.constant is not None and self.taken + words.constant * element.bytes <= PRIVATE_BYTES:
            self.taken += words.constant * element.bytes
            buffer = Buffer(name, element, Space.PRIVATE, words.constant)
            self.private.append(buffer)
            offset = ZERO
        else:
            buffer = Buffer(name, element)
            self.scratch.append(Scratch(name, type_.element, room))
            self.buffer_names[name] = name
            if self.side_by_side:
                self.buffers[name] = buffer
                dense = row_major(type_.shape)
                lmad = LMAD(size(WORKER), dense.shape, tuple(one * size(THREADS_TOTAL) for one in dense.strides))
                return ArrayView(name, type_.element, lmad)
            offset = size(WORKER) * size(f"%room.{name}")
        self.buffers[name] = buffer
        return ArrayView(name, type_.element, row_major(type_.shape, offset))

    def target(self, variable: Variable) -> ArrayView:
        """Where the array that a statement computes shall lie: a place chosen before, or new memory."""
        found = self.destinations.pop(variable.name, None)
        return found if found is not None else self.allocate(variable.type, variable.name)

    def copy(self, source: ArrayValue, destination: ArrayView) -> None:
        """Copy all elements."""
        if isinstance(source, IotaArray):
            self.loop(source.count, "i", lambda i: self.store(destination, (i,), self._element(source, i)))
        elif source != destination:
            self.each(
                destination.lmad.shape, lambda indices: self.store(destination, indices, self.load(source, indices))
            )

    def _element(self, array: ArrayValue, index: Size) -> Value:
        value = self.row(array, index)
        assert isinstance(value, tuple)
        return value

    def as_view(self, array: ArrayValue, hint: str = "iota") -> ArrayView:
        """The array in memory."""
        if isinstance(array, ArrayView):
            return array
        memory = self.allocate(Type(array.scalar, (array.count,)), hint)
        self.copy(array, memory)
        return memory

    def own(self, hint: str, element: ScalarType, count: int, space: Space = Space.PRIVATE) -> ArrayView:
        """`count` elements of memory that this work item has alone, or shares with those of its block."""
        buffer = Buffer(self.emit.name(hint), memory_element(element), space, count * (2 if element.is_complex else 1))
        self.private.append(buffer)
        self.buffers[buffer.name] = buffer
        return ArrayView(buffer.name, element, row_major((size(count),)))

    # --- loops

    def index(self, hint: str, extent: Size) -> tuple[Name, Size]:
        """A new index below `extent`: its kernel name, and itself as a size."""
        name = Name(self.emit.name(hint), I64)
        core = f"%{name.name}"
        self.emit.values[core] = (name,)
        self.ranges[core] = extent
        self.inner.add(core)
        return name, size(core)

    def known_index(self, index: Size, extent: Size) -> Size:
        """An index that is known to be below `extent`, by a name of its own."""
        return self.named(lower_size(index, self.emit), "at", extent)

    def named(self, value: kernel.Expression, hint: str, extent: Size | None = None) -> Size:
        """A value of the kernel as a size; if an extent is given, the value is an index below it."""
        core = f"%{hint}.{self.emit.name(hint)}"
        self.emit.values[core] = (self.emit.let(value, hint),)
        self.inner.add(core)
        if extent is not None:
            self.ranges[core] = extent
        return size(core)

    def loop(self, extent: Size, hint: str, write: Callable[[Size], None]) -> None:
        """for index < extent: what `write(index)` emits."""
        stop = self.emit.let(lower_size(extent, self.emit), "stop")
        self.loop_from(Constant(0, I64), stop, extent, hint, write)

    def loop_from(
        self,
        start: kernel.Expression,
        stop: kernel.Expression,
        extent: Size,
        hint: str,
        write: Callable[[Size], None],
        step: kernel.Expression | int = 1,
        independent: bool = False,
        scalar: bool = False,
    ) -> None:
        """for index in start .. stop by step: what `write(index)` emits; all indices are below `extent`."""
        name, core = self.index(hint, extent)
        with self.emit.scope() as body:
            write(core)
        by = Constant(step, I64) if isinstance(step, int) else step
        self.emit.emit(For(name.name, start, stop, tuple(body), by, independent=independent, scalar=scalar))

    def loop_in_lanes(self, stop: kernel.Expression, extent: Size, hint: str, write: Callable[[Size], None]) -> None:
        """for index < stop; in vectors, unless indices are checked inside, or arrays allocated."""

        def taken() -> tuple[int, ...]:
            return len(self.checks), len(self.scratch), len(self.private)

        before = taken()
        name, core = self.index(hint, extent)
        with self.emit.scope() as body:
            write(core)
        self.emit.emit(For(name.name, Constant(0, I64), stop, tuple(body), independent=taken() == before))

    def each(self, shape: Sequence[Size], write: Callable[[tuple[Size, ...]], None]) -> None:
        """Nested loops over all indices of a shape."""
        if not shape:
            write(())
            return
        self.loop(shape[0], "i", lambda i: self.each(shape[1:], lambda rest: write((i, *rest))))

    # --- what is known of indices

    def is_size(self, name: str) -> bool:
        """Whether a name is 0 at least: that of a size, or of an index."""
        return name in self.ranges or name in self.extents

    def intact(self) -> kernel.Expression | None:
        """Whether no index was out of range so far; None where none can have been."""
        if self.speculation is not None:
            return kernel.operation("not", self.speculation.bad) if self.speculation.used else None
        return kernel.operation("not", self.failed) if self.checks else None

    @contextmanager
    def given(self, condition: str, holds: bool) -> Iterator[None]:
        """Inside, the condition of this name is known to hold, or not to: indices are in range that are not outside."""
        before = dict(self.narrowed)
        for fact in self._facts(condition, holds):
            negative = self._resolved(fact, self.definitions | self.narrowed)
            found = narrowed(negative, self.ranges, new := f"%narrow.{self.emit.name('narrow')}")
            if found is not None:
                name, self.narrowed[name], self.ranges[new] = found
                self.inner.add(new)
        yield
        self.narrowed = before

    def _facts(self, condition: str, holds: bool) -> Iterator[Size]:
        """Polynomials that are negative where a condition holds, or does not."""
        if condition in self.conditions:
            negative = self.conditions[condition]
            yield negative if holds else -negative - 1
        operator, parts = self.junctions.get(condition, ("", ()))
        if operator in ("and" if holds else "or", "not"):
            for part in parts:
                yield from self._facts(part, holds != (operator == "not"))

    def as_size(self, expression: kernel.Expression) -> Size | None:
        """A kernel's expression in terms of core names, if it is a polynomial of them."""
        match expression:
            case Constant(int() as value):
                return size(value)
            case Name(name):
                if name in self.scalars:
                    return size(self.scalars[name][1])
                core = next((one for one, known in self.emit.values.items() if known == (expression,)), None)
                return None if core is None else size(core)
            case kernel.Operation("add" | "sub" | "mul" as operator, (left, right)):
                one, two = self.as_size(left), self.as_size(right)
                if one is None or two is None:
                    return None
                return one + two if operator == "add" else one - two if operator == "sub" else one * two
        return None

    def resolved(self, value: Size) -> Size:
        """A size in terms of names that nothing more is known of."""
        return self._resolved(value, self.definitions)

    def _resolved(self, value: Size, known: Mapping[str, Size]) -> Size:
        for _ in range(100):
            if known.keys().isdisjoint(value.names):
                return value
            value = value.substitute(known)
        return value

    def in_range(self, index: Size, extent: Size) -> bool:
        """Whether an index is known to be at least 0 and less than an extent."""
        found = {self._resolved(index, one) for one in (self.definitions, self.definitions | self.narrowed)}
        certain = any(is_within(one, extent, self.ranges) for one in found)
        name = next(iter(extent.names - self.inner), "")
        if not certain and self.assumed is not None and extent == size(name):
            certain = any(is_within_where_positive(one, name, self.ranges) for one in found)
            self.assumed |= {name} if certain else set()
        return certain
