"""Statements of one point, for neighbouring points in the lanes of vectors (their expressions: lane_values.py).

    for j: ... while c(j): t(j) ...
=>  for each group of js: ... active = all lanes; while any lane of (active = active and c(group)): t(group) ...

A lane that is done keeps its values while others go on (masks: [Allen, Kennedy, Porterfield and Warren, Conversion of
control dependence to data dependence, POPL 1983]). Several vectors of lanes go on together, so that the latency of one
chain of operations hides that of another. Both sides of an `if` are computed and each lane takes its own; what
reads memory or loops in it is skipped where no lane wants it. Operators are total and accesses are masked, so that
lanes that are done, or past the end, do no harm. Rows along a loop are read and written in squares (lane_strips.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, Statement, add, integer, multiply, operation
from tilewright.kernel.traversal import expressions, expressions_in, parts, walk
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.lane_strips import (
    Access,
    Strip,
    accesses_along,
    at_round,
    mask_of,
    read_square,
    width_of,
    write_square,
)
from tilewright.passes.lanes.lane_values import LaneValues, Line, Masks, Wide
from tilewright.passes.lanes.lane_variance import (
    LINEAR,
    STRIDED,
    UNIFORM,
    WIDE,
    LaneVariance,
    NotInLanes,
    lane_variance,
)

LONGEST_UNROLLED = 8
"""Inner loops of a constant number of rounds up to this are unrolled."""

Memory: TypeAlias = Callable[[ScalarType, int], Buffer]


def write_group(
    statements: Sequence[Statement], lane: Name, lanes: int, emit: KernelBuilder, memory: Memory,
    flags: Sequence[Name] = (),
) -> None:  # fmt: skip
    """Emit statements for all of 0 <= lane < lanes at once.

    Args:
        statements: the code of one point; points do not write what others read.
        lane: the number of the point in the group, which the statements mention.
        lanes: points of a group.
        emit: where to.
        memory: makes private memory for some elements of a type.
        flags: variables from outside that points may set, and which they read but to keep what was set.

    Raises:
        NotInLanes: where lanes would write to one place, or do what vectors do not.
    """
    variance = lane_variance(lane, statements, apart=True, flags=[one.name for one in flags])
    writer = LaneCode(emit, variance, lanes, 1, memory)
    writer.begin(lane, integer(0))
    own = [writer.declare_flag(one) for one in flags]
    writer.run(statements, None)
    for flag, parts_ in zip(flags, own, strict=True):
        emit.assign(flag, operation("or", flag, writer.values.any(parts_)))


class LaneCode:
    """Statements on scalars, emitted for `count` vectors of lanes. `memory`: for squares; without it there are none.
    `past_caches`: what is written to arrays side by side fills whole lines, past the caches.
    """

    def __init__(
        self, emit: KernelBuilder, variance: LaneVariance, lanes: int, count: int, memory: Memory | None = None,
        past_caches: bool = False,
    ) -> None:  # fmt: skip
        self.past = past_caches
        self.emit, self.variance, self.lanes, self.count, self.memory = emit, variance, lanes, count, memory
        self.values = LaneValues(emit, variance, lanes, count)
        self.known = self.values.known
        self.bools = kernel.VectorType(BOOL, lanes)
        self.squares: dict[int, tuple[Buffer, Expression]] = {}
        self.depth = 0  # conditions that differ between lanes around the current statement
        self.declared: dict[str, int] = {}  # how many there are around each variable
        self.free: frozenset[str] = frozenset()  # variables that lanes which are done need not keep

    def begin(self, index: Name, first: Expression) -> None:
        """The index of the first lane."""
        self.known[index.name] = Line(first, integer(1))

    def declare_flag(self, flag: Name) -> Sequence[Expression]:
        """A variable of the code around the lanes, as one of each of them, which is false at first."""
        parts = tuple(
            self.emit.declare(kernel.Broadcast(Constant(False, BOOL), self.bools), flag.name) for _ in range(self.count)
        )
        self.known[flag.name], self.declared[flag.name] = Wide(parts), -1  # only lanes of the masks change theirs
        return parts

    # --- statements

    def run(self, statements: Sequence[Statement], masks: Masks) -> None:
        """Emit statements, in which only the lanes of the masks (None: all) have effects."""
        for position, statement in enumerate(statements):
            match statement:
                case kernel.Let(name, value):
                    square = self.squares.get(id(statement))
                    held = self.values.bind(value, name, masks) if square is None else self._in_square(*square)
                    self.known[name] = held
                case kernel.Declare(name, value):
                    self._declare(name, value, masks)
                case kernel.Assign(name, value):
                    self._assign(name, value, masks)
                case kernel.Store():
                    self._store(statement, masks)
                case kernel.If():
                    self._if(statement, masks)
                case kernel.For():
                    self._for(statement, masks)
                case kernel.While(prelude, condition, inner):
                    self._while(prelude, condition, inner, masks, _only_inside(statements, position))
                case kernel.Comment():
                    self.emit.emit(statement)
                case kernel.Prefetch():
                    self.emit.emit(dataclasses.replace(statement, index=self.values.scalar(statement.index)))
                case _:
                    raise NotInLanes(f"{type(statement).__name__} is not done in lanes")

    def _in_square(self, square: Buffer, place: Expression) -> Wide:
        at, type_ = self.emit.let(self.values.scalar(place), "at"), kernel.VectorType(square.element, self.lanes)
        places = [add(at, integer(r * self.lanes)) for r in range(self.count)]
        return Wide(tuple(self.emit.let(kernel.Load(square, one, type_), "e") for one in places))

    def _store(self, statement: kernel.Store, masks: Masks) -> None:
        kind = self.variance.kind(statement.index)
        if kind == UNIFORM:  # the same for all
            index, value = self.values.scalar(statement.index), self.values.scalar(statement.value)
            self.emit.emit(kernel.Store(statement.buffer, index, value))
            return
        values = self.values.wide(statement.value, masks)
        if id(statement) in self.squares:
            square, place = self.squares[id(statement)]
            at = self.emit.let(self.values.scalar(place), "at")
            for r, part in enumerate(values):
                self.emit.emit(kernel.Store(square, add(at, integer(r * self.lanes)), part))
        elif kind == LINEAR:
            base = self.emit.let(self.values.line(statement.index).base, "base")
            past = self.past and statement.buffer.space is kernel.Space.GLOBAL
            for r, part in enumerate(values):
                place = add(base, integer(r * self.lanes))
                self.emit.emit(kernel.Store(statement.buffer, place, part, past, past, masks[r] if masks else None))
        else:
            self._store_apart(statement, values, masks)

    def _store_apart(self, statement: kernel.Store, values: Sequence[Expression], masks: Masks) -> None:
        """An element for each lane at a place of its own."""
        places = self._places(statement.index, masks)
        for number, at in enumerate(places):
            r, lane = divmod(number, self.lanes)
            value = self.emit.let(values[r], "value")
            store = kernel.Store(
                statement.buffer, at, self.emit.let(kernel.Lane(value, lane, kernel.element_of(value.type)), "part")
            )
            if masks is None:
                self.emit.emit(store)
            else:
                self.emit.emit(kernel.If(self.emit.let(kernel.Lane(masks[r], lane, BOOL), "holds"), (store,)))

    def _places(self, index: Expression, masks: Masks) -> list[Expression]:
        """An index for each lane."""
        every = range(self.lanes * self.count)
        if self.variance.kind(index) == STRIDED:
            line = self.values.line(index)
            base, factor = self.emit.let(line.base, "base"), self.emit.let(line.factor, "factor")
            return [self.emit.let(add(base, multiply(integer(lane), factor)), "at") for lane in every]
        parts = [self.emit.let(one, "places") for one in self.values.wide(index, masks)]
        return [self.emit.let(kernel.Lane(parts[lane // self.lanes], lane % self.lanes, I64), "at") for lane in every]

    def _declare(self, name: str, value: Expression, masks: Masks) -> None:
        if name in self.variance.variables:
            self.declared[name] = self.depth
            self.known[name] = Wide(tuple(self.emit.declare(part, name) for part in self.values.wide(value, masks)))
        else:
            self.known[name] = self.emit.declare(self.values.scalar(value), name)

    def _assign(self, name: str, value: Expression, masks: Masks) -> None:
        held = self.known.get(name, Name(name, value.type))
        if not isinstance(held, Wide):
            assert isinstance(held, Name)
            self.emit.assign(held, self.values.scalar(value))
            return
        for r, (variable, part) in enumerate(zip(held.parts, self.values.wide(value, masks), strict=True)):
            assert isinstance(variable, Name)
            keeps = self.depth > self.declared[name] and name not in self.free
            chosen = kernel.Operation("select", (masks[r], part, variable), part.type) if masks and keeps else part
            self.emit.assign(variable, chosen)

    def _if(self, statement: kernel.If, masks: Masks) -> None:
        if self.variance.kind(statement.condition) == UNIFORM:
            branches = []
            for side in (statement.then, statement.otherwise):
                with self.emit.scope() as inside:
                    self.run(side, masks)
                branches.append(tuple(inside))
            self.emit.emit(kernel.If(self.values.scalar(statement.condition), *branches))
            return
        before, self.free = self.free, frozenset()  # what one side changes is kept by the lanes of the other
        self.depth += 1
        conditions = [self.emit.let(one, "chosen") for one in self.values.wide(statement.condition, masks)]
        for side, negate in ((statement.then, False), (statement.otherwise, True)):
            if not side:
                continue
            parts = [self.emit.let(operation("not", one), "not") for one in conditions] if negate else conditions
            inner = self._both(masks, parts)
            if not any(_is_guarded(one) for one in walk(side)):
                self.run(side, inner)
                continue
            with self.emit.scope() as inside:
                self.run(side, inner)
            self.emit.emit(kernel.If(self.values.any(inner), tuple(inside)))
        self.free = before
        self.depth -= 1

    def _for(self, statement: kernel.For, masks: Masks) -> None:
        if self.variance.kind(statement.start) == UNIFORM == self.variance.kind(statement.stop):
            if self.memory is not None and masks is None:
                rows = accesses_along(statement, lambda index: self.variance.kind(index) == STRIDED)
                if rows:
                    self._strips(statement, rows, self.memory)
                    return
            start, stop, step = map(self.values.scalar, (statement.start, statement.stop, statement.step))
            name = Name(self.emit.name(statement.index), start.type)
            self.known[statement.index] = name
            with self.emit.scope() as inside:
                self.run(statement.body, masks)
            short = isinstance(start, Constant) and isinstance(stop, Constant)
            unroll = short and stop.value - start.value <= LONGEST_UNROLLED  # type: ignore[union-attr]
            self.emit.emit(kernel.For(name.name, start, stop, tuple(inside), step=step, unroll=bool(unroll)))
            return
        # Rounds that differ from lane to lane: a loop that counts in each of them.
        type_ = statement.start.type
        counter, stop = Name(statement.index, type_), Name(self.emit.name("stop"), type_)
        ends = [self.emit.snapshot(one, "stop") for one in self.values.wide(statement.stop, masks)]
        self.known[stop.name], self.variance.names[stop.name] = Wide(tuple(ends)), WIDE
        self.variance.variables.add(counter.name)
        self._declare(counter.name, statement.start, masks)
        advance = kernel.Assign(counter.name, operation("add", counter, kernel.Cast(statement.step, type_)))
        condition = operation("lt", counter, stop)
        self._while((), condition, (*statement.body, advance), masks, frozenset((counter.name,)))

    def _while(
        self, prelude: Sequence[Statement], condition: Expression, body: Sequence[Statement], masks: Masks,
        own: frozenset[str],
    ) -> None:  # fmt: skip
        """`own`: variables that nothing after the loop reads."""
        if masks is None and self.variance.kind(condition) == UNIFORM:
            with self.emit.scope() as before:
                self.run(prelude, None)
                going: Expression = self.emit.let(self.values.scalar(condition), "going")
            with self.emit.scope() as inside:
                self.run(body, None)
            self.emit.emit(kernel.While(tuple(before), going, tuple(inside)))
            return
        active = [self.emit.declare(one, "active") for one in masks or [self._all()] * self.count]
        outer, self.free = self.free, own
        self.depth += 1
        with self.emit.scope() as before:
            self.run(prelude, active)
            parts = self._both(active, self.values.wide(condition, active))
            for variable, part in zip(active, parts, strict=True):
                self.emit.assign(variable, part)
            going = self.values.any(parts)
        with self.emit.scope() as inside:
            self.run(body, active)
        self.emit.emit(kernel.While(tuple(before), going, tuple(inside)))
        self.free = outer
        self.depth -= 1

    # --- squares

    def _strips(self, loop: kernel.For, rows: Sequence[Access], memory: Memory) -> None:
        """A loop with the elements of these rows in squares."""
        width, points = width_of(rows, self.lanes), self.lanes * self.count
        start, stop = map(self.values.scalar, (loop.start, loop.stop))
        first = Name(self.emit.name("strip"), I64)
        with self.emit.scope() as strip_body:
            count = self.emit.let(operation("min", integer(width), operation("sub", stop, first)), "count")
            strip = Strip(loop, first, count, width, points)
            mask = mask_of(self.emit, strip)
            squares = [memory(one.buffer.element, width * points) for one in rows]
            lines = []
            for one, square in zip(rows, squares, strict=True):
                line = self.values.line(at_round(one.index, loop.index, strip.lowest(one)))
                lines.append((self.emit.let(line.base, "base"), self.emit.let(line.factor, "factor")))
                self.squares[id(one.statement)] = square, strip.place(one)
                if isinstance(one.statement, kernel.Let):
                    read_square(self.emit, one, lines[-1], square, strip, mask)
            index = Name(self.emit.name(loop.index), I64)
            self.known[loop.index] = index
            with self.emit.scope() as body:
                self.run(loop.body, None)
            self.emit.emit(kernel.For(index.name, first, operation("add", first, count), tuple(body)))
            for one, square, place in zip(rows, squares, lines, strict=True):
                if isinstance(one.statement, kernel.Store):
                    write_square(self.emit, one, place, square, strip, mask)
        self.emit.emit(kernel.For(first.name, start, stop, tuple(strip_body), step=integer(width)))

    # --- masks

    def _all(self) -> Expression:
        return kernel.Broadcast(Constant(True, BOOL), self.bools)

    def _both(self, masks: Masks, conditions: Sequence[Expression]) -> list[Expression]:
        if masks is None:
            return list(conditions)
        return [self.emit.let(operation("and", *pair), "where") for pair in zip(masks, conditions, strict=True)]


def _is_guarded(statement: Statement) -> bool:
    """What lanes that do not want it must not do for nothing: loop, and touch memory at an index of theirs."""
    return isinstance(statement, kernel.For | kernel.While | kernel.Store) or any(
        isinstance(one, kernel.Load) for one in parts(expressions(statement))
    )


def _only_inside(statements: Sequence[Statement], position: int) -> frozenset[str]:
    """Variables that are declared before a loop, in the same list of statements, and read nowhere but in the loop."""
    declared = {one.name for one in statements[:position] if isinstance(one, kernel.Declare)}
    others = [one for place, one in enumerate(statements) if place != position]
    return frozenset(declared - {one.name for one in expressions_in(others) if isinstance(one, Name)})
