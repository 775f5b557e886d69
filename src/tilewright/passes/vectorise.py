"""A function of scalars applied to vectors: the scalar lowering, widened lane by lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.nodes import Lambda
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import used_variables
from tilewright.kernel.ir import (
    Broadcast,
    Cast,
    Constant,
    Expression,
    Let,
    Name,
    Operation,
    VectorType,
    element_of,
)
from tilewright.passes.lower_scalar import lower_lambda
from tilewright.passes.scalar_values import KernelBuilder, Value, component_types


class NotVectorisable(ValueError):
    """The function has control flow, which lanes cannot follow separately."""


def lower_lambda_vector(
    function: Lambda, arguments: Sequence[Value], lanes: int, emit: KernelBuilder
) -> tuple[Value, ...]:
    """The results of a function of scalars on vectors of `lanes` (with lanes == 1: on scalars).

    Raises:
        NotVectorisable: if the function is not straight-line code.
    """
    if lanes == 1:
        return lower_lambda(function, arguments, emit)
    known: dict[str, Expression] = {}
    placeholders: list[Value] = []
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        parts = []
        for part, scalar in zip(argument, component_types(parameter.type.element), strict=True):
            name = Name(emit.name("lane"), scalar)
            known[name.name] = part
            parts.append(name)
        placeholders.append(tuple(parts))
    with emit.scope() as statements:
        results = lower_lambda(function, placeholders, emit)
    for statement in statements:
        if not isinstance(statement, Let):
            raise NotVectorisable(f"a function with {type(statement).__name__.lower()} does not vectorise")
        wide = _widen(statement.value, lanes, known)
        known[statement.name] = Name(statement.name, wide.type)
        emit.emit(Let(statement.name, wide))
    return tuple(tuple(_widen(part, lanes, known) for part in value) for value in results)


def is_vectorisable(functions: Sequence[Lambda]) -> bool:
    """True if every function is straight-line code on scalars."""
    for function in functions:
        types = {one.name: one.type.element for one in used_variables(function)}
        emit = KernelBuilder(
            lambda name, types=types: tuple(  # type: ignore[misc]
                Name(f"{name}_{part}", one) for part, one in enumerate(component_types(types.get(name, I64)))
            )
        )
        arguments = [
            tuple(Name(f"p{i}_{c}", t) for c, t in enumerate(component_types(p.type.element)))
            for i, p in enumerate(function.parameters)
        ]
        lower_lambda(function, arguments, emit)
        if not all(isinstance(statement, Let) for statement in emit.statements):
            return False
    return True


def _widen(expression: Expression, lanes: int, known: Mapping[str, Expression]) -> Expression:
    match expression:
        case Name(name):
            if name in known:
                return known[name]
            return Broadcast(expression, VectorType(element_of(expression.type), lanes))
        case Constant():
            return Broadcast(expression, VectorType(expression.type, lanes))
        case Cast(operand=operand):
            return Cast(_widen(operand, lanes, known), VectorType(element_of(expression.type), lanes))
        case Operation(operator, operands):
            wide = tuple(_widen(one, lanes, known) for one in operands)
            return Operation(operator, wide, VectorType(element_of(expression.type), lanes))
    raise NotVectorisable(f"{type(expression).__name__} does not vectorise")
