"""Correctness on a GPU: a plain script that needs nothing but NumPy, the CUDA bindings and a driver.

    PYTHONPATH=src python3 tests/gpu/run_gpu_checks.py [--target cuda] [--seconds 200] [--only WORD]

Every check computes on the device and compares every element with NumPy (in double precision, with the error bound of
the sum's length, or exactly for integers). `tests/gpu/test_gpu.py` gives the same checks to pytest.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.runtime.errors import DeviceError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import harness
from isolated import isolated

Check = Callable[[str], None]
CHECKS: dict[str, Check] = {}
THESIS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "benchmarks" / "thesis.json").read_text())
DEVICE = "the device"
SECONDS_EACH = 120.0
EXAMPLES = {
    "filter": ("tiny", "small"), "histogram": ("tiny", "medium"), "spmv": ("tiny", "small"),
    "kmeans": ("tiny", "small"), "matmul": ("tiny", "small"), "locvolcalib": ("tiny",), "lavamd": ("tiny",),
    "nbody": ("tiny", "small"), "needleman": ("tiny", "small"), "heat": ("tiny", "small"), "mandelbrot": ("tiny",),
    "blackscholes": ("tiny", "small"),
}  # fmt: skip
"""The files of examples/ whose programs are run, on which of their data sets."""
LARGEST_PRODUCT = 1 << 36
"""Points of the iteration space above which NumPy would take too long to check against."""


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < 0.3
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -9, 9, shape).astype(dtype)
    if kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def compare(expression: str, arrays: list[np.ndarray], result: np.ndarray, terms: int) -> None:
    """Every element of an einsum's result: exactly for integers, within the sum's error bound for others."""
    dtype = np.result_type(*arrays)
    if dtype.kind in "iub":
        wide: Any = np.int64 if dtype.kind != "u" else np.uint64
        exact = np.einsum(expression, *(one.astype(wide) for one in arrays), optimize=True)
        expected = exact != 0 if dtype.kind == "b" else exact.astype(dtype)
        np.testing.assert_array_equal(result, expected, err_msg=expression)
        return
    double = np.complex128 if dtype.kind == "c" else np.float64
    exact = np.einsum(expression, *(one.astype(double) for one in arrays), optimize=True)
    magnitude = np.einsum(expression, *(np.abs(one).astype(np.float64) for one in arrays), optimize=True)
    accumulated = np.finfo(np.float32 if dtype == np.float16 else dtype).eps / 2
    stored = np.finfo(dtype).eps / 2
    factor = 4.0 if dtype.kind == "c" else 1.0
    bound = factor * (terms + 3) * accumulated * magnitude + stored * np.abs(exact)
    if dtype == np.float64:
        bound = 2 * bound  # the reference rounds too
    bound = bound + (2.0**-24 if dtype == np.float16 else 0.0)  # of subnormal results
    error = np.abs(result - exact)
    worst = np.unravel_index(np.argmax(error - bound), error.shape) if error.ndim else ()
    assert np.all(error <= bound), f"{expression} {dtype}: {result[worst]!r} for {exact[worst]!r} at {worst}"


def run_einsum(
    target: str, expression: str, shapes: list[tuple[int, ...]], dtype: Any = np.float32, seed: int = 0
) -> None:
    rng = np.random.default_rng(seed)
    arrays = [random_array(rng, shape, dtype) for shape in shapes]
    terms = expression.partition("->")[0].split(",")
    sizes = {i: n for term, shape in zip(terms, shapes, strict=True) for i, n in zip(term, shape, strict=True)}
    output = expression.partition("->")[2]
    summed = int(np.prod([n for i, n in sizes.items() if i not in output], dtype=float))
    compare(expression, arrays, tw.einsum(expression, *arrays, target=target), summed)


@check
def matmul_of_every_dtype_and_layout(target: str) -> None:
    sizes = {"a": 100, "b": 129, "q": 67}
    dtypes = ("f4", "f8", "f2", "i4", "i8", "u1", "i2", "c8", "c16", "?")
    for dtype, left, right in itertools.product(dtypes, ("aq", "qa"), ("qb", "bq")):
        shapes = [tuple(sizes[i] for i in term) for term in (left, right)]
        run_einsum(target, f"{left},{right}->ab", shapes, np.dtype(dtype))


def example_programs(file: str, sizes: Sequence[str]) -> Callable[[str], None]:
    """A check that runs a file's programs twice, since the second call goes by the plan of the first."""

    def run(target: str) -> None:
        module = importlib.import_module(file)
        for size in sizes:
            arguments = module.datasets()[size]()
            for name, program in harness.programs_of(vars(module)).items():
                expected = module.references[name](*arguments)
                for call in ("first", "second"):
                    start = time.perf_counter()
                    worst = max(harness.errors(program(*arguments, target=target), expected))
                    seconds = time.perf_counter() - start
                    assert worst <= 1.0, f"{name}, {size}, the {call} call: {worst:.3g} times what is allowed"
                print(f"  {name} {size}: {seconds * 1e3:.2f} ms with transfers", flush=True)

    return run


