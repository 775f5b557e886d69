"""Work that reads an array once or twice: folds, norms, softmax, running sums, beside NumPy, torch and numba.

    python benchmarks/reductions.py [--threads N] [--name 'sum*,max*'] [--dtype f32,f64] [--shape 1000x1000]

Names are function and axis: "rows" folds each row (axis 1), "columns" each column (axis 0), "all" everything. Each
contender gets an array of its own library that shares the memory, and makes a new result. numba's programs are plain
loops over the axis (`fastmath`, parallel over rows with several threads); where it has none it is left out, as for
f16, which it does not know. Results are compared with NumPy's in double precision.
"""

# ruff: noqa: F821, UP037
from __future__ import annotations

import argparse
import fnmatch
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from support import describe_machine, geometric_mean, interleaved, settling, summary, with_best_settings, write_results

SHAPES = ("64x64", "1000x1000", "4000x4000", "100000x16", "16x100000")
AXES = {"rows": 1, "columns": 0, "all": None}
TYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "i8": "int8", "bool": "bool"}
FLOATS = ("f32", "f64", "f16")
OF_FLOATS = ("dot", "mean", "var", "norm", "logsumexp", "softmax", "layer_norm")
FUNCTIONS = ("sum", "max", "argmax", "cumsum", *OF_FLOATS)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="*", help="cases, with *, separated by commas: 'sum rows'")
    parser.add_argument("--dtype", default=",".join(TYPES))
    parser.add_argument("--shape", default=",".join(SHAPES))
    parser.add_argument("--peers", default="numpy,torch,numba")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each contender of each case")
    parser.add_argument("--clock", choices=("auto", "wall", "cpu"), default="auto")
    parser.add_argument("--output", default="", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


def array_functions(np: Any, axis: int | None) -> dict[str, Callable[[Any], Any]]:
    """The functions as one writes them with NumPy, which are ours too."""

    def kept(x: Any, fold: str) -> Any:
        return getattr(x, fold)(axis=axis, keepdims=True)

    def softmax(x: Any) -> Any:
        e = np.exp(x - kept(x, "max"))
        return e / kept(e, "sum")

    def logsumexp(x: Any) -> Any:
        top = x.max(axis=axis)
        shifted = np.exp(x - (top if axis != 1 else top[:, None]))
        return top + np.log(shifted.sum(axis=axis))

    def layer_norm(x: Any) -> Any:
        centred = x - kept(x, "mean")
        return centred / np.sqrt((centred * centred).mean(axis=axis, keepdims=True) + 1e-5)

    return {
        "sum": lambda x: x.sum(axis=axis), "max": lambda x: x.max(axis=axis), "argmax": lambda x: x.argmax(axis=axis),
        "mean": lambda x: x.mean(axis=axis), "var": lambda x: x.var(axis=axis),
        "norm": lambda x: np.linalg.norm(x if axis is not None else x.reshape(-1), axis=axis),
        "dot": lambda x: (x * x).sum(axis=axis), "logsumexp": logsumexp, "softmax": softmax,
        "layer_norm": layer_norm, "cumsum": lambda x: np.cumsum(x, axis=axis),
    }  # fmt: skip


def torch_functions(torch: Any, axis: int | None) -> dict[str, Callable[[Any], Any]]:
    """The same with torch; softmax and layer norm are its own."""
    axes = (0, 1) if axis is None else axis

    def layer_norm(x: Any) -> Any:
        if axis == 0:
            return torch.nn.functional.layer_norm(x.T, (x.shape[0],)).T.contiguous()
        return torch.nn.functional.layer_norm(x, x.shape[1:] if axis == 1 else x.shape)

    def softmax(x: Any) -> Any:
        return torch.softmax(x, axis) if axis is not None else torch.softmax(x.reshape(-1), 0).reshape(x.shape)

    def largest(x: Any) -> Any:
        return x.max() if axis is None else x.amax(axis)

    return {
        "sum": lambda x: x.sum(axes), "max": largest, "argmax": lambda x: x.argmax(axis),
        "mean": lambda x: x.mean(axes), "var": lambda x: x.var(axes, unbiased=False),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=axes),
        "dot": lambda x: (x * x).sum(axes), "logsumexp": lambda x: torch.logsumexp(x, axes),
        "softmax": softmax, "layer_norm": layer_norm,
        "cumsum": lambda x: torch.cumsum(x.reshape(-1) if axis is None else x, 0 if axis is None else axis),
    }  # fmt: skip


def cases(options: argparse.Namespace) -> Iterator[tuple[str, str, str, str]]:
    """Function, axis, dtype, shape."""
    for function in FUNCTIONS:
        for over in AXES:
            if not any(fnmatch.fnmatch(f"{function} {over}", one) for one in options.name.split(",")):
                continue
            for dtype in options.dtype.split(","):
                if dtype not in FLOATS and (function in OF_FLOATS or (dtype == "bool" and function != "sum")):
                    continue
                for shape in options.shape.split(","):
                    yield function, over, dtype, shape


