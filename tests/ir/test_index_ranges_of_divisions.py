"""Proofs that indices are in range, with extents and indices that are divided by constants."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.index_ranges import is_within
from tilewright.ir.sizes import Size, size

P, J, K, N, M = map(size, ("i", "j", "k", "n", "m"))
RANGES = {"i": N // 2, "j": (M + 1) // 2, "k": size(4)}


@pytest.mark.parametrize(
    ("index", "extent"),
    [
        (2 * P, N), (2 * P + 1, N), (2 * P + K // 2, N), (2 * P + K % 2, N), (K // 2, size(2)), (K % 3, size(3)),
        (2 * J, M + 1), (2 * J, M), (K // 2 * 2 + K % 2, size(4)), (N // 2 - 1 - P, N // 2), (P, N // 2),
    ],
)  # fmt: skip
def test_what_is_proved(index: Size, extent: Size) -> None:
    assert is_within(index, extent, RANGES)


@pytest.mark.parametrize(
    ("index", "extent"),
    [
        (2 * P + 2, N), (2 * P + 1, N - 1), (2 * P + K // 2 + K % 2, N), (2 * J + 1, M), (K // 2, size(1)),
        (K % 3, size(2)), (P // 2 - 1, N), (K // 2 - 1, size(4)), (P % N, M),
    ],
)  # fmt: skip
def test_what_is_not_proved(index: Size, extent: Size) -> None:
    assert not is_within(index, extent, RANGES)


divided = [K // 2, K % 2, K % 3, P // 2, J % 2, N // 2, N // 3, (M + 1) // 2, N % 3]
atoms = st.sampled_from([P, J, K, N, M, size(0), size(1), size(2), P * 2, J * 3, *divided])
indices = st.lists(st.tuples(st.integers(-2, 2), atoms), min_size=1, max_size=3).map(
    lambda terms: sum((factor * atom for factor, atom in terms), size(0))
)


@given(indices, st.one_of(indices, st.sampled_from([N, M, N // 2, size(4), size(3)])))
@settings(max_examples=400)
def test_no_proof_is_wrong(index: Size, extent: Size) -> None:
    if not is_within(index, extent, RANGES):
        return
    used = index.names | extent.names
    for n, m in itertools.product(range(8), range(6)):
        known = {"n": n, "m": m}
        below = {name: limit.evaluate(known) if name in used else 1 for name, limit in RANGES.items()}
        for i, j, k in itertools.product(*(range(below[name]) for name in "ijk")):
            values = {**known, "i": i, "j": j, "k": k}
            assert 0 <= index.evaluate(values) < extent.evaluate(values), values
