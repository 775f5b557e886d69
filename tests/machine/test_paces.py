"""How fast cores are at all else than multiply-adds: which processor has which balance, and what no core has."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tilewright.machine import detect
from tilewright.machine.detect import host_machine, instruction_cache
from tilewright.machine.named import CPU_AVX512, NAMED_MACHINES
from tilewright.machine.paces import (
    MESH,
    ONE_MULTIPLY_ADD,
    PACES,
    REDWOOD,
    TWO_MULTIPLY_ADDS,
    TWO_NARROW,
    Pace,
    pace_of,
)
from tilewright.machine.processors import host_processor
from tilewright.passes.direct.cost import written_once


def test_llvm_s_name_of_the_processor_chooses_the_pace() -> None:
    assert pace_of("znver5") == pace_of("icelake-server") == TWO_MULTIPLY_ADDS
    assert pace_of("emeraldrapids") == pace_of("sapphirerapids") == MESH
    assert pace_of("znver3") == pace_of("haswell") == TWO_NARROW
    assert pace_of("znver4") == pace_of("a name that LLVM does not have") == ONE_MULTIPLY_ADD
    assert host_machine().pace == pace_of(host_processor().name, instruction_cache())
    assert ONE_MULTIPLY_ADD not in PACES.values()


@pytest.mark.parametrize(("pace", "held"), [(TWO_MULTIPLY_ADDS, 300 << 20), (MESH, 48 << 20)])
def test_of_a_third_cache_counts_what_one_core_finds_again(
    pace: Pace, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "cpu_caches", lambda: {1: 48 << 10, 2: 2 << 20, 3: 300 << 20})
    monkeypatch.setattr(detect, "pace_of", lambda name, instructions: pace)
    assert host_machine.__wrapped__().l3_bytes == held
    monkeypatch.setattr(detect, "cpu_caches", lambda: {1: 48 << 10, 2: 2 << 20, 3: 32 << 20})
    assert host_machine.__wrapped__().l3_bytes == 32 << 20


def test_the_instruction_cache_tells_apart_what_virtual_machines_call_alike() -> None:
    assert pace_of("graniterapids") == REDWOOD != MESH
    assert pace_of("sapphirerapids", 32 << 10) == MESH
    assert pace_of("sapphirerapids", 64 << 10) == REDWOOD
    assert pace_of("znver5", 64 << 10) == TWO_MULTIPLY_ADDS


def test_on_a_mesh_buffers_are_shared_and_addresses_are_hashed() -> None:
    assert MESH.shares_buffers
    assert not TWO_MULTIPLY_ADDS.shares_buffers
    assert math.isinf(MESH.channels)
    assert TWO_MULTIPLY_ADDS.channels == 1024


def test_named_machines_have_the_pace_that_the_models_were_measured_on() -> None:
    assert {one.pace for one in NAMED_MACHINES.values()} == {Pace()} == {ONE_MULTIPLY_ADD}


def test_two_multiply_adds_in_a_cycle_leave_less_time_for_all_else() -> None:
    one, two = ONE_MULTIPLY_ADD, TWO_MULTIPLY_ADDS
    assert two.chain == 2 * one.chain, "the latency is as long, and twice as many multiply-adds start meanwhile"
    assert two.element_load > one.element_load
    assert all(two.bytes_from(level) < one.bytes_from(level) for level in (2, 3, 4))
    assert all(two.bytes_again_from(level) < one.bytes_again_from(level) for level in (2, 3, 4))


def test_what_is_written_past_the_caches_has_a_pace_of_its_own() -> None:
    out, others = 1 << 28, 1 << 20
    past = replace(CPU_AVX512, pace=replace(CPU_AVX512.pace, memory=2.0, past=4.0))
    assert written_once(out, others, True, past) == out / 4.0
    assert written_once(out, others, False, past) == 2 * out / 2.0


@pytest.mark.parametrize(
    "change", [{"past": 0.0}, {"chain": -1.0}, {"near": -0.5}, {"memory": 0.0}, {"again": 0.0}, {"block": 2.0}]
)
def test_a_pace_that_no_core_has_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="the pace of a core: "):
        replace(ONE_MULTIPLY_ADD, **change)
