"""Python's and NumPy's numbers as literals of scalar types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.nodes import Literal
from tilewright.ir.scalars import BOOL, C64, C128, F64, ScalarType, scalar_type_of
from tilewright.runtime.messages import value_text

TYPED_NUMBERS = "numbers of NumPy have types of their own, while float(number) takes that of what it meets"
"""What messages say where a number of NumPy may have given a value another type."""


def constant(value: Any, scalar: ScalarType) -> Literal:
    """A Python or NumPy number as a literal of a scalar type.

    Raises:
        TypeError: if the type cannot hold that kind of number (2.5 as i32, 1j as f64).
        OverflowError: if an integer is out of the type's range.
    """
    if isinstance(value, np.ndarray) and value.size != 1:
        raise TypeError(
            f"a NumPy array of shape {value.shape} meets traced values; arrays that a traced function works on are its "
            "parameters, they cannot be constants in it"
        )
    number = value.item() if isinstance(value, np.generic | np.ndarray) else value
    is_time = number is not value and value.dtype.kind in "mM"  # which may be an integer as an item
    if is_time or not isinstance(number, bool | int | float | complex):
        raise TypeError(f"{value_text(value)} is not a number")
    if scalar.is_complex:
        return Literal(complex(number), scalar)
    if isinstance(number, complex):
        raise TypeError(f"the complex constant {number} does not fit the type {scalar}; convert the other operand")
    if scalar.is_float:
        return Literal(float(number), scalar)
    whole = not isinstance(number, float) or (math.isfinite(number) and number == int(number))
    if not whole:
        raise TypeError(
            f"the constant {number} does not fit the type {scalar}; convert the other operand, as in x.astype('f64')"
        )
    if scalar == BOOL:
        if number not in (0, 1):
            raise TypeError(f"the constant {number} does not fit the type bool; convert the other operand")
        return Literal(bool(number), BOOL)
    limits = np.iinfo(scalar.numpy)
    if not limits.min <= int(number) <= limits.max:
        raise OverflowError(f"the constant {number} is out of the range of {scalar}: {limits.min} to {limits.max}")
    return Literal(int(number), scalar)


def typed_literal(value: Any) -> Literal | None:
    """A number of NumPy (a scalar, or an array of one element) as a literal of its own type; None of anything else.

    >>> print(typed_literal(np.float32(0.5)), typed_literal(0.5))
    0.5f32 None

    Raises:
        TypeError: for arrays of several elements, which are no constants.
    """
    if not isinstance(value, np.generic | np.ndarray) or not _is_numeric(value.dtype):
        return None
    return constant(value, scalar_type_of(value.dtype))


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    return (dtype.kind in "biufc" and dtype.itemsize <= (16 if dtype.kind == "c" else 8)) or dtype.name == "bfloat16"


def type_of_numbers(values: Sequence[Any]) -> ScalarType:
    """The type in which numbers meet, of which those of Python take the type of NumPy's that they meet."""
    typed = [one.dtype for one in values if isinstance(one, np.generic | np.ndarray)]
    weak = [one for one in values if not isinstance(one, np.generic | np.ndarray)]
    return scalar_type_of(np.result_type(*typed, *(weak if typed else (np.asarray(one).dtype for one in weak))))


def promoted_for_numbers(scalar: ScalarType, numbers: Sequence[Any]) -> ScalarType:
    """A bool meets a Python number as NumPy has it; real numbers meet a complex constant in the complex type."""
    if scalar == BOOL and any(not isinstance(one, bool) for one in numbers):
        return type_of_numbers(numbers)
    if scalar.kind in "fiu" and any(isinstance(one, complex) for one in numbers):
        return C64 if scalar.is_float and scalar != F64 else C128
    return scalar


def neutral_constant(value: Any, scalar: ScalarType) -> Literal:
    """A neutral element as a literal: a `constant`, but that infinities become the extremes of integer types."""
    if isinstance(value, float | np.floating) and math.isinf(value) and scalar.kind in "biu":
        if scalar == BOOL:
            return Literal(bool(value > 0), scalar)
        limits = np.iinfo(scalar.numpy)
        return Literal(int(limits.max if value > 0 else limits.min), scalar)
    return constant(value, scalar)
