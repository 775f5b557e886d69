"""CUDA C++ text to machine code by NVRTC, in process; neither a GPU nor a driver is needed."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from tilewright.ir.dataclass import dataclass


class CudaCompileError(RuntimeError):
    """NVRTC refused a text; the message holds its log and the numbered source."""


@dataclass(frozen=True)
class CompiledCuda:
    """Machine code for one architecture, and what the assembler said of each kernel (keyed by its name).

    `registers` counts per thread, `spill_bytes` is what one thread stores to and loads from memory for want of
    registers, `shared_bytes` the static shared memory of one block.
    """

    cubin: bytes = field(repr=False)
    log: str = field(repr=False)
    registers: dict[str, int]
    spill_bytes: dict[str, int]
    shared_bytes: dict[str, int]


def compile_cuda(text: str, architecture: str = "sm_80") -> CompiledCuda:
    """Compile CUDA C++ for an architecture ("sm_80", "sm_90a"), with IEEE division and square roots.

    Raises:
        ImportError: if the extra `tilewright[cuda]` is not installed.
        CudaCompileError: if NVRTC finds an error or does not know the architecture.

    Example:
        >>> compile_cuda('extern "C" __global__ void k(float* p) { *p = 1.0f; }').spill_bytes["k"]
        0
    """
    nvrtc = _nvrtc()
    flags = [f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v"]
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = _read_log(nvrtc, program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CudaCompileError(
                f"NVRTC, {architecture}: {status.name}{_unknown(nvrtc, architecture)}\n{log}\n{numbered(text)}"
            )
        cubin = b" " * _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return CompiledCuda(cubin, log, *_resources(log))


def _unknown(nvrtc: Any, architecture: str) -> str:
    """What to say of an architecture that this NVRTC makes no code for; nothing of others."""
    status, known = nvrtc.nvrtcGetSupportedArchs()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS or architecture.rstrip("af") in {f"sm_{one}" for one in known}:
        return ""
    _, major, minor = nvrtc.nvrtcVersion()
    names = ", ".join(f"sm_{one}" for one in known)
    return f": NVRTC {major}.{minor} makes no code for {architecture}, but for {names}; another version of it may"


def numbered(text: str) -> str:
    """The text with line numbers, as the compiler's messages name them."""
    return "\n".join(f"{number:4d} | {line}" for number, line in enumerate(text.splitlines(), 1))


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ImportError("compiling CUDA needs NVRTC: pip install 'tilewright[cuda]'") from error
    return nvrtc


def _checked(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CudaCompileError(f"NVRTC: {status.name}")
    return values[0] if values else None


def _read_log(nvrtc: Any, program: Any) -> str:
    log = b" " * _checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
    _checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
    text: str = log.rstrip(b"\x00 ").decode(errors="replace")
    return text


def _resources(log: str) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Registers, spilled bytes and static shared memory of each entry, from the assembler's report."""
    registers: dict[str, int] = {}
    spills: dict[str, int] = {}
    shared: dict[str, int] = {}
    for report in re.split(r"Compiling entry function '", log)[1:]:
        name = report.split("'", 1)[0]
        spills[name] = sum(int(count) for count in re.findall(r"(\d+) bytes spill (?:stores|loads)", report))
        used = re.search(r"Used (\d+) registers", report)
        if used is None:
            raise CudaCompileError(f"the assembler's report on {name} does not name its registers:\n{log}")
        registers[name] = int(used[1])
        smem = re.search(r"(\d+)(?:\+\d+)? bytes smem", report)
        shared[name] = int(smem[1]) if smem else 0
    return registers, spills, shared
