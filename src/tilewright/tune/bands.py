"""Bands of a threshold: where data sets leave it nothing in common, those with less inside a point get another value.

Each data set leaves an interval for a threshold (`intervals`) and has so many points inside each of those that are
asked about. Data sets are put in order by what is inside; neighbours whose intervals have something in common are one
band, with a value of its own.

>>> of_bands([(32, Interval(low=256.0)), (256, Interval(high=32.0)), (300, Interval(high=64.0))])
(Band(most=90, interval=Interval(low=256.0, high=inf)), Band(most=None, interval=Interval(low=-1.0, high=32.0)))
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilewright.ir.dataclass import dataclass
from tilewright.runtime.thresholds import band
from tilewright.tune.intervals import Interval, within


@dataclass(frozen=True)
class Band:
    """Where a threshold must lie if there are at most so many points inside; None: however many there are."""

    most: int | None
    interval: Interval


def of_bands(found: Iterable[tuple[int, Interval]]) -> tuple[Band, ...] | None:
    """As few bands as the data sets allow; None if some with as much inside leave nothing in common."""
    inside: dict[int, Interval] = {}
    for count, interval in found:
        inside[count] = inside.get(count, Interval()) & interval
    if any(one.is_empty for one in inside.values()):
        return None
    bands: list[Band] = []
    common, last = Interval(), 0
    for count, interval in sorted(inside.items()):
        both = common & interval
        if both.is_empty:
            bands.append(Band(_between(last, count), common))
            both = interval
        common, last = both, count
    return (*bands, Band(None, common))


def _between(less: int, more: int) -> int:
    """Where a band ends between two numbers of points: in the middle of their logarithms."""
    return min(max(math.isqrt(less * more), less), more - 1)


def values_of(threshold: str, bands: Iterable[Band], preferred: float) -> dict[str, float]:
    """The values of a threshold in its bands, each as near to the preferred one as it may be."""
    return {
        threshold if one.most is None else band(threshold, one.most): within(one.interval, preferred) for one in bands
    }
