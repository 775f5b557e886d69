"""Memory that is given back while a program runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal, Program, Variable, array
from tilewright.ir.scalars import F64
from tilewright.passes.compile import program_block
from tilewright.runtime.devices import device_for
from tilewright.runtime.host import CheckedIndex
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


def test_small_arrays_take_over_memory_too() -> None:
    double = np.dtype(np.float64)
    records: list[Record] = []
    for slot in range(1, 101):
        records += [Allocation(slot, (8,), double), RecordedLaunch(None, 1, (slot - 1, slot), ())]
    changed = with_releases(records, [100])
    assert sum(isinstance(one, Allocation) for one in changed) == 3  # two in turns, and the result
    assert not any(isinstance(one, Release) for one in changed)


def test_rounds_that_are_checked_together_record_errors_in_one_place() -> None:
    double, checks, others = np.dtype(np.float64), (CheckedIndex("x", 0, "f:1"),), (CheckedIndex("y", 1, "f:2"),)
    records: list[Record] = []
    for epoch in range(2):
        slots = range(1 + 10 * epoch, 7 + 10 * epoch)
        for slot in slots:
            records += [Allocation(slot, (3,), np.dtype(np.int64), zeros=True), RecordedLaunch(None, 1, (0, slot), ())]
        records += [CheckErrors(slot, others if slot == slots[2] else checks) for slot in slots]
    changed = with_releases(records, [])
    assert [(one.slot, one.checks) for one in changed if isinstance(one, CheckErrors)] == [
        (1, checks), (3, others), (11, checks), (13, others)
    ]  # fmt: skip
    assert [one.slot for one in changed if isinstance(one, Allocation)] == [1, 3, 11, 13]
    written = [one.slots[1] for one in changed if isinstance(one, RecordedLaunch)]
    assert written == [1, 1, 3, 1, 1, 1, 11, 11, 13, 11, 11, 11]
    assert with_releases([Allocation(1, (8,), double)], [1]) == [Allocation(1, (8,), double)]


LENGTHS = st.sampled_from([1, 2, 1 << 12, 2 << 12])


@given(st.lists(st.tuples(st.integers(0, 5), LENGTHS, st.sampled_from(["fresh", "zeros"])), max_size=12))
def test_memory_that_is_taken_over_is_not_in_use(rounds: list[tuple[int, int, str]]) -> None:
    """What a launch reads, from arrays before its own, is what was last written there."""
    records: list[Record] = []
    for slot, (back, length, kind) in enumerate(rounds, 1):
        records.append(Allocation(slot, (length,), np.dtype(np.int64), kind == "zeros"))
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


_CHAIN = """
    import numpy as np
    from tilewright.ir.builder import Builder
    from tilewright.ir.nodes import Literal, array
    from tilewright.ir.scalars import F64
    from tilewright.passes.compile import compile_program
    from tilewright.runtime.devices import device_for

    b = Builder()
    value = parameter = b.variable("x", array(F64, "n"))
    for _ in range(8):
        value = b.scan(b.operator("add", F64), Literal(0.0, F64), value)
    run = compile_program(b.program("chain", [parameter], [value]), device_for("cpu"))
    run(np.ones(8))  # compiles
    for _ in range({earlier}):
        run(np.ones(60_000))
    x = np.ones(60_000)
"""


@pytest.mark.parametrize("earlier", [0, 1, 4])
def test_first_and_later_runs_keep_little_alive(earlier: int, traced_peak: Callable[[str, str], int]) -> None:
    peak = traced_peak(_CHAIN.format(earlier=earlier), "assert run(x)[1] == 9.0")
    assert 2 * 60_000 * 8 < peak < 3.5 * 60_000 * 8
