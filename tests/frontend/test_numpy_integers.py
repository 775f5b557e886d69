"""Operators on integers mean what they mean in NumPy, at the ends of their types too."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from program_checks import check, opencl_or_skip

import tilewright as tw
from tilewright.ir.nodes import Apply
from tilewright.ir.traversal import all_statements

TYPES = ("int8", "uint8", "int16", "int32", "int64", "uint64")


def _ends(dtype: str) -> tuple[Any, Any]:
    """Numbers, and counts of which some are the width and more."""
    limits = np.iinfo(dtype)
    numbers = np.array([0, 1, 2, 3, 5, 7, limits.min, limits.max, limits.max - 1], dtype)
    return numbers, np.array([0, 1, 7, 63, 8, 33, limits.bits - 1, limits.bits, limits.max], dtype)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("dtype", TYPES)
def test_shifts_and_powers(dtype: str, target: str) -> None:
    if target == "opencl":
        opencl_or_skip()
    xs, ys = _ends(dtype)
    bits = np.iinfo(dtype).bits

    def several(xs: Any, ys: Any) -> Any:
        shifts = xs << ys, xs >> ys, 3 << ys, xs << bits, xs >> bits, xs >> (bits - 1), np.right_shift(xs, ys)
        return *shifts, xs**ys, 3**ys, xs**65, np.power(xs, 5), xs ** (ys & 7)

    def of_signed(xs: Any, ys: Any) -> Any:
        return xs << -ys, xs >> -ys

    @tw.program
    def traced(xs: tw.array["n"], ys: tw.array["n"]) -> Any:
        return several(xs, ys)

    @tw.program
    def traced_signed(xs: tw.array["n"], ys: tw.array["n"]) -> Any:
        return of_signed(xs, ys)

    with np.errstate(all="ignore"):
        check(traced, (xs, ys), several(xs, ys), (target,))
        if dtype.startswith("i"):
            check(traced_signed, (xs, ys), of_signed(xs, ys), (target,))


def test_shifts_that_are_known_to_be_narrow_are_plain() -> None:
    @tw.program
    def narrow(xs: tw.u32["n"], ys: tw.u32["n"]) -> Any:
        return tw.map(lambda x, y: (x << 13) ^ (x >> (y & 31)), xs, ys)

    operators = [
        one.expression.operator for one in all_statements(narrow.trace().body) if isinstance(one.expression, Apply)
    ]
    assert sorted(operators) == ["and", "shl", "shr", "xor"]


def test_powers_below_one_of_integers_are_whole() -> None:
    """NumPy refuses them; what is known only when the program runs cannot be refused."""

    @tw.program
    def power(xs: tw.i32["n"], ys: tw.i32["n"]) -> Any:
        return xs**ys

    least = np.iinfo(np.int32).min
    found = power(np.array([1, -1, -1, 2, 0, 46341], np.int32), np.array([-3, -3, -4, -1, -1, least], np.int32))
    assert found.dtype == np.int32 and found.tolist() == [1, -1, 1, 0, 0, 0]


@pytest.mark.parametrize("signed", ["int8", "int64"])
def test_signed_and_unsigned_numbers_are_compared_by_value(signed: str) -> None:
    def several(xs: Any, ys: Any) -> Any:
        both = xs < ys, xs <= ys, xs == ys, xs != ys, xs > ys, xs >= ys
        return *both, ys < xs, ys <= xs, ys == xs, ys != xs, ys > xs, ys >= xs

    @tw.program
    def traced(xs: tw.array["n"], ys: tw.u64["n"]) -> Any:
        return several(xs, ys)

    limits = np.iinfo(signed)
    large = min(limits.max, 2**53 + 1)
    xs = np.array([-1, 0, 1, 5, limits.min, limits.max, large], signed)
    ys = np.array([2**64 - 1, 0, 2, 5, 2**63, limits.max, large - 1], np.uint64)
    expected = several(xs, ys)
    for one, wanted in zip(traced(xs, ys), expected, strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_integers_narrower_than_the_extent_are_places_and_shifts() -> None:
    def several(xs: Any, at: Any, down: Any, shift: Any) -> Any:
        wrapped = np.take(xs, at, mode="wrap"), np.take(xs, at[1], mode="wrap"), np.take(xs, down, mode="wrap")
        return *wrapped, np.take(xs, at, mode="clip"), np.take(xs, down, mode="clip"), np.roll(xs, shift)

    @tw.program
    def traced(xs: tw.f64["n"], at: tw.u8["k"], down: tw.i8["k"], shift: tw.i8) -> Any:
        return several(xs, at, down, shift)

    given = np.arange(300.0), np.array([1, 250, 255], np.uint8), np.array([1, -100, 127], np.int8)
    for shift in (100, -3, -128):
        check(traced, (*given, np.int8(shift)), several(*given, np.int8(shift)))


def test_integer_arguments_wrap_around() -> None:
    """Sizes are made of them, too, which are integers of any size."""

    def several(xs: Any, k: Any) -> Any:
        return xs + k * 3, xs + k * k, xs - (k + 2**62) * 2, np.minimum(xs, -k - 1 + 2**62), np.roll(xs, k)

    @tw.program
    def traced(xs: tw.i64["n"], k: tw.i64) -> Any:
        return several(xs, k)

    xs = np.arange(5)
    for k in (2**62, -(2**63), 2**63 - 1, 7):
        with np.errstate(all="ignore"):
            expected = several(xs, np.int64(k))
        check(traced, (xs, np.int64(k)), expected)
        check(traced, (xs, np.int64(k)), expected)  # by the plan of the first call


def test_rounding_of_integers_and_of_arrays() -> None:
    def several(xs: Any, ks: Any, flags: Any) -> Any:
        whole = np.floor(ks), np.ceil(ks), np.trunc(ks), np.fix(ks), abs(flags)
        return *whole, xs.round(), xs.round(1), xs.round(decimals=-1)

    @tw.program
    def traced(xs: tw.f64["n"], ks: tw.i32["n"], flags: tw.bool_["n"]) -> Any:
        return several(xs, ks, flags)

    given = np.array([0.5, -1.5, 2.66, 1e300]), np.arange(4, dtype=np.int32), np.array([True, False, True, True])
    check(traced, given, several(*given))


def test_remainders_of_integers_that_meet_as_floats() -> None:
    """The least integer has no absolute value in its own type."""

    @tw.program
    def traced(xs: tw.i8["n"], ys: tw.u64["n"], zs: tw.f32["n"]) -> Any:
        return np.fmod(xs, ys), np.fmod(xs, zs), np.fmod(zs, xs)

    given = np.array([-128, 127, -7], np.int8), np.array([2**64 - 1, 2, 3], np.uint64), np.array([3, -2, 5], np.float32)
    xs, ys, zs = given
    check(traced, given, (np.fmod(xs, ys), np.fmod(xs, zs), np.fmod(zs, xs)))


def test_places_in_arrays_that_a_sorter_sorts() -> None:
    def places(xs: Any, vs: Any, order: Any) -> Any:
        return np.searchsorted(xs, vs, sorter=order), xs.searchsorted(vs, "right", order)

    @tw.program
    def traced(xs: tw.f64["n"], vs: tw.f64["k"], order: tw.i64["n"]) -> Any:
        return places(xs, vs, order)

    xs, vs = np.array([3.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.5, 3.0, 4.0])
    check(traced, (xs, vs, np.argsort(xs)), places(xs, vs, np.argsort(xs)))


def test_empty_results_into_arrays_of_any_strides() -> None:
    @tw.program
    def doubled(xss: tw.f64["k", "n", "m"]) -> Any:
        return xss * 2

    out = np.empty((5, 0, 0), order="F")
    assert out.strides[1:] == (0, 0) or out.strides[0] == 0
    for _ in range(2):
        assert doubled(np.empty((5, 0, 0)), out=out) is out


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("number", [-(2**63) - 1, -1, 0, 127, 128, 255, 256, 300, 2**31, 2**63, 2**64 - 1, 2**64])
def test_comparisons_with_numbers_that_the_type_cannot_hold(dtype: str, number: int) -> None:
    def several(xs: Any) -> Any:
        return xs < number, xs <= number, xs > number, xs >= number, xs == number, xs != number, number < xs

    @tw.program
    def traced(xs: tw.array["n"]) -> Any:
        return several(xs)

    @tw.program
    def element_by_element(xs: tw.array["n"]) -> Any:
        return tw.map(lambda x: tw.where(number > x, 1, 0), xs)

    xs = _ends(dtype)[0]
    check(traced, (xs,), several(xs), ("cpu",))
    check(element_by_element, (xs,), np.where(number > xs, 1, 0).astype(element_by_element(xs).dtype), ("cpu",))


def test_quotients_by_a_counter_that_is_zero() -> None:
    """Sizes are divided where they are positive, while what counts from 0 is 0 in its first round."""

    @tw.program
    def quotients(n: tw.i64) -> Any:
        def summed(i: Any, total: Any) -> Any:
            return total + n * i // i

        return tw.map(lambda i: 2 * i // i, tw.iota(n)), tw.loop(n, 0, summed)

    twos, total = quotients(3)
    assert twos.tolist() == [0, 2, 2]
    assert total == 6


@pytest.mark.parametrize("shift", [0, 5, 2**63 - 1, 2**63, 2**64 - 1])
def test_shifts_of_roll_without_sign(shift: int) -> None:
    @tw.program
    def rolled(xs: tw.f64["n"], shift: tw.u64) -> Any:
        return np.roll(xs, shift)

    xs = np.arange(7.0)
    check(rolled, (xs, np.uint64(shift)), np.roll(xs, shift % 7), ("cpu",))
    assert rolled(np.empty(0), np.uint64(shift)).size == 0


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("k", [5, 2**62, 2**62 + 2**61, -(2**62) - 1, 4749029181824784479])
def test_functions_of_sums_of_arguments_that_wrap_around(k: int, target: str) -> None:
    """On the host, which computes them from integers of any size, as in kernels."""
    if target == "opencl":
        opencl_or_skip()

    def several(twice: Any, maximum: Any, minimum: Any) -> Any:
        return maximum(twice, 0), minimum(twice, 7), (twice + 1) // 7, twice % 7

    @tw.program
    def traced(k: tw.i64) -> Any:
        return several(k + k, tw.maximum, tw.minimum)

    @tw.program
    def mapped(k: tw.i64) -> Any:
        return tw.map(lambda i: several(k + k + i, tw.maximum, tw.minimum), tw.iota(1))

    with np.errstate(over="ignore"):
        expected = several(np.int64(k) + np.int64(k), np.maximum, np.minimum)
    check(traced, (k,), expected, (target,))
    check(mapped, (k,), tuple(np.array([one]) for one in expected), (target,))


@pytest.mark.parametrize("s", [0, 3, -2, 2**62, -(2**63)])
def test_quotients_by_a_parameter_that_may_be_zero(s: int) -> None:
    """Sizes are divided by what is not 0, and do not wrap around; integers do both."""

    @tw.program
    def traced(s: tw.i64, t: tw.i64) -> Any:
        return s // s, s % s, 2 * s // s, s * t // s, s * s % s, (2 * s + 1) // 2, 4 * s % 4, s // s == 1

    by = np.int64(s)
    with np.errstate(all="ignore"):
        quotients = [one // by for one in (by, by * 2, by * 7)]
        expected = (quotients[0], by % by, quotients[1], quotients[2], by * by % by, (by * 2 + 1) // 2, by * 4 % 4)
    check(traced, (by, np.int64(7)), (*expected, quotients[0] == 1), ("cpu",))


def test_a_quotient_is_a_size_as_before() -> None:
    @tw.program
    def halves(xs: tw.f64["n"], s: tw.i64) -> Any:
        count = xs.shape[0]
        return tw.reshape(xs, (s * count // s, 1)), tw.iota(count * s // count), count // count, xs * (count // count)

    xs = np.arange(4.0)
    check(halves, (xs, np.int64(3)), (xs[:, None], np.arange(3), np.int64(1), xs), ("cpu",))
    assert halves(np.empty(0), 3)[2] == 0


def test_parameters_that_wrap_around_are_compared_when_the_program_runs() -> None:
    @tw.program
    def traced(s: tw.i64) -> Any:
        return s + 1 > s, s + 1 == s, s <= s, s - 1 <= s  # noqa: PLR0124

    assert [bool(one) for one in traced(2**63 - 1)] == [False, False, True, True]
    assert [bool(one) for one in traced(-(2**63))] == [True, False, True, False]


@pytest.mark.parametrize(
    "shift", [2**63, -(2**63), -(2**63) - 1, 10**30, -(10**40) - 3, np.uint64(2**63 + 1), np.int8(-128), np.array(2)]
)
def test_constant_shifts_of_roll(shift: Any) -> None:
    """Of any size, and those of NumPy's types, whose least numbers have no opposite."""

    @tw.program
    def rolled(xs: tw.f64["n"], ys: tw.f64["n", 3]) -> Any:
        return tw.roll(xs, shift), tw.roll(ys, (shift, 1), (1, 0)), tw.roll(ys, shift)

    xs, ys = np.arange(7.0), np.arange(21.0).reshape(7, 3)
    number = int(shift)
    expected = np.roll(xs, number % 7), np.roll(ys, (number % 3, 1), (1, 0)), np.roll(ys, number % 21)
    check(rolled, (xs, ys), expected, ("cpu",))
    assert rolled(np.empty(0), np.empty((0, 3)))[0].size == 0


def test_quotients_and_shifts_of_truth_values_are_bytes() -> None:
    def several(xs: Any, ys: Any) -> Any:
        return xs // ys, xs % ys, xs << ys, xs >> ys, np.fmod(xs, ys), xs // True, xs >> 1

    @tw.program
    def traced(xs: tw.bool_["n"], ys: tw.bool_["n"]) -> Any:
        return several(xs, ys)

    xs, ys = np.array([True, True, False, False]), np.array([True, False, True, False])
    with np.errstate(all="ignore"):
        expected = several(xs, ys)
    check(traced, (xs, ys), expected, ("cpu",))
