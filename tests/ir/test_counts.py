"""Numbers of elements of shapes whose extents may be below zero, against what they are for small sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.counts import element_count, is_natural, left_over, same_count
from tilewright.ir.sizes import Size, maximum, size

N, M, K = map(size, "nmk")
EXTENTS = (
    N, M, K, N - 2, M - 2, K - 1, N - M, 2 * N, 2 * (N - 2), N * M, (N - 2) * M, (N - 2) * (M - 2), size(1), size(2),
    maximum(N - 2, 0), maximum(N - 2, 0) * maximum(M - 2, 0), maximum(N - 2, 0) * M, size(0),
)  # fmt: skip
shapes = st.lists(st.sampled_from(EXTENTS), min_size=0, max_size=4)
VALUES = [dict(zip("nmk", values, strict=True)) for values in itertools.product(range(5), repeat=3)]


def elements(shape: Sequence[Size], values: dict[str, int]) -> int:
    """How many elements there are."""
    return math.prod(max(0, one.evaluate(values)) for one in shape)


@settings(max_examples=1000)
@given(shapes, shapes)
def test_shapes_that_are_said_to_have_as_many_elements_have(before: list[Size], after: list[Size]) -> None:
    if same_count(before, after):
        assert all(elements(before, one) == elements(after, one) for one in VALUES)


@given(shapes)
def test_the_count_is_that_of_the_elements(shape: list[Size]) -> None:
    counted = element_count(shape)
    assert all(max(0, counted.evaluate(one)) == elements(shape, one) for one in VALUES)
    plain = [one for one in shape if one in (N, M, N - 2, M - 2, size(2))]
    assert same_count(plain, [element_count(plain)])


@given(shapes, shapes)
def test_what_is_left_over_fills_the_shape(shape: list[Size], others: list[Size]) -> None:
    rest = left_over(shape, others)
    if rest is None:
        return
    for one in VALUES:
        beside = elements(others, one)
        if beside:
            assert max(0, rest.evaluate(one)) * beside == elements(shape, one)


@given(st.sampled_from(EXTENTS))
def test_natural_extents_are_never_below_zero(extent: Size) -> None:
    if is_natural(extent):
        assert all(extent.evaluate(one) >= 0 for one in VALUES)


def test_names_of_integers_are_in_doubt_where_they_are_not_known_to_be_sizes() -> None:
    assert same_count([N, M], [N * M])
    assert not same_count([N, M], [N * M], lambda _: False)
    assert same_count([N, K], [N * K], lambda name: name == "n")
