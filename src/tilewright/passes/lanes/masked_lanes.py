"""A loop whose iterations may run together, in the lanes of vectors (the code: lane_code.py), where that is faster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Load, Name, Statement, add, element_of, operation
from tilewright.kernel.llvm_vector_math import FUNCTIONS
from tilewright.kernel.traversal import depends_on, expressions, parts, walk
from tilewright.machine.model import Machine
from tilewright.passes.items.scalar_values import KernelBuilder
from tilewright.passes.lanes.lane_code import LaneCode
from tilewright.passes.lanes.lane_variance import UNIFORM, WIDE, LaneVariance, NotInLanes, lane_variance

TEMPORARIES = 8
"""Vector registers beside the variables of a loop."""

WRITTEN_OUT = frozenset({"rsqrt", *FUNCTIONS})
"""Functions that have better forms for vectors than LLVM's vectoriser makes of scalar code."""

DIVISIONS = frozenset({"floordiv", "mod"})
"""These have, too (`kernel/llvm_division.py`), of floats, and of integers that were read and divided by no constant:
of 64 bits only in vectors of `LONG_DIVISION` bytes, which come with conversions of such integers."""

LONG_DIVISION = 64


@dataclass(frozen=True)
class OneByOne:
    """Why iterations do not go on together; `scalar`: so that vectors which the machine has are not used."""

    reason: str
    scalar: bool = True


def emit_in_lanes(
    emit: KernelBuilder,
    bounds: tuple[Expression, Expression],
    index: Name,
    body: Sequence[Statement],
    machine: Machine | None,
    flag: Name | None = None,
    turning: Collection[str] = (),
) -> int | OneByOne:
    """Emit a loop over independent iterations in lanes, if it can be and is worth it.

    Args:
        emit: where to.
        bounds: the first index and the one after the last.
        index, body: the loop's index and what is done for it, in scalars.
        machine: has the vectors; None for none.
        flag: a variable from outside that iterations may set, and which they read but to keep what was set.
        turning: buffers of which iterations write another part than any of them reads.

    Returns:
        How many iterations go on together, or why none do; then nothing is emitted.
    """
    if machine is None or not machine.vector_bytes:
        return OneByOne("the machine has no vectors", scalar=False)
    if not is_worth_lanes(body, machine):
        return OneByOne("the compiler puts code without loops and functions into vectors by itself", scalar=False)
    try:
        variance = lane_variance(index, body, flags=() if flag is None else (flag.name,), turning=turning)
    except NotInLanes as error:
        return OneByOne(str(error))
    if not _gathers_pay(body, variance, machine):
        return OneByOne("memory is read at places of each point's own, which one by one is as fast")
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
        writer = LaneCode(emit, variance, lanes, count)
        writer.begin(index, first)
        flags = [] if flag is None else writer.declare_flag(flag)
        with emit.scope() as inside:
            rest = emit.let(operation("sub", stop, first), "rest") if is_rest else None
            masks = [emit.let(kernel.FirstLanes(rest, writer.bools), "mask")] if rest is not None else None
            writer.run(body, masks)
        emit.emit(kernel.For(first.name, start, stop, tuple(inside), step=Constant(lanes * count, I64)))
        if flag is not None:
            emit.assign(flag, operation("or", flag, writer.values.any(flags)))
    return lanes * vectors


def is_worth_lanes(body: Sequence[Statement], machine: Machine) -> bool:
    """Whether there are loops, or functions whose vector forms are better than what LLVM makes of scalars."""
    every = tuple(walk(tuple(body)))
    if any(isinstance(one, kernel.For | kernel.While) for one in every):
        return True
    return _has_functions(body, machine)


def _has_functions(body: Sequence[Statement], machine: Machine) -> bool:
    read: set[str] = set()  # names of what memory holds, and of what is computed from that

    def is_function(value: Expression) -> bool:
        if not isinstance(value, kernel.Operation) or value.operator not in DIVISIONS:
            return isinstance(value, kernel.Operation) and value.operator in WRITTEN_OUT
        element, divisor = element_of(value.type), value.operands[1]
        short = element.bytes < 8 or machine.vector_bytes >= LONG_DIVISION
        return element.is_float or (short and not isinstance(divisor, Constant) and depends_on(value, read))

    for one in walk(tuple(body)):
        if any(map(is_function, parts(expressions(one)))):
            return True
        if isinstance(one, kernel.Let | kernel.Declare | kernel.Assign) and depends_on(one.value, read):
            read.add(one.name)
    return False


def _gathers_pay(body: Sequence[Statement], variance: LaneVariance, machine: Machine) -> bool:
    """Whether what is read at places of each lane's own is worth it: a gather takes longer than a load for each lane.

    It is where functions are computed, which take longer still, and where a loop waits for what it has read to know
    where it reads next: lanes wait together. Where a loop only counts through places, a processor reads ahead.
    """
    every = tuple(walk(tuple(body)))
    if not any(isinstance(one, kernel.For | kernel.While) for one in every) or _has_functions(body, machine):
        return True
    bound = {one.name: one.value for one in every if isinstance(one, kernel.Let)}
    assigned = [one for one in every if isinstance(one, kernel.Assign)]
    carried = {one.name for one in assigned if not _counts(one, bound, variance)}

    def follows(expression: Expression) -> bool:
        if isinstance(expression, Name):
            inside = bound.get(expression.name)
            return expression.name in carried or (inside is not None and follows(inside))
        return any(map(follows, expressions(expression)))

    def pays(expression: Expression) -> bool:
        if isinstance(expression, Load) and variance.kind(expression.index) == WIDE and not follows(expression.index):
            return False
        return all(map(pays, expressions(expression)))

    return all(pays(expression) for one in every for expression in expressions(one))


def _counts(step: kernel.Assign, bound: Mapping[str, Expression], variance: LaneVariance) -> bool:
    """Whether a variable is changed by the same number in all lanes: v = v + u."""
    value = step.value
    while isinstance(value, Name) and value.name in bound:
        value = bound[value.name]
    match value:
        case kernel.Operation("add" | "sub", (Name(name), other)) if name == step.name:
            return variance.kind(other) == UNIFORM
    return False


def _vectors(body: Sequence[Statement], variance: LaneVariance, machine: Machine) -> int:
    """Vectors of lanes that go on together: two, if the variables of loops inside have room for two."""
    live = sum(isinstance(one, kernel.Declare) and one.name in variance.variables for one in walk(tuple(body)))
    return 2 if 2 * live + TEMPORARIES <= machine.vector_registers else 1
