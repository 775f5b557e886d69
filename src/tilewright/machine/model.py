"""What the passes and cost models may know about a machine: sizes of memories, widths, limits and speeds."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.machine.paces import ONE_MULTIPLY_ADD, Pace

MachineKind: TypeAlias = Literal["cpu", "opencl", "cuda"]

KIBI = 1 << 10
MEBI = 1 << 20
GIBI = 1 << 30


@dataclass(frozen=True)
class Machine:
    """A machine as a nest of levels: cores that run blocks, blocks of threads (or vector lanes), and their memories.

    A pass asks these numbers and never the name. Sizes are in bytes and speeds in units per second; 0 means that a
    number is unknown (for a limit: that nothing is known to limit).

    Attributes:
        kind: how kernels reach it: LLVM in process, OpenCL C or CUDA C++.
        name: its name, for a person and as a key of tunings.
        architecture: the target of the compiler ("sm_90a"; the processor's name on a CPU).
        cores: CPU cores that this process may use, streaming multiprocessors, compute units.
        max_threads_per_block: limit of one block; 1 on a CPU, whose lanes are vector lanes.
        shared_bytes_per_block: memory that a block can share: the opt-in maximum of a GPU, the L2 cache on a CPU.
        shared_bytes_per_core: the same for all blocks resident on a core.
        shared_reserved_bytes: what the system takes of it for each block.
        shared_allocation_unit: granularity of shared memory.
        registers_per_core: 32-bit registers of a core.
        registers_per_thread_limit: most registers that the compiler can give one thread.
        register_allocation_unit: granularity of the registers of one warp.
        warp_schedulers: partitions of a core, each with its part of the registers.
        max_threads_per_core, max_blocks_per_core: residency limits.
        max_blocks: limit of a one-dimensional launch.
        warp: threads that execute in step; 1 on a CPU.
        vector_bytes, vector_registers: size and number of a CPU's vector registers (0 on a GPU).
        l1_bytes, l2_bytes, l3_bytes: data caches (L1 and L2 of one core on a CPU; L2 of the whole GPU).
        l2_ways: lines of one set of the second cache.
        memory_bytes: its main memory; max_allocation_bytes: the largest single piece of it.
        shares_host_memory: the device computes in the host's memory, so transfers can be free.
        dram_bandwidth: bytes per second from main memory.
        peak_flops_f32, peak_flops_f64: without matrix instructions, all cores, a multiply-add counting twice.
        transaction_bytes: the piece in which main memory is read; neighbours within it come for free.
        shared_banks: banks of four bytes that serve shared memory at once.
        supports_f64: doubles can be computed on.
        forward_progress: blocks that have begun go on, so that others may wait for what they give.
        simulated: the device is a checker and not meant to be fast.
        dots: names of the element types of which a CPU adds several products to each lane in one instruction.
        tiles: names of those whose products it adds in tiles of 16 x 16 sums.
        pace: how fast a CPU's core is at all else, beside its vector multiply-adds.
    """

    kind: MachineKind
    name: str
    cores: int
    max_threads_per_block: int
    shared_bytes_per_block: int
    architecture: str = ""
    shared_bytes_per_core: int = 0
    shared_reserved_bytes: int = 0
    shared_allocation_unit: int = 1
    registers_per_core: int = 0
    registers_per_thread_limit: int = 255
    register_allocation_unit: int = 1
    warp_schedulers: int = 1
    max_threads_per_core: int = 0
    max_blocks_per_core: int = 0
    max_blocks: int = 2**31 - 1
    warp: int = 1
    vector_bytes: int = 0
    vector_registers: int = 0
    l1_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = 0
    l2_ways: int = 0
    memory_bytes: int = 0
    max_allocation_bytes: int = 0
    shares_host_memory: bool = False
    dram_bandwidth: float = 0.0
    peak_flops_f32: float = 0.0
    peak_flops_f64: float = 0.0
    transaction_bytes: int = 32
    shared_banks: int = 0
    supports_f64: bool = True
    forward_progress: bool = False
    simulated: bool = False
    dots: tuple[str, ...] = ()
    tiles: tuple[str, ...] = ()
    pace: Pace = ONE_MULTIPLY_ADD

    def __post_init__(self) -> None:
        """Refuse numbers that no machine has.

        Raises:
            ValueError: if a count that must be positive is not, or any number is negative.
        """
        for name in ("cores", "max_threads_per_block", "warp", "shared_allocation_unit", "register_allocation_unit",
                     "warp_schedulers", "max_blocks", "transaction_bytes"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"machine {self.name!r}: {name} is {getattr(self, name)}, and must be at least 1")
        for name, value in vars(self).items():
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"machine {self.name!r}: {name} is {value}, and must not be negative")

    @property
    def keeps_copies_of(self) -> int:
        """Bytes of a copy, or of a scan of columns, from which on it is better written past the caches."""
        return self.l2_bytes if self.pace.skips_third else max(self.l2_bytes, self.l3_bytes // 4)

    @property
    def is_gpu_like(self) -> bool:
        """True where blocks have threads and barriers (CUDA and OpenCL), false for the CPU's own code."""
        return self.kind != "cpu"

    def lanes(self, element_bytes: int) -> int:
        """Elements of a size that one vector register holds; 1 where there are no vector registers."""
        return max(1, self.vector_bytes // element_bytes)


def power_of_two_at_least(value: int) -> int:
    """The least power of two that is not below a number; 1 for none.

    Example:
        >>> [power_of_two_at_least(value) for value in (0, 1, 5, 8)]
        [1, 1, 8, 8]
    """
    return 1 << max(0, value - 1).bit_length()
