"""The steps of a register tile: what it loads of either panel, and what it does with it.

acc[i][j] = combine(acc[i][j], map(vector[k][i], broadcast scalar[k][j]))    for k in start .. stop
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.packed.combine import combine
from tilewright.passes.packed.on_the_way import Source, packed_step, sources_of_panel
from tilewright.passes.packed.writer import PackedWriter, Side

Sums: TypeAlias = Mapping[tuple[int, int], tuple[Name, ...]]
"""The sums of a register tile, by vector and row; of complex numbers both parts."""

SHORT_STEP = 12  # multiply-adds of a step at most that is so short that the loop counts


@dataclass(frozen=True)
class RegisterTile:
    """Where a register tile reads, and its sums.

    Attributes:
        w: writes the kernel.
        vector: the side that lies in vectors.
        scalar: the side whose elements are broadcast.
        vector_first: the first element of the vector side.
        vector_base: where its panel begins.
        scalar_base: where the scalar side's panel begins; 0 for one that is read in place.
        rows: where the rows of that begin.
        depth: the length of the piece of the sum.
        accumulators: the sums.
        ready: whether the vectors lie in their panel; else they are packed on the way. None if they surely do.
    """

    w: PackedWriter
    vector: Side
    scalar: Side
    vector_first: Expression
    vector_base: Expression
    scalar_base: Expression
    rows: Sequence[Expression]
    depth: Expression
    accumulators: Sums
    ready: Expression | None

    def run(self, start: Expression, stop: Expression, no_nan: bool, vectors: int) -> None:
        """The steps from start to stop, of the first vectors."""

        def packed() -> None:
            if vectors == self.w.form.vectors and steps_are_short(self.w):
                self.w.rounds("k", start, stop, lambda k: self._step(k, no_nan, vectors), self._keep_sums)
            else:
                self.w.loop("k", start, stop, lambda k: self._step(k, no_nan, vectors))

        def packing() -> None:
            sources = sources_of_panel(self.w, self.vector, self.vector_first)
            self.w.loop("k", start, stop, lambda k: self._step(k, no_nan, vectors, sources))

        if self.ready is None or vectors < self.w.form.vectors:
            packed()
        else:
            self.w.branch(self.ready, packed, packing)

    def _keep_sums(self) -> None:
        """The sums stay in registers: else LLVM would read what later steps need first, and put sums into memory."""
        for accumulator in self.accumulators.values():
            for total in accumulator:
                self.w.emit.emit(kernel.Assign(total.name, total, settled=True))

    def _step(self, k: Expression, no_nan: bool, vectors: int, sources: Sequence[Source] = ()) -> None:
        w, emit, scalar, lanes = self.w, self.w.emit, self.scalar, self.w.form.lanes
        row = emit.let(add(self.vector_base, multiply(k, integer(self.vector.width))), "row")
        if sources:
            columns: list[Value] = [(one,) for one in packed_step(w, self.vector, sources, row, k, self.depth)]
        else:
            places = [add(row, integer(i * lanes)) for i in range(vectors)]
            columns = [
                tuple(emit.let(_load_panel(panel, place, lanes), "vector") for panel in self.vector.panels)
                for place in places
            ]
        at = k if self.rows else emit.let(add(self.scalar_base, multiply(k, integer(scalar.width))), "at")
        for j in range(w.form.rows):
            place = add(self.rows[j] if self.rows else integer(j), at)
            element = tuple(emit.let(_broadcast(load(panel, place), lanes), "scalar") for panel in scalar.panels)
            for i in range(vectors):
                combine(w, self.accumulators[i, j], columns[i], element, no_nan)


def steps_are_short(w: PackedWriter) -> bool:
    """Whether full register tiles take few instructions for a step of the sum."""
    form = w.form
    is_short = form.lanes > 1 and form.vectors * form.rows <= SHORT_STEP and not form.accumulator.is_complex
    return is_short and (form.fused_multiply_add or form.dots is not None)


def tile_at(
    w: PackedWriter,
    sides: tuple[Side, Side],
    first: tuple[Expression, Expression],
    depth: Expression,
    accumulators: Sums,
    ready: Expression | None,
) -> RegisterTile:
    """The register tile whose first elements of the vector and of the scalar side these are."""
    vector, scalar = sides
    in_rows = w.form.scalar_rows
    vector_base = w.emit.let(multiply(first[0], vector.pitch), "vector_panel")
    scalar_base = integer(0) if in_rows else w.emit.let(multiply(first[1], scalar.pitch), "scalar_panel")
    rows = tuple(w.row_start(scalar, add(first[1], integer(j))) for j in range(w.form.rows if in_rows else 0))
    return RegisterTile(w, vector, scalar, first[0], vector_base, scalar_base, rows, depth, accumulators, ready)


def _load_panel(panel: Buffer, index: Expression, lanes: int) -> Expression:
    return load(panel, index, lanes, aligned=lanes > 1)


def _broadcast(part: Expression, lanes: int) -> Expression:
    return part if lanes == 1 else kernel.Broadcast(part, kernel.VectorType(kernel.element_of(part.type), lanes))
