"""Python's and NumPy's numbers as literals of scalar types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.nodes import Literal
from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.runtime.messages import value_text


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
    if not isinstance(number, bool | int | float | complex):
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


def neutral_constant(value: Any, scalar: ScalarType) -> Literal:
    """A neutral element as a literal: a `constant`, but that infinities become the extremes of integer types."""
    if isinstance(value, float | np.floating) and math.isinf(value) and scalar.kind in "biu":
        if scalar == BOOL:
            return Literal(bool(value > 0), scalar)
        limits = np.iinfo(scalar.numpy)
        return Literal(int(limits.max if value > 0 else limits.min), scalar)
    return constant(value, scalar)
