"""Out of range of a slice is an error with its line, also where that is in range of the array that the slice is of."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n", "m"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from program_checks import opencl_or_skip

import tilewright as tw

ROWS = np.arange(70 * 9, dtype=np.float32).reshape(70, 9)


def sums(rows: Any, k: Any) -> Any:
    return tw.map(lambda row: row[:3][:k].sum(), rows)


def sums_of_whole_rows(rows: Any, k: Any) -> Any:
    return tw.map(lambda row: row[:k].sum(), rows)


def products(rows: Any, k: Any) -> Any:
    return tw.map(lambda row: tw.map(lambda other: tw.reduce("add", 0, row[:3][:k] * other[:3][:k]), rows), rows)


def running(rows: Any, k: Any) -> Any:
    return tw.map(lambda row: tw.reduce("max", 0, tw.scan("add", 0, row[:3][:k])), rows)


EXPECTED = {
    sums: ROWS[:, :3].sum(1),
    sums_of_whole_rows: ROWS[:, :3].sum(1),
    products: ROWS[:, :3] @ ROWS[:, :3].T,
    running: ROWS[:, :3].sum(1),
}


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("function", EXPECTED, ids=lambda one: str(one.__name__))
def test_what_is_out_of_range_of_a_slice_is_an_error(function: Any, target: str) -> None:
    if target == "opencl":
        opencl_or_skip()

    @tw.program
    def program(rows: tw.f32["n", "m"], k: tw.i64) -> Any:
        return function(rows, k)

    np.testing.assert_array_equal(program(ROWS, 3, target=target), EXPECTED[function])
    longest = 9 if function is sums_of_whole_rows else 3
    with pytest.raises(IndexError, match=rf"test_slices_of_slices.py:\d+.*out of range.*extent {longest}"):
        program(ROWS, 12 if longest == 9 else 5, target=target)
