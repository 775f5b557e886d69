"""Arguments of what programs say with arrays: arrays of one width, and functions of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend import program_tracing as tracing
from tilewright.frontend.array_proxy import ArrayProxy
from tilewright.frontend.program_tracing import Tracer, as_element
from tilewright.frontend.scalar_tracing import ScalarProxy, apply
from tilewright.ir.lexer import INFIX
from tilewright.ir.nodes import Atom, Lambda, Replicate, Type
from tilewright.ir.operators import OPERATORS
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import Size, SizeFunction


def wrap_one(tracer: Tracer, expression: Any, what: str) -> Any:
    """Bind an expression that gives one value."""
    return tracing.wrap_results(tracer, tracer.emit(expression), False, what)


def arrays_of(what: str, values: Sequence[Any]) -> tuple[Tracer, list[ArrayProxy]]:
    """The current tracer, and the values, which must be arrays.

    Raises:
        TypeError: for what is no array of the program.
    """
    tracer = tracing.current(what)
    if not values:
        raise TypeError(f"{what} needs at least one array")
    for number, one in enumerate(values):
        if not isinstance(one, ArrayProxy):
            hint = "; of counts make arrays with tw.iota(count)" if isinstance(one, int | ScalarProxy) else ""
            hint = "; the function comes first" if callable(one) else hint
            raise TypeError(f"{what}: argument {number} must be an array, not {tracing.describe_value(one)}{hint}")
    return tracer, list(values)


def dimension_of(what: str, array: ArrayProxy, axis: int) -> int:
    """The number of a dimension, which may be counted from the end. TypeError if there is none."""
    if not -array.ndim <= axis < array.ndim:
        raise TypeError(f"{what}: there is no dimension {axis} in {array.variable} of type {array.variable.type}")
    return axis % array.ndim


def common_width(tracer: Tracer, what: str, arrays: Sequence[ArrayProxy]) -> Size:
    """The one outer size of arrays.

    Raises:
        TypeError: if two differ, naming both arrays with their sizes.
    """
    first = arrays[0]
    width = first.variable.type.shape[0]
    for one in arrays[1:]:
        extent = one.variable.type.shape[0]
        if extent == width:
            continue
        advice = "they must be equal"
        if extent.constant is None or width.constant is None:
            sizes = f"({width}, ...)" if one.ndim > 1 else f"({width},)"
            advice = (
                "they are not known to be equal; write the same size for both in the annotations of the parameters "
                f"that they come from, or say so with tw.reshape(..., {sizes}), which is checked when the program runs"
                f"{divided_advice((width, extent))}"
            )
        raise TypeError(
            f"{what} over {tracer.describe(first.variable)} with {width} rows and {tracer.describe(one.variable)} with "
            f"{extent} rows: {advice}"
        )
    return width


def divided_advice(sizes: Sequence[Size]) -> str:
    """What to write where sizes would be equal if a number divided them, as those of x[::2] and x[1::2]; "" if none."""
    atoms = (atom for one in sizes for monomial, _ in one.terms for atom in monomial)
    for atom in atoms:
        if isinstance(atom, SizeFunction) and atom.function == "floordiv" and atom.right.constant is not None:
            by = atom.right.constant
            part = f"x[: {by} * m : {by}] with m = x.shape[0] // {by}"
            return f"; parts that are cut at a multiple of {by} are equal: {part}"
    return ""


def row_lambda(
    tracer: Tracer, what: str, function: Callable[..., Any], arrays: Sequence[ArrayProxy]
) -> tuple[Lambda, bool]:
    """A function of rows as a lambda, and whether it gives a tuple."""
    types = [one.variable.type.row for one in arrays]
    variables = tracing.fresh_parameters(tracer, types, tracing.parameter_names(function))
    scalars = [one.element for one in types if not one.rank] or [one.element for one in types]
    several = False

    def write() -> list[Atom]:
        nonlocal several
        rows = [
            tracer.counter_proxy(variable)
            if one.index_like and not variable.type.rank
            else tracing.wrap(tracer, variable)
            for variable, one in zip(variables, arrays, strict=True)
        ]
        values, several = tracing.values_of(function(*rows), f"{what}: {tracing.name_of(function)}")
        return [tracing.atom_of(one, scalars[0]) for one in values]

    return tracing.traced_lambda(tracer, variables, write, f"{what}: {tracing.name_of(function)}"), several


_INSTEAD = {
    "sum": "add", "prod": "mul", "product": "mul", "minimum": "min", "maximum": "max", "amax": "max", "amin": "min",
    "any": "or", "all": "and",
}  # fmt: skip
"""What operators are called here that others call so."""


def operation(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """A function; a scalar operator by its name ("add") or symbol ("+"), and Python's min and max, as functions.

    Raises:
        TypeError: for anything else.
    """
    known = {min: "min", max: "max"}.get(function, function) if callable(function) else function
    if isinstance(known, str):
        name = INFIX.get(known, known)
        if name not in OPERATORS:
            if known in _INSTEAD:
                raise TypeError(f"{known!r} is no operator; write {_INSTEAD[known]!r}")
            raise TypeError(f"{known!r} is no operator; there are {', '.join(OPERATORS)}, or write a function")

        def operator(*operands: Any) -> Any:
            return apply(name, *operands)

        operator.__name__ = name
        return operator
    if not callable(known):
        raise TypeError(f"{tracing.describe_value(known)} is no function; give a function or the name of an operator")
    return known


def index_array(array: ArrayProxy, what: str) -> ArrayProxy:
    """Indices as an array of i64."""
    if array.ndim != 1 or not array.scalar.is_integer:
        raise TypeError(f"{what}: the indices {array.variable} have type {array.variable.type}; [n]i64 is needed")
    result: ArrayProxy = array if array.scalar == I64 else array.astype(I64)
    return result


def fitted(tracer: Tracer, value: Any, expected: Type, what: str) -> Atom:
    """A value as an atom of a certain type; a number or scalar also fills an array.

    Raises:
        TypeError: if it does not fit.
    """
    if isinstance(value, ArrayProxy):
        if value.variable.type != expected:
            raise TypeError(f"{what} must be of type {expected}, not {value.variable.type}")
        return value.variable
    atom = as_element(tracer, value, expected.element, what)
    for extent in reversed(expected.shape):
        atom = tracer.bind(Replicate(extent, atom))
    return atom
