import pytest

from tilewright.machine.named import A100, CPU_AVX2, H200, OPENCL_CPU
from tilewright.machine.occupancy import Occupancy, occupancy

# Values of NVIDIA's occupancy calculator for compute capability 8.0 (64 warps, 32 blocks, 65536 registers, 164 KiB).
SM_80 = [
    # threads, registers, shared bytes -> blocks, limit, fraction
    (256, 32, 0, 8, "threads", 1.0),
    (256, 64, 0, 4, "registers", 0.5),
    (256, 40, 0, 6, "registers", 0.75),
    (256, 128, 0, 2, "registers", 0.25),
    (256, 255, 0, 1, "registers", 0.125),
    (128, 96, 0, 5, "registers", 20 / 64),
    (1024, 32, 0, 2, "threads", 1.0),
    (1024, 64, 0, 1, "registers", 0.5),
    (1024, 65, 0, 0, "registers", 0.0),
    (32, 16, 0, 32, "blocks", 0.5),
    (64, 32, 0, 32, "threads", 1.0),
    (96, 32, 0, 21, "threads", 63 / 64),
    (33, 32, 0, 32, "threads", 1.0),
    (128, 32, 48 << 10, 3, "shared memory", 12 / 64),
    (128, 32, 81 << 10, 2, "shared memory", 8 / 64),
    (128, 32, (81 << 10) + 1, 1, "shared memory", 4 / 64),
    (128, 32, 163 << 10, 1, "shared memory", 4 / 64),
    (128, 32, (163 << 10) + 1, 0, "shared memory", 0.0),
    (1025, 32, 0, 0, "threads", 0.0),
    (128, 256, 0, 0, "registers", 0.0),
]


@pytest.mark.parametrize(("threads", "registers", "shared", "blocks", "limit", "fraction"), SM_80)
def test_sm_80(threads: int, registers: int, shared: int, blocks: int, limit: str, fraction: float) -> None:
    assert occupancy(A100, threads, registers, shared) == Occupancy(blocks, limit, fraction)


def test_hopper_has_more_shared_memory() -> None:
    assert occupancy(H200, 128, 32, 113 << 10).blocks_per_core == 2
    assert occupancy(H200, 128, 32, 227 << 10).blocks_per_core == 1
    assert occupancy(H200, 128, 32, 228 << 10).blocks_per_core == 0


def test_unknown_registers_do_not_limit() -> None:
    assert occupancy(A100, 256, 0, 0) == Occupancy(8, "threads", 1.0)


def test_processors_hold_one_block_per_core() -> None:
    assert occupancy(OPENCL_CPU, 256, 0, 1024).blocks_per_core == 1
    assert occupancy(OPENCL_CPU, 256, 0, (256 << 10) + 1).blocks_per_core == 0
    assert occupancy(CPU_AVX2, 1, 0, 1024).blocks_per_core == 1


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, -1, 1), (1, 1, -1)])
def test_nonsense_is_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        occupancy(A100, *arguments)
