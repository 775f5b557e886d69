"""A loop whose iterations may run together, in the lanes of vectors; loops inside run until no lane goes on.

    for j: ... while c(j): t(j) ...
=>  for each group of js: ... active = all lanes; while any lane of (active = active and c(group)): t(group) ...

A lane that is done keeps its values while others go on (masks: [Allen, Kennedy, Porterfield and Warren, Conversion of
control dependence to data dependence, POPL 1983]). Several vectors of lanes go on together, so that the latency of one
chain of operations hides that of another. Both sides of an `if` are computed and each lane takes its own; what
reads memory or loops in it is skipped where no lane wants it. Operators are total and loads are masked, so that lanes
that are done, or past the end, do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import (
    AnyLane,
    Assign,
    Broadcast,
    Cast,
    Comment,
    Constant,
    Declare,
    Expression,
    FirstLanes,
    For,
    If,
    LaneNumbers,
    Let,
    Load,
    Name,
    Operation,
    Statement,
    Store,
    VectorType,
    While,
    add,
    element_of,
    operation,
)
from tilewright.kernel.llvm_vector_math import FUNCTIONS
from tilewright.machine.model import Machine
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.lane_variance import LINEAR, UNIFORM, WIDE, LaneVariance, NotInLanes, lane_variance

LONGEST_UNROLLED = 8
"""Inner loops of a constant number of rounds up to this are unrolled."""

TEMPORARIES = 8
"""Vector registers beside the variables of a loop."""

WRITTEN_OUT = frozenset({"rsqrt", *FUNCTIONS})
"""Functions that have better forms for vectors than LLVM's vectoriser makes of scalar code."""

Masks = Sequence[Expression] | None


@dataclass(frozen=True)
class OneByOne:
    """Why iterations do not go on together; `scalar`: so that vectors which the machine has are not used."""

    reason: str
    scalar: bool = True


@dataclass(frozen=True)
class _Linear:
    """One more in each lane: what it is in the first lane of the first vector."""

    base: Expression


@dataclass(frozen=True)
class _Wide:
    """A vector of values for each vector of lanes."""

    parts: tuple[Expression, ...]


_Held = Expression | _Linear | _Wide


def emit_in_lanes(
    emit: KernelBuilder,
    bounds: tuple[Expression, Expression],
    index: Name,
    body: Sequence[Statement],
    machine: Machine | None,
) -> int | OneByOne:
    """Emit a loop over independent iterations in lanes, if it can be and is worth it.

    Args:
        emit: where to.
        bounds: the first index and the one after the last.
        index, body: the loop's index and what is done for it, in scalars.
        machine: has the vectors; None for none.

    Returns:
        How many iterations go on together, or why none do; then nothing is emitted.
    """
    if machine is None or not machine.vector_bytes:
        return OneByOne("the machine has no vectors", scalar=False)
    if not is_worth_lanes(body):
        return OneByOne("the compiler puts code without loops and functions into vectors by itself", scalar=False)
    try:
        variance = lane_variance(index, body)
    except NotInLanes as error:
        return OneByOne(str(error))
    lanes = machine.lanes(variance.widest)
    if lanes < 2:
        return OneByOne(f"one number of {variance.widest} bytes fills a register")
    low, high = bounds
    vectors = _vectors(body, variance, machine)
    group = Constant(lanes * vectors, I64)
    span = operation("sub", high, low)
    middle = emit.let(add(low, operation("mul", operation("floordiv", span, group), group)), "middle")
    for start, stop, count, is_rest in ((low, middle, vectors, False), (middle, high, 1, True)):
        first = Name(emit.name("first"), I64)
        with emit.scope() as inside:
            writer = _Writer(emit, variance, lanes, count)
            writer.known[index.name] = _Linear(first)
            rest = emit.let(operation("sub", stop, first), "rest") if is_rest else None
            masks = [emit.let(FirstLanes(rest, writer.bools), "mask")] if rest is not None else None
            writer.run(body, masks)
        emit.emit(For(first.name, start, stop, tuple(inside), step=Constant(lanes * count, I64)))
    return lanes * vectors


