"""Runs programs on the emulated GPU under the sanitizer for threads, in a process of its own, against the interpreter.

Run as a program, it is that process; "plain" for a release makes the look-back publish without one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from tilewright.runtime.executable import Executable

CASES = (
    # kind, operator, rows
    ("scan", "affine maps", 500),
    ("segscan", "largest and sum", 200),
)
OUT_OF_RANGE = """
def elements (counts: [n]i64, at: [n]i64) =
  let (ys: [n]i64) = map n (\\(count: i64, j: i64) ->
    let (row: [count]i64) = iota count i64
    let (y: i64) = row[j]
    in (y)) counts at
  in (ys)
"""
"""Of which every thread has an array of another extent."""


def sanitizer_library() -> str | None:
    """The library of g++ that a process must have loaded first; None where there is none that works."""
    if shutil.which("g++") is None:
        return None
    found = subprocess.run(["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False)
    library = found.stdout.strip()
    if not Path(library).is_absolute():
        return None
    environment = os.environ | {"LD_PRELOAD": library}
    tried = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, check=False, timeout=600)
    return library if tried.returncode == 0 else None


def log_of_sanitizer(cases: Sequence[tuple[str, str, int]], release: str = "release") -> str:
    """What the sanitizer found in these programs: empty if nothing.

    Raises:
        AssertionError: if a result is wrong, with the output of the process.
    """
    environment = os.environ | {"LD_PRELOAD": sanitizer_library() or "", "TSAN_OPTIONS": "exitcode=0"}
    done = subprocess.run(
        [sys.executable, __file__, release, json.dumps(cases)],
        env=environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ran ") == len(cases), done.stdout
    return done.stderr


def _child(release: str, cases: list[tuple[str, str, int]]) -> None:
    import cuda_emulation
    import emulated_device
    import numpy as np
    from lowering_checks import check_on, compiled
    from segment_cases import OPERATORS, plain, random_values, segmented, shared_out, with_tiles_of

    if release == "plain":
        cuda_emulation._PTX = {
            ptx: text.replace("__atomic_store_n(p, value, __ATOMIC_RELEASE)", "__atomic_store_n(p, value, 0)")
            for ptx, text in cuda_emulation._PTX.items()
        }
    for kind, name, rows in cases:
        if kind == "indices":
            with emulated_device.emulated_device(residents=3, sanitizer="thread") as (device, _):
                _refused(compiled(OUT_OF_RANGE, device), np.arange(rows))
            print("ran", kind, name)
            continue
        operator, shape = OPERATORS[name], (2, rows) if kind == "segscan" else (rows,)
        program = segmented(operator, kind, False, True) if kind == "segscan" else plain(operator, kind)
        watched = emulated_device.emulated_device(residents=3, sanitizer="thread")
        with watched as (device, runtime), with_tiles_of(1), shared_out(16, 4):
            check_on(program, random_values(name, shape, 1), device)
        assert runtime.launched[-1].endswith("_tiles"), runtime.launched
        print("ran", kind, name)


def _refused(elements: Executable, numbers: np.ndarray) -> None:
    """All threads find an index that is 10 more than what their array holds: no two of them are to be mixed."""
    try:
        elements(numbers + 1, numbers + 11)
    except IndexError as error:
        index, extent = (int(number) for number in re.findall(r"index (\d+) .* extent (\d+)", str(error))[0])
        assert index == extent + 10, error
        return
    raise AssertionError("no index was out of range")


if __name__ == "__main__":
    folder = Path(__file__).parent
    sys.path[:0] = [str(folder), str(folder.parent / "kernel"), str(folder.parent / "contraction")]
    _child(sys.argv[1], json.loads(sys.argv[2]))
