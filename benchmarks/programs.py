"""The programs of examples/ beside NumPy, numba, JAX, torch and KeOps, on one thread or two.

    python benchmarks/programs.py [--threads 1] [--seconds 1] [--size medium] [--name 'heat*,nbody'] [--peers ...]

All contenders of a program are called in turns in one process, and every result is checked against the example's own
reference in double precision. On one thread the clock is the time of this process, so that other work on the machine
disturbs less.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from support import describe_machine, geometric_mean, interleaved, settling, summary, with_best_settings, write_results

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SMALLER = {"locvolcalib": "small"}  # unless a size is asked for
LOOSER = 4.0  # peers sum in other orders, and their products are of other factors


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each contender of each program")
    parser.add_argument("--size", default=None, help="the data set (default: medium, and small for LocVolCalib)")
    parser.add_argument("--name", default="*", help="names of programs, with *, separated by commas")
    parser.add_argument("--peers", default="numpy,numba,jax,torch,pykeops")
    parser.add_argument("--output", default=None, help="the name of the file in benchmarks/results/; none without")
    return parser.parse_args()


def cases(pattern: str) -> Iterator[tuple[str, Any, Any]]:
    """(name, program, its module) of every example."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    harness = importlib.import_module("harness")
    for path in sorted(EXAMPLES.glob("*.py")):
        if path.stem in ("demo", "harness"):
            continue
        module = importlib.import_module(path.stem)
        for name, program in harness.programs_of(vars(module)).items():
            if any(fnmatch.fnmatch(name, one) for one in pattern.split(",")):
                yield name, program, module


def installed(packages: list[str], threads: int) -> dict[str, dict[str, Callable[..., Callable[[], Any]]]]:
    """The peers' programs by package."""
    from program_peers import peers

    found = {}
    for package in packages:
        try:
            found[package] = peers(package, threads)
        except ImportError as error:
            print(f"{package} is left out: {error}")
    return found


def worst_error(results: Any, expected: Any) -> float:
    """The largest error as a part of what is allowed; kmeans and others give one result, not a tuple."""
    import numpy as np

    harness = importlib.import_module("harness")
    several = results if isinstance(results, tuple | list) else (results,)
    return max(harness.errors(tuple(np.asarray(one) for one in several), expected))


def measure(
    name: str, program: Any, module: Any, found: Any, size: str, seconds: float, threads: int
) -> dict[str, Any]:
    """One row: times, errors, and the ratio to the best peer whose results are right."""
    given = module.datasets()[size]()
    expected = module.references[name](*given)
    calls: dict[str, Callable[[], Any]] = {"tilewright": partial(program, *given)}
    for package, own in found.items():
        if name in own:
            calls[package] = own[name](*given)
    right, usable = {}, {}
    for contender, call in calls.items():
        try:
            error = worst_error(call(), expected)
        except Exception as problem:  # a peer that cannot run is reported, not fatal
            print(f"  {contender} fails on {name}: {type(problem).__name__}: {str(problem)[:200]}")
            continue
        right[contender] = error <= (1.0 if contender == "tilewright" else LOOSER)
        if right[contender]:
            usable[contender] = call
        else:
            print(f"  {contender} is wrong on {name}: {error:.3g} of what is allowed")
    clock = time.process_time if threads == 1 else time.perf_counter
    times = {one: summary(all_) for one, all_ in interleaved(usable, seconds, clock, settling(threads)).items()}
    row = {"name": name, "size": size, "threads": threads, "correct": right, "times": times}
    others = {one: value["median"] for one, value in times.items() if one != "tilewright"}
    if others and "tilewright" in times:
        best = min(others, key=others.__getitem__)
        row |= {"best_peer": best, "ratio": others[best] / times["tilewright"]["median"]}
    return row


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    import tilewright as tw

    tw.set_num_threads(options.threads)
    found = installed([one for one in options.peers.split(",") if one], options.threads)
    machine = describe_machine()
    print(f"{machine['processor']}, {options.threads} threads, {machine['versions']}")
    rows = []
    for name, program, module in cases(options.name):
        size = options.size or SMALLER.get(name, "medium")
        row = measure(name, program, module, found, size, options.seconds, options.threads)
        rows.append(row)
        line = "  ".join(f"{one} {value['median'] * 1e3:.3f}" for one, value in row["times"].items())
        verdict = f"{row['ratio']:.2f} x {row['best_peer']}" if "ratio" in row else "no peer"
        print(f"{name:<24} {size:<7} ms: {line}   {verdict}", flush=True)
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    print(f"geometric mean {geometric_mean(ratios):.3f}, least {min(ratios, default=float('nan')):.3f}")
    if options.output:
        print(f"written: {write_results(options.output, {'machine': machine, 'settings': changed, 'rows': rows})}")
    return 0 if all(row["correct"].get("tilewright") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
