"""How many blocks of a kernel a core holds at once, and what stops it from holding more.

The arithmetic is that of NVIDIA's occupancy calculator (the CUDA toolkit's cuda_occupancy.h): registers are given to
warps in units and out of the warp's own partition of the core, shared memory to blocks in units, after a piece that the
system reserves for each block.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.machine.model import Machine


@dataclass(frozen=True)
class Occupancy:
    """The residency of a kernel.

    Attributes:
        blocks_per_core: blocks that run on a core at once; 0 if not even one fits.
        limit: what allows no more: "threads", "blocks", "registers" or "shared memory".
        fraction: resident warps divided by the warps that a core can hold (0 where that is unknown).
    """

    blocks_per_core: int
    limit: str
    fraction: float


def occupancy(machine: Machine, threads_per_block: int, registers_per_thread: int, shared_bytes: int) -> Occupancy:
    """Blocks of a shape that one core of a machine holds.

    Args:
        machine: limits that it does not know (0) do not limit.
        threads_per_block: size of a block.
        registers_per_thread: as the compiler reports them; 0 if unknown.
        shared_bytes: shared memory of a block, static and dynamic.

    Raises:
        ValueError: if a number is negative, or `threads_per_block` is 0.

    Example:
        >>> from tilewright.machine.named import A100
        >>> occupancy(A100, 256, 64, 0)
        Occupancy(blocks_per_core=4, limit='registers', fraction=0.5)
    """
    if threads_per_block < 1 or registers_per_thread < 0 or shared_bytes < 0:
        raise ValueError(
            f"a block of {threads_per_block} threads with {registers_per_thread} registers each and {shared_bytes} "
            "bytes of shared memory makes no sense"
        )
    warps = _divide_up(threads_per_block, machine.warp)
    limits = {
        "threads": _by_threads(machine, threads_per_block, warps),
        "blocks": machine.max_blocks_per_core or None,
        "registers": _by_registers(machine, registers_per_thread, warps),
        "shared memory": _by_shared_memory(machine, shared_bytes),
    }
    known = {name: blocks for name, blocks in limits.items() if blocks is not None}
    limit = min(known, key=lambda name: known[name])
    blocks = known[limit]
    resident_limit = machine.max_threads_per_core // machine.warp
    return Occupancy(blocks, limit, blocks * warps / resident_limit if resident_limit else 0.0)


def _by_threads(machine: Machine, threads_per_block: int, warps: int) -> int:
    if threads_per_block > machine.max_threads_per_block:
        return 0
    if not machine.max_threads_per_core:
        return 1
    return machine.max_threads_per_core // machine.warp // warps


def _by_registers(machine: Machine, registers_per_thread: int, warps: int) -> int | None:
    if not machine.registers_per_core or not registers_per_thread:
        return None
    if registers_per_thread > machine.registers_per_thread_limit:
        return 0
    per_warp = _round_up(registers_per_thread * machine.warp, machine.register_allocation_unit)
    warps_per_scheduler = machine.registers_per_core // machine.warp_schedulers // per_warp
    return warps_per_scheduler * machine.warp_schedulers // warps


def _by_shared_memory(machine: Machine, shared_bytes: int) -> int | None:
    if shared_bytes > machine.shared_bytes_per_block:
        return 0
    taken = _round_up(shared_bytes + machine.shared_reserved_bytes, machine.shared_allocation_unit)
    if not machine.shared_bytes_per_core or not taken:
        return None
    return machine.shared_bytes_per_core // taken


def _divide_up(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _round_up(value: int, unit: int) -> int:
    return _divide_up(value, unit) * unit
