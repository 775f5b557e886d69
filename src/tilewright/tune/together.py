"""All thresholds at once: the best that one set of values can say to several data sets.

The search decides one comparison after the other, from times that differ by chance; what each decision may lose adds up
over those on the way inwards. In the end every data set has been run in several ways, so the thresholds can be chosen
anew from all of these: a way asks of each threshold that it compares to lie in an interval, and the ways of all data
sets together must leave something of each interval.

>>> few, many = (("outer_0", 16, True),), (("outer_0", 16, False),)
>>> ways = {"small": [Way(many, 3.0), Way(few, 2.0)], "large": [Way((("outer_0", 200, False),), 1.0)]}
>>> chosen = best_together(ways)  # 16 points are not to be enough: 200 are not either
>>> chosen.cost, str(chosen.intervals["outer_0"])
(4.0, '(200, inf]')
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.tune.intervals import Interval

MOST_COMBINATIONS = 256
"""Of the combinations of ways of the data sets so far, so many of the cheapest are followed."""

Compared = tuple[tuple[str, int, bool], ...]


@dataclass(frozen=True)
class Way:
    """What a data set compares, with the answers, when it goes a way through a program, and what that costs."""

    compared: Compared
    cost: float


@dataclass(frozen=True)
class Together:
    """Where thresholds must lie for each data set to go the way that was chosen for it, and the sum of the costs."""

    cost: float
    intervals: Mapping[str, Interval]


def best_together(ways: Mapping[str, Sequence[Way]]) -> Together | None:
    """The cheapest combination of a way for each data set that thresholds can express; None if none was found."""
    found = [Together(0.0, {})]
    for own in ways.values():
        longer = (
            Together(one.cost + way.cost, intervals)
            for one in found
            for way in own
            if (intervals := narrowed(one.intervals, way.compared)) is not None
        )
        found = heapq.nsmallest(MOST_COMBINATIONS, longer, key=lambda one: one.cost)
    return found[0] if found else None


def narrowed(intervals: Mapping[str, Interval], compared: Compared) -> dict[str, Interval] | None:
    """What is left of thresholds' intervals with these answers; None if nothing is left of one.

    >>> narrowed({"outer_0": Interval(high=9)}, (("outer_0", 4, False), ("block_0", 4, True)))
    {'outer_0': Interval(low=4.0, high=9), 'block_0': Interval(low=-1.0, high=4.0)}
    """
    left = dict(intervals)
    for name, value, answer in compared:
        allowed = Interval(high=float(value)) if answer else Interval(low=float(value))
        left[name] = left.get(name, Interval()) & allowed
        if left[name].is_empty:
            return None
    return left
