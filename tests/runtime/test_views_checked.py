"""Indices that are out of range of a view are errors with their line, whatever the view is made of."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n", "m"]
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from program_checks import opencl_or_skip

import tilewright as tw

ROWS = np.arange(63, dtype=np.float32).reshape(7, 9)

PICKED: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "iota": (lambda x, j: tw.iota(5)[j], [0, 4]),
    "twice an iota": (lambda x, j: (tw.iota(5) * 2)[j], [0, 8]),
    "copies of a number": (lambda x, j: tw.replicate(5, x[0, 1])[j], [1, 1]),
    "copies of a row": (lambda x, j: tw.replicate(5, x[0])[j].sum(), [36, 36]),
    "copies of a matrix": (lambda x, j: tw.replicate(5, x)[j, 0, 1], [1, 1]),
    "a broadcast row": (lambda x, j: np.broadcast_to(x[0], (5, 9))[j].sum(), [36, 36]),
    "a map that reads nothing": (lambda x, j: tw.map(lambda _: x[0, 1], tw.iota(5))[j], [1, 1]),
    "a map": (lambda x, j: (x[:5, 0] + 1)[j], [1, 37]),
    "sums": (lambda x, j: x[:5].sum(axis=1)[j], [36, 360]),
    "columns": (lambda x, j: x[:, :5].T[j, 0], [0, 4]),
    "reversed": (lambda x, j: x[4::-1][j, 0], [36, 0]),
    "every other": (lambda x, j: x[0, ::2][j], [0, 8]),
    "joined": (lambda x, j: np.concatenate([x[:2], x[:3]])[j, 1], [1, 19]),
    "flattened": (lambda x, j: x[0, :5].reshape(-1)[j], [0, 4]),
    "rolled": (lambda x, j: np.roll(x[0, :5], 1)[j], [4, 3]),
    "an element replaced": (lambda x, j: tw.update(x[0, :5], j, 2.0)[j], [2, 2]),
}


@pytest.mark.parametrize("flattening", ["incremental", "full", "outer", None])
@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("name", PICKED)
def test_what_is_out_of_range_of_a_view_is_an_error(name: str, target: str, flattening: Any) -> None:
    function, expected = PICKED[name]
    if target == "opencl":
        opencl_or_skip()

    @tw.program(flattening=flattening)
    def picking(x: tw.f32["n", 9], places: tw.i64["p"]) -> Any:
        return tw.map(lambda j: function(x, j), places)

    np.testing.assert_array_equal(picking(ROWS, np.array([0, 4]), target=target), expected)
    for wrong in (5, 64):
        with pytest.raises(IndexError, match=r"test_views_checked.py:\d+.*out of range"):
            picking(ROWS, np.array([0, wrong]), target=target)
