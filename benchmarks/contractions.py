"""Tensor contractions on the CPU beside NumPy, and beside torch, TBLIS and JAX where they are installed.

    python benchmarks/contractions.py [--dtype f32,f64] [--threads N] [--max-gflop 3] [--name 'sd1*,tccg_01']

Cases: benchmarks/contractions.json, the TCCG benchmark and the CCSD(T) kernels of NWChem. Peers run with the settings
under which they are fastest, and are called in turns with us in one process; "matmul" is one `numpy.matmul` of
transposed copies. A contender is measured twice: "call" with a result in the memory order that it prefers, and "C" with
a result that is C-contiguous, because NumPy and torch return a permuted view where that suits them and leave the last
transposition to whoever reads it. NumPy's own default is order="K", with which Tilewright is called for the former; its
default, C order, is what "C" measures.
Where arrays lie in physical memory can make a call 1.6 times as long, so each case is measured with its arrays in three
places, one after the other, which are the same for all contenders.
Every element of every contender's result is checked against NumPy in double precision, with the bound
(n + 3) u |A| |B| (twice that for double precision).
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import limits
from support import (
    HERE,
    describe_machine,
    geometric_mean,
    interleaved,
    settling,
    sizes_within,
    summary,
    with_best_settings,
    write_results,
)

AS_CALLED = {"tilewright": {"order": "K"}}  # as NumPy is by default; the others have no choice
PLACES = 3
PEERS = ("numpy", "matmul", "torch", "pytblis", "jax")


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
    """Contractions of two NumPy arrays by name, of those that are installed."""
    import numpy as np

    import tilewright as tw

    tw.set_num_threads(threads)
    found: dict[str, Callable[..., Any]] = {"tilewright": tw.einsum}
    makers = {"numpy": lambda: partial(np.einsum, optimize=True), "matmul": lambda: transposed_matmul,
              "torch": partial(_torch, threads), "pytblis": _pytblis, "jax": _jax}  # fmt: skip
    for name in names:
        try:
            found[name] = makers[name]()
        except ImportError:
            print(f"{name} is not installed")
    return found


def _torch(threads: int) -> Callable[..., Any]:
    import torch

    torch.set_num_threads(threads)
    return lambda text, a, b: torch.einsum(text, torch.from_numpy(a), torch.from_numpy(b)).numpy()


def _pytblis() -> Callable[..., Any]:
    import pytblis

    return pytblis.einsum  # type: ignore[no-any-return]


def _jax() -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    compiled: dict[str, Callable[..., Any]] = {}
    placed: dict[int, Any] = {}  # operands are put on the device once, not at every call

    def call(text: str, a: Any, b: Any) -> Any:
        import numpy as np

        for one in (a, b):
            if placed.get(id(one), (None,))[0] is not one:
                if len(placed) > 1:
                    placed.clear()
                placed[id(one)] = (one, jax.device_put(one))
        function = compiled.setdefault(text, jax.jit(lambda x, y: jnp.einsum(text, x, y)))
        return np.asarray(function(placed[id(a)][1], placed[id(b)][1]).block_until_ready())

    return call


def transposed_matmul(text: str, a: Any, b: Any) -> Any:
    """The contraction as one matrix product of transposed copies, with the fewest bytes copied."""
    import numpy as np

    left, right, output, rows, columns, contracted, swapped = _matmul_plan(text, a.shape, b.shape)
    sizes = dict(zip(left + right, a.shape + b.shape, strict=True))

    def matrix(array: Any, labels: str, outer: str, inner: str) -> Any:
        shape = [int(np.prod([sizes[one] for one in part], dtype=int)) for part in (outer, inner)]
        if labels == inner + outer:
            return array.reshape(shape[::-1]).T
        return array.transpose([labels.index(one) for one in outer + inner]).reshape(shape)

    x, y = matrix(a, left, rows, contracted), matrix(b, right, columns, contracted).T
    order = columns + rows if swapped else rows + columns
    product = np.matmul(y.T, x.T) if swapped else np.matmul(x, y)
    whole = product.reshape([sizes[one] for one in order])
    return np.ascontiguousarray(whole.transpose([order.index(one) for one in output]))


@functools.cache
def _matmul_plan(text: str, *shapes: tuple[int, ...]) -> tuple[str, str, str, str, str, str, bool]:
    inputs, output = text.split("->")
    left, right = inputs.split(",")
    sizes = dict(zip(left + right, shapes[0] + shapes[1], strict=True))

    def kept(labels: str) -> list[str]:
        return ["".join(one for one in source if one in labels) for source in (labels, output)]

    rows, columns = (set(kept("".join(one for one in term if one in output))) for term in (left, right))
    sums = {"".join(one for one in source if one in left and one in right) for source in (left, right)}
    volume = {labels: math.prod(sizes[one] for one in labels) for labels in (left, right, output)}

    def copied(plan: tuple[str, str, str, bool]) -> int:
        m, n, k, swapped = plan
        total = 0 if left in (m + k, k + m) else volume[left]
        total += 0 if right in (n + k, k + n) else volume[right]
        return total + (0 if output == (n + m if swapped else m + n) else 2 * volume[output])

    best = min(itertools.product(sorted(rows), sorted(columns), sorted(sums), (False, True)), key=copied)
    return left, right, output, *best


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
    for name, function in functions.items():
        results = (function(expression, a, b), function(expression, a, b, **AS_CALLED.get(name, {})))
        tiny = np.finfo(np.float64).tiny
        error = max(float(np.max(np.abs(result - exact) / np.maximum(bound, tiny))) for result in results)
        del results
        row["contenders"][name] = {"error_over_bound": error, "correct": bool(error <= 1.0)}
    del wide, exact, magnitude, bound
    times: dict[str, list[float]] = {}
    for _ in range(PLACES):
        calls: dict[str, Callable[[], Any]] = {}
        for name, function in functions.items():
            calls[name] = partial(function, expression, a, b, **AS_CALLED.get(name, {}))
            calls[f"{name} C"] = partial(_c_ordered, function, expression, a, b)
        for one in calls.values():
            one()
        found = interleaved(calls, options.seconds / PLACES, clock_of(options), settling(options.threads), least=2)
        for name, some in found.items():
            times.setdefault(name, []).extend(some)
        a, b = a.copy(), b.copy()  # the old ones are there until now, so that these lie elsewhere
    for name, all_of_it in times.items():
        contender, _, order = name.partition(" ")
        row["contenders"][contender]["C" if order else "call"] = summary(all_of_it)
    return row


def _c_ordered(function: Callable[..., Any], expression: str, a: Any, b: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(function(expression, a, b))


def rate(row: dict[str, Any], name: str, order: str) -> float:
    """GFLOP/s at the best time."""
    return float(row["gflop"] / row["contenders"][name][order]["best"])


def beside_best(row: dict[str, Any], order: str) -> float:
    """Our speed over that of the best peer of this case."""
    return rate(row, "tilewright", order) / max(rate(row, p, order) for p in row["contenders"] if p != "tilewright")


def _roofline(row: dict[str, Any], known: dict[str, float], threads: int) -> float:
    """GFLOP/s if every array crosses the memory bus once, or the multiply-add units never wait."""
    terms = row["expr"].replace("->", ",").split(",")
    width = 4 if row["dtype"] == "f32" else 8
    a, b, c = (width * math.prod(row["sizes"][one] for one in term) for term in terms)
    peaks = {name: value * (threads if "GFLOP" in name else 1) for name, value in known.items()}
    return limits.roofline(row["gflop"], a + b, c, row["dtype"], peaks)


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    functions = contenders(options.peers.split(","), options.threads)
    machine = describe_machine()
    known = limits.limits(options.threads)
    one = "one core" if options.threads == 1 else f"one core, and bytes of {options.threads} together"
    machine[f"limits of {one}"] = {name: round(value, 1) for name, value in known.items()}
    print(f"{machine['processor']}, {options.threads} of {machine['cores']} cores, {machine['versions']}")
    print("settings: " + ", ".join(f"{name}={value}" for name, value in changed.items()))
    print(f"{'case':<9}{'expression':<22}{'type':<5}{'GFLOP':>6}  GFLOP/s as called (in C order)")
    cases = json.loads((HERE / "contractions.json").read_text())
    rows = []
    for case in cases:
        if not any(fnmatch.fnmatch(case["name"], pattern) for pattern in options.name.split(",")):
            continue
        for dtype in options.dtype.split(","):
            before = limits.peak(dtype)
            row = measure(case, dtype, functions, options)
            row["peak"] = max(before, limits.peak(dtype))  # the host may slow down for minutes
            row["roofline"] = _roofline(row, known | {f"{dtype} GFLOP/s": row["peak"]}, options.threads)
            rows.append(row)
            line = f"{row['name']:<9}{row['expr']:<22}{dtype:<5}{row['gflop']:>6.2f} "
            for name in functions:
                line += f" {name} {rate(row, name, 'call'):.0f} ({rate(row, name, 'C'):.0f})"
            line += f"  beside the best {beside_best(row, 'call'):.2f} ({beside_best(row, 'C'):.2f})"
            line += f", roofline {row['roofline']:.0f}, error"
            wrong = [name for name, found in row["contenders"].items() if not found["correct"]]
            error = row["contenders"]["tilewright"]["error_over_bound"]
            print(f"{line} {error:.3f} of its bound" + (f"  WRONG: {', '.join(wrong)}" if wrong else ""), flush=True)
    for dtype in options.dtype.split(","):
        mine = [row for row in rows if row["dtype"] == dtype]
        for order in ("call", "C"):
            ratios = {row["name"]: beside_best(row, order) for row in mine}
            share = geometric_mean([rate(row, "tilewright", order) / row["roofline"] for row in mine])
            least = min(ratios, key=ratios.__getitem__)
            mean = geometric_mean([*ratios.values()])
            print(
                f"{dtype}, {order}: our speed over the best peer's, geometric mean {mean:.2f},"
                f" least {ratios[least]:.2f} ({least}); share of the roofline {share:.2f}"
            )
    content = {"machine": machine, "settings": changed, "threads": options.threads, "rows": rows}
    print(f"written: {write_results(options.output, content)}")
    return 0 if all(row["contenders"]["tilewright"]["correct"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
