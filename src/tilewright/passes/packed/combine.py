"""One step of the sum in the register tile: acc = combine(acc, map(vector, scalar)), in as few instructions as allowed.

* A sum of products is one fused multiply-add, of complex numbers four.
* Bools are combined as bytes.
* min and max of floats must give nan if an operand is nan, which takes an instruction three times (a comparison that
  tells min, one that finds the nan, and a choice). Where the block's panels hold nothing of which the map could make a
  nan (`NanGuard`), one instruction does: processors' min and max differ from NumPy's on nan only.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.contraction.form import Contraction
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Apply, Lambda
from tilewright.ir.scalars import BOOL, U8, compute_type
from tilewright.ir.traversal import canonical
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.items.scalar_values import Value, component_types
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.lanes.vectorise import as_bytes, as_mask, lower_lambda_vector
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.writer import PackedWriter, Side

INFINITY = float("inf")


def start(w: PackedWriter, begun: Buffer | None, at: Expression) -> tuple[Name, ...]:
    """Accumulators of one vector: the neutral element, or what is `begun` for the vector at this place."""
    if begun is not None:
        return (w.emit.declare(load(begun, at, w.form.lanes), "sum"),)
    parts, lanes = first_values(w.form), w.form.lanes
    if lanes > 1:
        parts = tuple(kernel.Broadcast(part, kernel.VectorType(kernel.element_of(part.type), lanes)) for part in parts)
    return tuple(w.emit.declare(part, "sum") for part in parts)


def first_values(form: PackedForm) -> Value:
    """The neutral element as accumulators begin with it, one scalar for each part."""
    neutral = constant_value(form.contraction.neutral.value, form.contraction.neutral.scalar)
    if form.accumulator == BOOL and form.lanes > 1:
        return (Constant(int(form.contraction.neutral.value), U8),)  # type: ignore[arg-type]
    return neutral


def results(w: PackedWriter, accumulator: tuple[Name, ...]) -> tuple[Name, ...]:
    """Accumulators as values of their own type: bytes become bools."""
    if w.form.accumulator != BOOL or w.form.lanes == 1:
        return accumulator
    name = w.emit.let(as_mask(accumulator[0]), "result")
    assert isinstance(name, Name)
    return (name,)


def combine(
    w: PackedWriter, accumulator: tuple[Name, ...], vector: Value, element: Value, no_nan: bool = False
) -> None:
    """acc = combine(acc, map(vector, scalar)); `no_nan` promises that the map gives no nan."""
    form, emit = w.form, w.emit
    if form.dots is not None:
        emit.assign(accumulator[0], form.dots.of(vector[0], element[0], accumulator[0]))
        return
    if form.fused_multiply_add and _types_agree(form, vector, element):
        _multiply_add(w, accumulator, vector, element)
        return
    left, right = (vector, element) if form.vector_left else (element, vector)
    if no_nan:
        contraction = form.contraction
        mapped = _operator_without_nan(_operator_of(contraction.map), left[0], right[0])
        total = _operator_without_nan(_operator_of(contraction.combine), emit.let(mapped, "mapped"), accumulator[0])
        emit.assign(accumulator[0], total)
        return
    (value,) = lower_lambda_vector(form.contraction.map, (left, right), form.lanes, emit)
    (combined,) = lower_lambda_vector(form.contraction.combine, (accumulator, value), form.lanes, emit)
    for variable, part in zip(accumulator, combined, strict=True):
        emit.assign(variable, as_bytes(part) if kernel.element_of(variable.type) == U8 else part)


def _types_agree(form: PackedForm, vector: Value, element: Value) -> bool:
    types = component_types(form.accumulator)
    return (
        tuple(kernel.element_of(one.type) for one in vector)
        == tuple(kernel.element_of(one.type) for one in element)
        == types
    )


def _multiply_add(w: PackedWriter, accumulator: tuple[Name, ...], vector: Value, element: Value) -> None:
    """The broadcast's real part first, as in direct/pairs.py: re += ac; im += bc; re -= bd; im += ad."""

    def fma(total: Name, one: Expression, other: Expression) -> None:
        w.emit.assign(total, kernel.Operation("fma", (one, other, total), total.type))

    fma(accumulator[0], vector[0], element[0])
    if len(accumulator) == 2:
        fma(accumulator[1], vector[1], element[0])
        fma(accumulator[0], operation("neg", vector[1]), element[1])
        fma(accumulator[1], vector[0], element[1])


# --- operators without nan --------------------------------------------------------------------------------------------


