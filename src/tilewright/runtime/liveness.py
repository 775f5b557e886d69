"""When the memory of arrays can be given back while a program runs: after the last step, or launch, that uses it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence

from tilewright.ir.nodes import Literal, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import fields_of
from tilewright.runtime import host
from tilewright.runtime.recording import Allocation, CheckErrors, Record, RecordedLaunch, Release

SMALLEST_RELEASED = 1 << 12
"""Smaller arrays live until the call ends: giving them back early would cost more than it saves."""


def dead_after(block: host.Block) -> tuple[tuple[str, ...], ...]:
    """For each step of a block the names that neither a later step nor the block's results mention."""
    last: dict[str, int] = {}
    for position, step in enumerate(block.steps):
        last.update(dict.fromkeys(names_in(step), position))
    kept = set(names_in(block.results))
    dead: list[list[str]] = [[] for _ in block.steps]
    for name, position in last.items():
        if name not in kept:
            dead[position].append(name)
    return tuple(map(tuple, dead))


def names_in(node: object) -> Collection[str]:
    """Names of variables and in sizes, anywhere in a step; of an array's stride or offset in a size, the array's."""
    found: dict[str, None] = {}
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, Variable):
            found[one.name] = None
            pending += one.type.shape
        elif isinstance(one, Size):
            for name in one.names:
                found[name] = found[name.rpartition(".")[0]] = None
        elif isinstance(one, tuple):
            pending += one
        elif isinstance(one, host.Later):
            found.update(dict.fromkeys(one.names))
        elif not isinstance(one, Literal | ScalarType):
            pending += [getattr(one, name) for name in fields_of(type(one))]
    return found.keys()


def with_releases(records: Sequence[Record], results: Iterable[int]) -> list[Record]:
    """The records with a `Release` after the last launch that uses each large array that is no result.

    Memory that is released and would be allocated anew is kept instead, that of small arrays, too; and what is checked
    at once is recorded at one place.
    """
    records, kept = _with_shared_checks(records), set(results)
    own = {one.slot: one.nbytes for one in records if isinstance(one, Allocation) and one.slot not in kept}
    last: dict[int, int] = {}
    for position, one in enumerate(records):
        if isinstance(one, RecordedLaunch | CheckErrors):
            last.update(dict.fromkeys(one.slots if isinstance(one, RecordedLaunch) else (one.slot,), position))
    ending: dict[int, list[int]] = {}
    for slot in sorted(own.keys() & last.keys()):
        ending.setdefault(last[slot], []).append(slot)
    released: list[Record] = []
    for position, one in enumerate(records):
        released.append(one)
        released += map(Release, ending.get(position, ()))
    reused = _with_reuse(released, own)
    return [one for one in reused if not isinstance(one, Release) or own[one.slot] >= SMALLEST_RELEASED]


def _with_shared_checks(records: Sequence[Record]) -> list[Record]:
    """The records where launches whose checks are alike and are read together, such as those of the rounds of a loop,
    have one record of errors: any of theirs is the error then.
    """
    result: list[Record] = []
    for launches, checks in _epochs(records):
        fresh = [one.slot for one in launches if isinstance(one, Allocation) and one.zeros]
        by_slot = {one.slot: one.checks for one in checks}
        first: dict[tuple[host.CheckedIndex, ...], int] = {}
        shared = {slot: first.setdefault(by_slot[slot], slot) for slot in fresh if slot in by_slot}
        others = {slot for slot, one in shared.items() if slot != one}
        for one in (*launches, *checks):
            if isinstance(one, RecordedLaunch):
                one = dataclasses.replace(one, slots=tuple(shared.get(slot, slot) for slot in one.slots))
            if not (isinstance(one, Allocation | CheckErrors) and one.slot in others):
                result.append(one)
    return result


def _epochs(records: Sequence[Record]) -> Iterator[tuple[list[Record], list[CheckErrors]]]:
    """Records up to those that look at errors, and these."""
    launches: list[Record] = []
    checks: list[CheckErrors] = []
    for one in records:
        if isinstance(one, CheckErrors):
            checks.append(one)
        else:
            if checks:
                yield launches, checks
                launches, checks = [], []
            launches.append(one)
    yield launches, checks


def _with_reuse(records: Sequence[Record], reusable: Collection[int]) -> list[Record]:
    """The records where an array takes over the memory of one that was released and is as large, such as the one of
    the last but one round of a loop, instead of fresh memory.
    """
    sizes = {one.slot: one.nbytes for one in records if isinstance(one, Allocation)}
    free: dict[int, list[tuple[int, int]]] = {}  # size to (slot, place of its release)
    taken: dict[int, int] = {}
    result: list[Record | None] = []
    for one in records:
        match one:
            case Allocation(slot, _, _, zeros) if slot in reusable and not zeros and free.get(sizes[slot]):
                taken[slot], release = free[sizes[slot]].pop()
                result[release] = None
            case Allocation():
                result.append(one)
            case Release(slot):
                slot = taken.get(slot, slot)
                free.setdefault(sizes[slot], []).append((slot, len(result)))
                result.append(Release(slot))
            case RecordedLaunch(slots=slots):
                result.append(dataclasses.replace(one, slots=tuple(taken.get(slot, slot) for slot in slots)))
            case CheckErrors(slot=slot):
                result.append(dataclasses.replace(one, slot=taken.get(slot, slot)))
    return [one for one in result if one is not None]
