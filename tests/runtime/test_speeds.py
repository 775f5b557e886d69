"""Speeds of the machine at hand: measured once, kept, and told by `explain`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.machine.detect import host_machine
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX2, CPU_AVX512, CPU_NEON, H100
from tilewright.runtime import speeds
from tilewright.runtime.cache import DiskCache
from tilewright.runtime.speeds import bandwidth, measure_speeds, multiply_add_peak, with_measured_speeds


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that stay in the caches, so that the tests take little time."""
    monkeypatch.setattr(speeds, "_BYTES", 4 << 20)


def test_speeds_are_kept_for_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loop takes the same time here, in which twice as many numbers of half the size are multiplied."""

    def as_fast(run: Callable[[int], object], threads: int, seconds: float) -> float:
        run(0)
        return 1e-3

    monkeypatch.setattr(speeds, "_best", as_fast)
    cache = DiskCache(tmp_path)
    machine = host_machine()
    assert with_measured_speeds(machine, cache) == machine
    measured = measure_speeds(cache)
    assert measured.peak_flops_f32 == 2 * measured.peak_flops_f64 > 0 and measured.dram_bandwidth > 0
    assert with_measured_speeds(machine, DiskCache(tmp_path)) == measured
    assert with_measured_speeds(CPU_AVX2, cache) == CPU_AVX2
    assert with_measured_speeds(H100, cache) == H100


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_loop_runs_on_several_threads(threads: int) -> None:
    assert multiply_add_peak("f64", threads, seconds=0.0) > 0
    assert all(bandwidth(kind, threads, seconds=0.0) > 0 for kind in ("read", "write", "copy"))


def test_explain_tells_the_bound_once_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    plan = tw.plan("ij,jk->ik", (300, 200), (200, 100))
    assert "`tilewright devices --measure` finds those" in str(plan.explain())
    measure_speeds()
    assert ": bound by " in str(plan.explain())


@pytest.mark.parametrize("machine", [CPU_AVX2, CPU_AVX512, CPU_NEON])
def test_sums_of_the_peak_stay_in_registers(machine: Machine) -> None:
    """Twenty-four sums in sixteen registers measured what memory does: half of the peak."""
    assert 10 <= speeds.independent_sums(machine) <= machine.vector_registers - 3
