"""Small and bandwidth-bound products on the CPU beside NumPy, and beside torch, TBLIS and JAX where they are installed.

    python benchmarks/small.py [--dtype f32,f64] [--threads N] [--name 'square*,batched*']
    python benchmarks/small.py --dtype bf16,f16,i8 --name 'square*,*vector*'

Cases: square products from 8 to 2048 and their transposed operands, batches of small products, products with the batch
innermost, outer products, products of short sums, matrix-vector products (batches of them too), and dot products of
rows and columns. Contenders are called in turns in one process, as a user writes them, with results that are
C-contiguous; every element is checked against NumPy in double precision, with the bound (n + 3) u |A| |B| (twice that
for double precision).

Of bf16 and f16, summed in f32 and rounded once, and of bytes, summed in i32, the only other contender is torch: matmul,
and torch._int_mm, which has no matrix-vector products. Both are given tensors.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from support import describe_machine, geometric_mean, interleaved, settling, summary, with_best_settings, write_results

PEERS = ("numpy", "torch", "pytblis", "jax")
NARROW = {"bf16": 2.0**-8, "f16": 2.0**-11, "i8": 0.0}  # and the unit with which a result is rounded


def cases() -> Iterator[tuple[str, str, dict[str, int]]]:
    """Name, expression, sizes."""
    for n in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048):
        yield f"square {n}", "ik,kj->ij", dict(i=n, j=n, k=n)
    for n in (64, 128, 512):
        for text in ("ki,kj->ij", "ik,jk->ij", "ki,jk->ij"):
            yield f"square {n} {text}", text, dict(i=n, j=n, k=n)
    yield "rectangular", "ik,kj->ij", dict(i=96, j=256, k=64)
    for n in (8, 16, 24, 32, 48, 64):
        yield f"batched {n}", "bij,bjk->bik", dict(b=max(16, 2_000_000 // n**3), i=n, j=n, k=n)
    for n in (4, 8, 16, 32):
        sizes = dict(b=max(64, 2_000_000 // n**3), i=n, j=n, k=n)
        yield f"batch innermost {n}", "ijb,jkb->ikb", sizes
        yield f"one operand without batch {n}", "ijb,jk->ikb", sizes
    for n in (16, 64, 256, 512, 1024, 2048, 4096):
        yield f"outer product {n}", "i,j->ij", dict(i=n, j=n)
    for b, i, j in ((1000, 8, 8), (100, 50, 40), (20, 400, 400)):
        yield f"batched outer product {i} x {j}", "bi,bj->bij", dict(b=b, i=i, j=j)
    yield "batch innermost outer product", "ib,jb->ijb", dict(i=50, j=50, b=32)
    yield "outer product of matrices", "ai,bj->abij", dict(a=10, b=30, i=20, j=40)
    for k in (1, 2, 4):
        yield f"outer {k} in cache", "ik,kj->ij", dict(i=400, j=500, k=k)
        yield f"outer {k}", "ik,kj->ij", dict(i=4000, j=4000, k=k)
    for n in (200, 1000, 4000):
        yield f"matrix-vector {n}", "ik,k->i", dict(i=n, k=n)
        yield f"vector-matrix {n}", "k,kj->j", dict(k=n, j=n)
    for b, n in ((4000, 16), (64, 400)):
        yield f"batched matrix-vector {n}", "bik,bk->bi", dict(b=b, i=n, k=n)
        yield f"batched vector-matrix {n}", "bk,bkj->bj", dict(b=b, k=n, j=n)
    for n in (100, 4000):
        yield f"dots of rows {n}", "ik,ik->i", dict(i=n, k=n)
        yield f"dots of columns {n}", "ki,ki->i", dict(i=n, k=n)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="f32,f64")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="*", help="names of cases, with *, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each contender of each case")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--clock", choices=("auto", "wall", "cpu"), default="auto",
                        help="auto: the processor time of this process with one thread, which other programs disturb "
                        "little; the wall clock with several")  # fmt: skip
    parser.add_argument("--output", default="small", help="the name of the file in benchmarks/results/")
    return parser.parse_args()


def contenders(names: list[str], threads: int) -> dict[str, Callable[[str, Any, Any], Callable[[], Any]]]:
    """Makers of calls by name, of those contenders that are installed: (expression, a, b) -> call."""
    import numpy as np

    import tilewright as tw

    tw.set_num_threads(threads)
    found: dict[str, Callable[[str, Any, Any], Callable[[], Any]]] = {
        "tilewright": lambda text, a, b: partial(
            tw.einsum, text, a, b, order="C", dtype="i32" if str(a.dtype) == "torch.int8" else None
        )
    }
    if "numpy" in names:
        found["numpy"] = lambda text, a, b: _numpy_call(np, text, a, b)
    if "torch" in names:
        try:
            import torch
        except ImportError:
            print("torch is not installed")
        else:
            torch.set_num_threads(threads)
            found["torch"] = lambda text, a, b: _torch_call(torch, text, a, b)
    if "pytblis" in names:
        try:
            import pytblis
        except ImportError:
            print("pytblis is not installed")
        else:
            found["pytblis"] = lambda text, a, b: partial(pytblis.einsum, text, a, b)
    if "jax" in names:
        try:
            import jax
        except ImportError:
            print("jax is not installed")
        else:
            jax.config.update("jax_enable_x64", True)
            jax.config.update("jax_cpu_enable_async_dispatch", False)  # else others' times hold what it does meanwhile
            found["jax"] = lambda text, a, b: _jax_call(jax, text, a, b)
    return found


def _as_matmul(text: str, a: Any, b: Any) -> tuple[Any, Any] | None:
    """The operands of a plain `matmul` that computes this, if there is one."""
    transposed = {"ki,kj->ij": (True, False), "ik,jk->ij": (False, True), "ki,jk->ij": (True, True)}
    if text in transposed:
        turn_a, turn_b = transposed[text]
        return (a.T if turn_a else a), (b.T if turn_b else b)
    if text in ("ik,kj->ij", "bij,bjk->bik", "ik,k->i", "k,kj->j"):
        return a, b
    return None


def _numpy_call(np: Any, text: str, a: Any, b: Any) -> Callable[[], Any]:
    """`matmul` where it is one, since einsum adds time to small products."""
    operands = _as_matmul(text, a, b)
    if operands is not None:
        return partial(np.matmul, *operands)
    return lambda: np.ascontiguousarray(np.einsum(text, a, b, optimize=True))


def _torch_call(torch: Any, text: str, a: Any, b: Any) -> Callable[[], Any]:
    first, second = (one if torch.is_tensor(one) else torch.from_numpy(one) for one in (a, b))
    operands = _as_matmul(text, first, second)
    if operands is not None:
        return partial(torch._int_mm if first.dtype is torch.int8 else torch.matmul, *operands)
    return lambda: torch.einsum(text, first, second).contiguous()


def _jax_call(jax: Any, text: str, a: Any, b: Any) -> Callable[[], Any]:
    first, second = jax.numpy.asarray(a), jax.numpy.asarray(b)
    compiled = jax.jit(partial(jax.numpy.einsum, text))
    return lambda: compiled(first, second).block_until_ready()


def measure(
    case: tuple[str, str, dict[str, int]],
    dtype: str,
    makers: dict[str, Callable[[str, Any, Any], Callable[[], Any]]],
    seconds: float,
    clock: Callable[[], float],
    settle: float,
) -> dict[str, Any]:
    """One row: times of every contender, the worst error against its bound."""
    import numpy as np

    name, expression, sizes = case
    element = np.float64 if dtype == "f64" else np.float32
    left, right = expression.partition("->")[0].split(",")
    a, b = operands([[sizes[index] for index in term] for term in (left, right)], dtype)
    makers = {name: make for name, make in makers.items() if dtype not in NARROW or name in ("tilewright", "torch")}
    if dtype == "i8" and not (len(left) == len(right) == 2):
        makers.pop("torch", None)
    wide = tuple(np.asarray(one.double() if dtype in NARROW else one, np.float64) for one in (a, b))
    exact = np.einsum(expression, *wide, optimize=True)
    magnitude = np.einsum(expression, np.abs(wide[0]), np.abs(wide[1]), optimize=True)
    terms = int(np.prod([n for index, n in sizes.items() if index not in expression.partition("->")[2]], dtype=float))
    bound = (terms + 3) * np.finfo(element).eps / 2 * magnitude * (2 if dtype == "f64" else 1)
    if dtype in NARROW:
        bound = 0 * bound if dtype == "i8" else bound + NARROW[dtype] * np.abs(exact)
    gflop = 2e-9 * float(np.prod(list(sizes.values()), dtype=float))
    moved = 1e-9 * (a.nbytes + b.nbytes + exact.size * (4 if dtype == "i8" else a.itemsize))
    row: dict[str, Any] = {"name": name, "expr": expression, "sizes": sizes, "dtype": dtype}
    row |= {"gflop": gflop, "gbyte": moved, "contenders": {}}
    calls: dict[str, Callable[[], Any]] = {}
    for contender, make in makers.items():
        call = make(expression, a, b)
        result = call()
        result = np.asarray(result.double() if dtype in NARROW else result)
        error = float(np.max(np.abs(result - exact) / np.maximum(bound, np.finfo(np.float64).tiny)))
        row["contenders"][contender] = {"error_over_bound": error, "correct": bool(error <= 1.0)}
        # Short calls are timed several at a time, so that the clock's own steps do not count.
        repeats = max(1, int(2e-4 / max(1e-7, _once(call, clock))))
        calls[contender] = partial(_several, call, repeats)
        row["contenders"][contender]["repeats"] = repeats
    for contender, times in interleaved(calls, seconds, clock, settle).items():
        repeats = row["contenders"][contender]["repeats"]
        row["contenders"][contender] |= summary([one / repeats for one in times])
    return row


def operands(shapes: list[list[int]], dtype: str) -> list[Any]:
    """Random arrays; of narrow types tensors of torch."""
    import numpy as np

    rng = np.random.default_rng(11)
    if dtype not in NARROW:
        return [rng.uniform(-1, 1, one).astype({"f32": np.float32, "f64": np.float64}[dtype]) for one in shapes]
    import torch

    if dtype == "i8":
        return [torch.from_numpy(rng.integers(-128, 128, one, dtype=np.int8)) for one in shapes]
    kind = torch.bfloat16 if dtype == "bf16" else torch.float16
    return [torch.from_numpy(rng.uniform(-1, 1, one).astype(np.float32)).to(kind) for one in shapes]


def _once(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Of a few calls the shortest: one of the first may map memory that all later ones use."""
    times = []
    for _ in range(4):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def _several(call: Callable[[], Any], repeats: int) -> None:
    for _ in range(repeats):
        call()


