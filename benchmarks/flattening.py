"""Versions of incrementally flattened programs: each forced, the one that the model picks, and the tuned choice [S2].

    python benchmarks/flattening.py --plot                # matrices 2^n x 2^m and 2^m x 2^n, m = 25 - 2n, on the CPU
    python benchmarks/flattening.py --target opencl --total 18
    python benchmarks/flattening.py --family locvolcalib --steps 3
    python benchmarks/flattening.py --tiled --plot        # with the tiled contraction; --plot: also results/....svg

The work of a product is the same for every n; what changes is how much of it is outer parallelism. One tuning serves
all n: the goal is a tuned program within 5% of the best forced version at each of them. Every result is compared with
NumPy's (or, for LocVolCalib, with that of the first version).

All contenders are timed in turns and compared in pairs: `ratios` are the medians of the tuned program's time over a
version's in the same round, with their 99% intervals (`tilewright.tune.races`). Contenders that launch the same kernels
for a data set are one program there and are timed once. The best version is that of the smallest median; the tuned
program is "beaten" by another version where the whole interval lies above 1. Those that are near the best (`NEAR`) run
in turns once more, `ROUNDS` times at the least, since few rounds cannot tell them apart.
"""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from support import HERE, describe_machine, geometric_mean, interleaved, summary, write_results

import tilewright as tw
from tilewright.passes.compile import compile_program
from tilewright.passes.flattening.flatten_tree import explain_versions, version_settings
from tilewright.runtime.devices import Device, device_for
from tilewright.runtime.executable import Executable
from tilewright.runtime.thresholds import resolved
from tilewright.tune.races import Spread, spread_of_ratio
from tilewright.tune.store import TuningStore
from tilewright.tune.tuner import Timing, tune

GOAL = 1.05
CONFIDENCE = 0.99
NEAR, ROUNDS = 1.1, 25


@tw.program
def matmul(a: tw.f32["n", "k"], b: tw.f32["k", "m"]) -> Any:
    def dot(row: Any, column: Any) -> Any:
        return tw.reduce("add", 0, tw.map(lambda x, y: x * y, row, column))

    return tw.map(lambda row: tw.map(lambda column: dot(row, column), tw.transpose(b)), a)


