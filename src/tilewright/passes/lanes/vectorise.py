"""A function of scalars applied to vectors: the scalar lowering, widened lane by lane.

Both sides of an `if` are computed and each lane takes its own: operators are total (an integer division by zero gives
0) and have no effects, so the side that is not taken does no harm. Vectors of bools are masks (one bit for each lane,
as comparisons give them) or bytes 0 and 1 (as memory holds them): a function that is given bytes computes on bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.cached import remembered
from tilewright.ir.nodes import Lambda
from tilewright.ir.scalars import BOOL, I64, U8, ScalarType
from tilewright.ir.traversal import used_variables
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Name, Statement, VectorType, element_of
from tilewright.kernel.traversal import walk
from tilewright.passes.items.lower_scalar import lower_lambda
from tilewright.passes.items.scalar_values import KernelBuilder, Value, component_types


class NotVectorisable(ValueError):
    """The function has a loop, whose rounds lanes cannot count separately."""


def lower_lambda_vector(
    function: Lambda, arguments: Sequence[Value], lanes: int, emit: KernelBuilder
) -> tuple[Value, ...]:
    """The results of a function of scalars on vectors of `lanes` (with lanes == 1: on scalars).

    Bools may be given as masks or as bytes; results are either (see `as_mask` and `as_bytes`).

    Raises:
        NotVectorisable: if the function has a loop.
    """
    if lanes == 1:
        return lower_lambda(function, arguments, emit)
    widening = _Widening(lanes, emit)
    placeholders: list[Value] = []
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        parts = []
        for part, scalar in zip(argument, component_types(parameter.type.element), strict=True):
            name = Name(emit.name("lane"), scalar)
            widening.known[name.name] = part
            parts.append(name)
        placeholders.append(tuple(parts))
    with emit.scope() as statements:
        results = lower_lambda(function, placeholders, emit)
    widening.run(statements)
    return tuple(tuple(widening.widen(part) for part in value) for value in results)


def is_vectorisable(functions: Sequence[Lambda]) -> bool:
    """True if every function is code on scalars without loops."""
    return all(map(_is_without_loops, functions))


@remembered
def _is_without_loops(function: Lambda) -> bool:
    types = {one.name: one.type.element for one in used_variables(function)}
    emit = KernelBuilder(
        lambda name: tuple(
            Name(f"{name}_{part}", one) for part, one in enumerate(component_types(types.get(name, I64)))
        )
    )
    arguments = [
        tuple(Name(f"p{i}_{c}", t) for c, t in enumerate(component_types(p.type.element)))
        for i, p in enumerate(function.parameters)
    ]
    lower_lambda(function, arguments, emit)
    lowered = kernel.Let | kernel.Declare | kernel.Assign | kernel.If
    return all(isinstance(statement, lowered) for statement in walk(emit.statements))


def as_mask(value: Expression) -> Expression:
    """A vector of bools with one bit for each lane."""
    return value if element_of(value.type) == BOOL else kernel.Cast(value, _like(value, BOOL))


def as_bytes(value: Expression) -> Expression:
    """A vector of bools as bytes 0 and 1; a vector of anything else as it is."""
    return kernel.Cast(value, _like(value, U8)) if element_of(value.type) == BOOL else value


def _like(value: Expression, element: ScalarType) -> VectorType | ScalarType:
    return VectorType(element, value.type.lanes) if isinstance(value.type, VectorType) else element


class _Widening:
    """Statements on scalars, emitted as statements on vectors. `known`: the vector that stands for each name."""

    def __init__(self, lanes: int, emit: KernelBuilder) -> None:
        self.lanes, self.emit = lanes, emit
        self.known: dict[str, Expression] = {}

    def run(self, statements: Sequence[Statement]) -> None:
        """Emit statements; variables become one name after another."""
        for statement in statements:
            match statement:
                case kernel.Let(name, value) | kernel.Declare(name, value) | kernel.Assign(name, value):
                    self.known[name] = self.emit.let(self.widen(value), name)
                case kernel.If(condition, then, otherwise):
                    self._choose(self.emit.let(as_mask(self.widen(condition)), "chosen"), then, otherwise)
                case _:
                    raise NotVectorisable(f"a function with {type(statement).__name__.lower()} does not vectorise")

    def _choose(self, condition: Expression, then: Sequence[Statement], otherwise: Sequence[Statement]) -> None:
        before = dict(self.known)
        self.run(then)
        taken = self.known
        self.known = dict(before)
        self.run(otherwise)
        for name in before:
            yes, no = taken[name], self.known[name]
            if yes != no:
                if element_of(yes.type) != element_of(no.type):  # bools as bytes on one side only
                    yes, no = as_bytes(yes), as_bytes(no)
                self.known[name] = self.emit.let(kernel.Operation("select", (condition, yes, no), yes.type), "either")

    def widen(self, expression: Expression) -> Expression:
        """An expression on vectors."""
        match expression:
            case Name(name):
                if name in self.known:
                    return self.known[name]
                return kernel.Broadcast(expression, VectorType(element_of(expression.type), self.lanes))
            case Constant():
                return kernel.Broadcast(expression, VectorType(expression.type, self.lanes))
            case kernel.Cast(operand=operand):
                wide, target = self.widen(operand), element_of(expression.type)
                return wide if operand.type == target else kernel.Cast(wide, VectorType(target, self.lanes))
            case kernel.Operation():
                return self._operation(expression)
        raise NotVectorisable(f"{type(expression).__name__} does not vectorise")

    def _operation(self, expression: kernel.Operation) -> Expression:
        wide = [self.widen(one) for one in expression.operands]
        condition = [as_mask(wide.pop(0))] if expression.operator == "select" else []
        held = element_of(expression.type)
        if expression.operands[-1].type == BOOL and any(element_of(one.type) == U8 for one in wide):
            wide = [as_bytes(one) for one in wide]
            held = U8
            if expression.operator == "not":
                wide.append(kernel.Broadcast(Constant(1, U8), VectorType(U8, self.lanes)))
                return kernel.Operation("xor", tuple(wide), VectorType(U8, self.lanes))
        return kernel.Operation(expression.operator, (*condition, *wide), VectorType(held, self.lanes))
