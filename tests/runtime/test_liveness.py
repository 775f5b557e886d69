"""Memory that is given back while a program runs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal, Program, Variable, array
from tilewright.ir.scalars import F64
from tilewright.passes.compile import compile_program, program_block
from tilewright.runtime.devices import device_for
from tilewright.runtime.liveness import dead_after, with_releases
from tilewright.runtime.recording import Allocation, CheckErrors, Record, RecordedLaunch, Release


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
    large, larger, small = (1 << 14,), (1 << 15,), (8,)
    double = np.dtype(np.float64)
    records = [
        Allocation(1, large, double), RecordedLaunch(None, 1, (0, 1), ()),
        Allocation(2, small, double), RecordedLaunch(None, 1, (1, 2), ()),
        Allocation(3, large, double), RecordedLaunch(None, 1, (1, 3), ()),
        Allocation(4, larger, double), RecordedLaunch(None, 1, (3, 4), ()), CheckErrors(4, ()),
    ]  # fmt: skip
    released = with_releases(records, [3])
    assert [one for one in released if not isinstance(one, Release)] == records
    places = {one.slot: position for position, one in enumerate(released) if isinstance(one, Release)}
    assert places == {1: 6, 4: 10}  # 2 is small, 3 a result


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2), st.sampled_from(["fresh", "zeros"])), max_size=12))
def test_memory_that_is_taken_over_is_not_in_use(rounds: list[tuple[int, int, str]]) -> None:
    """What a launch reads, from arrays before its own, is what was last written there."""
    records: list[Record] = []
    for slot, (back, length, kind) in enumerate(rounds, 1):
        records.append(Allocation(slot, (length << 12,), np.dtype(np.int64), kind == "zeros"))
        records.append(RecordedLaunch(None, 1, (max(0, slot - 1 - back), slot), ()))
        if kind == "zeros":
            records.append(CheckErrors(slot, ()))
    results = [len(rounds)] if rounds else []
    changed = with_releases(records, results)
    assert reads(changed) == reads(records)
    kept = [one.slot for one in changed if isinstance(one, Allocation)]
    assert set(results) <= set(kept) and len(set(kept)) == len(kept)


def reads(records: Sequence[Record]) -> list[int]:
    """For each launch the number of the launch that wrote what it reads (-1: an argument)."""
    written, found = {0: -1}, list[int]()
    for one in records:
        if isinstance(one, Release):
            del written[one.slot]
        elif isinstance(one, RecordedLaunch):
            source, target = one.slots
            found.append(written[source])
            written[target] = len(found)
    return found


def test_rounds_of_a_loop_share_two_arrays() -> None:
    records: list[Record] = []
    for slot in range(1, 11):
        records += [Allocation(slot, (1 << 14,), np.dtype(np.float32)), RecordedLaunch(None, 1, (slot - 1, slot), ())]
    changed = with_releases(records, [10])
    assert [one.slot for one in changed if isinstance(one, Allocation)] == [1, 2, 10]
    assert [one.slot for one in changed if isinstance(one, Release)] == [2, 1]


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
