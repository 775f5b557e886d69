"""Runs segmented programs on oclgrind in a process of its own, with its checks, against the interpreter.

Not with the check for memory that nobody wrote, which each program passes alone: with many in one process it finds
fault with what the kernel before has written.

Run as a program, it is that process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from race_runner import simulator_library


def log_of_simulator() -> str:
    """What oclgrind found in the programs of `_child`: empty if nothing.

    Raises:
        AssertionError: if a result is wrong, with the output of the process.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "oclgrind.icd").write_text(str(simulator_library()))
        log = root / "oclgrind.log"
        environment = os.environ | {
            "OCL_ICD_VENDORS": folder,
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_UNIFORM_WRITES": "1",
            "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
            "OCLGRIND_LOG": str(log),
            "OCLGRIND_MAX_ERRORS": "200",
        }
        done = subprocess.run(
            [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("ran ") == len(CASES), done.stdout
        return log.read_text() if log.exists() else ""


CASES = (
    # kind, operator, segments, rows, group, chunks or pieces
    ("segred", "sum", 3, 19, 4, 1),
    ("segred", "affine maps", 3, 19, 4, 2),
    ("segred", "2x2 matrices", 1, 70, 16, 3),
    ("segred", "largest and sum", 40, 5, 1, 2),
    ("segscan", "affine maps", 3, 31, 4, 2),
    ("segscan", "float sum", 1, 50, 16, 1),
    ("segscan", "half sum", 2, 40, 2, 3),
    ("reduce", "first that is not zero", 0, 70, 16, 3),
    ("scan", "complex product", 0, 140, 16, 2),
    ("hist", "largest and sum", 0, 40, 4, 3),
    ("hist", "carrying sum", 0, 90, 4, 3),
    ("seghist", "any", 2, 20, 1, 3),
)


def _child() -> None:
    import numpy as np
    from lowering_checks import check
    from segment_cases import OPERATORS, histogram, in_pieces, plain, random_values, segmented, shared_out

    from tilewright.passes import statements as statements_module
    from tilewright.runtime import backends

    # Blocks of few threads: every one of them is simulated.
    statements_module.threads_per_block = lambda device: 16
    fewer = backends.DeviceBackend.__init__

    def begin(self: backends.DeviceBackend, device: object) -> None:
        fewer(self, device)  # type: ignore[arg-type]
        self.threads_per_block = 16

    backends.DeviceBackend.__init__ = begin  # type: ignore[method-assign, assignment]
    for kind, name, segments, rows, group, chunks in CASES:
        operator = OPERATORS[name]
        shape = (segments, rows) if segments else (rows,)
        arrays = random_values(name, shape, 1)
        if "hist" in kind:
            bins = random_values(name, (*shape[:-1], 5), 2)
            arrays = [np.random.default_rng(3).integers(-1, 6, shape), *arrays, *bins]
            program = histogram(operator, bool(segments))
        else:
            program = segmented(operator, kind, False, True) if segments else plain(operator, kind)
        with shared_out(group, chunks), in_pieces(chunks):
            check(program, arrays, "opencl")
        print("ran", kind, name)


if __name__ == "__main__":
    folder = Path(__file__).parent
    sys.path[:0] = [str(folder), str(folder.parent / "kernel"), str(folder.parent / "contraction")]
    _child()
