"""Factors of an einsum that are equal and yet different: 0.0 and -0.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


@pytest.mark.parametrize("operands", [("ij,jk->ik",), ()])
def test_factors_of_zero_keep_their_signs(operands: tuple[Any, ...]) -> None:
    a, b = np.eye(3), np.ones((3, 4))
    given = ("ij,jk->ik", a, b) if operands else (a, [0, 1], b, [1, 2], [0, 2])
    for _ in range(4):  # from the second call on by the short cuts
        for alpha in (0.0, -0.0, 0):
            found = tw.einsum(*given, alpha=alpha)
            assert (np.signbit(found) == np.signbit(np.float64(alpha))).all(), alpha


def test_plans_of_either_factor() -> None:
    a, b = np.ones((2, 3)), np.ones((3, 4))
    signs = [np.signbit(tw.plan("ij,jk->ik", a, b, alpha=alpha)(a, b)).all() for alpha in (0.0, -0.0, 0.0)]
    assert signs == [False, True, False]


def test_factors_that_are_arrays_are_refused() -> None:
    for alpha in (np.ones(2), [1, 2], "2"):
        with pytest.raises(TypeError, match="alpha must be a number"):
            tw.einsum("ij,jk->ik", np.eye(2), np.eye(2), alpha=alpha)  # type: ignore[arg-type]
