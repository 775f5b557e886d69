"""Tensor operations on the CPU beside etops, and beside NumPy and torch where they can express the same.

    python benchmarks/tensor_operations.py [--threads N] [--name 'seq_*,transpose*'] [--peers etops,numpy,torch]

Cases: those of tensor_operations.json (configurations and splits from the literature), small single
blocks, and unary operations: zero, copies, transposes, permutations, relu. Ours is optimised and compiled. etops runs
each configuration twice, as it is written (with the first loop shared among threads, where there are several) and
through its own optimiser; its column shows the faster. NumPy (opt_einsum for contractions) and torch compute the same
into the same output, on arrays whose dimensions lie in memory as the configuration says. Contenders are called in
turns in one process. Every result is checked against NumPy in double precision, with the bound (n + 3) u |A| |B|.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

PEERS = ("etops", "numpy", "torch")
LISTS = ("dim_types", "exec", "dim_sizes", "strides_in0", "strides_in1", "strides_out")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Case:
    """A configuration, the limits that ours is optimised with, and how the result is named in other libraries."""

    name: str
    operation: Any
    limits: dict[str, int]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="*", help="names of cases, with *, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender of each case")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--peak", type=float, default=0.0, help="GFLOP/s of the threads used: shares of it are shown")
    parser.add_argument("--offset", type=int, default=0, help="bytes from a multiple of 64 to where arrays begin: 0 as "
                        "torch and tilewright make them, 16 as NumPy often does")  # fmt: skip
    parser.add_argument("--clock", choices=("auto", "wall", "cpu"), default="auto",
                        help="auto: processor time with one thread, the wall clock with several")  # fmt: skip
    parser.add_argument("--output", default="tensor_operations", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


# --- cases ------------------------------------------------------------------------------------------------------------


def cases(dtype: str) -> Iterator[Case]:
    """All cases; their arrays fit into 1 GiB."""
    import tilewright as tw

    data = json.loads((HERE / "tensor_operations.json").read_text())
    configured = {}
    for one in data["tensor_operations"]:
        lists = (one[key] for key in LISTS)
        configured[one["name"]] = tw.TensorOperation.from_lists(dtype, one["main"], *lists, one["first"], one["last"])
        yield Case(one["name"], configured[one["name"]], {})
    for one in data["splitter_examples"]:
        limits = {key: one[key] for key in ("min_kernel_size", "max_kernel_size")}
        name = f"split_{one['size']}_{one['outer']}x{one['inner']}"
        yield Case(name, configured["opt_gemm_1600"], limits)
    for n in (8, 16, 32, 64, 128, 256):
        yield Case(f"gemm_{n}", _product(dtype, n), {})
    for t, u, r, s in ((3, 4, 7, 3), (7, 7, 7, 7), (31, 33, 35, 32), (64, 64, 64, 64)):
        name = f"trus_to_turs_{t}x{u}x{r}x{s}"
        yield Case(name, unary(dtype, "copy", "turs->trus", dict(zip("turs", (t, u, r, s), strict=True))), {})
    for shape in ((64, 64), (500, 700), (1024, 1024), (2000, 3000), (4096, 4096), (8192, 2048)):
        sizes = dict(zip("ab", shape, strict=True))
        yield Case(f"transpose_{shape[0]}x{shape[1]}", unary(dtype, "copy", "ab->ba", sizes), {})
    for text, shape in (
        ("abcd->dcba", (48, 40, 56, 64)),
        ("abcd->cdab", (64, 64, 64, 64)),
        ("abc->cab", (32, 48, 64)),
        ("abc->acb", (128, 256, 256)),
        ("abcd->badc", (48, 64, 32, 72)),
    ):
        sizes = dict(zip("abcd", shape, strict=False))
        name = f"permute_{text.partition('->')[2]}_{'x'.join(map(str, shape))}"
        yield Case(name, unary(dtype, "copy", text, sizes), {})
    for main in ("zero", "copy", "relu"):
        for n in (100, 1000, 4000):
            yield Case(f"{main}_{n}x{n}", unary(dtype, main, "ab->ab", {"a": n, "b": n}), {})


def _product(dtype: str, n: int) -> Any:
    import tilewright as tw

    return tw.TensorOperation.from_lists(
        dtype, "gemm", "MNK", ["prim"] * 3, (n, n, n), (1, 0, n), (0, n, 1), (1, n, 0), "zero"
    )


def unary(dtype: str, main: str, text: str, sizes: dict[str, int]) -> Any:
    """A unary operation between row-major arrays, all loops still to be placed."""
    import tilewright as tw

    term_in, _, term_out = text.partition("->")
    strides = [row_major(term, sizes) for term in (term_in, term_out)]
    zeros = [0] * len(sizes)
    in0 = zeros if main == "zero" else [strides[0][label] for label in term_out]
    return tw.TensorOperation.from_lists(
        dtype, main, "C" * len(sizes), ["seq"] * len(sizes), [sizes[label] for label in term_out],
        in0, zeros, [strides[1][label] for label in term_out],
    )  # fmt: skip


def row_major(term: str, sizes: dict[str, int]) -> dict[str, int]:
    strides, step = {}, 1
    for label in reversed(term):
        strides[label] = step
        step *= sizes[label]
    return strides


# --- contenders: each gives a function without arguments that computes into the array `out` ---------------------------


def views(operation: Any) -> tuple[list[str], list[tuple[list[int], list[int]]]]:
    """For in0, in1, out: the indices in the order in which they lie in memory, and the shape and strides of a view."""
    terms, shapes = [], []
    for position in range(3):
        held = [(one.strides[position], number) for number, one in enumerate(operation.dimensions)
                if one.strides[position]]  # fmt: skip
        order = [number for _, number in sorted(held, reverse=True)]
        terms.append("".join(LETTERS[number] for number in order))
        dims = operation.dimensions
        shapes.append(([dims[i].size for i in order], [dims[i].strides[position] for i in order]))
    return terms, shapes


def in_numpy(operation: Any, in0: Any, in1: Any, out: Any) -> Callable[[], Any]:
    import numpy as np
    import opt_einsum

    terms, shapes = views(operation)

    def view(array: Any, position: int) -> Any:
        shape, strides = shapes[position]
        return np.lib.stride_tricks.as_strided(array, shape, [array.itemsize * stride for stride in strides])

    target = view(out, 2)
    main = operation.main.value
    if main == "zero":
        return lambda: target.fill(0)
    source = view(in0, 0)
    if operation.main.family == "unary":
        turned = source.transpose([terms[0].index(label) for label in terms[2]])
        if main == "relu":
            return lambda: np.maximum(turned, 0, out=target)
        return lambda: np.copyto(target, turned)
    other, text = view(in1, 1), f"{terms[0]},{terms[1]}->{terms[2]}"
    zero, relu = operation.first_touch.value == "zero", operation.last_touch.value == "relu"
    expression = opt_einsum.contract_expression(text, source.shape, other.shape)

    def contraction() -> None:
        product = expression(source, other)
        if zero:
            (np.maximum(product, 0, out=target) if relu else np.copyto(target, product))
        else:
            np.add(target, product, out=target)

    return contraction


def in_torch(operation: Any, in0: Any, in1: Any, out: Any) -> Callable[[], Any]:
    import torch

    terms, shapes = views(operation)

    def view(array: Any, position: int) -> Any:
        return torch.from_numpy(array).as_strided(*shapes[position])

    target = view(out, 2)
    main = operation.main.value
    if main == "zero":
        return target.zero_
    source = view(in0, 0)
    if operation.main.family == "unary":
        turned = source.permute([terms[0].index(label) for label in terms[2]])
        if main == "relu":
            return lambda: torch.clamp_min(turned, 0, out=target)
        return lambda: target.copy_(turned)
    other, text = view(in1, 1), f"{terms[0]},{terms[1]}->{terms[2]}"
    zero, relu = operation.first_touch.value == "zero", operation.last_touch.value == "relu"

    def contraction() -> None:
        product = torch.einsum(text, source, other)
        if zero:
            (torch.clamp_min(product, 0, out=target) if relu else target.copy_(product))
        else:
            target.add_(product)

    return contraction


def in_etops(operation: Any, threads: int, optimised: bool) -> Callable[[Any, Any, Any], Any] | None:
    """The execute function of an operation of etops; None where it has no such primitive or refuses the operation."""
    import etops

    main = {"contraction": "gemm"}.get(operation.main.value, operation.main.value)
    if operation.main.family == "unary" and main not in ("zero", "copy"):
        return None
    dimensions = operation.dimensions
    kinds = [one.execution.value for one in dimensions]
    if optimised:
        kinds, main = ["seq"] * len(kinds), "gemm" if main == "brgemm" else main
    elif "prim" not in kinds:
        return None
    elif threads > 1 and kinds[0] == "seq" and dimensions[0].kind.value != "K":
        kinds[0] = "shared"
    arrays = (0, 2) if operation.main.family == "unary" else (0, 1, 2)
    if main == "zero":
        arrays = (2, 2)  # it wants strides of an input all the same
    try:
        config = etops.TensorOperationConfig(
            backend="tpp", data_type={"f32": etops.float32, "f64": etops.float64}[str(operation.dtype)],
            prim_first=getattr(etops.prim, operation.first_touch.value), prim_main=getattr(etops.prim, main),
            prim_last=getattr(etops.prim, operation.last_touch.value),
            dim_types=tuple(getattr(etops.dim, one.kind.value.lower()) for one in dimensions),
            exec_types=tuple(getattr(etops.etype, one) for one in kinds),
            dim_sizes=tuple(one.size for one in dimensions),
            strides=(tuple(tuple(one.strides[position] for one in dimensions) for position in arrays),),
        )  # fmt: skip
        if optimised:
            limits = etops.backend.tpp.get_default_optimization_config() | {"num_threads": threads}
            config = etops.optimize(config, limits)
        return etops.TensorOperation(config).execute
    except (RuntimeError, ValueError):  # what it cannot compile it does not run
        return None


def contenders(case: Case, names: list[str], arrays: Any, threads: int) -> dict[str, Callable[[], Any]]:
    in0, in1, out = arrays
    operation = case.operation
    found = {"tilewright": partial(operation.optimise(**case.limits).compile("cpu"), in0, in1, out)}
    if "etops" in names:
        for name, optimised in (("etops", False), ("etops optimised", True)):
            execute = in_etops(operation, threads, optimised)
            if execute is not None:
                found[name] = partial(execute, in0 if in0 is not None else out, in1, out)
    if "numpy" in names:
        found["numpy"] = in_numpy(operation, in0, in1, out)
    if "torch" in names:
        found["torch"] = in_torch(operation, in0, in1, out)
    return found


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(case: Case, names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """One row: times of every contender, and the worst error against its bound."""
    import numpy as np

    operation = case.operation
    element = {"f32": np.float32, "f64": np.float64}[options.dtype]
    rng = np.random.default_rng(7)
    in0, in1, out = (placed(rng.uniform(-1, 1, n).astype(element), options.offset) if n else None
                     for n in operation.extents)  # fmt: skip
    before = out.copy()
    wide = [None if one is None else one.astype(np.float64) for one in (in0, in1, out)]
    in_numpy(operation, *wide)()
    magnitude = [None if one is None else np.abs(one.astype(np.float64)) for one in (in0, in1, before)]
    in_numpy(operation, *magnitude)()
    terms = math.prod(one.size for one in operation.dimensions if one.kind.value == "K")
    bound = (terms + 3) * np.finfo(element).eps / 2 * magnitude[2] * (2 if options.dtype == "f64" else 1)
    contraction = operation.main.family == "ternary"
    amount = operation.flops if contraction else operation.flops * out.itemsize * (1 + (in0 is not None))
    row: dict[str, Any] = {
        "name": case.name, "main": operation.main.value, "sizes": [one.size for one in operation.dimensions],
        "limits": case.limits, "dtype": options.dtype, "unit": "GFLOP/s" if contraction else "GB/s",
        "giga": 1e-9 * amount, "contenders": {},
    }  # fmt: skip
    calls = contenders(case, names, (in0, in1, out), options.threads)
    for name, call in calls.items():
        out[...] = before
        call()
        error = float(np.max(np.abs(out - wide[2]) / np.maximum(bound, np.finfo(np.float64).tiny)))
        row["contenders"][name] = {"error_over_bound": error, "correct": error <= 1.0}
    out[...] = 0
    repeats = {name: repeats_of(call) for name, call in calls.items()}
    timed = {name: partial(repeated, call, repeats[name]) for name, call in calls.items()}
    clock = time.process_time if clock_is_cpu(options) else time.perf_counter
    for name, times in interleaved(timed, options.seconds, clock, settling(options.threads)).items():
        row["contenders"][name] |= summary([one / repeats[name] for one in times])
    return row


def placed(array: Any, offset: int) -> Any:
    """A copy that begins `offset` bytes behind a multiple of 64."""
    import numpy as np

    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    copy = memory[start : start + array.nbytes].view(array.dtype)
    copy[...] = array
    return copy


def repeats_of(call: Callable[[], Any]) -> int:
    """How many calls take about a millisecond: clocks of processor time are coarse."""
    call()
    start = time.perf_counter()
    call()
    return max(1, min(1000, int(1e-3 / max(1e-7, time.perf_counter() - start))))


def repeated(call: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        call()


def clock_is_cpu(options: argparse.Namespace) -> bool:
    return bool(options.clock == "cpu" or (options.clock == "auto" and options.threads == 1))


def best_of(row: dict[str, Any], peer: str) -> float | None:
    """The best time of a peer, in whichever of its forms, that is right."""
    times = [found["best"] for name, found in row["contenders"].items()
             if name.partition(" ")[0] == peer and found["correct"]]  # fmt: skip
    return min(times, default=None)


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    import tilewright as tw

    tw.set_num_threads(options.threads)
    names = [name for name in options.peers.split(",") if name == "numpy" or is_installed(name)]
    if "torch" in names:
        import torch

        torch.set_num_threads(options.threads)
    machine = describe_machine()
    print(f"{machine['processor']}, {options.threads} of {machine['cores']} cores, {machine['versions']}")
    head = f"{'case':<32}{'giga':>8}{'ours':>9}"
    print(head + "".join(f"{peer:>9}{'ratio':>7}" for peer in names) + "  (GFLOP/s of contractions, GB/s of others)")
    rows = []
    for case in cases(options.dtype):
        if not any(fnmatch.fnmatch(case.name, pattern) for pattern in options.name.split(",")):
            continue
        row = measure(case, names, options)
        rows.append(row)
        print(line_of(row, names, options.peak), flush=True)
    for peer in names:
        for unit in ("GFLOP/s", "GB/s"):
            pairs = [(best_of(row, peer), row["contenders"]["tilewright"]["best"])
                     for row in rows if row["unit"] == unit]  # fmt: skip
            ratios = [theirs / ours for theirs, ours in pairs if theirs is not None]
            if ratios:
                print(f"our speed over {peer}'s, {len(ratios)} cases in {unit}: geometric mean "
                      f"{geometric_mean(ratios):.2f}, least {min(ratios):.2f}")  # fmt: skip
    content = {
        "machine": machine, "settings": changed, "threads": options.threads, "offset": options.offset,
        "clock": "cpu" if clock_is_cpu(options) else "wall", "load_average": os.getloadavg()[0], "rows": rows,
    }  # fmt: skip
    print(f"written: {write_results(options.output, content)}")
    return 0 if all(row["contenders"]["tilewright"]["correct"] for row in rows) else 1


def line_of(row: dict[str, Any], peers: list[str], peak: float) -> str:
    ours = row["contenders"]["tilewright"]["best"]
    line = f"{row['name']:<32}{row['giga']:>8.4f}{row['giga'] / ours:>9.1f}"
    for peer in peers:
        theirs = best_of(row, peer)
        line += f"{'-':>9}{'-':>7}" if theirs is None else f"{row['giga'] / theirs:>9.1f}{theirs / ours:>7.2f}"
    if peak and row["unit"] == "GFLOP/s":
        line += f"  {100 * row['giga'] / ours / peak:.0f}% of peak"
    wrong = [name for name, found in row["contenders"].items() if not found["correct"]]
    return line + (f"  WRONG: {', '.join(wrong)}" if wrong else "")


def is_installed(name: str) -> bool:
    from importlib.util import find_spec

    found = find_spec(name) is not None
    if not found:
        print(f"{name} is not installed")
    return found


if __name__ == "__main__":
    sys.exit(main())
