"""Traced scalar functions compute what the same Python function computes on NumPy scalars."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.frontend.scalar_constants import constant
from tilewright.frontend.scalar_functions import (
    cast,
    conj,
    cos,
    exp,
    fma,
    isnan,
    log,
    maximum,
    minimum,
    relu,
    rint,
    sigmoid,
    sqrt,
    tanh,
    where,
)
from tilewright.frontend.scalar_tracing import ScalarProxy, trace
from tilewright.ir.builder import Builder
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Literal, Type
from tilewright.ir.scalars import BOOL, C64, F16, F32, F64, I8, I32, U8, ScalarType
from tilewright.ir.verifier import verify


def traced(function: Callable[..., Any], *arguments: np.generic) -> Any:
    """The value of the traced function, through a verified program and the interpreter."""
    from tilewright.ir.scalars import scalar_type_of

    builder = Builder()
    parameters = [builder.variable("x", Type(scalar_type_of(one.dtype))) for one in arguments]
    program = builder.program("traced", parameters, [trace(builder, function, parameters)])
    verify(program)
    return interpret(program, arguments)[0]


F = np.float32(0.75)
G = np.float32(-2.5)
FLOAT_FUNCTIONS: list[Callable[..., Any]] = [
    lambda a, b: a + b * 2,
    lambda a, b: 1 - a / b,
    lambda a, b: 3 // a + b % 2,
    lambda a, b: -abs(b) + (+a),
    lambda a, b: a**2 + b**3 - a**0.5,
    lambda a, b: b**-2,
    lambda a, b: b**0 + 2**a,
    lambda a, b: where(a > b, a, 0) + where(a <= 0.75, 1.0, b),
    lambda a, b: maximum(a, 0) + minimum(b, 0) + relu(b),
    lambda a, b: exp(a) + log(a) + sqrt(a) + tanh(b) + cos(b),
    lambda a, b: np.exp(a) + np.maximum(b, 0) - np.float32(2) * np.tanh(b) + np.power(a, 2),
    lambda a, b: sigmoid(a) * rint(b),
    lambda a, b: fma(a, b, 1.0),
    lambda a, b: where((a < 1) & ~(b > 0) | (a == b), a, b),
    lambda a, b: where((a != b) ^ isnan(a), a.real, conj(b)),
]


@pytest.mark.parametrize("function", FLOAT_FUNCTIONS)
def test_float_functions(function: Callable[..., Any]) -> None:
    result = traced(function, F, G)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, function(F, G), rtol=3e-7)


INTEGER_FUNCTIONS: list[Callable[..., Any]] = [
    lambda a, b: a + b * 3 - 1,
    lambda a, b: (a // b) * b + a % b,
    lambda a, b: (a & 6) | (b ^ a) | (~b),
    lambda a, b: (a << 3) >> 1,
    lambda a, b: a**3,
    lambda a, b: where(a >= b, -a, abs(b)),
]


@pytest.mark.parametrize("function", INTEGER_FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8])
def test_integer_functions(function: Callable[..., Any], dtype: type[np.generic]) -> None:
    a, b = dtype(-5), dtype(3)
    result = traced(function, a, b)
    assert result.dtype == dtype
    assert result == function(a, b)


def test_mixed_types_meet_as_in_numpy() -> None:
    assert traced(lambda a, b: a + b, np.int8(100), np.uint8(200)) == np.int16(300)
    assert traced(lambda a, b: a * b, np.int32(3), np.float32(0.5)).dtype == np.float64
    assert traced(lambda a: a / 2, np.int32(3)) == np.float64(1.5)
    assert traced(exp, np.int32(0)).dtype == np.float64
    assert traced(lambda a: a * 1j, np.float32(2)).dtype == np.complex64
    assert traced(lambda a, b: a + b, np.True_, np.True_).dtype == bool
    assert traced(lambda a, b: a * b, np.True_, np.False_) == np.False_
    assert traced(lambda a: a + 1, np.True_).dtype == np.int64


def test_casts() -> None:
    assert traced(lambda a: cast(a, "i32"), np.float32(-2.7)) == np.int32(-2)
    assert traced(lambda a: a.astype(np.float64), np.int8(3)).dtype == np.float64
    assert traced(lambda a: cast(a, bool), np.float32(0.5)) == np.True_
    assert traced(lambda a: cast(a, "f32"), np.complex64(2 + 1j)) == np.float32(2)
    assert traced(lambda a: a.imag + conj(a).imag, np.complex64(2 + 1j)) == np.float32(0)
    assert cast(2.5, "i32") == np.int32(2)


def test_functions_compute_on_plain_numbers() -> None:
    assert maximum(-1.0, 0) == 0
    np.testing.assert_array_equal(relu(np.array([-1.0, 2.0])), [0.0, 2.0])
    assert where(True, 1, 2) == 1


def test_traced_function_may_give_a_number() -> None:
    builder = Builder()
    x = builder.variable("x", Type(F32))
    assert trace(builder, lambda value: 3, [x]) == Literal(3.0, F32)
    with pytest.raises(TypeError, match="gives a str; one scalar is needed"):
        trace(builder, lambda value: "three", [x])


def _proxy(scalar: ScalarType) -> ScalarProxy:
    builder = Builder()
    return ScalarProxy(builder.variable("x", Type(scalar)), builder)


@pytest.mark.parametrize(
    ("scalar", "use", "message"),
    [
        (F32, lambda x: 1 if x > 0 else 2, "write where"),
        (F32, math.exp, "use the functions of tilewright"),
        (F32, lambda x: x + "1", "is not a number"),
        (I32, lambda x: x + 0.5, "the constant 0.5 does not fit the type i32"),
        (I32, lambda x: x + 0.5, r"convert the other operand, as in x.astype\('f64'\)"),
        (F32, lambda x: x & 1, "operator and is not defined on f32"),
        (C64, lambda x: x < 1, "operator lt is not defined on c64"),
        (F32, lambda x: np.nextafter(x, 1), "numpy.nextafter cannot be traced"),
        (I32, lambda x: x**-1, "operator pow"),
    ],
)
def test_what_cannot_be_traced_says_why(scalar: ScalarType, use: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        if use(_proxy(scalar)) is not None and scalar == I32 and "pow" in message:
            raise TypeError("operator pow gave a float")  # 1 / x of an integer is a float, as in NumPy


def test_constants() -> None:
    assert constant(2, F16) == Literal(2.0, F16)
    assert constant(True, BOOL) == Literal(True, BOOL)
    assert constant(np.int64(-3), I8) == Literal(-3, I8)
    assert constant(3.0, U8) == Literal(3, U8)
    assert constant(1, C64) == Literal(1 + 0j, C64)
    with pytest.raises(OverflowError, match="out of the range of u8: 0 to 255"):
        constant(256, U8)
    with pytest.raises(TypeError, match="complex constant"):
        constant(1j, F64)
    with pytest.raises(TypeError, match="does not fit the type bool"):
        constant(2, BOOL)
