from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.machine import detect
from tilewright.machine.cores import usable_cores
from tilewright.machine.named import A100, H200, NAMED_MACHINES, named_machine


def test_named_machines() -> None:
    assert {"a100", "h100", "h200", "opencl-cpu"} <= set(NAMED_MACHINES)
    h200 = named_machine("h200")
    assert (h200.cores, h200.shared_bytes_per_block, h200.architecture) == (132, 227 << 10, "sm_90a")
    with pytest.raises(KeyError, match=r"no machine is named 'b52'; there are a100"):
        named_machine("b52")


def test_impossible_machines_are_refused() -> None:
    with pytest.raises(ValueError, match="cores is 0"):
        replace(A100, cores=0)
    with pytest.raises(ValueError, match="l2_bytes is -1, and must not be negative"):
        replace(A100, l2_bytes=-1)


def test_vector_lanes() -> None:
    assert named_machine("cpu-avx512").lanes(4) == 16
    assert named_machine("cpu-neon").lanes(8) == 2
    assert A100.lanes(4) == 1


def test_host_machine_is_plausible() -> None:
    host = detect.host_machine()
    assert host.kind == "cpu"
    assert host.cores == usable_cores() >= 1
    assert host.vector_bytes in (16, 32, 64)
    assert host.max_threads_per_block == 1
    assert 8 << 10 <= host.l1_bytes < host.l2_bytes
    assert host.memory_bytes > 0


def _cache_folder(folder: Path, entries: list[tuple[str, str, str]]) -> Path:
    for number, (level, kind, size) in enumerate(entries):
        index = folder / f"index{number}"
        index.mkdir(parents=True)
        (index / "level").write_text(level + "\n")
        (index / "type").write_text(kind + "\n")
        (index / "size").write_text(size + "\n")
    return folder


def test_cache_sizes_from_sys(tmp_path: Path) -> None:
    entries = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"), ("3", "Unified", "32768K")]
    assert detect.cpu_caches(_cache_folder(tmp_path, entries)) == {1: 48 << 10, 2: 2 << 20, 3: 32 << 20}
    assert detect.instruction_cache(tmp_path) == 64 << 10


def test_cache_sizes_without_sys(tmp_path: Path) -> None:
    assert detect.cpu_caches(tmp_path) == detect.FALLBACK_CACHES
    assert detect.instruction_cache(tmp_path) == 0
    assert detect.cpu_caches(_cache_folder(tmp_path, [("1", "Data", "64K")]))[3] == 0


def _h200_properties() -> SimpleNamespace:
    return SimpleNamespace(
        compute_capability_major=9, compute_capability_minor=0, multiprocessor_count=132, clock_rate=1980000,
        max_threads_per_block=1024, max_shared_memory_per_block_optin=232448,
        max_shared_memory_per_multiprocessor=233472, reserved_shared_memory_per_block=1024,
        max_registers_per_multiprocessor=65536, max_threads_per_multiprocessor=2048, max_blocks_per_multiprocessor=32,
        max_grid_dim_x=2**31 - 1, warp_size=32, l2_cache_size=62914560, memory_clock_rate=3201000,
        global_memory_bus_width=6144, integrated=0,
    )  # fmt: skip


def test_cuda_machine_agrees_with_the_named_one() -> None:
    machine = detect.cuda_machine("NVIDIA H200", _h200_properties(), 150_000_000_000)
    assert machine.dram_bandwidth == pytest.approx(H200.dram_bandwidth, rel=0.05)
    assert machine.peak_flops_f32 == pytest.approx(H200.peak_flops_f32, rel=0.05)
    assert machine.peak_flops_f64 == pytest.approx(H200.peak_flops_f64, rel=0.05)
    for name in ("architecture", "cores", "max_threads_per_block", "shared_bytes_per_block", "shared_bytes_per_core",
                 "shared_reserved_bytes", "shared_allocation_unit", "registers_per_core", "register_allocation_unit",
                 "warp_schedulers", "max_threads_per_core", "max_blocks_per_core", "warp",
                 "l1_bytes", "forward_progress"):  # fmt: skip
        assert getattr(machine, name) == getattr(H200, name), name


def test_unknown_compute_capability_has_unknown_speed() -> None:
    properties = _h200_properties()
    properties.compute_capability_major = 14
    machine = detect.cuda_machine("later", properties, 1)
    assert (machine.architecture, machine.peak_flops_f32) == ("sm_140a", 0)


def test_opencl_gpu_machine_asks_for_the_warp() -> None:
    class Gpu(SimpleNamespace):
        @property
        def warp_size_nv(self) -> int:
            raise RuntimeError("not that vendor")

    gpu = Gpu(
        type=4, name="Some  GPU", platform=SimpleNamespace(name="vendor"), version="OpenCL 3.0",
        max_work_group_size=256, global_mem_cache_size=1 << 20, max_compute_units=60, local_mem_size=65536,
        address_bits=64, host_unified_memory=0,
        wavefront_width_amd=64, global_mem_size=1 << 34, max_mem_alloc_size=1 << 32, global_mem_cacheline_size=128,
        double_fp_config=0,
    )  # fmt: skip
    machine = detect.opencl_machine(gpu)
    assert (machine.name, machine.warp, machine.supports_f64, machine.shares_host_memory) == (
        "Some GPU",
        64,
        False,
        False,
    )
    del gpu.wavefront_width_amd
    assert detect.opencl_machine(gpu).warp == 32
