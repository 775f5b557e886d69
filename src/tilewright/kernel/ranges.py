"""Bounds of integer expressions in a kernel, from the launch shape, constants and loop bounds.

The C printers use them: where an operation cannot leave its type, plain signed arithmetic prints (and compiles) better
than the wrapping form; where a dividend cannot be negative, `/` and `%` are already Python's.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I32, ScalarType
from tilewright.kernel import ir
from tilewright.kernel.ir import Constant, Expression, Kernel, Name, VectorType
from tilewright.kernel.traversal import walk

Interval: TypeAlias = tuple[int, int]

MOST_BLOCKS = 1 << 40  # far more than any launch can ever finish


def whole_range(scalar: ScalarType) -> Interval:
    """All values of an integer or bool type."""
    if scalar.kind == "b":
        return (0, 1)
    if scalar.kind == "u":
        return (0, (1 << scalar.bits) - 1)
    return (-(1 << (scalar.bits - 1)), (1 << (scalar.bits - 1)) - 1)


def _inside(inner: Interval, outer: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


@dataclass
class Ranges:
    """Bounds of a kernel's integer names and expressions (memoised by identity: expressions may be shared)."""

    threads: int
    names: dict[str, Interval] = field(default_factory=dict)
    _memo: dict[int, tuple[Expression, Interval]] = field(default_factory=dict)

    def of(self, expression: Expression) -> Interval:
        """The least and the greatest value that an integer or bool scalar can have."""
        known = self._memo.get(id(expression))
        if known is None:
            known = (expression, self._compute(expression))
            self._memo[id(expression)] = known
        return known[1]

    def forget_expressions(self) -> None:
        """To be called after the bounds of a name changed."""
        self._memo.clear()

    def fits(self, operation: ir.Operation) -> bool:
        """True if add, sub, mul or neg on these operands can never leave the type, so that nothing wraps."""
        type_ = operation.type
        if isinstance(type_, VectorType) or not type_.is_integer:
            return False
        exact = self._exact(operation)
        return exact is not None and _inside(exact, whole_range(type_))

    def divides_plainly(self, operation: ir.Operation) -> bool:
        """True if C's / and % have Python's meaning here: no negative dividend, and a positive divisor."""
        if isinstance(operation.type, VectorType) or not operation.type.is_integer:
            return False
        left, right = operation.operands
        return self.of(left)[0] >= 0 and self.of(right)[0] >= 1

    def _compute(self, expression: Expression) -> Interval:
        type_ = expression.type
        if isinstance(type_, VectorType) or type_.kind not in "biu":
            raise TypeError(f"bounds are known of integer scalars only, not of type {type_}")
        whole = whole_range(type_)
        match expression:
            case Constant(value=value):
                exact: Interval | None = (int(value), int(value))
            case Name(name=name):
                exact = self.names.get(name)
            case ir.ThreadIndex():
                exact = (0, self.threads - 1)
            case ir.BlockIndex():
                exact = (0, whole_range(I32)[1] - 1 if type_ == I32 else MOST_BLOCKS)
            case ir.Cast(operand=operand):
                source = operand.type
                known = not isinstance(source, VectorType) and source.kind in "biu" and type_.kind != "b"
                exact = self.of(operand) if known else None
            case ir.Operation():
                exact = self._exact(expression)
            case _:
                exact = None
        return exact if exact is not None and _inside(exact, whole) else whole

    def _exact(self, operation: ir.Operation) -> Interval | None:
        """Bounds of the mathematical result, before wrapping; None where nothing is known."""
        if operation.operator in ir.PREDICATES:
            return (0, 1)
        if operation.operator == "select":
            branches = [self.of(operand) for operand in operation.operands[1:]]
            return (min(low for low, _ in branches), max(high for _, high in branches))
        bounds = [self.of(operand) for operand in operation.operands]
        if operation.operator == "neg":
            return (-bounds[0][1], -bounds[0][0])
        return _binary(operation.operator, bounds[0], bounds[1]) if len(bounds) == 2 else None


def _binary(operator: str, left: Interval, right: Interval) -> Interval | None:
    match operator:
        case "add":
            return (left[0] + right[0], left[1] + right[1])
        case "sub":
            return (left[0] - right[1], left[1] - right[0])
        case "mul":
            products = [a * b for a in left for b in right]
            return (min(products), max(products))
        case "min":
            return (min(left[0], right[0]), min(left[1], right[1]))
        case "max":
            return (max(left[0], right[0]), max(left[1], right[1]))
        case "floordiv" if right[0] >= 1:
            quotients = [a // b for a in left for b in right]
            return (min(quotients), max(quotients))
        case "mod" if right[0] >= 1:
            inside = left[0] >= 0 and left[1] < right[0]
            return left if inside else (0, min(left[1], right[1] - 1) if left[0] >= 0 else right[1] - 1)
        case "and" if left[0] >= 0 and right[0] >= 0:
            return (0, min(left[1], right[1]))
        case "shr" if right[0] == right[1] and 0 <= right[0] < 8:
            return (left[0] >> right[0], left[1] >> right[0])
    return None


def kernel_ranges(kernel: Kernel) -> Ranges:
    """Bounds of every `Let` name and loop index of a kernel; declared variables may have any value of their type."""
    ranges = Ranges(kernel.threads_per_block)
    seen: set[str] = set()
    for statement in walk(kernel.body):
        match statement:
            case ir.Let(name=name, value=value):
                type_, interval = value.type, None
                if not isinstance(type_, VectorType) and type_.kind in "biu":
                    interval = ranges.of(value)
            case ir.For(index=name, start=start, stop=stop):
                low, high = ranges.of(start)[0], ranges.of(stop)[1] - 1
                interval = (low, max(low, high))
            case _:
                continue
        if name in seen:  # two loops of one name: what holds is what holds for both
            earlier = ranges.names.get(name)
            interval = None if earlier is None or interval is None else _union(earlier, interval)
            ranges.forget_expressions()
        seen.add(name)
        if interval is None:
            ranges.names.pop(name, None)
        else:
            ranges.names[name] = interval
    return ranges


def _union(first: Interval, second: Interval) -> Interval:
    return (min(first[0], second[0]), max(first[1], second[1]))
