"""Arrays in the order of dimensions in which threads of a warp read neighbours: what is chosen, and that it is right.

Nothing here needs a GPU: what a warp touches is counted in the kernels; what they compute is tried on OpenCL, told that
its threads run in warps, and on the emulated device.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import fuzz_trials
import numpy as np
import pytest
from cuda_emulation import has_compiler
from emulated_device import SMALL, emulated_device
from example_programs import PROGRAMS, load
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check_on, compare
from naive import examples
from recorded_device import Launched, recorded_device, sectors_touched

import tilewright as tw
from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import C64, C128, F32, F64, I8, I32, I64, U16, ScalarType
from tilewright.kernel.checks import check_index_types, check_kernel
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Buffer, For, Kernel, Let, Load, Name, ThreadIndex, add, integer, multiply
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.machine.model import Machine
from tilewright.machine.named import A100, H100
from tilewright.passes.compile import compile_program
from tilewright.passes.permute.transposed import SHORTEST, transposed_launch
from tilewright.runtime import turning
from tilewright.runtime.devices import Device, DeviceError, device_for
from tilewright.runtime.host import ERRORS_BUFFER
from tilewright.runtime.turned import Lying, copy_bytes, lying_of, turned_strides, wishes

UNCACHED = replace(H100, l1_bytes=0)
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no g++")


@tw.program
def row_sums(x: tw.f32["n", "w"]) -> Any:
    return tw.map(lambda row: tw.reduce("add", 0, row), x)


@tw.program
def rounds(x: tw.f32["n", "w"], start: tw.f32["n"], times: tw.i64) -> Any:
    def least_and_sum(row: Any, at: Any) -> Any:
        def combine(one: Any, two: Any) -> Any:
            return tw.minimum(one[0], two[0]), one[1] + two[1]

        least, total = tw.reduce(combine, (np.inf, 0.0), row, row)
        return at + least * total

    def step(_: Any, now: Any) -> Any:
        return tw.map(least_and_sum, x, now)

    return tw.loop(times, start, step)


@tw.program
def rows_made(start: tw.f32["n"], first: tw.f32["w"]) -> Any:
    return tw.map(lambda e: tw.scan("add", 0, tw.map(lambda f: f * e, first)), start)


def in_warps(warp: int) -> Device:
    """The OpenCL device of this machine as one whose threads run in warps and whose first cache keeps nothing."""
    try:
        found = device_for("opencl")
    except DeviceError as error:
        pytest.skip(str(error))
    return replace(found, machine=replace(found.machine, warp=warp, l1_bytes=0))


# --- copies to another order ------------------------------------------------------------------------------------------


def turned_program(element: ScalarType, rank: int, order: tuple[int, ...]) -> str:
    names = "abcd"[:rank]
    shape, moved = ("".join(f"[{one}]" for one in each) for each in (names, [names[d] for d in order]))
    listed = ", ".join(map(str, order))
    return f"def turned (x: {shape}{element}) =\n  let (y: {moved}{element}) = rearrange ({listed}) x\n  in (y)"


def numbers(shape: tuple[int, ...], element: ScalarType) -> np.ndarray:
    values = np.random.default_rng(5).integers(0, 100, shape).astype(element.numpy)
    return values + 1j * values[::-1] if element.is_complex else values


@st.composite
def turns(draw: st.DrawFn) -> tuple[ScalarType, tuple[int, ...], tuple[int, ...]]:
    element = draw(st.sampled_from([I8, U16, F32, F64, C64, C128]))
    rank = draw(st.integers(2, 4))
    long = st.sampled_from([SHORTEST, 9, 16, 17, 33])
    shape = [draw(st.sampled_from([1, 2, 3])) for _ in range(rank)]
    order = draw(st.permutations(range(rank)).filter(lambda one: one[-1] != rank - 1))
    shape[-1], shape[order[-1]] = draw(long), draw(long)
    return element, tuple(shape), tuple(order)


@needs_compiler
@settings(max_examples=examples(4))
@given(turns(), st.sampled_from([2, 4, 32]))
def test_copies_on_the_emulated_device(turn: tuple[ScalarType, tuple[int, ...], tuple[int, ...]], warp: int) -> None:
    element, shape, order = turn
    with emulated_device(machine=replace(SMALL, warp=warp)) as (device, runtime):
        check_on(turned_program(element, len(shape), order), [numbers(shape, element)], device)
    assert all("copy_transposed" in one for one in runtime.launched)


@pytest.mark.opencl
@settings(max_examples=examples(20))
@given(turns())
def test_copies_on_opencl(turn: tuple[ScalarType, tuple[int, ...], tuple[int, ...]]) -> None:
    element, shape, order = turn
    for warp in (1, 32):
        check_on(turned_program(element, len(shape), order), [numbers(shape, element)], in_warps(warp))


@pytest.mark.parametrize("element", [F32, F64, C128], ids=str)
def test_neighbours_read_and_write_neighbours(element: ScalarType) -> None:
    launch = transposed_launch(element, (5, 1000, 70), (70_000, 70, 1), (70_000, 1, 1000), (0, 0), A100)
    assert launch is not None
    names = [one.name for one in launch.kernel.scalars]
    found = check_kernel(launch.kernel, dict(zip(names, map(int, launch.scalars), strict=True)))
    parts = 2 if element == C128 else 1
    assert all(one.degree is not None and one.degree <= parts * one.ideal + 1 for one in found.global_accesses)
    assert all(one.degree is not None and one.degree <= parts for one in found.bank_conflicts)
    assert not found.divergent_barriers
    assert launch.blocks == 5 * 32 * 3


@pytest.mark.parametrize("element", [U16, F32, C128], ids=str)
@pytest.mark.parametrize("rows", [1000, 1 << 26])
def test_copies_in_machine_code(element: ScalarType, rows: int) -> None:
    """Indices of 32 bits where they suffice, since four divisions of 64 bits take longer than the copy; no spills."""
    launch = transposed_launch(element, (3, rows, 70), (rows * 70, 70, 1), (rows * 70, 1, rows), (0, 0), H100)
    assert launch is not None
    assert launch.kernel.index_type == (I32 if rows == 1000 else I64)
    assert not check_index_types(launch.kernel)
    for machine in (A100, H100):
        made = compile_cuda(cuda_text(launch.kernel), machine.architecture)
        assert set(made.spill_bytes.values()) == {0}
        assert max(made.registers.values()) <= 40


def test_what_needs_no_square() -> None:
    assert transposed_launch(F32, (100, 40), (40, 1), (80, 1), (0, 0), A100) is None
    assert transposed_launch(F32, (100, SHORTEST - 1), (SHORTEST - 1, 1), (1, 100), (0, 0), A100) is None
    assert transposed_launch(F32, (100, 40), (0, 1), (40, 1), (0, 0), A100) is None


# --- what is chosen ---------------------------------------------------------------------------------------------------


def launches_of(program: Any, *arguments: Any, machine: Machine = H100) -> tuple[list[Launched], str]:
    """What a call launches, and what the program tells about it afterwards."""
    with recorded_device(machine) as (device, runtime):
        run = compile_program(program.trace(), device)
        run(*arguments)
    return runtime.launched, run.explain()


def copies(launched: list[Launched]) -> int:
    return sum(one.kernel.name.startswith("tw_copy") for one in launched)


def test_long_rows_are_copied_once_for_all_rounds() -> None:
    """Rows that the first cache cannot keep, so that each element costs a piece of memory of its own."""
    x, start = np.zeros((1 << 18, 64), np.float32), np.zeros(1 << 18, np.float32)
    launched, told = launches_of(rounds, x, start, 10, machine=UNCACHED)
    assert copies(launched) == 1 and len(launched) == 11
    assert "x is copied with dimension 0 innermost" in told
    for one in launched:
        assert all(now <= 1.1 * best for now, best in sectors_touched(one).values()), one.kernel.name


def test_rows_that_a_cache_keeps_are_read_in_place_until_a_copy_pays() -> None:
    x, start = np.zeros((1 << 18, 16), np.float32), np.zeros(1 << 18, np.float32)
    few, told = launches_of(rounds, x, start, 2)
    assert copies(few) == 0 and len(few) == 2
    assert "x is read as it lies, though neighbours are apart" in told
    many, _ = launches_of(rounds, x, start, 20)
    names = [one.kernel.name for one in many]
    assert copies(many) == 1 and len(many) == 21
    assert 2 <= names.index("tw_copy_transposed_u32") <= 10


def test_a_kernel_makes_its_rows_side_by_side() -> None:
    start, first = np.zeros(1 << 18, np.float32), np.zeros(100, np.float32)
    launched, told = launches_of(rows_made, start, first, machine=UNCACHED)
    assert "is made with dimension 0 innermost" in told
    assert [one.kernel.name for one in launched][1:] == ["tw_copy_transposed_u32"]  # for the caller
    assert all(now <= 1.1 * best for one in launched for now, best in sectors_touched(one).values())


def test_small_arrays_are_not_worth_a_launch() -> None:
    launched, told = launches_of(row_sums, np.zeros((1 << 10, 64), np.float32), machine=UNCACHED)
    assert len(launched) == 1
    assert "read as it lies" in told


def test_how_an_array_can_lie() -> None:
    assert turned_strides((4, 5, 6), 1) == (30, 1, 5)
    assert lying_of((4, 5), (5, 1), F32) == Lying((4, 5), (5, 1), 4)
    assert lying_of((4, 1, 5), (1, 7, 4), F32) is not None
    assert lying_of((4, 5), (0, 1), F32) is None  # repeated
    assert lying_of((4, 5), (6, 1), F32) is None  # with gaps
    assert lying_of((1, 5), (5, 1), F32) is None  # one dimension has no order
    assert copy_bytes(Lying((10, 10), (10, 1), 4), H100) > copy_bytes(Lying((10, 10), (10, 1), 4), A100)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.randoms(use_true_random=False), st.integers(0, 9))
def test_where_elements_are(shape: list[int], random: Any, offset: int) -> None:
    """Indices are those of NumPy, in whatever order the dimensions lie."""
    order = random.sample(range(len(shape)), len(shape))
    array = np.empty([shape[d] for d in order]).transpose(np.argsort(order))
    strides = tuple(one // 8 for one in array.strides)
    indices = np.indices(shape).reshape(len(shape), -1)
    places = offset + np.sum([index * step for index, step in zip(indices, strides, strict=True)], axis=0)
    np.testing.assert_array_equal(Lying(tuple(shape), strides, 8, offset).indices(places), indices)


def test_threads_that_share_rows_wish_too() -> None:
    """Two threads for each row of 32, one after the other: no stride between neighbours is that of a dimension."""
    pairs = multiply(integer(16), ThreadIndex())
    body = For("k", integer(0), integer(16), (Let("value", Load(Buffer("x", F32), add(pairs, Name("k", I64)), F32)),))
    kernel = Kernel("pairs", (Buffer("x", F32),), (), (), (body,), 256)
    found = wishes(kernel, {}, 1, {"x": Lying((128, 32), (32, 1), 4)}, UNCACHED)["x"]
    assert found.dimension == 0
    assert found.saved == 8 * 16 * 32 * (32 - 4)  # warps, rounds, bytes of a piece, pieces


# --- what it computes -------------------------------------------------------------------------------------------------


@contextmanager
def whenever_possible() -> Iterator[None]:
    """Copies cost nothing, so that all arrays are turned that a warp would rather have otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turning, "copy_bytes", lambda lying, machine: 0.0)
        yield


