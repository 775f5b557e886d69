"""What new shapes cost: tensor networks whose bonds differ from site to site, run for the first time and again.

    python benchmarks/new_shapes.py

Three workloads, each in f64 and in c128:

    dmrg      a sweep of a two-site optimisation of 20 sites: the environments of one side, then at each bond three
              applications of the effective Hamiltonian and the next environment of the other side
    overlap   the overlap of two matrix product states of 20 sites, site by site
    network   a random network of 40 tensors along opt_einsum's path, as one einsum

They are run in fresh processes on one thread: with an empty cache of programs and with one that another process filled,
each once for the first time, once again, and then at the best of several times. NumPy and torch contract the same
operands by opt_einsum's paths. Times leave out importing what is compared and making the arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from support import describe_machine, with_best_settings, write_results

Call: TypeAlias = tuple[str, tuple[Any, ...]]
SITES, PHYSICAL, HAMILTONIAN = 20, 2, 5
BONDS = (1, 2, 4, 7, 13, 19, 27, 33, 41, 48, 57, 64, 59, 50, 38, 25, 15, 8, 4, 2, 1)  # as truncation leaves them
APPLICATIONS = 3  # of the effective Hamiltonian at each bond
AGAIN = 5
PROCESSES = 3
WORKLOADS = ("dmrg", "overlap", "network")
DTYPES = ("f64", "c128")
LIBRARIES = ("tilewright", "numpy", "torch")


def dmrg(random: Callable[..., Any]) -> list[Call]:
    """The contractions of a sweep, the states as their own conjugates."""
    states = [random(BONDS[i], PHYSICAL, BONDS[i + 1]) for i in range(SITES)]
    ends = [1, *[HAMILTONIAN] * (SITES - 1), 1]
    operators = [random(ends[i], ends[i + 1], PHYSICAL, PHYSICAL) for i in range(SITES)]
    left = [random(BONDS[i], ends[i], BONDS[i]) for i in range(SITES + 1)]
    calls: list[Call] = []
    for i in reversed(range(2, SITES)):
        right = left[i + 1]
        calls.append(("asc,xyst,btd,cyd->axb", (states[i], operators[i], states[i], right)))
    for i in range(SITES - 1):
        pair = random(BONDS[i], PHYSICAL, PHYSICAL, BONDS[i + 2])
        operands = left[i], operators[i], operators[i + 1], left[i + 2], pair
        calls += [("axb,xyst,yzuv,czd,btvd->asuc", operands)] * APPLICATIONS
        calls.append(("axb,asc,xyst,btd->cyd", (left[i], states[i], operators[i], states[i])))
    return calls


def overlap(random: Callable[..., Any]) -> list[Call]:
    """The contractions of an overlap, of another state with smaller bonds."""
    smaller = [max(1, one - one // 4) for one in BONDS]
    calls: list[Call] = []
    for i in range(SITES):
        first, second = random(BONDS[i], PHYSICAL, BONDS[i + 1]), random(smaller[i], PHYSICAL, smaller[i + 1])
        calls.append(("ab,asc,bsd->cd", (random(BONDS[i], smaller[i]), first, second)))
    return calls


def network(random: Callable[..., Any]) -> list[Call]:
    """One contraction of 40 tensors."""
    import opt_einsum.testing

    expression, shapes = opt_einsum.testing.rand_equation(40, 3, n_out=1, d_min=2, d_max=6, seed=7)
    return [(expression, tuple(random(*shape) for shape in shapes))]


def contractor(library: str) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """What contracts, given an expression and operands, and what makes an operand of a NumPy array."""
    if library == "tilewright":
        import tilewright as tw

        tw.set_num_threads(1)
        return tw.einsum, lambda array: array
    import opt_einsum.testing

    if library == "numpy":
        return opt_einsum.contract, lambda array: array
    import torch

    torch.set_num_threads(1)
    return opt_einsum.contract, torch.from_numpy


def child(workload: str, dtype: str, library: str) -> None:
    """Print the seconds of the first run, of the second, and of the best of some more."""
    import numpy as np

    contract, made = contractor(library)
    generator = np.random.default_rng(1)

    def random(*shape: int) -> Any:
        array = generator.standard_normal(shape)
        return made(array if dtype == "f64" else array + 1j * generator.standard_normal(shape))

    calls = {"dmrg": dmrg, "overlap": overlap, "network": network}[workload](random)
    seconds = []
    for _ in range(2 + AGAIN):
        start = time.perf_counter()
        for expression, operands in calls:
            contract(expression, *operands)
        seconds.append(time.perf_counter() - start)
    print(json.dumps([seconds[0], seconds[1], min(seconds[2:])]))


def fresh(cache: str, *arguments: str) -> list[float]:
    """What `child` prints in a process of its own."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": cache, "TILEWRIGHT_HURRY": "1"}
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def measured(workload: str, dtype: str) -> list[dict[str, Any]]:
    """Median seconds over processes, by library and state of the cache."""
    ways = [("tilewright, empty cache", "tilewright"), ("tilewright, filled cache", "tilewright")]
    ways += [(one, one) for one in LIBRARIES[1:]]
    found: dict[str, list[list[float]]] = {name: [] for name, _ in ways}
    for _ in range(PROCESSES):
        with tempfile.TemporaryDirectory() as cache:
            for name, library in ways:
                found[name].append(fresh(cache, workload, dtype, library))
    return [
        {
            "what": f"{workload} {dtype}: {name}",
            **{
                key: statistics.median(one[place] for one in runs)
                for place, key in enumerate(("first", "second", "best"))
            },
        }
        for name, runs in found.items()
    ]


def main() -> None:
    """Measure all of it and write benchmarks/results/new_shapes.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS, choices=WORKLOADS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(*arguments.child)
    settings = with_best_settings(1)
    rows = [one for workload in arguments.workloads for dtype in DTYPES for one in measured(workload, dtype)]
    for row in rows:
        times = "  ".join(f"{key} {1e3 * row[key]:9.1f} ms" for key in ("first", "second", "best"))
        print(f"{row['what']:42s} {times}")
    path = write_results("new_shapes", {"machine": describe_machine(), "settings": settings, "rows": rows})
    print(f"written to {path}")


if __name__ == "__main__":
    main()
