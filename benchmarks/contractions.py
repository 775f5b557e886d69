"""Tensor contractions on the CPU beside NumPy, and beside torch and TBLIS where they are installed.

    python benchmarks/contractions.py [--dtype f32,f64] [--threads N] [--max-gflop 3] [--name 'sd1*,tccg_01']

Cases: benchmarks/contractions.json, the TCCG benchmark and the CCSD(T) kernels of NWChem. Peers run with the settings
under which they are fastest, and are called in turns with us in one process. A contender is measured twice: "call" as a
user writes it, and "C" with a result that is C-contiguous, because NumPy and torch may return a permuted view and leave
the last transposition to whoever reads it. Every element of every contender's result is checked against NumPy in double
precision, with the bound (n + 3) u |A| |B| (twice that for double precision).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from support import (
    HERE,
    describe_machine,
    geometric_mean,
    interleaved,
    sizes_within,
    summary,
    with_best_settings,
    write_results,
)

PEERS = ("numpy", "torch", "pytblis")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="f32,f64")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-gflop", type=float, default=3.0, help="larger cases are scaled down to this")
    parser.add_argument("--name", default="*", help="names of cases, with *, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender of each case")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--clock", choices=("auto", "wall", "cpu"), default="auto",
                        help="auto: the processor time of this process with one thread, which other programs disturb "
                        "little; the wall clock with several")  # fmt: skip
    parser.add_argument("--output", default="contractions", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


def contenders(names: list[str], threads: int) -> dict[str, Callable[..., Any]]:
    """einsum functions of arrays by name, of those that are installed."""
    import numpy as np

    import tilewright as tw

    tw.set_num_threads(threads)
    found: dict[str, Callable[..., Any]] = {"tilewright": tw.einsum}
    if "numpy" in names:
        found["numpy"] = partial(np.einsum, optimize=True)
    if "torch" in names:
        try:
            import torch
        except ImportError:
            print("torch is not installed")
        else:
            torch.set_num_threads(threads)
            found["torch"] = lambda text, a, b: torch.einsum(text, torch.from_numpy(a), torch.from_numpy(b)).numpy()
    if "pytblis" in names:
        try:
            import pytblis
        except ImportError:
            print("pytblis is not installed")
        else:
            found["pytblis"] = pytblis.einsum
    return found


def clock_of(options: argparse.Namespace) -> Callable[[], float]:
    use_cpu = options.clock == "cpu" or (options.clock == "auto" and options.threads == 1)
    return time.process_time if use_cpu else time.perf_counter


def measure(case: dict[str, Any], dtype: str, functions: dict[str, Callable[..., Any]], options: Any) -> dict[str, Any]:
    """One row: times of every contender, the worst error against its bound."""
    import numpy as np

    expression, sizes = case["expr"], sizes_within(case["sizes"], options.max_gflop)
    element = {"f32": np.float32, "f64": np.float64}[dtype]
    rng = np.random.default_rng(11)
    left, right = expression.partition("->")[0].split(",")
    a, b = (rng.uniform(-1, 1, [sizes[index] for index in term]).astype(element) for term in (left, right))
    wide = (a.astype(np.float64), b.astype(np.float64))
    exact = np.einsum(expression, *wide, optimize=True)
    magnitude = np.einsum(expression, np.abs(wide[0]), np.abs(wide[1]), optimize=True)
    output = expression.partition("->")[2]
    terms = int(np.prod([n for index, n in sizes.items() if index not in output], dtype=float))
    bound = (terms + 3) * np.finfo(element).eps / 2 * magnitude * (2 if dtype == "f64" else 1)
    gflop = 2e-9 * float(np.prod(list(sizes.values()), dtype=float))
    row: dict[str, Any] = {"name": case["name"], "expr": expression, "sizes": sizes, "dtype": dtype, "gflop": gflop}
    row["contenders"] = {}
    calls: dict[str, Callable[[], Any]] = {}
    for name, function in functions.items():
        result = function(expression, a, b)
        error = float(np.max(np.abs(result - exact) / np.maximum(bound, np.finfo(np.float64).tiny)))
        row["contenders"][name] = {"error_over_bound": error, "correct": bool(error <= 1.0)}
        calls[name] = partial(function, expression, a, b)
        calls[f"{name} C"] = partial(_c_ordered, function, expression, a, b, name == "tilewright")
    for name, times in interleaved(calls, options.seconds, clock_of(options)).items():
        contender, _, order = name.partition(" ")
        row["contenders"][contender]["C" if order else "call"] = summary(times)
    return row


def _c_ordered(function: Callable[..., Any], expression: str, a: Any, b: Any, ours: bool) -> Any:
    import numpy as np

    if ours:
        return function(expression, a, b, order="C")
    return np.ascontiguousarray(function(expression, a, b))


def rate(row: dict[str, Any], name: str, order: str) -> float:
    """GFLOP/s at the best time."""
    return float(row["gflop"] / row["contenders"][name][order]["best"])


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    functions = contenders(options.peers.split(","), options.threads)
    machine = describe_machine()
    print(f"{machine['processor']}, {options.threads} of {machine['cores']} cores, {machine['versions']}")
    print("settings: " + ", ".join(f"{name}={value}" for name, value in changed.items()))
    peers = [name for name in functions if name != "tilewright"]
    head = f"{'case':<9}{'expression':<22}{'type':<5}{'GFLOP':>6}  {'ours':>6}{'ours C':>8}"
    print(head + "".join(f"{peer:>9}{peer + ' C':>11}{'ratio C':>9}" for peer in peers) + f"{'error':>8}")
    cases = json.loads((HERE / "contractions.json").read_text())
    rows = []
    for case in cases:
        if not any(fnmatch.fnmatch(case["name"], pattern) for pattern in options.name.split(",")):
            continue
        for dtype in options.dtype.split(","):
            row = measure(case, dtype, functions, options)
            rows.append(row)
            line = f"{row['name']:<9}{row['expr']:<22}{dtype:<5}{row['gflop']:>6.2f}  "
            ours = rate(row, "tilewright", "C")
            line += f"{rate(row, 'tilewright', 'call'):>6.0f}{ours:>8.0f}"
            for peer in peers:
                line += (
                    f"{rate(row, peer, 'call'):>9.0f}{rate(row, peer, 'C'):>11.0f}{ours / rate(row, peer, 'C'):>9.2f}"
                )
            wrong = [name for name, found in row["contenders"].items() if not found["correct"]]
            error = row["contenders"]["tilewright"]["error_over_bound"]
            print(f"{line}{error:>8.3f}" + (f"  WRONG: {', '.join(wrong)}" if wrong else ""), flush=True)
    for dtype in options.dtype.split(","):
        for peer in peers:
            means = [
                geometric_mean([rate(r, "tilewright", o) / rate(r, peer, o) for r in rows if r["dtype"] == dtype])
                for o in ("call", "C")
            ]
            print(
                f"our speed over {peer}'s, {dtype}, geometric mean: {means[0]:.2f} as called, {means[1]:.2f} in C order"
            )
    content = {"machine": machine, "settings": changed, "threads": options.threads, "rows": rows}
    print(f"written: {write_results(options.output, content)}")
    return 0 if all(row["contenders"]["tilewright"]["correct"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
