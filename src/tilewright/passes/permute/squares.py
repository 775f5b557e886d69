"""Squares of a copy, transposed in registers: pieces of rows of the source become pieces of rows of the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.kernel.ir import Buffer, Expression, Shuffle, VectorType, add, integer, load
from tilewright.passes.permute.writer import PermuteWriter


def square_columns(w: PermuteWriter, buffer: Buffer, starts: Sequence[Expression]) -> Iterator[tuple[int, Expression]]:
    """(c, a vector of the atoms c of every row) for all `width` columns, where the rows begin at `starts`
    of `buffer`.

    The last square reaches back where the width is not a multiple: some columns come twice.
    """
    form = w.form
    for begin in range(0, form.width, form.columns):
        c = min(begin, form.width - form.columns)
        yield from enumerate(_square(w, buffer, [add(one, integer(c * form.atom)) for one in starts]), c)


def _square(w: PermuteWriter, buffer: Buffer, starts: Sequence[Expression]) -> list[Expression]:
    return squared(w, [w.let(load(buffer, one, w.form.columns * w.form.atom), "piece") for one in starts])


def squared(w: PermuteWriter, pieces: Sequence[Expression]) -> list[Expression]:
    """A vector for each column, from a piece of each row: pieces side by side, and squares of them transposed."""
    size = w.form.columns
    rows = [_joined(w, pieces[number::size]) for number in range(size)]
    distance = 1
    while distance < size:
        for number in range(size):
            if not number & distance:
                one, two = rows[number], rows[number + distance]
                rows[number] = _mixed(w, one, two, distance, False)
                rows[number + distance] = _mixed(w, one, two, distance, True)
        distance *= 2
    return rows


def _joined(w: PermuteWriter, pieces: Sequence[Expression]) -> Expression:
    found = list(pieces)
    while len(found) > 1:
        lanes = 2 * w.form.columns * w.form.atom * len(pieces) // len(found)
        kind = VectorType(w.form.word, lanes)
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [w.let(Shuffle(one, two, tuple(range(lanes)), kind), "joined") for one, two in pairs]
    return found[0]


def _mixed(w: PermuteWriter, one: Expression, two: Expression, distance: int, upper: bool) -> Expression:
    """Rows i and i + distance of every square, after their blocks off the diagonal changed places."""
    form = w.form
    lanes: list[int] = []
    for lane in range(form.lanes):
        is_upper = bool(lane & distance)
        place = lane + (distance if upper and not is_upper else -distance if is_upper and not upper else 0)
        begin = (place + (form.lanes if is_upper else 0)) * form.atom
        lanes += range(begin, begin + form.atom)
    return w.let(Shuffle(one, two, tuple(lanes), VectorType(form.word, form.lanes * form.atom)), "mixed")
