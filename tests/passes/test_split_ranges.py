"""Programs that read neighbours at edges and joined arrays: right for all sizes, without checks, their loops split."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.ir.scalars import I64
from tilewright.kernel.ir import For, If, Kernel, Let, Name, Operation
from tilewright.kernel.traversal import walk
from tilewright.passes.items.loop_cuts import cuts_of
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
    edges, middle = (one for one in walk(kernel.body) if isinstance(one, For) and one.independent)
    assert clamps(edges) and not clamps(middle)


@tw.program
def framed(grid: tw.f64["n", "m"], shift: tw.i64) -> Any:
    """Neighbours at indices that are clamped at both ends."""
    n, m = grid.shape

    def near(i: Any, j: Any) -> Any:
        return grid[tw.minimum(tw.maximum(i, 0), n - 1), tw.maximum(tw.minimum(j, m - 1), 0)]

    def point(i: Any, j: Any) -> Any:
        return near(i + 1, j) + 2 * near(i - 1, j + shift) + 4 * near(i, j - 1) + 8 * near(i, j + 2)

    return tw.map(lambda i: tw.map(lambda j: point(i, j), tw.iota(m)), tw.iota(n))


@given(st.integers(1, 6), st.integers(1, 40), st.integers(-50, 50))
def test_indices_clamped_at_both_ends(n: int, m: int, shift: int) -> None:
    grid = np.arange(float(n * m)).reshape(n, m) % 7 - 3
    rows, columns = np.arange(n)[:, None], np.arange(m)

    def near(i: Any, j: Any) -> Any:
        return grid[np.clip(i, 0, n - 1), np.clip(j, 0, m - 1)]

    want = near(rows + 1, columns) + 2 * near(rows - 1, columns + shift)
    want = want + 4 * near(rows, columns - 1) + 8 * near(rows, columns + 2)
    np.testing.assert_array_equal(framed(grid, shift, target="cpu"), want)


def test_a_loop_is_split_where_both_clamps_of_an_index_change(kernels: list[Kernel]) -> None:
    @tw.program
    def smoothed(row: tw.f64["n"]) -> Any:
        last = row.shape[0] - 1
        places = [lambda i, d=d: tw.minimum(tw.maximum(i + d, 0), last) for d in (-1, 1)]
        return tw.map(lambda i: row[places[0](i)] + row[places[1](i)], tw.iota(row.shape[0]))

    np.testing.assert_array_equal(smoothed(np.arange(4.0), target="cpu"), [1, 2, 4, 5])
    loops = [one for one in walk(kernels[-1].body) if isinstance(one, For) and one.independent]
    assert not all(map(clamped, loops)) and any(map(clamped, loops))


def clamped(loop: For) -> bool:
    """Whether a loop computes the lesser or greater of two indices."""
    values = [one.value for one in loop.body if isinstance(one, Let)]
    return any(isinstance(one, Operation) and one.operator in ("min", "max") for one in values)


def clamps(loop: For) -> int:
    """The clamps and comparisons of a loop's index."""
    index = Name(loop.index, I64)
    return len(cuts_of(loop.body, index))


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


# --- conditions -------------------------------------------------------------------------------------------------------

operators = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
sides = st.tuples(st.sampled_from([-1, 1, 2]), st.integers(-3, 6), st.sampled_from(["0", "n", "k", "n - k"]))
"""What a condition compares an index with, and what it does with the index first: a factor and a shift."""


def compared(index: Any, operator: str, side: tuple[int, int, str], values: dict[str, Any]) -> Any:
    factor, shift, stop = side
    n, k = values["n"], values["k"]
    other = {"0": 0, "n": n, "k": k, "n - k": n - k}[stop]
    left = factor * index + shift
    return {
        "lt": left < other, "le": left <= other, "gt": left > other, "ge": left >= other, "eq": left == other,
        "ne": left != other,
    }[operator]  # fmt: skip


