"""How many vectors and rows a register tile of the packed form has: a model of the time of one step of its sum."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine
from tilewright.passes.packed.blocks import LINE, PAGE, consecutive
from tilewright.passes.packed.form import SideDimension

MOST_VECTORS = 8
MOST_JOINED = 3  # vectors of a row; more leave no registers for several rows
ROWS = (1, 2, 4, 5, 6, 8, 12, 24)
BROKEN_TILE = 50.0  # cycles more to store a register tile that ends in the middle of a run which is no whole vectors
BROKEN_ELEMENT = 1.5  # cycles more to pack an element of the scalar side where panels end in the middle of runs


@dataclass(frozen=True)
class Run:
    """Elements of the vector side that lie side by side in the output.

    Attributes:
        elements: how many.
        rows: of the scalar side, whose runs follow each other, that are whole cache lines together; 1 if they do not.
        of: rows that follow each other so.
    """

    elements: int
    rows: int
    of: int

    def is_broken(self, width: int, rows: int, lanes: int) -> bool:
        """Whether register tiles, of runs that are no whole vectors, end in the middle of one, or of a line."""
        return self.elements % lanes > 0 and (width % self.elements > 0 or rows % self.rows > 0 or self.of % rows > 0)


@dataclass(frozen=True)
class PastCaches:
    """Results that go past the caches, in vectors that are parts of cache lines.

    Attributes:
        vector_bytes: of a vector of results.
        apart: bytes from a row of a register tile to the next one.
        run: bytes of a row that follow each other.
        rows: whose runs follow each other, that are whole lines together; 1 if they do not.
        of: rows that follow each other so.
    """

    vector_bytes: int
    apart: int
    run: int
    rows: int = 1
    of: int = 0

    @property
    def in_parts(self) -> bool:
        """Whether a vector is a part of a cache line."""
        return self.vector_bytes < LINE

    @property
    def granule(self) -> int:
        """Vectors of a cache line, or of a row if several of these are whole lines together."""
        return max(1, (self.run if self.joins_rows else LINE) // self.vector_bytes)

    @property
    def joins_rows(self) -> bool:
        """Whether rows are whole vectors, and several of them whole lines together, as a register tile may have them:
        24 f32 on a Zen 3 (`aged,cbfg->fedcba`) run at 80 GFLOP/s so, 68 if they are assembled.
        """
        vectors = self.run // self.vector_bytes
        return (
            self.rows > 1 and self.of % self.rows == 0 and self.run % self.vector_bytes == 0 and vectors <= MOST_JOINED
        )

    def suits(self, vectors: int, rows: int) -> bool:
        """Whether a register tile writes whole lines (others take several times as long), and each of its rows in
        another place of a page: others are slower by far. On a Zen 3 4096 x 4608 f32 with 16 terms, rows four pages and
        2 KB apart, run at 30 GFLOP/s with tiles of 4 by 2 vectors, 62 with 2 by 4.

        Example:
            >>> results = PastCaches(vector_bytes=32, apart=2048, run=2048)
            >>> [results.suits(*tile) for tile in ((2, 4), (4, 2), (3, 2))]
            [False, True, False]
        """
        width = vectors * self.vector_bytes
        if self.joins_rows:
            return width % self.run == 0 and rows % self.rows == 0 and self.of % rows == 0
        if vectors % self.granule and width < self.run:
            return False
        width = min(width, self.run)
        places = sorted(row * self.apart % PAGE for row in range(rows))
        return all(
            after - before >= width for before, after in zip(places, (*places[1:], places[0] + PAGE), strict=True)
        )


def register_shape(
    machine: Machine,
    lanes: int,
    parts: int,
    totals: tuple[int, int],
    results: Run,
    scalar_run: int,
    steps: int,
    near: bool,
    past: PastCaches | None = None,
) -> tuple[int, int]:
    """(vectors, rows) of a register tile: the least padding of those that fill the registers, v*r + v + 1 <= registers,
    or whose stores do not wait for each other.

    Panels of rows that end in the middle of a `scalar_run`, of several of the scalar side's operand, are copied by
    elements. Tiles that suit results that go `past` the caches come before others, wherever there are any.
    """
    vector_total, scalar_total = totals
    registers, pace = (machine.vector_registers or 16) // parts, machine.pace
    at_once = pace.stored_at_once(steps)
    granule = 1 if past is None else past.granule
    best: tuple[bool, float, tuple[int, int]] | None = None
    for rows in ROWS:
        most = min(MOST_VECTORS, (registers - 1) // (rows + 1), max(1, math.ceil(vector_total / lanes)))
        for vectors in _numbers_of_vectors(most, rows, at_once, granule):
            tiles = math.ceil(vector_total / (vectors * lanes)) * math.ceil(scalar_total / rows)
            # Half the time of one step of the sum: eight multiply-adds at the least, since they wait for each other,
            # vectors from L2, where their panels lie unless they are `near`, and broadcasts from L1; and the loop
            # itself, of which small tiles need more.
            multiply_adds = max(vectors * rows, 8) / 2
            loads = ((pace.vector_load if near else pace.panel_load) * vectors + pace.element_load * rows) / 2
            cost = tiles * (max(multiply_adds, loads) + pace.beside / 2 * (vectors + rows) + 0.1)
            if math.isfinite(at_once):
                stored = pace.packed_tile + pace.stored(vectors * rows, steps)
                several = results.elements < vector_total
                stored += BROKEN_TILE if several and results.is_broken(vectors * lanes, rows, lanes) else 0.0
                cost += tiles * pace.other * stored / (2 * max(1, steps))
            if scalar_run % rows and scalar_total > max(rows, scalar_run):
                cost += BROKEN_ELEMENT * scalar_total
            found = (past is not None and not past.suits(vectors, rows), cost, (vectors, rows))
            if best is None or found[:2] < best[:2]:
                best = found
    assert best is not None
    return best[2]


def _numbers_of_vectors(most: int, rows: int, at_once: float, granule: int) -> Iterator[int]:
    """Vectors of register tiles of so many rows: the most, and where stores would wait for each other then, fewer."""
    fewer = range(2, most) if most * rows > at_once else ()
    for vectors in (most, *(one for one in fewer if one * rows <= at_once)):
        if vectors:
            yield vectors - (vectors % granule if vectors > granule else 0)


def run_of_operand(side: Sequence[SideDimension]) -> int:
    """Elements of a side that lie side by side in its operand, of its innermost dimensions."""
    run = 1
    for one in reversed(side):
        if one.stride != run:
            break
        run *= one.size
    return run if run > 1 else 0


def run_of_results(vector: Sequence[SideDimension], scalar: Sequence[SideDimension], line: int) -> Run:
    """The run of the output that is the vector side's, where a cache line holds so many of its elements."""
    elements = consecutive([(one.stride_out, one.size) for one in vector])
    follow = bool(scalar) and abs(scalar[-1].stride_out) == elements
    rows, of = (line // math.gcd(line, elements), scalar[-1].size) if follow else (1, 0)
    return Run(elements, rows, of)
