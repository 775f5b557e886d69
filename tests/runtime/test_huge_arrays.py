"""More than 2**31 elements: indices, strides, trip counts and results beyond 32 bits. At most 5 GiB of memory.

Most of the elements are one element in memory that is repeated, or pages that nothing was ever written to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.slow

BEYOND = 2**31 + 9


@pytest.fixture(scope="module")
def sparse() -> np.ndarray[Any, Any]:
    """Zeros, but for 1 at 3, 3 at 2**31, 4 at 2**31 + 1 and 7 at the end."""
    array = np.zeros(BEYOND, np.int8)
    array[3], array[2**31], array[2**31 + 1], array[-1] = 1, 3, 4, 7
    return array


def repeated(count: int, dtype: Any = np.int8) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.ones(1, dtype), (count,))


def test_a_long_sum(sparse: np.ndarray[Any, Any]) -> None:
    assert tw.einsum("i->", sparse) == 15
    assert tw.einsum("i->", repeated(BEYOND, np.int64)) == BEYOND


def test_a_long_product(sparse: np.ndarray[Any, Any]) -> None:
    assert tw.einsum("ij,jk->ik", sparse[None], sparse[:, None], dtype=np.int32).tolist() == [[1 + 9 + 16 + 49]]


def test_long_rows(sparse: np.ndarray[Any, Any]) -> None:
    rows = np.lib.stride_tricks.as_strided(sparse, (2, 5), (2**31, 1))
    assert tw.einsum("ij->ji", rows, epilogue=lambda x: x + 1)[:, 1].tolist() == [4, 5, 1, 1, 1]
    assert tw.einsum("ij,kj->ik", rows, rows).tolist() == [[1, 0], [0, 25]]
    assert tw.einsum("ij,kj->ik", rows[::-1], rows).tolist() == [[0, 25], [1, 0]]


def test_a_large_result() -> None:
    left, right = (np.arange(2 * 65537).reshape(-1, 2) % 100).astype(np.int8), np.arange(2**16).astype(np.int8)
    right = right.reshape(2, -1) % 7
    result = tw.einsum("ik,kj->ij", left, right)
    assert result.shape == (65537, 32768)
    for row in (0, 1, 2**15, 2**16 - 1, 2**16):
        assert np.array_equal(result[row], left[row] @ right)


def test_a_large_elementwise_result() -> None:
    left = np.broadcast_to(np.arange(2**15, dtype=np.int8), (2**16 + 1, 2**15))
    result = tw.einsum("ij,ij->ij", left, left)
    assert np.array_equal(result[0], left[0] * left[0])
    assert all(np.array_equal(result[row], result[0]) for row in (1, 2**15, 2**16 - 1, 2**16))


def test_programs() -> None:
    @tw.program
    def both(xs: tw.i8["n"]) -> Any:  # noqa: F821, UP037
        return tw.map(lambda x: x + 1, xs), tw.scan("add", 0, xs)

    mapped, scanned = both(repeated(BEYOND))
    assert mapped.shape == scanned.shape == (BEYOND,)
    assert mapped[:: 2**20].tolist() == [2] * (2**11 + 1)
    assert mapped[-9:].tolist() == [2] * 9
    assert scanned[-9:].tolist() == list(range(1, 10))


def test_what_is_too_large_is_refused_with_its_size() -> None:
    with pytest.raises(MemoryError, match="the result needs 1208925819614629174706176 bytes"):
        tw.einsum("i,j->ij", repeated(2**40), repeated(2**40))
    assert tw.einsum("i,j->ij", repeated(2), repeated(2)).tolist() == [[1, 1], [1, 1]]
