"""Scalar core code into kernel code: operators, casts, sizes, `if` and `loop` over scalars.

This is all that a function of scalars needs: the map, combine and epilogue of a contraction, or the body of an
elementwise map. The lowering of array code (`lower_general`) uses the same pieces with its own treatment of bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Literal, Statement
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size, SizeAtom
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Name
from tilewright.passes.items.scalar_values import (
    KernelBuilder,
    LoweringError,
    Value,
    apply_operator,
    cast_value,
    constant,
)

BodyLowering: TypeAlias = Callable[[Body], tuple[Value, ...]]

__all__ = ["KernelBuilder", "LoweringError", "Value", "lower_atom", "lower_lambda", "lower_size"]


def lower_lambda(function: Lambda, arguments: Sequence[Value], emit: KernelBuilder) -> tuple[Value, ...]:
    """The results of a function of scalars on these arguments; the statements that compute them go to `emit`.

    Free names of the function are looked up in `emit.values` (see `KernelBuilder`).

    Raises:
        LoweringError: if the function uses arrays, or a name that has no value.

    Example:
        >>> from tilewright.ir.builder import Builder
        >>> from tilewright.ir.scalars import F32
        >>> emit = KernelBuilder()
        >>> add = Builder().operator("add", F32)
        >>> lower_lambda(add, [(Name("x", F32),), (Name("y", F32),)], emit)[0][0].name
        't_1'
    """
    if len(arguments) != len(function.parameters):
        raise LoweringError(f"a function of {len(function.parameters)} parameters is given {len(arguments)} arguments")
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        if parameter.type.rank:
            raise LoweringError(f"parameter {parameter} of a scalar function is an array of type {parameter.type}")
        emit.values[parameter.name] = argument
    return lower_scalar_body(function.body, emit)


def lower_scalar_body(body: Body, emit: KernelBuilder) -> tuple[Value, ...]:
    """The results of a body of scalar statements."""
    for statement in body.statements:
        lower_scalar_statement(statement, emit)
    return tuple(lower_atom(atom, emit) for atom in body.results)


def lower_scalar_statement(statement: Statement, emit: KernelBuilder) -> None:
    """Bind the targets of a scalar statement in `emit.values`."""
    values = lower_scalar_expression(statement.expression, emit)
    for target, value in zip(statement.targets, values, strict=True):
        emit.values[target.name] = value


def lower_atom(atom: Atom, emit: KernelBuilder) -> Value:
    """The value of a scalar atom."""
    if atom.type.rank:
        raise LoweringError(f"{atom} is an array of type {atom.type} where a scalar is needed")
    return constant(atom.value, atom.scalar) if isinstance(atom, Literal) else emit.value_of(atom.name)


def lower_scalar_expression(expression: Expression, emit: KernelBuilder) -> tuple[Value, ...]:
    """The values of an expression on scalars.

    Raises:
        LoweringError: for an expression on arrays.
    """
    match expression:
        case nodes.Alias(atom):
            return (lower_atom(atom, emit),)
        case nodes.Apply(operator, operands):
            types = tuple(one.type.element for one in operands)
            return (apply_operator(operator, types, [lower_atom(one, emit) for one in operands], emit),)
        case nodes.Cast(scalar, operand):
            return (cast_value(lower_atom(operand, emit), operand.type.element, scalar, emit),)
        case nodes.SizeValue(value):
            return ((emit.let(lower_size(value, emit), "size"),),)
        case nodes.If():
            return lower_if(expression, emit, lambda body: lower_scalar_body(body, emit))
        case nodes.Loop():
            return lower_loop(expression, emit, lambda body: lower_scalar_body(body, emit))
    raise LoweringError(f"{type(expression).__name__} is not an expression on scalars")


# --- control ----------------------------------------------------------------------------------------------------------


def declare_value(value: Value, hint: str, emit: KernelBuilder) -> tuple[Name, ...]:
    """Variables that begin with the components of `value`."""
    return tuple(emit.declare(part, hint) for part in value)


def assign_values(variables: Sequence[tuple[Name, ...]], values: Sequence[Value], emit: KernelBuilder) -> None:
    """Assign all variables at once: values that mention the variables are read before any of them changes."""
    if len(variables) > 1:
        values = [tuple(emit.snapshot(part, "next") for part in value) for value in values]
    for targets, value in zip(variables, values, strict=True):
        for target, part in zip(targets, value, strict=True):
            if part != target:
                emit.assign(target, part)


def lower_if(expression: nodes.If, emit: KernelBuilder, lower_body: BodyLowering) -> tuple[Value, ...]:
    """`if` with scalar results; only the chosen branch is evaluated."""
    condition = lower_atom(expression.condition, emit)[0]
    types = [atom.type.element for atom in expression.then.results]
    results = [declare_value(constant(0, one), "chosen", emit) for one in types]
    branches = []
    for body in (expression.then, expression.otherwise):
        with emit.scope() as statements:
            assign_values(results, lower_body(body), emit)
        branches.append(tuple(statements))
    emit.emit(kernel.If(condition, *branches))
    return tuple(results)


def lower_loop(expression: nodes.Loop, emit: KernelBuilder, lower_body: BodyLowering) -> tuple[Value, ...]:
    """`loop` with scalar merge values."""
    initial = [lower_atom(atom, emit) for atom in expression.initial]
    merged = [
        declare_value(value, parameter.name, emit)
        for value, parameter in zip(initial, expression.parameters, strict=True)
    ]
    for parameter, variables in zip(expression.parameters, merged, strict=True):
        emit.values[parameter.name] = variables

    def round_() -> tuple[kernel.Statement, ...]:
        with emit.scope() as statements:
            assign_values(merged, lower_body(expression.body), emit)
        return tuple(statements)

    write_loop(expression, emit, round_, lower_body)
    return tuple(merged)


def write_loop(
    expression: nodes.Loop,
    emit: KernelBuilder,
    round_: Callable[[], tuple[kernel.Statement, ...]],
    lower_body: BodyLowering,
) -> None:
    """The kernel loop of `expression`, whose merge values are bound already and changed by `round_`."""
    if isinstance(expression.form, nodes.ForLoop):
        bound = emit.let(lower_size(expression.form.bound, emit), "bound")
        index = Name(emit.name(expression.form.index.name), I64)
        emit.values[expression.form.index.name] = (index,)
        emit.emit(kernel.For(index.name, Constant(0, I64), bound, round_()))
        return
    condition = expression.form.condition
    with emit.scope() as prelude:
        for parameter, merged in zip(condition.parameters, expression.parameters, strict=True):
            if parameter.type.rank == 0:
                emit.values[parameter.name] = emit.value_of(merged.name)
        (holds,) = lower_body(condition.body)
    emit.emit(kernel.While(tuple(prelude), holds[0], round_()))


# --- sizes ------------------------------------------------------------------------------------------------------------


def lower_size(value: Size, emit: KernelBuilder) -> kernel.Expression:
    """A size as an i64 expression."""
    total: kernel.Expression = Constant(0, I64)
    for monomial, coefficient in value.terms:
        factor: kernel.Expression = Constant(1, I64)
        for atom in monomial:
            factor = kernel.multiply(factor, _lower_size_atom(atom, emit))
        total = kernel.add(total, kernel.multiply(Constant(coefficient, I64), factor))
    return total


def _lower_size_atom(atom: SizeAtom, emit: KernelBuilder) -> kernel.Expression:
    if isinstance(atom, str):
        return emit.value_of(atom)[0]
    return kernel.operation(atom.function, _named(atom.left, emit), _named(atom.right, emit))


def _named(value: Size, emit: KernelBuilder) -> kernel.Expression:
    """A size within another function of sizes; clamps have names, so that loops can be cut where they change."""
    lowered = lower_size(value, emit)
    is_clamp = isinstance(lowered, kernel.Operation) and lowered.operator in ("min", "max")
    return emit.let(lowered, "clamped") if is_clamp else lowered