def main() -> int:
    options = arguments()
    changed = with_best_settings(options.threads)
    makers = contenders(options.peers.split(","), options.threads)
    machine = describe_machine()
    print(f"{machine['processor']}, {options.threads} of {machine['cores']} cores, {machine['versions']}")
    use_cpu = options.clock == "cpu" or (options.clock == "auto" and options.threads == 1)
    clock = time.process_time if use_cpu else time.perf_counter
    peers = [name for name in makers if name != "tilewright"]
    print(
        f"{'case':<28}{'type':<5}{'us':>10}{'GFLOP/s':>9}{'GB/s':>7}"
        + "".join(f"{peer:>9}" for peer in peers)
        + "   best"
    )
    rows = []
    for case in cases():
        if not any(fnmatch.fnmatch(case[0], pattern) for pattern in options.name.split(",")):
            continue
        for dtype in options.dtype.split(","):
            row = measure(case, dtype, makers, options.seconds, clock, settling(options.threads))
            rows.append(row)
            best = {name: found["best"] for name, found in row["contenders"].items()}
            ours = best["tilewright"]
            ratios = {peer: best[peer] / ours for peer in peers if peer in best}
            row["ratio_to_best_peer"] = min(ratios.values(), default=None)
            wrong = [name for name, found in row["contenders"].items() if not found["correct"]]
            line = f"{case[0]:<28}{dtype:<5}{ours * 1e6:>10.2f}{row['gflop'] / ours:>9.1f}{row['gbyte'] / ours:>7.1f}"
            line += "".join(f"{ratios[peer]:>9.2f}" if peer in ratios else f"{'-':>9}" for peer in peers)
            line += f"{min(ratios.values()):>7.2f}" if ratios else ""
            print(line + (f"  WRONG: {', '.join(wrong)}" if wrong else ""), flush=True)
    for peer in peers:
        both = [row["contenders"] for row in rows if peer in row["contenders"]]
        if not both:
            continue
        mean = geometric_mean([one[peer]["best"] / one["tilewright"]["best"] for one in both])
        print(f"our speed over {peer}'s, geometric mean: {mean:.2f}")
    content = {"machine": machine, "settings": changed, "threads": options.threads, "rows": rows}
    print(f"written: {write_results(options.output, content)}")
    return 0 if all(row["contenders"]["tilewright"]["correct"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
