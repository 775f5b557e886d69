"""What one core of this machine can do at most: fused multiply-adds, and bytes to and from memory.

    python benchmarks/limits.py

The loops are LLVM text, compiled for the processor at hand like the kernels themselves; rates are those of the best
of several short runs. GFLOP/s count a fused multiply-add as two; GB/s are 1e9 bytes, of a copy
those read and those written.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import time
from collections.abc import Callable

from tilewright.machine.detect import host_machine
from tilewright.runtime.cpu_jit import compile_text, load_code

_CHAINS = 24  # independent sums: more than latency times units, fewer than registers
_TRIPS = 20_000
_BYTES = 256 << 20
_HUGE_PAGE = 2 << 20


def multiply_add_peak(dtype: str, seconds: float = 0.2) -> float:
    """GFLOP/s of fused multiply-adds in registers, of "f32" or "f64"."""
    lanes = host_machine().lanes(4 if dtype == "f32" else 8)
    loop = _function(_multiply_adds(dtype, lanes), "peak")
    return 2e-9 * lanes * _CHAINS * _TRIPS / _best(lambda: loop(0, 0, _TRIPS), seconds)


def bandwidth(kind: str, seconds: float = 0.4) -> float:
    """GB/s of "read", "write" or "copy" beyond the caches; writes are non-temporal, on huge pages where possible."""
    source, target = _memory()
    loop = _function(_moves(kind), "move")
    counted = _BYTES * (2 if kind == "copy" else 1)
    return 1e-9 * counted / _best(lambda: loop(source, target, _BYTES // 64), seconds)


def limits() -> dict[str, float]:
    """All of them, by name."""
    peaks = {f"{dtype} GFLOP/s": multiply_add_peak(dtype) for dtype in ("f32", "f64")}
    return peaks | {f"{kind} GB/s": bandwidth(kind) for kind in ("read", "write", "copy")}


def roofline(gflop: float, read_bytes: float, written_bytes: float, dtype: str, known: dict[str, float]) -> float:
    """The most GFLOP/s that work of this size can reach if each array crosses the memory bus once."""
    memory = 1e-9 * (read_bytes / known["read GB/s"] + written_bytes / known["write GB/s"])
    return gflop / max(gflop / known[f"{dtype} GFLOP/s"], memory)


def _best(run: Callable[[], object], seconds: float) -> float:
    run()
    best, stop = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < stop:
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


@functools.cache
def _memory() -> tuple[int, int]:
    """Addresses of two touched arrays."""
    addresses = []
    for _ in range(2):
        pages = mmap.mmap(-1, _BYTES + _HUGE_PAGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        view = (ctypes.c_char * len(pages)).from_buffer(pages)
        ctypes.memset(view, 1, len(pages))
        _kept.append((pages, view))
        addresses.append(-(-ctypes.addressof(view) // _HUGE_PAGE) * _HUGE_PAGE)
    return addresses[0], addresses[1]


_kept: list[object] = []


def _function(text: str, name: str) -> Callable[[int, int, int], None]:
    loaded = load_code(compile_text(text, "none"))
    _kept.append(loaded)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return kind(loaded.address(name))


def _multiply_adds(dtype: str, lanes: int) -> str:
    vector = f"<{lanes} x {'float' if dtype == 'f32' else 'double'}>"
    name = f"llvm.fma.v{lanes}{dtype}"
    phis = "\n".join(f"  %a{i} = phi {vector} [ %start, %entry ], [ %b{i}, %loop ]" for i in range(_CHAINS))
    steps = "\n".join(
        f"  %b{i} = call {vector} @{name}({vector} %x, {vector} %y, {vector} %a{i})" for i in range(_CHAINS)
    )
    sums = [f"  %s0 = fadd {vector} %b0, %b1"]
    sums += [f"  %s{i} = fadd {vector} %s{i - 1}, %b{i + 1}" for i in range(1, _CHAINS - 1)]
    return f"""
declare {vector} @{name}({vector}, {vector}, {vector})
@sink = internal global {vector} zeroinitializer
define void @peak(ptr %unused, ptr %too, i64 %trips) {{
entry:
  %x = load volatile {vector}, ptr @sink
  %y = load volatile {vector}, ptr @sink
  %start = load volatile {vector}, ptr @sink
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %n, 1
  %more = icmp slt i64 %next, %trips
  br i1 %more, label %loop, label %exit
exit:
{_lines(sums)}
  store volatile {vector} %s{_CHAINS - 2}, ptr @sink
  ret void
}}
"""


def _moves(kind: str) -> str:
    """Eight cache lines per trip; a read adds them up, so that it is not left out."""
    line, parts = "<16 x i32>", range(8)
    body = []
    for part in parts:
        body.append(f"  %from{part} = getelementptr {line}, ptr %source, i64 %n{part}")
        body.append(f"  %to{part} = getelementptr {line}, ptr %target, i64 %n{part}")
        if kind != "write":
            body.append(f"  %line{part} = load {line}, ptr %from{part}, align 64")
        if kind == "read":
            body.append(f"  %sum.next{part} = add {line} %sum{part}, %line{part}")
        else:
            stored = f"%line{part}" if kind == "copy" else "splat (i32 1)"
            body.append(f"  store {line} {stored}, ptr %to{part}, align 64, !nontemporal !0")
    sums = [f"  %sum{part} = phi {line} [ zeroinitializer, %entry ], [ %sum.next{part}, %loop ]" for part in parts]
    keep = [f"  store volatile {line} %sum.next{part}, ptr @sink" for part in parts]
    numbers = [f"  %n{part} = add i64 %n, {part}" for part in parts]
    return f"""
@sink = internal global {line} zeroinitializer
define void @move(ptr %source, ptr %target, i64 %lines) {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
{_lines(sums if kind == "read" else [])}
{_lines(numbers + body)}
  %next = add i64 %n, {len(parts)}
  %more = icmp slt i64 %next, %lines
  br i1 %more, label %loop, label %exit
exit:
{_lines(keep if kind == "read" else [])}
  ret void
}}
!0 = !{{i32 1}}
"""


def _lines(lines: list[str]) -> str:
    return "\n".join(lines)


if __name__ == "__main__":
    for name, value in limits().items():
        print(f"{name:<12}{value:8.1f}")