@given(st.lists(st.tuples(operators, sides, st.booleans()), min_size=1, max_size=3), st.integers(0, 9), st.data())
def test_conditions_of_indices(conditions: list[Any], n: int, data: st.DataObject) -> None:
    """Of both indices; taken by `where` or by `cond`, which reads on one side only."""
    m, k = data.draw(st.integers(0, 40)), data.draw(st.integers(-2, 12))

    @tw.program
    def chosen(xs: tw.f64["n", "m"], shift: tw.i64) -> Any:
        n, m = xs.shape

        def point(i: Any, j: Any) -> Any:
            total = xs[i, j]
            for place, (operator, side, lazy) in enumerate(conditions):
                holds = compared(j if place % 2 == 0 else i, operator, side, {"n": m, "k": shift})
                if lazy:
                    total = total + tw.cond(holds, lambda: xs[i, m - 1 - j], 3.0)
                else:
                    total = total + tw.where(holds, xs[n - 1 - i, j], 5.0)
            return total

        return tw.map(lambda i: tw.map(lambda j: point(i, j), tw.iota(m)), tw.iota(n))

    xs = np.arange(float(n * m)).reshape(n, m)
    rows, columns = np.meshgrid(np.arange(n), np.arange(m), indexing="ij")
    total = xs.copy()
    for place, (operator, side, lazy) in enumerate(conditions):
        index = columns if place % 2 == 0 else rows
        holds = np.broadcast_to(compared(index, operator, side, {"n": m, "k": k}), xs.shape)
        total += np.where(holds, xs[:, ::-1], 3.0) if lazy else np.where(holds, xs[::-1], 5.0)
    np.testing.assert_array_equal(chosen(xs, k, target="cpu"), total)


def test_a_condition_that_says_that_an_index_is_in_range(kernels: list[Kernel]) -> None:
    @tw.program
    def shifted(xs: tw.f64["n"]) -> Any:
        n = xs.shape[0]
        return tw.map(lambda i: tw.cond(i < n - 2, lambda: xs[i + 2], lambda: xs[n - 1 - i]), tw.iota(n))

    assert shifted(np.arange(5.0), target="cpu").tolist() == [2, 3, 4, 1, 0]
    assert shifted(np.arange(1.0), target="cpu").tolist() == [0]
    for kernel in kernels:
        assert not any(buffer.name.startswith("errors") for buffer in kernel.buffers)


# --- loops in order ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(operators, sides, st.booleans()), min_size=1, max_size=3), st.integers(0, 9), st.data())
def test_conditions_in_loops_in_order(conditions: list[Any], n: int, data: st.DataObject) -> None:
    """Iterations that use what the last ones gave, at the beginning of the array otherwise than later."""
    k = data.draw(st.integers(-2, 12))

    @tw.program
    def chained(xs: tw.f64["n"], shift: tw.i64) -> Any:
        (n,) = xs.shape

        def step(i: Any, last: Any, out: Any) -> Any:
            total = xs[i] - last
            for operator, side, lazy in conditions:
                holds = compared(i, operator, side, {"n": n, "k": shift})
                if lazy:
                    total = total + tw.cond(holds, lambda: out[n - 1 - i], 3.0)
                else:
                    total = total + tw.where(holds, out[tw.maximum(i - 1, 0)], 5.0)
            return total, tw.update(out, i, total)

        return tw.loop(n, (0.0, xs), step)

    xs = np.arange(float(n)) % 5
    last, out = 0.0, xs.copy()
    for i in range(n):
        total = xs[i] - last
        for operator, side, lazy in conditions:
            holds = compared(i, operator, side, {"n": n, "k": k})
            total += (out[n - 1 - i] if holds else 3.0) if lazy else (out[max(i - 1, 0)] if holds else 5.0)
        last = out[i] = total
    got, array = chained(xs, k, target="cpu")
    assert got == last
    np.testing.assert_array_equal(array, out)


def test_the_first_iteration_of_a_recurrence_is_apart(kernels: list[Kernel]) -> None:
    @tw.program
    def sums(xs: tw.f64["n"]) -> Any:
        def step(i: Any, out: Any) -> Any:
            return tw.update(out, i, xs[i] + tw.cond(i > 0, lambda: out[i - 1], 0.0))

        return tw.loop(xs.shape[0], xs, step)

    assert sums(np.arange(5.0), target="cpu").tolist() == [0, 1, 3, 6, 10]
    assert sums(np.zeros(0), target="cpu").shape == (0,)
    loops = [one for kernel in kernels for one in walk(kernel.body) if isinstance(one, For)]
    assert [sum(isinstance(inner, If) for inner in one.body) for one in loops if not one.independent][-2:] == [1, 0]


