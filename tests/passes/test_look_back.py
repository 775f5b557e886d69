"""Long scans in a single pass, whose tiles look back at others: on an emulated GPU, in any order of the blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_emulation import has_compiler
from cuda_race_runner import CASES, log_of_sanitizer, sanitizer_library
from emulated_device import emulated_device
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_checks import check_on, compiled
from naive import examples
from segment_cases import OPERATORS, plain, random_values, segmented, shared_out, with_tiles_of

from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import F16, F32, U32
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.ir import Buffer, Constant, Kernel, Load, Order, Space, Store, integer
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.opencl import opencl_text
from tilewright.machine.named import A100, H100
from tilewright.passes.compile import compile_program, program_block
from tilewright.report.kernel_text import kernel_text
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.host import SegmentStep

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no g++")


@needs_compiler
@settings(max_examples=examples(8))
@given(
    name=st.sampled_from(sorted(OPERATORS)),
    segments=st.sampled_from([None, None, 1, 3]),
    width=st.sampled_from([33, 257, 300, 1000]),  # lines of 16 tiles of 16 or 48 rows, some of them not full
    rows_each=st.sampled_from([1, 1, 3]),
    residents=st.sampled_from([1, -1, 2, 5, -4]),
    mapped=st.booleans(),
    seed=st.integers(0, 99),
)
def test_tiles_in_any_order(
    name: str, segments: int | None, width: int, rows_each: int, residents: int, mapped: bool, seed: int
) -> None:
    operator, shape = OPERATORS[name], (width,) if segments is None else (segments, width)
    program = plain(operator, "scan") if segments is None else segmented(operator, "segscan", False, mapped)
    with emulated_device(residents) as (device, runtime), with_tiles_of(rows_each), shared_out(16, 4):
        check_on(program, random_values(name, shape, seed), device)
    one_pass = [one.rpartition("_")[2] for one in runtime.launched]
    assert one_pass == ["clear", "tiles"] * 2 if width > 16 * rows_each else "tiles" not in one_pass


@needs_compiler
def test_sums_have_the_same_bits_whatever_blocks_do() -> None:
    values = np.random.default_rng(0).standard_normal(1500).astype(np.float32)
    program = parse_program(plain(OPERATORS["float sum"], "scan"))
    found = set()
    for residents in (1, -1, 2, -5, 5):
        with emulated_device(residents) as (device, _), with_tiles_of(1):
            run = compile_program(program, device, optimise=False)
            found |= {np.asarray(run(values)).tobytes() for _ in range(3)}
    assert len(found) == 1


@pytest.mark.skipif(sanitizer_library() is None, reason="there is no g++ with a sanitizer for threads that works")
def test_no_races() -> None:
    assert log_of_sanitizer(CASES) == ""
    assert "data race" in log_of_sanitizer(CASES[:1], release="plain")


@pytest.mark.skipif(sanitizer_library() is None, reason="there is no g++ with a sanitizer for threads that works")
def test_threads_do_not_mix_what_they_find_out_of_range() -> None:
    assert log_of_sanitizer([("indices", "out of range", 40)]) == ""


@pytest.mark.opencl
def test_in_opencl_where_blocks_go_on() -> None:
    """No OpenCL device promises it, but those that are CPUs do it."""
    program = plain(OPERATORS["affine maps"], "scan")
    compiled(program, "opencl")
    found = device_for("opencl")
    device = replace(found, machine=replace(found.machine, forward_progress=True))
    with with_tiles_of(1):
        check_on(program, random_values("affine maps", (70_000,), 1), device)


# --- when -------------------------------------------------------------------------------------------------------------


def kernels_of(device: Device, extents: tuple[int, ...], kind: str = "scan") -> list[str]:
    operator = OPERATORS["sum"]
    program = plain(operator, kind) if len(extents) == 1 else segmented(operator, kind, False, False)
    (step,) = program_block(parse_program(program), device)[0].steps
    assert isinstance(step, SegmentStep)
    return [one.label.removeprefix("program_y0_") for one in step.choose(extents).steps]


def test_rows_are_read_once_where_blocks_go_on() -> None:
    gpu = Device("cuda", H100, "a test")
    assert kernels_of(gpu, (1 << 24,)) == ["clear", "tiles"]
    assert kernels_of(gpu, (2, 1 << 24), "segscan") == ["clear", "tiles"]
    assert kernels_of(gpu, (1 << 16, 1 << 12), "segscan") == ["program_y0"]  # a block has a segment
    assert kernels_of(gpu, (1000,)) == ["program_y0"]
    without = Device("cuda", replace(H100, forward_progress=False), "a test")
    assert kernels_of(without, (1 << 24,)) == ["chunks", "before", "scans"]


def test_the_reason_is_told_where_they_do_not() -> None:
    program = parse_program(plain(OPERATORS["sum"], "scan"))
    for machine, told in ((A100, False), (replace(A100, forward_progress=False), True)):
        (note,) = program_block(program, Device("cuda", machine, "a test"))[1]
        assert any("blocks that have begun go on" in one for one in note.reasons) == told
        assert ("look back" in note.lowered) != told


# --- coherent accesses ------------------------------------------------------------------------------------------------


def kernel_with(buffer: Buffer, order: Order, is_store: bool = False) -> Kernel:
    value = Load(buffer, integer(0), F32 if buffer.element == F16 else buffer.element, order=order)
    target = buffer if is_store else Buffer("target", buffer.element)
    store = Store(target, integer(1), value, order=order if is_store else Order.PLAIN)
    buffers = tuple({one.name: one for one in (buffer, target)}.values())
    by_space = [
        tuple(one for one in buffers if (one.space is Space.GLOBAL) == is_global) for is_global in (True, False)
    ]
    return Kernel("k", by_space[0], (), by_space[1], (store,))


@pytest.mark.parametrize("printed", [cuda_text, opencl_text])
def test_coherent_accesses_are_of_single_elements_in_global_memory(printed: object) -> None:
    assert callable(printed)
    for buffer, order, message in (
        (Buffer("x", F32), Order.ORDERED, "elements of type u32"),
        (Buffer("x", F16), Order.COHERENT, "no halves"),
        (Buffer("x", F32, Space.SHARED, 4), Order.COHERENT, "in global memory"),
    ):
        with pytest.raises(TypeError, match=message):
            printed(kernel_with(buffer, order))
    assert "volatile" in printed(kernel_with(Buffer("x", F32), Order.COHERENT, True))
    text = printed(kernel_with(Buffer("x", U32), Order.ORDERED, True))
    assert "tw_publish(" in text and "tw_observe(" in text


def test_coherent_accesses_are_shown_and_not_for_cpus() -> None:
    kernel = kernel_with(Buffer("x", U32), Order.ORDERED, True)
    assert kernel_text(kernel).splitlines()[-1].strip() == "ordered x[1] = ordered x[0]"
    with pytest.raises(TypeError, match="in GPU kernels only: buffer x"):
        llvm_text(kernel, CpuTarget("x86_64"))
    plain_store = Store(Buffer("x", U32), integer(0), Constant(1, U32), order=Order.COHERENT)
    with pytest.raises(TypeError, match="coherent accesses"):
        llvm_text(replace(kernel, body=(plain_store,)), CpuTarget("x86_64"))
