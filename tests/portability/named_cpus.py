"""Kernels for a CPU that is named: run here where this CPU has all of its features, else under an emulator.

On x86-64 the code for a processor with fewer features runs natively. Code for 64-bit Arm becomes an object file that
is linked with driver.c, statically, by a C compiler for that architecture, and is run by qemu.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contraction_cases import scalar_values

from tilewright.kernel.ir import Kernel
from tilewright.kernel.launch import Launch
from tilewright.kernel.llvm import CpuTarget, llvm_text
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON
from tilewright.machine.processors import Processor, host_processor, named_processor
from tilewright.runtime import cpu_driver, cpu_pool
from tilewright.runtime.backends import CpuBackend, Memory, argument_block
from tilewright.runtime.cpu_device import has_vectors, taken_by
from tilewright.runtime.cpu_jit import Optimisation, compile_text, cpu_target, load_object, object_file
from tilewright.runtime.devices import Device

X86 = ("x86-64", "x86-64-v2", "haswell", "znver2", "skylake-avx512", "znver4", "znver5")
ARM = ("armv8-a", "neoverse-n1", "apple-m1")
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SECONDS = 600


def machine_for(name: str) -> Machine:
    """The numbers of a processor: its own vectors, the caches of a typical one."""
    processor = named_processor(name)
    vector_bytes, registers = processor.vector_registers
    model = CPU_NEON if processor.is_arm else CPU_AVX512 if vector_bytes == 64 else CPU_AVX2
    return replace(model, name=name, architecture=name, vector_bytes=vector_bytes, vector_registers=registers, cores=2)


@dataclass(frozen=True)
class Region:
    """Memory that a kernel gets: the bytes, and where in them its pointer points."""

    low: int
    high: int
    address: int

    @property
    def bytes(self) -> ctypes.Array[ctypes.c_char]:
        return (ctypes.c_char * (self.high - self.low)).from_address(self.low)


def region_of(array: np.ndarray) -> Region:
    """All bytes from an array's first to its last, and its address, which negative strides put elsewhere."""
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)
    return Region(low, high, array.ctypes.data)


class Native:
    """A processor with no more features than this one."""

    def __init__(self, processor: Processor) -> None:
        self.target = cpu_target(host_processor().restricted_to(processor))

    def run(
        self, kernel: Kernel, optimisation: Optimisation, regions: Sequence[Region], scalars: Sequence[Any],
        blocks: int, threads: int = 1,
    ) -> None:  # fmt: skip
        code = compile_text(llvm_text(kernel, self.target), optimisation, self.target)
        native = load_object(code, kernel.name, kernel.workspace_bytes)
        block = argument_block(kernel, scalars)
        for position, region in enumerate(regions):
            block[position] = region.address
        cpu_pool.launch(native, block, blocks, threads)


