"""The kernels of segments as text: no races, no divergent barriers, and NVRTC takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from race_runner import is_installed
from segment_cases import OPERATORS, histogram, in_pieces, plain, segmented, shared_out
from segment_race_runner import log_of_simulator

from tilewright.ir.parser import parse_program
from tilewright.ir.scalars import I32, U8
from tilewright.kernel.cuda import cuda_text
from tilewright.kernel.divergence import divergent_barriers
from tilewright.kernel.ir import AtomicUpdate, Buffer, Constant, Kernel, integer
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.kernel.nvrtc import compile_cuda
from tilewright.machine.named import A100
from tilewright.passes.compile import program_block
from tilewright.report.kernel_text import kernel_text
from tilewright.runtime.devices import Device
from tilewright.runtime.host import KernelStep, Layout, SegmentStep
from tilewright.runtime.protocol import written_buffers


@pytest.mark.opencl
@pytest.mark.skipif(not is_installed(), reason="oclgrind is not installed")
def test_no_races() -> None:
    assert log_of_simulator() == ""


def kernels(text: str, extents: tuple[int, ...], group: int, chunks: int) -> Iterator[Kernel]:
    """The kernels that are launched on an A100 for these extents."""
    block, _ = program_block(parse_program(text), Device("cuda", A100, "a test"))
    (step,) = block.steps
    assert isinstance(step, SegmentStep)
    with shared_out(group, chunks), in_pieces(chunks):
        for one in step.choose(extents).steps:
            yield lowered(one)


def lowered(step: KernelStep) -> Kernel:
    arrays = {one.name: one for one in (*step.reads, *step.targets) if one.type.rank or one in step.targets}
    layouts = ((name, Layout((), dense=True, at_start=True)) for name in arrays)
    return step.lower(tuple(layouts)).kernel


ATOMIC = {
    "sum": ["Add"],
    "carrying sum": ["Add"],
    "wrapping sum": ["Add"],
    "any": ["Or"],
    "parity": ["Xor"],
    "smallest": ["Min"],
}


@pytest.mark.parametrize("name", sorted(name for name, one in OPERATORS.items() if one.commutes))
def test_exact_operators_are_atomic_and_no_others(name: str) -> None:
    text = "".join(map(cuda_text, kernels(histogram(OPERATORS[name], False), (16, 5000), 1, 3)))
    assert sorted(set(re.findall(r"\batomic(\w+)\(&", text))) == ATOMIC.get(name, [])


def test_atomic_updates_are_refused_where_there_are_none() -> None:
    narrow, fixed = Buffer("x", U8), Buffer("x", I32, read_only=True)
    for buffer, operator, message in (
        (narrow, "add", "no atomic add"), (Buffer("x", I32), "mul", "no atomic mul"), (fixed, "add", "no other thread"),
    ):  # fmt: skip
        update = AtomicUpdate("old", operator, buffer, integer(0), Constant(1, buffer.element))
        with pytest.raises(TypeError, match=message):
            cuda_text(Kernel("k", (buffer,), (), (), (update,)))
    update = AtomicUpdate("old", "add", Buffer("x", I32), integer(0), Constant(1, I32))
    kernel = Kernel("k", (update.buffer,), (), (), (update,))
    assert kernel_text(kernel).splitlines()[-1].strip() == "let old = atomic add x[0], 1"
    assert written_buffers(kernel) == {"x"}
    with pytest.raises(TypeError, match="updates nothing atomically"):
        llvm_text(kernel, CpuTarget("x86_64"))


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.parametrize("kind", ["segred", "segscan", "reduce", "scan", "hist", "seghist"])
def test_cuda(kind: str, name: str) -> None:
    operator = OPERATORS[name]
    if "hist" in kind:
        program, extents = histogram(operator, kind == "seghist"), (16, 5000)
    else:
        program = segmented(operator, kind, False, True) if "seg" in kind else plain(operator, kind)
        extents = (5000,)
    extents = (3, *extents) if "seg" in kind else extents
    texts, names = [], []
    for group, chunks in ((256, 3), (8, 1)):
        for kernel in kernels(program, extents, group, chunks):
            assert divergent_barriers(kernel) == ()
            assert 1 <= kernel.threads_per_block <= A100.max_threads_per_block
            assert kernel.shared_bytes <= A100.shared_bytes_per_block
            if kernel.name not in names:
                names.append(kernel.name)
                texts.append(kernel)
    for kernel in texts:
        compiled = compile_cuda(cuda_text(kernel))
        assert set(compiled.spill_bytes.values()) == {0}
