"""From what the system and the drivers tell about a device to a `Machine`.

Nothing here imports a driver: the OpenCL and CUDA functions take the driver's own device (or properties) objects, so
that they can be tested with plain stand-ins.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from tilewright.machine.cores import usable_cores
from tilewright.machine.model import KIBI, MEBI, Machine
from tilewright.machine.paces import pace_of
from tilewright.machine.processors import host_processor

FALLBACK_CACHES = {1: 32 * KIBI, 2: 512 * KIBI, 3: 8 * MEBI}
"""Cache sizes by level where the system does not tell them: what nearly every 64-bit processor has at least."""

_CPU_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": KIBI, "M": MEBI, "G": 1 << 30}

# Single and double precision lanes of one multiprocessor by compute capability (CUDA programming guide, table of
# arithmetic throughput).
_CUDA_LANES = {
    (7, 0): (64, 32), (7, 5): (64, 2), (8, 0): (64, 32), (8, 6): (128, 2), (8, 7): (128, 2), (8, 9): (128, 2),
    (9, 0): (128, 64), (10, 0): (128, 64), (10, 3): (128, 2), (11, 0): (128, 2), (12, 0): (128, 2), (12, 1): (128, 2),
}  # fmt: skip


def cpu_caches(folder: str | os.PathLike[str] = _CPU_CACHES) -> dict[int, int]:
    """Bytes of the data caches by level (1, 2, 3), from /sys, else `FALLBACK_CACHES`; an absent L3 is 0.

    Example:
        >>> sorted(cpu_caches())
        [1, 2, 3]
    """
    found = {level: size for level, told in _caches(folder, "Data", "Unified") if (size := _size(told))}
    if not found:
        return dict(FALLBACK_CACHES)
    return {1: found.get(1, FALLBACK_CACHES[1]), 2: found.get(2, FALLBACK_CACHES[2]), 3: found.get(3, 0)}


def cache_ways(level: int, folder: str | os.PathLike[str] = _CPU_CACHES) -> int:
    """Lines of one set of a data cache, from /sys; 0 where the system does not tell them.

    Example:
        >>> cache_ways(2, "no such folder")
        0
    """
    for at, told in _caches(folder, "Data", "Unified"):
        ways = told("ways_of_associativity")
        if at == level and ways.isdigit():
            return int(ways)
    return 0


def instruction_cache(folder: str | os.PathLike[str] = _CPU_CACHES) -> int:
    """Bytes of the first level's instruction cache, from /sys; 0 where the system does not tell them.

    Example:
        >>> instruction_cache("no such folder")
        0
    """
    return next((_size(told) for level, told in _caches(folder, "Instruction") if level == 1), 0)


def _size(told: Callable[[str], str]) -> int:
    size = told("size")
    return int(size[:-1]) * _UNITS.get(size[-1].upper(), 1) if size[:-1].isdigit() else 0


def _caches(folder: str | os.PathLike[str], *kinds: str) -> Iterator[tuple[int, Callable[[str], str]]]:
    """The level of each cache of these kinds, and what its files say; nothing where one cannot be read."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("index"))
    except OSError:  # another system
        return
    for name in names:
        told = partial(_content, os.path.join(folder, name))
        level = told("level")
        if told("type") in kinds and level.isdigit():
            yield int(level), told