class Emulated:
    """A processor of another architecture."""

    def __init__(self, processor: Processor, folder: Path) -> None:
        self.target, self.folder = cpu_target(processor), folder
        constants = (f"-DPOOL_BYTES={cpu_driver.POOL_BYTES}", f"-DPOOL_WORKSPACES={cpu_driver.WORKSPACES}")
        compile_c(*constants, "-O1", "-c", str(Path(__file__).parent / "driver.c"), "-o", str(folder / "driver.o"))
        text = cpu_driver.driver_text(self.target)
        (folder / "pool.o").write_bytes(object_file(text, "none", self.target))
        self.programs: dict[tuple[str, str], Path] = {}

    def program(self, kernel: Kernel, optimisation: Optimisation) -> Path:
        """The program that runs this kernel; linked once."""
        text = llvm_text(kernel, self.target)
        path = self.programs.get((text, optimisation))
        if path is None:
            path = self.folder / f"program{len(self.programs)}"
            code = path.with_suffix(".o")
            code.write_bytes(object_file(text, optimisation, self.target))
            objects = [str(one) for one in (code, self.folder / "driver.o", self.folder / "pool.o")]
            name = f"-Wl,--defsym=kernel_under_test={kernel.name}"
            compile_c("-static", *objects, name, "-o", str(path), "-lm", "-lpthread")
            self.programs[text, optimisation] = path
        return path

    def run(
        self, kernel: Kernel, optimisation: Optimisation, regions: Sequence[Region], scalars: Sequence[Any],
        blocks: int, threads: int = 1, rounds: int = 1,
    ) -> None:  # fmt: skip
        program = self.program(kernel, optimisation)
        block = bytes(argument_block(kernel, scalars))[8 * len(kernel.buffers) :]
        head = (len(regions), len(kernel.scalars), blocks, 1, kernel.workspace_bytes, threads - 1, rounds)
        forms = [(one.high - one.low, one.low % 64, one.address - one.low) for one in regions]
        data = struct.pack(f"<{len(head)}q", *head) + b"".join(struct.pack("<3q", *one) for one in forms) + block
        source, target = self.folder / "input", self.folder / "output"
        source.write_bytes(data + b"".join(bytes(one.bytes) for one in regions))
        done = subprocess.run(
            [EMULATOR, str(program), str(source), str(target)], capture_output=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, f"{kernel.name} ended with {done.returncode}: {done.stderr.decode()}"
        result, at = target.read_bytes(), 0
        for buffer, region in zip(kernel.buffers, regions, strict=True):
            if not buffer.read_only:
                region.bytes[:] = result[at : at + region.high - region.low]
            at += region.high - region.low


def compile_c(*arguments: str) -> None:
    done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def processor_at_hand(name: str) -> Native | Emulated:
    """How kernels for a processor are run here; skips the test, saying why, where they cannot be."""
    processor = named_processor(name)
    host = host_processor()
    missing = host.lacks(processor)
    if not missing:
        return Native(processor)
    if not processor.is_arm:
        pytest.skip(f"{name} has features that {host.name} lacks: {', '.join(missing)}")
    absent = [one for one in (COMPILER, EMULATOR) if shutil.which(one) is None]
    if absent:
        pytest.skip(f"to run code for {name}, {' and '.join(absent)} must be installed")
    folder = tempfile.TemporaryDirectory(prefix="tilewright-portability-")
    emulated = Emulated(processor, Path(folder.name))
    emulated.kept = folder  # type: ignore[attr-defined]  # removed when the interpreter ends
    return emulated


def run_launch(
    name: str, launch: Launch, buffers: Mapping[str, np.ndarray], scalars: Mapping[str, Any], threads: int = 1
) -> np.ndarray:
    """The output's buffer after a launch of a contraction on the named processor."""
    arrays = {one: array.copy() for one, array in buffers.items()}
    regions = [region_of(arrays[one]) for one in launch.buffers]
    values = scalar_values(launch, scalars)
    processor_at_hand(name).run(launch.kernel, "none", regions, values, launch.blocks, threads)
    return arrays[launch.buffers[2]]


class NamedBackend(CpuBackend):
    """A backend for whole programs: kernels are compiled for the named processor and run on it."""

    def __init__(self, name: str) -> None:
        super().__init__(Device("cpu", machine_for(name), name))
        self.processor = processor_at_hand(name)
        self.launches = 0

    def compile(self, kernel: Kernel, scalars: Mapping[str, int]) -> Any:
        return taken_by(kernel, scalars), None

    def launch(self, compiled: Any, blocks: int, memories: Sequence[Memory], scalars: Sequence[Any]) -> None:
        kernel, _ = compiled
        optimisation: Optimisation = "none" if has_vectors(kernel) else "full"
        regions = [region_of(memory.array) for memory in memories if memory.array is not None]
        assert len(regions) == len(memories)
        self.processor.run(kernel, optimisation, regions, scalars, blocks)
        self.launches += 1


def named_target(name: str) -> CpuTarget:
    """The processor as the printer of LLVM text takes it."""
    return cpu_target(named_processor(name))
