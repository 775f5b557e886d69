"""Functions of scalars for traced Python code; on plain numbers and arrays they compute with NumPy.

On a CPU all of them run in vectors. Their errors there, in units in the last place: `sqrt` 0.5; `copysign` and `fmod`
0; `rsqrt` less than 1.5; `exp` and `log` of f32 less than 2 (with AVX-512 less than 1); the others less than 4, for
arguments of any size, as glibc's vector functions have them (where there are none, the C library's own, which are
better). On all devices a product and a sum that it goes into may be rounded once, as `fma` does it, and not twice.

Angles are in radians. Operands of several types are converted to one as in NumPy; outside of programs arrays are
broadcast as in NumPy. All functions raise a TypeError for a type on which they are not defined, and for another number
of operands.

>>> float(maximum(-2.0, 0)), float(where(True, 1, 2))
(0.0, 1.0)
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from tilewright.frontend.decided_truth import plain
from tilewright.frontend.named_types import type_named
from tilewright.frontend.scalar_tracing import ScalarProxy, apply
from tilewright.ir.operators import OPERATORS


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`; both are evaluated.

    >>> int(where(2 > 1, 5, 7))
    5
    """
    return apply("select", condition, then, otherwise)


def minimum(left: Any, right: Any) -> Any:
    """The smaller one; nan if either is nan.

    >>> float(minimum(3.0, -1.0))
    -1.0
    """
    return apply("min", left, right)


def maximum(left: Any, right: Any) -> Any:
    """The larger one; nan if either is nan.

    >>> float(maximum(3.0, -1.0))
    3.0
    """
    return apply("max", left, right)


def abs(value: Any) -> Any:
    """The absolute value; of a complex number its modulus, which is real.

    >>> float(abs(-2.0))
    2.0
    """
    return apply("abs", value)


def sign(value: Any) -> Any:
    """-1, 0 or 1, of the value's type; nan of nan. Not defined on complex numbers.

    >>> float(sign(-2.5))
    -1.0
    """
    if not hasattr(value, "__tilewright_apply__"):
        return np.sign(value)
    if value.scalar.kind == "u":
        return minimum(value, 1)
    return where(value > 0, 1, where(value < 0, -1, where(value == 0, 0, value)))


def square(value: Any) -> Any:
    """value * value.

    >>> float(square(-3.0))
    9.0
    """
    return value * value


def clip(value: Any, lower: Any, upper: Any) -> Any:
    """minimum(maximum(value, lower), upper); a bound that is None does not bind.

    Nor does one below or above all numbers of an integer type, as in NumPy.

    >>> float(clip(7.0, 0, 1))
    1.0
    """
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        lower = None if type(lower) is int and lower <= limits.min else lower
        upper = None if type(upper) is int and upper >= limits.max else upper
    raised = value if lower is None else maximum(value, lower)
    return raised if upper is None else minimum(raised, upper)


def isfinite(value: Any) -> Any:
    """Whether the value is neither infinite nor nan.

    >>> bool(isfinite(1.0)), bool(isfinite(np.inf))
    (True, False)
    """
    return ~(isnan(value) | isinf(value))


def fmod(left: Any, right: Any) -> Any:
    """The remainder with the sign of `left`, as C has it (`%` has that of `right`); of integers by zero it is 0.

    >>> float(fmod(-7.5, 2.0)), -7.5 % 2.0
    (-1.5, 0.5)
    """
    left, right = plain(left), plain(right)
    if not any(hasattr(one, "__tilewright_apply__") for one in (left, right)):
        return np.fmod(left, right)
    remainder = left % right
    if remainder.scalar.is_integer:
        return where((remainder != 0) & ((left < 0) != (right < 0)), remainder - right, remainder)
    left, right = (cast(one, remainder.scalar) if hasattr(one, "astype") else one for one in (left, right))
    # A Python number stays one, which takes the type of what it meets: NumPy's abs would give it a type.
    ours, theirs = (abs(one) if hasattr(one, "astype") else builtins.abs(one) for one in (left, right))
    return copysign(ours % theirs, left)


def rounded(value: Any, digits: int | None = None) -> Any:
    """What Python's `round` means on traced numbers: without digits an i64, halves to even; else of the value's type.

    As in NumPy the digits are made by a multiplication and a division, both of which round. Numbers out of the range of
    i64, infinities and nans have no i64: what is given for them is up to the device.

    Raises:
        TypeError: for complex numbers, and a count of digits that is no constant.
    """
    if value.scalar.is_integer:
        if digits is not None and digits < 0:
            raise TypeError(
                f"round to {digits} digits is not defined on {value.scalar}; convert it with .astype(tw.f64)"
            )
        return value
    if digits is None:
        return cast(rint(value), "i64")
    if not isinstance(digits, int):
        raise TypeError(f"round needs a constant number of digits, not {digits!r}")
    scale = 10.0 ** builtins.abs(digits)
    return rint(value * scale) / scale if digits >= 0 else rint(value / scale) * scale


def relu(value: Any) -> Any:
    """max(value, 0).

    >>> float(relu(-2.0))
    0.0
    """
    return apply("max", value, 0)


def sigmoid(value: Any) -> Any:
    """1 / (1 + exp(-value)).

    >>> float(sigmoid(0.0))
    0.5
    """
    return 1 / (1 + apply("exp", -value))


