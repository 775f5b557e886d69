"""Contraction trees on the CPU beside the same pairwise contractions by opt_einsum, on NumPy and on torch.

    python benchmarks/trees.py [--dtype f32] [--threads N] [--max-gflop 2] [--name 'course_*'] [--memory-limit 0.5]

Trees: einsum_trees.json. The peers evaluate the same tree, node by node, each node by
`opt_einsum.contract` (which calls BLAS where it can); the last result is made C-contiguous, as ours is. Contenders are
called in turns in one process. Larger trees are scaled down to --max-gflop; --memory-limit additionally runs ours in
slices within that share of the peak. Every result is checked against NumPy in double precision.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from support import (
    HERE,
    describe_machine,
    geometric_mean,
    interleaved,
    settling,
    summary,
    with_best_settings,
    write_results,
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-gflop", type=float, default=2.0, help="larger trees are scaled down to this")
    parser.add_argument("--name", default="*", help="names of trees, with *, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender of each tree")
    parser.add_argument("--peers", default="numpy,torch")
    parser.add_argument("--memory-limit", type=float, help="a share of the peak: ours in slices is a contender too")
    parser.add_argument("--clock", choices=("auto", "wall", "cpu"), default="auto",
                        help="auto: processor time with one thread, the wall clock with several")  # fmt: skip
    parser.add_argument("--output", default="trees", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


def peers(names: Sequence[str], threads: int) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """For each peer that is installed how it takes NumPy arrays and how it gives them back."""
    found: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
    if "numpy" in names:
        import numpy as np

        found["numpy"] = (lambda array: array, np.ascontiguousarray)
    if "torch" in names:
        try:
            import torch
        except ImportError:
            print("torch is not installed")
        else:
            torch.set_num_threads(threads)
            found["torch"] = (torch.from_numpy, lambda tensor: tensor.contiguous().numpy())
    return found


def by_nodes(tree: Any, arrays: Iterator[Any]) -> Any:
    """A tree's value by opt_einsum, a call for each node."""
    from opt_einsum import contract, get_symbol

    from tilewright.frontend.tree_parse import Leaf

    if isinstance(tree, Leaf):
        return next(arrays)
    values = [by_nodes(one, arrays) for one in tree.operands]
    numbers: dict[Any, str] = {}
    terms = [
        "".join(numbers.setdefault(label, get_symbol(len(numbers))) for label in one.labels) for one in tree.operands
    ]
    result = contract(",".join(terms) + "->" + "".join(numbers[label] for label in tree.labels), *values)
    return result.clip(min=0) if tree.activation == "relu" else result


def peer_call(tree: Any, arrays: Sequence[Any], take: Callable[[Any], Any], give: Callable[[Any], Any]) -> Any:
    return give(by_nodes(tree, map(take, arrays)))


def scaled(tree: Any, sizes: dict[Any, int], largest_gflop: float) -> dict[Any, int]:
    """Sizes scaled down together until the tree is no larger."""
    from tilewright.frontend.tree_steps import resolve_tree

    def gflop(of: dict[Any, int]) -> float:
        resolved = resolve_tree(tree, of)
        return 1e-9 * sum(map(resolved.flops, resolved.steps))

    factor, current = 1.0, dict(sizes)
    while gflop(current) > largest_gflop and factor > 1e-3:
        factor *= 0.97
        current = {label: max(min(extent, 2), round(extent * factor)) for label, extent in sizes.items()}
    return current


