"""What a user wrote where an array is indexed, and how errors of indices out of range tell it.

Nodes that index carry it as their `line`: text, which passes need not read, and which is kept on the disk. It is the
file and line alone where the rest is as the node has it. Else there follow, each after a tab, the slice if one is
written, and for each index of the node an entry `array:dimension:constant`: of the array that the user knows, and with
the number below 0 if one is written, or `u64` where the index has that type and is told without a sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

UNSIGNED = "u64"
"""In place of a constant: the index is a u64, of which numbers beyond i64 arrive as ones below 0."""

_CUT_OFF = "a slice is cut off where its bounds and the size are numbers; else write tw.minimum and tw.maximum of them"


def written_index(
    line: str, array: str, dimensions: Sequence[int], constants: Sequence[int | str | None] = (), cut: str = ""
) -> str:
    """The `line` of a node whose indices go to these dimensions of an array.

    Args:
        line: file and line.
        array: the name by which the user knows the array.
        dimensions: for each index of the node the array's dimension.
        constants: for each index the number below 0 that is written, if there is one, or `UNSIGNED`.
        cut: the slice as it is written.

    >>> print(outside_text(written_index("a.py:3", "x", [1], [-6]), "t", 0, -1, 5))
    index -6 of x is out of range in dimension 1 of extent 5
    """
    told = constants or [None] * len(dimensions)
    entries = [_Entry(array, d, "" if one is None else str(one)) for d, one in zip(dimensions, told, strict=True)]
    return _packed(line, entries, cut)


def line_of(written: str) -> str:
    """The file and line of a node's `line`."""
    return written.partition("\t")[0]


def outside_text(written: str, array: str, dimension: int, index: int, extent: int) -> str:
    """What is said of an index out of range.

    Args:
        written: the node's `line`.
        array: the node's array, which is named unless the line has a name.
        dimension: the number of the index in the node.
        index: its value.
        extent: how many elements there are.
    """
    _, entries, cut = _unpacked(written)
    entry = entries[dimension] if dimension < len(entries) else _Entry(array, dimension, "")
    told = index % 2**64 if entry.constant == UNSIGNED else entry.constant or index
    message = f"index {told} of {entry.array} is out of range in dimension {entry.dimension} of extent {extent}"
    return f"{message}: {cut} goes beyond; {_CUT_OFF}" if cut else message


# --- what becomes of it where passes make one node of several ---------------------------------------------------------


def chosen_indices(written: str, order: Sequence[int]) -> str:
    """The `line` of a node that has some of the indices, in this order.

    >>> print(outside_text(chosen_indices(written_index("a.py:3", "x", [1, 2]), [1]), "t", 0, 7, 5))
    index 7 of x is out of range in dimension 2 of extent 5
    """
    line, entries, cut = _unpacked(written)
    return _packed(line, [entries[place] for place in order if place < len(entries)], cut)


def joined_indices(first: str, array: str, numbers: tuple[int, int], second: str) -> str:
    """The `line` of array[is..., js...], of those of a = array[is...] and of a[js...] with so many indices.

    >>> both = joined_indices(written_index("a.py:3", "x", [1]), "t", (1, 1), "a.py:4")
    >>> print(line_of(both), "has", outside_text(both, "t", 1, 7, 5))
    a.py:3 and a.py:4 has index 7 of x is out of range in dimension 0 of extent 5
    """
    entries, others, line = _unpacked(first)[1], _unpacked(second)[1], joined_lines(first, second)
    if not entries and not others:
        return line
    entries = entries or [_Entry(array, place, "") for place in range(numbers[0])]
    others = others or [_Entry("", place, "") for place in range(numbers[1])]
    name, taken = entries[0].array, {one.dimension for one in entries}
    most = len(taken) + max((one.dimension for one in others), default=0)
    remaining = [place for place in range(most + 1) if place not in taken]
    # What is told of the second is of `array`, or of a, which has its remaining dimensions.
    rest = [one if one.array == name else _Entry(name, remaining[one.dimension], one.constant) for one in others]
    return _packed(line, [*entries, *rest])


def indices_of_slice(cut: str, indices: str, count: int) -> str:
    """The `line` of (slice a)[is...] with so many indices as one of a, of the lines of both nodes.

    >>> both = indices_of_slice(written_index("a.py:3", "x", [0], cut="x[:1]"), "a.py:4", 1)
    >>> print(line_of(both), "has", outside_text(both, "t", 0, 0, 0).partition("; ")[0])
    a.py:3 and a.py:4 has index 0 of x is out of range in dimension 0 of extent 0: x[:1] goes beyond
    """
    _, entries, text = _unpacked(cut)
    return _packed(joined_lines(cut, indices), entries[:count], text)


def joined_lines(first: str, second: str) -> str:
    """The `line` of what replaces two nodes and was written in both places, or in one of them; of the indices nothing
    is told but what the node has.
    """
    return " and ".join(dict.fromkeys(line for line in map(line_of, (first, second)) if line))


class _Entry(NamedTuple):
    """What is written for one index."""

    array: str
    dimension: int
    constant: str


def _packed(line: str, entries: Sequence[_Entry], cut: str = "") -> str:
    told = (f"{one.array}:{one.dimension}:{one.constant}" for one in entries)
    return "\t".join((line, cut, *told)) if entries else line


def _unpacked(written: str) -> tuple[str, list[_Entry], str]:
    line, cut, *told = written.split("\t") if "\t" in written else (written, "")
    parts = (one.rsplit(":", 2) for one in told)
    return line, [_Entry(array, int(dimension), constant) for array, dimension, constant in parts], cut