def products(total: int) -> dict[str, tuple[Any, ...]]:
    """Operands by n: 2^n x 2^(total - 2n) and the other way round."""
    random = np.random.default_rng(0)
    made = {}
    for n in range(total // 2 + 1):
        m = total - 2 * n
        made[f"n={n}"] = tuple(random.uniform(-1, 1, shape).astype("f4") for shape in ((2**n, 2**m), (2**m, 2**n)))
    return made


def locvolcalib(steps: int) -> tuple[Any, dict[str, tuple[Any, ...]]]:
    """The program of examples/locvolcalib.py, and FinPar's three data sets, the largest with so many points of time.

    The smaller ones have as many as make the same work, at most their own number: what a launch costs counts there.
    """
    sys.path.insert(0, str(HERE.parent / "examples"))
    import locvolcalib as example

    own = {name: example._SIZES[name] for name in ("small", "medium", "large")}
    points = {name: math.prod(one[:3]) for name, one in own.items()}
    rounds = {name: min(one[3] - 1, (steps - 1) * points["large"] // points[name]) for name, one in own.items()}
    data = {name: example._arguments(*one[:3], rounds[name] + 1) for name, one in own.items()}
    return example.locvolcalib.trace(), data


def forced(executable: Executable) -> dict[str, Executable]:
    """Every version by its number: thresholds at 0 or without limit; what fits a block is left to the machine."""
    settings = version_settings(executable.program)
    limits = {name: value for name, value in executable.thresholds.items() if name.endswith("_per_block")}
    return {f"version {n}": executable.with_thresholds({**one, **limits}) for n, one in enumerate(settings)}


def launched(executable: Executable, arguments: tuple[Any, ...]) -> object:
    """What tells versions apart: the kernels that a run launches and their blocks, or else its comparisons' answers."""
    executable(*arguments)
    found = executable.launched(*arguments)
    if found is not None:
        return found
    values = resolved(executable.thresholds, executable.inside(*arguments))
    return frozenset((name, value >= values[name]) for name, value in executable.comparisons(*arguments))


def runs(executable: Executable, arguments: tuple[Any, ...]) -> Any:
    """What a version gives; None, with the reason on the screen, if it fails."""
    try:
        return executable(*arguments)
    except (ValueError, RuntimeError, MemoryError) as error:
        print(f"    left out: {type(error).__name__}: {str(error)[:100]}")
        return None


def measure(
    executable: Executable, data: dict[str, tuple[Any, ...]], timing: Timing, expected: Callable[..., Any] | None
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """For each data set the times of all versions, of the model's choice and of the tuned one; the tuned thresholds."""
    with tempfile.TemporaryDirectory() as folder:
        store = TuningStore(Path(folder) / "tunings.sqlite3")
        report = tune(executable, data, cost="mean", timing=timing, store=store)
    print(report)
    contenders = {**forced(executable), "model": executable, "tuned": executable.with_thresholds(report.thresholds)}
    rows = []
    for name, arguments in data.items():
        usable, wanted = {}, None if expected is None else expected(*arguments)
        for contender, one in contenders.items():
            result = runs(one, arguments)
            if result is None:
                continue
            wanted = result if wanted is None else wanted
            np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-3 * float(np.max(np.abs(wanted))))
            usable[contender] = partial(one, *arguments)
        ways = {one: launched(contenders[one], arguments) for one in usable}
        first = {one: next(other for other in usable if ways[other] == ways[one]) for one in usable}
        found = [interleaved({one: usable[one] for one in dict.fromkeys(first.values())}, timing.seconds, timing.clock)]
        medians = {one: summary(mine)["median"] for one, mine in found[0].items()}
        near = [one for one in medians if medians[one] <= NEAR * min(medians.values()) or one == first["tuned"]]
        found.append(interleaved({one: usable[one] for one in near}, timing.seconds, timing.clock, least=ROUNDS))

        def ratio(one: str, other: str, found: list[dict[str, list[float]]] = found) -> Spread:
            together = found[all(name in found[1] for name in (one, other))]
            return spread_of_ratio(together[one], together[other], CONFIDENCE)

        times = {one: summary(found[first[one] in near][first[one]]) for one in usable}
        versions = [one for one in times if one.startswith("version")]
        best = min((one for one in versions if first[one] in near), key=lambda one: times[one]["median"])
        picked = {one: first[one] for one in ("model", "tuned")}
        ratios = {one: ratio(first["tuned"], first[one]) for one in versions}
        beaten = [one for one in versions if ratios[one].low > 1]
        to_best = {one: ratio(first[one], first[best]).median for one in picked}
        rows.append({
            "data": name, "times": times, "same": first, "best": first[best], "picked": picked, **to_best,
            "ratios": {one: [ratio.low, ratio.median, ratio.high] for one, ratio in ratios.items()}, "beaten": beaten,
        })  # fmt: skip
        tell(rows[-1], ratios[best])
    return rows, dict(report.thresholds)


def tell(row: dict[str, Any], tuned: Spread) -> None:
    """A row on the screen."""
    shown = "  ".join(f"{one} {1e6 * found['median']:.0f}" for one, found in row["times"].items())
    print(f"{row['data']}: medians {shown} us\n    best {row['best']}; tuned is {row['picked']['tuned']}, "
          f"{tuned.median:.3f} ({tuned.low:.3f} to {tuned.high:.3f}) times it, beaten by {row['beaten'] or 'none'}; "
          f"model is {row['picked']['model']}, {row['model']:.3f} times it")  # fmt: skip


def plot(path: Path, rows: list[dict[str, Any]], title: str) -> Path:
    """The times of all contenders at each data set."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tilewright"
    figure, axis = pyplot.subplots(figsize=(9, 4.5))
    for contender in rows[0]["times"]:
        mine = [
            (place, row["times"][contender]["median"]) for place, row in enumerate(rows) if contender in row["times"]
        ]
        style = "k-" if contender == "tuned" else "k:" if contender == "model" else "o--"
        axis.plot([place for place, _ in mine], [1e3 * time for _, time in mine], style, label=contender)
    axis.set_xticks(range(len(rows)), [row["data"] for row in rows])
    axis.set_yscale("log")
    axis.set_ylabel("milliseconds")
    axis.set_title(title)
    axis.legend(fontsize="small")
    figure.tight_layout()
    target = path.with_suffix(".svg")
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)
    return target


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=["matmul", "locvolcalib"], default="matmul")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--total", type=int, default=25, help="n + m + n of the products")
    parser.add_argument("--steps", type=int, default=3, help="points of time of the large LocVolCalib")
    parser.add_argument("--tiled", action="store_true", help="with the contraction as one of the versions")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender and data set")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for the tuning, with what it compiles")
    parser.add_argument("--threads", type=int, default=0, help="threads of the CPU; 0 for all")
    parser.add_argument("--cpu-time", action="store_true", help="time of the process: one thread on a busy machine")
    parser.add_argument("--name", help="of the result file")
    parser.add_argument("--plot", action="store_true")
    return parser.parse_args()


def benchmark(given: argparse.Namespace, device: Device) -> dict[str, Any]:
    """The results as they are written."""
    if given.family == "matmul":
        program, data, expected = matmul.trace(), products(given.total), np.matmul
    else:
        program, data = locvolcalib(given.steps)
        expected = None
    timing = Timing(3, given.seconds, time.process_time if given.cpu_time else time.perf_counter, given.budget)
    executable = compile_program(program, device, flattening="incremental", contractions=given.tiled)
    print(explain_versions(executable.program, executable.thresholds))
    rows, thresholds = measure(executable, data, timing, expected)
    return {
        "machine": describe_machine(), "target": f"{device.name}: {device.description}", "family": given.family,
        "total": given.total, "cpu_time": given.cpu_time, "tiled": given.tiled, "threads": tw.get_num_threads(),
        "thresholds": thresholds,
        "versions": explain_versions(executable.program), "rows": rows,
    }  # fmt: skip


def main() -> int:
    given = options()
    if given.threads:
        tw.set_num_threads(given.threads)
    device = device_for(given.target)
    content = benchmark(given, device)
    tuned = [row["tuned"] for row in content["rows"]]
    model = [row["model"] for row in content["rows"]]
    within = sum(one <= GOAL for one in tuned)
    print(
        f"tuned over best: {geometric_mean(tuned):.3f} (worst {max(tuned):.2f}); within 5% at {within} of {len(tuned)}"
    )
    print(f"beaten by a version: {[row['data'] for row in content['rows'] if row['beaten']] or 'nowhere'}")
    print(f"model over best: {geometric_mean(model):.3f} (worst {max(model):.2f})")
    name = given.name or f"flattening-{given.family}-{device.machine.kind}{'-tiled' if given.tiled else ''}"
    path = write_results(name, content)
    print(f"written: {path}")
    if given.plot:
        print(f"written: {plot(path, content['rows'], f'{given.family} on {device.name}')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
