"""What native entries are made of (`cpu_entry`): the forms of arrays, and steps beside launches.

Calls of plans from the disk that are not repeated do without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tilewright.runtime.flat_plan import EntryLaunch, FlatPlan, span_of


class ArrayForm(NamedTuple):
    """What a flat plan demands of an array.

    Attributes:
        dtype: the very object that the array's `dtype` is.
        shape: in elements.
        strides: in bytes.
        mask: the bits that must be 0 in the address.
        span: the bytes that it covers from its address on: [low, high).
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    mask: int
    span: tuple[int, int]


def forms_of(plan: FlatPlan, arrays: Sequence[np.ndarray[Any, Any]]) -> list[ArrayForm]:
    """The forms of the operands and the result for which a flat plan was made."""
    return [
        ArrayForm(one.dtype, one.shape, one.strides, mask, span_of(one))
        for one, mask in zip(arrays, plan.masks, strict=True)
    ]


class EntryCheck(NamedTuple):
    """An error record to look at: the number of its array, and its bytes."""

    record: int
    nbytes: int


class EntryRounds(NamedTuple):
    """Steps that are repeated.

    Attributes:
        counter: the number of the value that is the number of the round, from `start` on.
        stop: the last round is before it.
        counters: other values that count: their numbers, what they begin with, and by how much they grow in a round.
        asked: what is done before each round to learn if there is to be one.
        cell: the number of the array, and the byte in it, that says so then; None if that is not asked.
        steps: of a round.
        turns: numbers of arrays, each of which is what the next one was after a round, and the last what the first was.
    """

    counter: int
    start: int
    stop: int
    counters: tuple[tuple[int, int, int], ...]
    asked: tuple[EntryStep, ...]
    cell: tuple[int, int] | None
    steps: tuple[EntryStep, ...]
    turns: tuple[tuple[int, ...], ...]


EntryStep: TypeAlias = EntryLaunch | EntryCheck | EntryRounds


def launches_in(steps: Sequence[EntryStep]) -> Iterator[EntryLaunch]:
    """The launches among steps, also those of rounds."""
    for one in steps:
        if isinstance(one, EntryLaunch):
            yield one
        elif isinstance(one, EntryRounds):
            yield from launches_in((*one.asked, *one.steps))


def renumbered(steps: Sequence[EntryStep], numbers: Mapping[int, int]) -> tuple[EntryStep, ...]:
    """The steps with other numbers of values.

    >>> renumbered([EntryCheck(2, 24)], {2: 5})
    (EntryCheck(record=5, nbytes=24),)
    """
    found: list[EntryStep] = []
    for one in steps:
        match one:
            case EntryLaunch(buffers=buffers, given=given):
                values = tuple((place, numbers[value]) for place, value in given)
                found.append(one._replace(buffers=tuple(numbers[value] for value in buffers), given=values))
            case EntryCheck(record=record):
                found.append(one._replace(record=numbers[record]))
            case EntryRounds():
                cell = None if one.cell is None else (numbers[one.cell[0]], one.cell[1])
                counters = tuple((numbers[value], first, step) for value, first, step in one.counters)
                turns = tuple(tuple(numbers[value] for value in turn) for turn in one.turns)
                asked, repeated = (renumbered(part, numbers) for part in (one.asked, one.steps))
                found.append(
                    one._replace(
                        counter=numbers[one.counter],
                        counters=counters,
                        asked=asked,
                        cell=cell,
                        steps=repeated,
                        turns=turns,
                    )
                )
    return tuple(found)
