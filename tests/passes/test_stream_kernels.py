"""The kernels of tiled streams: their text, what NVRTC and the static checks say, races, and the choice of blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from race_runner import GrindLaunch, grind, is_installed
from stream_programs import (
    BOXES,
    FIRST,
    NBODY,
    PAIRS,
    boxes_arguments,
    boxes_reference,
    floats,
    nbody_arguments,
    nbody_reference,
    pairs_reference,
)

from tilewright.ir.nodes import Statement, Variable
from tilewright.ir.parser import parse_program
from tilewright.kernel.c_names import entry_name
from tilewright.kernel.checks import check_kernel
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.kernel.opencl import opencl_text
from tilewright.machine.model import Machine
from tilewright.machine.named import A100, CPU_AVX2, CPU_AVX512, CPU_NEON, H100, OPENCL_CPU, OPENCL_GPU
from tilewright.passes.core.nest_folds import with_folds
from tilewright.passes.core.used_names import free_variables
from tilewright.passes.pipelines import run_pipeline
from tilewright.passes.points.point_kernels import lower_points
from tilewright.passes.streams.choice import NotTiled, StreamTiling, stream_tiling
from tilewright.passes.streams.lane_choice import LaneForm, lane_form
from tilewright.passes.streams.tiles import tile_points
from tilewright.runtime.host import CHUNK, CHUNKS, ERRORS, ITEMS, PER_BLOCK, KernelPlan, Layout

PROGRAMS = {"nbody": NBODY, "boxes": BOXES, "pairs": PAIRS, "first": FIRST}


def nest(text: str) -> Statement:
    """The nest that a program is."""
    statement = run_pipeline(parse_program(text)).body.statements[-1]
    return Statement(statement.targets, with_folds(statement.expression))


def tiled(text: str, machine: Machine) -> tuple[StreamTiling, KernelPlan, tuple[Variable, ...]]:
    """The tiling of a program's nest, its kernel, and what it reads."""
    statement = nest(text)
    tiling = stream_tiling(statement.expression, machine)
    assert isinstance(tiling, StreamTiling)
    reads = free_variables(statement.expression)
    dense = Layout((), dense=True, at_start=True)
    layouts = tuple((one.name, dense) for one in (*reads, *statement.targets) if one.type.rank)
    plan = lower_points("streams", tile_points(tiling), statement.targets, reads, layouts, tiling.points)
    return tiling, plan, (*reads, *statement.targets)


@pytest.mark.parametrize(
    ("program", "tile", "length", "staged"),
    [("nbody", (128,), 128, 3), ("boxes", (1, 128), 128, 1), ("pairs", (16, 16), 16, 3), ("first", (128, 1), 128, 1)],
)
def test_blocks_for_a_gpu(program: str, tile: tuple[int, ...], length: int, staged: int) -> None:
    tiling, _, _ = tiled(PROGRAMS[program], A100)
    assert (tiling.tile, tiling.length) == (tile, length)
    assert sum(len(one.staged) for one in tiling.streams) == staged


@pytest.mark.parametrize("machine", [A100, OPENCL_CPU, OPENCL_GPU], ids=lambda one: one.name)
@pytest.mark.parametrize("program", PROGRAMS)
def test_kernels_keep_the_limits(program: str, machine: Machine) -> None:
    tiling, plan, _ = tiled(PROGRAMS[program], machine)
    assert 1 <= plan.kernel.threads_per_block <= machine.max_threads_per_block
    assert plan.kernel.shared_bytes <= machine.shared_bytes_per_block
    assert plan.kernel.threads_per_block == tiling.points
    values = {p.name: 500 for p in plan.kernel.scalars}
    found = check_kernel(plan.kernel, values)
    assert found.divergent_barriers == () and found.worst_inner_conflict == 1


@pytest.mark.parametrize("machine", [A100, H100], ids=lambda one: one.name)
@pytest.mark.parametrize("program", PROGRAMS)
def test_machine_code_does_not_spill(program: str, machine: Machine) -> None:
    _, plan, _ = tiled(PROGRAMS[program], machine)
    built = compile_cuda(cuda_text(plan.kernel), machine.architecture)
    (entry,) = built.registers
    assert built.spill_bytes[entry] == 0 and built.registers[entry] <= 64
    assert built.shared_bytes[entry] == plan.kernel.shared_bytes


def test_text_of_the_n_body_kernel(golden: Callable[[str, str], None]) -> None:
    _, plan, _ = tiled(NBODY, A100)
    golden("kernel/nbody_tiled.cu", cuda_text(plan.kernel))


