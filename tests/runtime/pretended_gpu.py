"""A computer with two GPUs, pretended: the way to CUDA is the real one down to the driver, which is not.

    python tests/runtime/pretended_gpu.py SCRIPT [ARGUMENTS]      (runs a script there)

cuda.bindings loads `pretended_driver.c` in place of libcuda.so.1, so that it makes the calls that it would make of a
driver; NVRTC compiles all kernels; what runs is the same text, emulated on the CPU (tests/kernel/cuda_emulation.py).
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
THREADS_PER_BLOCK = 32
MEMORY_BYTES = 1 << 30
DEVICES = 2
# Those of an H200 as far as programs do not become slow by them (each thread is one of the operating system's).
ATTRIBUTES = {
    "CLOCK_RATE": 1_980_000, "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "INTEGRATED": 0,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144, "L2_CACHE_SIZE": 50 << 20, "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_GRID_DIM_X": 2**31 - 1, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536, "MAX_THREADS_PER_BLOCK": THREADS_PER_BLOCK,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "MEMORY_CLOCK_RATE": 3_201_000, "MULTIPROCESSOR_COUNT": 2,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024, "WARP_SIZE": 32,
}  # fmt: skip


def build_driver(folder: Path, pools: bool = True) -> Path:
    """The driver as libcuda.so.1 in a folder."""
    from cuda.bindings import driver

    known = ATTRIBUTES | {"MEMORY_POOLS_SUPPORTED": int(pools)}
    kinds = {name: getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}") for name in known}
    pairs = ",".join(f"{{{int(kinds[name])},{value}}}" for name, value in known.items())
    library = folder / "libcuda.so.1"
    settings = [
        f"-DMEMORY_BYTES={MEMORY_BYTES}ull",
        f"-DDEVICES={DEVICES}",
        f"-DPOOLS={int(pools)}",
        f"-DATTRIBUTES={pairs}",
    ]
    flags = ["-std=gnu11", "-w", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    source = str(HERE / "pretended_driver.c")
    subprocess.run(["gcc", *flags, *settings, "-o", str(library), source, "-ldl", "-lpthread"], check=True)
    return library


def run_there(arguments: list[str], pools: bool = True, seconds: float = 500.0) -> subprocess.CompletedProcess[str]:
    """Run a script of Python (its path and arguments) on the pretended computer."""
    with tempfile.TemporaryDirectory() as folder:
        build_driver(Path(folder), pools)
        paths = [folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        given = os.environ | {"LD_LIBRARY_PATH": ":".join(paths), "TILEWRIGHT_CACHE": "0", "PRETENDED": folder}
        command = [sys.executable, str(Path(__file__)), *arguments]
        return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=seconds)


def _inside() -> None:
    """Run the script, with cubins that the pretended driver can load."""
    sys.path.insert(0, str(HERE.parent / "kernel"))
    from cuda_emulation import write_library

    from tilewright.kernel.nvrtc import CompiledCuda
    from tilewright.runtime import cuda_device

    compiled = cuda_device.compile_cuda

    def compile_both(text: str, architecture: str) -> CompiledCuda:
        built = compiled(text, architecture)
        (name,) = built.registers
        library = Path(os.environ["PRETENDED"]) / f"kernel_{abs(hash(text))}.so"
        write_library({name: text}, library, "undefined")
        return replace(built, cubin=str(library).encode() + b"\0")

    cuda_device.compile_cuda = compile_both
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    if "PRETENDED" in os.environ:
        _inside()
    else:
        done = run_there(sys.argv[1:])
        print(done.stdout, done.stderr, sep="", end="")
        sys.exit(done.returncode)
