"""Sums of columns whose neighbours lie apart: some rows at a time, one column after the other instead of gathered."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Kernel
from tilewright.kernel.traversal import walk
from tilewright.passes.items.lower_columns import COLUMNS, ROWS
from tilewright.passes.points import point_kernels
from tilewright.runtime import host
from tilewright.runtime.host import KernelPlan, Schedule
from tilewright.runtime.scheduling import MOST_COLUMNS, schedule


@tw.program
def distances(x: tw.f32["n", "m"], y: tw.f32["n", "m"]) -> Any:
    return tw.map(lambda a, b: tw.reduce("add", 0.0, tw.map(lambda v, w: abs(v - w), a, b)), x.T, y.T)


@tw.program
def exponentials(x: tw.f32["n", "m"]) -> Any:
    return tw.map(lambda column: tw.reduce("add", 0.0, tw.map(tw.exp, column)), x.T)


@tw.program
def least(x: tw.f64["n", "m"]) -> Any:
    return tw.map(lambda column: tw.reduce("min", np.inf, column), x.T)


def loops_over_columns(program: Any, *arrays: Any) -> list[kernel.For]:
    """Those of the kernels that a program's first call makes."""
    found: list[Kernel] = []
    plan = point_kernels._plan
    with pytest.MonkeyPatch.context() as patch:

        def seen(*values: Any) -> Any:
            made = plan(*values)
            found.append(made.kernel)
            return made

        patch.setattr(point_kernels, "_plan", seen)
        tw.program(program.function)(*arrays, target="cpu")
    loops = [loop for one in found for loop in walk(one.body) if isinstance(loop, kernel.For)]
    return [one for one in loops if one.index.startswith("column")]


def some(seed: int, shape: tuple[int, int], dtype: Any) -> Any:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


@settings(max_examples=15)
@given(
    rows=st.sampled_from([1, ROWS - 1, ROWS, ROWS + 1, 50, 128, 131, 300]),
    columns=st.sampled_from([2, 7, 33, 130, COLUMNS + 5]),
    steps=st.tuples(st.sampled_from([1, 2, -1, 3]), st.sampled_from([1, 2, 3, -1, -4])),
    dtype=st.sampled_from([np.float32, np.float64, np.int32, np.int8, np.float16]),
    threads=st.integers(1, 2),
)
def test_sums_of_columns_apart(rows: int, columns: int, steps: tuple[int, int], dtype: Any, threads: int) -> None:
    x = some(rows + columns, (rows * abs(steps[0]), columns * abs(steps[1])), dtype)[:: steps[0], :: steps[1]]
    with tw.num_threads(threads):
        for _ in range(3):
            np.testing.assert_array_equal(tw.einsum("ij->j", x, target="cpu"), np.einsum("ij->j", x))


@settings(max_examples=15)
@given(
    rows=st.sampled_from([1, ROWS, 50, 135, 400]),
    columns=st.sampled_from([3, 40, 200]),
    steps=st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2])),
)
def test_two_arrays_with_steps_of_their_own(rows: int, columns: int, steps: tuple[int, int]) -> None:
    x, y = (some(number, (rows, columns * step), np.float32)[:, ::step] for number, step in enumerate(steps))
    np.testing.assert_array_equal(distances(x, y, target="cpu"), abs(x - y).sum(0))
    z = x.astype(np.float64)
    np.testing.assert_array_equal(least(z, target="cpu"), z.min(0))
    small = x / 9
    exact = np.exp(small.astype(np.float64)).sum(0)
    np.testing.assert_allclose(exponentials(small, target="cpu"), exact, rtol=1e-5)


def reads(loop: kernel.For) -> int:
    return sum(isinstance(one, kernel.Let) and isinstance(one.value, kernel.Load) for one in loop.body)


def test_columns_apart_are_taken_one_by_one_and_cheap_rows_together() -> None:
    x = some(1, (40, 60), np.float32)
    loops = loops_over_columns(least, x.astype(np.float64))
    assert any(one.scalar for one in loops) and any(one.independent for one in loops)
    assert not any(one.scalar and one.independent for one in loops)
    assert max(map(reads, loops)) >= ROWS
    dear = loops_over_columns(exponentials, x)
    assert dear and not any(one.scalar for one in dear)
    assert max(map(reads, dear)) < ROWS


@pytest.mark.parametrize("last", [1, 0])
def test_the_sum_of_long_columns_is_a_tree(last: int) -> None:
    """A million times 0.1 in f32: one after another, that is off by a percent."""
    x = np.full((1_000_000, 4), 0.1, np.float32)[:, :: 2 - last]
    np.testing.assert_allclose(tw.einsum("ij->j", x, target="cpu"), 1e5, rtol=1e-6)


@given(rows=st.integers(1, 50), columns=st.integers(1, 5000), cores=st.integers(1, 64))
def test_blocks_have_long_pieces_of_rows_and_every_core_has_some(rows: int, columns: int, cores: int) -> None:
    plan = KernelPlan(Kernel("k", (), (), (), ()), (), (), (), Schedule.BLOCKS, heavy=True, by_rows=True)
    backend: Any = SimpleNamespace(machine=SimpleNamespace(cores=cores))
    blocks, sizes = schedule(plan, (rows, columns), backend, ())
    chunk, chunks = sizes[host.CHUNK], sizes[host.CHUNKS]
    assert (chunks - 1) * chunk < columns <= chunks * chunk
    assert blocks >= min(2 * cores, rows * columns) or chunk == 1
    assert chunk >= min(columns, MOST_COLUMNS) or rows * columns < 4 * MOST_COLUMNS * cores
