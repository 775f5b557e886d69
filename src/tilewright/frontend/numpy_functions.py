"""NumPy's functions where they meet traced values: what they are here, and what is written in place of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from tilewright.frontend import (
    array_functions,
    axis_functions,
    gather_functions,
    neighbour_functions,
    scalar_functions,
    shape_functions,
)
from tilewright.frontend.array_arguments import dimension_of
from tilewright.frontend.einsum import einsum
from tilewright.frontend.scalar_functions import rounded, where
from tilewright.frontend.scalar_tracing import apply, power
from tilewright.frontend.semiring import SEMIRINGS
from tilewright.frontend.tensordot import tensordot


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


def traced_function(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Another function of NumPy, of traced values.

    Raises:
        TypeError: for one that cannot be traced, with what is written instead.
    """
    name = function.__name__
    if name in _OTHERS:
        try:
            signature(_OTHERS[name]).bind(*arguments, **options)
        except TypeError as error:
            raise TypeError(f"numpy.{name} of traced arrays: {error}") from None
        return _OTHERS[name](*arguments, **options)
    instead = _INSTEAD.get(name, "tilewright's functions")
    raise TypeError(f"{function.__module__}.{name} cannot be traced; use {instead}")


def _flipped(array: Any, axis: int | Sequence[int] | None = None) -> Any:
    chosen = range(array.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    turned = {dimension_of("flip", array, one) for one in chosen}
    return array[tuple(slice(None, None, -1 if d in turned else None) for d in range(array.ndim))]


def _angle(value: Any) -> Any:
    return apply("atan2", value.imag, value.real)


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
    if value.scalar.is_integer:
        raise TypeError("numpy.reciprocal of integers cannot be traced; write 1 / x for a float, or tw.where")
    return 1 / value


def _log_add_exp(left: Any, right: Any) -> Any:
    return SEMIRINGS["log_sum_exp"].combine(_as_float(left), _as_float(right))


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
    "square": scalar_functions.square,
    "isfinite": scalar_functions.isfinite,
    "clip": scalar_functions.clip,
    "positive": lambda value: value,
    "matmul": array_functions.matmul,
    "logical_and": lambda left, right: _truth(left) & _truth(right),
    "logical_or": lambda left, right: _truth(left) | _truth(right),
    "logical_xor": lambda left, right: _truth(left) ^ _truth(right),
    "logical_not": lambda value: ~_truth(value),
}
"""Universal functions that are made of several."""


_OTHERS: dict[str, Callable[..., Any]] = {
    "where": scalar_functions.where,
    "clip": scalar_functions.clip,
    "real": lambda value: value.real,
    "imag": lambda value: value.imag,
    "shape": lambda array: array.shape,
    "ndim": lambda array: array.ndim,
    "transpose": lambda array, axes=None: array_functions.transpose(array, axes),
    "roll": array_functions.roll,
    "flip": _flipped,
    "angle": _angle,
    "round": lambda value, decimals=0: rounded(value, decimals),
    "around": lambda value, decimals=0: rounded(value, decimals),
    "fix": lambda value: apply("trunc", value),
    "concatenate": lambda arrays, axis=0: array_functions.concat(*arrays, axis=axis),
    "einsum": einsum,
    "tensordot": tensordot,
    **axis_functions.FUNCTIONS,
    **shape_functions.FUNCTIONS,
    **gather_functions.FUNCTIONS,
    **neighbour_functions.FUNCTIONS,
}

_FILTER = "tw.where for arrays of the same size; examples/filter.py has how elements are kept, and counted"
_INSTEAD = {
    "average": "(xs * ws).sum() / ws.sum()",
    "trapezoid": "((ys[1:] + ys[:-1]) * (xs[1:] - xs[:-1])).sum() / 2",
    "bincount": 'tw.hist("add", 0, count, indices, weights)',
    "histogram": 'tw.hist("add", 0, bins, indices, 1), indices computed by tw.map',
    "nonzero": _FILTER,
    "flatnonzero": _FILTER,
    "argwhere": _FILTER,
    "compress": _FILTER,
    "extract": _FILTER,
    "nan_to_num": "tw.where(tw.isnan(xs), 0.0, xs)",
    "sort": "np.sort before the program: there is no sorting in programs",
    "argsort": "np.argsort before the program: there is no sorting in programs",
    "median": "np.median outside of the program: there is no sorting in programs",
    "percentile": "np.percentile outside of the program: there is no sorting in programs",
    "quantile": "np.quantile outside of the program: there is no sorting in programs",
    "unique": "np.unique outside of the program: there is no sorting in programs",
}
"""What is written in place of functions that go over the rows of arrays."""

METHODS: dict[str, Callable[..., Any]] = {
    **axis_functions.METHODS,
    **shape_functions.METHODS,
    **gather_functions.METHODS,
    "clip": scalar_functions.clip,
    "round": lambda value, decimals=0: rounded(value, decimals),
    "transpose": lambda array, *axes: array_functions.transpose(array, axes or None),
}
"""What traced arrays have as methods, beside those that `ArrayProxy` has itself."""
