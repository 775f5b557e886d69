"""Permutations of arrays on the CPU beside NumPy and torch, and beside a plain copy.

    python benchmarks/permutations.py [--threads N] [--name 'abc*']

Each contender writes into memory that it has written before: ours `einsum(..., out=)`, NumPy `copyto`, torch `copy_`.
Arrays are NumPy's own, whatever their alignment. The rate counts the bytes read and the bytes written; `share` is that
rate over the one of a copy without permutation (ours, past the caches) of an array of the same size. Results are
compared bit for bit.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from support import describe_machine, geometric_mean, interleaved, settling, summary, with_best_settings, write_results

CASES: list[tuple[str, tuple[int, ...], str]] = [
    ("ij->ji", (16, 16), "f4"), ("ij->ji", (32, 32), "f4"), ("ij->ji", (64, 64), "f8"), ("ij->ji", (128, 128), "f4"),
    ("ij->ji", (1024, 1024), "f4"), ("ij->ji", (4096, 4096), "f4"), ("ij->ji", (4095, 4097), "f4"),
    ("ij->ji", (2048, 4096), "f8"), ("ij->ji", (4097, 2047), "f8"), ("ij->ji", (8192, 8192), "u1"),
    ("ij->ji", (5000, 5003), "i2"), ("ij->ji", (3001, 1399), "c16"), ("ij->ji", (16, 1000000), "f4"),
    ("abc->cba", (256, 256, 256), "f4"), ("abc->acb", (253, 257, 263), "f4"), ("abc->bac", (4000, 1300, 3), "f4"),
    ("abc->cab", (3000, 2000, 3), "f4"), ("abc->cab", (3, 3000, 2000), "f4"), ("abcd->dcba", (64, 64, 64, 64), "f4"),
    ("abcd->dbca", (63, 65, 67, 61), "f4"), ("abcd->badc", (64, 64, 64, 32), "f8"),
    ("abcd->bacd", (64, 64, 64, 64), "f4"), ("abcde->ecbda", (24, 28, 24, 28, 32), "f4"),
    ("abcdef->fedcba", (16,) * 6, "f4"), ("abcdef->cfbdea", (15, 17, 16, 14, 18, 17), "f4"),
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="*", help="expressions, with *, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender of each case")
    parser.add_argument("--clock", choices=("auto", "wall", "cpu"), default="auto",
                        help="auto: the processor time with one thread; the wall clock with several")  # fmt: skip
    parser.add_argument("--output", default="", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


def contenders(expression: str, x: Any, axes: list[int]) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    """Functions that permute into an array of their own, and those arrays."""
    import numpy as np

    import tilewright as tw

    outs = {name: np.zeros(x.transpose(axes).shape, x.dtype) for name in ("tilewright", "numpy", "copy")}
    outs["copy"] = outs["copy"].reshape(x.shape)
    letters = expression.partition("->")[0]
    functions: dict[str, Callable[[], Any]] = {
        "tilewright": partial(tw.einsum, expression, x, out=outs["tilewright"]),
        "copy": partial(tw.einsum, f"{letters}->{letters}", x, out=outs["copy"]),
        "numpy": partial(np.copyto, outs["numpy"], x.transpose(axes)),
    }
    try:
        import torch
    except ImportError:
        return functions, outs
    outs["torch"] = np.zeros(x.transpose(axes).shape, x.dtype)
    functions["torch"] = partial(torch.from_numpy(outs["torch"]).copy_, torch.from_numpy(x).permute(axes))
    return functions, outs


def measure(case: tuple[str, tuple[int, ...], str], options: argparse.Namespace) -> dict[str, Any]:
    """One row: times, rates in GB/s, and whether the results are right."""
    import numpy as np

    expression, shape, dtype = case
    letters, _, output = expression.partition("->")
    axes = [letters.index(one) for one in output]
    rng = np.random.default_rng(11)
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    x = rng.integers(0, 100, count, np.uint8).view(dtype).reshape(shape)
    functions, outs = contenders(expression, x, axes)
    use_cpu = options.clock == "cpu" or (options.clock == "auto" and options.threads == 1)
    repeats = max(1, (1 << 18) // count)
    times = interleaved(
        {name: partial(_repeat, function, repeats) for name, function in functions.items()},
        options.seconds,
        time.process_time if use_cpu else time.perf_counter,
        settling(options.threads),
    )
    row: dict[str, Any] = {"expr": expression, "shape": shape, "dtype": dtype, "bytes": count, "contenders": {}}
    for name, found in times.items():
        figures = summary([one / repeats for one in found])
        wanted = x if name == "copy" else x.transpose(axes)
        correct = outs[name].tobytes() == np.ascontiguousarray(wanted).tobytes()
        row["contenders"][name] = {**figures, "rate": 2e-9 * count / figures["best"], "correct": correct}
    row["share"] = row["contenders"]["tilewright"]["rate"] / row["contenders"]["copy"]["rate"]
    return row


def _repeat(function: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        function()


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    import tilewright as tw

    tw.set_num_threads(options.threads)
    try:
        import torch

        torch.set_num_threads(options.threads)
    except ImportError:
        print("torch is not installed")
    rows = []
    for case in CASES:
        if not any(fnmatch.fnmatch(case[0], pattern) for pattern in options.name.split(",")):
            continue
        row = measure(case, options)
        rows.append(row)
        rates = "".join(f"{name:>12} {one['rate']:6.1f}" for name, one in row["contenders"].items())
        wrong = [name for name, one in row["contenders"].items() if not one["correct"]]
        note = f"  WRONG: {', '.join(wrong)}" if wrong else ""
        print(f"{case[0]:<16}{case[1]!s:<27}{case[2]:<4}{rates}  share {row['share']:.2f}{note}", flush=True)
    for peer in ("numpy", "torch"):
        found = [row["contenders"] for row in rows if peer in row["contenders"]]
        if found:
            mean = geometric_mean([one["tilewright"]["rate"] / one[peer]["rate"] for one in found])
            print(f"our speed over {peer}'s, geometric mean: {mean:.2f}")
    content = {"machine": describe_machine(), "settings": changed, "threads": options.threads, "rows": rows}
    name = options.output or f"permutations-cpu-{options.threads}thread{'s' if options.threads > 1 else ''}"
    print(f"written: {write_results(name, content)}")
    return 0 if all(one["correct"] for row in rows for one in row["contenders"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
