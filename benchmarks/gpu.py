"""Contractions on a CUDA device, on arrays that lie there already, beside torch and CuPy where they are installed.

    PYTHONPATH=src python3 benchmarks/gpu.py [--target cuda] [--seconds 180] [--name 'mm*'] [--divide 1]

Cases: the thesis's contractions on its data sets, then benchmarks/contractions.json. Only kernels are timed, whole
launches with a wait at the end of each batch. Results are checked on the device against torch in double precision where
torch is there and the memory allows, and always at random elements against NumPy. Needs NumPy, the CUDA bindings and a
driver, nothing else.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from isolated import isolated
from support import HERE, describe_machine, geometric_mean, interleaved, summary, write_results

from tilewright.cli.stages import follow
from tilewright.contraction.form import Contraction
from tilewright.kernel.launch import Launch
from tilewright.passes.contractions.contraction_launches import contraction_launches
from tilewright.report.explain import explain_contraction
from tilewright.runtime.devices import device_for, open_device
from tilewright.runtime.errors import DeviceError

FIRST = (
    ("gemm-4096", "aq,qb->ab", {"a": 4096, "b": 4096, "q": 4096}),
    ("gemm-tn-4096", "qa,qb->ab", {"a": 4096, "b": 4096, "q": 4096}),
    ("gemm-1024", "aq,qb->ab", {"a": 1024, "b": 1024, "q": 1024}),
    ("batched-256", "baq,bqc->bac", {"b": 64, "a": 256, "c": 256, "q": 256}),
    ("gemv-16384", "aq,q->a", {"a": 16384, "q": 16384}),
    ("tall-64", "qa,qb->ab", {"a": 64, "b": 64, "q": 1_000_000}),
)
SAMPLES = 2000
DEVICE = "the device"
BATCH_SECONDS = 0.05


def cases(divide: int) -> Iterator[tuple[str, str, dict[str, int]]]:
    """(name, expression, sizes): products of matrices and what has few results, the thesis's, then the suite's."""
    for name, expression, sizes in FIRST:
        yield name, expression, {index: max(1, extent // divide) for index, extent in sizes.items()}
    thesis = json.loads((HERE / "thesis.json").read_text())
    for name, expression in thesis["contractions"].items():
        for dataset, sizes in thesis["datasets"].items():
            if (dataset == "mm") == name.startswith("mm"):
                kept = {index: max(1, extent // divide) for index, extent in sizes.items() if index in expression}
                yield f"{name}-{dataset.replace('dataset_', 'ds')}", expression, kept
    for case in json.loads((HERE / "contractions.json").read_text()):
        yield case["name"], case["expr"], {index: max(1, n // divide) for index, n in case["sizes"].items()}


def operands(expression: str, sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    terms = expression.partition("->")[0].split(",")
    return [rng.uniform(-1, 1, [sizes[i] for i in term]).astype(np.float32) for term in terms]


def sampled_error(expression: str, sizes: dict[str, int], arrays: list[np.ndarray], result: np.ndarray) -> float:
    """The worst error over its bound (n + 3) u |A| |B| at random elements of the result."""
    rng = np.random.default_rng(6)
    left, right, output = (*expression.partition("->")[0].split(","), expression.partition("->")[2])
    terms = math.prod(n for i, n in sizes.items() if i not in output)
    worst = 0.0
    for _ in range(SAMPLES):
        place = {index: int(rng.integers(sizes[index])) for index in output}
        parts = [array[tuple(place.get(i, slice(None)) for i in term)].astype(np.float64)
                 for array, term in zip(arrays, (left, right), strict=True)]  # fmt: skip
        rest = ["".join(i for i in term if i not in place) for term in (left, right)]
        exact = np.einsum(f"{rest[0]},{rest[1]}->", *parts)
        bound = (terms + 3) * 2.0**-24 * np.einsum(f"{rest[0]},{rest[1]}->", *map(np.abs, parts))
        value = float(result[tuple(place[i] for i in output)])
        worst = max(worst, abs(value - exact) / max(bound, 1e-300)) if not math.isnan(value) else math.inf
    return worst


class Ours:
    """Our kernels for one contraction with their buffers on the device."""

    def __init__(self, contraction: Contraction, arrays: list[np.ndarray], shape: tuple[int, ...], target: str) -> None:
        self.device = device_for(target)
        self.runtime = open_device(self.device)
        planned = contraction_launches(contraction, self.device.machine)
        start = time.perf_counter()
        compiled = [self.runtime.compile(one.kernel) for one in planned]
        self.compile_seconds = time.perf_counter() - start
        self.result = np.empty(shape, np.float32)
        out = self.runtime.allocate(self.result.nbytes)
        by_name = {contraction.left.buffer: 0, contraction.right.buffer: 1}
        given = [self.runtime.upload(one) for one in arrays]
        named = {contraction.out.buffer: out, **{name: given[which] for name, which in by_name.items()}}
        made = {
            one.name: self.runtime.allocate(one.elements * one.element.bytes)
            for launch in planned
            for one in launch.temporaries
        }
        self.out, self.given = out, [*given, *made.values()]
        named |= made
        self.registers, self.spill_bytes = (
            max(found) for found in zip(*((one.registers, one.spill_bytes) for one in compiled), strict=True)
        )
        self.launches = [
            (one, launch.blocks, [named[name] for name in launch.buffers], self._scalars(launch))
            for one, launch in zip(compiled, planned, strict=True)
        ]

    @staticmethod
    def _scalars(launch: Launch) -> list[Any]:
        return list(zip(launch.scalars, [one.type for one in launch.kernel.scalars], strict=True))

    def launch(self) -> None:
        for one in self.launches:
            self.runtime.launch(*one)

    def download(self) -> np.ndarray:
        self.runtime.download(self.out, self.result)
        return self.result

    def release(self) -> None:
        for buffer in (self.out, *self.given):
            self.runtime.release(buffer)


Peer: TypeAlias = tuple[Callable[[], Any], Callable[[], None]]
"""A peer's call, and waiting for the device."""


