"""What the examples share: running their programs on a data set, checking every element, and timing.

A file of examples has programs (`@tw.program`) and, for each of them by its name in `references`, a NumPy function of
the same arguments that gives `(exact, allowed)` for every result: its value in double precision, and how far each
element may be from it. `datasets()` gives, by name, a function that makes the arguments; `work(*arguments)` says how
many operations or bytes a call stands for. `tilewright bench FILE` reads the same two functions.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilewright as tw

Arguments = tuple[Any, ...]
Checked = tuple[np.ndarray, np.ndarray]
Reference = Callable[..., list[Checked]]


def programs_of(module: Mapping[str, Any]) -> dict[str, tw.TracedProgram]:
    """The programs of a file by name, in the order in which they are written."""
    return {name: one for name, one in module.items() if isinstance(one, tw.TracedProgram) and not name.startswith("_")}


def rounding(terms: float, dtype: Any) -> float:
    """The relative error of a sum or product of so many terms, n u / (1 - n u) [Higham, section 3.1]."""
    unit = float(np.finfo(dtype).eps) / 2
    return terms * unit / (1 - terms * unit)


def exactly(*results: Any) -> list[Checked]:
    """Results that may not differ at all, such as integers."""
    return [(np.asarray(one), np.zeros(np.shape(one))) for one in results]


def errors(results: Any, expected: list[Checked]) -> list[float]:
    """For each result the largest error as a part of what is allowed: at most 1 if it is right, infinite or nan if not.

    Raises:
        ValueError: for another number of results, or another shape.
    """
    given = results if isinstance(results, tuple) else (results,)
    if len(given) != len(expected):
        raise ValueError(f"{len(given)} results, and {len(expected)} are expected")
    found = []
    for number, (one, (exact, allowed)) in enumerate(zip(given, expected, strict=True)):
        if np.shape(one) != exact.shape:
            raise ValueError(f"result {number} has the shape {np.shape(one)}; {exact.shape} is expected")
        difference = np.abs(np.asarray(one, dtype=exact.dtype) - exact)
        with np.errstate(over="ignore"):  # where nothing is allowed, any difference is too much
            parts = np.where(difference == 0, 0.0, difference / np.maximum(allowed, np.finfo(np.float64).tiny))
        found.append(float(np.max(parts, initial=0.0)))
    return found


def median_of(function: Callable[[], Any], seconds: float) -> float:
    """The median time of a call in seconds, over at least three calls and about this time."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def rate(work: Mapping[str, float], seconds: float) -> str:
    """The work done in this time, as GFLOP/s and GB/s."""
    units = {"flops": "GFLOP/s", "bytes": "GB/s"}
    return ", ".join(f"{amount * 1e-9 / seconds:.2f} {units[name]}" for name, amount in work.items())


def main(module: Mapping[str, Any]) -> int:
    """The command line of a file of examples; the exit code is 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=module["__doc__"], formatter_class=argparse.RawTextHelpFormatter)
    datasets: Mapping[str, Callable[[], Arguments]] = module["datasets"]()
    parser.add_argument("--size", choices=list(datasets), default=next(iter(datasets)), help="the data set")
    parser.add_argument("--target", default=None, help="cpu, opencl, cuda:0, ...")
    parser.add_argument("--seconds", type=float, default=0.5, help="for timing each program")
    options = parser.parse_args()
    arguments = datasets[options.size]()
    wrong = 0
    for name, program in programs_of(module).items():
        results = program(*arguments, target=options.target)
        worst = max(errors(results, module["references"][name](*arguments)))
        correct = worst <= 1.0  # false for nan too
        wrong += not correct
        seconds = median_of(lambda p=program: p(*arguments, target=options.target), options.seconds)
        done = rate(module["work"](*arguments), seconds) if "work" in module else ""
        verdict = f"error {worst:.2g} of what is allowed" if correct else f"WRONG: error {worst:.3g} of what is allowed"
        print(f"{name} {options.size}: {seconds * 1e3:.3f} ms {done}  {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit("this file is what the examples share; run one of the others")
