"""`tw.tensordot` beside NumPy's, what it refuses, and opt_einsum with all of it as a backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import opt_einsum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Shapes of two arrays and the axes that go together."""
    sizes = draw(st.lists(st.integers(0, 4), max_size=3))
    own, its = (draw(st.lists(st.integers(0, 4), max_size=2)) for _ in range(2))
    left, right = list(own), list(its)
    pairs = []
    for size in sizes:
        ours, theirs = draw(st.integers(0, len(left))), draw(st.integers(0, len(right)))
        pairs = [(a + (a >= ours), b + (b >= theirs)) for a, b in pairs] + [(ours, theirs)]
        left.insert(ours, size)
        right.insert(theirs, size)
    signs = draw(st.booleans())
    axes = tuple([one - rank if signs else one for one in given] for given, rank in
                 (([a for a, _ in pairs], len(left)), ([b for _, b in pairs], len(right))))  # fmt: skip
    return tuple(left), tuple(right), axes


@given(cases())
@settings(max_examples=40, deadline=None)
def test_as_numpy_has_it(case: tuple[tuple[int, ...], tuple[int, ...], Any]) -> None:
    left, right, axes = case
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, left), rng.integers(-9, 9, right)
    found = tw.tensordot(a, b, axes)
    wanted = np.tensordot(a, b, axes)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axes", [0, 1, 2, (-1, 0), ((0, 1), (1, 0))])
def test_axes_in_every_form(axes: Any) -> None:
    a = np.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(tw.tensordot(a, a + 1, axes), np.tensordot(a, a + 1, axes))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (3, "axes = 3 of arrays of 2 and 2 dimensions"),
        (([0, 0], [0, 1]), r"\[0, 0\] are no different axes of the left array"),
        ((0, 2), r"\[2\] are no different axes of the right array, which has 2 dimensions"),
        (([0, 1], [0]), "2 axes of the left array cannot go with 1 of the right one"),
        (([0],), "a number or two lists"),
        ((1, 1), "axis 1 of the left array has size 3, axis 1 of the right one, which goes with it, 4"),
    ],
)
def test_what_does_not_fit_is_refused(axes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tw.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (1.0, "axes must be a whole number or two lists of axes, not 1.0 of type float"),
        (None, "axes must be a whole number or two lists of axes, not None"),
        ("ab", "axes must be a whole number or two lists of axes, not 'ab'"),
        (([0.5], [1]), r"axes of the left array are whole numbers, not \[0.5\]"),
        ((0, "b"), "axes of the right array are whole numbers, not 'b'"),
    ],
)
def test_axes_that_are_no_whole_numbers_are_refused(axes: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        tw.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes)


def test_axes_of_numpys_integers() -> None:
    a = np.arange(9).reshape(3, 3)
    for axes in (np.int64(1), np.array(1), np.array([[0], [1]]), (np.int8(0), np.array([1]))):
        np.testing.assert_array_equal(tw.tensordot(a, a + 1, axes), np.tensordot(a, a + 1, axes))


def test_opt_einsum_with_this_backend() -> None:
    rng = np.random.default_rng(1)
    operands = [
        rng.integers(-5, 5, shape) for shape in [(4, 3, 4), (4, 2, 2, 4), (3, 3, 2, 2), (3, 3, 2, 2), (4, 3, 4)]
    ]
    text = "apb,bstc,pqsu,qrtv,drc->auvd"
    found = opt_einsum.contract(text, *operands, backend="tilewright")
    np.testing.assert_array_equal(found, opt_einsum.contract(text, *operands))


def test_transpose_outside_of_programs_is_numpys_view() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    assert np.shares_memory(tw.transpose(a, (2, 0, 1)), a)
    np.testing.assert_array_equal(tw.transpose(a), a.T)
