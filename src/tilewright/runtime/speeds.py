"""What the cores of this machine can do at most, measured: fused multiply-adds, and bytes to and from memory.

The loops are LLVM text, compiled for the processor at hand like the kernels themselves; rates are those of the best of
several short runs. A fused multiply-add counts as two operations; a copy's bytes are those read and those written.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.runtime.cache import DiskCache, default_disk_cache
from tilewright.runtime.cpu_jit import compile_text, load_code

_TRIPS = 400_000  # some milliseconds: processor time that the system has not told yet does not matter
_BYTES = 256 << 20
_HUGE_PAGE = 2 << 20
_MEASURED = ("peak_flops_f32", "peak_flops_f64", "dram_bandwidth")


def multiply_add_peak(dtype: str, threads: int = 1, seconds: float = 0.2) -> float:
    """Operations per second of fused multiply-adds in registers, of "f32" or "f64", by so many threads together."""
    machine = host_machine()
    lanes, chains = machine.lanes(4 if dtype == "f32" else 8), independent_sums(machine)
    loop = _function(_multiply_adds(dtype, lanes, chains), "peak")
    return 2 * lanes * chains * _TRIPS * threads / _best(lambda number: loop(0, 0, _TRIPS), threads, seconds)


def independent_sums(machine: Machine) -> int:
    """So many that multiply-adds wait for none of their own results: more than latency times units, and few enough
    that they stay in registers beside both factors.

    Example:
        >>> from tilewright.machine.named import CPU_AVX2, CPU_AVX512
        >>> independent_sums(CPU_AVX2), independent_sums(CPU_AVX512)
        (12, 24)
    """
    return machine.vector_registers * 3 // 4


def bandwidth(kind: str, threads: int = 1, seconds: float = 0.4) -> float:
    """Bytes per second of "read", "write" or "copy" beyond the caches, by so many threads together.

    Writes are non-temporal. The arrays lie on huge pages where possible; each thread has its part of them.
    """
    loop = _function(_moves(kind), "move")
    part = _BYTES // threads // 512 * 512  # eight lines in one trip of the loop
    moved = part * threads * (2 if kind == "copy" else 1)
    with _touched_memory() as source, _touched_memory() as target:
        return moved / _best(lambda one: loop(source + one * part, target + one * part, part // 64), threads, seconds)


def measure_speeds(cache: DiskCache | None = None) -> Machine:
    """The machine of this process with its speeds measured, all cores together; they are kept for later processes.

    It takes about a second and half a gigabyte of memory. Other programs that run meanwhile make it seem slower.
    """
    machine = host_machine()
    measured = replace(
        machine,
        peak_flops_f32=multiply_add_peak("f32", machine.cores),
        peak_flops_f64=multiply_add_peak("f64", machine.cores),
        dram_bandwidth=bandwidth("read", machine.cores),
    )
    kept = json.dumps({name: getattr(measured, name) for name in _MEASURED})
    (cache or default_disk_cache()).put(_key(machine), kept.encode())
    return measured


def with_measured_speeds(machine: Machine, cache: DiskCache | None = None) -> Machine:
    """The machine with the speeds that were measured on it; as it is, if it is another one or none were measured."""
    if machine.kind != "cpu" or machine != host_machine():
        return machine
    found = (cache or default_disk_cache()).get(_key(machine))
    return machine if found is None else replace(machine, **{name: json.loads(found)[name] for name in _MEASURED})


def _key(machine: Machine) -> tuple[str, ...]:
    return ("measured speeds", machine.name, str(machine.cores))


def _best(run: Callable[[int], object], threads: int, seconds: float) -> float:
    """Seconds of the fastest round in which every thread runs once; one thread's are those of the processor."""
    clock = time.process_time if threads == 1 else time.perf_counter
    with ThreadPoolExecutor(threads) as pool:
        best, stop = float("inf"), time.perf_counter() + seconds
        rounds = 0
        while rounds < 2 or time.perf_counter() < stop:
            start = clock()
            if threads == 1:
                run(0)
            else:
                list(pool.map(run, range(threads)))
            best = min(best, clock() - start)
            rounds += 1
    return best


@contextmanager
def _touched_memory() -> Iterator[int]:
    """The address of that much memory, every page of it written; it is given back in the end."""
    with mmap.mmap(-1, _BYTES + _HUGE_PAGE) as pages:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        view = (ctypes.c_char * len(pages)).from_buffer(pages)
        ctypes.memset(view, 1, len(pages))
        address = -(-ctypes.addressof(view) // _HUGE_PAGE) * _HUGE_PAGE
        del view  # which would keep the pages from being given back
        yield address


_kept: list[object] = []


def _function(text: str, name: str) -> Callable[[int, int, int], None]:
    loaded = load_code(compile_text(text, "none"))
    _kept.append(loaded)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return kind(loaded.address(name))


def _multiply_adds(dtype: str, lanes: int, chains: int) -> str:
    vector = f"<{lanes} x {'float' if dtype == 'f32' else 'double'}>"
    name = f"llvm.fma.v{lanes}{dtype}"
    phis = "\n".join(f"  %a{i} = phi {vector} [ %start, %entry ], [ %b{i}, %loop ]" for i in range(chains))
    steps = "\n".join(
        f"  %b{i} = call {vector} @{name}({vector} %x, {vector} %y, {vector} %a{i})" for i in range(chains)
    )
    sums = [f"  %s0 = fadd {vector} %b0, %b1"]
    sums += [f"  %s{i} = fadd {vector} %s{i - 1}, %b{i + 1}" for i in range(1, chains - 1)]
    return f"""
declare {vector} @{name}({vector}, {vector}, {vector})
define void @peak(ptr %unused, ptr %too, i64 %trips) {{
entry:
  %sink = alloca {vector}, align 64
  store volatile {vector} zeroinitializer, ptr %sink
  %x = load volatile {vector}, ptr %sink
  %y = load volatile {vector}, ptr %sink
  %start = load volatile {vector}, ptr %sink
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
  store volatile {vector} %s{chains - 2}, ptr %sink
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
    keep = [f"  store volatile {line} %sum.next{part}, ptr %sink" for part in parts]
    numbers = [f"  %n{part} = add i64 %n, {part}" for part in parts]
    return f"""
define void @move(ptr %source, ptr %target, i64 %lines) {{
entry:
  %sink = alloca {line}, align 64
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
