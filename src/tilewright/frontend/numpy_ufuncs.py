"""NumPy's universal functions of traced values: operators of scalars, and what is made of several of these.

Nothing else of the frontend is imported for them: epilogues and semirings of contractions, which are traced before the
disk is asked for what was compiled, are mostly written with these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.frontend import scalar_functions
from tilewright.frontend.scalar_functions import where
from tilewright.frontend.scalar_powers import power
from tilewright.frontend.scalar_tracing import apply
from tilewright.ir.scalars import BOOL, I8


def traced_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """A universal function of traced values.

    Raises:
        TypeError: for one that cannot be traced, and for its methods and keywords.
    """
    name = ufunc.__name__
    if method != "__call__":
        raise TypeError(f"numpy.{name}.{method} cannot be traced; use tw.reduce, tw.scan, tw.map or tw.hist")
    if options or name not in {*_OPERATORS, *_FUNCTIONS}:
        given = f" with {', '.join(options)}" if options else ""
        traceable = ", ".join(sorted({*_OPERATORS, *_FUNCTIONS}))
        raise TypeError(f"numpy.{name}{given} cannot be traced; traceable: {traceable}")
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*inputs)
    return power(*inputs) if name == "power" else apply(_OPERATORS[name], *inputs)


_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "mod", "mod": "mod", "power": "pow", "negative": "neg",
    "absolute": "abs", "minimum": "min", "maximum": "max", "equal": "eq", "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "bitwise_and": "and",
    "bitwise_or": "or", "bitwise_xor": "xor", "invert": "not", "left_shift": "shl", "right_shift": "shr",
    "sqrt": "sqrt", "cbrt": "cbrt", "hypot": "hypot", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "rint": "round", "copysign": "copysign", "isnan": "isnan", "isinf": "isinf", "conjugate": "conj",
}  # fmt: skip
"""Universal functions that are scalar operators."""


def _truth(value: Any) -> Any:
    return apply("ne", value, 0)


def _extremum_of_numbers(operator: str) -> Callable[..., Any]:
    """The least or greatest of two values; of a nan and a number the number."""

    def chosen(left: Any, right: Any) -> Any:
        return where(_is_nan(left), right, where(_is_nan(right), left, apply(operator, left, right)))

    return chosen


def _is_nan(value: Any) -> Any:
    return value != value  # noqa: PLR0124  # integers have this, too


def _as_float(value: Any) -> Any:
    """Integers as f64, as NumPy's functions of floats take them."""
    return value.astype("f64") if hasattr(value, "scalar") and value.scalar.kind in "biu" else value


def _heaviside(value: Any, at_zero: Any) -> Any:
    value = _as_float(value)
    return where(value == 0, at_zero, where(value < 0, 0, where(value > 0, 1, value)))


def _reciprocal(value: Any) -> Any:
    """Of integers, as NumPy has it, what is left of 1 / x as a whole number; of 0, which it leaves open, 0."""
    value = _as_number(value)
    if not value.scalar.is_integer:
        return 1 / value
    unit = value == 1 if value.scalar.kind == "u" else (value == 1) | (value == -1)
    return where(unit, value, 0)


def _square(value: Any) -> Any:
    value = _as_number(value)
    return value * value


def _as_number(value: Any) -> Any:
    """Truth values as i8, as NumPy's functions of numbers take them."""
    return value.astype(I8) if value.scalar == BOOL else value


def _positive(value: Any) -> Any:
    if value.scalar == BOOL:
        raise TypeError("numpy.positive is not defined on bool; write the operand alone, or x.astype(tw.i8)")
    return value


def _log_add_exp(left: Any, right: Any) -> Any:
    from tilewright.frontend.semiring import SEMIRINGS

    return SEMIRINGS["log_sum_exp"].combine(_as_float(left), _as_float(right))


def _matrix_product(left: Any, right: Any) -> Any:
    from tilewright.frontend.matrix_products import matmul

    return matmul(left, right)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fabs": lambda value: apply("abs", _as_float(value)),
    "fmod": scalar_functions.fmod,
    "divmod": lambda left, right: (left // right, left % right),
    "fmax": _extremum_of_numbers("max"),
    "fmin": _extremum_of_numbers("min"),
    "heaviside": _heaviside,
    "reciprocal": _reciprocal,
    "logaddexp": _log_add_exp,
    "deg2rad": lambda value: _as_float(value) * (math.pi / 180),
    "radians": lambda value: _as_float(value) * (math.pi / 180),
    "rad2deg": lambda value: _as_float(value) * (180 / math.pi),
    "degrees": lambda value: _as_float(value) * (180 / math.pi),
    "signbit": lambda value: scalar_functions.copysign(1.0, value) < 0,
    "sign": scalar_functions.sign,
    "square": _square,
    "isfinite": scalar_functions.isfinite,
    "clip": scalar_functions.clip,
    "positive": _positive,
    "matmul": _matrix_product,
    "logical_and": lambda left, right: _truth(left) & _truth(right),
    "logical_or": lambda left, right: _truth(left) | _truth(right),
    "logical_xor": lambda left, right: _truth(left) ^ _truth(right),
    "logical_not": lambda value: ~_truth(value),
}
"""Universal functions that are made of several."""
