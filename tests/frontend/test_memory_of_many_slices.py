"""A limit of memory that only slices without end could keep is refused at once."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw


def grid(size: int, bond: int) -> list[object]:
    """A network of size x size tensors, each with its labels."""
    rng, terms = np.random.default_rng(0), []
    for x in range(size):
        for y in range(size):
            shape = [1 if at in (0, size) else bond for at in (x, x + 1, y, y + 1)]
            labels = [("down", x, y), ("down", x + 1, y), ("right", x, y), ("right", x, y + 1)]
            terms += [rng.standard_normal(shape), labels]
    return terms


def test_a_limit_that_would_take_forever_is_refused() -> None:
    with pytest.raises(MemoryError, match=r"memory_limit is 100 bytes: \d{7,} slices .*compute 1e\+06 times as much"):
        tw.einsum(*grid(4, 4), [], memory_limit=100)


def test_a_limit_that_repeats_much_is_kept() -> None:
    terms = grid(3, 4)
    np.testing.assert_allclose(tw.einsum(*terms, [], memory_limit=700), tw.einsum(*terms, []))
