"""The scalar operators: one table with each operator's arity, the kinds of scalars it takes, and its meaning in NumPy.

Every other part (verifier, tracer, interpreter, kernel printers) reads this table; an operator exists when it has a
line here. Operands of one operator have one type, but for `select(condition, then, otherwise)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, ScalarType, real_of

_NUMBER, _REAL, _FLOAT, _FLOATING, _ANY, _INTEGRAL = "iufc", "iuf", "f", "fc", "biufc", "biu"


@dataclass(frozen=True)
class Operator:
    """One operator: `kinds` are the `ScalarType.kind`s it accepts; `result` is "same", "bool" or "real"."""

    name: str
    arity: int
    kinds: str
    meaning: Callable[..., Any]
    result: str = "same"
    symbol: str | None = None


def _floor_divide(left: Any, right: Any) -> Any:
    if np.asarray(left).dtype.kind in "iu":
        zero = np.equal(right, 0)
        return np.where(zero, np.zeros_like(left), np.floor_divide(left, np.where(zero, np.ones_like(right), right)))
    return np.floor_divide(left, right)


def _modulo(left: Any, right: Any) -> Any:
    if np.asarray(left).dtype.kind in "iu":
        zero = np.equal(right, 0)
        return np.where(zero, np.zeros_like(left), np.mod(left, np.where(zero, np.ones_like(right), right)))
    return np.mod(left, right)


def _shift_left(left: Any, right: Any) -> Any:
    return np.left_shift(left, np.bitwise_and(right, np.asarray(left).dtype.itemsize * 8 - 1))


def _shift_right(left: Any, right: Any) -> Any:
    return np.right_shift(left, np.bitwise_and(right, np.asarray(left).dtype.itemsize * 8 - 1))


def _from_math(function: Callable[[float], float]) -> Callable[..., Any]:
    """A function of Python's that NumPy lacks, of each element in double precision."""
    each = np.vectorize(function, otypes=[np.float64])
    return lambda value: each(value).astype(np.asarray(value).dtype)


