"""Results past the caches where the output begins within a cache line: whole lines of two vectors that are neighbours.

    line = (last h elements of a vector, all but the last h of the next one in memory)

where the output begins h elements behind a line. NumPy's large arrays begin 16 bytes behind one, so that none of their
vectors is a line. Vectors form *chains*, each of which follows the one before in memory: along the rows of register
tiles, or, where rows are short and follow each other, from row to row. The last vectors of a tile are held in scratch
memory for the next tile. Only where a chain begins and ends lines are written in part, through the caches, so that they
are asked for ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Expression, Prefetch, Store, add, integer, load, multiply, operation
from tilewright.passes.packed.blocks import BLOCK, LINE
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.packed.runs import run_length
from tilewright.passes.packed.waiting import Waiting

Tile: TypeAlias = Sequence[Sequence[Expression]]
"""A register tile: tile[vector][row]."""
LEAST_CHAIN = 4
"""Vectors of a run of the output that are worth a chain. With 16 terms on a Granite Rapids runs of 16 in f32 and 32 in
f64 are 1.6 and 1.9 times as fast as through the caches, of 7 and 14 1.2 and 1.4, of 3 the same, of 2 slower.
"""


def chain_of(form: PackedForm) -> Chain | None:
    """How the vectors of a form's results form chains; None if they do not, or are no lines in an aligned output."""
    out = form.contraction.out.element
    in_lines = form.nontemporal and (form.in_whole_lines or form.in_halves) and form.lanes * out.bytes == LINE
    as_summed = out.is_float and out == form.accumulator and form.contraction.epilogue is None
    if not (in_lines and as_summed and form.scalar_dimensions):
        return None
    inner, rows = form.vector_dimensions[-1], form.scalar_dimensions[-1]
    begins = form.vector_tile, form.vector_block, form.vector_chunk
    if rows.size > 1 and rows.stride_out == inner.size and all(one % inner.size == 0 for one in begins):
        together = 1 if form.in_whole_lines else form.rows
        return Chain(together * inner.size // form.lanes, together)
    if not form.in_whole_lines:
        return None
    run = run_length([(one.size, one.stride_out) for one in form.vector_dimensions])
    return Chain() if run >= LEAST_CHAIN * form.lanes else None


@dataclass(frozen=True)
class Chain:
    """Chains go along the rows of register tiles; or from row to row, unless `vectors_per_row` is 0. `together` of a
    tile's rows count as one of these: rows that are no whole vectors, which halves of vectors fill.
    """

    vectors_per_row: int = 0
    together: int = 1


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
    links: tuple[_Link, ...]


class Chains:
    """The chains that go through one register tile."""

    def __init__(self, place: Waiting, chain: Chain) -> None:
        """Of the tile that goes there."""
        self._place, self._row, self._together = place, chain.vectors_per_row, chain.together
        self._w, self._form = place.w, place.w.form
        self._emit, self._lanes = place.w.emit, place.w.form.lanes
        self._inner = self._form.vector_dimensions[-1].size
        self._rows = self._form.rows // self._together
        self._slots = range(self._form.vector_tile // self._inner if self._row else self._form.rows)

    def ask(self) -> None:
        """Ask for lines that are written in part: of the next tile where that has the next rows, else of this one."""
        ahead = self._form.rows if self._form.scalar_inner else 0
        for joint in self._joints(self._starts(), self._bases(ahead), ahead):
            if joint.follows is not None:
                self._emit.when(operation("not", joint.follows), partial(self._ask, joint.links))

    def _ask(self, links: Sequence[_Link]) -> None:
        for one in links:
            for at in (one.at, add(one.before, integer(self._lanes - 1))):
                self._emit.emit(Prefetch(self._place.out, self._emit.let(at, "asked")))

    def write(self, tile: Tile, within: Expression) -> None:
        """The tile's vectors to the output, which begins so many elements within a line."""
        emit, w = self._emit, self._w
        lines = _Lines(self._place, within, kernel.VectorType(self._form.accumulator, self._lanes))
        tile = tile if self._together == 1 else self._of_halves(tile)
        held = w.workspace("held", self._form.accumulator, self._capacity())
        slots = [self._slot(number) for number in self._slots]
        before = [emit.let(load(held, at, self._lanes, aligned=True), "held") for at in slots]
        starts, bases = self._starts(), self._bases()

        def value(of: tuple[int, int] | int) -> Expression:
            return before[of] if isinstance(of, int) else tile[of[0]][of[1]]

        def whole(links: Sequence[_Link]) -> None:
            for one in links:
                lines.write(value(one.previous), value(one.value), one.at)

        def in_parts(links: Sequence[_Link]) -> None:
            self._write_parts(lines, links, value)

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
                lines.write_end(tile[i][j], add(bases[j], starts[i]))

        w.branch(self._goes_on(), keep, finish)

    def _write_parts(
        self, lines: _Lines, links: Sequence[_Link], value: Callable[[tuple[int, int] | int], Expression]
    ) -> None:
        """The ends of the chains that end before these vectors, and the beginnings of those that begin with them."""

        def ends() -> None:
            for one in links:
                lines.write_end(value(one.previous), one.before)

        if any(isinstance(one.previous, int) for one in links):  # none is held for a block's first tile
            self._emit.when(operation("gt", self._first, integer(0)), ends)
        else:
            ends()
        for one in links:
            lines.write_beginning(value(one.value), one.at)

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
        return ((slot + 1) * self._row - 1, self._rows - 1) if self._row else (self._form.vectors - 1, slot)

    def _joints(self, starts: Sequence[Expression], bases: Sequence[Expression], ahead: int = 0) -> Iterator[_Joint]:
        """Those of a tile whose vectors and rows begin there: of this one, or of the one so many rows ahead."""
        return self._from_row_to_row(starts, bases, ahead) if self._row else self._along_rows(starts, bases)

    def _along_rows(self, starts: Sequence[Expression], bases: Sequence[Expression]) -> Iterator[_Joint]:
        emit, first = self._emit, self._place.vector_first
        for i, start in enumerate(starts):
            number = add(first, integer(i * self._lanes - 1))
            number = number if i else operation("max", number, integer(0))
            ended = emit.let(load(self._place.vector.out_table, number), "ended")
            follows = emit.let(operation("eq", start, add(ended, integer(1))), "follows")
            last = add(ended, integer(1 - self._lanes))
            links = [
                _Link((i, j), (i - 1, j) if i else j, add(base, start), add(base, last)) for j, base in enumerate(bases)
            ]
            yield _Joint(follows, tuple(links))

    def _from_row_to_row(
        self, starts: Sequence[Expression], bases: Sequence[Expression], ahead: int
    ) -> Iterator[_Joint]:
        emit, row = self._emit, self._row
        others = [self._base(ahead - self._together), *bases[:-1]]
        for j, (base, other) in enumerate(zip(bases, others, strict=True)):
            follows = emit.let(operation("eq", base, add(other, integer(row * self._lanes))), "follows")
            firsts, others_of_row = [], []
            for slot in self._slots:
                first, last = slot * row, (slot + 1) * row - 1
                firsts.append(
                    _Link((first, j), (last, j - 1) if j else slot, add(base, starts[first]), add(other, starts[last]))
                )
                for i in range(first + 1, last + 1):
                    others_of_row.append(_Link((i, j), (i - 1, j), add(base, starts[i]), add(base, starts[i - 1])))
            yield _Joint(follows, tuple(firsts))
            yield _Joint(None, tuple(others_of_row))

    def _starts(self) -> list[Expression]:
        """Where the vectors of the tile begin in a row."""
        table, first = self._place.vector.out_table, self._place.vector_first
        if not self._row:
            numbers = range(self._form.vectors)
            return [self._emit.let(load(table, add(first, integer(i * self._lanes))), "out_at") for i in numbers]
        starts = [
            self._emit.let(load(table, add(first, integer(slot * self._inner))), "out_at") for slot in self._slots
        ]
        return [add(start, integer(i * self._lanes)) for start in starts for i in range(self._row)]

    def _bases(self, ahead: int = 0) -> list[Expression]:
        return [self._base(ahead + j * self._together) for j in range(self._rows)]

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
        """Where the last vector of a chain is held: in order of the runs of a block's vectors, or of its rows."""
        place = self._place
        first = operation("floordiv", place.vector_first, integer(self._inner)) if self._row else place.scalar_first
        return multiply(add(first, integer(number)), integer(self._lanes))

    def _capacity(self) -> int:
        """Elements of that memory; the same for blocks of all sizes, so that shapes share kernels."""
        form = self._form
        runs = (BLOCK + form.vector_tile) // self._inner if self._row else BLOCK + form.rows
        return runs * self._lanes

    # --- rows of halves

    def _of_halves(self, tile: Tile) -> Tile:
        """The vectors of the rows that are together, each of two halves that are neighbours in memory."""
        half, halves = self._lanes // 2, 2 * self._inner // self._lanes
        kind = kernel.VectorType(self._form.accumulator, self._lanes)
        found: list[list[Expression]] = []
        for slot in self._slots:
            order = [(slot * halves + number, j) for j in range(self._together) for number in range(halves)]
            for (one, j), (other, k) in zip(order[::2], order[1::2], strict=True):
                picks = [one % 2 * half + lane for lane in range(half)]
                picks += [self._lanes + other % 2 * half + lane for lane in range(half)]
                joined = kernel.Shuffle(tile[one // 2][j], tile[other // 2][k], tuple(picks), kind)
                found.append([self._emit.let(joined, "joined")])
        return found


class _Lines:
    """The lines of an output that begins `within` so many elements in one, written from vectors of type `kind`."""

    def __init__(self, place: Waiting, within: Expression, kind: kernel.VectorType) -> None:
        self._emit, self._out, self._within, self._kind = place.w.emit, place.out, within, kind
        self._before = self._emit.let(operation("sub", integer(kind.lanes), within), "before_line")
        mask = kernel.FirstLanes(within, kernel.VectorType(BOOL, kind.lanes))
        self._ending = self._emit.let(mask, "ending")
        self._beginning = self._emit.let(operation("not", self._ending), "beginning")

    def write(self, previous: Expression, value: Expression, at: Expression, mask: Expression | None = None) -> None:
        """The line in which a vector begins that goes to `at`: whole, past the caches, or in part."""
        line = self._emit.let(kernel.Window(previous, value, self._before, self._kind), "line")
        start = self._emit.let(operation("sub", at, self._within), "line_at")
        self._emit.emit(Store(self._out, start, line, aligned=True, nontemporal=mask is None, mask=mask))

    def write_beginning(self, value: Expression, at: Expression) -> None:
        """What of a vector that goes to `at` lies in the line where it begins."""
        self.write(value, value, at, self._beginning)

    def write_end(self, value: Expression, at: Expression) -> None:
        """What of it lies in the next line."""
        self.write(value, value, add(at, integer(self._kind.lanes)), self._ending)
