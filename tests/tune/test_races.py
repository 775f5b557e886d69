"""Races on a clock that is made up: right in spite of times that vary, and ended when the answer is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.tune.races import LEAST_ROUNDS, interval_of_median, race, spread_of_ratio

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40)


@given(st.integers(1, 200), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_is_the_narrowest_that_is_sure_enough(count: int, confidence: float) -> None:
    """Of the values 1 ... n in order: both ends leave the median out with at most half of what is allowed each."""
    found = interval_of_median([float(one) for one in range(1, count + 1)], confidence)
    left_out = int(found.low) - 1
    assert found.high == count - left_out and found.median == (count + 1) / 2

    def misses(outside: int) -> Fraction:
        return 2 * sum(Fraction(math.comb(count, one), 2**count) for one in range(outside))

    allowed = 1 - Fraction(confidence)
    assert misses(left_out + 1) <= allowed or left_out == 0
    assert misses(left_out + 2) > allowed - Fraction(1, 10**9) or 2 * (left_out + 1) >= count


@given(TIMES, st.randoms(use_true_random=False))
def test_the_order_of_values_does_not_matter(times: list[float], shuffled: random.Random) -> None:
    mixed = list(times)
    shuffled.shuffle(mixed)
    found = interval_of_median(times)
    assert found == interval_of_median(mixed) and found.median in found


@given(TIMES, st.floats(0.1, 10))
def test_what_slows_both_does_not_count(times: list[float], factor: float) -> None:
    found = spread_of_ratio([one * factor for one in times], times)
    assert found.low == pytest.approx(factor) == found.high


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no values have no median"):
        interval_of_median([])


class Track:
    """A clock, and calls that let it go on: each takes its own time, times what all take longer for a while."""

    def __init__(self, own: Sequence[float], noise: float, seed: int) -> None:
        self.now, self.random, self.noise = 0.0, random.Random(seed), noise
        self.counts = [0] * len(own)
        self.order: list[int] = []
        self.calls: dict[int, Callable[[], None]] = {k: lambda k=k: self.run(k, own[k]) for k in range(len(own))}  # type: ignore[misc]

    def run(self, number: int, own: float) -> None:
        self.counts[number] += 1
        self.order.append(number)
        slow = 1 + 0.5 * math.sin(self.now / 40)
        self.now += own * slow * self.random.uniform(1, 1 + self.noise)

    def clock(self) -> float:
        return self.now


@given(st.permutations([1.0, 1.1, 1.2, 2.0]), st.integers(0, 100))
def test_the_fastest_is_found_among_times_that_vary_by_more(own: list[float], seed: int) -> None:
    track = Track(own, 0.3, seed)
    ratios = race(track.calls, 2000.0, 0.03, track.clock)
    assert min(ratios, key=lambda one: ratios[one]) == own.index(1.0)
    assert ratios[own.index(2.0)] == pytest.approx(2.0, rel=0.3)


def test_who_is_surely_slower_leaves_and_who_is_equal_ends_the_race() -> None:
    track = Track([1.0, 1.0, 3.0], 0.01, 1)
    ratios = race(track.calls, 1e6, 0.05, track.clock)
    assert track.counts[2] == LEAST_ROUNDS <= track.counts[0] == track.counts[1] < 3 * LEAST_ROUNDS
    assert ratios[2] == pytest.approx(3.0, rel=0.05)
    assert [ratios[0], ratios[1]] == pytest.approx([1.0, 1.0], rel=0.03)


@given(st.permutations([1.0, 1.01, 1.01]), st.integers(0, 100))
def test_who_is_faster_by_less_than_the_noise_is_found_in_the_end(own: list[float], seed: int) -> None:
    track = Track(own, 0.05, seed)
    ratios = race(track.calls, 5000.0, 0.0, track.clock)
    assert min(ratios, key=lambda one: ratios[one]) == own.index(1.0)
    assert track.now < 4500, "it ended when that was sure, not with its time"


def test_each_call_follows_each_other_one() -> None:
    track = Track([1.0, 1.0, 1.0], 0.1, 2)
    race(track.calls, 60.0, 0.0, track.clock)
    follows = {(one, other) for one, other in pairwise(track.order) if one != other}
    assert len(follows) == 6
    other = Track([1.0, 1.0, 1.0], 0.1, 2)
    race(other.calls, 60.0, 0.0, other.clock)
    assert other.order == track.order, "chance is the same each time"


def test_a_race_that_stays_open_ends_with_its_time() -> None:
    track = Track([1.0, 1.0 + 1e-9], 0.5, 1)
    race(track.calls, 50.0, 0.0, track.clock)
    assert 100 <= track.now < 105
