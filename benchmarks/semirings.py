"""Matrix products over other semirings, integers, bools and complex numbers, and with epilogues, on one core.

    python benchmarks/semirings.py [--size 1024] [--seconds 0.5] [--name 'min_plus*,matmul*'] [--peers ...]

Beside each rate stands that of the same instructions on registers (the product's own peak: an addition and a minimum
for min-plus, four fused multiply-adds for a complex product), measured on this machine at the start. Peers are NumPy,
torch and numba where they are installed and have the operation; all are called in turns in one process, and results
are checked on rows against NumPy.
"""

from __future__ import annotations

import argparse
import ctypes
import fnmatch
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from support import describe_machine, interleaved, summary, with_best_settings, write_results

TILE = (4, 6)  # vectors and broadcasts, as in a register tile
TRIPS = 20_000
FUSED, ROUNDS = ("fma", "complex"), 4  # of steps on the same operands, which cannot be merged if they are fused


@dataclass(frozen=True)
class Case:
    """One product: how we are called, what peers do, the type, and the operators of a step on vectors."""

    name: str
    dtype: str
    call: Callable[[Any, Any, Any], Any]
    reference: Callable[[Any, Any], Any]
    peers: dict[str, Callable[[Any, Any, Any], Any]]
    step: str  # "fma", "complex", or "map,combine"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each contender of each case")
    parser.add_argument("--name", default="*", help="names of cases, with *, separated by commas")
    parser.add_argument("--peers", default="numpy,torch,numba")
    parser.add_argument("--output", default="semirings", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


# --- the peak of a step -----------------------------------------------------------------------------------------------


def peak(dtype: str, step: str) -> float:
    """Steps per second, in 1e9, of acc = combine(acc, map(x, y)) on vectors in registers."""
    from tilewright.ir.scalars import BOOL, U8, scalar_type_of
    from tilewright.machine.detect import host_machine
    from tilewright.passes.items.scalar_values import component_types
    from tilewright.runtime.cpu_jit import compile_kernel

    scalar = scalar_type_of(dtype)
    part = U8 if scalar == BOOL else component_types(scalar)[0]
    lanes = host_machine().lanes(part.bytes)
    native = compile_kernel(_peak_kernel(part, lanes, step), "none")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(native.address)
    memory = ctypes.create_string_buffer(64 * 1024)
    start = -ctypes.addressof(memory) % 64
    slots = ctypes.create_string_buffer(struct.pack("<q", ctypes.addressof(memory) + start))
    best = float("inf")
    for _ in range(30):
        begin = time.process_time()
        function(ctypes.addressof(slots), 0, 1, None)
        best = min(best, time.process_time() - begin)
    cells = TILE[0] * TILE[1] // (4 if step == "complex" else 1)
    return 1e-9 * TRIPS * cells * lanes * (ROUNDS if step in FUSED else 1) / best


def _peak_kernel(part: Any, lanes: int, step: str) -> Any:
    """A tile of accumulators, and operands that are loaded anew in every trip."""
    from tilewright.ir.scalars import I64
    from tilewright.kernel import ir as k

    memory, vector = k.Buffer("memory", part), k.VectorType(part, lanes)
    index = k.Name("trip", I64)
    at = k.operation("and", index, k.integer(7))

    def operand(number: int) -> Any:
        return k.load(memory, k.multiply(k.add(at, k.integer(number)), k.integer(lanes)), lanes, aligned=True)

    parts = 2 if step == "complex" else 1
    vectors, rows = TILE[0] // parts, TILE[1] // parts
    body: list[Any] = []
    names = [[k.Name(f"v{i}_{p}", vector) for p in range(parts)] for i in range(vectors + rows)]
    for i, group in enumerate(names):
        body += [k.Let(name.name, operand(parts * i + p)) for p, name in enumerate(group)]
    totals = {
        (i, j): [k.Name(f"total{i}_{j}_{p}", vector) for p in range(parts)] for i in range(vectors) for j in range(rows)
    }
    for _ in range(ROUNDS if step in FUSED else 1):
        for (i, j), total in totals.items():
            body += _step(step, total, names[i], names[vectors + j], vector)
    zero = k.Broadcast(k.Constant(0.0 if part.is_float else 0, part), vector)
    before = [k.Declare(one.name, zero) for total in totals.values() for one in total]
    after = [
        k.Store(memory, k.integer((64 + n) * lanes), one)
        for n, one in enumerate(one for total in totals.values() for one in total)
    ]
    loop = k.For(index.name, k.integer(0), k.integer(TRIPS), tuple(body))
    return k.Kernel("semiring_peak", (memory,), (), (), (*before, loop, *after))


def _step(step: str, total: list[Any], x: list[Any], y: list[Any], vector: Any) -> list[Any]:
    from tilewright.kernel import ir as k

    def fma(place: int, one: Any, other: Any) -> Any:
        return k.Assign(total[place].name, k.Operation("fma", (one, other, total[place]), vector))

    if step == "fma":
        return [fma(0, x[0], y[0])]
    if step == "complex":
        minus = k.operation("neg", x[1])
        return [fma(0, x[0], y[0]), fma(1, x[0], y[1]), fma(0, minus, y[1]), fma(1, x[1], y[0])]

    def apply(operator: str, one: Any, other: Any) -> Any:
        if operator in ("min", "max") and vector.element.is_float:  # one instruction, not minding nan
            return k.operation("select", k.operation("lt" if operator == "min" else "gt", one, other), one, other)
        return k.operation(operator, one, other)

    first, second = step.split(",")
    return [k.Assign(total[0].name, apply(second, apply(first, x[0], y[0]), total[0]))]


# --- cases ------------------------------------------------------------------------------------------------------------


def operands(dtype: str, size: int) -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(3)
    element = np.dtype(dtype)
    if element.kind == "b":
        return rng.random((size, size)) < 0.05, rng.random((size, size)) < 0.05
    if element.kind in "iu":
        return tuple(rng.integers(0, 9, (size, size)).astype(element) for _ in range(2))  # type: ignore[return-value]
    values = [rng.standard_normal((size, size)) for _ in range(4)]
    if element.kind == "c":
        return (values[0] + 1j * values[1]).astype(element), (values[2] + 1j * values[3]).astype(element)
    return values[0].astype(element), values[1].astype(element)


def semiring_cases(found: dict[str, Any]) -> list[Case]:
    """min-plus and its kin, of several types."""
    import numpy as np

    import tilewright as tw

    min_max = tw.Semiring(np.maximum, np.minimum, float("inf"), name="min_max", distributive=True)
    xor_and = tw.Semiring(lambda a, b: a & b, lambda a, b: a ^ b, 0, name="xor_and", distributive=True)
    named = [
        ("min_plus", "min_plus", np.add, np.minimum, "add,min", ("float32", "float64", "int32", "int64", "int8")),
        ("max_times", "max_times", np.multiply, np.maximum, "mul,max", ("float32",)),
        ("min_max", min_max, np.maximum, np.minimum, "max,min", ("float32", "int32")),
        ("or_and", "or_and", np.bitwise_and, np.bitwise_or, "and,or", ("bool", "int64")),
        ("xor_and", xor_and, np.bitwise_and, np.bitwise_xor, "and,xor", ("bool",)),
        ("matmul", "plus_times", np.multiply, np.add, "mul,add", ("int8", "int16", "int32", "int64")),
    ]
    cases = []
    for name, semiring, function, combine, step, dtypes in named:
        for dtype in dtypes:
            peers: dict[str, Any] = {}
            if "numba" in found:
                peers["numba"] = _numba_product(found["numba"], name, dtype)
            if name == "matmul" and "torch" in found and dtype != "int8":
                peers["torch"] = lambda a, b, out, t=found["torch"]: t.mm(t.from_numpy(a), t.from_numpy(b)).numpy()
            cases.append(
                Case(
                    f"{name} {dtype}",
                    dtype,
                    lambda a, b, out, s=semiring: tw.einsum("ij,jk->ik", a, b, semiring=s, out=out),
                    lambda a, b, f=function, c=combine: c.reduce(f(a[:, :, None], b[None]), axis=1, dtype=a.dtype),
                    peers,
                    step,
                )
            )
    return cases


def _numba_product(numba: Any, name: str, dtype: str) -> Callable[[Any, Any, Any], Any]:
    """The loop nest that a user writes, with the row innermost, so that numba's compiler runs it in vectors."""
    import numpy as np

    scopes: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
        "min_plus": (lambda a, b: a + b, min, np.inf),
        "max_times": (lambda a, b: a * b, max, -np.inf),
        "min_max": (max, min, np.inf),
        "or_and": (lambda a, b: a & b, lambda a, b: a | b, 0),
        "xor_and": (lambda a, b: a & b, lambda a, b: a ^ b, 0),
        "matmul": (lambda a, b: a * b, lambda a, b: a + b, 0),
    }
    function, combine, neutral = scopes[name]
    element = np.dtype(dtype)
    if neutral == np.inf and element.kind == "i":
        neutral = np.iinfo(element).max
    multiply, total = numba.njit(function) if function is not max else max, combine
    add = numba.njit(total) if total not in (min, max) else total

    @numba.njit(fastmath=True)
    def product(a: Any, b: Any, out: Any) -> Any:
        for i in range(a.shape[0]):
            out[i, :] = neutral
            for j in range(a.shape[1]):
                x = a[i, j]
                for k in range(b.shape[1]):
                    out[i, k] = add(out[i, k], multiply(x, b[j, k]))
        return out

    return product


