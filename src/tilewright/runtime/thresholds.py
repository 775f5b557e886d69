"""The values of thresholds, which may depend on how much is inside a point: `name`, and `name@most` for bands.

A question compares the points outside with a threshold. Which answer is best depends on what is inside a point, too: it
is what one core goes through alone, and holds in its cache. So a threshold may have other values where less is inside:
`outer_1@90` is that of `outer_1` where at most 90 points are inside each of those that it asks about.

>>> values = {"outer_1": 2.0, "outer_1@90": 32.0, "block_1": 2.0}
>>> resolved(values, {"outer_1": 90}), resolved(values, {"outer_1": 91})
({'outer_1': 32.0, 'block_1': 2.0}, {'outer_1': 2.0, 'block_1': 2.0})
>>> merged(values, {"outer_1": 0.0})
{'outer_1': 0.0, 'block_1': 2.0}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from numbers import Real

from tilewright.runtime.messages import brief, value_text

BAND = "@"
_MOST = re.compile("0|[1-9][0-9]{0,18}")  # one text for a number, and none that takes long to read


def band(name: str, most: int) -> str:
    """What the value of a threshold is called where at most so many points are inside."""
    return f"{name}{BAND}{most}"


def threshold_of(name: str) -> str:
    """The threshold that a value belongs to.

    >>> threshold_of("outer_1@90")
    'outer_1'
    """
    return name.partition(BAND)[0]


def banded(values: Mapping[str, float]) -> set[str]:
    """The thresholds that have other values where less is inside."""
    return {threshold_of(name) for name in values if BAND in name}


def bands_of(values: Mapping[str, float], threshold: str) -> tuple[tuple[int, float], ...]:
    """The bands of a threshold: the most points inside, ascending, and its value there."""
    found = ((name.partition(BAND), value) for name, value in values.items())
    return tuple(sorted((int(most), value) for (name, mark, most), value in found if mark and name == threshold))


def resolved(values: Mapping[str, float], inside: Mapping[str, int]) -> dict[str, float]:
    """The value of each threshold, where so many points are inside; that without a band where this is not known."""
    found = {name: value for name, value in values.items() if BAND not in name}
    for name in banded(values) & inside.keys():
        found[name] = next((value for most, value in bands_of(values, name) if inside[name] <= most), found[name])
    return found


def merged(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """The old values with new ones in their place; a threshold that is set anew has no bands from before.

    Raises:
        TypeError: if the new ones are no mapping of names.
    """
    if not isinstance(new, Mapping) or not all(isinstance(name, str) for name in new):
        raise TypeError(f"thresholds map names to values, as in {{'outer_0': 2}}; {value_text(new)} does not")
    again = {threshold_of(name) for name in new}
    kept = {name: value for name, value in old.items() if BAND not in name or threshold_of(name) not in again}
    return {**kept, **new}


def check_values(program: str, known: Collection[str], values: Mapping[str, float]) -> None:
    """Refuse values that a program cannot have.

    Raises:
        ValueError: for a threshold that the program does not have, and a value that is no number of at least 0.
    """
    for name, value in values.items():
        threshold, mark, most = name.partition(BAND) if isinstance(name, str) else ("", "", "")
        if threshold not in known:
            has = ", ".join(known) or "none"
            raise ValueError(f"{program} has no threshold {brief(name)}; it has {has}")
        if mark and not _MOST.fullmatch(most):
            raise ValueError(
                f"{program}: threshold {brief(name)}: after {BAND} stands how many points are inside at most"
            )
        if not (is_number(value) and value >= 0):
            raise ValueError(f"{program}: threshold {name} = {brief(value)} is no number of at least 0")


def is_number(value: object) -> bool:
    """Whether a value is a real number, of Python's or of NumPy's; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)
