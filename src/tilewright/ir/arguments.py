"""A program's arguments: arrays and scalars checked against its parameters, and the sizes that their shapes give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.nodes import Program, Type, Variable
from tilewright.ir.scalars import I64, ScalarType, compute_type, scalar_type_of
from tilewright.ir.sizes import Size

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Value: TypeAlias = "Array | np.generic[Any]"
Argument: TypeAlias = "Array | np.generic[Any] | bool | int | float | complex"

# What a scalar parameter takes without loss of meaning: the kinds of NumPy dtypes for each kind of scalar type.
_ACCEPTED = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc"}

PREVIOUS = "previous"
"""What programs call a parameter that is what their result held: mostly it lies where the result does."""


def _check_count(program: Program, arguments: Sequence[Argument]) -> None:
    if len(arguments) != len(program.parameters):
        names = ", ".join(parameter.name for parameter in program.parameters)
        raise ValueError(f"{program.name} takes {len(program.parameters)} arguments ({names}), not {len(arguments)}")


def infer_sizes(program: Program, arguments: Sequence[Argument]) -> dict[str, int]:
    """The value of every size name of the program, from the arguments' shapes.

    Dimensions that are one name give that name's value; other dimensions give a name that occurs linearly and nowhere
    else. Then every dimension is checked.

    Raises:
        ValueError: for a wrong number of arguments or rank, for a dimension that disagrees (naming the parameter, the
            dimension and the sizes), and for a size name that no dimension determines.
    """
    _check_count(program, arguments)
    known: dict[str, int] = {}
    dimensions: list[tuple[Variable, int, Size, int]] = []
    for parameter, argument in zip(program.parameters, arguments, strict=True):
        shape = np.shape(argument)
        if len(shape) != parameter.type.rank:
            raise ValueError(
                f"program {program.name}: parameter {parameter} has type {parameter.type}, but the argument has rank "
                f"{len(shape)} ({shape})"
            )
        if parameter.type == Type(I64):
            known[parameter.name] = int(_scalar_argument(program.name, parameter, argument))
        dimensions += [(parameter, d, parameter.type.shape[d], shape[d]) for d in range(len(shape))]
    _solve(known, dimensions)
    for parameter, d, extent, actual in dimensions:
        unknown = sorted(extent.names - known.keys())
        if unknown:
            raise ValueError(
                f"program {program.name}: size {unknown[0]} cannot be inferred: it occurs only in dimension {d} of "
                f"parameter {parameter}, {extent}, which is {actual} here"
            )
        expected = extent.evaluate(known)
        if expected != actual:
            raise ValueError(
                f"program {program.name}: dimension {d} of parameter {parameter} must be {_valued(extent, known)}, "
                f"but is {actual}"
            )
    return {name: known[name] for name in program.size_names}


def _valued(extent: Size, known: dict[str, int]) -> str:
    """A size with what it comes to: n = 3, or 2*n = 6 (n = 3)."""
    value = extent.evaluate(known)
    values = ", ".join(f"{name} = {known[name]}" for name in sorted(extent.names))
    if not values:
        return str(value)
    return f"{extent} = {value}" + (f" ({values})" if str(extent) not in extent.names else "")


def _solve(known: dict[str, int], dimensions: list[tuple[Variable, int, Size, int]]) -> None:
    """Add to `known` each name that one dimension determines once the names before it are known."""
    by_simplicity = sorted(dimensions, key=lambda one: len(one[2].terms) > 1 or len(one[2].names) > 1)
    progress = True
    while progress:
        progress = False
        for _, _, extent, actual in by_simplicity:
            unknown = extent.names - known.keys()
            linear = extent.coefficient_of(next(iter(unknown))) if len(unknown) == 1 else None
            if linear is None:
                continue
            coefficient, rest = (part.evaluate(known) for part in linear)
            if coefficient and (actual - rest) % coefficient == 0 and (actual - rest) // coefficient >= 0:
                known[next(iter(unknown))] = (actual - rest) // coefficient
                progress = True


def convert_arguments(program: Program, arguments: Sequence[Argument]) -> tuple[Value, ...]:
    """The arguments as arrays of exactly the parameters' dtypes, and scalars as they are computed on.

    Raises:
        TypeError: for an array of another dtype, or a scalar whose kind does not fit.
        ValueError: for a wrong number of arguments.
        OverflowError: for an integer that its parameter's type does not hold.
    """
    _check_count(program, arguments)
    converted: list[Value] = []
    for parameter, argument in zip(program.parameters, arguments, strict=True):
        if parameter.type.rank == 0:
            converted.append(_scalar_argument(program.name, parameter, argument))
            continue
        if not isinstance(argument, np.ndarray):
            raise TypeError(
                f"program {program.name}: parameter {parameter} of type {parameter.type} needs a NumPy array, not "
                f"{argument!r}"
            )
        if not _is_of(argument.dtype, parameter.type.element):
            wanted = np.dtype(parameter.type.element.numpy).name
            raise TypeError(
                f"program {program.name}: parameter {parameter} has type {parameter.type}, the argument has dtype "
                f"{argument.dtype}; convert it: {parameter}.astype({wanted!r})"
            )
        converted.append(argument.astype(parameter.type.element.numpy, copy=False))
    return tuple(converted)


def _is_of(dtype: np.dtype[Any], element: ScalarType) -> bool:
    try:
        return scalar_type_of(dtype) == element
    except TypeError:  # of no type that the language has
        return False


def _scalar_argument(program: str, parameter: Variable, argument: Argument) -> np.generic[Any]:
    scalar = parameter.type.element
    what = f"program {program}: parameter {parameter} of type {parameter.type}"
    try:
        kind = "i" if type(argument) is int else scalar_type_of(np.asarray(argument).dtype).kind
    except TypeError:  # text, None, and the like
        kind = "-"
    if np.ndim(argument) or kind not in _ACCEPTED[scalar.kind]:
        raise TypeError(f"{what} does not take {argument!r}")
    value = np.asarray(argument).item()
    if not holds(scalar, value):
        raise OverflowError(f"{what} does not hold {value}")
    try:
        return as_scalar(value, scalar)
    except OverflowError:  # an integer beyond all floats
        message = f"{what} does not hold an integer beyond 1e308"
        raise OverflowError(message) from None


def holds(scalar: ScalarType, value: Any) -> bool:
    """Whether a scalar type holds a number: an integer type does not hold every integer."""
    return not scalar.is_integer or bool(np.iinfo(scalar.numpy).min <= value <= np.iinfo(scalar.numpy).max)


def as_scalar(value: Any, scalar: ScalarType) -> np.generic[Any]:
    """A NumPy scalar of the type that `scalar` is computed in, converted as C does: what is too large is infinite."""
    dtype = compute_type(scalar).numpy
    converted: np.generic[Any]
    if type(value) is dtype.type:
        converted = value
    else:
        with np.errstate(over="ignore"):
            converted = dtype.type(np.asarray(value).astype(dtype).item())
    return converted