def float_cases(found: dict[str, Any], size: int) -> list[Case]:
    """Complex products, and real ones with epilogues."""
    import numpy as np

    import tilewright as tw

    rng = np.random.default_rng(5)
    bias, residual = rng.standard_normal(size).astype("f4"), rng.standard_normal((size, size)).astype("f4")
    text = "ij,jk->ik"

    def gelu(c: Any) -> Any:
        return 0.5 * c * (1 + np.tanh(0.7978845608 * (c + 0.044715 * c * c * c)))

    def relu_of_sum(c: Any, b: Any) -> Any:
        return np.maximum(c + b, 0)

    def epilogue(name: str, ours: dict[str, Any], after: Callable[[Any], Any]) -> Case:
        def numpy_call(a: Any, b: Any, out: Any) -> Any:
            return after(np.matmul(a, b))

        peers = {"numpy": numpy_call} if "numpy" in found else {}
        if name == "bias row relu" and "torch" in found:
            t = found["torch"]
            peers["torch"] = lambda a, b, out: t.relu_(
                t.addmm(t.from_numpy(bias), t.from_numpy(a), t.from_numpy(b))
            ).numpy()
        call = lambda a, b, out: tw.einsum(text, a, b, out=out, **ours)  # noqa: E731
        return Case(f"matmul {name} float32", "float32", call, lambda a, b: after(a @ b), peers, "fma")

    rows = bias[:, None]
    cases = [
        epilogue("plain", {}, lambda c: c),
        epilogue("bias row relu", {"epilogue": relu_of_sum, "epilogue_operands": ((bias, "k"),)},
                 lambda c: np.maximum(c + bias, 0)),
        epilogue("bias column relu", {"epilogue": relu_of_sum, "epilogue_operands": ((bias, "i"),)},
                 lambda c: np.maximum(c + rows[: len(c)], 0)),
        epilogue("residual", {"epilogue": lambda c, r: c + r, "epilogue_operands": ((residual, "ik"),)},
                 lambda c: c + residual[: len(c)]),
        epilogue("gelu", {"epilogue": gelu}, gelu),
        epilogue("alpha", {"alpha": 0.5}, lambda c: c * np.float32(0.5)),
    ]  # fmt: skip
    for dtype in ("complex64", "complex128"):
        peers = {"numpy": lambda a, b, out: np.matmul(a, b, out=out)} if "numpy" in found else {}
        if "torch" in found:
            peers["torch"] = lambda a, b, out, t=found["torch"]: t.mm(t.from_numpy(a), t.from_numpy(b)).numpy()
        call = lambda a, b, out: tw.einsum(text, a, b, out=out)  # noqa: E731
        cases.append(Case(f"matmul {dtype}", dtype, call, lambda a, b: a @ b, peers, "complex"))
    return cases


