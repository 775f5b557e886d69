"""When a worker of the CPU's thread pool sleeps, and when it looks for work."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright.ir.scalars import I64
from tilewright.kernel.ir import BlockIndex, Buffer, Kernel, Store
from tilewright.runtime import cpu_pool
from tilewright.runtime.cpu_driver import LEAST_WAIT
from tilewright.runtime.cpu_jit import compile_kernel


def times_asleep() -> int:
    """How often the workers of this process have gone to sleep."""
    pool = cpu_pool._state.pool
    texts = [Path(f"/proc/self/task/{one.native_id}/status").read_text() for one in (pool.threads if pool else ())]
    return sum(int(text.split("\nvoluntary_ctxt_switches:", 1)[1].split("\n", 1)[0]) for text in texts)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells how often a thread has slept")
def test_a_worker_that_was_woken_too_late_looks_for_the_next_launch() -> None:
    """Launches that end sooner than it wakes do not each pay for waking it: it looks for a while before it sleeps."""
    y = Buffer("y", I64)
    native = compile_kernel(Kernel("numbered", (y,), (), (), (Store(y, BlockIndex(), BlockIndex()),)))
    out = np.zeros(2, np.int64)
    call = cpu_pool.prepare(native, (ctypes.c_int64 * 1)(out.ctypes.data), 2, 2)
    call()
    assert cpu_pool._state.pool is not None
    workers = len(cpu_pool._state.pool.threads)
    time.sleep(0.1)
    begun, before = time.perf_counter_ns(), times_asleep()
    for _ in range(3000):
        call()
        until = time.perf_counter_ns() + 20_000
        while time.perf_counter_ns() < until:
            pass
    slept, passed = times_asleep() - before, time.perf_counter_ns() - begun
    assert slept <= workers * (2 + passed / LEAST_WAIT)