def our_program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A program of any matrix."""
    import tilewright as tw

    @tw.program
    def fold(x: tw.array["n", "m"]) -> Any:
        return function(x)

    return fold


def contenders(function: str, over: str, x: Any, options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Calls by name."""
    import numpy as np

    axis, peers = AXES[over], options.peers.split(",")
    written = array_functions(np, axis)[function]
    found: dict[str, Callable[[], Any]] = {"tilewright": partial(our_program(written), x)}
    if "numpy" in peers:
        found["numpy"] = partial(written, x)
    if "torch" in peers:
        import torch

        torch.set_num_threads(options.threads)
        found["torch"] = partial(torch_functions(torch, axis)[function], torch.from_numpy(x))
    if "numba" in peers and x.dtype.kind == "f" and x.itemsize > 2:
        import numba
        import reductions_numba

        numba.set_num_threads(options.threads)
        loop = reductions_numba.LOOPS.get(f"{function} {over}")
        if loop is not None:
            found["numba"] = partial(loop, x)
    return found


def operand(dtype: str, shape: str) -> Any:
    """A random matrix."""
    import numpy as np

    rng = np.random.default_rng(3)
    sizes = [int(one) for one in shape.split("x")]
    if dtype == "bool":
        return rng.integers(0, 2, sizes).astype(bool)
    if dtype == "i8":
        return rng.integers(-128, 128, sizes, np.int8)
    return rng.uniform(-1, 1, sizes).astype(TYPES[dtype])


def is_right(found: Any, exact: Any, dtype: str, terms: int) -> bool:
    """Whether a result is near NumPy's of double precision; of torch the result may have other sizes of one element."""
    import numpy as np

    found = np.asarray(found, np.float64).reshape(np.shape(exact))
    unit = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11}.get(dtype, 0.0)
    allowed = 4 * unit * terms * (1 + np.abs(exact))
    overflowed = ~np.isfinite(found) & (dtype == "f16")  # as NumPy's does
    return bool((overflowed | (np.abs(found - exact) <= allowed)).all())


def measure(case: tuple[str, str, str, str], options: argparse.Namespace) -> dict[str, Any]:
    """One row: times of every contender, whether ours is right."""
    import numpy as np

    function, over, dtype, shape = case
    x = operand(dtype, shape)
    calls = contenders(function, over, x, options)
    wide = x.astype(np.float64) if dtype in FLOATS else x.astype(np.int64)
    exact = array_functions(np, AXES[over])[function](wide)
    correct = is_right(calls["tilewright"](), exact, dtype, x.size if over == "all" else x.shape[AXES[over] or 0])
    clock = time.process_time if options.clock == "cpu" or options.threads == 1 else time.perf_counter
    repeats, timed = {}, {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(2e-4 / max(1e-7, time.perf_counter() - start)))
        timed[name] = partial(_several, call, repeats[name])
    found = interleaved(timed, options.seconds, clock, settling(options.threads))
    times = {name: summary([one / repeats[name] for one in some]) for name, some in found.items()}
    best = min((one["best"] for name, one in times.items() if name != "tilewright"), default=0.0)
    row = {"function": function, "over": over, "dtype": dtype, "shape": shape, "correct": correct}
    gbyte = 1e-9 * x.nbytes / times["tilewright"]["best"]
    return {**row, "contenders": times, "read": gbyte, "ratio_to_best_peer": best / times["tilewright"]["best"]}


def _several(call: Callable[[], Any], repeats: int) -> None:
    for _ in range(repeats):
        call()


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    import tilewright as tw

    tw.set_num_threads(options.threads)
    warnings.simplefilter("ignore")  # NumPy's f16 overflows
    rows = []
    for case in cases(options):
        row = measure(case, options)
        rows.append(row)
        ours = row["contenders"]["tilewright"]["best"]
        others = "".join(
            f"{name:>8} {one['best'] / ours:6.2f}" for name, one in row["contenders"].items() if name != "tilewright"
        )
        note = "" if row["correct"] else "  WRONG"
        head = f"{case[0]:<11}{case[1]:<9}{case[2]:<6}{case[3]:<11}"
        print(f"{head}{ours * 1e6:>10.2f} us {row['read']:6.1f} GB/s{others}{note}", flush=True)
    mean = geometric_mean([one["ratio_to_best_peer"] for one in rows if one["ratio_to_best_peer"]])
    print(f"our speed over the best peer's, geometric mean: {mean:.2f}")
    content = {"machine": describe_machine(), "settings": changed, "threads": options.threads, "rows": rows}
    name = options.output or f"reductions-cpu-{options.threads}thread{'s' if options.threads > 1 else ''}"
    print(f"written: {write_results(name, content)}")
    return 0 if all(one["correct"] for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
