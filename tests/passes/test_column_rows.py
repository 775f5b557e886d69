"""Scans of columns, a row of them at a time in vectors: the same results, past the caches too, nothing else touched."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.array["n"]
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import Kernel, Prefetch, Store
from tilewright.kernel.traversal import walk
from tilewright.passes.points import point_kernels
from tilewright.passes.segments.columns import SCANNED_PAST, SCANNED_TOGETHER
from tilewright.passes.segments.steps import Kernels
from tilewright.runtime.devices import device_for
from tilewright.runtime.host import KernelPlan, Schedule
from tilewright.runtime.scheduling import schedule

GUARD = 77


def sums(x: tw.array["n", "m"]) -> Any:
    return np.cumsum(x, axis=0)


def tops_of_squares(x: tw.array["n", "m"]) -> Any:
    return tw.map(lambda column: tw.scan("max", 0, tw.map(lambda v: v * v, column)), x.T).T


def wanted(function: Any, x: Any) -> Any:
    wide = x.astype(np.float64)
    return np.cumsum(wide, axis=0) if function is sums else np.maximum.accumulate(wide * wide, axis=0)


def kernels(function: Any, x: Any, **options: Any) -> tuple[Any, list[Kernel]]:
    """What a fresh program gives, and the kernels that its call makes."""
    found: list[Kernel] = []
    plan = point_kernels._plan

    def seen(*values: Any) -> Any:
        made = plan(*values)
        found.append(made.kernel)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_kernels, "_plan", seen)
        result = tw.program(function)(x, target="cpu", **options)
    return result, found


@settings(max_examples=30)
@given(
    st.sampled_from([sums, tops_of_squares]), st.sampled_from(["f4", "f8", "i1", "i8", "f2"]),
    st.integers(1, 300), st.one_of(st.integers(1, 90), st.integers(1000, 1100)), st.booleans(),
    st.sampled_from(["C", "backwards", "F"]), st.integers(0, 20),
)  # fmt: skip
def test_every_row_is_right_and_nothing_else_is_written(
    function: Any, dtype: str, n: int, m: int, past: bool, layout: str, shift: int
) -> None:
    x = np.random.default_rng(n * m).integers(0, 3, (n, m)).astype(dtype)
    x = {"C": x, "backwards": x[:, ::-1], "F": np.asfortranarray(x)}[layout]
    expected = wanted(function, x)
    kept = np.int64 if function is sums and dtype == "i1" else np.dtype(dtype)
    memory = np.full(n * m + 64 + shift, GUARD, kept)
    out = memory[32 + shift : 32 + shift + n * m].reshape(n, m)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernels, "are_past_caches", lambda *_: past)
        tw.program(function)(x, target="cpu", out=out)
    np.testing.assert_array_equal(out, expected)
    assert (memory[: 32 + shift] == GUARD).all() and (memory[32 + shift + n * m :] == GUARD).all()


def test_large_results_are_written_past_the_caches_and_later_rows_asked_for() -> None:
    machine = device_for("cpu").machine
    if not machine.vector_bytes:
        pytest.skip("a machine with vectors")
    small = np.ones((40, 2000), np.float32)
    result, found = kernels(sums, small)
    assert not any(isinstance(one, Prefetch) for kernel in found for one in walk(kernel.body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernels, "are_past_caches", lambda *_: True)
        large, found = kernels(sums, small)
    statements = [one for kernel in found for one in walk(kernel.body)]
    assert any(isinstance(one, Prefetch) for one in statements)
    past = [one for one in statements if isinstance(one, Store) and one.nontemporal]
    assert past and all(one.aligned for one in past)
    np.testing.assert_array_equal(result, large)


def test_sizes_decide_whether_results_go_past_the_caches() -> None:
    found: list[bool] = []
    decide = Kernels.are_past_caches

    def seen(self: Kernels, values: Any) -> bool:
        self = replace(self, machine=replace(self.machine, l2_bytes=1 << 14, l3_bytes=1 << 16))
        found.append(decide(self, values))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernels, "are_past_caches", seen)
        for rows in (60, 70):
            x = np.ones((rows, 64), np.float32)
            np.testing.assert_array_equal(tw.program(sums)(x, target="cpu"), np.cumsum(x, axis=0))
    assert found == [False, True]


def test_blocks_are_whole_lines_of_columns() -> None:
    backend = SimpleNamespace(machine=SimpleNamespace(cores=2))

    def blocks(columns: int, bounds: tuple[int, int]) -> int:
        plan = KernelPlan(Kernel("k", (), (), (), ()), (), (), (), Schedule.BLOCKS, heavy=True, columns=bounds)
        return schedule(plan, (columns,), backend, ())[0]  # type: ignore[arg-type]

    assert [blocks(columns, SCANNED_TOGETHER) for columns in (3, 16, 64, 1000)] == [1, 1, 2, 16]
    assert [blocks(columns, SCANNED_PAST) for columns in (16, 64, 1000, 4000)] == [1, 2, 4, 4]
