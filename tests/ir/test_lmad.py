"""LMAD operations against the same operations on strided NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.lmad import LMAD, row_major
from tilewright.ir.nodes import SliceDimension
from tilewright.ir.sizes import ONE, Size, size

n, m, k, p = map(size, "nmkp")
Array = np.ndarray[Any, np.dtype[np.int64]]


def index_array(lmad: LMAD) -> Array:
    """The array that has each element's place as its value, as a strided view of one buffer."""
    return np.array(list(lmad.points()), np.int64).reshape([extent.constant for extent in lmad.shape])


def same_elements(lmad: LMAD, expected: Array) -> bool:
    return tuple(one.constant for one in lmad.shape) == expected.shape and bool((index_array(lmad) == expected).all())


def factorisations(draw: st.DrawFn, total: int) -> list[int]:
    """Some shape of `total` elements."""
    if total == 0:
        shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
        return shape if 0 in shape else [*shape, 0]
    shape: list[int] = []
    while total > 1:
        factor = draw(st.sampled_from([d for d in range(2, total + 1) if total % d == 0]))
        shape.append(factor)
        total //= factor
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return shape


def random_slice(draw: st.DrawFn, extent: int) -> SliceDimension:
    if extent == 0:
        return SliceDimension(size(0), size(0), draw(st.sampled_from([-1, 1, 2])))
    start, step = draw(st.integers(0, extent - 1)), draw(st.sampled_from([-3, -2, -1, 1, 1, 2, 3]))
    most = (extent - 1 - start) // step + 1 if step > 0 else start // -step + 1
    return SliceDimension(size(start), size(draw(st.integers(0, most))), step)


def sliced(array: Array, dimensions: list[SliceDimension]) -> Array:
    for axis, one in enumerate(dimensions):
        start, count = one.start.constant, one.count.constant
        assert start is not None and count is not None
        array = np.moveaxis(np.moveaxis(array, axis, 0)[start :: one.step][:count], 0, axis)
    return array