# --- joined arrays ----------------------------------------------------------------------------------------------------


def padded(xs: Any, fill: float, axis: int, first: int, second: int, way: str) -> Any:
    """An array between two blocks: of Tilewright or of NumPy."""
    np_like = isinstance(xs, np.ndarray)
    shape = list(xs.shape)

    def block(count: int) -> Any:
        shape[axis] = count
        if np_like:
            return np.full(shape, fill)
        return tw.replicate(tuple(shape), fill, "f64")

    inner = xs[::-1] if way == "reversed" else xs[:, ::-1] if way == "mirrored" else xs
    parts = [block(first), inner, block(second)] if way != "twice" else [inner, block(first), inner]
    return np.concatenate(parts, axis) if np_like else tw.concat(*parts, axis=axis)


@given(
    st.integers(0, 6), st.integers(0, 40), st.sampled_from([0, 1]), st.integers(0, 3), st.integers(0, 3),
    st.sampled_from(["plain", "reversed", "mirrored", "twice"]), st.booleans(),
)  # fmt: skip
def test_joined_arrays_are_read_where_they_lie(
    n: int, m: int, axis: int, first: int, second: int, way: str, turned: bool
) -> None:
    xs = np.arange(float(n * m)).reshape(n, m) + 1

    @tw.program
    def twice(xs: tw.f64["n", "m"]) -> Any:
        joined = padded(xs, 0.5, axis, first, second, way)
        joined = tw.transpose(joined) if turned else joined
        return tw.map(lambda row: tw.map(lambda x: 2 * x + 1, row), joined)

    expected_array = 2 * padded(xs, 0.5, axis, first, second, way) + 1
    expected_array = expected_array.T if turned else expected_array
    np.testing.assert_array_equal(twice(xs, target="cpu"), expected_array)
    assert "concat" not in twice.explain()


def test_joined_on_opencl() -> None:
    @tw.program
    def sums(xs: tw.f64["n"], ys: tw.f64["m"]) -> Any:
        return tw.map(lambda x, y: x + 2 * y, tw.concat(xs, ys), tw.concat(ys, xs))

    xs, ys = np.arange(37.0), np.arange(5.0) + 100
    try:
        result = sums(xs, ys, target="opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    np.testing.assert_array_equal(result, np.concatenate([xs, ys]) + 2 * np.concatenate([ys, xs]))


@tw.program
def of_reversed(xs: tw.array["n"], rows: tw.array["n", "m"]) -> Any:
    """A map, sums and prefix sums of arrays, which may lie backwards in memory."""
    squares = tw.reduce("add", 0, tw.map(lambda x: x * x, xs))
    sums = tw.map(lambda row: tw.reduce("add", 0, row), rows)
    return xs[::-1] * 2, squares, tw.scan("add", 0, xs), sums, tw.map(lambda row: row + 1, rows)


@pytest.mark.parametrize("dtype", ["i1", "f4", "f8"])
@pytest.mark.parametrize("count", [1, 2, 67, 5000])
def test_arrays_that_lie_backwards(dtype: str, count: int) -> None:
    xs = np.random.default_rng(count).integers(-2, 3, count).astype(dtype)
    rows = np.random.default_rng(1).integers(-2, 3, (count, 7)).astype(dtype)
    for one, two in ((xs[::-1], rows[:, ::-1]), (xs, rows[::-1]), (xs[::-1], rows[::-1, ::-1])):
        wanted = (
            one[::-1] * 2,
            (one * one).sum(dtype=dtype),
            one.cumsum(dtype=dtype),
            two.sum(1, dtype=dtype),
            two + 1,
        )
        for found, exact in zip(of_reversed(one, two, target="cpu"), wanted, strict=True):
            np.testing.assert_array_equal(found, exact)


def test_a_stride_backwards_is_known_to_the_kernel(kernels: list[Kernel]) -> None:
    @tw.program
    def cubes(cubed: tw.array["n"]) -> Any:
        return cubed * cubed * cubed

    cubes(np.arange(100.0)[::-1], target="cpu")
    cubes(np.arange(200.0)[::-2], target="cpu")
    given_strides = [[one.name for one in kernel.scalars if "stride" in one.name] for kernel in kernels]
    assert given_strides == [[], ["cubed_stride_1"]]
