"""Places of the greatest of columns: the rows of large arrays are asked for before their turn."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Kernel
from tilewright.kernel.traversal import walk
from tilewright.passes.items.lower_columns import CACHED_BYTES, ROWS_AHEAD
from tilewright.passes.points import point_kernels


@tw.program
def places(x: tw.array["n", "m"]) -> Any:
    return np.argmax(x, axis=0)


@tw.program
def least(x: tw.array["n", "m"], y: tw.array["n", "m"]) -> Any:
    return np.argmin(x * x - y, axis=0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize("step", [(1, 1), (-1, 1), (1, 2), (2, -1)])
def test_places_in_large_arrays(dtype: str, step: tuple[int, int]) -> None:
    rows = 131
    columns = CACHED_BYTES // (rows * np.dtype(dtype).itemsize) + 700
    shape = (rows * abs(step[0]), columns * abs(step[1]))
    x = np.random.default_rng(rows).integers(-900, 900, shape).astype(dtype)[:: step[0], :: step[1]]
    for threads in (1, 2):
        with tw.num_threads(threads):
            np.testing.assert_array_equal(places(x, target="cpu"), x.argmax(0))


@pytest.mark.parametrize("rows", [1, ROWS_AHEAD, ROWS_AHEAD + 1])
def test_few_long_rows_of_two_arrays(rows: int) -> None:
    x, y = np.random.default_rng(rows).integers(-90, 90, (2, rows, CACHED_BYTES // (8 * rows) + 130)).astype("f8")
    np.testing.assert_array_equal(least(x, y, target="cpu"), (x * x - y).argmin(0))


def test_rows_are_asked_for_in_one_of_two_loops() -> None:
    """The other one is that of arrays which caches hold."""
    found: list[Kernel] = []
    plan = point_kernels._plan
    with pytest.MonkeyPatch.context() as patch:

        def seen(*values: Any) -> Any:
            made = plan(*values)
            found.append(made.kernel)
            return made

        patch.setattr(point_kernels, "_plan", seen)
        tw.program(places.function)(np.zeros((40, 60), np.float32), target="cpu")
    choices = [one for code in found for one in walk(code.body) if isinstance(one, kernel.If)]
    asked = [
        [any(isinstance(each, kernel.Prefetch) for each in walk(branch)) for branch in (one.then, one.otherwise)]
        for one in choices
    ]
    assert [True, False] in asked
