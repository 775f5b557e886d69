"""How long one waits: for importing, for the first call of a contraction, and for a call on arrays of hardly any size.

    python benchmarks/latency.py

First calls are measured in fresh processes that have imported NumPy and `tilewright` and have their byte code on the
disk: with an empty cache of programs (the call compiles), with a filled one (it takes what another process compiled),
and each of these once more with the modules that it needs imported beforehand. Given are the time on the clock, the
processor time of all threads, and how many modules the call imported. Warm calls are measured in one process, in turns
with NumPy. Products of matrices written as a program are called in turns with the einsum, on one thread: `ratio` is the
median of the pairs.
"""

from __future__ import annotations

import json
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
import json
import sys
import time
import numpy as np
import tilewright as tw
{before}
a, b = (np.ones(shape, np.float32) for shape in {shapes})
modules = len(sys.modules)
start = time.perf_counter(), time.process_time()
{function}({expression!r}, a, b)
end = time.perf_counter(), time.process_time()
print(json.dumps([end[0] - start[0], end[1] - start[1], len(sys.modules) - modules]))
"""
LOADER = "import tilewright.frontend.einsum"
COMPILER = f"{LOADER}, tilewright.frontend.einsum_calls, tilewright.passes.compile, llvmlite.binding"
WAYS = {  # what is called, what is imported beforehand, and whether the cache is filled
    "tw.einsum, empty cache": ("tw.einsum", "", False),
    "tw.einsum, empty cache, modules imported": ("tw.einsum", COMPILER, False),
    "tw.einsum, filled cache": ("tw.einsum", "", True),
    "tw.einsum, filled cache, modules imported": ("tw.einsum", LOADER, True),
    "np.einsum": ("np.einsum", "", False),
}


def fresh(script: str, cache: str) -> Any:
    """What a script prints, in a process of its own."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def first_calls(expression: str, shapes: list[tuple[int, ...]], processes: int = PROCESSES) -> list[dict[str, Any]]:
    """For each way the median seconds of a first call, on the clock and on all processors, and the modules imported."""
    found: dict[str, list[Any]] = {name: [] for name in WAYS}
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as filled:
            scripts = {
                name: FIRST.format(expression=expression, shapes=shapes, function=function, before=before)
                for name, (function, before, _) in WAYS.items()
            }
            fresh(scripts["tw.einsum, empty cache"], filled)
            for name, script in scripts.items():
                with tempfile.TemporaryDirectory() as empty:
                    found[name].append(fresh(script, filled if WAYS[name][2] else empty))
    return [
        {
            "what": f"first {expression} of {shapes[0]}: {name}",
            "median": statistics.median(one[0] for one in runs),
            "median_processor": statistics.median(one[1] for one in runs),
            "modules": max(one[2] for one in runs),
            "runs": len(runs),
        }
        for name, runs in found.items()
    ]


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


def program_calls(seconds: float = 2.0) -> list[dict[str, Any]]:
    """A product of matrices by a program beside the same by `tw.einsum`; a measurement is of a millisecond at least."""
    import numpy as np
    from flattening import matmul

    import tilewright as tw

    rows = []
    for n in (64, 128, 256, 512, 1024, 2048):
        a, b = (np.random.default_rng(n).uniform(-1, 1, (n, n)).astype("f4") for _ in range(2))
        calls = max(1, 256 * 64**3 // n**3)

        def several(function: Any, calls: int = calls) -> None:
            for _ in range(calls):
                function()

        functions = {"program": partial(matmul, a, b), "tw.einsum": partial(tw.einsum, "ik,kj->ij", a, b)}
        with tw.num_threads(1):
            for function in functions.values():  # native entries are learned from the first calls
                several(function, 4)
            times = interleaved({name: partial(several, one) for name, one in functions.items()}, seconds)
        ratio = statistics.median(one / other for one, other in zip(*times.values(), strict=True))
        for name, found in times.items():
            one = summary([taken / calls for taken in found])
            rows.append({"what": f"{name}, {n} x {n} float32", **one} | ({"ratio": ratio} if name == "program" else {}))
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
        rows += first_calls(expression, shapes)
    rows += warm_calls() + program_calls()
    for row in rows:
        details = ""
        if "modules" in row:
            details = f"  (processor {_shown(row['median_processor'])}, {row['modules']} modules imported)"
        if "ratio" in row:
            details = f"  ({row['ratio']:.3f} times as long as the einsum)"
        print(f"{row['what']:<90}{_shown(row['median']):>12}{details}")
    content = {"machine": describe_machine(), "settings": changed, "rows": rows}
    print(f"written: {write_results('latency', content)}")
    return 0


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
