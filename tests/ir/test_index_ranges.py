"""Proofs that indices are in range: the usual ones succeed, and none is wrong."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.index_ranges import is_within
from tilewright.ir.sizes import Size, maximum, minimum, size

P, J, K, N, M = map(size, ("i", "j", "k", "n", "m"))
RANGES = {"i": N, "j": M, "k": N - 2}


@pytest.mark.parametrize(
    ("index", "extent"),
    [
        (P, N), (N - 1 - P, N), (maximum(P - 1, 0), N), (minimum(P + 1, N - 1), N), (P, N + 1), (P + 1, N + 1),
        (K + 1, N), (K + 2, N), (P * M + J, N * M), (maximum(0, minimum(N - 1, P - 3)), N), (2 * P + 1, 2 * N),
        (maximum(0, minimum(P + 5, N - 1)), N), (size(2), size(3)), (0 * P, N + P), (N * J + P, N * M),
    ],
)  # fmt: skip
def test_what_is_proved(index: Size, extent: Size) -> None:
    assert is_within(index, extent, RANGES)


@pytest.mark.parametrize(
    ("index", "extent"),
    [
        (P + 1, N), (P - 1, N), (J, N), (maximum(P - 1, 0), N - 1), (minimum(P + 1, N), N), (size(0), N), (N - 1, N),
        (P * M + J, N), (P * size("x"), N * size("x")), (P * P, N * N - N), (size("y"), N), (K, N - 3), (P - J, N),
    ],
)  # fmt: skip
def test_what_is_not_proved(index: Size, extent: Size) -> None:
    assert not is_within(index, extent, RANGES)


atoms = st.sampled_from([P, J, K, N, M, size("x"), size(0), size(1), size(2), P * M])
linear = st.lists(st.tuples(st.integers(-2, 2), atoms), min_size=1, max_size=3).map(
    lambda terms: sum((factor * atom for factor, atom in terms), size(0))
)
clamped = st.one_of(linear, st.builds(minimum, linear, linear), st.builds(maximum, linear, linear))
indices = st.one_of(clamped, st.builds(minimum, clamped, linear), st.builds(maximum, clamped, linear))


@given(indices, st.one_of(linear, st.sampled_from([N, M, N * M])))
def test_no_proof_is_wrong(index: Size, extent: Size) -> None:
    if not is_within(index, extent, RANGES):
        return
    for n, m, x in itertools.product(range(5), range(4), (-2, 0, 3)):
        used = index.names | extent.names
        spaces = [
            range(n) if "i" in used else [0],
            range(m) if "j" in used else [0],
            range(n - 2) if "k" in used else [0],
        ]
        for i, j, k in itertools.product(*spaces):
            values = {"n": n, "m": m, "x": x, "i": i, "j": j, "k": k}
            assert 0 <= index.evaluate(values) < extent.evaluate(values), values
