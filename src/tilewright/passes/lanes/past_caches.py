"""Maps whose results no cache holds, written past the caches in whole lines.

    for j: y[j] = f(x[j])
=>  if y is larger than the caches: up to a line's beginning, then line after line past the caches, then what is left;
    else as it was

A line that is written whole need not be read first, and takes no other line's place. Only maps of one result qualify,
whose reads are side by side: there it is the memory that limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.scalars import I64, compute_type
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, Statement, add, integer, multiply, operation
from tilewright.machine.model import Machine
from tilewright.passes.items.renaming import renamed
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.lane_code import LaneCode
from tilewright.passes.lanes.lane_strips import at_round
from tilewright.passes.lanes.lane_variance import LaneVariance, NotInLanes, lane_variance

LINES = 2
"""Lines that are computed together."""

SHORTEST = 16
"""Lines of a row, from which on it is worth it: the one at either end is written in part."""


def emit_past_caches(
    emit: KernelBuilder,
    bounds: tuple[Expression, Expression],
    index: Name,
    body: Sequence[Statement],
    machine: Machine | None,
    points: Callable[[], Expression],
    otherwise: Callable[[], None],
) -> bool:
    """Emit a loop over independent iterations, past the caches where its result is larger than they are.

    Args:
        emit: where to.
        bounds: the first index and the one after the last.
        index, body: the loop's index and what is done for it, in scalars.
        machine: has vectors and caches; None for none.
        points: how many iterations there are in all such loops together, as which the result has elements.
        otherwise: emits the loop as it is.

    Returns:
        Whether there are vectors in what was emitted, beside the loop as it is, which is left to LLVM's vectoriser.
    """
    cache = 0 if machine is None or not machine.vector_bytes else max(machine.l2_bytes, machine.l3_bytes)
    found = _only_store(index, body) if cache else None
    if machine is None or found is None:
        otherwise()
        return False
    store, variance, place = found
    low, high = bounds
    bytes_ = store.buffer.element.bytes
    lanes = machine.transaction_bytes // bytes_
    span = operation("sub", high, low)
    is_large = operation("gt", points(), integer(cache // bytes_))
    is_long = operation("ge", span, integer(SHORTEST * lanes))

    def past() -> None:
        address = add(kernel.Address(store.buffer), multiply(at_round(place, index.name, low), integer(bytes_)))
        odd = operation("and", operation("sub", integer(0), address), integer(lanes * bytes_ - 1))
        first = emit.let(add(low, operation("floordiv", odd, integer(bytes_))), "first")
        group = integer(LINES * lanes)
        groups = operation("floordiv", operation("sub", high, first), group)
        middle = emit.let(add(first, multiply(groups, group)), "middle")
        _one_by_one(emit, (low, first), index, body)
        begin = Name(emit.name("line"), I64)
        writer = LaneCode(emit, variance, lanes, LINES, past_caches=True)
        writer.begin(index, begin)
        with emit.scope() as inside:
            writer.run(body, None)
        emit.emit(kernel.For(begin.name, first, middle, tuple(inside), step=group))
        _one_by_one(emit, (middle, high), index, body)

    emit.when(emit.let(operation("and", is_large, is_long), "past"), past, otherwise)
    return True


def _one_by_one(
    emit: KernelBuilder, bounds: tuple[Expression, Expression], index: Name, body: Sequence[Statement]
) -> None:
    again, inside = renamed(emit, index, body)
    emit.emit(kernel.For(again.name, *bounds, inside))


def _only_store(index: Name, body: Sequence[Statement]) -> tuple[kernel.Store, LaneVariance, Expression] | None:
    """The store of a body without branches that reads and writes side by side, and where; None for another body."""
    stores = [one for one in body if isinstance(one, kernel.Store)]
    if (
        len(stores) != 1
        or not all(isinstance(one, kernel.Let | kernel.Store) for one in body)
        or not has_lines(stores[0].buffer)
    ):
        return None
    try:
        variance = lane_variance(index, body)
    except NotInLanes:
        return None
    if not variance.reads_side_by_side(body):
        return None
    bound = {one.name: one.value for one in body if isinstance(one, kernel.Let)}
    place = inlined(stores[0].index, bound)
    return None if place is None else (stores[0], variance, place)


def has_lines(buffer: Buffer) -> bool:
    """Whether vectors of its elements as they are computed with fill its lines."""
    element = buffer.element
    return buffer.space is kernel.Space.GLOBAL and element.bytes in (4, 8) and compute_type(element) == element


def inlined(value: Expression, bound: Mapping[str, Expression]) -> Expression | None:
    """An integer in terms of names from outside of the body and the index; None if it is not made by arithmetic."""
    match value:
        case Constant():
            return value
        case Name(name):
            return inlined(bound[name], bound) if name in bound else value
        case kernel.Cast(operand, type_):
            inner = inlined(operand, bound)
            return None if inner is None else kernel.Cast(inner, type_)
        case kernel.Operation(operator, operands, type_):
            parts = [inlined(one, bound) for one in operands]
            known = tuple(one for one in parts if one is not None)
            return kernel.Operation(operator, known, type_) if len(known) == len(parts) else None
    return None
