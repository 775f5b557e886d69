"""What NumPy means by operators on integers of which the language has others: shifts, powers, signed beside unsigned.

The language takes the amount of a shift modulo the width, has powers of floats only, and compares numbers of one type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Apply, Atom, Literal
from tilewright.ir.scalars import BOOL, I64, U8, U16, U32, U64, ScalarType

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_UNSIGNED = {one.bits: one for one in (U8, U16, U32, U64)}


def apply_to_integers(builder: Builder, operator: str, left: Atom, right: Atom) -> Atom:
    """A shift, or a power, of two integers of one type."""
    if operator == "pow":
        return integer_power(builder, left, right)
    return shifted(builder, operator, left, right)


def shifted(builder: Builder, operator: str, value: Atom, amount: Atom) -> Atom:
    """A shift: by less than 0, or by the width and more, nothing is left, or to the right the sign."""
    scalar = value.type.element
    keeps_sign = operator == "shr" and scalar.kind == "i"
    if _is_below(builder, amount, scalar.bits):
        return builder.apply(operator, value, amount)
    signs = builder.apply("shr", value, Literal(scalar.bits - 1, scalar)) if keeps_sign else Literal(0, scalar)
    if isinstance(amount, Literal):
        return signs
    beyond = Literal(-scalar.bits if scalar.kind == "i" else 2**scalar.bits - scalar.bits, scalar)
    inside = builder.apply("eq", builder.apply("and", amount, beyond), Literal(0, scalar))
    return builder.apply("select", inside, builder.apply(operator, value, amount), signs)


def _is_below(builder: Builder, amount: Atom, bits: int) -> bool:
    """Whether an amount is known to be from 0 to `bits` - 1: a constant, or masked."""
    if isinstance(amount, Literal):
        return 0 <= amount.value < bits  # type: ignore[operator]  # of an integer type
    made = builder.definition(amount)
    masks = made.operands if isinstance(made, Apply) and made.operator == "and" else ()
    return any(isinstance(one, Literal) and _is_below(builder, one, bits) for one in masks)


def integer_power(builder: Builder, base: Atom, exponent: Atom) -> Atom:
    """base ** exponent by squarings, which wrap around.

    NumPy refuses exponents below 0, which are known here only when the program runs: what is between -1 and 1 is 0.
    """
    scalar = base.type.element
    unsigned = _UNSIGNED[scalar.bits]
    one, zero = Literal(1, scalar), Literal(0, scalar)
    none, bit = Literal(0, unsigned), Literal(1, unsigned)
    magnitude = builder.cast(unsigned, builder.apply("abs", exponent) if scalar.kind == "i" else exponent)

    def going(left: Atom, square: Atom, made: Atom) -> Atom:
        return builder.apply("ne", left, none)

    def multiplied(left: Atom, square: Atom, made: Atom) -> Sequence[Atom]:
        odd = builder.apply("ne", builder.apply("and", left, bit), none)
        product = builder.apply("select", odd, builder.apply("mul", made, square), made)
        return builder.apply("shr", left, bit), builder.apply("mul", square, square), product

    *_, found = builder.while_loop([magnitude, base, one], going, multiplied)
    if scalar.kind == "u":
        return found
    is_unit = builder.apply("eq", builder.apply("abs", base), one)
    inverse = builder.apply("select", is_unit, found, zero)
    return builder.apply("select", builder.apply("lt", exponent, zero), inverse, found)


def meets_u64(scalars: Sequence[ScalarType]) -> bool:
    """Whether two integer types have no common one that holds both."""
    return len(scalars) == 2 and U64 in scalars and any(one.kind == "i" for one in scalars)


def compared_with_u64(builder: Builder, operator: str, left: Atom, right: Atom) -> Atom:
    """A comparison of a signed integer with a u64, in whichever order, by their values."""
    if left.type.element == U64:
        return compared_with_u64(builder, _MIRRORED.get(operator, operator), right, left)
    signed = builder.cast(I64, left)
    negative = builder.apply("lt", signed, Literal(0, I64))
    found = builder.apply(operator, builder.cast(U64, signed), right)
    return builder.apply("select", negative, Literal(operator in ("ne", "lt", "le"), BOOL), found)


def compared_out_of_range(operator: str, values: Sequence[Any], scalar: ScalarType) -> bool | None:
    """What a comparison of values of an integer type with a Python integer is that the type cannot hold: the same for
    all of them, as NumPy has it. None of anything else.

    >>> print(compared_out_of_range("lt", ["x", 256], U8), compared_out_of_range("lt", ["x", 255], U8))
    True None
    """
    numbers = [one for one in values if type(one) is int]
    if operator not in COMPARISONS or scalar.kind not in "iu" or len(numbers) != 1:
        return None
    (number,) = numbers
    limits = np.iinfo(scalar.numpy)
    if limits.min <= number <= limits.max:
        return None
    if values[0] is number:
        operator = _MIRRORED.get(operator, operator)
    return operator == "ne" or operator in (("lt", "le") if number > limits.max else ("gt", "ge"))


def is_whole(value: Any) -> bool:
    """Whether a number is an integer of at least 0; True of what is no number."""
    if isinstance(value, float | complex | np.inexact):
        return False
    return not isinstance(value, int | np.integer) or int(value) >= 0
