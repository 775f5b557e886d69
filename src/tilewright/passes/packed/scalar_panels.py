"""Packing of the scalar side into panels of a few elements for each step of the sum."""

from __future__ import annotations

from tilewright.kernel.ir import Expression, add, integer, load, multiply, operation
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.packed.reading import all_along, read_across, steps_of
from tilewright.passes.packed.writer import PackedWriter, Side

# What is read of an operand's row at a time, so that neighbouring panels share its cache lines while these are near.
READ_BYTES = 128
# Neighbours that are copied into scalar panels at once: a half of a usual row of 6 or 8, and a divisor of most sizes.
SCALAR_PIECE = 4


def pack_steps(w: PackedWriter, side: Side, count: Expression, depth: Expression) -> None:
    """Scalar panels, one step of the sum after another; several panels at once where their elements are consecutive."""
    panels, width = w.panels(count, side.width), side.width
    together = max(1, READ_BYTES // (width * side.operand.element.bytes))

    def of_panels(number: Expression, several: int) -> None:
        first = w.emit.let(multiply(number, integer(width)), "first")

        def at_once() -> None:
            _copy_steps(w, side, number, several, depth, SCALAR_PIECE)

        def one_by_one() -> None:
            if several > 1:
                w.loop("panel", number, add(number, integer(several)), lambda single: of_panels(single, 1))
            else:
                _copy_steps(w, side, number, 1, depth, 1)

        if side.runs.neighbours and (several > 1 or not side.runs.ends):
            at_once()
        else:
            w.branch(_is_consecutive(w, side, first, several), at_once, one_by_one)

    if side.runs.neighbours is False:
        return w.loop("panel", integer(0), panels, lambda number: _copy_steps(w, side, number, 1, depth, 1))
    whole = operation("floordiv", count, integer(width)) if side.runs.neighbours and side.runs.ends else panels
    groups = w.emit.let(operation("floordiv", whole, integer(together)), "groups")
    w.loop("group", integer(0), groups, lambda group: of_panels(multiply(group, integer(together)), together))
    rest = w.emit.let(multiply(groups, integer(together)), "rest")
    return w.loop("panel", rest, panels, lambda number: of_panels(number, 1))


def _is_consecutive(w: PackedWriter, side: Side, first: Expression, several: int) -> Expression:
    """In `several` panels from element `first` on, the elements of each piece are neighbours in the operand."""
    differences: Expression = integer(0)
    for panel in range(several):
        for place, lanes in _powers_of_two(side.width, SCALAR_PIECE):
            at = add(first, integer(panel * side.width + place))
            start = load(side.source_table, at)
            for i in range(1, lanes):
                found = load(side.source_table, add(at, integer(i)))
                difference = operation("xor", add(start, integer(i)), found)
                differences = w.emit.let(operation("or", differences, difference), "differences")
    return operation("eq", differences, integer(0))


def _copy_steps(w: PackedWriter, side: Side, number: Expression, several: int, depth: Expression, longest: int) -> None:
    """At each step of the sum, the elements of `several` panels from panel `number` on.

    Args:
        w, side, number, several, depth: as said.
        longest: elements that are copied at once, at the most; with 1 they need not be neighbours.
    """
    width = side.width
    first = w.emit.let(multiply(number, integer(width)), "first")
    size = multiply(side.pitch, integer(width))
    pieces = []
    for panel in range(several):
        base = w.emit.let(multiply(add(number, integer(panel)), size), "panel")
        for place, lanes in _powers_of_two(width, longest):
            at = add(first, integer(panel * width + place))
            pieces.append((w.emit.let(load(side.source_table, at), "from"), add(base, integer(place)), lanes))

    def copy(k: Expression) -> None:
        along = all_along(w, side, k)
        row = w.emit.let(multiply(k, integer(width)), "row")
        for start, target, lanes in pieces:
            copy_parts(w, side, read_across(w, side, start, along, lanes), add(target, row))

    w.loop("k", integer(0), steps_of(w, depth), copy)


def _powers_of_two(width: int, longest: int) -> list[tuple[int, int]]:
    """Place and length of the pieces of a row of a panel: 6 is 4 and 2."""
    found: list[tuple[int, int]] = []
    place = 0
    while place < width:
        lanes = min(longest, 1 << (width - place).bit_length() - 1)
        found.append((place, lanes))
        place += lanes
    return found


def copy_parts(w: PackedWriter, side: Side, value: Value, to: Expression, aligned: bool = False) -> None:
    """What is read of the operand into the panels, one panel for each part."""
    to = w.emit.let(to, "to")
    for panel, part in zip(side.panels, value, strict=True):
        w.fill(panel, to, part, aligned)
