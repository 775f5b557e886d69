"""Memory that is given back while a program runs."""

from __future__ import annotations

import tracemalloc

import numpy as np

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal, Program, Variable, array
from tilewright.ir.scalars import F64
from tilewright.passes.compile import compile_program, program_block
from tilewright.runtime.devices import device_for
from tilewright.runtime.liveness import dead_after, with_releases
from tilewright.runtime.recording import Allocation, CheckErrors, RecordedLaunch, Release


def chain(length: int) -> Program:
    """Scans one after another, which are not fused."""
    b = Builder()
    value: Variable = b.variable("x", array(F64, "n"))
    parameter = value
    for _ in range(length):
        value = b.scan(b.operator("add", F64), Literal(0.0, F64), value)
    return b.program("chain", [parameter], [value])


def test_names_die_after_their_last_step() -> None:
    program = chain(3)
    block, _ = program_block(program, device_for("cpu"))
    dead = dead_after(block)
    results = [statement.targets[0].name for statement in program.body.statements]
    assert len(dead) == 3
    assert results[0] in dead[1] and results[1] in dead[2]
    assert not any(results[2] in names for names in dead)


def test_releases_follow_the_last_use() -> None:
    large, small = (1 << 14,), (8,)
    double = np.dtype(np.float64)
    records = [
        Allocation(1, large, double), RecordedLaunch(None, 1, (0, 1), ()),
        Allocation(2, small, double), RecordedLaunch(None, 1, (1, 2), ()),
        Allocation(3, large, double), RecordedLaunch(None, 1, (1, 3), ()),
        Allocation(4, large, double), RecordedLaunch(None, 1, (3, 4), ()), CheckErrors(4, ()),
    ]  # fmt: skip
    released = with_releases(records, [3])
    assert [one for one in released if not isinstance(one, Release)] == records
    places = {one.slot: position for position, one in enumerate(released) if isinstance(one, Release)}
    assert places == {1: 6, 4: 10}  # 2 is small, 3 a result


def test_first_and_later_runs_keep_little_alive() -> None:
    count = 60_000
    run = compile_program(chain(8), device_for("cpu"))
    run(np.ones(8))  # compiles
    for _ in range(2):
        x = np.ones(count)
        tracemalloc.start()
        try:
            result = run(x)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert result[1] == 9.0
        assert peak < 3.5 * count * 8
