"""Results past the caches where the output begins within a cache line: whole lines of two vectors that are neighbours.

    line = (last h elements of a vector, all but the last h of the next one in memory)

where the output begins h elements behind a line. NumPy's large arrays begin 16 bytes behind one, so that none of their
vectors is a line. Vectors form *chains*, each of which follows the one before in memory: along the rows of register
tiles, or, where rows are short and follow each other, from row to row. The last vectors of a tile are held in scratch
memory for the next tile. Only where a chain begins and ends lines are written in part, through the caches, and so they
are asked for while the tile before is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, Prefetch, Store, add, integer, load, multiply, operation
from tilewright.passes.packed.blocks import LINE
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.runs import run_length
from tilewright.passes.packed.waiting import Waiting

Tile: TypeAlias = Sequence[Sequence[Expression]]
"""A register tile: tile[vector][row]."""
LEAST_RUN = 4
"""Vectors of a run of the output that are worth a chain. With 16 terms on a Granite Rapids runs of 16 in f32 and 32 in
f64 are 1.6 and 1.9 times as fast as through the caches, of 7 and 14 1.2 and 1.4, of 3 the same, of 2 slower.
"""


def chain_of(form: PackedForm) -> Chain | None:
    """How the vectors of a form's results form chains; None if they do not, or are no lines in an aligned output."""
    out = form.contraction.out.element
    is_line = form.nontemporal and form.in_whole_lines and form.lanes * out.bytes == LINE
    if not (is_line and out.is_float and out == form.accumulator and form.scalar_dimensions):
        return None
    inner, rows = form.vector_dimensions[-1], form.scalar_dimensions[-1]
    begins = form.vector_tile, form.vector_block, form.vector_chunk
    if rows.size > 1 and rows.stride_out == inner.size and all(one % inner.size == 0 for one in begins):
        return Chain(inner.size // form.lanes)
    run = run_length([(one.size, one.stride_out) for one in form.vector_dimensions])
    return Chain() if run >= LEAST_RUN * form.lanes else None


@dataclass(frozen=True)
class Chain:
    """Chains go along the rows of register tiles; or from each row of `row` vectors to the next, unless that is 0."""

    row: int = 0


@dataclass(frozen=True)
class _Link:
    """A vector of a tile, (vector, row), and the one before it in its chain: of this tile, or held in that slot.

    `at`, `before`: where they begin in the output.
    """

    value: tuple[int, int]
    previous: tuple[int, int] | int
    at: Expression
    before: Expression


@dataclass(frozen=True)
class _Joint:
    """Links of which each vector follows the one before in memory under the same condition; None if it always does."""

    follows: Expression | None
    links: list[_Link] = field(default_factory=list)


class Chains:
    """The chains that go through one register tile."""

    def __init__(self, place: Waiting, chain: Chain, within: Expression) -> None:
        """Of a tile whose place is given, in an output that begins `within` so many elements behind a line."""
        self._place, self._row, self._within = place, chain.row, within
        self._w, self._form = place.w, place.w.form
        self._emit, self._lanes = place.w.emit, place.w.form.lanes
        self._slots = range(self._form.vectors // self._row if self._row else self._form.rows)

    def ask(self) -> None:
        """Ask for the lines that the next tile writes in part."""
        ahead = self._form.rows if self._form.scalar_inner else 0
        for joint in self._joints(self._starts(), self._bases(ahead), ahead):
            if joint.follows is not None:
                self._emit.when(operation("not", joint.follows), partial(self._ask, joint.links))

    def _ask(self, links: Sequence[_Link]) -> None:
        for one in links:
            for at in (one.at, add(one.before, integer(self._lanes - 1))):
                self._emit.emit(Prefetch(self._place.out, self._emit.let(at, "asked")))

    def write(self, tile: Tile) -> None:
        """The tile's vectors to the output."""
        emit, w = self._emit, self._w
        held = w.workspace("held", self._form.accumulator, self._capacity())
        slots = [self._slot(number) for number in self._slots]
        before = [emit.let(load(held, at, self._lanes, aligned=True), "held") for at in slots]
        ending = emit.let(kernel.FirstLanes(self._within, kernel.VectorType(BOOL, self._lanes)), "ending")
        starts, bases = self._starts(), self._bases()

        def value(of: tuple[int, int] | int) -> Expression:
            return before[of] if isinstance(of, int) else tile[of[0]][of[1]]

        def whole(links: Sequence[_Link]) -> None:
            for one in links:
                self._write_line(value(one.previous), value(one.value), one.at)

        def in_parts(links: Sequence[_Link]) -> None:
            self._write_parts(links, value, ending)

        for one in self._joints(starts, bases):
            if one.follows is None:
                whole(one.links)
            else:
                w.branch(one.follows, partial(whole, one.links), partial(in_parts, one.links))
        last = [(slot, self._last_of(slot)) for slot in self._slots]

        def keep() -> None:
            for slot, (i, j) in last:
                emit.emit(Store(held, slots[slot], tile[i][j], aligned=True))

        def finish() -> None:
            for _, (i, j) in last:
                self._write_end(tile[i][j], add(bases[j], starts[i]), ending)

        w.branch(self._goes_on(), keep, finish)

    def _write_parts(
        self, links: Sequence[_Link], value: Callable[[tuple[int, int] | int], Expression], ending: Expression
    ) -> None:
        """The ends of the chains that end before these vectors, and the beginnings of those that begin with them."""

        def ends() -> None:
            for one in links:
                self._write_end(value(one.previous), one.before, ending)

        if any(isinstance(one.previous, int) for one in links):  # none is held for a block's first tile
            self._emit.when(operation("gt", self._first, integer(0)), ends)
        else:
            ends()
        for one in links:
            self._write_line(value(one.value), value(one.value), one.at, operation("not", ending))

    # --- which vector follows which

    @property
    def _first(self) -> Expression:
        """The first element of the tile, of the side along which chains go on in the next one."""
        return self._place.scalar_first if self._row else self._place.vector_first

    def _goes_on(self) -> Expression:
        """Whether there is a next tile, and it is full."""
        side, width = (1, self._place.scalar.width) if self._row else (0, self._place.vector.width)
        return operation("ge", operation("sub", self._place.counts[side], self._first), integer(2 * width))

    def _last_of(self, slot: int) -> tuple[int, int]:
        """The vector of the tile that is held in a slot."""
        return ((slot + 1) * self._row - 1, self._form.rows - 1) if self._row else (self._form.vectors - 1, slot)

    def _joints(self, starts: Sequence[Expression], bases: Sequence[Expression], ahead: int = 0) -> Iterator[_Joint]:
        """Those of a tile whose vectors and rows begin there: of this one, or of the one so many rows ahead."""
        return self._from_row_to_row(starts, bases, ahead) if self._row else self._along_rows(starts, bases)

    def _along_rows(self, starts: Sequence[Expression], bases: Sequence[Expression]) -> Iterator[_Joint]:
        emit, first = self._emit, self._place.vector_first
        for i, start in enumerate(starts):
            number = add(first, integer(i * self._lanes - 1))
            number = number if i else operation("max", number, integer(0))
            ended = emit.let(load(self._place.vector.out_table, number), "ended")
            joint = _Joint(emit.let(operation("eq", start, add(ended, integer(1))), "follows"))
            for j, base in enumerate(bases):
                before = add(base, add(ended, integer(1 - self._lanes)))
                joint.links.append(_Link((i, j), (i - 1, j) if i else j, add(base, start), before))
            yield joint

    def _from_row_to_row(
        self, starts: Sequence[Expression], bases: Sequence[Expression], ahead: int
    ) -> Iterator[_Joint]:
        emit, row = self._emit, self._row
        others = [self._base(ahead - 1), *bases[:-1]]
        for j, (base, other) in enumerate(zip(bases, others, strict=True)):
            joint = _Joint(emit.let(operation("eq", base, add(other, integer(row * self._lanes))), "follows"))
            rest = _Joint(None)
            for slot in self._slots:
                for i in range(slot * row, (slot + 1) * row):
                    last = (slot + 1) * row - 1
                    at = add(base, starts[i])
                    if i > slot * row:
                        rest.links.append(_Link((i, j), (i - 1, j), at, add(base, starts[i - 1])))
                    else:
                        previous = (last, j - 1) if j else slot
                        joint.links.append(_Link((i, j), previous, at, add(other, starts[last])))
            yield joint
            yield rest

    def _starts(self) -> list[Expression]:
        """Where the vectors of the tile begin in a row."""
        table, first = self._place.vector.out_table, self._place.vector_first
        numbers = range(self._form.vectors)
        return [self._emit.let(load(table, add(first, integer(i * self._lanes))), "out_at") for i in numbers]

    def _bases(self, ahead: int = 0) -> list[Expression]:
        return [self._base(ahead + j) for j in range(self._form.rows)]

    def _base(self, number: int) -> Expression:
        """Where a row begins: of this tile, the one before it, or of the next one, as far as there is one."""
        place = self._place
        row = add(place.scalar_first, integer(number))
        if number < 0:
            row = operation("max", row, integer(0))
        elif number >= self._form.rows:
            row = operation("min", row, operation("sub", place.counts[1], integer(1)))
        return self._emit.let(add(place.bases.out, load(place.scalar.out_table, row)), "out_row")

    def _slot(self, number: int) -> Expression:
        """Where the last vector of a chain is held: in order of the vectors of a block, or of its rows."""
        place = self._place
        if self._row:
            return add(place.vector_first, integer(((number + 1) * self._row - 1) * self._lanes))
        return multiply(add(place.scalar_first, integer(number)), integer(self._lanes))

    def _capacity(self) -> int:
        form = self._form
        return form.vector_block + form.vector_tile if self._row else (form.scalar_block + form.rows) * form.lanes

    # --- vectors in memory

    def _behind(self) -> Expression:
        """Elements of a vector before the line in which it ends."""
        return self._emit.let(operation("sub", integer(self._lanes), self._within), "behind")

    def _write_line(
        self, previous: Expression, value: Expression, at: Expression, mask: Expression | None = None
    ) -> None:
        """The line in which a vector begins that goes to `at`: whole, past the caches, or in part."""
        kind = kernel.VectorType(self._form.accumulator, self._lanes)
        line = self._emit.let(kernel.Window(previous, value, self._behind(), kind), "line")
        start = self._emit.let(operation("sub", at, self._within), "line_at")
        mask = None if mask is None else self._emit.let(mask, "part")
        self._emit.emit(Store(self._place.out, start, line, aligned=True, nontemporal=mask is None, mask=mask))

    def _write_end(self, value: Expression, at: Expression, ending: Expression) -> None:
        """What of a vector that goes to `at` lies in the next line."""
        self._write_line(value, value, add(at, integer(self._lanes)), ending)
