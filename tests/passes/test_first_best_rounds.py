"""Places of the best in rows: lanes remember the round in which they met it, in one vector, in a few, or one by one."""

# ruff: noqa: F821  # sizes in annotations are text: tw.f32["n"]

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.passes.points.lower_reduction import FEW, LEAST, MANY

WIDTHS = st.sampled_from([1, LEAST - 1, LEAST, 15, 16, FEW - 1, FEW, 33, 100, MANY - 1, MANY, MANY + 1, 700])


@tw.program
def places(x: tw.any_["n", "m"]):
    return x.argmax(axis=1), x.argmin(axis=1)


@tw.program
def whole(x: tw.any_["n"]):
    return x.argmax(), x.argmin()


@tw.program
def last_number(x: tw.f32["n", "m"]):
    """Numbers in i32, another neutral number, and a place that is wanted beside the value."""

    def row(values: Any) -> Any:
        def larger(a: Any, b: Any) -> Any:
            second = b[1] > a[1]
            return tw.where(second, b[0], a[0]), tw.where(second, b[1], a[1])

        return tw.reduce(larger, (-7, 0.5), tw.iota(x.shape[1], "i32"), values)

    return tw.map(row, x)


def values_of(random: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    x = random.integers(0, 5, shape).astype(kind)
    if x.dtype.kind == "f":
        x[random.random(shape) < 0.02] = np.nan
        x[random.random(shape) < 0.02] = -np.inf
    return x  # type: ignore[no-any-return]


@given(st.integers(1, 9), WIDTHS, st.sampled_from(["f4", "f8", "i4", "i8", "u2"]), st.integers(0, 999))
@settings(deadline=None, max_examples=60)
def test_places_in_rows(rows: int, width: int, kind: str, seed: int) -> None:
    x = values_of(np.random.default_rng(seed), (rows, width), kind)
    for found, wanted in zip(places(x), (x.argmax(axis=1), x.argmin(axis=1)), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["f4", "f8", "i4"])
def test_places_in_long_arrays(kind: str, threads: int) -> None:
    """Pieces of an array count rows from where they begin."""
    x = np.zeros(1 << 20, kind)
    x[[777_777, 999_999]] = 1
    x[[600_001, 900_000]] = -1
    with tw.num_threads(threads):
        assert [int(one) for one in whole(x)] == [777_777, 600_001]


@given(st.integers(1, 5), WIDTHS, st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_numbers_of_another_type_and_neutral_element(rows: int, width: int, seed: int) -> None:
    """Where no row is better than the neutral element, that is kept with its number."""
    x = np.random.default_rng(seed).random((rows, width)).astype("f4") - np.float32(0.3)
    place, best = last_number(x)
    some = x.max(axis=1) > 0.5
    assert place.dtype == np.int32
    np.testing.assert_array_equal(place, np.where(some, x.argmax(axis=1), -7))
    np.testing.assert_array_equal(best, np.where(some, x.max(axis=1), np.float32(0.5)))
