"""Devices for trials that this computer has not: emulated NVIDIA GPUs, and CPUs with less than its own.

The text of every kernel for a GPU runs on the CPU (tests/kernel/cuda_emulation.py).

Under the target "cuda-emulated" the sanitizer of undefined behaviour watches, under "cuda-races" that of data races;
what either finds ends the process of the trial. The number of a trial decides how large the blocks of its GPU are, how
many threads are a warp, how many blocks run at the same time, and which of them begin first.

Under the target "cpu-small" the CPU is said to have caches of a few kilobytes, so that small arrays take the ways of
large ones; "cpu-avx2" and "cpu-sse" leave out instructions that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cuda_emulation import has_compiler
from cuda_race_runner import sanitizer_library
from emulated_device import SMALL, emulated_device

from tilewright.runtime.devices import Device, device_for

SANITIZERS = {"cuda-emulated": "undefined", "cuda-races": "thread"}
MACHINES = (
    SMALL,
    replace(SMALL, name="two warps", cores=3, max_threads_per_block=64, max_threads_per_core=128),
    replace(SMALL, name="small warps", cores=2, max_threads_per_block=32, warp=4, l1_bytes=0),
)
CACHES = ((2 << 10, 8 << 10, 32 << 10), (1 << 10, 2 << 10, 4 << 10), (4 << 10, 16 << 10, 0))
"""Bytes of the three caches."""
PROCESSORS = {"cpu-avx2": "x86-64-v3", "cpu-sse": "x86-64-v2"}
RESIDENTS = (1, 3, -2)
"""Blocks at a time; negative: the last first."""


def surroundings_of(target: str) -> dict[str, str] | str:
    """The variables of the environment that processes of trials need, or why there can be none."""
    if target not in SANITIZERS:
        return {"TILEWRIGHT_CPU": PROCESSORS[target]} if target in PROCESSORS else {}
    if not has_compiler():
        return "there is no g++"
    stop = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    if SANITIZERS[target] == "undefined":
        return stop
    library = sanitizer_library()
    return stop | {"LD_PRELOAD": library} if library else "g++ has no sanitizer for threads that works here"


@contextmanager
def device_of(target: str, number: int) -> Iterator[Device]:
    """The device of a trial."""
    if target == "cpu-small":
        first, second, third = CACHES[number % len(CACHES)]
        machine = replace(device_for("cpu").machine, l1_bytes=first, l2_bytes=second, l3_bytes=third)
        yield Device("cpu", machine, f"caches of {first}, {second} and {third} bytes")
        return
    if target not in SANITIZERS:
        yield device_for("cpu" if target in PROCESSORS else target)
        return
    machine, residents = MACHINES[number % len(MACHINES)], RESIDENTS[number // len(MACHINES) % len(RESIDENTS)]
    with emulated_device(residents, machine, SANITIZERS[target]) as (device, _):
        yield device
