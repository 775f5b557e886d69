"""Powers of traced scalars by constants: products and square roots in place of the general function."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.scalar_constants import constant, typed_literal
from tilewright.frontend.scalar_tracing import ScalarProxy, apply, meeting_type
from tilewright.ir.scalars import BOOL, I8, I64

_LARGEST_UNROLLED_POWER = 64
_LARGEST_WHOLE_FLOAT, _LARGEST_HALF = 4, 2.5  # products of so few numbers are as right as the power


def power(base: Any, exponent: Any) -> Any:
    """base ** exponent. Whole constant exponents become products and so work on integers and complex numbers too.

    So do halves up to 2.5, with a square root: as of NumPy's `xs ** 0.5`, that of -inf is nan, that of -0.0 is -0.0.
    """
    typed = typed_literal(exponent) if isinstance(base, ScalarProxy) else None
    if typed is not None and typed.type.element.kind in "iuf":
        scalar, exponent = typed.type.element, typed.value
        if not (base.weak and scalar.is_integer):  # the power of a size is a size
            base = base.astype(meeting_type([base, ScalarProxy(typed, base.builder)]))
    if not isinstance(base, ScalarProxy) or not isinstance(exponent, int | float):
        return apply("pow", base, exponent)
    is_float = isinstance(exponent, float)
    largest = _LARGEST_WHOLE_FLOAT if is_float else _LARGEST_UNROLLED_POWER
    magnitude: Any = abs(exponent)
    if base.scalar == BOOL and not is_float:
        base = base.astype(I8 if isinstance(exponent, bool) else I64)  # no truth value, as in NumPy
    if not magnitude <= largest or (base.scalar.kind in "biu" and (is_float or exponent < 0)):
        return apply("pow", base, exponent)
    count = int(magnitude)
    if count != magnitude:
        if count + 0.5 != magnitude or magnitude > _LARGEST_HALF:
            return apply("pow", base, exponent)
        root = apply("sqrt", base)
        half = power(base, count) * root if count else root
        return 1 / half if exponent < 0 else half
    result: Any = ScalarProxy(constant(1, base.scalar), base.builder)
    square: Any = base
    for bit in range(count.bit_length()):
        if count >> bit & 1:
            result = square if not count & ((1 << bit) - 1) else result * square
        if count >> (bit + 1):
            square = square * square
    return 1 / result if exponent < 0 else result
