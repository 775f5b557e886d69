"""NumPy's functions where they meet traced values: what they are here, and what is written in place of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.frontend import scalar_functions
from tilewright.frontend.scalar_tracing import apply, power


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
        return _OTHERS[name](*arguments, **options)
    instead = _INSTEAD.get(name, "tilewright's functions")
    raise TypeError(f"numpy.{name} cannot be traced; use {instead}")


def _concatenate(arrays: Any, axis: int = 0) -> Any:
    from tilewright.frontend.array_functions import concat

    return concat(*arrays, axis=axis)


def _transpose(array: Any, axes: Any = None) -> Any:
    from tilewright.frontend.array_functions import transpose

    return transpose(array, axes)


_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "mod", "mod": "mod", "power": "pow", "negative": "neg",
    "absolute": "abs", "fabs": "abs", "minimum": "min", "maximum": "max", "equal": "eq", "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "bitwise_and": "and",
    "bitwise_or": "or", "bitwise_xor": "xor", "invert": "not", "left_shift": "shl", "right_shift": "shr",
    "sqrt": "sqrt", "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1", "sin": "sin", "cos": "cos",
    "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "round",
    "isnan": "isnan", "isinf": "isinf", "conjugate": "conj",
}  # fmt: skip
"""Universal functions that are scalar operators."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sign": scalar_functions.sign,
    "square": scalar_functions.square,
    "isfinite": scalar_functions.isfinite,
    "clip": scalar_functions.clip,
    "positive": lambda value: value,
    "logical_and": lambda left, right: _truth(left) & _truth(right),
    "logical_or": lambda left, right: _truth(left) | _truth(right),
    "logical_xor": lambda left, right: _truth(left) ^ _truth(right),
    "logical_not": lambda value: ~_truth(value),
}
"""Universal functions that are made of several."""


def _truth(value: Any) -> Any:
    return apply("ne", value, 0)


_OTHERS: dict[str, Callable[..., Any]] = {
    "where": scalar_functions.where,
    "clip": scalar_functions.clip,
    "real": lambda value: value.real,
    "imag": lambda value: value.imag,
    "shape": lambda array: array.shape,
    "ndim": lambda array: array.ndim,
    "transpose": _transpose,
    "concatenate": _concatenate,
}

_INSTEAD = {
    "sum": 'tw.reduce("add", 0, xs)',
    "prod": 'tw.reduce("mul", 1, xs)',
    "max": 'tw.reduce("max", -np.inf, xs)',
    "amax": 'tw.reduce("max", -np.inf, xs)',
    "min": 'tw.reduce("min", np.inf, xs)',
    "amin": 'tw.reduce("min", np.inf, xs)',
    "any": 'tw.reduce("or", False, xs)',
    "all": 'tw.reduce("and", True, xs)',
    "mean": 'tw.reduce("add", 0, xs) / xs.shape[0]',
    "dot": 'tw.reduce("add", 0, xs * ys)',
    "cumsum": 'tw.scan("add", 0, xs)',
    "cumprod": 'tw.scan("mul", 1, xs)',
    "reshape": "tw.reshape",
    "zeros_like": "tw.replicate(xs.shape, 0.0)",
    "ones_like": "tw.replicate(xs.shape, 1.0)",
}
"""What is written in place of functions that go over the rows of arrays."""
