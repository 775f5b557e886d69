"""Machines by name, so that code can be generated, costed and tested for a machine that is not there.

The GPU figures are those of NVIDIA's architecture white papers and of the CUDA programming guide's table of compute
capabilities; the CPU figures are those of a typical server of each vector width.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.machine.model import GIBI, KIBI, MEBI, Machine

A100 = Machine(
    kind="cuda",
    name="a100",
    architecture="sm_80",
    cores=108,
    max_threads_per_block=1024,
    shared_bytes_per_block=163 * KIBI,
    shared_bytes_per_core=164 * KIBI,
    shared_reserved_bytes=1 * KIBI,
    shared_allocation_unit=128,
    registers_per_core=65536,
    register_allocation_unit=256,
    warp_schedulers=4,
    max_threads_per_core=2048,
    max_blocks_per_core=32,
    warp=32,
    l1_bytes=192 * KIBI,
    l2_bytes=40 * MEBI,
    memory_bytes=40 * GIBI,
    dram_bandwidth=1555e9,
    peak_flops_f32=19.5e12,
    peak_flops_f64=9.7e12,
    shared_banks=32,
    forward_progress=True,
)
"""NVIDIA A100 SXM, 40 GB."""

H100 = replace(
    A100,
    name="h100",
    architecture="sm_90a",
    cores=132,
    shared_bytes_per_block=227 * KIBI,
    shared_bytes_per_core=228 * KIBI,
    l1_bytes=256 * KIBI,
    l2_bytes=50 * MEBI,
    memory_bytes=80 * GIBI,
    dram_bandwidth=3.35e12,
    peak_flops_f32=67e12,
    peak_flops_f64=34e12,
)
"""NVIDIA H100 SXM, 80 GB."""

H200 = replace(H100, name="h200", memory_bytes=141 * 10**9, dram_bandwidth=4.8e12)
"""NVIDIA H200 SXM: an H100 with more and faster memory."""

CPU_AVX2 = Machine(
    kind="cpu",
    name="cpu-avx2",
    architecture="x86-64-v3",
    cores=8,
    max_threads_per_block=1,
    shared_bytes_per_block=512 * KIBI,
    shared_bytes_per_core=512 * KIBI,
    registers_per_thread_limit=0,
    vector_bytes=32,
    vector_registers=16,
    l1_bytes=32 * KIBI,
    l2_bytes=512 * KIBI,
    l3_bytes=16 * MEBI,
    memory_bytes=32 * GIBI,
    shares_host_memory=True,
    transaction_bytes=64,
)
"""A desktop processor with 256-bit vectors."""

CPU_AVX512 = replace(
    CPU_AVX2,
    name="cpu-avx512",
    architecture="x86-64-v4",
    shared_bytes_per_block=1 * MEBI,
    shared_bytes_per_core=1 * MEBI,
    vector_bytes=64,
    vector_registers=32,
    l1_bytes=48 * KIBI,
    l2_bytes=1 * MEBI,
    l3_bytes=32 * MEBI,
)
"""A server processor with 512-bit vectors."""

CPU_TILES = replace(
    CPU_AVX512,
    name="cpu-tiles",
    architecture="sapphirerapids",
    shared_bytes_per_block=2 * MEBI,
    shared_bytes_per_core=2 * MEBI,
    l2_bytes=2 * MEBI,
    l3_bytes=100 * MEBI,
    dots=("bf16", "i16", "i8"),
    tiles=("bf16", "i8"),
)
"""A server processor with tiles of 16 x 16 sums as well."""

CPU_NEON = replace(
    CPU_AVX2,
    name="cpu-neon",
    architecture="armv8-a",
    shared_bytes_per_block=1 * MEBI,
    shared_bytes_per_core=1 * MEBI,
    vector_bytes=16,
    vector_registers=32,
    l1_bytes=64 * KIBI,
    l2_bytes=1 * MEBI,
    l3_bytes=32 * MEBI,
)
"""A 64-bit ARM server processor."""

OPENCL_CPU = Machine(
    kind="opencl",
    name="opencl-cpu",
    cores=8,
    max_threads_per_block=8192,
    shared_bytes_per_block=256 * KIBI,
    shared_bytes_per_core=256 * KIBI,
    max_threads_per_core=8192,
    max_blocks_per_core=1,
    vector_bytes=32,
    vector_registers=16,
    l1_bytes=32 * KIBI,
    l2_bytes=512 * KIBI,
    l3_bytes=16 * MEBI,
    memory_bytes=32 * GIBI,
    max_allocation_bytes=16 * GIBI,
    shares_host_memory=True,
    transaction_bytes=64,
)
"""A CPU seen through an OpenCL runtime: one work-group at a time on each core."""

OPENCL_GPU = Machine(
    kind="opencl",
    name="opencl-gpu",
    cores=32,
    max_threads_per_block=256,
    shared_bytes_per_block=32 * KIBI,
    shared_bytes_per_core=64 * KIBI,
    max_threads_per_core=1024,
    warp=32,
    l2_bytes=4 * MEBI,
    memory_bytes=8 * GIBI,
    max_allocation_bytes=2 * GIBI,
    transaction_bytes=64,
    shared_banks=32,
    supports_f64=False,
)
"""What every OpenCL GPU of the last ten years has."""

NAMED_MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (A100, H100, H200, CPU_AVX2, CPU_AVX512, CPU_TILES, CPU_NEON, OPENCL_CPU, OPENCL_GPU)
}


def named_machine(name: str) -> Machine:
    """The machine of a name.

    Raises:
        KeyError: if there is none; the message lists the names.

    Example:
        >>> named_machine("a100").cores
        108
    """
    if name not in NAMED_MACHINES:
        raise KeyError(f"no machine is named {name!r}; there are {', '.join(sorted(NAMED_MACHINES))}")
    return NAMED_MACHINES[name]
