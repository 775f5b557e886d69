"""Python's and NumPy's own functions of traced values mean what they mean on NumPy's arrays."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from program_checks import check, opencl_or_skip

import tilewright as tw

FLOATS = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 2.675, 1e9, -np.inf, np.inf, np.nan])
FINITE = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 2.675, -1234.5678])
WHOLE = np.array([0, 1, -1, 7, -8, 127, -128])

FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., Any], str]] = [
    (tw.abs, np.abs, "fi"),
    (tw.sign, np.sign, "fi"),
    (tw.square, np.square, "fi"),
    (tw.isfinite, np.isfinite, "fi"),
    (lambda x: tw.clip(x, -1, 2), lambda x: np.clip(x, -1, 2), "fi"),
    (lambda x: tw.clip(x, None, 2), lambda x: np.clip(x, None, 2), "fi"),
    (np.sign, np.sign, "fiu"),
    *((function, function, "f") for function in (np.deg2rad, np.degrees, np.fabs)),
    *((function, lambda x, f=function: f(x.astype("f8")), "iu") for function in (np.radians, np.rad2deg, np.fabs)),
    (np.signbit, np.signbit, "fiu"),
    *(
        (lambda x, f=function: f(x, x[::-1]), lambda x, f=function: f(x, x[::-1]), "f")
        for function in (np.copysign, np.fmod, np.fmax, np.fmin, np.heaviside, np.hypot)
    ),
    *((lambda x, f=function: f(x, 3), lambda x, f=function: f(x, 3), "iu") for function in (np.fmod, np.fmax, np.fmin)),
    (lambda x: np.fmod(x, -3), lambda x: np.fmod(x, -3), "i"),
    (lambda x: np.fmod(100, x), lambda x: np.where(x == 0, 0, np.fmod(100, np.where(x == 0, 1, x))), "i"),
    (lambda x: np.divmod(x, 3)[1], lambda x: np.divmod(x, 3)[1], "i"),
    (np.reciprocal, np.reciprocal, "f"),
    (np.reciprocal, lambda x: np.where(x == 0, x, np.reciprocal(np.where(x == 0, x.dtype.type(1), x))), "iu"),
    (lambda x: np.clip(x, -1000, 5), lambda x: np.clip(x, -1000, 5), "u"),
    (lambda x: x.clip(0, 2**70), lambda x: x.clip(0, 2**70), "iu"),
    (lambda x: tw.clip(x, -(2**70), None), lambda x: x, "iu"),
    (lambda x: +x + x.astype(dtype=x.dtype, copy=False), lambda x: x + x, "fiu"),
    (np.fix, np.fix, "f"),
    (np.diff, np.diff, "iu"),
    (lambda x: np.diff(x > 0), lambda x: np.diff(x > 0), "fi"),
    (np.flip, np.flip, "fiu"),
    (lambda x: np.roll(x, 3), lambda x: np.roll(x, 3), "fiu"),
    (np.square, np.square, "fi"),
    (np.isfinite, np.isfinite, "fi"),
    (np.positive, np.positive, "fi"),
    (lambda x: np.clip(x, -1, 2), lambda x: np.clip(x, -1, 2), "fi"),
    (lambda x: np.where(x > 0, x, 0), lambda x: np.where(x > 0, x, x.dtype.type(0)), "fi"),
    (lambda x: np.logical_and(x > 0, x), lambda x: np.logical_and(x > 0, x), "fi"),
    (lambda x: np.logical_or(x > 0, x), lambda x: np.logical_or(x > 0, x), "fi"),
    (lambda x: np.logical_xor(x > 0, x), lambda x: np.logical_xor(x > 0, x), "fi"),
    (np.logical_not, np.logical_not, "fi"),
    (lambda x: np.concatenate((x, x[::-1])), lambda x: np.concatenate((x, x[::-1])), "fi"),
    (np.transpose, np.transpose, "fi"),
    (lambda x: x.real + x.imag + np.real(x) + x.conj(), lambda x: x.real + x.imag + x.real + x, "fi"),
    (lambda x: divmod(x, 3)[0] + divmod(x, 3)[1], lambda x: x // 3 + x % 3, "i"),
    (lambda x: divmod(100, x)[0], lambda x: np.where(x == 0, 0, 100 // np.where(x == 0, 1, x)), "i"),
]


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "uint8"])
def test_as_in_numpy(dtype: str, target: str) -> None:
    if target == "opencl":
        opencl_or_skip()
    chosen = [(ours, numpys) for ours, numpys, kinds in FUNCTIONS if np.dtype(dtype).kind in kinds]

    @tw.program
    def all_of_them(xs: tw.array["n"]) -> Any:
        return tuple(ours(xs) for ours, _ in chosen)

    xs = (FLOATS if dtype.startswith("float") else WHOLE).astype(dtype)
    with np.errstate(all="ignore"):
        check(all_of_them, (xs,), tuple(numpys(xs) for _, numpys in chosen), (target,))


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_moved_and_turned_arrays(target: str) -> None:
    if target == "opencl":
        opencl_or_skip()

    @tw.program
    def moved(xss: tw.f32["n", "m"], k: tw.i64) -> Any:
        both = np.diff(xss, 2), np.diff(xss, axis=0), np.flip(xss), np.flip(xss, 1), np.round(xss, 1)
        return *both, np.roll(xss, k, axis=1), tw.roll(xss, k, axis=0), tw.roll(xss[0], -k), tw.roll(xss, 2, axis=-1)

    xss = np.random.default_rng(5).standard_normal((7, 5)).astype(np.float32)
    for k in (0, 1, -1, 4, 5, 12, -13, 10**12):
        both = np.diff(xss, 2), np.diff(xss, axis=0), np.flip(xss), np.flip(xss, 1), np.round(xss, 1)
        rolled = (np.roll(xss, k, axis=1), np.roll(xss, k, axis=0), np.roll(xss[0], -k), np.roll(xss, 2, axis=-1))
        check(moved, (xss, k), (*both, *rolled), (target,))


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int32", "bool"])
def test_constant_powers(dtype: str, target: str) -> None:
    if target == "opencl":
        opencl_or_skip()
    exponents = (0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 4.0, 0.5, -0.5, 1.5, -1.5, 2.5, np.float32(0.5))
    if dtype == "bool":
        exponents = exponents[:2]

    @tw.program
    def powers(xs: tw.array["n"]) -> Any:
        return tuple(xs**exponent for exponent in exponents)

    xs = np.array([1, 2, 3.5, 1e-3, 7.25, 1e4]).astype(dtype)
    xs = np.where(xs == 0, xs.dtype.type(1), xs)
    exact_type = np.float32 if dtype == "float32" else np.float64
    wanted_type = dtype if np.dtype(dtype).kind in "fc" else "float64"
    for found, exponent in zip(powers(xs, target=target), exponents, strict=True):
        exact = xs.real.astype(exact_type) ** float(exponent)
        assert found.dtype == wanted_type
        np.testing.assert_allclose(found, exact, rtol=4 * np.finfo(exact_type).eps)


def test_functions_of_logarithms_and_angles() -> None:
    @tw.program
    def several(xs: tw.f64["n"], ys: tw.f64["n"], zs: tw.c128["n"]) -> Any:
        return np.logaddexp(xs, ys), np.angle(zs)

    rng = np.random.default_rng(6)
    xs, ys = rng.uniform(-800, 800, 1000), rng.uniform(-800, 800, 1000)
    ys[:100] = xs[:100]
    zs = xs + 1j * ys
    for found, exact in zip(several(xs, ys, zs), (np.logaddexp(xs, ys), np.angle(zs)), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-14)


def test_what_there_is_not_says_what_to_write() -> None:
    def of(function: Callable[..., Any]) -> Any:
        @tw.program
        def applied(xs: tw.f64["n"]) -> Any:
            return function(xs)

        return applied

    for function, told in (
        (np.sort, "np.sort before the program"),
        (np.median, "np.median outside of the program"),
        (np.argsort, "np.argsort before the program"),
        (np.trapezoid, r"\(\(ys\[1:\] \+ ys\[:-1\]\) \* \(xs\[1:\] - xs\[:-1\]\)\).sum\(\) / 2"),
        (np.nonzero, "examples/filter.py has how elements are kept"),
        (lambda xs: np.gradient(xs, xs), r"\(ys\[2:\] - ys\[:-2\]\) / \(xs\[2:\] - xs\[:-2\]\)"),
        (np.spacing, "numpy.spacing cannot be traced; traceable: absolute"),
        (lambda xs: np.roll(tw.replicate(2, xs), (1, 2, 3), (0, 1)), "roll along 2 axes by 3 shifts; give one"),
        (lambda xs: +(xs > 0), "numpy.positive is not defined on bool; write the operand alone"),
        (np.trace, r"need two dimensions at least, and xs is of type \[n\]f64; np.diag makes a matrix"),
        (lambda xs: xs.diagonal(1), "need two dimensions at least"),
        (lambda xs: xs.reshape(2, 2, order="A"), "order is 'C' or 'F', not 'A': how an array lies in memory"),
        (lambda xs: xs.ravel("K"), "order is 'C' or 'F', not 'K'"),
        (lambda xs: xs.astype("f4", casting="safe"), "got an unexpected keyword argument 'casting'"),
    ):
        with pytest.raises(TypeError, match=f"^test_numpy_functions.py:[0-9]+: in program applied: .*{told}"):
            of(function)(np.ones(4))
    with pytest.raises(OverflowError, match="the constant 300 is out of the range of u8: 0 to 255"):
        of(lambda xs: xs.astype("u1").clip(300, 5))(np.ones(4))


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_arguments_of_methods(target: str) -> None:
    if target == "opencl":
        opencl_or_skip()

    def turned(x: Any) -> Any:
        return (
            *(x.transpose((1, 0)), x.transpose([-1, 0]), x.transpose(None), x.transpose(1, 0), x[0].transpose(0)),
            *(x.reshape(6, 2, order="F"), x.reshape((2, -1, 2), order="F"), np.reshape(x, -1, order="F")),
            *(np.reshape(x, (6, 2), "C"), np.ravel(x, "F"), x.flatten("F"), x.copy(order="C"), x.T.ravel(order="C")),
            *(x.astype("f4", copy=False), x.astype(dtype="f4"), x[0, 1].astype(dtype=np.float32, copy=True)),
            *(np.concatenate([x, x], axis=None), np.concatenate([x, x.T, [1, 2]], axis=None)),
        )

    @tw.program
    def program(x: tw.f64["n", "m"]) -> Any:
        return turned(x)

    x = np.arange(12.0).reshape(3, 4)
    check(program, (x,), turned(x), (target,))


def test_truth_values_are_numbers_where_numpy_takes_them_so() -> None:
    def several(x: Any, y: Any) -> Any:
        return (
            *(x**2, x**3, x**1, x**0, x**True, x**x, True**x, 2**x, x**2.0, x**0.5, np.power(x, 2), np.square(x)),
            *(x ** np.uint8(2), x ** np.int64(3), x ** np.bool_(True), np.reciprocal(x), x[0] ** 2, x ** (y % 3)),
            *(np.tril(x), np.triu(x[None]), np.clip(x, -1, 5)),
        )

    @tw.program
    def program(x: tw.bool_["n"], y: tw.i16["n"]) -> Any:
        return several(x, y)

    arguments = np.array([True, False, True]), np.array([0, 1, 2], np.int16)
    with np.errstate(all="ignore"):
        check(program, arguments, several(*arguments))


@pytest.mark.parametrize("ours", [tw.abs, tw.sign, tw.square, tw.isfinite])
def test_on_plain_numbers_and_arrays(ours: Callable[..., Any]) -> None:
    numpys = getattr(np, ours.__name__)
    np.testing.assert_array_equal(ours(FLOATS), numpys(FLOATS))
    assert ours(-2.0) == numpys(-2.0)


def test_round_gives_whole_numbers_or_digits() -> None:
    @tw.program
    def rounded(xs: tw.float_["n"], ks: tw.i32["n"]) -> Any:
        return round(xs), round(xs, 2), round(xs, -2), tw.map(round, xs), round(ks), round(ks, 1)

    ks = np.arange(len(FINITE), dtype=np.int32)
    for dtype in (np.float32, np.float64):
        xs = FINITE.astype(dtype)
        whole = np.array([round(one) for one in xs.tolist()])
        check(rounded, (xs, ks), (whole, np.round(xs, 2), np.round(xs, -2), whole, ks, ks))


def test_complex_parts_of_arrays() -> None:
    @tw.program
    def parts(zs: tw.c128["n"]) -> Any:
        return zs.real, zs.imag, zs.conj(), abs(zs), tw.abs(zs), np.real(zs), np.imag(zs)

    zs = np.array([1 + 2j, -3j, 4])
    check(parts, (zs,), (zs.real, zs.imag, zs.conj(), np.abs(zs), np.abs(zs), zs.real, zs.imag))


def test_rounded_numbers_are_indices() -> None:
    @tw.program
    def nearest(xs: tw.f64["n"], at: tw.f64["m"]) -> Any:
        return tw.map(lambda where: xs[round(where)], at)

    check(nearest, (np.arange(5.0) * 10, np.array([0.4, 0.6, 3.5])), np.array([0.0, 10.0, 40.0]))


@pytest.mark.parametrize("axis", [-3, 2])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("roll", lambda xss, axis: np.roll(xss, 1, axis)),
        ("diff", lambda xss, axis: np.diff(xss, axis=axis)),
        ("flip", np.flip),
        ("concat", lambda xss, axis: np.concatenate((xss, xss), axis)),
    ],
)
def test_a_dimension_that_there_is_not(name: str, function: Any, axis: int) -> None:
    @tw.program
    def asked(xss: tw.f64["n", "m"]) -> Any:
        return function(xss, axis)

    with pytest.raises(TypeError, match=rf"{name}: there is no dimension {axis} in xss of type"):
        asked(np.ones((2, 3)))
