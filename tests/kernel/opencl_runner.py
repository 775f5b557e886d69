"""Runs the OpenCL text of a kernel on a CPU's OpenCL runtime, or, in a process of its own, under oclgrind.

Run as a program, it is that process: its argument is a folder holding kernel.cl, arguments.npz and launch.json; it
writes the arrays after the launch to result.npz there.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

EXACT = "#pragma OPENCL FP_CONTRACT OFF\n"
_INTEL = Path(sys.prefix) / "lib" / "libintelocl.so"


def _import_pyopencl() -> Any:
    if _INTEL.exists():
        os.environ.setdefault("OCL_ICD_VENDORS", str(_INTEL))
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    import pyopencl

    return pyopencl


@functools.cache
def cpu_queue(platform_word: str = "Intel") -> tuple[Any, Any] | None:
    """A context and queue on the first platform whose name has the word; None if there is none."""
    cl = _import_pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        return None
    for platform in platforms:
        if platform_word.lower() in platform.name.lower():
            context = cl.Context([platform.get_devices()[0]])
            return context, cl.CommandQueue(context)
    return None


def run_opencl(
    text: str, name: str, arguments: list[Any], blocks: int, threads: int, platform: str = "Intel"
) -> list[np.ndarray]:
    """Launch `name` of `text`; arrays among the arguments become buffers. Gives the arrays after the launch."""
    cl = _import_pyopencl()
    found = cpu_queue(platform)
    assert found is not None, f"no OpenCL platform like {platform}"
    context, queue = found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = cl.Program(context, text).build(["-cl-std=CL1.2"])
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    given = [cl.Buffer(context, flags, hostbuf=a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel = getattr(program, name)
    kernel(queue, (blocks * threads,), (threads,), *given)
    results = []
    for argument, buffer in zip(arguments, given, strict=True):
        if isinstance(argument, np.ndarray):
            result = np.empty_like(argument)
            cl.enqueue_copy(queue, result, buffer)
            results.append(result)
    queue.finish()
    return results


def run_oclgrind(text: str, name: str, arguments: list[Any], blocks: int, threads: int) -> tuple[list[np.ndarray], str]:
    """The same under oclgrind with all its checks; gives the arrays and its log, empty if it found nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "kernel.cl").write_text(text)
        (path / "launch.json").write_text(json.dumps([name, blocks, threads, len(arguments)]))
        np.savez(path / "arguments.npz", *[np.asarray(argument) for argument in arguments])
        (path / "oclgrind.icd").write_text(str(_oclgrind_library()))
        log = path / "oclgrind.log"
        environment = os.environ | {
            "OCL_ICD_VENDORS": folder,
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_UNINITIALIZED": "1",
            "OCLGRIND_UNIFORM_WRITES": "1",
            "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
            "OCLGRIND_LOG": str(log),
            "OCLGRIND_MAX_ERRORS": "2000",
            "OCLGRIND_LOCAL_MEM_SIZE": str(1 << 20),
        }
        command = [sys.executable, __file__, folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        with np.load(path / "result.npz") as results:
            arrays = [results[key] for key in results.files]
        return arrays, log.read_text() if log.exists() else ""


def _oclgrind_library() -> Path:
    import pyopencl

    libraries = Path(pyopencl.__file__).parent / ".libs"
    return libraries / (libraries / "oclgrind.icd").read_text().strip()


def _child(folder: Path) -> None:
    name, blocks, threads, count = json.loads((folder / "launch.json").read_text())
    with np.load(folder / "arguments.npz") as data:
        loaded = [data[f"arr_{index}"] for index in range(count)]
    arguments = [array if array.ndim else array[()] for array in loaded]
    results = run_opencl((folder / "kernel.cl").read_text(), name, arguments, blocks, threads, platform="oclgrind")
    np.savez(folder / "result.npz", *results)


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
