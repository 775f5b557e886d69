"""Squares of a copy, transposed in registers: pieces of rows of the source become pieces of rows of the target.

Atoms of 3 or 5 words, say, lie one after another at the beginning of a vector, which they do not fill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.kernel.ir import Assign, Buffer, Expression, Shuffle, VectorType, add, integer
from tilewright.machine.model import power_of_two_at_least
from tilewright.passes.permute.form import PermuteForm
from tilewright.passes.permute.writer import PermuteWriter

UNIT = 16  # bytes of a vector within which instructions that interleave two vectors stay


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
    return squared(w, [w.let(w.some_words(buffer, one, w.form.columns * w.form.atom), "piece") for one in starts])


def squared(w: PermuteWriter, pieces: Sequence[Expression]) -> list[Expression]:
    """A vector for each column, from a piece of each row: pieces side by side, and squares of them transposed."""
    size = w.form.columns
    rows = [_joined(w, pieces[number::size]) for number in range(size)]
    if unit := unit_of(w.form):
        return _by_units(w, rows, unit)
    distance = 1
    while distance < size:
        for number in range(size):
            if not number & distance:
                one, two = rows[number], rows[number + distance]
                rows[number] = _mixed(w, one, two, distance, False)
                rows[number + distance] = _mixed(w, one, two, distance, True)
        distance *= 2
    return rows


def unit_of(form: PermuteForm) -> int:
    """Atoms of a unit, if squares are one wide, or as wide as a vector of two or four; else 0."""
    unit, rest = divmod(UNIT, form.atom * form.word.bytes)
    return unit if not rest and (form.columns == unit or form.columns == form.lanes in (2 * unit, 4 * unit)) else 0


def _by_units(w: PermuteWriter, rows: Sequence[Expression], unit: int) -> list[Expression]:
    """The same by instructions that interleave the lower or the upper halves of all units of two vectors, and pick
    whole units: each takes half the time of one that picks lanes anywhere."""
    groups = [units_of(w, rows[begin : begin + unit], unit) for begin in range(0, len(rows), unit)]
    found = [columns_of(w, vectors, unit) for vectors in zip(*groups, strict=True)]
    return [one for g in range(len(groups)) for one in (vectors[g] for vectors in found)]


def units_of(w: PermuteWriter, rows: Sequence[Expression], unit: int) -> list[Expression]:
    """Squares of units, transposed: of as many rows as a unit has atoms, unit g of vector j has column g * unit + j.

    Interleaving the first half of the rows with the second one as often as the unit can be halved does that.
    """
    lanes, group = w.form.lanes, list(rows)
    halves = [
        [begin + at for begin in range(first, lanes, unit) for k in range(unit // 2) for at in (k, lanes + k)]
        for first in (0, unit // 2)
    ]
    for _ in range(unit.bit_length() - 1):
        pairs = zip(group[: unit // 2], group[unit // 2 :], strict=True)
        group = [_of_atoms(w, one, two, half) for one, two in pairs for half in halves]
    return group


def columns_of(w: PermuteWriter, vectors: Sequence[Expression], unit: int) -> list[Expression]:
    """Columns g * unit + j of all rows for every g, from the vectors j of each group of rows: units change places."""
    lanes, found = w.form.lanes, list(vectors)
    even, odd = ([begin + k for begin in range(first, 2 * lanes, 2 * unit) for k in range(unit)] for first in (0, unit))
    for _ in range(len(vectors).bit_length() - 1):
        found = [_of_atoms(w, found[k], found[k + 1], half) for half in (even, odd) for k in range(0, len(found), 2)]
    return found


def _of_atoms(w: PermuteWriter, one: Expression, two: Expression, atoms: Sequence[int]) -> Expression:
    """Those atoms of two full vectors."""
    size = w.form.atom
    return _picked(w, one, two, [atom * size + word for atom in atoms for word in range(size)], "mixed")


def _joined(w: PermuteWriter, pieces: Sequence[Expression]) -> Expression:
    found, words = list(pieces), w.form.columns * w.form.atom
    while len(found) > 1:
        longer = power_of_two_at_least(words)
        lanes = [*range(words), *range(longer, longer + words)]
        words *= 2
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [_picked(w, one, two, lanes, "joined") for one, two in pairs]
    return found[0]


def _mixed(w: PermuteWriter, one: Expression, two: Expression, distance: int, upper: bool) -> Expression:
    """Rows i and i + distance of every square, after their blocks off the diagonal changed places."""
    form = w.form
    lanes: list[int] = []
    for lane in range(form.lanes):
        is_upper = bool(lane & distance)
        place = lane + (distance if upper and not is_upper else -distance if is_upper and not upper else 0)
        begin = place * form.atom + (power_of_two_at_least(form.lanes * form.atom) if is_upper else 0)
        lanes += range(begin, begin + form.atom)
    return _picked(w, one, two, lanes, "mixed")


def _picked(w: PermuteWriter, one: Expression, two: Expression, lanes: Sequence[int], hint: str) -> Expression:
    """Those lanes of two vectors, and anything in the rest of a vector."""
    longer = power_of_two_at_least(len(lanes))
    filled = (*lanes, *(0 for _ in range(longer - len(lanes))))
    found = w.let(Shuffle(one, two, filled, VectorType(w.form.word, longer)), hint)
    if w.beside is not None:  # LLVM would do all that is beside a square before it.
        found = w.emit.declare(found, hint)
        w.emit.emit(Assign(found.name, found, settled=True))
        w.beside()
    return found
