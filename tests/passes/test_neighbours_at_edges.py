"""Neighbours at the edges of arrays, a few points and many from these."""

# ruff: noqa: F821

import numpy as np
import pytest

import tilewright as tw
from tilewright.passes.compile import compile_program
from tilewright.runtime.devices import device_for


def _shifted(shift):
    """A program of neighbours that are so far away."""

    def shifted(xs: tw.f32["n", "m"]):
        n, m = xs.shape

        def point(i, j):
            left = tw.cond(j >= shift, lambda: xs[i, j - shift], lambda: 0.0)
            right = tw.cond(j < m - shift, lambda: xs[i, j + shift], lambda: 0.0)
            return left + 2 * right + xs[i, j]

        return tw.map(lambda i: tw.map(lambda j: point(i, j), tw.iota(m)), tw.iota(n))

    shifted.__annotations__ = {"xs": tw.f32["n", "m"]}
    return tw.program(shifted)


def _expected(xs, shift):
    left, right = np.zeros_like(xs), np.zeros_like(xs)
    left[:, shift:], right[:, : max(xs.shape[1] - shift, 0)] = xs[:, :-shift], xs[:, shift:]
    return left + 2 * right + xs


@pytest.mark.parametrize("shift", [1, 4, 5, 40])
def test_neighbours_are_found_on_either_side_of_the_edges(shift):
    executable = compile_program(_shifted(shift).trace(), device_for("cpu"))
    for shape in ((7, 100), (3, 41), (2, 47), (2, 3)):
        xs = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
        np.testing.assert_allclose(executable(xs), _expected(xs, shift), rtol=1e-6)
