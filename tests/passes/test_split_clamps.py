"""Programs that read neighbours by clamped indices: right for all sizes, without checks, their loops split."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import For, Kernel, walk
from tilewright.runtime import cpu_device
from tilewright.runtime.devices import DeviceError


def neighbours(shifts: list[int]) -> tw.TracedProgram:
    """Sums of elements at clamped distances along both dimensions."""

    @tw.program
    def summed(grid: tw.f64["n", "m"]) -> Any:
        n, m = grid.shape

        def at(i: Any, j: Any, shift: int) -> Any:
            if shift < 0:
                return grid[tw.maximum(i + shift, 0), j] + 2 * grid[i, tw.maximum(j + shift, 0)]
            return grid[tw.minimum(i + shift, n - 1), j] + 2 * grid[i, tw.minimum(j + shift, m - 1)]

        def point(i: Any, j: Any) -> Any:
            total = 3 * grid[i, j]
            for shift in shifts:
                total = total + at(i, j, shift)
            return total

        return tw.map(lambda i: tw.map(lambda j: point(i, j), tw.iota(m)), tw.iota(n))

    return summed


def expected(grid: np.ndarray, shifts: list[int]) -> np.ndarray:
    n, m = grid.shape
    total = 3 * grid
    for shift in shifts:
        rows, columns = (np.clip(np.arange(one) + shift, 0, max(0, one - 1)) for one in (n, m))
        total = total + (grid[rows, :] + 2 * grid[:, columns])
    return total


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=4), st.integers(1, 12), st.integers(1, 40))
def test_neighbours_at_clamped_distances(shifts: list[int], n: int, m: int) -> None:
    grid = np.arange(float(n * m)).reshape(n, m) % 7 - 3
    program = neighbours(shifts)
    for given_grid in (grid, np.asfortranarray(grid), grid[::-1, ::-1]):
        np.testing.assert_array_equal(program(given_grid, target="cpu"), expected(given_grid, shifts))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (2, 1), (1, 2)])
def test_small_grids(shape: tuple[int, int]) -> None:
    grid = np.arange(float(np.prod(shape))).reshape(shape)
    np.testing.assert_array_equal(neighbours([-1, 2])(grid), expected(grid, [-1, 2]))


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels that are compiled for the CPU."""
    found: list[Kernel] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        found.append(kernel)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    return found


def test_the_loop_is_split_and_nothing_is_checked(kernels: list[Kernel]) -> None:
    neighbours([-1, 1])(np.ones((6, 9)), target="cpu")
    kernel = kernels[-1]
    assert not any(buffer.name.startswith("errors") for buffer in kernel.buffers)
    inner = [one for one in walk(kernel.body) if isinstance(one, For) and one.independent]
    assert len(inner) == 3


def test_an_index_that_may_be_outside_is_checked_still() -> None:
    @tw.program
    def shifted(xs: tw.f64["n"], by: tw.i64) -> Any:
        return tw.map(lambda i: xs[tw.minimum(i + by, xs.shape[0])], tw.iota(xs.shape[0]))

    with pytest.raises(IndexError, match="xs"):
        shifted(np.ones(4), 1, target="cpu")
    with pytest.raises(IndexError, match="xs"):
        shifted(np.ones(4), -1, target="cpu")
    assert shifted(np.arange(4.0), 0, target="cpu").tolist() == [0, 1, 2, 3]


def test_on_opencl() -> None:
    grid = np.arange(35.0).reshape(5, 7)
    try:
        result = neighbours([-2, 1])(grid, target="opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    np.testing.assert_array_equal(result, expected(grid, [-2, 1]))


def test_an_iota_from_outside_is_not_read_from_memory(kernels: list[Kernel]) -> None:
    @tw.program
    def both(xs: tw.f64["n"]) -> Any:
        places = tw.iota(xs.shape[0])
        return tw.map(lambda i: xs[xs.shape[0] - 1 - i], places), places

    reverse, places = both(np.arange(5.0), target="cpu")
    assert reverse.tolist() == [4, 3, 2, 1, 0]
    assert places.tolist() == [0, 1, 2, 3, 4]
    for kernel in kernels:
        assert not any(buffer.name.startswith("errors") for buffer in kernel.buffers)