def _content(folder: str, name: str) -> str:
    """A file's text without space around it; nothing if it cannot be read."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=1)
def host_machine() -> Machine:
    """The CPU that this process runs on.

    Importing LLVM for its processor name and vector width happens in the first call.
    """
    processor = host_processor()
    caches = cpu_caches()
    vector_bytes, registers = processor.vector_registers
    architecture = processor.name
    pace = pace_of(architecture, instruction_cache())
    return Machine(
        kind="cpu",
        name=f"{_processor_name()} ({architecture})",
        architecture=architecture,
        cores=usable_cores(),
        max_threads_per_block=1,
        shared_bytes_per_block=caches[2],
        shared_bytes_per_core=caches[2],
        registers_per_thread_limit=0,
        vector_bytes=vector_bytes,
        vector_registers=registers,
        l1_bytes=caches[1],
        l2_bytes=caches[2],
        l3_bytes=int(min(caches[3], pace.held)),
        l2_ways=cache_ways(2),
        memory_bytes=_physical_memory(),
        shares_host_memory=True,
        transaction_bytes=64,
        dots=processor.dots,
        tiles=processor.tiles,
        pace=pace,
    )


def opencl_machine(device: Any) -> Machine:
    """The machine behind a `pyopencl.Device`.

    The host memory and caches of a CPU device, and the 32 or 64 work-items that step together on a GPU, come from the
    device's own report; residency limits and speeds are unknown to OpenCL.
    """
    is_cpu = bool(device.type & 2)  # CL_DEVICE_TYPE_CPU
    simulated = "oclgrind" in f"{device.platform.name} {device.name}".lower()
    threads = int(device.max_work_group_size)
    caches = cpu_caches() if is_cpu else {1: 0, 2: int(device.global_mem_cache_size), 3: 0}
    vector_bytes = 4 * int(device.native_vector_width_float) if is_cpu else 0
    return Machine(
        kind="opencl",
        name=" ".join(str(device.name).split()),
        architecture=str(device.version).strip(),
        cores=max(1, int(device.max_compute_units)),
        max_threads_per_block=threads,
        shared_bytes_per_block=int(device.local_mem_size),
        shared_bytes_per_core=int(device.local_mem_size),
        max_threads_per_core=threads,
        max_blocks_per_core=1 if is_cpu else 0,
        max_blocks=max(1, (2 ** (int(device.address_bits) - 1) - 1) // threads),
        warp=1 if is_cpu else _opencl_warp(device),
        vector_bytes=vector_bytes,
        vector_registers=(32 if vector_bytes == 64 else 16) if is_cpu else 0,
        l1_bytes=caches[1],
        l2_bytes=caches[2],
        l3_bytes=caches[3],
        memory_bytes=int(device.global_mem_size),
        max_allocation_bytes=int(device.max_mem_alloc_size),
        shares_host_memory=is_cpu and bool(device.host_unified_memory),
        transaction_bytes=max(32, int(device.global_mem_cacheline_size)),
        shared_banks=0 if is_cpu else 32,
        supports_f64=bool(device.double_fp_config),
        simulated=simulated,
    )


_SHARED_PART = 32 * KIBI
"""Shared memory is cut out of the first cache, which keeps part of such a piece at least (Ampere and later)."""


def cuda_machine(name: str, properties: Any, memory_bytes: int) -> Machine:
    """The machine behind a CUDA device.

    Args:
        name: as the driver tells it.
        properties: the driver's attributes of the device, by their names in small letters.
        memory_bytes: total global memory.
    """
    capability = (properties.compute_capability_major, properties.compute_capability_minor)
    single, double = _CUDA_LANES.get(capability, (0, 0))
    cores = int(properties.multiprocessor_count)
    multiply_adds = 2.0 * cores * properties.clock_rate * 1e3
    return Machine(
        kind="cuda",
        name=name,
        architecture=cuda_architecture(*capability),
        cores=cores,
        max_threads_per_block=int(properties.max_threads_per_block),
        shared_bytes_per_block=int(properties.max_shared_memory_per_block_optin),
        shared_bytes_per_core=int(properties.max_shared_memory_per_multiprocessor),
        shared_reserved_bytes=int(properties.reserved_shared_memory_per_block),
        shared_allocation_unit=128 if capability >= (8, 0) else 256,
        registers_per_core=int(properties.max_registers_per_multiprocessor),
        register_allocation_unit=256,
        warp_schedulers=4,
        max_threads_per_core=int(properties.max_threads_per_multiprocessor),
        max_blocks_per_core=int(properties.max_blocks_per_multiprocessor),
        max_blocks=int(properties.max_grid_dim_x),
        warp=int(properties.warp_size),
        l1_bytes=-(-int(properties.max_shared_memory_per_multiprocessor) // _SHARED_PART) * _SHARED_PART,
        l2_bytes=int(properties.l2_cache_size),
        memory_bytes=memory_bytes,
        dram_bandwidth=2.0 * properties.memory_clock_rate * 1e3 * properties.global_memory_bus_width / 8,
        peak_flops_f32=multiply_adds * single,
        peak_flops_f64=multiply_adds * double,
        shared_banks=32,
        forward_progress=capability >= (7, 0),
        shares_host_memory=bool(properties.integrated),
    )


def cuda_architecture(major: int, minor: int) -> str:
    """The compiler's name of a compute capability, with its own instructions where it has such.

    Example:
        >>> cuda_architecture(8, 0), cuda_architecture(9, 0)
        ('sm_80', 'sm_90a')
    """
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def _opencl_warp(device: Any) -> int:
    """Work-items that step together, asked of the vendor's extension, then of OpenCL 3, else 32."""
    for attribute in ("warp_size_nv", "wavefront_width_amd", "preferred_work_group_size_multiple"):
        try:
            value = int(getattr(device, attribute))
        except Exception:  # each driver has its own error for a question that it does not know
            continue
        if value > 0:
            return value
    return 32


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not told by this system
        return 0
