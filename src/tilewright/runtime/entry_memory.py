"""Where the arrays between the launches of a native entry lie: few places, each for one array after the other."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tilewright.runtime.recording import Allocation, CheckErrors, Record, RecordedLaunch, Rounds, flattened, slots_of


class Places(NamedTuple):
    """The places of a recording's temporary arrays.

    Attributes:
        of: the number of each slot's place.
        sizes: of the places, in bytes.
        errors: the place of all error records, if there are any.
    """

    of: dict[int, int]
    sizes: tuple[int, ...]
    errors: int | None


def shared_places(records: Sequence[Record], results: Collection[int]) -> Places:
    """Places for all arrays that a recording makes, but for its results.

    An array takes the smallest place that is large enough of those that no later launch reads any more, else the
    largest of them, which grows, and a new one where none is free. Error records have one place together: they are zero
    unless something is wrong, and what it was is for the long way to tell.

    >>> import numpy as np
    >>> made = [Allocation(slot, (10 * slot,), np.dtype("f8")) for slot in (1, 2, 3)]
    >>> launches = [RecordedLaunch(None, 1, slots, ()) for slots in ((0, 1), (1, 2), (2, 3))]
    >>> both = [one for pair in zip(made, launches) for one in pair]
    >>> shared_places(both, {3}).of, shared_places(both, ()).sizes
    ({1: 0, 2: 1}, (240, 160))
    """
    records = [*flattened(records)]
    uses = [_used_until(one) for one in records]
    last = {slot: position for position, slots in enumerate(uses) for slot in slots}
    checked = {one.slot for one in records if isinstance(one, CheckErrors)}
    of: dict[int, int] = {}
    sizes: list[int] = []
    free: list[tuple[int, int]] = []  # (size, place), ascending
    errors: int | None = None
    for position, one in enumerate(records):
        if isinstance(one, Allocation) and one.slot in checked:
            if errors is None:
                errors = len(sizes)
                sizes.append(0)
            of[one.slot] = errors
            sizes[errors] = max(sizes[errors], one.nbytes)
        elif isinstance(one, Allocation) and one.slot not in results:
            needed = one.nbytes
            fitting = bisect.bisect_left(free, (needed, 0))
            if free:
                _, place = free.pop(min(fitting, len(free) - 1))
            else:
                place = len(sizes)
                sizes.append(0)
            of[one.slot] = place
            sizes[place] = max(sizes[place], needed)
        else:
            for slot in uses[position]:
                if last[slot] == position and slot in of and of[slot] != errors:
                    bisect.insort(free, (sizes[of[slot]], of[slot]))
    _make_turns_even(sizes, [[of[slot] for slot in turn] for turn in _turns(records)])
    return Places(of, tuple(sizes), errors)


def _used_until(record: Record) -> Sequence[int]:
    """The slots whose memory is used, for the last time yet, by a record; by rounds also what each of them reads, and
    what takes turns.
    """
    match record:
        case RecordedLaunch(slots=slots):
            return tuple(dict.fromkeys(slots))
        case Rounds(turns=turns):
            own = {one.slot for one in flattened([record]) if isinstance(one, Allocation)}
            return sorted((slots_of([record]) - own).union(*turns))
    return ()


def _turns(records: Sequence[Record]) -> list[tuple[int, ...]]:
    return [turn for one in records if isinstance(one, Rounds) for turn in one.turns]


def _make_turns_even(sizes: list[int], turns: Sequence[Sequence[int]]) -> None:
    """Places that take turns are as large as the largest of them."""
    for _ in turns:  # as often as it may take until the last one, if each shares a place with the next
        for turn in turns:
            most = max(sizes[place] for place in turn)
            for place in turn:
                sizes[place] = most
