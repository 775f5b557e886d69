"""A memory order that a view does not have makes a copy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw


@pytest.mark.parametrize("order", ["C", "F"])
@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(*[st.integers(0, 9)] * 3),
    axes=st.permutations("ijk"),
    dtype=st.sampled_from(["f2", "f4", "f8", "c8", "i1", "?"]),
    seed=st.integers(0, 10**6),
)
def test_one_operand_in_another_order(order, shape, axes, dtype, seed):
    x = np.random.default_rng(seed).integers(0, 2, shape).astype(dtype)
    expression = f"ijk->{''.join(axes)}"
    result = tw.einsum(expression, x, order=order)
    expected = np.einsum(expression, x, order=order)
    assert result.flags.c_contiguous if order == "C" else result.flags.f_contiguous
    assert result.dtype == expected.dtype
    assert np.array_equal(result, expected)


def test_a_view_that_has_the_order_stays_a_view():
    x = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(tw.einsum("ij->ji", x, order="F"), x)
    assert not np.shares_memory(tw.einsum("ij->ji", x, order="C"), x)


def test_a_diagonal_in_c_order():
    x = np.arange(27.0).reshape(3, 3, 3)
    assert tw.einsum("iij->ji", x, order="C").tolist() == np.einsum("iij->ji", x).tolist()
