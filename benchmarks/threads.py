"""What a second thread brings: matrix products and contractions on one and on two threads, and what a launch costs.

    python benchmarks/threads.py [--dtype f32,f64] [--seconds 1] [--name 'gemm_*'] [--quiet-only]

Measured twice: as the machine is, and while a process of our own keeps one core half busy (5 ms of every 10). One
thread and two are called in turns and timed with the wall clock; the ratio is of medians (of bests: `ratio_best`), and
beside the half-busy core of means, since a call then meets the other process or does not. There a turn is as many calls
as fill five periods of the other process: calls that take turns singly meet its halves in a step of their own length,
and then the mean says as much of that step as of the threads (of calls of 5 ms two perfect threads would be 1.26 times
as fast as one, of 2.5 ms 1.40 times). The ideal is 2 on a quiet machine, and 1.5 beside a core that is half busy, for
one thread then has a core of its own: the goal is nine tenths of that. "over quiet" is the same over the time of one
thread on the quiet machine. With the right to do so (root), the other process has real-time priority, so that it takes
its half whatever we do.
"others" says how busy other processes kept the machine's cores meanwhile, without our own: these figures are worth
nothing where that is more than a few hundredths. "effort" is: it is the processor time that two threads take together,
divided by that of one, which is what the sharing itself costs (packing twice, waiting for each other, shared caches).

"launch": microseconds for sharing out blocks that do nothing between two threads, right after the last launch, and
after pauses in which the worker is still looking for work (5 us), or asleep (2 ms).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fnmatch
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support import HERE, describe_machine, geometric_mean, interleaved, with_best_settings, write_results

CONTRACTIONS = ("tccg_05", "tccg_21", "sd1_1")
PRODUCTS = (128, 256, 512, 1024, 2048)
LONG_SUMS = {  # few results: the sum is split
    "sum_16x16": ("ki,kj->ij", dict(k=1_000_000, i=16, j=16)),
    "sum_64x64": ("ki,kj->ij", dict(k=100_000, i=64, j=64)),
    "sum_3x16x16": ("bki,bkj->bij", dict(b=3, k=100_000, i=16, j=16)),
    "sum_dot": ("ijk,ijk->", dict(i=100, j=100, k=500)),
    "sum_columns": ("ki,k->i", dict(k=100_000, i=100)),
}
TURN = 0.05  # seconds of a turn beside the half-busy core
HALF_BUSY = """
import os, sys, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(25))
except (AttributeError, OSError):
    pass