def is_worth_lanes(body: Sequence[Statement]) -> bool:
    """Whether there are loops, or functions whose vector forms are better than what LLVM makes of scalars."""
    every = tuple(kernel.walk(tuple(body)))
    if any(isinstance(one, For | While) for one in every):
        return True
    return any(_has_function(expression) for one in every for expression in kernel.expressions(one))


def _has_function(expression: Expression) -> bool:
    if isinstance(expression, Operation) and expression.operator in WRITTEN_OUT:
        return True
    return any(map(_has_function, kernel.children(expression)))


def _vectors(body: Sequence[Statement], variance: LaneVariance, machine: Machine) -> int:
    """Vectors of lanes that go on together: two, if the variables of loops inside have room for two."""
    live = sum(isinstance(one, Declare) and one.name in variance.variables for one in kernel.walk(tuple(body)))
    return 2 if 2 * live + TEMPORARIES <= machine.vector_registers else 1


class _Writer:
    """Statements on scalars, emitted for `count` vectors of lanes. `known`: what stands for each of their names."""

    def __init__(self, emit: KernelBuilder, variance: LaneVariance, lanes: int, count: int) -> None:
        self.emit, self.variance, self.lanes, self.count = emit, variance, lanes, count
        self.bools = VectorType(BOOL, lanes)
        self.known: dict[str, _Held] = {}
        self.depth = 0  # conditions that differ between lanes around the current statement
        self.declared: dict[str, int] = {}  # how many there are around each variable
        self.free: frozenset[str] = frozenset()  # variables that lanes which are done need not keep

    # --- statements

    def run(self, statements: Sequence[Statement], masks: Masks) -> None:
        """Emit statements, in which only the lanes of the masks (None: all) have effects."""
        for position, statement in enumerate(statements):
            match statement:
                case Let(name, value):
                    self.known[name] = self._bound(value, name, masks)
                case Declare(name, value):
                    self._declare(name, value, masks)
                case Assign(name, value):
                    self._assign(name, value, masks)
                case Store(buffer, index, value, mask=None):
                    base = self._linear(index, masks)
                    for r, part in enumerate(self._wide(value, masks)):
                        at = add(base, Constant(r * self.lanes, I64))
                        self.emit.emit(Store(buffer, at, part, mask=masks[r] if masks else None))
                case If():
                    self._if(statement, masks)
                case For():
                    self._for(statement, masks)
                case While(prelude, condition, inner):
                    self._while(prelude, condition, inner, masks, _only_inside(statements, position))
                case Comment():
                    self.emit.emit(statement)
                case _:
                    raise NotInLanes(f"{type(statement).__name__} is not done in lanes")

    def _bound(self, value: Expression, name: str, masks: Masks) -> _Held:
        kind = self.variance.kind(value)
        bind = self.emit.snapshot if isinstance(value, Name) else self.emit.let  # a variable may change later
        if kind == UNIFORM:
            return bind(self._scalar(value), name)
        if kind == LINEAR:
            return _Linear(bind(self._linear(value, masks), name))
        return _Wide(tuple(bind(part, name) for part in self._wide(value, masks)))

    def _declare(self, name: str, value: Expression, masks: Masks) -> None:
        if name in self.variance.variables:
            self.declared[name] = self.depth
            self.known[name] = _Wide(tuple(self.emit.declare(part, name) for part in self._wide(value, masks)))
        else:
            self.known[name] = self.emit.declare(self._scalar(value), name)

    def _assign(self, name: str, value: Expression, masks: Masks) -> None:
        held = self.known[name]
        if not isinstance(held, _Wide):
            assert isinstance(held, Name)
            self.emit.assign(held, self._scalar(value))
            return
        for r, (variable, part) in enumerate(zip(held.parts, self._wide(value, masks), strict=True)):
            assert isinstance(variable, Name)
            keeps = self.depth > self.declared[name] and name not in self.free
            chosen = Operation("select", (masks[r], part, variable), part.type) if masks and keeps else part
            self.emit.assign(variable, chosen)

    def _if(self, statement: If, masks: Masks) -> None:
        if self.variance.kind(statement.condition) == UNIFORM:
            branches = []
            for side in (statement.then, statement.otherwise):
                with self.emit.scope() as inside:
                    self.run(side, masks)
                branches.append(tuple(inside))
            self.emit.emit(If(self._scalar(statement.condition), *branches))
            return
        before, self.free = self.free, frozenset()  # what one side changes is kept by the lanes of the other
        self.depth += 1
        conditions = [self.emit.let(one, "chosen") for one in self._wide(statement.condition, masks)]
        for side, negate in ((statement.then, False), (statement.otherwise, True)):
            if not side:
                continue
            parts = [self.emit.let(operation("not", one), "not") for one in conditions] if negate else conditions
            inner = self._both(masks, parts)
            if not any(_is_guarded(one) for one in kernel.walk(side)):
                self.run(side, inner)
                continue
            with self.emit.scope() as inside:
                self.run(side, inner)
            self.emit.emit(If(self._any(inner), tuple(inside)))
        self.free = before
        self.depth -= 1

    def _for(self, statement: For, masks: Masks) -> None:
        if self.variance.kind(statement.start) == UNIFORM == self.variance.kind(statement.stop):
            start, stop, step = map(self._scalar, (statement.start, statement.stop, statement.step))
            name = Name(self.emit.name(statement.index), start.type)
            self.known[statement.index] = name
            with self.emit.scope() as inside:
                self.run(statement.body, masks)
            short = isinstance(start, Constant) and isinstance(stop, Constant)
            unroll = short and stop.value - start.value <= LONGEST_UNROLLED  # type: ignore[union-attr]
            self.emit.emit(For(name.name, start, stop, tuple(inside), step=step, unroll=bool(unroll)))
            return
        # Rounds that differ from lane to lane: a loop that counts in each of them.
        type_ = statement.start.type
        counter, stop = Name(statement.index, type_), Name(self.emit.name("stop"), type_)
        ends = [self.emit.snapshot(one, "stop") for one in self._wide(statement.stop, masks)]
        self.known[stop.name], self.variance.names[stop.name] = _Wide(tuple(ends)), WIDE
        self.variance.variables.add(counter.name)
        self._declare(counter.name, statement.start, masks)
        advance = Assign(counter.name, operation("add", counter, Cast(statement.step, type_)))
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
                going: Expression = self.emit.let(self._scalar(condition), "going")
            with self.emit.scope() as inside:
                self.run(body, None)
            self.emit.emit(While(tuple(before), going, tuple(inside)))
            return
        active = [self.emit.declare(one, "active") for one in masks or [self._all()] * self.count]
        outer, self.free = self.free, own
        self.depth += 1
        with self.emit.scope() as before:
            self.run(prelude, active)
            parts = self._both(active, self._wide(condition, active))
            for variable, part in zip(active, parts, strict=True):
                self.emit.assign(variable, part)
            going = self._any(parts)
        with self.emit.scope() as inside:
            self.run(body, active)
        self.emit.emit(While(tuple(before), going, tuple(inside)))
        self.free = outer
        self.depth -= 1

    # --- masks

    def _all(self) -> Expression:
        return Broadcast(Constant(True, BOOL), self.bools)

    def _both(self, masks: Masks, conditions: Sequence[Expression]) -> list[Expression]:
        if masks is None:
            return list(conditions)
        return [self.emit.let(operation("and", *pair), "where") for pair in zip(masks, conditions, strict=True)]

    def _any(self, masks: Sequence[Expression]) -> Expression:
        whole = masks[0]
        for one in masks[1:]:
            whole = operation("or", whole, one)
        return self.emit.let(AnyLane(whole), "any")

    # --- expressions

    def _scalar(self, expression: Expression) -> Expression:
        """An expression that is the same in all lanes."""
        match expression:
            case Name(name):
                held = self.known.get(name, expression)
                assert not isinstance(held, _Linear | _Wide)
                return held
            case Operation(operator, operands, type_):
                return Operation(operator, tuple(map(self._scalar, operands)), type_)
            case Cast(operand, type_):
                return Cast(self._scalar(operand), type_)
            case Load(buffer, index, type_, aligned):
                return Load(buffer, self._scalar(index), type_, aligned)
        return expression

    def _linear(self, expression: Expression, masks: Masks) -> Expression:
        """What an expression that grows by one with each lane is in the first."""
        match expression:
            case Name(name):
                held = self.known[name]
                assert isinstance(held, _Linear)
                return held.base
            case Cast(operand):
                return self._linear(operand, masks)
            case Operation(operator, (left, right), type_):
                parts = [
                    self._linear(one, masks) if self.variance.kind(one) == LINEAR else self._scalar(one)
                    for one in (left, right)
                ]
                return Operation(operator, tuple(parts), type_)
        raise NotInLanes("memory is written at places that are not side by side")

    def _wide(self, expression: Expression, masks: Masks) -> tuple[Expression, ...]:
        """The vectors of an expression."""
        scalar = element_of(expression.type)
        type_ = VectorType(scalar, self.lanes)
        kind = self.variance.kind(expression)
        if kind == UNIFORM:
            value = self._scalar(expression)
            value = value if isinstance(value, Name | Constant) else self.emit.let(value, "same")
            return (Broadcast(value, type_),) * self.count
        if kind == LINEAR:
            base = self.emit.let(self._linear(expression, masks), "base")
            return tuple(self._numbers(add(base, Constant(r * self.lanes, I64)), scalar) for r in range(self.count))
        match expression:
            case Name(name):
                held = self.known[name]
                assert isinstance(held, _Wide)
                return held.parts
            case Cast(operand):
                return tuple(Cast(part, type_) for part in self._wide(operand, masks))
            case Load(buffer, index):
                base = self.emit.let(self._linear(index, masks), "base")
                places = [add(base, Constant(r * self.lanes, I64)) for r in range(self.count)]
                return tuple(Load(buffer, at, type_, mask=masks[r] if masks else None) for r, at in enumerate(places))
            case Operation(operator, operands):
                if operator == "select" and self.variance.kind(operands[0]) == UNIFORM:
                    condition: tuple[Expression, ...] = (self._scalar(operands[0]),) * self.count
                    given = [condition, *(self._wide(one, masks) for one in operands[1:])]
                else:
                    given = [self._wide(one, masks) for one in operands]
                return tuple(Operation(operator, parts, type_) for parts in zip(*given, strict=True))
        raise NotInLanes(f"{type(expression).__name__} is not done in lanes")

    def _numbers(self, base: Expression, scalar: ScalarType) -> Expression:
        type_ = VectorType(scalar, self.lanes)
        return operation("add", Broadcast(base, type_), LaneNumbers(type_))


def _is_guarded(statement: Statement) -> bool:
    """What lanes that do not want it must not do for nothing: loop, and touch memory at an index of theirs."""
    return isinstance(statement, For | While | Store) or any(map(_loads, kernel.expressions(statement)))


def _loads(expression: Expression) -> bool:
    return isinstance(expression, Load) or any(map(_loads, kernel.children(expression)))


def _only_inside(statements: Sequence[Statement], position: int) -> frozenset[str]:
    """Variables that are declared before a loop, in the same list of statements, and read nowhere but in the loop."""
    declared = {one.name for one in statements[:position] if isinstance(one, Declare)}
    others = [one for place, one in enumerate(statements) if place != position]
    read: set[str] = set()
    for one in kernel.walk(tuple(others)):
        for expression in kernel.expressions(one):
            _note_names(expression, read)
    return frozenset(declared - read)


def _note_names(expression: Expression, names: set[str]) -> None:
    if isinstance(expression, Name):
        names.add(expression.name)
    for one in kernel.children(expression):
        _note_names(one, names)
