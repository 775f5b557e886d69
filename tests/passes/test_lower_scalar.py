"""Scalar operators in kernels, on every type that they take, against their meaning in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowering_checks import check, compiled

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Atom, Cast, Literal, Program, SizeValue, array, index_literal
from tilewright.ir.operators import OPERATORS, Operator
from tilewright.ir.scalars import BOOL, C64, C128, F16, F32, F64, I8, I32, I64, SCALAR_TYPES, U8, U64, ScalarType
from tilewright.ir.sizes import maximum, size
from tilewright.kernel.ir import Constant, Let, Name
from tilewright.passes.items.lower_scalar import KernelBuilder, LoweringError, lower_lambda

TYPES = [BOOL, I8, I32, I64, U8, U64, F16, F32, F64, C64, C128]


def elementwise(operator: Operator, scalar: ScalarType) -> Program:
    """map of one operator over as many arrays as it has operands."""
    b = Builder()
    types = [scalar] * operator.arity
    if operator.name == "select":
        types[0] = BOOL
    inputs = [b.variable("x", array(one, "n")) for one in types]
    return b.program(f"do_{operator.name}", inputs, [b.map(inputs, lambda *e: b.apply(operator.name, *e))])


def values(scalar: ScalarType, operator: str, seed: int) -> Any:
    """Values in the operator's domain (for floats), none of them special."""
    random = np.random.default_rng(seed)
    dtype = scalar.numpy
    if scalar == BOOL:
        return random.random(23) < 0.5
    if scalar.is_integer:
        low = 0 if scalar.kind == "u" else -20
        return random.integers(low, 20, 23).astype(dtype)
    real = random.uniform(0.1, 0.9, 23)
    if operator in ("add", "sub", "mul", "div", "neg", "abs", "min", "max", "exp", "eq", "floordiv", "mod", "sin"):
        real = real * 5 - 2.5
    if scalar.is_complex:
        return ((real * 4 - 2) + 1j * random.uniform(-2, 2, 23)).astype(dtype)
    return real.astype(dtype)


WIDE = ("add", "sub", "mul", "div", "neg", "abs", "min", "max", "exp", "eq", "ne", "lt", "floordiv", "mod", "sin")


@pytest.mark.parametrize("scalar", TYPES, ids=str)
def test_every_operator(scalar: ScalarType) -> None:
    """All operators on a type in two programs: those on any numbers, and those on numbers between 0 and 1."""
    for wide in (True, False):
        names = [one.name for one in OPERATORS.values() if scalar.kind in one.kinds and (one.name in WIDE) == wide]

        b = Builder()
        inputs = [b.variable("x", array(one, "n")) for one in (BOOL, scalar, scalar, scalar)]

        def point(condition: Atom, *elements: Atom) -> list[Atom]:
            return [
                b.apply(name, *([condition, *elements] if name == "select" else elements)[: OPERATORS[name].arity])  # noqa: B023
                for name in names  # noqa: B023
            ]

        program = b.program("operators", inputs, b.map_many(inputs, point))
        arguments = [values(BOOL, "select", 9), *(values(scalar, "add" if wide else "log", n) for n in range(3))]
        check(program, arguments)


@pytest.mark.opencl
def test_complex_operators_on_opencl() -> None:
    b = Builder()
    x, y = (b.variable("x", array(C64, "n")) for _ in range(2))

    def point(e: Atom, f: Atom) -> list[Atom]:
        one = [b.apply(name, e) for name in ("abs", "sqrt", "exp", "conj", "neg", "real", "imag")]
        return one + [b.apply(name, e, f) for name in ("mul", "div", "eq", "add")]

    program = b.program("operators", [x, y], b.map_many([x, y], point))
    check(program, [values(C64, "add", 1), values(C64, "add", 2)], device="opencl")


def test_complex_division_and_roots_do_not_overflow() -> None:
    big = np.array([1e38 + 1e38j, 1e-30 + 1e-30j, 0.0 + 2e38j], np.complex64)
    quotient = compiled(elementwise(OPERATORS["div"], C64))(big, big)
    np.testing.assert_allclose(quotient, np.ones(3), rtol=1e-5)
    absolute = compiled(elementwise(OPERATORS["abs"], C64))(big / 2)
    np.testing.assert_allclose(absolute, np.abs((big / 2).astype(np.complex128)), rtol=1e-5)
    root = compiled(elementwise(OPERATORS["sqrt"], C64))(big)
    np.testing.assert_allclose(root, np.sqrt(big.astype(np.complex128)), rtol=1e-5)


