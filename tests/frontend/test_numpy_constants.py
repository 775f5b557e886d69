"""NumPy's scalars and arrays of no dimension as constants of traced functions: they have their types, as there."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from program_checks import assert_same, check

import tilewright as tw
from tilewright.ir.interpreter import interpret

ARRAYS = {"u1": tw.u8["n"], "i4": tw.i32["n"], "i8": tw.i64["n"], "f4": tw.f32["n"], "f8": tw.f64["n"]}
CONSTANTS = [
    np.True_, np.int8(3), np.uint8(3), np.int64(2), np.uint64(2), np.float16(1.5), np.float32(0.1), np.float64(1 / 3),
    np.complex64(1 + 2j), np.array(2.5), np.array(3, np.uint8),
]  # fmt: skip
OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, lambda a, b: np.where(a == b, b, a),
]  # fmt: skip
OF_REAL_NUMBERS: list[Callable[[Any, Any], Any]] = [operator.pow, operator.lt, np.maximum, operator.floordiv]


def _traced(function: Callable[[Any], Any], xs: np.ndarray, name: str) -> Any:
    def traced(xs):  # type: ignore[no-untyped-def]
        return function(xs)

    traced.__annotations__["xs"] = ARRAYS[name]
    return np.asarray(interpret(tw.program(traced).trace(xs.dtype), (xs,))[0])


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("constant", CONSTANTS, ids=repr)
@pytest.mark.filterwarnings("ignore")
def test_constants_of_numpy_have_their_types(name: str, constant: Any) -> None:
    xs = np.array([0, 1, 3]).astype(ARRAYS[name].scalar.numpy)
    for function in OPERATORS if constant.dtype.kind == "c" else OPERATORS + OF_REAL_NUMBERS:
        for swapped in (False, True):

            def both(xs: Any) -> Any:
                return function(constant, xs) if swapped else function(xs, constant)  # noqa: B023

            expected = both(xs)
            found = _traced(both, xs, name)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_numbers_of_python_are_weak_beside_them() -> None:
    factor, offset = np.float64(1 / 3), np.array(2.0)

    @tw.program
    def several(bytes_: tw.u8["n"], singles: tw.f32["n"]):
        chosen = np.where(bytes_ > 1, np.float32(0.5), 1)
        return offset - bytes_, singles * factor, singles * (1 / 3), singles * 2, bytes_ + np.int64(300), chosen

    bytes_, singles = np.array([0, 3], "u1"), np.array([0.5, 2], "f4")
    wanted = (
        np.array([2.0, -1.0]), singles * factor, singles * (1 / 3), singles * 2, np.array([300, 303]),
        np.array([1, 0.5], "f4"),
    )  # fmt: skip
    check(several, (bytes_, singles), wanted)


def test_sizes_stay_sizes() -> None:
    @tw.program
    def doubled(xs: tw.f32["n"]):
        count = xs.shape[0] * np.int64(2) + np.int64(1)
        return tw.iota(count) + tw.iota(2 * xs.shape[0] + 1), xs * count, tw.iota(xs.shape[0] ** np.int32(2))

    xs = np.array([0.5, 2], "f4")
    check(doubled, (xs,), (2 * np.arange(5), np.array([2.5, 10.0]), np.arange(4)))


def test_constants_of_epilogues() -> None:
    matrix = np.eye(3, dtype="f4")
    for factor in (0.1, np.float32(0.1), np.float64(0.1)):
        found = tw.einsum("ij,jk->ik", matrix, matrix, epilogue=lambda one: one * factor)  # noqa: B023
        assert_same(found, matrix * factor)


@pytest.mark.parametrize("constant", [0.5, np.float32(0.5), np.float64(0.5), 2, np.int8(2)], ids=repr)
def test_branches_of_cond(constant: Any) -> None:
    @tw.program
    def chosen(xs: tw.f32["n"]):
        one = xs[0]
        both = tw.cond(one > 1, lambda: constant, lambda: 3.0)
        return tw.cond(one > 1, lambda: one, lambda: constant), tw.cond(one > 1, lambda: constant, lambda: one), both

    for xs in (np.array([0.25], "f4"), np.array([1.25], "f4")):
        is_large = np.array(xs[0] > 1)
        wanted = np.where(is_large, xs[0], constant), np.where(is_large, constant, xs[0])
        found = chosen(xs)
        for one, expected in zip(found, wanted, strict=False):
            assert_same(one, expected)
        assert found[2] == (constant if is_large else 3)
        assert found[2].dtype == (constant.dtype if isinstance(constant, np.floating) else np.float64)


FACTOR = np.float64(0.5)


@pytest.mark.parametrize(
    "function",
    [lambda xs: tw.reduce(lambda a, b: a + b * FACTOR, 0, xs), lambda xs: tw.loop(3, xs, lambda i, one: one * FACTOR)],
)
def test_folds_and_loops_say_what_has_changed_the_type(function: Callable[[Any], Any]) -> None:
    def traced(xs):  # type: ignore[no-untyped-def]
        return function(xs)

    traced.__annotations__["xs"] = ARRAYS["f4"]
    with pytest.raises(TypeError, match=r"f64 .*f32; convert with \.astype.*numbers of NumPy have types of their own"):
        tw.program(traced).trace()


def test_lists_have_the_types_of_their_numbers() -> None:
    @tw.program
    def listed(xs: tw.f32["n"]):
        singles = [np.float32(0.5), np.float32(2)]
        return (
            np.convolve(xs, singles),
            np.convolve(xs, [0.5, 2]),
            np.convolve(xs, np.array(singles)),
            tw.concat(xs, [0.5]),
        )

    xs = np.arange(3, dtype="f4")
    wanted = (
        np.convolve(xs, np.array([0.5, 2], "f4")),
        np.convolve(xs, [0.5, 2]),
        np.convolve(xs, np.array([0.5, 2], "f4")),
    )
    check(listed, (xs,), (*wanted, np.array([0, 1, 2, 0.5], "f4")))


@pytest.mark.parametrize("constant", [np.timedelta64(1), np.datetime64(1, "ns"), np.str_("a")], ids=repr)
def test_what_is_no_number(constant: Any) -> None:
    @tw.program
    def scaled(xs: tw.i64["n"]):
        return xs * constant

    with pytest.raises(TypeError, match="is not a number"):
        scaled.trace()


def test_arrays_of_several_elements_are_no_constants() -> None:
    table = np.arange(3.0)

    @tw.program
    def added(xs: tw.f64["n"]):
        return xs + table

    with pytest.raises(TypeError, match=r"a NumPy array of shape \(3,\) meets traced values"):
        added(np.ones(3))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_remainders_by_numbers_of_python_have_the_type_of_the_elements(dtype: str) -> None:
    values = np.array([5, -3, 2], dtype)

    def remainders(xs: Any) -> Any:
        return np.fmod(xs, 2), tw.map(lambda x: tw.fmod(x, 2), xs), np.fmod(7, xs), np.fmod(xs, np.float64(2))

    remainders.__annotations__ = {"xs": {"f2": tw.f16["n"], **ARRAYS}[dtype]}
    expected = np.fmod(values, 2), np.fmod(values, 2), np.fmod(7, values), np.fmod(values, np.float64(2))
    for found, wanted in zip(tw.program(remainders)(values), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    rows = tw.einsum("ij->i", values[:, None], epilogue=lambda x: tw.fmod(x, 2))
    assert rows.dtype == dtype


def test_choices_between_numbers_are_numbers() -> None:
    """And not NumPy's arrays without dimensions, which are no constants of programs."""
    assert isinstance(tw.where(True, np.float32(1), 2.0), np.float32)

    @tw.program
    def chosen(xs: tw.f64["n"]) -> Any:
        return tw.map(lambda x: tw.cond(tw.where(True, False, True), 0.0, tw.where(True, 1.5, 2.0)), xs)

    assert chosen(np.ones(2)).tolist() == [1.5, 1.5]
