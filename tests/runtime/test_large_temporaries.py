"""Native entries of plans whose arrays between launches are many, or large: these are given to native code."""

# ruff: noqa: F821, UP037  # sizes in annotations are text: tw.f64["n"]
from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.frontend import einsum as einsum_module
from tilewright.runtime import cpu_entry, recycling
from tilewright.runtime.cpu_entry_text import TEMPORARY_BYTES
from tilewright.runtime.entry_plan import EntryCheck, EntryRounds, renumbered
from tilewright.runtime.flat_plan import EntryLaunch
from tilewright.runtime.native_image import NativeKernel

pytestmark = pytest.mark.skipif(not cpu_entry.entries_are_possible(), reason="this interpreter has no native entries")

MANY = TEMPORARY_BYTES // 8 + 1000


@tw.program
def backwards(xs: tw.f64["n"], factor: tw.f64) -> Any:
    sums = tw.scan("add", 0, xs)
    return tw.map(lambda place: factor * sums[xs.shape[0] - 1 - place], tw.iota(xs.shape[0]))


@tw.program
def twice_backwards(xs: tw.f64["n"]) -> Any:
    sums = tw.scan("add", 0, xs)
    turned = tw.map(lambda place: sums[xs.shape[0] - 1 - place], tw.iota(xs.shape[0]))
    again = tw.scan("add", 0, turned)
    return tw.map(lambda place: again[xs.shape[0] - 1 - place], tw.iota(xs.shape[0])), tw.reduce("max", -1, turned)


@tw.program
def rounds(xs: tw.f64["n"], count: tw.i64) -> Any:
    def step(_: Any, ys: Any) -> Any:
        sums = tw.scan("max", -1.0, ys)
        return tw.map(lambda place: sums[xs.shape[0] - 1 - place] - 1, tw.iota(xs.shape[0]))

    return tw.loop(count, xs, step)


def calls(function: Callable[[], Any], count: int = 4) -> list[Any]:
    return [function() for _ in range(count)]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_array_between_launches_leaves_the_native_entry(threads: int) -> None:
    xs = np.random.default_rng(0).integers(0, 9, MANY).astype(np.float64)
    with tw.num_threads(threads):
        for number in range(4):
            np.testing.assert_array_equal(backwards(xs, 2.0 + number), (2 + number) * np.cumsum(xs)[::-1])
        assert backwards._quick.entries
        (entry, *_) = backwards._quick.entries
        np.testing.assert_array_equal(entry(xs, 3.0), 3 * np.cumsum(xs)[::-1])
        assert entry(xs[1:], 3.0) is None
        assert entry(xs) is None
        assert entry(xs.astype(np.float32), 3.0) is None


def test_their_memory_is_recycled_and_none_is_taken_for_other_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    xs = np.ones(MANY)
    calls(lambda: backwards(xs, 2.0))
    (entry, *_) = backwards._quick.entries
    gc.collect()
    assert recycling._POOL is not None
    held = recycling._POOL.held
    assert held >= TEMPORARY_BYTES
    result = entry(xs, 2.0)
    assert result[0] == 2 * MANY and recycling._POOL.held <= held
    monkeypatch.setattr(cpu_entry, "aligned_empty", lambda *_: pytest.fail("memory was asked for"))
    assert entry(xs[1:], 2.0) is None


def test_several_results_and_several_large_arrays() -> None:
    xs = np.random.default_rng(1).integers(0, 3, MANY).astype(np.float64)
    turned = np.cumsum(xs)[::-1]
    for first, most in calls(lambda: twice_backwards(xs)):
        np.testing.assert_array_equal(first, np.cumsum(turned)[::-1])
        assert most == turned[0]
    assert twice_backwards._quick.entries


def test_rounds_with_large_arrays() -> None:
    xs = np.random.default_rng(2).integers(0, 9, MANY).astype(np.float64)
    for count in (5, 6):
        wanted = xs
        for _ in range(count):
            wanted = np.maximum.accumulate(wanted)[::-1] - 1
        for found in calls(lambda count=count: rounds(xs, count)):  # type: ignore[misc]
            np.testing.assert_array_equal(found, wanted)
    assert rounds._quick.entries


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """What einsums are bound to from now on, none of which has been met before."""
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(einsum_module, "_CALLS", kept)
    monkeypatch.setattr(einsum_module, "_RECENT", {})
    monkeypatch.setattr(einsum_module, "record_key", lambda *call: None)
    return kept


def all_the_same(results: list[Any]) -> Any:
    """The first one; all others are like it."""
    for one in results[1:]:
        np.testing.assert_array_equal(one, results[0])
    return results[0]


def test_an_einsum_with_a_large_array_between_its_products(bound: dict[Any, Any]) -> None:
    side = int((TEMPORARY_BYTES / 8) ** 0.5) + 8
    random = np.random.default_rng(3)
    a, b, c = (random.integers(-3, 4, shape).astype(np.float64) for shape in ((side, 2), (2, side), (side, 3)))
    path = ((0, 1), (0, 1))
    found = all_the_same(calls(lambda: tw.einsum("ia,aj,jb->ib", a, b, c, optimize=path)))
    (einsum,) = bound.values()
    assert einsum.quick.entries
    np.testing.assert_array_equal(found, a @ b @ c)


def test_an_einsum_of_many_operands_has_an_entry(bound: dict[Any, Any]) -> None:
    random = np.random.default_rng(4)
    count = 70
    matrices = [random.integers(-1, 2, (2, 2)).astype(np.float64) for _ in range(count)]
    lists = [part for number, one in enumerate(matrices) for part in (one, [number, number + 1])]
    path = ((0, 1), *((0, count - 2 - number) for number in range(count - 2)))
    found = all_the_same(calls(lambda: tw.einsum(*lists, [0, count], optimize=path)))
    (einsum,) = bound.values()
    assert einsum.quick.entries
    np.testing.assert_array_equal(found, np.linalg.multi_dot(matrices))


def test_arrays_between_the_launches_of_an_einsum_share_their_places(bound: dict[Any, Any]) -> None:
    random = np.random.default_rng(5)
    matrices = [random.integers(-3, 4, (9, 9)).astype(np.float64) for _ in range(6)]
    path = ((0, 1), *((0, 4 - number) for number in range(4)))
    found = all_the_same(calls(lambda: tw.einsum("ab,bc,cd,de,ef,fg->ag", *matrices, optimize=path)))
    (einsum,) = bound.values()
    plan = einsum.executable.flat_plan(matrices, found)
    assert len(plan.launches) == 5 and len(plan.temporaries) == 2
    np.testing.assert_array_equal(found, np.linalg.multi_dot(matrices))


def test_values_are_numbered_anew_in_all_steps() -> None:
    launch = EntryLaunch(NativeKernel("one", 99), 3, (0, 1, 4), (7, 8), ((1, 2),))
    inner = EntryRounds(5, 0, 9, ((6, 1, 2),), (launch,), (3, 8), (launch,), ((3, 4),))
    numbers = {old: 10 + old for old in range(7)}
    moved = EntryLaunch(launch.native, 3, (10, 11, 14), (7, 8), ((1, 12),))
    assert renumbered([launch, EntryCheck(1, 24), inner], numbers) == (
        moved,
        EntryCheck(11, 24),
        EntryRounds(15, 0, 9, ((16, 1, 2),), (moved,), (13, 8), (moved,), ((13, 14),)),
    )