def _launch(text: str, arguments: list[Any], sizes: dict[str, int], shape: tuple[int, ...]) -> GrindLaunch:
    """A launch of two blocks (or one) of 4 threads, as `schedule` would size it."""
    tiling, plan, variables = tiled(text, dataclasses.replace(OPENCL_CPU, max_threads_per_block=4, shared_banks=32))
    space = [-(-sizes[str(extent)] // tile) for extent, tile in zip(tiling.nest.space, tiling.tile, strict=True)]
    items = int(np.prod(space))
    own = {ITEMS: items, PER_BLOCK: -(-items // 2), CHUNK: 1, CHUNKS: space[-1]}
    given = dict(zip([one.name for one in parse_program(text).parameters], arguments, strict=True))
    arrays = []
    for name in plan.buffers:
        known = given.get(name)
        if name == ERRORS:
            known = np.zeros(3 * len(plan.checks), np.int64)
        arrays.append(np.full(shape, np.nan, np.float32) if known is None else known)
    scalars = []
    for parameter, (name, _) in zip(plan.kernel.scalars, plan.scalars, strict=True):
        value = own.get(name, sizes.get(name, given.get(name)))
        scalars.append(parameter.type.numpy.type(value))
    assert {one.name for one in variables} >= set(plan.buffers) - {ERRORS}
    return GrindLaunch(opencl_text(plan.kernel), entry_name(plan.kernel), [*arrays, *scalars], 2, tiling.points)


@pytest.mark.opencl
@pytest.mark.skipif(not is_installed(), reason="oclgrind is not installed")
def test_no_races() -> None:
    """Several pieces of each stream, blocks that stick out, and the results are right."""
    x, y, m, eps = nbody_arguments(11)
    places, near = boxes_arguments(3, 6, 2)
    pair = [floats(5, 7), floats(3, 7, seed=1), floats(7, seed=2)]
    launches = [
        _launch(NBODY, [x, y, m, eps], {"n": 11}, (11,)),
        _launch(BOXES, [places, near], {"b": 3, "p": 6, "k": 2}, (3, 6)),
        _launch(PAIRS, pair, {"n": 5, "m": 3, "q": 7}, (5, 3)),
    ]
    results, log = grind(launches)
    assert log == ""
    expected = [nbody_reference(x, y, m, eps), boxes_reference(places, near), pairs_reference(*pair)]
    for arrays, wanted in zip(results, expected, strict=True):
        written = [one for one in arrays if one.dtype == np.float32 and one.shape == wanted[0].shape]
        for one in wanted:
            assert any(np.allclose(one, other, rtol=1e-4, atol=1e-5) for other in written)


# --- refusals ---------------------------------------------------------------------------------------------------------

ROWS = """\
def rows (xs: [n][q]f32, k: [n]i64) =
  let (out: [n]f32) = map n (\\(x: [q]f32, stop: i64) ->
    let (total: f32, low: f32) = redomap q (\\(a: f32, b: f32, c: f32, d: f32) ->
      let (s: f32) = a + c
      let (t: f32) = min(b, d)
      in (s, t)) (0.0f32, 0.0f32) (\\(u: f32) -> (u, u)) x
    let (sum: f32) = total + low
    in (sum)) xs k
  in (out)
"""
UNEVEN = """\
def uneven (xs: [q]f32, k: [n]i64) =
  let (out: [n]f32) = map n (\\(stop: i64) ->
    let (last: f32) = loop (c: f32) = (0.0f32) for r: i64 < stop do
      let (total: f32) = redomap q (\\(a: f32, b: f32) -> let (s: f32) = a + b in (s)) (0.0f32)
        (\\(x: f32) -> let (p: f32) = x * c in (p)) xs
      let (d: f32) = c * total
      let (e: f32) = d + total
      in (e)
    in (last)) k
  in (out)
"""
CHOSEN = """\
def chosen (xs: [q]f32, ys: [n]f32) =
  let (out: [n]f32) = map n (\\(y: f32) ->
    let (some: bool) = y < 0.0f32
    let (last: f32) = if some then
      let (total: f32) = redomap q (\\(a: f32, b: f32) -> let (s: f32) = a + b in (s)) (0.0f32)
        (\\(x: f32) -> let (p: f32) = x * y in (p)) xs
      in (total)
    else (y)
    in (last)) ys
  in (out)
"""


@pytest.mark.parametrize(
    ("program", "machine", "reason"),
    [
        (ROWS, A100, "not tiled: array x is variant to every parallel dimension, so no element is used twice"),
        (ROWS, CPU_AVX2, "not tiled: array x is variant to every parallel dimension, so no element is used twice"),
        (UNEVEN, A100, "stream total is not tiled: the rounds stop of last around it change within a block"),
        (CHOSEN, A100, "stream total is not tiled: the condition of last around it changes within a block"),
        (CHOSEN, CPU_AVX2, "no vectors of points: last = if differs between points"),
    ],
    ids=["rows", "rows-cpu", "uneven", "chosen", "chosen-cpu"],
)
def test_a_refusal_says_why(program: str, machine: Machine, reason: str) -> None:
    form = stream_tiling if machine.max_threads_per_block > 1 else lane_form
    found = form(nest(program).expression, machine)
    assert isinstance(found, NotTiled) and reason in found.reasons


@pytest.mark.parametrize(
    ("machine", "lanes", "vectors"),
    [(CPU_AVX2, 8, 2), (CPU_AVX512, 16, 4), (CPU_NEON, 4, 4)],
    ids=lambda o: str(o)[:20],
)
def test_vectors_that_the_registers_hold(machine: Machine, lanes: int, vectors: int) -> None:
    form = lane_form(nest(NBODY).expression, machine)
    assert isinstance(form, LaneForm)
    assert (form.lanes, form.vectors) == (lanes, vectors)
