"""Quotients of sizes whose terms are partly multiples of the divisor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.sizes import ceil_division, size

WHOLE = st.integers(-9, 9)


@given(WHOLE, WHOLE, WHOLE, st.integers(1, 6), WHOLE, WHOLE)
def test_quotients_and_remainders_keep_their_values(a: int, b: int, c: int, by: int, n: int, m: int) -> None:
    dividend = a * size("n") + b * size("m") * size("n") + c
    values = {"n": n, "m": m}
    assert (dividend // by).evaluate(values) == dividend.evaluate(values) // by
    assert (dividend % by).evaluate(values) == dividend.evaluate(values) % by


def test_what_is_surely_whole_is_taken_out() -> None:
    n, m = size("n"), size("m")
    assert (2 * n + 1) // 2 == n
    assert (2 * n * m + m + 5) // 2 == n * m + 2 + (m + 1) // 2
    assert (4 * n + m) % 4 == m % 4
    assert ceil_division(2 * n, 2) == ceil_division(2 * n - 1, 2) == n  # x[::2] and x[1::2]
    assert (n + 1) // 2 - 1 == (n - 1) // 2  # x[::2][1:] and x[2::2]
    assert n // m == (n + 0) // m != n
