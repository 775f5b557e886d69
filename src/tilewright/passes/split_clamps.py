"""Loops whose indices are clamped at an edge, max(i - 1, 0) or min(i + 1, n - 1), in three parts.

    for i from low below high: ... max(i - 1, 0) ...
=>  for i from low below a: ...;  for i from a below b: ... i - 1 ...;  for i from b below high: ...

In the middle, which is nearly everything, neighbours are read at consecutive places, so in vectors. (Index set
splitting [Wolfe, High Performance Compilers for Parallel Computing, 1996, section 9.7].)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.ir.scalars import I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, For, Let, Name, Operation, Statement, While
from tilewright.passes.scalar_values import KernelBuilder


@dataclass(frozen=True)
class Clamp:
    """A clamp of a loop's index: which one, max or min, of index + `shift`, and what it stops at."""

    function: str
    linear: Expression
    shift: int
    stop: Expression


def emit_split(
    emit: KernelBuilder,
    bounds: tuple[Expression, Expression],
    body: Callable[[], tuple[Name, list[Statement]]],
    is_independent: Callable[[], bool],
) -> None:
    """Emit a loop, in three parts if that frees it from clamps.

    Args:
        emit: where to.
        bounds: the first index and the one after the last.
        body: writes the statements for a new index, the same every time.
        is_independent: whether iterations may be run together, once they are written; only then is the loop split.
    """
    low, high = bounds
    index, statements = body()
    independent = is_independent()
    clamps = [found for one in statements if (found := clamp_of(one, index, statements)) is not None]
    loops = any(isinstance(one, For | While) for one in kernel.walk(tuple(statements)))
    if not clamps or loops or not independent:
        emit.emit(For(index.name, low, high, tuple(statements), independent=independent))
        return
    first, last = low, high
    for one in clamps:
        edge = kernel.add(one.stop, Constant(-one.shift, I64))
        if one.function == "max":
            first = kernel.operation("max", first, edge)
        else:
            last = kernel.operation("min", last, kernel.add(edge, Constant(1, I64)))
    first = emit.let(kernel.operation("min", first, high), "first")
    last = emit.let(kernel.operation("max", first, last), "last")
    emit.emit(For(index.name, low, first, tuple(statements), independent=independent))
    inner, middle = body()
    free = tuple(_without_clamp(one, inner, middle) for one in middle)
    emit.emit(For(inner.name, first, last, free, independent=independent))
    after, rest = body()
    emit.emit(For(after.name, last, high, tuple(rest), independent=independent))


def clamp_of(statement: Statement, index: Name, around: Sequence[Statement]) -> Clamp | None:
    """The clamp that a statement computes, if what it stops at is not computed in the loop."""
    match statement:
        case Let(_, Operation("max" | "min" as function, (left, right))):
            for linear, stop in ((left, right), (right, left)):
                shift = _shift(linear, index)
                if shift is not None and _is_fixed(stop, _inside(index, around)):
                    return Clamp(function, linear, shift, stop)
    return None


def _without_clamp(statement: Statement, index: Name, around: Sequence[Statement]) -> Statement:
    clamp = clamp_of(statement, index, around)
    return statement if clamp is None or not isinstance(statement, Let) else replace(statement, value=clamp.linear)


def _shift(expression: Expression, index: Name) -> int | None:
    """c of index + c."""
    if expression == index:
        return 0
    match expression:
        case Operation("add", (Name() as name, Constant(value, _))) if name == index and isinstance(value, int):
            return value
    return None


def _inside(index: Name, statements: Sequence[Statement]) -> set[str]:
    """Names that mean something else in every iteration."""
    return {index.name} | {one.name for one in statements if isinstance(one, Let | kernel.Declare)}


def _is_fixed(expression: Expression, changing: set[str]) -> bool:
    """Whether an expression is made of nothing but constants and names from outside; memory may change."""
    if isinstance(expression, Name):
        return expression.name not in changing
    is_plain = isinstance(expression, Constant | Operation)
    return is_plain and all(_is_fixed(one, changing) for one in kernel.children(expression))