def step(draw: st.DrawFn, lmad: LMAD, array: Array) -> tuple[LMAD, Array]:
    """One random operation on both; a reshape must be refused exactly where NumPy would have to copy."""
    operations = ["reshape", "rearrange", "slice", "broadcast"] + (["fix"] if array.size else [])
    pairs = [(a, b) for a in range(array.ndim) for b in range(array.ndim) if a < b and array.shape[a] == array.shape[b]]
    match draw(st.sampled_from(operations + (["diagonal"] if pairs else []))):
        case "reshape":
            shape = factorisations(draw, array.size)
            reshaped = lmad.reshape(shape)
            try:
                expected = np.reshape(array, shape, copy=False)
            except ValueError:
                assert reshaped is None
                return lmad, array
            assert reshaped is not None
            return reshaped, expected
        case "rearrange":
            permutation = draw(st.permutations(range(array.ndim)))
            return lmad.rearrange(permutation), array.transpose(permutation)
        case "slice":
            dimensions = [random_slice(draw, extent) for extent in array.shape]
            return lmad.slice(dimensions), sliced(array, dimensions)
        case "broadcast":
            count = draw(st.integers(0, 3))
            return lmad.broadcast(count), np.broadcast_to(array, (count, *array.shape))
        case "diagonal":
            first, second = draw(st.sampled_from(pairs))
            return lmad.diagonal(first, second), np.moveaxis(np.diagonal(array, 0, first, second), -1, first)
        case _:
            indices = [draw(st.integers(0, e - 1)) for e in array.shape[: draw(st.integers(0, array.ndim))]]
            return lmad.fix(indices), array[(*indices, ...)]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_chains_agree_with_numpy(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    lmad: LMAD = row_major(shape, 5)
    array = np.arange(5, 5 + int(np.prod(shape)), dtype=np.int64).reshape(shape)
    for _ in range(data.draw(st.integers(1, 6))):
        lmad, array = step(data.draw, lmad, array)
        if array.size > 500:
            break
        assert same_elements(lmad, array)


SYMBOLIC: list[tuple[LMAD, tuple[Size, ...], bool]] = [
    (row_major((n, m)), (n * m,), True),
    (row_major((n * m,)), (n, m), True),
    (row_major((n * m, k)), (n, m * k), True),
    (row_major((n, m, k)), (n * m, k), True),
    (row_major((n, m)), (m, n), True),  # one run, so any shape of as many elements
    (row_major((p,)), (n, m), True),  # legal only if p == n*m
    (row_major((n, m)).rearrange((1, 0)), (n * m,), False),
    (row_major((n, m)).rearrange((1, 0)), (m, ONE, n), True),
    (row_major((n, m, k)).rearrange((2, 0, 1)), (k, n * m), True),
    (row_major((n, m, k)).rearrange((2, 0, 1)), (k * n, m), False),
    (row_major((n, 2 * m)).slice([SliceDimension(size(0), n), SliceDimension(size(0), m, 2)]), (n * m,), True),
    (row_major((n, 2 * m)).slice([SliceDimension(size(0), n), SliceDimension(size(0), m)]), (n * m,), False),
    (row_major((n, 2 * m)).slice([SliceDimension(size(0), n), SliceDimension(size(0), m)]), (n, size(2), p), True),
    (row_major((n, m)).slice([SliceDimension(n - 1, n, -1), SliceDimension(m - 1, m, -1)]), (n * m,), True),
    (row_major((n, m)).slice([SliceDimension(n - 1, n, -1), SliceDimension(size(0), m)]), (n * m,), False),
    (row_major((m,)).broadcast(n), (n * m,), False),
    (row_major((m,)).broadcast(n).broadcast(k), (k * n, m), True),
]
VALUES = {"n": 3, "m": 4, "k": 5, "p": 12}


@pytest.mark.parametrize(("lmad", "shape", "possible"), SYMBOLIC, ids=str)
def test_symbolic_reshape(lmad: LMAD, shape: tuple[Size, ...], possible: bool) -> None:
    values = VALUES | ({"p": 2} if shape == (n, size(2), p) else {})
    before = index_array(lmad.bind(values))
    reshaped = lmad.reshape(shape)
    assert (reshaped is not None) == possible
    if reshaped is not None:
        assert reshaped.shape == shape
        assert same_elements(reshaped.bind(values), before.reshape([one.evaluate(values) for one in shape]))


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(3)), st.integers(0, 1), st.tuples(*[st.integers(0, 4)] * 3))
def test_a_symbolic_reshape_holds_for_all_values(permutation: list[int], first: int, extents: tuple[int, ...]) -> None:
    lmad = row_major((n, m, k), "o").rearrange(permutation)
    shape = list(lmad.shape)
    shape[first : first + 2] = [shape[first] * shape[first + 1]]
    reshaped = lmad.reshape(shape)
    merges = permutation[first + 1] == permutation[first] + 1
    assert (reshaped is not None) == merges
    if reshaped is not None:
        values = dict(zip("nmk", extents, strict=True)) | {"o": 7}
        expected = index_array(lmad.bind(values)).reshape([one.evaluate(values) for one in shape])
        assert same_elements(reshaped.bind(values), expected)


def test_composition_keeps_symbols() -> None:
    sub = row_major((n, m, k), "o").fix(["i"]).slice([SliceDimension(m - 1, m, -1), SliceDimension(size(1), k - 1)])
    assert sub == LMAD(size("o") + size("i") * m * k + (m - 1) * k + 1, (m, k - 1), (-k, ONE))
    assert sub.flat([2, "j"]) == size("o") + size("i") * m * k + (m - 3) * k + 1 + "j"


def test_row_major_is_recognised() -> None:
    assert row_major((n, m, k), "o").is_row_major
    assert not row_major((n, m)).rearrange((1, 0)).is_row_major
    assert row_major((n, 1, m)).rearrange((1, 0, 2)).is_row_major
    assert LMAD(size(3), (n, size(0)), (k, p)).is_row_major
    assert not row_major((m,)).broadcast(n).is_row_major


def test_zero_sized_arrays_take_any_shape() -> None:
    empty = row_major((3, 0, 4)).rearrange((2, 1, 0))
    reshaped = empty.reshape((0, 7))
    assert reshaped is not None and list(reshaped.points()) == [] and reshaped.shape == (size(0), size(7))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: LMAD(size(0), (n,), ()), "as many strides"),
        (lambda: row_major((2, 3)).reshape((7,)), r"6 elements\) to \(7\)"),
        (lambda: row_major((2, 3)).rearrange((0, 0)), "not a permutation"),
        (lambda: row_major((2, 3)).diagonal(0, 1), "one extent"),
        (lambda: row_major((2, 2)).diagonal(0, 2), "axis 2"),
        (lambda: row_major((2, 2)).flat([0]), "1 indices"),
        (lambda: row_major((2,)).fix([0, 0]), "2 indices"),
        (lambda: row_major((2,)).slice([]), "slice of 0"),
        (lambda: list(row_major(("n",)).points()), "symbolic"),
    ],
)
def test_misuse_is_explained(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()
