"""`empty`: arrays for results, which begin with a cache line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw

EXTENTS = st.lists(st.integers(0, 40), max_size=4).map(tuple)
DTYPES = st.sampled_from(["bool", "int8", "u16", "i32", "f16", "f32", "f64", "c64", "c128", np.float32, "<i8"])


@given(EXTENTS, DTYPES, st.sampled_from("CF"))
def test_it_is_as_numpys_but_begins_with_a_line(shape: tuple[int, ...], dtype: object, order: str) -> None:
    array = tw.empty(shape, dtype, order)
    expected = np.empty(shape, array.dtype, order)
    assert array.shape == expected.shape
    assert array.flags.writeable
    if array.size:
        assert array.strides == expected.strides
        assert array.ctypes.data % 64 == 0
    array[...] = 1
    assert (array == 1).all()


def test_dtypes_are_taken_by_either_name() -> None:
    assert tw.empty(3).dtype == np.float64
    assert tw.empty(3, "f32").dtype == tw.empty((3,), np.float32).dtype == np.float32
    assert tw.empty([2, np.int64(3)], dtype="bf16").shape == (2, 3)
    assert tw.empty(np.array([4, 2]), "i16").shape == (4, 2)
    assert tw.empty(np.array(3), ">f4").dtype == np.dtype("=f4")


@pytest.mark.parametrize("nbytes", [1 << 19, 1 << 22, 5 << 20])
def test_large_arrays_are_each_by_themselves(nbytes: int) -> None:
    first, second = tw.empty(nbytes, "uint8"), tw.empty(nbytes, "uint8")
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0
    first[...], second[...] = 1, 2
    assert (first == 1).all()
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("order", ["C", "F"])
def test_results_are_written_there(order: str) -> None:
    left, right = np.random.default_rng(0).random((2, 600, 600)).astype(np.float32)
    result = tw.empty((600, 600), "f32", order)
    assert tw.einsum("iq,qj->ij", left, right, out=result) is result
    np.testing.assert_allclose(result, left @ right, rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "options", "error", "words"),
    [
        ((3, -1), {}, ValueError, r"empty: no array can have the shape \(3, -1\) with elements of 8 bytes"),
        ((1 << 40, 1 << 40), {}, ValueError, "no array can have the shape"),
        ((2.5, 3), {}, TypeError, r"a shape is an integer or several of them, not \(2\.5, 3\)"),
        (b"ab", {}, TypeError, "a shape is an integer or several of them, not b'ab'"),
        (((1, 2), 3), {}, TypeError, r"a shape is an integer or several of them, not \(\(1, 2\), 3\)"),
        (None, {}, TypeError, "a shape is an integer or several of them, not None"),
        ((3,), {"order": "K"}, ValueError, "order must be 'C' or 'F', not 'K'"),
        ((3,), {"dtype": "i8"}, ValueError, "empty: dtype 'i8' is int64 in NumPy and int8 as tw.i8; write 'int8' or"),
        ((3,), {"dtype": object}, TypeError, "dtype object is not supported"),
        ((1 << 45,), {}, MemoryError, r"an array of shape \(35184372088832,\) needs 281474976710656 bytes"),
    ],
)
def test_what_cannot_be_is_refused(shape: object, options: dict[str, object], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        tw.empty(shape, **options)  # type: ignore[arg-type]
