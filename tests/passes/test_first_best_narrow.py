"""Places of the greatest of narrow numbers, which lanes of registers find: the first of equal ones, in all lengths."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "?"])
def test_places_in_rows_of_narrow_numbers(dtype: str) -> None:
    @tw.program
    def places(x: tw.array["n", "m"]):
        return np.argmax(x, axis=1), np.argmin(x, axis=1), np.argmax(x)

    @given(st.integers(1, 5), st.sampled_from([1, 3, 4, 15, 16, 17, 63, 64, 65, 255, 256, 300, 4099]),
           st.integers(1, 200), st.integers(0, 99))  # fmt: skip
    @settings(deadline=None, max_examples=25)
    def check(rows: int, length: int, kinds: int, seed: int) -> None:
        x = np.random.default_rng(seed).integers(0, kinds, (rows, length)).astype(dtype)
        greatest, least, whole = places(x)
        assert greatest.tolist() == x.argmax(axis=1).tolist()
        assert least.tolist() == x.argmin(axis=1).tolist()
        assert whole == x.argmax()

    check()
