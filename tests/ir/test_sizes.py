"""Sizes are a commutative ring under evaluation, in a normal form; substitution and division agree with evaluation."""

from __future__ import annotations

import pytest
from core_programs import sizes
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.sizes import (
    ONE,
    ZERO,
    Size,
    ceil_division,
    exact_quotient,
    maximum,
    minimum,
    product,
    size,
    size_function,
)

NAMES = ["a", "b", "n1"]
SIZES = sizes(NAMES)
VALUES = st.fixed_dictionaries({name: st.integers(1, 9) for name in NAMES})
POLYNOMIALS = st.lists(st.tuples(st.integers(-4, 4), st.lists(st.sampled_from(NAMES), max_size=3)), max_size=4).map(
    lambda terms: sum((product([coefficient, *factors]) for coefficient, factors in terms), ZERO)
)


@given(SIZES, SIZES, SIZES)
def test_equal_expressions_have_one_normal_form(a: Size, b: Size, c: Size) -> None:
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == ZERO
    assert a + ZERO == a == a * ONE
    assert a * ZERO == ZERO
    assert hash(a * b + c) == hash(c + b * a)


@given(SIZES, SIZES, VALUES)
def test_operations_agree_with_evaluation(a: Size, b: Size, values: dict[str, int]) -> None:
    left, right = a.evaluate(values), b.evaluate(values)
    assert (a + b).evaluate(values) == left + right
    assert (a - b).evaluate(values) == left - right
    assert (a * b).evaluate(values) == left * right
    assert (-a).evaluate(values) == -left
    assert (3 - a).evaluate(values) == 3 - left
    assert minimum(a, b).evaluate(values) == min(left, right)
    assert maximum(a, b).evaluate(values) == max(left, right)
    if right:
        assert (a // b).evaluate(values) == left // right
        assert (a % b).evaluate(values) == left % right


@given(SIZES, VALUES)
def test_terms_are_sorted_without_zeros_and_names_are_those_that_occur(a: Size, values: dict[str, int]) -> None:
    assert all(coefficient for _, coefficient in a.terms)
    assert len({monomial for monomial, _ in a.terms}) == len(a.terms)
    assert a.evaluate({name: values[name] for name in a.names}) == a.evaluate(values)
    if a.constant is not None:
        assert a.constant == a.evaluate({})
        assert a == size(a.constant)


POSITIVE = st.sampled_from([size(1), size(4), size("a"), size("b") * size("b"), size("n1") + 1])


@given(SIZES, st.dictionaries(st.sampled_from(NAMES), POSITIVE), VALUES)
def test_substitution_commutes_with_evaluation(a: Size, replaced: dict[str, Size], values: dict[str, int]) -> None:
    inner = values | {name: one.evaluate(values) for name, one in replaced.items()}
    assert a.substitute(replaced).evaluate(values) == a.evaluate(inner)


@given(SIZES)
def test_substitution_is_simultaneous(a: Size) -> None:
    swapped = {"a": size("b"), "b": size("a")}
    assert a.substitute(swapped).substitute(swapped) == a


@given(POLYNOMIALS, POLYNOMIALS.filter(lambda one: one != ZERO))
def test_exact_quotient_inverts_multiplication(a: Size, b: Size) -> None:
    quotient = exact_quotient(a * b, b)
    if len(b.terms) == 1 or a == ONE:
        assert quotient == a
    if quotient is not None:
        assert quotient * b == a * b


def test_exact_quotient_declines_what_leaves_a_remainder() -> None:
    n, m = size("n"), size("m")
    assert exact_quotient(n * m + 4 * n, 2 * n) is None
    assert exact_quotient(n * m + n, n) == m + 1
    assert exact_quotient(n + m, n) is None
    assert exact_quotient(n, ZERO) is None
    assert exact_quotient(n + m, n + m) == ONE
    assert exact_quotient(ZERO, n) == ZERO


@given(SIZES, st.sampled_from(NAMES), VALUES)
def test_coefficient_of_takes_a_size_apart(a: Size, name: str, values: dict[str, int]) -> None:
    parts = a.coefficient_of(name)
    if parts is not None:
        factor, rest = parts
        assert name not in factor.names | rest.names
        assert factor * size(name) + rest == a


def test_coefficient_of_declines_what_is_not_linear() -> None:
    n, m = size("n"), size("m")
    assert (n * n).coefficient_of("n") is None
    assert (n // 2).coefficient_of("n") is None
    assert (m * (n % 3)).coefficient_of("n") is None
    assert (n * m + m + 2).coefficient_of("n") == (m, m + 2)
    assert (m // 2).coefficient_of("n") == (ZERO, m // 2)


def test_constants_are_computed() -> None:
    assert size(7) // 2 == size(3)
    assert size(-7) % 4 == size(1)
    assert ceil_division(7, 2) == size(4)
    assert minimum(2, 5) == size(2)
    assert maximum("n", "n") == size("n")
    assert minimum("n", "m") == minimum("m", "n")
    assert (size("n") // 4).substitute({"n": size(12)}) == size(3)
    assert product([]) == ONE


def test_division_by_zero_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        size(3) // 0
    with pytest.raises(ZeroDivisionError):
        size_function("mod", "n", "m").evaluate({"n": 3, "m": 0})


def test_a_missing_name_raises() -> None:
    with pytest.raises(KeyError, match="m"):
        (size("n") * size("m")).evaluate({"n": 1})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ZERO, "0"),
        (size(-3), "-3"),
        (size("n") * -1 + 1, "-n + 1"),
        (2 * size("n") * size("m") - size("k") - 5, "2*m*n - k - 5"),
        ((size("n") + 1) // 2 * size("m"), "floordiv(n + 1, 2)*m"),
    ],
)
def test_text(value: Size, text: str) -> None:
    assert str(value) == text
