"""What the benchmarks share: peers' settings, the machine, error bounds, interleaved timing, and result files."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
READY = "TILEWRIGHT_BENCHMARK_READY"


def processor() -> tuple[str, set[str]]:
    """The processor's name and its features, as Linux tells them."""
    name, flags = platform.processor() or platform.machine(), set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
    except OSError:  # not Linux
        pass
    return name, flags


def with_best_settings(threads: int) -> dict[str, str]:
    """Start this script once more with the settings under which its peers are fastest; return those that changed.

    OpenBLAS and BLIS choose their kernels when they are loaded, and on processors newer than themselves they choose
    slow ones; MKL (in torch) does so on every processor that is not Intel's, unless its question is answered for it;
    glibc gives large arrays back to the system at every call, which costs all contenders page faults. XLA (in jax) has
    a thread for each core that it may use, whatever its flags say, so one thread means one core.
    """
    wanted = {f"{library}_NUM_THREADS": str(threads) for library in ("OPENBLAS", "OMP", "BLIS", "TBLIS", "MKL")}
    tunables = ("mmap_threshold=4294967296", "trim_threshold=8589934592", "hugetlb=1")
    wanted["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{one}" for one in tunables)
    if "avx512f" in processor()[1]:
        wanted |= {"OPENBLAS_CORETYPE": "SkylakeX", "BLIS_ARCH_TYPE": "0"}
    library = _answer_for_mkl()
    if library is not None:
        wanted["LD_PRELOAD"] = str(library)
    wanted["TILEWRIGHT_HURRY"] = "0"  # what is measured are kernels of their own, which other calls get in time
    if READY not in os.environ:
        found = {name: os.environ.get(name, "") for name in wanted}
        environment = {**os.environ, **wanted, READY: json.dumps(found)}
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)
    found = json.loads(os.environ[READY])
    shown = {**wanted, "LD_PRELOAD": "mkl_answer.so"} if "LD_PRELOAD" in wanted else wanted
    return {name: f"{shown[name]} (was {found[name] or 'unset'})" for name in wanted if wanted[name] != found[name]}


def _answer_for_mkl() -> Path | None:
    """A library that lets MKL take the kernels of this processor's features; None without a C compiler."""
    folder = Path(tempfile.gettempdir()) / f"tilewright-benchmarks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / "mkl_answer.so"
    if library.exists():
        return library
    text = "int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    try:
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return library


def describe_machine() -> dict[str, Any]:
    """The machine and the versions of what is compared."""
    from importlib import metadata

    versions = {}
    for package in (
        "tilewright",
        "numpy",
        "llvmlite",
        "torch",
        "pytblis",
        "jax",
        "etops",
        "numba",
        "pykeops",
        "cuda-bindings",
    ):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": processor()[0], "cores": os.cpu_count(), "system": platform.platform(),
        "python": platform.python_version(), "versions": versions, "commit": _commit(),
    }  # fmt: skip


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def write_results(name: str, content: Mapping[str, Any]) -> Path:
    """Write benchmarks/results/NAME.json, one row of results per line."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    rows = content.get("rows", [])
    head = json.dumps({key: value for key, value in content.items() if key != "rows"}, indent=1)
    lines = ",\n".join(json.dumps(row) for row in rows)
    path.write_text(f'{head.rstrip()[:-1].rstrip()},\n "rows": [\n{lines}\n ]\n}}\n')
    return path


def interleaved(
    contenders: Mapping[str, Callable[[], Any]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    settle: float = 0.0,
    least: int = 3,
) -> dict[str, list[float]]:
    """Times of every contender, called in turns (each round begins with another one) for about `seconds` each.

    There are `least` rounds at the least.

    With `settle` (see `settling`) a turn begins with a pause of so many seconds and a call that is not timed, and has
    several calls that are. With the clock of the process a turn begins when no other thread of it works, with a call
    that is not timed either: in a virtual machine what was not touched for a third of a second comes so slowly again,
    tables of pages too, that who followed a slow contender ran at 95 GFLOP/s instead of 145.
    """
    names = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in names}
    spent, rounds = 0.0, 0
    while rounds < least or spent < seconds * len(names):
        for place in range(len(names)):
            name = names[(place + rounds) % len(names)]
            if settle:
                time.sleep(settle)
                contenders[name]()
            if clock is time.process_time:
                let_others_finish()
                contenders[name]()
            taken = 0.0
            while taken == 0.0 or (settle and taken < settle / 3):
                start = clock()
                contenders[name]()
                times[name].append(clock() - start)
                taken += times[name][-1]
            spent += taken
        rounds += 1
    return times


def let_others_finish(pause: float = 0.002, patience: float = 0.5) -> None:
    """Wait until no other thread of this process works, whose time would be counted as that of the next contender.

    JAX ends a call before its threads have: who was measured next ran at 152 GFLOP/s by the time of the process, and at
    201 by the wall clock (16^7, one thread).
    """
    deadline = time.perf_counter() + patience
    while time.perf_counter() < deadline:
        before = time.process_time() - time.thread_time()
        time.sleep(pause)
        if time.process_time() - time.thread_time() - before < pause / 20 and not _others_wait_for_a_core():
            return


def _others_wait_for_a_core() -> bool:
    """Whether another thread of this process would work if other programs let it; as far as Linux tells."""
    own = str(threading.get_native_id())
    for stat in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if stat.parent.name != own and stat.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False


def settling(threads: int) -> float:
    """The seconds for which the pools of other contenders may still spin after their last call.

    OpenBLAS and OpenMP's runtimes spin for up to a tenth of a second (measured); meanwhile a contender with a pool of
    its own would get one core instead of two.
    """
    return 0.12 if threads > 1 else 0.0


def summary(times: list[float]) -> dict[str, float]:
    """Best and median of some times, in seconds."""
    return {"best": min(times), "median": statistics.median(times), "runs": len(times)}


def geometric_mean(values: list[float]) -> float:
    """The geometric mean; nan of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def sizes_within(sizes: Mapping[str, int], largest_gflop: float) -> dict[str, int]:
    """Sizes scaled down together until the contraction is no larger; multiples of 4 stay such from 16 on."""
    scaled, factor = dict(sizes), 1.0
    while 2e-9 * math.prod(scaled.values()) > largest_gflop and factor > 1e-3:
        factor *= 0.98
        scaled = {name: _scaled(extent, factor) for name, extent in sizes.items()}
    return scaled


def _scaled(extent: int, factor: float) -> int:
    new = max(1, round(extent * factor))
    return new // 4 * 4 if extent % 4 == 0 and new >= 16 else new
