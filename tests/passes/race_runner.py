"""Runs many OpenCL kernels under oclgrind with all its checks, in one process of its own.

Run as a program, it is that process: its argument is a folder with a launch in each subfolder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class GrindLaunch:
    """A kernel's text and entry, its arguments (arrays and NumPy scalars), and its launch shape."""

    text: str
    entry: str
    arguments: Sequence[np.ndarray | np.generic]
    blocks: int
    threads: int


def grind(launches: Sequence[GrindLaunch]) -> tuple[list[list[np.ndarray]], str]:
    """The arrays of each launch afterwards, and oclgrind's log (empty if it found nothing)."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number, one in enumerate(launches):
            place = root / f"{number:04d}"
            place.mkdir()
            (place / "kernel.cl").write_text(one.text)
            (place / "launch.json").write_text(json.dumps([one.entry, one.blocks, one.threads]))
            np.savez(place / "arguments.npz", *[np.asarray(argument) for argument in one.arguments])
        (root / "oclgrind.icd").write_text(str(simulator_library()))
        log = root / "oclgrind.log"
        environment = os.environ | {
            "OCL_ICD_VENDORS": folder,
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_UNINITIALIZED": "1",
            "OCLGRIND_UNIFORM_WRITES": "1",
            "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
            "OCLGRIND_LOG": str(log),
            "OCLGRIND_MAX_ERRORS": "200",
            "OCLGRIND_LOCAL_MEM_SIZE": str(1 << 20),
        }
        done = subprocess.run(
            [sys.executable, __file__, folder],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        results = []
        for number in range(len(launches)):
            with np.load(root / f"{number:04d}" / "result.npz") as arrays:
                results.append([arrays[key] for key in arrays.files])
        return results, log.read_text() if log.exists() else ""


def is_installed() -> bool:
    """True if pyopencl and oclgrind are here."""
    if importlib.util.find_spec("pyopencl") is None:
        return False
    import pyopencl

    return (Path(pyopencl.__file__).parent / ".libs" / "oclgrind.icd").exists()


def simulator_library() -> Path:
    """The simulator's OpenCL driver."""
    import pyopencl

    libraries = Path(pyopencl.__file__).parent / ".libs"
    return libraries / (libraries / "oclgrind.icd").read_text().strip()


def _child(root: Path) -> None:
    from opencl_runner import run_opencl

    for place in sorted(path for path in root.iterdir() if path.is_dir()):
        entry, blocks, threads = json.loads((place / "launch.json").read_text())
        with np.load(place / "arguments.npz") as data:
            loaded = [data[f"arr_{index}"] for index in range(len(data.files))]
        arguments = [array if array.ndim else array[()] for array in loaded]
        results = run_opencl((place / "kernel.cl").read_text(), entry, arguments, blocks, threads, platform="oclgrind")
        np.savez(place / "result.npz", *results)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent / "kernel"))
    _child(Path(sys.argv[1]))
