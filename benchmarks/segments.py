"""Sums, scans, filters, scatters and histograms, of one segment and of many, on the CPU beside NumPy and numba.

    python benchmarks/segments.py [--threads N] [--name 'scan*'] [--scale 0.01]

Times are the processor's with one thread, the wall clock's with several. numba's programs are plain loops, compiled
with `fastmath` where they add floats, and run by one thread. Results are compared with NumPy's in double precision.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support import describe_machine, interleaved, settling, summary, with_best_settings, write_results


@dataclass(frozen=True)
class Case:
    """Functions of the same arrays: ours, NumPy's, numba's (None: there is none here), and the wanted result."""

    name: str
    ours: Callable[[], Any]
    numpy: Callable[[], Any]
    numba: Callable[[], Any] | None
    wanted: Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="*", help="cases, with *, separated by commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each contender of each case")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of elements")
    parser.add_argument("--output", default="", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


def cases(scale: float) -> list[Case]:
    """All cases."""
    import numpy as np

    import tilewright as tw

    loops = _numba_loops()

    @tw.program
    def total(x: tw.f32["n"]) -> Any:
        return tw.reduce("add", 0, x)

    @tw.program(flattening="full")
    def rows(x: tw.f32["n", "m"]) -> Any:
        return tw.map(lambda row: tw.reduce("add", 0, row), x)

    @tw.program
    def scan_floats(x: tw.f32["n"]) -> Any:
        return tw.scan("add", 0, x)

    @tw.program
    def scan_integers(x: tw.i64["n"]) -> Any:
        return tw.scan("add", 0, x)

    @tw.program(flattening="full")
    def scan_rows(x: tw.f32["n", "m"]) -> Any:
        return tw.map(lambda row: tw.scan("add", 0, row), x)

    @tw.program
    def largest_so_far(x: tw.f32["n"], y: tw.f32["n"]) -> Any:
        return tw.map(lambda top, b: top - b, tw.scan("max", -np.inf, x), y)

    @tw.program
    def filtered(x: tw.f32["n"]) -> Any:
        flags = tw.map(lambda e: e > 0.5, x)
        ends = tw.scan("add", 0, tw.map(lambda flag: flag.astype("i64"), flags))
        places = tw.map(lambda flag, end: tw.where(flag, end - 1, -1), flags, ends)
        return tw.scatter(tw.replicate(x.shape[0], 0, "f32"), places, x)

    @tw.program
    def scattered(order: tw.i64["n"], x: tw.f32["n"]) -> Any:
        return tw.scatter(tw.replicate(x.shape[0], 0, "f32"), order, x)

    @tw.program
    def between(x: tw.f32["e"], starts: tw.i64["r"], rows: tw.i8["q"]) -> Any:
        first = tw.scatter(tw.replicate(x.shape[0], False), starts, True)

        def add(one: Any, two: Any) -> Any:
            return tw.where(two[1], two[0], one[0] + two[0]), one[1] | two[1]

        sums, _ = tw.scan(add, (0.0, False), x, first)

        def row(i: Any) -> Any:
            start, end = starts[i], starts[i + 1]
            return tw.cond(end > start, lambda: sums[end - 1], 0.0)

        return tw.map(row, tw.iota(rows.shape[0]))

    @tw.program
    def counts(at: tw.i64["n"]) -> Any:
        return tw.hist("add", 0, 256, at, tw.replicate(at.shape[0], 1))

    @tw.program
    def weights(at: tw.i64["n"], x: tw.f64["n"]) -> Any:
        return tw.hist("add", 0.0, 256, at, x)

    random = np.random.default_rng(5)
    few, many = max(1, int(1e7 * scale)), max(1, int(2**24 * scale))
    side = max(1, int(4096 * scale**0.5))
    x, long = random.random(few, np.float32), random.random(many, np.float32)
    matrix, integers = random.random((side, side), np.float32), random.integers(0, 99, many)
    order = random.permutation(few)
    starts = np.arange(0, few + 1, 10)
    none = np.zeros(len(starts) - 1, np.int8)
    ordered = np.empty_like(x)
    ordered[order] = x
    picked = np.zeros_like(x)
    picked[: np.count_nonzero(x > 0.5)] = x[x > 0.5]
    tops = np.maximum.accumulate(x) - x[::-1]
    at, heavy = random.integers(0, 256, few), random.random(few)

    def case(name: str, program: Any, numpy: Callable[..., Any], wanted: Any, *given: Any) -> Case:
        loop = loops.get(name)
        numba = None if loop is None else lambda: loop(*given)
        return Case(name, lambda: program(*given), lambda: numpy(*given), numba, wanted)

    wide = np.float64
    return [
        case("sum", total, np.sum, x.sum(dtype=wide), x),
        case("sums of rows", rows, lambda a: a.sum(1), matrix.sum(1, dtype=wide), matrix),
        case("sums of columns", rows, lambda a: a.sum(1), matrix.T.sum(1, dtype=wide), matrix.T),
        case("scan of floats", scan_floats, np.cumsum, np.cumsum(long, dtype=wide), long),
        case("scan of integers", scan_integers, np.cumsum, np.cumsum(integers), integers),
        case("scans of rows", scan_rows, lambda a: np.cumsum(a, 1), np.cumsum(matrix, 1, dtype=wide), matrix),
        case("scans of columns", scan_rows, lambda a: np.cumsum(a, 1), np.cumsum(matrix.T, 1, dtype=wide), matrix.T),
        case("map of a scan", largest_so_far, lambda a, b: np.maximum.accumulate(a) - b, tops, x, x[::-1].copy()),
        case("filter", filtered, lambda a: _padded(a[a > 0.5], len(a)), picked, x),
        case("scatter", scattered, _scattered, ordered, order, x),
        case(
            "between offsets",
            between,
            lambda a, s, _: np.add.reduceat(a, s[:-1]),
            np.add.reduceat(x[: starts[-1]].astype(wide), starts[:-1]),
            x[: starts[-1]],
            starts,
            none,
        ),
        case("counts", counts, lambda a: np.bincount(a, minlength=256), np.bincount(at, minlength=256), at),
        case("weights", weights, lambda a, w: np.bincount(a, w, 256), np.bincount(at, heavy, 256), at, heavy),
    ]


def _padded(values: Any, count: int) -> Any:
    import numpy as np

    return np.concatenate([values, np.zeros(count - len(values), values.dtype)])


def _scattered(order: Any, values: Any) -> Any:
    import numpy as np

    result = np.zeros_like(values)
    result[order] = values
    return result


def _numba_loops() -> dict[str, Callable[..., Any]]:
    """The same as loops, where numba is installed."""
    try:
        import numba
    except ImportError:
        print("numba is not installed")
        return {}
    import numpy as np

    def total(x: Any) -> Any:
        result = np.float32(0)
        for i in range(len(x)):
            result += x[i]
        return result

    def sums(x: Any) -> Any:
        result = np.zeros(x.shape[0], x.dtype)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                result[i] += x[i, j]
        return result

    def scan(x: Any) -> Any:
        result = np.empty_like(x)
        running = x[0] - x[0]
        for i in range(len(x)):
            running += x[i]
            result[i] = running
        return result

    def filtered(x: Any) -> Any:
        result, count = np.zeros_like(x), 0
        for i in range(len(x)):
            result[count] = x[i]
            count += x[i] > 0.5
        result[count:] = 0
        return result

    def scattered(order: Any, x: Any) -> Any:
        result = np.zeros_like(x)
        for i in range(len(x)):
            result[order[i]] = x[i]
        return result

    def between(x: Any, starts: Any, rows: Any) -> Any:
        result = np.empty(len(rows), x.dtype)
        for i in range(len(rows)):
            total = np.float32(0)
            for k in range(starts[i], starts[i + 1]):
                total += x[k]
            result[i] = total
        return result

    def counts(at: Any) -> Any:
        result = np.zeros(256, np.int64)
        for i in range(len(at)):
            result[at[i]] += 1
        return result

    def weights(at: Any, x: Any) -> Any:
        result = np.zeros(256)
        for i in range(len(at)):
            result[at[i]] += x[i]
        return result

    fast, exact = numba.njit(fastmath=True), numba.njit
    return {
        "sum": fast(total), "sums of rows": fast(sums), "scan of floats": exact(scan), "scan of integers": exact(scan),
        "filter": exact(filtered), "scatter": exact(scattered), "between offsets": fast(between),
        "counts": exact(counts), "weights": exact(weights),
    }  # fmt: skip


def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """One row: times, and how far the results are from the wanted one, relative to the largest of it."""
    import numpy as np

    functions = {"tilewright": case.ours, "numpy": case.numpy}
    if case.numba is not None:
        functions["numba"] = case.numba
    largest = float(np.abs(case.wanted).max())
    errors = {name: float(np.abs(np.asarray(one()) - case.wanted).max()) / largest for name, one in functions.items()}
    clock = time.process_time if options.threads == 1 else time.perf_counter
    times = interleaved(functions, options.seconds, clock, settling(options.threads))
    figures = {name: {**summary(found), "error": errors[name]} for name, found in times.items()}
    return {"name": case.name, "contenders": figures}


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    import tilewright as tw

    tw.set_num_threads(options.threads)
    rows = []
    for case in cases(options.scale):
        if any(fnmatch.fnmatch(case.name, pattern) for pattern in options.name.split(",")):
            row = measure(case, options)
            rows.append(row)
            shown = "".join(
                f"{name:>12} {1e3 * one['best']:8.2f} ms, off {one['error']:.0e}"
                for name, one in row["contenders"].items()
            )
            print(f"{case.name:<18}{shown}", flush=True)
    content = {"machine": describe_machine(), "settings": changed, "threads": options.threads, "rows": rows}
    name = options.output or f"segments-cpu-{options.threads}thread{'s' if options.threads > 1 else ''}"
    print(f"written: {write_results(name, content)}")
    return 0 if all(row["contenders"]["tilewright"]["error"] < 1e-3 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
