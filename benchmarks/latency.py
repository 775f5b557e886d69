"""How long one waits: for importing, for the first call of a contraction, and for a call on arrays of hardly any size.

    python benchmarks/latency.py

First calls are measured in fresh processes, with an empty cache of programs on disk and with a filled one; warm calls
in one process, in turns with NumPy.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from typing import Any

from support import describe_machine, interleaved, summary, with_best_settings, write_results

PROCESSES = 5
IMPORT = "import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
FIRST = """
import time
import numpy as np
import tilewright as tw
a, b = (np.ones(shape, np.float32) for shape in {shapes})
start = time.perf_counter()
{function}({expression!r}, a, b)
print(time.perf_counter() - start)
"""


def fresh(script: str, cache: str) -> float:
    """What a script prints, in a process of its own."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def first_calls(expression: str, shapes: list[tuple[int, ...]], processes: int = PROCESSES) -> dict[str, float]:
    """Median seconds of a first call: with an empty cache, with a filled one, and NumPy's."""
    ours = FIRST.format(expression=expression, shapes=shapes, function="tw.einsum")
    theirs = FIRST.format(expression=expression, shapes=shapes, function="np.einsum")
    empty, filled, numpy = [], [], []
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as cache:
            empty.append(fresh(ours, cache))
            filled.append(fresh(ours, cache))
            numpy.append(fresh(theirs, cache))
    return {name: statistics.median(v) for name, v in (("empty", empty), ("filled", filled), ("numpy", numpy))}


def warm_calls() -> list[dict[str, Any]]:
    """Calls on 8 x 8 arrays; each measurement is of 100 calls."""
    import numpy as np

    import tilewright as tw

    rows = []
    for dtype in (np.float32, np.float64):
        a, b = (np.ones((8, 8), dtype) for _ in range(2))
        out = np.empty((8, 8), dtype)
        plan = tw.plan("ij,jk->ik", (8, 8), (8, 8), dtype=dtype)
        functions = {
            "tw.einsum": partial(tw.einsum, "ij,jk->ik", a, b),
            "tw.einsum out=": partial(tw.einsum, "ij,jk->ik", a, b, out=out),
            "plan": partial(plan, a, b),
            "plan out=": partial(plan, a, b, out=out),
            "np.einsum": partial(np.einsum, "ij,jk->ik", a, b),
            "np.matmul": partial(np.matmul, a, b),
        }
        times = interleaved({name: partial(_hundred, function) for name, function in functions.items()}, 0.5)
        for name, found in times.items():
            rows.append({"what": f"{name}, 8 x 8 {np.dtype(dtype).name}", **summary([one / 100 for one in found])})
    return rows


def _hundred(function: Any) -> None:
    for _ in range(100):
        function()


def main() -> int:
    changed = with_best_settings(1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        first_calls("ij,jk->ik", [(8, 8), (8, 8)], processes=1)  # leaves the byte code of all modules
        for module in ("tilewright", "tilewright.frontend.einsum", "tilewright.cli.main", "numpy"):
            times = [fresh(IMPORT.format(module=module), cache) for _ in range(PROCESSES)]
            rows.append({"what": f"import {module}", **summary(times)})
    for expression, shapes in (
        ("ij,jk->ik", [(8, 8), (8, 8)]),
        ("ij,jk->ik", [(256, 256), (256, 256)]),
        ("icaq,qbjk->abcijk", [(8, 8, 8, 8), (8, 8, 8, 8)]),
    ):
        found = first_calls(expression, shapes)
        for name, seconds in found.items():
            which = "np.einsum" if name == "numpy" else f"tw.einsum, {name} cache"
            rows.append({"what": f"first {expression} of {shapes[0]}: {which}", "median": seconds, "runs": PROCESSES})
    rows += warm_calls()
    for row in rows:
        print(f"{row['what']:<70}{_shown(row['median']):>12}")
    content = {"machine": describe_machine(), "settings": changed, "rows": rows}
    print(f"written: {write_results('latency', content)}")
    return 0


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