@needs_compiler
@pytest.mark.parametrize("program", [row_sums, rounds, rows_made], ids=lambda one: one.__name__)
def test_on_the_emulated_device(program: Any) -> None:
    random = np.random.default_rng(1)
    x, start = (random.standard_normal(shape).astype(np.float32) for shape in ((19, 7), 19))
    arguments = {row_sums: (x,), rounds: (x, start, 3), rows_made: (start, x[0])}[program]
    with emulated_device(machine=replace(SMALL, warp=4, l1_bytes=0)) as (device, runtime), whenever_possible():
        run = compare(program.trace(), compile_program(program.trace(), device), arguments)
    assert "innermost" in run.explain()
    assert any("copy" in one for one in runtime.launched)


@needs_compiler
def test_kernels_that_are_not_launched_want_nothing() -> None:
    """Nothing is computed of an array that has no elements, beside one that has."""
    text = """\
def picked (rows: [n][m]f32, at: [k]i64) =
  let (ys: [k]f32) = map k (\\(i: i64) -> let (y: f32) = rows[i, i] in (y)) at
  in (ys)
"""
    with emulated_device() as (device, _):
        executable = compile_program(parse_program(text), device)
        assert executable(np.ones((5, 6), np.float32), np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.opencl
@settings(max_examples=examples(6))
@given(number=st.integers(0, 10**8))
def test_random_programs(number: int) -> None:
    device = in_warps(8)
    with whenever_possible():
        failure = fuzz_trials.run_trial(fuzz_trials.make_trial(number), device, fuzz_trials.Counts())
    assert failure is None, str(failure)


# --- the examples -----------------------------------------------------------------------------------------------------

WASTEFUL = {
    # Bins of a thread lie together for the kernel that fills them or for the one that adds them up.
    "tw_weighted_histogram_t_7_bins_chunks": 7.7,
    "tw_weighted_histogram_t_7_bins_end": 8.1,  # a few hundred values for each bin, once: less than a launch costs
    "tw_kmeans_t_21_pieces": 1.8,  # 7 blocks fill 32 bins each: less than a launch would cost
    "tw_locvolcalib_t_177": 2.1,  # 256 rows of 3, once
    "tw_padded_t_6": 5.4,  # rows of 16, which the first cache keeps: a copy would be read once
}


@pytest.mark.parametrize(("file", "name"), PROGRAMS)
def test_what_the_examples_touch(file: str, name: str) -> None:
    """Pieces of memory that a warp touches in each kernel, beside the fewest that there could be; records of errors,
    which are written where there are any, do not count."""
    module = load(file)
    arguments = module.datasets()["large"]()
    with recorded_device() as (device, runtime):
        compile_program(getattr(module, name).trace(), device)(*arguments)
    assert runtime.launched
    for one in {one.kernel.name: one for one in runtime.launched}.values():
        found = [each for name, each in sectors_touched(one).items() if name != ERRORS_BUFFER]
        now, best = (sum(each[side] for each in found) for side in (0, 1))
        assert now <= WASTEFUL.get(one.kernel.name, 1.15) * best, f"{one.kernel.name}: {now} for {best}"
