"""Expressions of one point, for neighbouring points in the lanes of vectors.

    x[row * n + j], x[c * j], x[min(j + 1, n - 1)]  for j = first + lane
    =>  x[row * n + first ..], a gather of x[c * first], x[c * (first + 1)], ..., either

What does not depend on the lane stays scalar. An index `base + factor * lane` is known by its base and its factor: with
the factor 1 neighbours lie side by side and are one access; otherwise each lane has its own (a gather, which reads
nothing for lanes that are masked). An index that is clamped, or taken modulo an extent, is mostly such a line still: a
group of lanes that lies between the edges reads side by side, any other one gathers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Name, add, integer, multiply, operation
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.lane_variance import LINEAR, NEAR, STRIDED, UNIFORM, LaneVariance, NotInLanes

Masks = Sequence[Expression] | None


@dataclass(frozen=True)
class Line:
    """The integers base + factor * lane; both are scalars that do not depend on the lane."""

    base: Expression
    factor: Expression


@dataclass(frozen=True)
class Near:
    """Integers that are base + lane if `exact` holds (None: always)."""

    base: Expression
    exact: Expression | None


@dataclass(frozen=True)
class Wide:
    """A vector of values for each vector of lanes."""

    parts: tuple[Expression, ...]


Held = Expression | Line | Wide


class LaneValues:
    """Expressions on scalars, emitted for `count` vectors of lanes.

    `known` is what stands for each of their names; `near` holds those that are lines but for edges.
    """

    def __init__(self, emit: KernelBuilder, variance: LaneVariance, lanes: int, count: int) -> None:
        self.emit, self.variance, self.lanes, self.count = emit, variance, lanes, count
        self.known: dict[str, Held] = {}
        self.near: dict[str, Near] = {}

    def bind(self, value: Expression, name: str, masks: Masks) -> Held:
        """What stands for a name that is bound to a value."""
        kind = self.variance.kind(value)
        bind = self.emit.snapshot if isinstance(value, Name) else self.emit.let  # a variable may change later
        if kind == UNIFORM:
            return bind(self.scalar(value), name)
        if kind in (LINEAR, STRIDED):
            line = self.line(value)
            return Line(self.emit.snapshot(line.base, name), self.emit.snapshot(line.factor, "factor"))
        if kind == NEAR:
            near = self.near_line(value, masks)
            exact = None if near.exact is None else self.emit.snapshot(near.exact, "exact")
            self.near[name] = Near(self.emit.snapshot(near.base, name), exact)
        return Wide(tuple(bind(part, name) for part in self.wide(value, masks)))

    def scalar(self, expression: Expression) -> Expression:
        """An expression that is the same in all lanes."""
        match expression:
            case Name(name):
                held = self.known.get(name, expression)
                assert not isinstance(held, Line | Wide)
                return held
            case kernel.Operation(operator, operands, type_):
                return kernel.Operation(operator, tuple(map(self.scalar, operands)), type_)
            case kernel.Cast(operand, type_):
                return kernel.Cast(self.scalar(operand), type_)
            case kernel.Load(buffer, index, type_, aligned):
                return kernel.Load(buffer, self.scalar(index), type_, aligned)
        return expression

    # --- lines

    def line(self, expression: Expression) -> Line:
        """An integer that is a line, as one."""
        if self.variance.kind(expression) == UNIFORM:
            return Line(self.scalar(expression), integer(0))
        match expression:
            case Name(name):
                held = self.known[name]
                assert isinstance(held, Line)
                return held
            case kernel.Cast(operand):
                return self.line(operand)
            case kernel.Operation("add" | "sub" | "mul" as operator, (left, right)):
                one, two = self.line(left), self.line(right)
                if operator == "add":
                    return Line(add(one.base, two.base), add(one.factor, two.factor))
                if operator == "sub":
                    return Line(_minus(one.base, two.base), _minus(one.factor, two.factor))
                for fixed, other in ((one, two), (two, one)):
                    if fixed.factor == integer(0):
                        return Line(multiply(fixed.base, other.base), multiply(fixed.base, other.factor))
        raise NotInLanes(f"{type(expression).__name__} is no line")

    def near_line(self, expression: Expression, masks: Masks) -> Near:
        """An integer that is a line with the factor 1 but for edges, as one."""
        if self.variance.kind(expression) == LINEAR:
            return Near(self.line(expression).base, None)
        match expression:
            case Name(name):
                return self.near[name]
            case kernel.Operation("select", (condition, _, otherwise)):
                near = self.near_line(otherwise, masks)
                taken = self.any(self.wide(condition, masks))
                return Near(near.base, _both(near.exact, operation("not", taken)))
            case kernel.Operation(operator, (left, right)):
                moves, by = (left, right) if self.variance.kind(right) == UNIFORM else (right, left)
                return self._moved(operator, self.near_line(moves, masks), by)
        raise NotInLanes(f"{type(expression).__name__} is no line but for edges")

    def _moved(self, operator: str, near: Near, other: Expression) -> Near:
        """A line with something added to it, clamped or taken modulo something."""
        by = self.scalar(other)
        by = by if isinstance(by, Name | Constant) else self.emit.let(by, "by")
        if operator in ("add", "sub"):
            return Near(add(near.base, by) if operator == "add" else _minus(near.base, by), near.exact)
        first = self.emit.let(near.base, "first")
        if operator == "mod":
            first = self.emit.let(operation("mod", first, by), "first")
        last = add(first, integer(self.lanes * self.count - 1))
        exact = operation("ge", first, by) if operator == "max" else operation("le", last, by)
        exact = operation("lt", last, by) if operator == "mod" else exact
        return Near(first, _both(near.exact, exact))

    # --- vectors

    def any(self, masks: Sequence[Expression]) -> Expression:
        """Whether any lane of some vectors is true."""
        whole = masks[0]
        for one in masks[1:]:
            whole = operation("or", whole, one)
        return self.emit.let(kernel.AnyLane(whole), "any")

    def wide(self, expression: Expression, masks: Masks) -> tuple[Expression, ...]:
        """The vectors of an expression; what is masked may be anything."""
        type_ = kernel.VectorType(kernel.element_of(expression.type), self.lanes)
        kind = self.variance.kind(expression)
        if kind == UNIFORM:
            value = self.scalar(expression)
            value = value if isinstance(value, Name | Constant) else self.emit.let(value, "same")
            return (kernel.Broadcast(value, type_),) * self.count
        if kind in (LINEAR, STRIDED):
            return self._numbers(self.line(expression), type_)
        match expression:
            case Name(name):
                held = self.known[name]
                assert isinstance(held, Wide)
                return held.parts
            case kernel.Cast(operand):
                return tuple(
                    part if part.type == type_ else kernel.Cast(part, type_) for part in self.wide(operand, masks)
                )
            case kernel.Load():
                return self._load(expression, type_, masks)
            case kernel.Operation(operator, operands):
                if operator == "select" and self.variance.kind(operands[0]) == UNIFORM:
                    condition: tuple[Expression, ...] = (self.scalar(operands[0]),) * self.count
                    given = [condition, *(self.wide(one, masks) for one in operands[1:])]
                else:
                    given = [self.wide(one, masks) for one in operands]
                return tuple(kernel.Operation(operator, parts, type_) for parts in zip(*given, strict=True))
        raise NotInLanes(f"{type(expression).__name__} is not done in lanes")

    def _numbers(self, line: Line, type_: kernel.VectorType) -> tuple[Expression, ...]:
        base, factor = self.emit.let(line.base, "base"), self.emit.let(line.factor, "factor")
        numbers: Expression = kernel.LaneNumbers(type_)
        if factor != integer(1):
            numbers = self.emit.let(operation("mul", kernel.Broadcast(factor, type_), numbers), "apart")
        first = [add(base, multiply(factor, integer(r * self.lanes))) for r in range(self.count)]
        return tuple(operation("add", kernel.Broadcast(one, type_), numbers) for one in first)

    def _load(self, load: kernel.Load, type_: kernel.VectorType, masks: Masks) -> tuple[Expression, ...]:
        kind = self.variance.kind(load.index)
        if kind == LINEAR:
            return self._side_by_side(load, self.line(load.index).base, type_, masks)
        if kind != NEAR:
            return self._gathered(load, self.wide(load.index, masks), type_, masks)
        near = self.near_line(load.index, masks)
        assert near.exact is not None
        zero = kernel.Broadcast(Constant((type_.element.is_float and 0.0) or 0, type_.element), type_)
        found = tuple(self.emit.declare(zero, "e") for _ in range(self.count))

        def set_to(parts: Sequence[Expression]) -> None:
            for variable, part in zip(found, parts, strict=True):
                self.emit.assign(variable, part)

        places = self.wide(load.index, masks)
        self.emit.when(
            near.exact,
            lambda: set_to(self._side_by_side(load, near.base, type_, masks)),
            lambda: set_to(self._gathered(load, places, type_, masks)),
        )
        return tuple(self.emit.snapshot(one, "e") for one in found)

    def _side_by_side(
        self, load: kernel.Load, first: Expression, type_: kernel.VectorType, masks: Masks
    ) -> tuple[Expression, ...]:
        base = self.emit.let(first, "base")
        places = [add(base, integer(r * self.lanes)) for r in range(self.count)]
        return tuple(
            kernel.Load(load.buffer, at, type_, mask=masks[r] if masks else None) for r, at in enumerate(places)
        )

    def _gathered(
        self, load: kernel.Load, places: Sequence[Expression], type_: kernel.VectorType, masks: Masks
    ) -> tuple[Expression, ...]:
        found = [kernel.Load(load.buffer, at, type_, mask=masks[r] if masks else None) for r, at in enumerate(places)]
        return tuple(self.emit.let(one, "gathered") for one in found)


def _both(one: Expression | None, two: Expression) -> Expression:
    return two if one is None else operation("and", one, two)


def _minus(left: Expression, right: Expression) -> Expression:
    if isinstance(right, Constant):
        return add(left, Constant(-right.value, I64))
    return operation("sub", left, right)