def conj(value: Any) -> Any:
    """The complex conjugate.

    >>> complex(conj(1 + 2j))
    (1-2j)
    """
    return apply("conj", value)


def cast(value: Any, scalar: object) -> Any:
    """Conversion to another scalar type (`tw.f32`, a NumPy dtype or a name); of floats to integers towards zero.

    What numbers out of the range of the integer type, infinities and nans give is up to the device, as in NumPy.

    >>> int(cast(2.75, "i32"))
    2
    """
    if hasattr(value, "astype"):
        return value.astype(scalar if isinstance(value, ScalarProxy) else type_named(scalar).numpy)
    return type_named(scalar).numpy.type(value)


_NAMES = {1: ("value",), 2: ("first", "second"), 3: ("a", "b", "c")}


def _function(operator: str, meaning: str, example: str) -> Callable[..., Any]:
    """An operator as a function; `example`: its operands, and what it gives for them as a plain Python value."""
    arity = OPERATORS[operator].arity

    def function(*operands: Any) -> Any:
        if len(operands) != arity:
            raise TypeError(f"{operator} takes {arity} {'operand' if arity == 1 else 'operands'}, not {len(operands)}")
        return apply(operator, *operands)

    given, _, result = example.partition(" = ")
    function.__name__ = function.__qualname__ = operator
    name = "rint" if operator == "round" else operator
    function.__doc__ = f"{meaning}\n\n    >>> {name}({given}).item()\n    {result}\n    "
    parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in _NAMES[arity]]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return function


sqrt = _function("sqrt", "The square root; nan below 0.", "9.0 = 3.0")
rsqrt = _function(
    "rsqrt",
    """1 / sqrt(value), faster than that: on CPUs and in CUDA and OpenCL right to less than 2 units in the last place.

    rsqrt(0) is infinite (with the sign of the zero), rsqrt(inf) is 0, and that of a negative number is nan.""",
    "4.0 = 0.5",
)
exp = _function("exp", "e to the power of the value.", "0.0 = 1.0")
log = _function("log", "The natural logarithm; nan below 0.", "1.0 = 0.0")
exp2 = _function("exp2", "2 to the power of the value.", "3.0 = 8.0")
log2 = _function("log2", "The logarithm of base 2; nan below 0.", "8.0 = 3.0")
log10 = _function("log10", "The logarithm of base 10; nan below 0.", "1000.0 = 3.0")
log1p = _function("log1p", "log(1 + value), accurate near 0.", "1e-20 = 1e-20")
expm1 = _function("expm1", "exp(value) - 1, accurate near 0.", "1e-20 = 1e-20")
cbrt = _function("cbrt", "The cube root, of the value's sign.", "-8.0 = -2.0")
hypot = _function("hypot", "The length of (first, second), which no square on the way overflows.", "3.0, -4.0 = 5.0")
sin = _function("sin", "The sine of an angle in radians.", "0.0 = 0.0")
cos = _function("cos", "The cosine of an angle in radians.", "0.0 = 1.0")
tan = _function("tan", "The tangent of an angle in radians.", "0.0 = 0.0")
asin = _function("asin", "The arc sine, from -pi/2 to pi/2 radians; nan beyond -1 and 1.", "0.0 = 0.0")
acos = _function("acos", "The arc cosine, from 0 to pi radians; nan beyond -1 and 1.", "1.0 = 0.0")
atan = _function("atan", "The arc tangent, from -pi/2 to pi/2 radians.", "0.0 = 0.0")
atan2 = _function("atan2", "The angle of the point (second, first), from -pi to pi radians.", "0.0, 1.0 = 0.0")
sinh = _function("sinh", "The hyperbolic sine.", "0.0 = 0.0")
cosh = _function("cosh", "The hyperbolic cosine.", "0.0 = 1.0")
tanh = _function("tanh", "The hyperbolic tangent.", "0.0 = 0.0")
asinh = _function("asinh", "The inverse hyperbolic sine.", "0.0 = 0.0")
acosh = _function("acosh", "The inverse hyperbolic cosine; nan below 1.", "1.0 = 0.0")
atanh = _function("atanh", "The inverse hyperbolic tangent; nan beyond -1 and 1.", "0.0 = 0.0")
erf = _function(
    "erf", "The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to the value.", "0.0 = 0.0"
)
erfc = _function("erfc", "1 - erf(value), accurate where that is near 0.", "0.0 = 1.0")
copysign = _function(
    "copysign", "The magnitude of the first with the sign of the second, also that of a zero.", "2.0, -0.0 = -2.0"
)
floor = _function("floor", "Rounded down.", "-1.5 = -2.0")
ceil = _function("ceil", "Rounded up.", "-1.5 = -1.0")
trunc = _function("trunc", "Rounded towards zero.", "-1.5 = -1.0")
rint = _function("round", "Rounded to the nearest whole number, halves to even.", "2.5 = 2.0")
isnan = _function("isnan", "Whether the value is nan.", "1.0 = False")
isinf = _function("isinf", "Whether the value is infinite.", "1.0 = False")
fma = _function("fma", "a * b + c, rounded once where a device can.", "np.float64(2.0), 3.0, 4.0 = 10.0")