parent = os.getppid()
print("ready", flush=True)
while os.getppid() == parent:
    end = time.perf_counter() + 0.005
    while time.perf_counter() < end:
        pass
    time.sleep(0.005)
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="f32,f64")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each number of threads of each case")
    parser.add_argument("--name", default="*")
    parser.add_argument("--quiet-only", action="store_true", help="without the half-busy core")
    parser.add_argument("--output", default="threads", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


def cases(pattern: str) -> Iterator[tuple[str, str, dict[str, int]]]:
    """(name, expression, sizes)."""
    every = [(f"gemm_{n}", "ij,jk->ik", dict.fromkeys("ijk", n)) for n in PRODUCTS]
    listed = {one["name"]: one for one in json.loads((HERE / "contractions.json").read_text())}
    every += [(name, listed[name]["expr"], listed[name]["sizes"]) for name in CONTRACTIONS]
    every += [(name, *one) for name, one in LONG_SUMS.items()]
    return (one for one in every if fnmatch.fnmatch(one[0], pattern))


@contextlib.contextmanager
def half_busy_core() -> Iterator[subprocess.Popen[str]]:
    """A process that keeps one core busy half of the time, in turns of 5 ms; it ends with the block, or with us."""
    process = subprocess.Popen([sys.executable, "-c", HALF_BUSY], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


class Others:
    """How busy other processes keep the cores: of all processor time, the share that is neither ours nor idle."""

    def __init__(self) -> None:
        self.start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        try:
            fields = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        except OSError:  # not Linux
            return math.nan, math.nan, math.nan
        ticks = os.sysconf("SC_CLK_TCK")
        return (sum(fields[:8]) - fields[3] - fields[4]) / ticks, sum(fields[:8]) / ticks, time.process_time()

    def share(self) -> float:
        """Since this object was made."""
        busy, every, own = (new - old for new, old in zip(self._now(), self.start, strict=True))
        return max(0.0, busy - own) / every if every else math.nan


def in_long_turns(contenders: dict[str, Callable[[], None]], seconds: float) -> dict[str, list[float]]:
    """Times of every call, in turns of TURN seconds, for about `seconds` each."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(max(2, round(seconds / TURN))):
        for name, call in contenders.items():
            start = now = time.perf_counter()
            while now - start < TURN:
                call()
                before, now = now, time.perf_counter()
                times[name].append(now - before)
    return times


def measure(text: str, sizes: dict[str, int], dtype: str, seconds: float, long_turns: bool) -> dict[str, Any]:
    """One thread and two in turns."""
    import numpy as np

    import tilewright as tw

    generator = np.random.default_rng(0)
    terms = text.split("->", maxsplit=1)[0].split(",")
    a, b = (generator.uniform(-1, 1, [sizes[one] for one in term]).astype(dtype) for term in terms)
    out = np.zeros_like(tw.einsum(text, a, b))

    spent: dict[int, list[float]] = {1: [], 2: []}

    def caller(threads: int) -> Callable[[], None]:
        def call() -> None:
            with tw.num_threads(threads):
                start = time.process_time()
                tw.einsum(text, a, b, out=out)
                spent[threads].append(time.process_time() - start)

        return call

    contenders = {"1": caller(1), "2": caller(2)}
    for _ in range(4):  # short cuts are learned from the first calls
        for call in contenders.values():
            call()
    others = Others()
    times = in_long_turns(contenders, seconds) if long_turns else interleaved(contenders, seconds)
    gflop = 2e-9 * math.prod(sizes.values())
    return {
        "gflops_1": gflop / statistics.median(times["1"]),
        "gflops_2": gflop / statistics.median(times["2"]),
        "ratio": statistics.median(times["1"]) / statistics.median(times["2"]),
        "mean_1": statistics.fmean(times["1"]),
        "mean_2": statistics.fmean(times["2"]),
        "ratio_best": min(times["1"]) / min(times["2"]),
        "effort": statistics.median(spent[2]) / statistics.median(spent[1]),
        "runs": len(times["2"]),
        "others": others.share(),
    }


def launches() -> list[dict[str, Any]]:
    """What it costs to share out blocks that do nothing."""
    import numpy as np

    from tilewright.ir.scalars import I64
    from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Store
    from tilewright.runtime.cpu_jit import compile_kernel
    from tilewright.runtime.cpu_pool import prepare

    y = Buffer("y", I64)
    native = compile_kernel(Kernel("numbered", (y,), (), (), (Store(y, BlockIndex(), BlockIndex()),)))
    out = np.zeros(4, np.int64)
    block = (ctypes.c_int64 * 1)(out.ctypes.data)
    rows = []
    for threads in (1, 2):
        call = prepare(native, block, 4, threads)
        for pause, rounds in ((0.0, 20000), (5e-6, 5000), (2e-3, 300)):
            times = []
            for _ in range(rounds):
                _wait(pause)
                start = time.perf_counter()
                call()
                times.append(1e6 * (time.perf_counter() - start))
            times.sort()
            rows.append({"what": "launch", "threads": threads, "pause": pause, "median": statistics.median(times),
                         "p05": times[len(times) // 20], "p95": times[-len(times) // 20]})  # fmt: skip
    return rows


def _wait(pause: float) -> None:
    if pause >= 1e-3:
        time.sleep(pause)
    else:
        end = time.perf_counter() + pause
        while time.perf_counter() < end:
            pass


def shown(row: dict[str, Any]) -> str:
    """A row for a person."""
    if row["what"] == "launch":
        return (
            f"launch on {row['threads']} after {1e6 * row['pause']:6.0f} us: {row['median']:6.2f} us"
            f" ({row['p05']:.2f} to {row['p95']:.2f})"
        )
    quiet = f"   over quiet {row['over_quiet']:.2f}" if "over_quiet" in row else ""
    return (
        f"{row['what']:<12}{row['dtype']:<5}{row['machine']:<10}{row['gflops_1']:8.1f}{row['gflops_2']:8.1f} GFLOP/s"
        f"{row['ratio']:7.2f} (best {row['ratio_best']:.2f}) = {row['share_of_ideal']:.0%} of {row['ideal']}"
        f"   effort {row['effort']:.2f}   others {row['others']:.2f}{quiet}"
    )


def main() -> int:
    changed = with_best_settings(2)
    options = arguments()
    rows: list[dict[str, Any]] = []
    states: list[tuple[str, float, Callable[[], contextlib.AbstractContextManager[Any]]]] = [
        ("quiet", 2.0, contextlib.nullcontext)
    ]
    if not options.quiet_only:
        states.append(("half busy", 1.5, half_busy_core))
    quiet: dict[tuple[str, str], float] = {}
    for state, ideal, around in states:
        with around():
            for name, text, sizes in cases(options.name):
                for dtype in options.dtype.split(","):
                    element = {"f32": "float32", "f64": "float64"}[dtype]
                    found = measure(text, sizes, element, options.seconds, long_turns=ideal < 2)
                    quiet[name, dtype] = quiet.get((name, dtype), found["mean_1"])
                    if ideal < 2:
                        found["ratio"] = found["mean_1"] / found["mean_2"]
                        found["over_quiet"] = quiet[name, dtype] / found["mean_2"]
                    share = {"ideal": ideal, "share_of_ideal": found["ratio"] / ideal}
                    rows.append({"what": name, "dtype": dtype, "machine": state, **found, **share})
                    print(shown(rows[-1]), flush=True)
        mean = geometric_mean([one["ratio"] for one in rows if one["machine"] == state])
        print(f"{state}: geometric mean of the ratios {mean:.2f}, ideal {ideal}")
    for row in launches():
        rows.append(row)
        print(shown(row))
    content = {"machine": describe_machine(), "settings": changed, "rows": rows}
    print(f"written: {write_results(options.output, content)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
