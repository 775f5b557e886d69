"""Where a threshold may lie: the intervals that data sets leave for it, and their intersection [S2, Autotuning].

A comparison asks `value >= threshold`. A data set that compares the values v_1 < ... < v_k with a threshold behaves in
one way for all thresholds between two neighbouring values, so it has k + 1 costs:

    threshold in   (-1, v_1]   (v_1, v_2]   ...   (v_k, inf]
    cost           costs[0]    costs[1]     ...   costs[k]

Each data set gives the interval of its smallest cost. Whatever lies in all of these intervals is best for every data
set; where there is nothing in all of them, the interval with the smallest total cost is taken.

>>> small, large = Samples((10,), (3.0, 1.0)), Samples((1000,), (1.0, 3.0))
>>> choose([small, large], preferred=4096.0)
Choice(value=100.0, interval=Interval(low=10.0, high=1000.0), agreed=True)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from tilewright.ir.dataclass import dataclass


@dataclass(frozen=True)
class Interval:
    """The thresholds t with low < t <= high; low is -1 where 0 is one of them."""

    low: float = -1.0
    high: float = math.inf

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __contains__(self, threshold: float) -> bool:
        return self.low < threshold <= self.high

    @property
    def is_empty(self) -> bool:
        """No threshold lies in it."""
        return not self.low < self.high

    def __str__(self) -> str:
        return f"({self.low:g}, {self.high:g}]"


@dataclass(frozen=True)
class Samples:
    """One data set's costs: `values` are what it compares, ascending; `costs` one more, for the thresholds between.

    `weight` scales the costs where data sets are added up.
    """

    values: tuple[float, ...]
    costs: tuple[float, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse costs that do not belong to the values.

        Raises:
            ValueError: for values that do not ascend, and another number of costs than one more than there are values.
        """
        if list(self.values) != sorted(set(self.values)) or any(one < 0 for one in self.values):
            raise ValueError(f"the compared values {self.values} must be at least 0 and ascend")
        if len(self.costs) != len(self.values) + 1:
            raise ValueError(f"{len(self.values)} values need {len(self.values) + 1} costs, not {len(self.costs)}")

    @property
    def pieces(self) -> tuple[Interval, ...]:
        """The intervals between the values."""
        edges = (-1.0, *map(float, self.values), math.inf)
        return tuple(Interval(low, high) for low, high in itertools.pairwise(edges))

    def cost(self, threshold: float) -> float:
        """What the data set costs with this threshold."""
        return next(cost for piece, cost in zip(self.pieces, self.costs, strict=True) if max(threshold, 0.0) in piece)


@dataclass(frozen=True)
class Choice:
    """A threshold's value, the interval that it was taken from, and whether it is best for every data set."""

    value: float
    interval: Interval
    agreed: bool


def best_interval(samples: Samples, tolerance: float = 0.0) -> Interval:
    """The thresholds of the smallest cost, and those beside them that cost at most the tolerance's fraction more.

    Where nothing can be run at all, that is every threshold.
    """
    smallest = min(samples.costs)
    if math.isinf(smallest):
        return Interval()
    best = low = high = samples.costs.index(smallest)
    enough = smallest * (1 + tolerance)
    while low > 0 and samples.costs[low - 1] <= enough:
        low -= 1
    while high < len(samples.costs) - 1 and samples.costs[high + 1] <= enough:
        high += 1
    pieces = samples.pieces
    assert low <= best <= high
    return Interval(pieces[low].low, pieces[high].high)


def choose(samples: Sequence[Samples], preferred: float, tolerance: float = 0.0) -> Choice:
    """The best value of a threshold.

    Args:
        samples: what was measured, one for each data set that reaches the comparison.
        preferred: the value that a model gives: taken where the measurements leave it open.
        tolerance: fraction by which costs differ for no reason.
    """
    common = Interval()
    for one in samples:
        common &= best_interval(one, tolerance)
    if not common.is_empty:
        return Choice(within(common, preferred), common, True)
    cheapest = min(_pieces(samples), key=lambda piece: (*_total(samples, piece), preferred not in piece))
    return Choice(within(cheapest, preferred), cheapest, False)


def _pieces(samples: Sequence[Samples]) -> Iterator[Interval]:
    """The intervals within which no data set behaves differently."""
    edges = sorted({-1.0, math.inf, *(float(value) for one in samples for value in one.values)})
    return (Interval(low, high) for low, high in itertools.pairwise(edges))


def _total(samples: Sequence[Samples], piece: Interval) -> tuple[int, float]:
    """How many data sets cannot be run with these thresholds, and the weighted cost of the others."""
    costs = [one.weight * one.cost(piece.high) for one in samples]
    finite = [one for one in costs if math.isfinite(one)]
    return len(costs) - len(finite), math.fsum(finite)


def within(interval: Interval, preferred: float) -> float:
    """The preferred value if it lies in the interval, else the middle (of the logarithms), or what is nearest."""
    if preferred in interval:
        return float(preferred)
    if interval.low < 1 or math.isinf(interval.high):
        return interval.high if preferred > interval.high else interval.low + 1
    middle = float(round(math.sqrt(interval.low * interval.high)))
    return min(max(middle, interval.low + 1), interval.high)