_TABLE = (
    # arithmetic (integers wrap around; integer floordiv and mod by zero give 0, signs as in Python)
    Operator("add", 2, _NUMBER, np.add, symbol="+"),
    Operator("sub", 2, _NUMBER, np.subtract, symbol="-"),
    Operator("mul", 2, _NUMBER, np.multiply, symbol="*"),
    Operator("div", 2, _FLOATING, np.divide, symbol="/"),
    Operator("floordiv", 2, _REAL, _floor_divide, symbol="//"),
    Operator("mod", 2, _REAL, _modulo, symbol="%"),
    Operator("pow", 2, _FLOAT, np.power, symbol="**"),
    Operator("neg", 1, _NUMBER, np.negative),
    Operator("abs", 1, _NUMBER, np.abs, result="real"),
    Operator("min", 2, _REAL + "b", np.minimum),  # a nan operand gives nan, as in NumPy
    Operator("max", 2, _REAL + "b", np.maximum),
    Operator("fma", 3, _FLOAT, lambda a, b, c: a * b + c),
    # comparison
    Operator("eq", 2, _ANY, np.equal, result="bool", symbol="=="),
    Operator("ne", 2, _ANY, np.not_equal, result="bool", symbol="!="),
    Operator("lt", 2, _REAL + "b", np.less, result="bool", symbol="<"),
    Operator("le", 2, _REAL + "b", np.less_equal, result="bool", symbol="<="),
    Operator("gt", 2, _REAL + "b", np.greater, result="bool", symbol=">"),
    Operator("ge", 2, _REAL + "b", np.greater_equal, result="bool", symbol=">="),
    # logic and bits (shift amounts are taken modulo the width)
    Operator("and", 2, _INTEGRAL, np.bitwise_and, symbol="&"),
    Operator("or", 2, _INTEGRAL, np.bitwise_or, symbol="|"),
    Operator("xor", 2, _INTEGRAL, np.bitwise_xor, symbol="^"),
    Operator("not", 1, _INTEGRAL, np.invert),
    Operator("shl", 2, "iu", _shift_left, symbol="<<"),
    Operator("shr", 2, "iu", _shift_right, symbol=">>"),
    # choice
    Operator("select", 3, _ANY, np.where),
    # real functions
    Operator("sqrt", 1, _FLOATING, np.sqrt),
    Operator("rsqrt", 1, _FLOAT, lambda x: np.divide(np.ones_like(x), np.sqrt(x))),
    Operator("exp", 1, _FLOATING, np.exp),
    Operator("exp2", 1, _FLOAT, np.exp2),
    Operator("log", 1, _FLOAT, np.log),
    Operator("log2", 1, _FLOAT, np.log2),
    Operator("log10", 1, _FLOAT, np.log10),
    Operator("log1p", 1, _FLOAT, np.log1p),
    Operator("expm1", 1, _FLOAT, np.expm1),
    Operator("cbrt", 1, _FLOAT, np.cbrt),
    Operator("hypot", 2, _FLOAT, np.hypot),
    Operator("sin", 1, _FLOAT, np.sin),
    Operator("cos", 1, _FLOAT, np.cos),
    Operator("tan", 1, _FLOAT, np.tan),
    Operator("asin", 1, _FLOAT, np.arcsin),
    Operator("acos", 1, _FLOAT, np.arccos),
    Operator("atan", 1, _FLOAT, np.arctan),
    Operator("atan2", 2, _FLOAT, np.arctan2),
    Operator("sinh", 1, _FLOAT, np.sinh),
    Operator("cosh", 1, _FLOAT, np.cosh),
    Operator("tanh", 1, _FLOAT, np.tanh),
    Operator("asinh", 1, _FLOAT, np.arcsinh),
    Operator("acosh", 1, _FLOAT, np.arccosh),
    Operator("atanh", 1, _FLOAT, np.arctanh),
    Operator("erf", 1, _FLOAT, _from_math(math.erf)),
    Operator("erfc", 1, _FLOAT, _from_math(math.erfc)),
    Operator("copysign", 2, _FLOAT, np.copysign),
    Operator("floor", 1, _FLOAT, np.floor),
    Operator("ceil", 1, _FLOAT, np.ceil),
    Operator("trunc", 1, _FLOAT, np.trunc),
    Operator("round", 1, _FLOAT, np.rint),  # to even
    Operator("isnan", 1, _FLOAT, np.isnan, result="bool"),
    Operator("isinf", 1, _FLOAT, np.isinf, result="bool"),
    # complex numbers
    Operator("conj", 1, "c", np.conj),
    Operator("real", 1, "c", np.real, result="real"),
    Operator("imag", 1, "c", np.imag, result="real"),
)

OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _TABLE}


def result_type(name: str, operands: tuple[ScalarType, ...]) -> ScalarType:
    """The type that an operator gives on operands of these types.

    Raises:
        TypeError: for an unknown operator, a wrong number of operands, mixed types, or a type it is not defined on.
    """
    if name not in OPERATORS:
        raise TypeError(f"unknown operator {name!r}")
    operator = OPERATORS[name]
    if len(operands) != operator.arity:
        raise TypeError(f"operator {name} takes {operator.arity} operands, not {len(operands)}")
    values = operands
    if name == "select":
        if operands[0] != BOOL:
            raise TypeError(f"select needs a bool condition, not {operands[0]}")
        values = operands[1:]
    if values.count(values[0]) != len(values):
        raise TypeError(f"operator {name} needs operands of one type, got {', '.join(map(str, operands))}")
    if values[0].kind not in operator.kinds:
        raise TypeError(f"operator {name} is not defined on {values[0]}")
    if operator.result == "bool":
        return BOOL
    return real_of(values[0]) if operator.result == "real" else values[0]