def _operator_of(function: Lambda) -> str | None:
    """The operator that a function of two parameters is, on them in this order (or any, for one that commutes)."""
    plain = canonical(function)
    statements = [one for one in plain.body.statements if isinstance(one.expression, Apply)]
    if len(statements) != 1 or len(plain.body.statements) != 1 or plain.body.results != statements[0].targets:
        return None
    expression = statements[0].expression
    assert isinstance(expression, Apply)
    operands = expression.operands
    ordered = operands == plain.parameters
    commuted = expression.operator != "sub" and set(operands) == set(plain.parameters)
    return expression.operator if len(plain.parameters) == 2 and (ordered or commuted) else None


def _operator_without_nan(operator: str | None, left: Expression, right: Expression) -> Expression:
    """An operator on vectors without nan: x86's and Arm's min and max are this comparison and choice."""
    assert operator is not None
    if operator in ("min", "max"):
        return operation("select", operation("lt" if operator == "min" else "gt", left, right), left, right)
    return operation(operator, left, right)


@dataclass(frozen=True)
class NanGuard:
    """What an element of either operand must be, for the map to give no nan: tests on vectors."""

    left: Callable[[Expression], Expression]
    right: Callable[[Expression], Expression]


def nan_guard(contraction: Contraction) -> NanGuard | None:
    """The guard of a contraction that combines floats by min or max and maps by one operator; None for another."""
    combine, function = _operator_of(contraction.combine), _operator_of(contraction.map)
    accumulator = contraction.accumulator
    types = {compute_type(one.type.element) for one in contraction.map.parameters}
    if combine not in ("min", "max") or not accumulator.is_float or types != {compute_type(accumulator)}:
        return None
    if function in ("min", "max"):
        return NanGuard(_is_number, _is_number)
    if function == "mul":
        return NanGuard(_is_finite, _is_finite)
    # The infinity that is combine's neutral element (no edge of a graph, say) may occur, its opposite may not.
    tests = (_is_above, _is_below) if combine == "min" else (_is_below, _is_above)
    if function == "add":
        return NanGuard(tests[0], tests[0])
    if function == "sub":
        return NanGuard(tests[0], tests[1])
    return None


def _like(value: Expression, number: float) -> Expression:
    constant = Constant(number, kernel.element_of(value.type))
    return kernel.Broadcast(constant, value.type) if isinstance(value.type, kernel.VectorType) else constant


def _is_number(value: Expression) -> Expression:
    return operation("eq", value, value)


def _is_finite(value: Expression) -> Expression:
    return operation("lt", operation("abs", value), _like(value, INFINITY))


def _is_above(value: Expression) -> Expression:
    return operation("gt", value, _like(value, -INFINITY))


def _is_below(value: Expression) -> Expression:
    return operation("lt", value, _like(value, INFINITY))


def gives_no_nan(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> Expression | None:
    """Whether all elements of a side's panels pass the guard (None: there is none). Read once after packing."""
    guard = nan_guard(w.form.contraction)
    if guard is None or w.form.lanes == 1:
        return None
    test = guard.left if (side.name == "v") == w.form.vector_left else guard.right
    lanes, emit, panel = w.form.lanes, w.emit, side.panels[0]
    scattered = side.name == "s" and w.form.scalar_rows
    panels = w.panels(count, side.width)
    pieces = multiply(panels, integer(side.width)) if scattered else panels
    distance = multiply(side.pitch, integer(side.width))
    length = emit.let(depth if scattered else multiply(depth, integer(side.width)), "length")
    groups = emit.let(operation("floordiv", length, integer(lanes)), "groups")
    passed = emit.declare(kernel.Broadcast(Constant(True, BOOL), kernel.VectorType(BOOL, lanes)), "passed")
    rest_passed = emit.declare(Constant(True, BOOL), "rest_passed")

    def piece(number: Expression) -> None:
        start = w.row_start(side, number) if scattered else emit.let(multiply(number, distance), "start")

        def group(at: Expression) -> None:
            value = emit.let(load(panel, add(start, multiply(at, integer(lanes))), lanes), "value")
            emit.assign(passed, operation("and", passed, test(value)))

        def element(at: Expression) -> None:
            value = emit.let(load(panel, add(start, at)), "value")
            emit.assign(rest_passed, operation("and", rest_passed, test(value)))

        w.loop("group", integer(0), groups, group)
        w.loop("at", emit.let(multiply(groups, integer(lanes)), "rest"), length, element)

    w.loop("piece", integer(0), emit.let(pieces, "pieces"), piece)
    return emit.let(_all(passed, lanes, rest_passed), "no_nan")


def _all(passed: Name, lanes: int, condition: Expression) -> Expression:
    for lane in range(lanes):
        condition = operation("and", condition, kernel.Lane(passed, lane, BOOL))
    return condition
