"""Loops inside of points check the indices that count with them at their ends; what is out of range is told."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.kernel.ir import For, Kernel, Let
from tilewright.kernel.traversal import walk
from tilewright.runtime import cpu_device


def sparse() -> tw.TracedProgram:
    @tw.program
    def product(start: tw.i64["r"], column: tw.i64["e"], value: tw.f64["e"], x: tw.f64["n"]) -> Any:
        def row(i: Any) -> Any:
            begin = start[i]
            return tw.loop(start[i + 1] - begin, 0.0, lambda k, s: s + value[begin + k] * x[column[begin + k]])

        return tw.map(row, tw.iota(start.shape[0] - 1))

    return product


SPARSE = sparse()


def test_inner_loops_check_only_what_they_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Kernel] = []

    def compiling(kernel: Kernel, _compile: Any = cpu_device._compile) -> Any:
        found.append(kernel)
        return _compile(kernel)

    monkeypatch.setattr(cpu_device, "_compile", compiling)
    sparse()(np.array([0, 1]), np.array([0]), np.ones(1), np.ones(1))
    loops = [one for each in found for one in walk(each.body) if isinstance(one, For) and one.index.startswith("k")]
    checks = [sum(isinstance(one, Let) and one.name.startswith("outside") for one in loop.body) for loop in loops]
    assert 1 in checks  # that of the column
    assert max(checks) == 1


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, 9), st.sampled_from(["", "far", "column"]))
@settings(deadline=None, max_examples=40)
def test_sparse_products(lengths: list[int], seed: int, wrong: str) -> None:
    generator = np.random.default_rng(seed)
    start = np.concatenate(([0], np.cumsum(lengths)))
    count = int(start[-1])
    column, value, x = generator.integers(0, 7, count), generator.random(count), generator.random(7)
    if wrong == "far":
        start[-1] += 2
        if count < start[-1]:
            with pytest.raises(IndexError, match=rf"index {count} "):
                SPARSE(start, column, value, x)
        return
    if wrong == "column" and count:
        column[count // 2] = 9
        with pytest.raises(IndexError, match="index 9 "):
            SPARSE(start, column, value, x)
        return
    expected = [sum(value[k] * x[column[k]] for k in range(a, b)) for a, b in itertools.pairwise(start)]
    np.testing.assert_allclose(SPARSE(start, column, value, x), expected, rtol=1e-12)