def in_torch(expression: str, arrays: list[np.ndarray]) -> Peer | None:
    """torch's einsum in full f32 precision; None where it is not installed or sees no device."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.from_numpy(one).cuda() for one in arrays)
    return (lambda: torch.einsum(expression, a, b)), torch.cuda.synchronize


def in_cupy(expression: str, arrays: list[np.ndarray]) -> Peer | None:
    """CuPy's einsum; None where it is not installed or sees no device."""
    try:
        import cupy
    except ImportError:
        return None
    if not cupy.is_available():
        return None
    x, y = (cupy.asarray(one) for one in arrays)
    return (lambda: cupy.einsum(expression, x, y, optimize=True)), cupy.cuda.Device().synchronize


PEERS: dict[str, Callable[[str, list[np.ndarray]], Peer | None]] = {"torch": in_torch, "cupy": in_cupy}


def whole_error(expression: str, terms: int, arrays: list[np.ndarray], result: np.ndarray) -> float | None:
    """The worst error over its bound at all elements, computed by torch on the device; None where it cannot be."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    try:
        a, b = (torch.from_numpy(one).cuda().double() for one in arrays)
        bound = torch.einsum(expression, a.abs(), b.abs()) * ((terms + 3) * 2.0**-24)
        difference = (torch.einsum(expression, a, b) - torch.from_numpy(result).cuda()).abs()
        return float((difference / bound.clamp_min(1e-300)).max())
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()


def batched(call: Callable[[], Any], wait: Callable[[], None]) -> tuple[Callable[[], None], int]:
    """A function that calls often enough for the clock and then waits, and how often that is."""
    call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    count = max(1, min(200, int(BATCH_SECONDS / max(time.perf_counter() - start, 1e-6))))

    def run() -> None:
        for _ in range(count):
            call()
        wait()

    return run, count


def measure(name: str, expression: str, sizes: dict[str, int], target: str) -> dict[str, Any]:
    (contraction,) = follow(expression, sizes, "f32").found
    if not isinstance(contraction, Contraction):
        raise ValueError(f"{name}: {'; '.join(contraction.reasons)}")
    arrays = operands(expression, sizes)
    output = expression.partition("->")[2]
    terms = math.prod(n for i, n in sizes.items() if i not in output)
    flops = 2.0 * math.prod(sizes.values())
    ours = Ours(contraction, arrays, tuple(sizes[i] for i in output), target)
    try:
        ours.launch()
        result = ours.download()
        errors = [sampled_error(expression, sizes, arrays, result), whole_error(expression, terms, arrays, result)]
        runs = {"tilewright": batched(ours.launch, ours.runtime.synchronise)}
        for key, make in PEERS.items():
            try:
                found = make(expression, arrays)
                runs |= {key: batched(*found)} if found is not None else {}
            except Exception as error:  # a peer that cannot do it is not measured
                print(f"{name}: {key} fails: {error}", flush=True)
        times = interleaved({key: run for key, (run, _) in runs.items()}, 0.2)
        details = explain_contraction(contraction, ours.device.machine)
        return {
            "name": name, "expr": expression, "sizes": sizes, "gflop": flops * 1e-9,
            "error_over_bound": max(one for one in errors if one is not None),
            "whole_result_checked": errors[1] is not None,
            "compile_seconds": ours.compile_seconds, "registers": ours.registers,
            "spill_bytes": ours.spill_bytes, "tiles": details.tiled.tiles if details.tiled else None,
            "bound_seconds": details.roofline.seconds,
            "contenders": {key: summary([t / runs[key][1] for t in found]) for key, found in times.items()},
        }  # fmt: skip
    finally:
        ours.release()


def line_of(row: dict[str, Any]) -> str:
    """A result as one line."""
    rates = {key: row["gflop"] / found["best"] for key, found in row["contenders"].items()}
    bound = row["gflop"] / row["bound_seconds"] if row["bound_seconds"] else math.nan
    wrong = "" if row["error_over_bound"] <= 1 else "  WRONG"
    return (f"{row['name']:<12}{row['expr']:<22}" + "".join(f"{key} {rate:,.0f}  " for key, rate in rates.items())
            + f"of {bound:,.0f} GFLOP/s, {row['registers']} registers, {row['spill_bytes']} spilled,"
            f" error/bound {row['error_over_bound']:.3f}{wrong}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=180.0, help="no case is begun then, or lasts 40 s more")
    parser.add_argument("--name", default="*")
    parser.add_argument("--divide", type=int, default=1, help="divides all sizes")
    options = parser.parse_args()
    chosen = {
        name: (expression, sizes)
        for name, expression, sizes in cases(options.divide)
        if any(fnmatch.fnmatch(name, pattern) for pattern in options.name.split(","))
    }
    content: dict[str, Any] = {"device": "", "machine": describe_machine(), "rows": [], "failed": {}, "not_run": []}
    rows, failed = content["rows"], content["failed"]

    def work(name: str) -> Any:
        return str(device_for(options.target)) if name == DEVICE else measure(name, *chosen[name], options.target)

    for one in isolated([DEVICE, *chosen], work, DeviceError, options.seconds):
        if one.name == DEVICE:
            if one.problem:
                print(one.problem, file=sys.stderr)
                return 1
            content["device"] = one.result
            print(one.result, flush=True)
            continue
        if not one.begun:
            content["not_run"].append(one.name)
        elif one.problem:
            failed[one.name] = one.problem
            print(f"{one.name}: FAILED: {one.problem}", flush=True)
        else:
            rows.append(one.result)
            if one.result["error_over_bound"] > 1:
                failed[one.name] = f"wrong: an error of {one.result['error_over_bound']:.3g} times its bound"
            print(line_of(one.result), flush=True)
        write_results("gpu", content)  # each time: what was measured stays, whatever ends this
    for peer in PEERS:
        ratios = [
            r["contenders"][peer]["best"] / r["contenders"]["tilewright"]["best"]
            for r in rows
            if peer in r["contenders"]
        ]
        if ratios:
            print(f"geometric mean of our speed over {peer}'s: {geometric_mean(ratios):.2f} in {len(ratios)} cases")
    if content["not_run"]:
        print(f"not measured, the time was up: {', '.join(content['not_run'])}")
    print(f"written: {write_results('gpu', content)}")
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "none failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
