"""Arrays that points keep of their own in memory: on machines with threads, neighbours' elements lie side by side."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.kernel.checks import check_kernel
from tilewright.machine.named import H100
from tilewright.passes.compile import program_block
from tilewright.passes.pipelines import run_pipeline
from tilewright.runtime.devices import Device
from tilewright.runtime.host import KernelStep, Layout


@tw.program
def smoothed(xs: tw.f64["n"], rounds: tw.i64, width: tw.i64):
    """Each point carries an array through a loop, and sums it up."""

    def point(x: Any) -> Any:
        def step(_: Any, row: Any) -> Any:
            return tw.scan("add", 0, tw.map(lambda e: e * 0.5, row))

        start = tw.map(lambda i: x + tw.cast(i, tw.f64), tw.iota(width))
        return tw.reduce("add", 0, tw.loop(rounds, start, step))

    return tw.map(point, xs)


def test_threads_access_neighbours() -> None:
    block, _ = program_block(run_pipeline(smoothed.trace()), Device("cuda:0", H100, ""))
    (step,) = [one for one in block.steps if isinstance(one, KernelStep)]
    arrays = {one.name for one in (*step.reads, *step.targets) if one.type.rank}
    plan = step.lower(tuple((name, Layout((), dense=True, at_start=True)) for name in arrays))
    assert plan.scratch
    found = check_kernel(plan.kernel, {one.name: 1024 for one in plan.kernel.scalars})
    own = [one for one in found.global_accesses if one.buffer in {scratch.name for scratch in plan.scratch}]
    known = [one for one in own if one.degree is not None]  # which of two arrays the last round wrote is not
    assert len(known) > 3
    assert all(one.degree <= one.ideal for one in known), known  # type: ignore[operator]


@pytest.mark.opencl
@pytest.mark.parametrize(("n", "rounds", "width"), [(1, 3, 5), (700, 2, 40), (300, 0, 17), (65, 4, 1), (9, 2, 0)])
def test_points_keep_their_own(n: int, rounds: int, width: int) -> None:
    xs = np.random.default_rng(n).integers(0, 9, n).astype(np.float64)
    rows = xs[:, None] + np.arange(width)
    for _ in range(rounds):
        rows = np.cumsum(rows * 0.5, axis=1)
    np.testing.assert_allclose(smoothed(xs, rounds, width, target="opencl:0"), rows.sum(axis=1), rtol=1e-12)