def test_complex_special_values() -> None:
    negative = np.array([-4 + 0j, complex(-4, -0.0), 0j, complex(np.inf, 1)], np.complex128)
    root = compiled(elementwise(OPERATORS["sqrt"], C128))(negative)
    np.testing.assert_allclose(root[:3], [2j, -2j, 0])
    assert root[3].real == np.inf
    far = np.array([complex(np.inf, 1), complex(-3, -np.inf), 0j], np.complex128)
    np.testing.assert_array_equal(compiled(elementwise(OPERATORS["abs"], C128))(far), [np.inf, np.inf, 0])


@pytest.mark.parametrize("element", [C64, C128], ids=str)
def test_roots_of_subnormal_large_and_infinite_complex_numbers(element: ScalarType) -> None:
    real = np.finfo(element.numpy)
    smallest, largest = float(real.smallest_subnormal), float(real.max)
    parts = [
        0.0,
        -0.0,
        1.0,
        -3.5,
        np.inf,
        -np.inf,
        np.nan,
        smallest,
        -7 * smallest,
        float(real.tiny),
        largest,
        -largest,
    ]
    values = np.array([complex(a, b) for a in parts for b in parts]).astype(element.numpy)
    found = compiled(elementwise(OPERATORS["sqrt"], element))(values)
    with np.errstate(all="ignore"):
        expected = np.sqrt(values)
    for part in ("real", "imag"):
        mine, wanted = getattr(found, part), getattr(expected, part)
        np.testing.assert_allclose(mine, wanted, rtol=16 * float(real.eps), atol=smallest)
        signs = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(mine)[signs], np.signbit(wanted)[signs])


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_every_cast(source: ScalarType) -> None:
    targets = [one for one in SCALAR_TYPES.values() if one.name != "bf16" and (one.is_complex or not source.is_complex)]
    b = Builder()
    x = b.variable("x", array(source, "n"))
    results = b.map_many([x], lambda e: [b.bind(Cast(target, e)) for target in targets])
    check(b.program("convert", [x], results), [values(source, "sqrt", 3)])


CONTROL = """\
def control (x: [n]i32, y: [n]f32, limit: i32) =
  let (z: [n]i32, w: [n]f32) = map n (\\(a: i32, b: f32) ->
    let (small: bool) = a < limit
    let (c: i32, d: f32) = if small then
      let (t: i32) = a * 3i32
      in (t, b)
    else
      let (u: f32) = b * b
      in (a, u)
    let (p: i32, q: i32) = loop (p1: i32, q1: i32) = (c, 1i32) for i: i64 < 5 do
      let (s: i32) = p1 + q1
      in (q1, s)
    let (r: i32) = loop (r1: i32) = (p) while (\\(r2: i32) ->
      let (again: bool) = r2 > 10i32
      in (again)) do
      let (half: i32) = r1 // 2i32
      in (half)
    let (v: i32) = r + q
    in (v, d)) x y
  in (z, w)
"""


@pytest.mark.parametrize("device", ["cpu", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_if_and_loops(device: str) -> None:
    x = np.arange(-20, 21, dtype=np.int32)
    check(CONTROL, [x, x.astype(np.float32) / 4, np.int32(7)], device)


def test_sizes_as_scalars() -> None:
    b = Builder()
    x = b.variable("x", array(I64, "n"))
    n = size("n")

    def add_size(e: Atom) -> Atom:
        whole = b.bind(SizeValue(n * n - 3 * (n // 2) + maximum(n, 4) + n % 3))
        return b.apply("add", e, whole)

    check(b.program("sizes", [x], [b.map([x], add_size)]), [np.arange(11)])


def test_a_lambda_becomes_named_statements() -> None:
    b = Builder()
    scaled = b.function([array(F32)], lambda e: b.apply("add", b.apply("mul", e, e), Literal(1.0, F32)))
    emit = KernelBuilder()
    (result,) = lower_lambda(scaled, [(Name("x", F32),)], emit)
    assert [type(one) for one in emit.statements] == [Let, Let]
    assert result == (Name("t_2", F32),)
    half = b.function([array(F16)], lambda e: b.apply("add", e, Literal(1.0, F16)))
    ((value,),) = lower_lambda(half, [(Constant(2.0, F32),)], emit)
    assert value.type == F32


def test_a_lambda_of_arrays_is_refused() -> None:
    b = Builder()
    first = b.function([array(F32, "n")], lambda row: b.index(row, index_literal(0)))
    with pytest.raises(LoweringError, match=r"parameter x of a scalar function is an array of type \[n\]f32"):
        lower_lambda(first, [(Name("x", F32),)], KernelBuilder())
    x = b.variable("x", array(F32))
    outside = b.function([array(F32)], lambda e: b.apply("add", e, x))
    with pytest.raises(LoweringError, match="has no value in this kernel"):
        lower_lambda(outside, [(Name("x", F32),)], KernelBuilder())