CHECKS |= {f"example_{file}": example_programs(file, sizes) for file, sizes in EXAMPLES.items()}


@check
def matmul_of_every_partial_tile(target: str) -> None:
    for a, b, q in itertools.product((1, 31, 64, 127, 256), (1, 33, 128), (1, 7, 64, 100)):
        run_einsum(target, "aq,qb->ab", [(a, q), (q, b)])


@check
def validation_shapes_of_the_thesis(target: str) -> None:
    small = not target.startswith("cuda")
    for expression, cases in THESIS["validation_shapes"].items():
        for left, right in cases:
            reduced = [tuple(-(-n // 2) if len(left) > 2 and n < 4096 else n for n in shape) for shape in (left, right)]
            if small:
                reduced = [tuple(min(n, 40 if len(left) == 2 else 5) for n in shape) for shape in reduced]
            if np.prod(reduced[0], dtype=float) * np.prod(reduced[1][-2:], dtype=float) <= LARGEST_PRODUCT:
                run_einsum(target, expression, reduced)


def random_expressions(count: int) -> Iterator[tuple[str, list[tuple[int, ...]], int]]:
    """(expression, shapes, seed): up to two dimensions of each kind, in any order in each array."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        counts = [int(rng.integers(0, 3)), int(rng.integers(0, 3)), int(rng.integers(0, 2)), int(rng.integers(1, 3))]
        letters = iter("abcdefghijkl")
        left_only, right_only, both, summed = ([next(letters) for _ in range(n)] for n in counts)
        left, right = left_only + both + summed, right_only + both + summed
        output = left_only + right_only + both
        for labels in (left, right, output):
            rng.shuffle(labels)
        sizes = {label: int(rng.choice([1, 2, 3, 5, 8, 16, 17])) for label in {*left, *right}}
        shapes = [tuple(sizes[label] for label in labels) for labels in (left, right)]
        yield f"{''.join(left)},{''.join(right)}->{''.join(output)}", shapes, seed


@check
def random_contractions(target: str) -> None:
    for expression, shapes, seed in random_expressions(60):
        run_einsum(target, expression, shapes, np.dtype(("f4", "f8", "i4")[seed % 3]), seed)


@check
def strided_operands(target: str) -> None:
    rng = np.random.default_rng(3)
    base = rng.standard_normal((70, 3, 90)).astype(np.float32)
    left, right = base[::2, 1, ::-1], base[:45, 2, ::3].T[:, :45]
    views = [left[:, :45], np.ascontiguousarray(right.T)[:, :20]]
    compare("aq,qb->ab", views, tw.einsum("aq,qb->ab", *views, target=target), 45)
    square = base[:60, 0, :60]
    compare("ii,ij->ij", [square, square], tw.einsum("ii,ij->ij", square, square, target=target), 1)
    broadcast = np.broadcast_to(base[:1, 0, :45], (33, 45))
    compare("aq,qb->ab", [broadcast, views[1]], tw.einsum("aq,qb->ab", broadcast, views[1], target=target), 45)


@check
def semirings(target: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-50, 50, shape).astype(np.float32) for shape in ((37, 41), (41, 29)))
    table = a[:, :, None]
    for name, expected in (
        ("min_plus", (table + b).min(axis=1)),
        ("max_plus", (table + b).max(axis=1)),
        ("max_times", (table * b).max(axis=1)),
    ):
        np.testing.assert_array_equal(tw.einsum("aq,qb->ab", a, b, semiring=name, target=target), expected)
    reach = (rng.random((37, 41)) < 0.1), (rng.random((41, 29)) < 0.1)
    expected = (reach[0].astype(int) @ reach[1].astype(int)) > 0
    np.testing.assert_array_equal(tw.einsum("aq,qb->ab", *reach, semiring="or_and", target=target), expected)


@check
def epilogues(target: str) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-5, 5, shape).astype(np.float32) for shape in ((65, 40), (40, 33)))
    bias = rng.integers(-5, 5, 33).astype(np.float32)
    result = tw.einsum(
        "aq,qb->ab", a, b, epilogue=lambda c, x: tw.maximum(c + x, 0), epilogue_operands=[(bias, "b")], target=target
    )
    np.testing.assert_array_equal(result, np.maximum(a @ b + bias, 0))
    out = np.full((65, 33), 3, np.float32)
    tw.einsum("aq,qb->ab", a, b, alpha=2, beta=-1, out=out, target=target)
    np.testing.assert_array_equal(out, 2 * (a @ b) - 3)


@check
def several_operands_and_reductions(target: str) -> None:
    path = ((0, 1), (0, 1))
    rng = np.random.default_rng(6)
    arrays = [rng.integers(-3, 3, shape).astype(np.float64) for shape in ((9, 30), (30, 20), (20, 8))]
    result = tw.einsum("ab,bc,cd->ad", *arrays, optimize=path, target=target)
    np.testing.assert_array_equal(result, arrays[0] @ arrays[1] @ arrays[2])
    long = rng.integers(-3, 3, 100_000).astype(np.float64)
    assert tw.einsum("i->", long, target=target) == long.sum()
    tall = rng.integers(-3, 3, (50_000, 9)).astype(np.float64)
    np.testing.assert_array_equal(tw.einsum("ki,kj->ij", tall, tall, target=target), tall.T @ tall)
    np.testing.assert_array_equal(tw.einsum("ki,i->k", tall, tall[0], target=target), tall @ tall[0])
    assert tw.einsum("i,i->", long, long, target=target) == long @ long


@check
def more_than_2_to_the_31_elements(target: str) -> None:
    """Only on a GPU with the memory for it: a result of 2.3e9 elements, of which rows are checked."""
    if not target.startswith("cuda") or tw.device_for(target).machine.memory_bytes < 30 << 30:
        return
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-3, 3, (48_000, 4)).astype(np.float16) for _ in range(2))
    result = tw.einsum("aq,bq->ab", a, b, target=target)
    for row in (0, 1, 23_999, 44_739, 44_740, 47_999):
        np.testing.assert_array_equal(result[row], b.astype(np.float32) @ a[row].astype(np.float32))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=200.0, help="no check is begun then, or lasts 40 s more")
    parser.add_argument("--only", default="", help="a word that the names of the checks to run contain")
    options = parser.parse_args()
    failed, left_out = [], []
    names = [name for name in CHECKS if options.only in name]

    def work(name: str) -> None:
        print(tw.device_for(options.target), flush=True) if name == DEVICE else CHECKS[name](options.target)

    for one in isolated([DEVICE, *names], work, DeviceError, options.seconds, SECONDS_EACH):
        if one.problem:
            print(one.problem, file=sys.stderr, flush=True)
        if one.name == DEVICE:
            if one.problem:
                return 1
            continue
        if one.begun:
            failed += [one.name] if one.problem else []
            print(f"{'FAILED' if one.problem else 'passed'}  {one.name}  {one.seconds:.1f} s", flush=True)
        else:
            left_out.append(one.name)
    for name in left_out:
        print(f"NOT RUN {name}: the time was up")
    print(f"{len(failed)} failed, {len(left_out)} not run, on {options.target}")
    return 1 if failed or left_out else 0


if __name__ == "__main__":
    sys.exit(main())
