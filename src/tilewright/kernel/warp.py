"""What the threads of one warp compute: index expressions of a kernel evaluated for all of them at once, by samples.

Values are NumPy arrays with one entry per thread; what is loaded from memory is unknown (None), and so is all that
depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import ScalarType
from tilewright.kernel import ir
from tilewright.kernel.ir import Buffer, Constant, Expression, Kernel, Load, Name, Statement, Store, VectorType
from tilewright.kernel.traversal import bodies, expressions, parts

Value: TypeAlias = "np.ndarray[Any, Any] | None"


@dataclass(frozen=True)
class Sample:
    """Which threads of which block look at which iteration of every loop (counted from 0)."""

    block: int
    first_thread: int
    warp: int
    iteration: int


@dataclass(frozen=True)
class Place:
    """Where a statement stands: the loops around it, outermost first."""

    loops: tuple[ir.For | ir.While, ...] = ()

    def __str__(self) -> str:
        return "".join(f"for {loop.index} / " if isinstance(loop, ir.For) else "while / " for loop in self.loops)


@dataclass(frozen=True)
class Touch:
    """One access by one warp: `index` per thread (None: unknown), and which of the threads take part.

    `times` is how often it happens: the product of the rounds of the loops around it, of which unknown ones count once.
    """

    buffer: Buffer
    lanes: int
    is_store: bool
    expression: Expression
    place: Place
    index: Value
    active: np.ndarray[Any, Any]
    times: int = 1


@dataclass
class Walker:
    """Goes through a kernel once for one sample and notes every access; each loop's body is visited once."""

    kernel: Kernel
    sample: Sample
    environment: dict[str, Value]
    touches: list[Touch] = field(default_factory=list)
    times: int = 1

    def walk(self, body: tuple[Statement, ...], place: Place, active: np.ndarray[Any, Any]) -> None:
        """Visit statements in order."""
        for statement in body:
            for expression in expressions(statement):
                self.loads(expression, place, active)
            match statement:
                case ir.Let(name=name, value=value) | ir.Declare(name=name, value=value):
                    self.environment[name] = self.value(value)
                case ir.AtomicUpdate(old=name, buffer=buffer, index=index):
                    self.environment[name] = None
                    self.touch(buffer, 1, True, index, place, active)
                case ir.Assign(name=name, value=value):
                    self.assign(name, self.value(value), active)
                case Store(buffer=buffer, index=index, value=value):
                    lanes = value.type.lanes if isinstance(value.type, VectorType) else 1
                    self.touch(buffer, lanes, True, index, place, active)
                case ir.For():
                    self.loop(statement, place, active)
                case ir.While(prelude=prelude, body=inside):
                    within = replace(place, loops=(*place.loops, statement))
                    self.walk(prelude, within, active)
                    self.walk(inside, within, active & self.holds(statement.condition, True))
                case ir.If(condition=condition, then=then, otherwise=otherwise):
                    self.walk(then, place, active & self.holds(condition, True))
                    self.walk(otherwise, place, active & self.holds(condition, False))

    def loop(self, statement: ir.For, place: Place, active: np.ndarray[Any, Any]) -> None:
        """One iteration: the sample's, or the last one where the loop has fewer."""
        start, stop, step = (self.value(e) for e in (statement.start, statement.stop, statement.step))
        value, outside = start, self.times
        if start is not None and step is not None:
            ahead = np.full_like(start, self.sample.iteration)
            if stop is not None:
                last = np.maximum(
                    (stop.astype(object) - start.astype(object) - 1) // np.maximum(step, 1).astype(object), 0
                )
                ahead = np.minimum(ahead, last.astype(start.dtype))
                active = active & (start < stop)
                self.times *= int(np.max(last)) + 1
            value = start + ahead * step.astype(start.dtype)
        self.environment[statement.index] = value
        self.walk(statement.body, replace(place, loops=(*place.loops, statement)), active)
        self.times = outside

    def assign(self, name: str, value: Value, active: np.ndarray[Any, Any]) -> None:
        """Threads that take no part keep what they had."""
        before = self.environment.get(name)
        self.environment[name] = None if value is None or before is None else np.where(active, value, before)

    def holds(self, condition: Expression, wanted: bool) -> np.ndarray[Any, Any]:
        """The threads for which a condition is as wanted; all where it is unknown."""
        value = self.value(condition)
        return np.ones(self.sample.warp, bool) if value is None else value.astype(bool) == wanted

    def loads(self, expression: Expression, place: Place, active: np.ndarray[Any, Any]) -> None:
        """Note the loads inside an expression."""
        for one in parts([expression]):
            if isinstance(one, Load):
                lanes = one.type.lanes if isinstance(one.type, VectorType) else 1
                self.touch(one.buffer, lanes, False, one.index, place, active)

    def touch(
        self, buffer: Buffer, lanes: int, is_store: bool, index: Expression, place: Place, active: np.ndarray[Any, Any]
    ) -> None:
        """Note one access."""
        self.touches.append(Touch(buffer, lanes, is_store, index, place, self.value(index), active, self.times))

    # --- values ---

    def value(self, expression: Expression) -> Value:
        """An expression for every thread of the warp, None where it depends on memory or on vectors."""
        type_ = expression.type
        if isinstance(type_, VectorType):
            return None
        match expression:
            case Constant(value=constant):
                return _everywhere(constant, type_, self.sample.warp)
            case Name(name=name):
                return self.environment.get(name)
            case ir.BlockIndex():
                return np.full(self.sample.warp, self.sample.block, type_.numpy)
            case ir.ThreadIndex():
                return np.arange(self.sample.first_thread, self.sample.first_thread + self.sample.warp).astype(
                    type_.numpy
                )
            case ir.Cast(operand=operand):
                value = self.value(operand)
                with np.errstate(all="ignore"):
                    return None if value is None else value.astype(type_.numpy)
            case ir.Operation(operator=operator, operands=operands):
                values = [self.value(operand) for operand in operands]
                if operator not in OPERATORS or any(value is None for value in values):
                    return None
                with np.errstate(all="ignore"):
                    return np.asarray(OPERATORS[operator].meaning(*values))
        return None


def _everywhere(value: int | float | bool, type_: ScalarType, warp: int) -> np.ndarray[Any, Any]:
    """A value in every thread; integers wrap to their type."""
    if type_.is_integer:
        wrapped = int(value) & ((1 << type_.bits) - 1)
        value = wrapped - (1 << type_.bits) if type_.kind == "i" and wrapped >> (type_.bits - 1) else wrapped
    return np.full(warp, value, type_.numpy)


def touches(kernel: Kernel, scalars: Mapping[str, int], sample: Sample) -> list[Touch]:
    """Every access of one warp. Scalars that are not given are unknown."""
    types = {scalar.name: scalar.type for scalar in kernel.scalars}
    environment: dict[str, Value] = {
        name: _everywhere(value, types[name], sample.warp) for name, value in scalars.items() if name in types
    }
    walker = Walker(kernel, sample, environment)
    present = np.arange(sample.first_thread, sample.first_thread + sample.warp) < kernel.threads_per_block
    walker.walk(kernel.body, Place(), present)
    return walker.touches


def contains(body: tuple[Statement, ...], kind: type[Statement]) -> bool:
    """True if a statement of a kind is in a body or deeper."""
    return any(
        isinstance(statement, kind) or any(contains(inner, kind) for inner in bodies(statement)) for statement in body
    )
