"""Kernels for CUDA record indices that are out of range: run on the CPU, compiled by g++ (`cuda_emulation`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_emulation import Emulated, compile_emulated, has_compiler

from tilewright.ir.parser import parse_program
from tilewright.ir.verifier import verify
from tilewright.kernel.cuda import cuda_text
from tilewright.machine.named import named_machine
from tilewright.passes.compile import program_block
from tilewright.passes.core.unchecked import without_checks
from tilewright.runtime.devices import Device
from tilewright.runtime.host import ERRORS, ITEMS, THREADS_TOTAL, KernelPlan, KernelStep, Layout
from tilewright.runtime.index_errors import index_error

TEXT = """\
def take (xs: [5]f64, yss: [3][5]f64, at: [70]i64) =
  let (zs: [70]f64) = map 70 (\\(i: i64) ->
    let (x: f64) = xs[i]
    let (j: i64) = i - 1i64
    let (y: f64) = yss[2i64, j]
    let (z: f64) = x + y
    in (z)) at
  in (zs)
"""


def plan_of(unchecked: bool) -> KernelPlan:
    program = parse_program(TEXT)
    verify(program)
    device = Device("cuda:0", named_machine("h100"), "")
    block, _ = program_block(without_checks(program) if unchecked else program, device)
    (step,) = [one for one in block.steps if isinstance(one, KernelStep)]
    return step.lower(tuple((one.name, Layout((), dense=True, at_start=True)) for one in (*step.reads, *step.targets)))


def run(plan: KernelPlan, emulated: Emulated, at: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays after a launch of one block; scalars are passed where pointers would be."""
    arrays = {
        "xs": np.arange(5.0),
        "yss": np.arange(15.0).reshape(3, 5),
        "at": at,
        "zs": np.zeros(70),
        ERRORS: np.zeros(3 * max(1, len(plan.checks)), np.int64),
    }
    threads = plan.kernel.threads_per_block
    own = {ITEMS: 70, THREADS_TOTAL: threads}
    values = [arrays[name].ctypes.data for name in plan.buffers] + [own[name] for name, _ in plan.scalars]
    emulated.launch("checked", values, 1, threads)
    return arrays


@pytest.mark.skipif(not has_compiler(), reason="there is no g++")
def test_cuda_kernels_record_what_is_out_of_range() -> None:
    plan = plan_of(unchecked=False)
    emulated = compile_emulated({"checked": cuda_text(replace(plan.kernel, name="checked"))})
    at = 1 + np.arange(70) % 4
    after = run(plan, emulated, at)
    assert not after[ERRORS].any()
    np.testing.assert_array_equal(after["zs"], at + 10.0 + at - 1)
    for wrong, line, message in (
        (5, 3, "index 5 of xs is out of range in dimension 0 of extent 5"),
        (0, 5, "index -1 of yss is out of range in dimension 1 of extent 5"),
        (2**40, 3, f"index {2**40} of xs is out of range in dimension 0 of extent 5"),
    ):
        for place in (0, 33, 69):
            broken = at.copy()
            broken[place] = wrong
            records = run(plan, emulated, broken)[ERRORS].reshape(-1, 3)
            found = [
                str(index_error("take", check, int(index), int(extent)))
                for (code, index, extent), check in zip(records, plan.checks, strict=True)
                if code
            ]
            assert found[0] == f"line {line}: in program take: {message}"


def test_unchecked_kernels_for_cuda_hold_no_check() -> None:
    plan = plan_of(unchecked=True)
    assert not plan.checks and ERRORS not in plan.buffers
    assert "errors" not in cuda_text(plan.kernel)