def measure(case: dict[str, Any], functions: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """One row: times of every contender, and the worst error in units of the result's largest element."""
    import numpy as np

    import tilewright as tw
    from tilewright.frontend.tree_parse import leaves, parse_tree, sizes_of

    tree = parse_tree(case["tree"])
    full = sizes_of(tree, case["sizes"])
    sizes = scaled(tree, full, options.max_gflop)
    rng = np.random.default_rng(11)
    element = {"f32": np.float32, "f64": np.float64}[options.dtype]
    arrays = [rng.uniform(-1, 1, [sizes[label] for label in leaf.labels]).astype(element) for leaf in leaves(tree)]
    exact = by_nodes(tree, iter([array.astype(np.float64) for array in arrays]))
    plan = tw.plan_tree(tree, sizes, dtype=options.dtype, target="cpu")
    calls: dict[str, Callable[[], Any]] = {"tilewright": partial(plan, *arrays)}
    for name, (take, give) in functions.items():
        calls[name] = partial(peer_call, tree, arrays, take, give)
    row: dict[str, Any] = {
        "name": case["name"], "tree": case["tree"], "sizes": {str(a): n for a, n in sizes.items()},
        "scaled": sizes != full, "dtype": options.dtype, "gflop": 1e-9 * plan.flops, "peak_bytes": plan.peak_bytes,
        "contenders": {},
    }  # fmt: skip
    if options.memory_limit is not None:
        try:
            limit = int(options.memory_limit * plan.peak_bytes)
            within = tw.plan_tree(tree, sizes, dtype=options.dtype, target="cpu", memory_limit=limit)
        except MemoryError as error:
            row["memory_limit"] = str(error)
        else:
            row["memory_limit"] = {"bytes": limit, "peak": within.peak_bytes, "slices": within.slices}
            calls["tilewright sliced"] = partial(within, *arrays)
    tolerance = 100 * math.sqrt(len(arrays)) * float(np.finfo(element).eps)
    for name, call in calls.items():
        error = float(np.max(np.abs(call() - exact), initial=0) / max(float(np.max(np.abs(exact), initial=0)), 1e-300))
        row["contenders"][name] = {"error": error, "correct": error <= tolerance}
    clock = time.process_time if clock_is_cpu(options) else time.perf_counter
    for name, times in interleaved(calls, options.seconds, clock, settling(options.threads)).items():
        row["contenders"][name] |= summary(times)
    return row


def clock_is_cpu(options: argparse.Namespace) -> bool:
    return bool(options.clock == "cpu" or (options.clock == "auto" and options.threads == 1))


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    import tilewright as tw

    tw.set_num_threads(options.threads)
    functions = peers(options.peers.split(","), options.threads)
    machine = describe_machine()
    print(f"{machine['processor']}, {options.threads} of {machine['cores']} cores, {machine['versions']}")
    names = ["tilewright", *functions] + (["tilewright sliced"] if options.memory_limit is not None else [])
    print(
        f"{'tree':<24}{'GFLOP':>7}{'MB':>7}  "
        + "".join(f"{name:>19}" for name in names)
        + "  (GFLOP/s; GB/s of permutations)"
    )
    cases = json.loads((HERE / "einsum_trees.json").read_text())["trees"]
    rows = []
    for case in cases:
        if not any(fnmatch.fnmatch(case["name"], pattern) for pattern in options.name.split(",")):
            continue
        row = measure(case, functions, options)
        rows.append(row)
        line = f"{row['name']:<24}{row['gflop']:>7.2f}{1e-6 * row['peak_bytes']:>7.1f}  "
        line += "".join(f"{rate(row, name):>19.1f}" if name in row["contenders"] else f"{'-':>19}" for name in names)
        wrong = [name for name, found in row["contenders"].items() if not found["correct"]]
        print(line + (f"  WRONG: {', '.join(wrong)}" if wrong else ""), flush=True)
    for peer in functions:
        ratios = [row["contenders"][peer]["best"] / row["contenders"]["tilewright"]["best"] for row in rows]
        print(f"our speed over opt_einsum's on {peer}, geometric mean: {geometric_mean(ratios):.2f}")
    content = {
        "machine": machine, "settings": changed, "threads": options.threads,
        "clock": "cpu" if clock_is_cpu(options) else "wall", "max_gflop": options.max_gflop,
        "load_average": os.getloadavg()[0],  # well above the threads used: the machine was shared with other programs
        "rows": rows,
    }  # fmt: skip
    print(f"written: {write_results(options.output, content)}")
    return 0 if all(found["correct"] for row in rows for found in row["contenders"].values()) else 1


def rate(row: dict[str, Any], name: str) -> float:
    """GFLOP/s of the tree's own operations at the best time; where nothing is computed, GB/s read and written."""
    amount = row["gflop"] or 2e-9 * row["peak_bytes"]
    return float(amount / row["contenders"][name]["best"])


if __name__ == "__main__":
    sys.exit(main())
