"""Neighbours on a torus, by numpy.roll: chosen by place in arrays that are not joined in memory."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import examples

import tilewright as tw
from tilewright.ir import nodes
from tilewright.ir.traversal import all_statements
from tilewright.kernel import ir as kernel
from tilewright.kernel.traversal import walk
from tilewright.passes.compile import program_block
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime.devices import device_for
from tilewright.runtime.host import KernelStep, Layout

NEIGHBOURS = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]


@tw.program
def life(cells: tw.u8["n", "m"]) -> Any:
    alive = sum(np.roll(np.roll(cells, a, 0), b, 1) for a, b in NEIGHBOURS)
    return np.where((alive == 3) | ((alive == 2) & (cells == 1)), np.uint8(1), np.uint8(0))


@settings(max_examples=examples(30))
@given(n=st.integers(0, 5), m=st.sampled_from([0, 1, 2, 3, 63, 64, 65, 200]), seed=st.integers(0, 99))
def test_a_torus_of_any_size(n: int, m: int, seed: int) -> None:
    cells = np.random.default_rng(seed).integers(0, 2, (n, m)).astype(np.uint8)
    alive = sum(np.roll(cells, one, (0, 1)) for one in NEIGHBOURS)
    expected = (alive == 3) | ((alive == 2) & (cells == 1))
    np.testing.assert_array_equal(life(cells), expected.astype(np.uint8))


def test_every_row_has_one_loop_without_checks_or_branches() -> None:
    steps, _ = program_block(run_pipeline(life.trace()), device_for("cpu"))
    (step,) = (one for one in steps.steps if isinstance(one, KernelStep))
    plan = step.lower(
        tuple((one.name, Layout((), dense=True)) for one in (*step.reads, *step.targets) if one.type.rank)
    )
    assert not plan.checks
    loops = [one for one in walk(plan.kernel.body) if isinstance(one, kernel.For)]
    inner = [one for one in loops if not any(isinstance(two, kernel.For) for two in walk(one.body))]
    assert [(one.independent, one.scalar) for one in inner] == [(True, True), (True, False)]
    assert not any(isinstance(one, kernel.If) for one in walk(inner[1].body))


@pytest.mark.parametrize("shift", [-5, -2, -1, 0, 1, 2, 3, 7])
@pytest.mark.parametrize("extent", [0, 1, 2, 3, 6])
def test_sums_of_rolled_arrays(shift: int, extent: int) -> None:
    @tw.program
    def summed(x: tw.f64["n", "m"], y: tw.f64["n", "m"]) -> Any:
        return np.roll(x, shift, 0) + 2 * np.roll(np.roll(y, -1, 1), shift, 1) + np.roll(x, (1, shift), (0, 1))

    x = np.arange(7.0 * extent).reshape(extent, 7)
    for one in (x, np.ascontiguousarray(x.T)):
        expected = np.roll(one, shift, 0) + 2 * np.roll(-one, shift - 1, 1) + np.roll(one, (1, shift), (0, 1))
        np.testing.assert_array_equal(summed(one, -one), expected)


def test_no_rolled_array_is_joined_in_memory() -> None:
    found = run_pipeline(life.trace())
    assert not any(isinstance(one.expression, nodes.Concat) for one in all_statements(found.body))


def test_slices_that_a_user_joins_are_checked() -> None:
    @tw.program
    def joined(x: tw.f64["n"], y: tw.f64["n"], k: tw.i64) -> Any:
        return tw.concat(x[k:], x[:k]) + y

    x = np.arange(6.0)
    np.testing.assert_array_equal(joined(x, x, 2), np.roll(x, -2) + x)
    for k in (7, -1):
        with pytest.raises((IndexError, ValueError)):
            joined(x, x, k)
