"""Places of the arrays between the launches of native entries, and long loops that native code repeats."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f32["n"]
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.frontend.program import TracedProgram
from tilewright.runtime import cpu_entry
from tilewright.runtime.entry_memory import shared_places
from tilewright.runtime.recording import Allocation, CheckErrors, Record, RecordedLaunch

ROUNDS = 300


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[Record], set[int]]:
    """Launches that read what earlier ones have made, some with error records, and which arrays are results."""
    records: list[Record] = []
    checks: list[Record] = []
    arrays = [0]  # the slot of an argument
    slots = 0
    for _ in range(draw(st.integers(1, 12))):
        slots += 1
        records.append(Allocation(slots, (draw(st.integers(1, 9)),), np.dtype(draw(st.sampled_from(["i1", "f8"])))))
        made = slots
        read = draw(st.lists(st.sampled_from(arrays[-4:]), min_size=1, max_size=3))
        used = [made, *read]
        if draw(st.booleans()):
            slots += 1
            records.append(Allocation(slots, (3 * draw(st.integers(1, 2)),), np.dtype("i8"), zeros=True))
            checks.append(CheckErrors(slots, ()))
            used.append(slots)
        records.append(RecordedLaunch(None, 1, tuple(used), ()))
        arrays.append(made)
    results = {arrays[-1], *draw(st.lists(st.sampled_from(arrays[1:]), max_size=2))}
    return records + checks, results


@given(recordings())
def test_no_array_is_written_over_while_it_is_used(recorded: tuple[list[Record], set[int]]) -> None:
    records, results = recorded
    places = shared_places(records, results)
    made = {one.slot: one for one in records if isinstance(one, Allocation)}
    checked = {one.slot for one in records if isinstance(one, CheckErrors)}
    assert places.of.keys() == made.keys() - results
    launches = [one for one in records if isinstance(one, RecordedLaunch)]
    alive: dict[int, range] = {}
    for number, launch in enumerate(launches):
        for slot in launch.slots:
            alive[slot] = range(alive.get(slot, range(number, 0)).start, number + 1)
    for slot, place in places.of.items():
        assert places.sizes[place] >= math.prod(made[slot].shape) * made[slot].dtype.itemsize
        assert (place == places.errors) == (slot in checked)
        for other, other_place in places.of.items():
            if other > slot and other_place == place and slot not in checked:
                assert alive[slot].stop <= alive[other].start, (slot, other)


def test_a_loop_needs_few_places() -> None:
    records: list[Record] = []
    for one in range(1, 1000):
        records += [Allocation(one, (100,), np.dtype("f4")), RecordedLaunch(None, 1, (one - 1, one), ())]
    assert shared_places(records, {999}).sizes == (400, 400)


@tw.program
def relaxed(xs: tw.f32["n"], places: tw.i64["m"], shift: tw.f32) -> Any:
    """Rounds of two kernels each, one of which looks where it was told."""

    def one_round(_: Any, ys: Any) -> Any:
        total = tw.reduce("max", -1e30, tw.map(lambda place: ys[place], places))
        return tw.map(lambda y: (y + shift) / total, ys)

    return tw.loop(ROUNDS, xs, one_round)


def taught(*arguments: Any) -> TracedProgram:
    own = relaxed.with_thresholds({})
    for _ in range(3):
        own(*arguments)
    assert own._quick.entries
    return own


@pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")
def test_rounds_are_repeated_by_native_code() -> None:
    places = np.array([3, 1, 30_000])
    own = taught(np.linspace(1, 2, 40_000, dtype="f4"), places, 1.0)
    for shift in (0.5, 2.0):
        xs = np.random.default_rng(7).uniform(1, 2, 40_000).astype("f4")
        expected = xs.astype("f8")
        for _ in range(ROUNDS):
            expected = (expected + shift) / expected[places].max()
        # A round adds and divides, and its total has the error of the round before: less than four roundings each,
        # since a relative error of the elements and of the total shrinks by y / (y + shift) before they meet.
        found = own._quick.entries[0](xs, places, shift)
        np.testing.assert_allclose(found, expected, rtol=4 * ROUNDS * np.finfo("f4").eps)


@pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")
def test_an_index_out_of_range_in_a_round() -> None:
    xs = np.linspace(1, 2, 40_000, dtype="f4")
    own = taught(xs, np.array([3, 1, 30_000]), 1.0)
    wrong = np.array([3, 1, 40_000])
    assert own._quick.entries[0](xs, wrong, 1.0) is None
    with pytest.raises(IndexError, match=r"relaxed: .*index 40000 .*40000"):
        own(xs, wrong, 1.0)
