"""The six contractions of the thesis on tensor contraction tiling, on every device found, checked and timed.

Sizes are the thesis's data sets divided by a number, so that everything ends within a minute. Every element of every
result is checked: against NumPy in double precision, with the bound (n + 2) u |A| |B| on the error of a sum of n
products in single precision [Higham, Accuracy and Stability of Numerical Algorithms, section 3.1].

    python examples/demo.py [--divide-sd 2] [--divide-mm 4] [--target cpu]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tw

THESIS = json.loads((Path(__file__).resolve().parents[1] / "benchmarks" / "thesis.json").read_text())
UNIT_ROUNDOFF = 2.0**-24
SECONDS_OF_WAITING = 0.12  # for which the threads of NumPy's OpenBLAS keep their cores after a call


def cases(divide_sd: int, divide_mm: int) -> list[tuple[str, str, dict[str, int]]]:
    """(expression, data set, sizes) of every row."""
    found = []
    for name, expression in THESIS["contractions"].items():
        for dataset, sizes in THESIS["datasets"].items():
            if (dataset == "mm") == name.startswith("mm"):
                divisor = divide_mm if dataset == "mm" else divide_sd
                used = {index: max(1, extent // divisor) for index, extent in sizes.items() if index in expression}
                found.append((expression, dataset, used))
    return found


def operands(expression: str, sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    terms = expression.partition("->")[0].split(",")
    return [rng.standard_normal([sizes[index] for index in term], dtype=np.float32) for term in terms]


def reference(expression: str, sizes: dict[str, int], arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The result in double precision, and for each element the error that single precision may make."""
    wide = [array.astype(np.float64) for array in arrays]
    exact = np.einsum(expression, *wide, optimize=True)
    magnitude = np.einsum(expression, *map(np.abs, wide), optimize=True)
    terms = sizes["q"]
    return exact, (terms + 2) * UNIT_ROUNDOFF / (1 - (terms + 2) * UNIT_ROUNDOFF) * magnitude


def best_of_both(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """The best time of each, measured in turns for about `seconds` each.

    A turn begins when the threads of the other one have stopped to wait for work, which takes a core from this one, and
    with a call that is not timed.
    """
    best, spent = [float("inf"), float("inf")], 0.0
    while spent < 2 * seconds:
        for which, function in enumerate((ours, theirs)):
            time.sleep(SECONDS_OF_WAITING)
            function()
            turn = 0.0
            while turn < seconds / 4:
                start = time.perf_counter()
                function()
                elapsed = time.perf_counter() - start
                best[which] = min(best[which], elapsed)
                turn += elapsed
            spent += turn
    return best[0], best[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--divide-sd", type=int, default=2, help="divides the sizes of the two six-dimensional ones")
    parser.add_argument("--divide-mm", type=int, default=4, help="divides the sizes of the four matrix products")
    parser.add_argument("--seconds", type=float, default=0.3, help="for timing each contender of each row")
    parser.add_argument("--target", action="append", help="a device; may be repeated (default: every device found)")
    options = parser.parse_args()
    chosen = [tw.device_for(one) for one in options.target or ()] or list(tw.devices())

    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title=f"Tilewright {tw.__version__}, single precision; GFLOP/s include transfers to the device")
    for name in ("contraction", "data set", "device"):
        table.add_column(name)
    for name in ("first call", "GFLOP/s", "NumPy", "ratio", "error / bound"):
        table.add_column(name, justify="right")
    wrong = 0
    for expression, dataset, sizes in cases(options.divide_sd, options.divide_mm):
        arrays = operands(expression, sizes)
        exact, allowed = reference(expression, sizes, arrays)
        gflop = 2e-9 * np.prod(list(sizes.values()), dtype=float)
        for device in chosen:
            if device.machine.simulated:
                continue
            start = time.perf_counter()
            result = tw.einsum(expression, *arrays, target=device)
            first = time.perf_counter() - start
            error = float(np.max(np.abs(result - exact) / np.maximum(allowed, np.finfo(np.float64).tiny)))
            correct = error <= 1.0  # false for nan too
            wrong += not correct
            ours, numpys = best_of_both(
                partial(tw.einsum, expression, *arrays, target=device),
                partial(np.einsum, expression, *arrays, optimize=True),
                options.seconds,
            )
            verdict = f"{error:.3f}" if correct else f"[bold red]{error:.3g} WRONG[/]"
            table.add_row(
                expression, dataset, device.name, f"{first * 1e3:.0f} ms", f"{gflop / ours:.1f}",
                f"{gflop / numpys:.1f}", f"{numpys / ours:.2f}", verdict,
            )  # fmt: skip
    console.print(table)
    for device in chosen:
        note = " (a simulator: left out)" if device.machine.simulated else ""
        console.print(f"{device}{note}", highlight=False)
    console.print(f"{wrong} results are wrong" if wrong else "every element of every result is within its error bound")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