def importable(names: list[str]) -> dict[str, Any]:
    """The peers that are installed."""
    import importlib

    found = {}
    for name in names:
        try:
            found[name] = importlib.import_module(name)
        except ImportError:
            print(f"{name} is not installed")
    if "torch" in found:
        found["torch"].set_num_threads(1)
    return found


def is_right(case: Case, result: Any, a: Any, b: Any) -> bool:
    """A few rows: exactly, or for sums of floats within (n + 3) u times the sum of absolute values and more."""
    import numpy as np

    picked = slice(0, 4)
    if a.dtype.kind not in "fc" or case.step not in ("fma", "complex"):
        return bool(np.array_equal(result[picked], case.reference(a[picked], b)))
    wide = a.dtype.char.lower().replace("f", "d") if a.dtype.kind == "f" else "D"
    exact = case.reference(a[picked].astype(wide), b.astype(wide))
    bound = 8 * (len(a) + 3) * np.finfo(a.dtype).eps * (np.abs(a[picked]) @ np.abs(b) + 1)
    return bool(np.all(np.abs(result[picked] - exact) <= bound))


def main() -> int:
    options = arguments()
    changed = with_best_settings(1)
    import numpy as np

    import tilewright as tw

    tw.set_num_threads(1)
    found = importable(options.peers.split(","))
    machine = describe_machine()
    print(f"{machine['processor']}, one core, {machine['versions']}")
    rows, wrong = [], 0
    for case in (*semiring_cases(found), *float_cases(found, options.size)):
        if not any(fnmatch.fnmatch(case.name, pattern) for pattern in options.name.split(",")):
            continue
        a, b = operands(case.dtype, options.size)
        calls, correct = {}, {}
        for name, function in {"tilewright": case.call, **case.peers}.items():
            out = np.empty((options.size, options.size), case.dtype)
            calls[name] = partial(function, a, b, out)
            correct[name] = is_right(case, calls[name](), a, b)
        highest, steps = peak(case.dtype, case.step), 1e-9 * options.size**3
        times = {name: summary(all_) for name, all_ in interleaved(calls, options.seconds, time.process_time).items()}
        rates = {name: steps / one["best"] for name, one in times.items()}
        rows.append({"name": case.name, "size": options.size, "peak": highest, "rates": rates, "correct": correct,
                     "times": times})  # fmt: skip
        line = " ".join(f"{name} {one:.1f}" + ("" if correct[name] else " WRONG") for name, one in rates.items())
        share = rates["tilewright"] / highest
        print(f"{case.name:<32} 1e9 steps/s: {line}  peak {highest:.1f}, share {share:.2f}", flush=True)
        wrong += not correct["tilewright"]
    print(f"written: {write_results(options.output, {'machine': machine, 'settings': changed, 'rows': rows})}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
