"""Races: which of several calls is the fastest, although the times of one call differ by more than those of two.

Calls are timed in turns, so that whatever slows the machine down for a while meets all of them, in another order each
time, since what a call leaves in the caches is found by the next one. They are compared in pairs: the ratio of two
calls' times in the same round. The interval of a median is free of assumptions on how times are
distributed: of n values in order, the k-th from either end, where a fair coin thrown n times shows fewer than k heads
with half the probability that is allowed for an error [Conover, Practical Nonparametric Statistics, 3.2].

>>> interval_of_median([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 9.0])
Spread(low=1.0, median=1.3, high=9.0)
>>> spread_of_ratio([2.0, 4.0, 8.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 1.0, 2.0, 4.0])
Spread(low=2.0, median=2.0, high=2.0)
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from tilewright.ir.dataclass import dataclass

CONFIDENCE = 0.95
SURE = 0.999
"""The confidence with which a call leaves a race, which is decided at many looks, each of which may err."""
LEAST_ROUNDS = 11
"""With fewer values not even the least and the greatest enclose the median with the confidence `SURE`."""
LOOKS = 8
"""The next look comes after an eighth more rounds: the fewer there are, the fewer err."""

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """A median, and the interval that holds it with some confidence."""

    low: float
    median: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def interval_of_median(values: Sequence[float], confidence: float = CONFIDENCE) -> Spread:
    """The median of some values, and where the median of what they were drawn from lies; all of them if they are few.

    Raises:
        ValueError: for no values.
    """
    if not values:
        raise ValueError("no values have no median")
    ordered, count = sorted(values), len(values)
    outside, below = 0, 0.0  # how many values at either end are left out, and the probability of as few heads
    while 2 * (outside + 1) < count:
        below += math.comb(count, outside) / 2**count
        if 2 * below > 1 - confidence:
            break
        outside += 1
    first = max(outside - 1, 0)
    return Spread(ordered[first], statistics.median(ordered), ordered[-1 - first])


def spread_of_ratio(times: Sequence[float], others: Sequence[float], confidence: float = CONFIDENCE) -> Spread:
    """How many times as long one call takes as another: the ratios of their times in the same rounds."""
    pairs = zip(times, others, strict=False)
    return interval_of_median([one / max(other, 1e-12) for one, other in pairs], confidence)


def race(
    calls: Mapping[Name, Callable[[], Any]],
    seconds: float,
    tolerance: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, float]:
    """How many times as long as the fastest each call takes, in the median of the rounds in which both ran.

    Args:
        calls: what is compared; each should have been called before.
        seconds: the race ends after about so many for each call, and at the earliest after `LEAST_ROUNDS`.
        tolerance: the race ends when all that are left surely take no longer than the fastest by more than this
            fraction of its time; who surely takes longer than the fastest at all has left it before.
        clock: gives seconds.
    """
    times: dict[Name, list[float]] = {name: [] for name in calls}
    running, begin, order = list(calls), clock(), random.Random(0)
    rounds, look = 0, LEAST_ROUNDS
    while True:
        for name in order.sample(running, len(running)):
            start = clock()
            calls[name]()
            times[name].append(clock() - start)
        rounds += 1
        is_over = rounds >= LEAST_ROUNDS and clock() - begin >= seconds * len(calls)
        if rounds < look and not is_over:
            continue
        look += -(-look // LOOKS)
        leader = _leader({one: times[one] for one in running})
        spreads = {one: spread_of_ratio(times[one], times[leader], SURE) for one in running}
        running = [one for one in running if spreads[one].low <= 1]
        undecided = any(spreads[one].high > 1 + tolerance for one in running)
        if not undecided or is_over:
            return {one: spread_of_ratio(found, times[leader]).median for one, found in times.items()}


def _leader(times: Mapping[Name, Sequence[float]]) -> Name:
    """Who took least, in the median of the rounds, of what all together took in each."""
    together = [math.fsum(one) for one in zip(*times.values(), strict=True)]
    shares = {name: [own / max(all_, 1e-12) for own, all_ in zip(mine, together, strict=True)]
              for name, mine in times.items()}  # fmt: skip
    return min(shares, key=lambda one: statistics.median(shares[one]))
