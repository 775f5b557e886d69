"""Results that wait in scratch memory: of a register tile, of a block, and the levels of partial sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.kernel.ir import Buffer, Expression, Prefetch, Store, add, integer, load, multiply
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.packed.two_sides import Bases
from tilewright.passes.packed.writer import PackedWriter, Side

Accumulators: TypeAlias = Mapping[tuple[int, int], Value]
Edges: TypeAlias = Sequence[tuple[Expression, Expression]]
"""For each level of partial sums, whether its values begin with those of this piece, and whether they end with them."""


@dataclass(frozen=True)
class Scratch:
    """Results waiting to be written: element (j, i) of each component at origin + j * pitch + i."""

    buffers: tuple[Buffer, ...]
    pitch: Expression
    origin: Expression

    def row(self, j: Expression) -> Expression:
        """Where row j begins."""
        return add(self.origin, multiply(j, self.pitch))


@dataclass(frozen=True)
class Target:
    """Where results go: the array, what the epilogue reads, and where each begins for a block of the launch."""

    out: Buffer
    further: Sequence[Buffer]
    bases: Bases


class Waiting:
    """One register tile: its sides, where it begins in either (`vector_first`, `scalar_first`), how many elements of
    either are in panels (`counts`), and how it goes to scratch memory.
    """

    def __init__(
        self,
        w: PackedWriter,
        sides: tuple[Side, Side],
        target: Target,
        first: tuple[Expression, Expression],
        edges: Edges,
        counts: tuple[Expression, Expression],
    ) -> None:
        self.w, (self.vector, self.scalar) = w, sides
        self.out, self.further, self.bases = target.out, target.further, target.bases
        self.vector_first, self.scalar_first = first
        self.edges, self.counts = edges, counts
        self.first = edges[0][0]

    def row_base(self, j: Expression) -> Expression:
        """Where row j of the tile begins in the output."""
        return self.w.emit.let(add(self.bases.out, load(self.scalar.out_table, add(self.scalar_first, j))), "out_row")

    def prefetch_waiting(self, tile: Scratch, j: Expression) -> None:
        """The same of the partial sums."""
        emit, lanes = self.w.emit, self.w.form.lanes
        start = emit.let(add(tile.row(add(self.scalar_first, j)), self.vector_first), "waiting")
        for i in range(self.w.form.vectors):
            for buffer in tile.buffers:
                emit.emit(Prefetch(buffer, add(start, integer(i * lanes))))

    def spill(
        self, tile: Scratch, accumulators: Accumulators, j_first: Expression, i_first: Expression, add_to: bool = False
    ) -> None:
        """The registers to scratch memory, from element (j_first, i_first) on, or combined into what is there."""
        w, lanes = self.w, self.w.form.lanes
        start = w.emit.let(add(tile.row(j_first), i_first), "tile_start")
        for (i, j), accumulator in accumulators.items():
            value: Value = accumulator
            at = add(add(start, multiply(integer(j), tile.pitch)), integer(i * lanes))
            if add_to:
                before = tuple(w.emit.let(load(b, at, lanes, aligned=lanes > 1), "before") for b in tile.buffers)
                (value,) = lower_lambda_vector(w.form.contraction.combine, (before, value), lanes, w.emit)
            for buffer, part in zip(tile.buffers, value, strict=True):
                w.emit.emit(Store(buffer, at, part, aligned=lanes > 1))

    def _waiting(
        self, tile: Scratch, places: Iterable[tuple[int, int]], j_first: Expression, i_first: Expression
    ) -> Accumulators:
        """A register tile that lies in scratch memory."""
        emit, lanes = self.w.emit, self.w.form.lanes
        start = emit.let(add(tile.row(j_first), i_first), "tile_start")
        return {
            (i, j): tuple(
                emit.let(
                    load(
                        b,
                        add(add(start, multiply(integer(j), tile.pitch)), integer(i * lanes)),
                        lanes,
                        aligned=lanes > 1,
                    ),
                    "part",
                )
                for b in tile.buffers
            )
            for i, j in places
        }

    def wait(
        self, tiles: Sequence[Scratch], accumulators: Accumulators, j_first: Expression, i_first: Expression
    ) -> None:
        """The registers into the lowest level of partial sums, and where that ends, its values into the next one."""
        begins, tile = self.edges[-len(tiles)][0], tiles[0]
        self.w.branch(
            begins,
            lambda: self.spill(tile, accumulators, j_first, i_first),
            lambda: self.spill(tile, accumulators, j_first, i_first, add_to=True),
        )
        self.pass_on(tiles, accumulators, j_first, i_first)

    def pass_on(
        self, tiles: Sequence[Scratch], places: Iterable[tuple[int, int]], j_first: Expression, i_first: Expression
    ) -> None:
        """Where the lowest level of partial sums ends, its values into the next one, if there is one."""
        if len(tiles) > 1:
            ends, tile = self.edges[-len(tiles)][1], tiles[0]
            self.w.emit.when(
                ends, lambda: self.wait(tiles[1:], self._waiting(tile, places, j_first, i_first), j_first, i_first)
            )
