"""Scans of rows whose neighbours are nearer in memory than their own elements: several in lanes, turned in squares."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.array["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import Kernel, Load, Shuffle
from tilewright.kernel.traversal import expressions, parts, walk
from tilewright.passes.points import point_kernels
from tilewright.runtime.devices import device_for

GUARD = 77


def sums(x: tw.array["n", "m"]) -> Any:
    return tw.map(lambda row: tw.scan("add", 0, row), x)


def tops_of_squares(x: tw.array["n", "m"]) -> Any:
    return tw.map(lambda row: tw.scan("max", 0, tw.map(lambda v: v * v, row)), x)


def wanted(function: Any, x: Any) -> Any:
    wide = x.astype(np.float64)
    return np.cumsum(wide, axis=1) if function is sums else np.maximum.accumulate(wide * wide, axis=1)


def kernels(x: Any, **options: Any) -> tuple[Any, list[Kernel]]:
    """The sums of rows by a fresh program, and the kernels that its call makes."""
    found: list[Kernel] = []
    plan = point_kernels._plan

    def seen(*values: Any) -> Any:
        made = plan(*values)
        found.append(made.kernel)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_kernels, "_plan", seen)
        result = tw.program(sums, **options)(x, target="cpu")
    return result, found


def turns(kernel: Kernel) -> bool:
    """Whether a kernel shuffles vectors that it has read or scanned in the lanes of points."""
    inside = [part for one in walk(kernel.body) for part in parts(expressions(one))]
    return any(isinstance(one, Shuffle) and len(set(one.lanes)) == len(one.lanes) for one in inside)


@settings(max_examples=20)
@given(
    st.sampled_from([sums, tops_of_squares]), st.sampled_from(["f4", "f8", "i4", "i8", "f2", "u4"]),
    st.one_of(st.integers(1, 40), st.just(130)), st.one_of(st.integers(1, 40), st.just(270)),
    st.sampled_from(["F", "C", "backwards", "every second"]), st.sampled_from([None, "full", "outer"]),
    st.integers(0, 20), st.sampled_from([1, 2]),
)  # fmt: skip
def test_every_prefix_is_right_and_nothing_else_is_written(
    function: Any, dtype: str, n: int, m: int, layout: str, flattening: Any, shift: int, threads: int
) -> None:
    x = np.random.default_rng(n * m).integers(0, 3, (n, m)).astype(dtype)
    wide = np.zeros((m, 2 * n), dtype)
    wide[:, ::2] = x.T
    laid = {"F": np.asfortranarray(x), "C": x, "backwards": x.T[::-1].copy().T[:, ::-1], "every second": wide[:, ::2].T}
    expected = wanted(function, laid[layout])
    memory = np.full(n * m + 64 + shift, GUARD, np.result_type(function_type(function, dtype)))
    out = memory[32 + shift : 32 + shift + n * m].reshape(n, m)
    before = tw.get_num_threads()
    tw.set_num_threads(threads)
    try:
        tw.program(function, flattening=flattening)(laid[layout], target="cpu", out=out)
    finally:
        tw.set_num_threads(before)
    np.testing.assert_array_equal(out, expected)
    assert (memory[: 32 + shift] == GUARD).all() and (memory[32 + shift + n * m :] == GUARD).all()


def function_type(function: Any, dtype: str) -> Any:
    """Of what a function gives for elements of a type."""
    return tw.program(function)(np.zeros((1, 1), dtype), target="cpu").dtype


@pytest.mark.parametrize("flattening", [None, "full"])
def test_neighbours_that_lie_nearer_go_in_lanes_and_others_do_not(flattening: Any) -> None:
    if not device_for("cpu").machine.vector_bytes:
        pytest.skip("a machine with vectors")
    x = np.random.default_rng(0).integers(0, 3, (64, 70)).astype(np.float32)
    by_rows, plain = kernels(x, flattening=flattening)
    turned, found = kernels(np.asfortranarray(x), flattening=flattening)
    np.testing.assert_array_equal(by_rows, turned)
    squares = [one for kernel in found for one in kernel.arrays if one.size == 16 * 16]
    assert squares and any(map(turns, found))
    if flattening is None:  # rows that lie side by side need no squares
        assert not any(one.size == 16 * 16 for kernel in plain for one in kernel.arrays)


def test_rows_that_are_computed_from_several_arrays_go_in_lanes_only_if_all_of_them_lie_so() -> None:
    @tw.program
    def both(x: tw.f32["n", "m"], y: tw.f32["n", "m"]) -> Any:
        return tw.map(lambda p, q: tw.scan("add", 0, tw.map(lambda a, b: a * b, p, q)), x, y)

    x = np.random.default_rng(0).integers(0, 3, (50, 33)).astype(np.float32)
    y = np.random.default_rng(1).integers(0, 3, (50, 33)).astype(np.float32)
    for left in (x, np.asfortranarray(x)):
        for right in (y, np.asfortranarray(y)):
            np.testing.assert_array_equal(both(left, right, target="cpu"), np.cumsum(x * y, axis=1))


def test_loads_are_vectors_along_neighbours() -> None:
    if not device_for("cpu").machine.vector_bytes:
        pytest.skip("a machine with vectors")
    _, found = kernels(np.asfortranarray(np.ones((64, 70), np.float32)), flattening="full")
    loads = [
        part
        for kernel in found
        for one in walk(kernel.body)
        for part in parts(expressions(one))
        if isinstance(part, Load) and part.buffer.name.startswith("x") and getattr(part.type, "lanes", 1) == 16
    ]
    assert loads
