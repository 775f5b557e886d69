"""Where the results of a register tile go: straight to the output, through scratch memory, or past the cache.

A tile whose vectors (or their quarters) are consecutive in the output is written from the registers; any other goes
through a small scratch tile, from which vectors or single elements are written, the epilogue applied to each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tilewright.ir.scalars import BOOL
from tilewright.kernel.ir import (
    Address,
    Buffer,
    Constant,
    Expression,
    Prefetch,
    Shuffle,
    Store,
    VectorType,
    add,
    element_of,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.passes.items.lower_scalar import lower_lambda
from tilewright.passes.items.scalar_values import Value, load_element, store_element
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.packed.blocks import LINE
from tilewright.passes.packed.epilogue import finished, has_vector_results
from tilewright.passes.packed.operands import load_parts, store_parts
from tilewright.passes.packed.writer import QUARTERS, WHOLE, PackedWriter, Side, run_is, run_of
from tilewright.passes.two_sides import Bases

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


def has_fast_path(w: PackedWriter) -> bool:
    """Results are what the output holds, so that registers can be stored as they are."""
    return w.form.contraction.epilogue is None and has_vector_results(w.form)


def _part_of(value: Value, first: int, lanes: int) -> Value:
    picked = tuple(range(first, first + lanes))
    return tuple(Shuffle(part, part, picked, VectorType(element_of(part.type), lanes)) for part in value)


class Place:
    """Where one register tile goes in the output."""

    def __init__(
        self,
        w: PackedWriter,
        vector: Side,
        scalar: Side,
        out: Buffer,
        further: Sequence[Buffer],
        bases: Bases,
        vector_first: Expression,
        scalar_first: Expression,
        edges: Edges,
    ) -> None:
        self.w, self.vector, self.scalar, self.out, self.further, self.bases = w, vector, scalar, out, further, bases
        self.vector_first, self.scalar_first = vector_first, scalar_first
        self.edges = edges
        self.first = edges[0][0]

    def is_writable(self, rows: Expression, columns: Expression) -> Expression:
        """All rows are rows of the output, and its columns end with a whole vector (or quarter), each in one piece."""
        lanes = self.w.form.lanes
        unit = self.w.form.least_part
        condition = operation(
            "and",
            operation("eq", rows, integer(self.scalar.width)),
            operation("eq", operation("and", columns, integer(unit - 1)), integer(0)),
        )
        for i in range(0 if self.w.form.in_whole_lines else self.w.form.vectors):
            mark = run_of(self.vector.out_runs, self.vector_first, i, lanes)
            condition = operation("and", condition, run_is(mark, self._least_run()))
        return condition

    def _least_run(self) -> int:
        """The runs of the output that vectors need: of their smallest pieces."""
        return QUARTERS if self.w.form.least_part < self.w.form.lanes else WHOLE

    def row_base(self, j: Expression) -> Expression:
        """Where row j of the tile begins in the output."""
        return self.w.emit.let(add(self.bases.out, load(self.scalar.out_table, add(self.scalar_first, j))), "out_row")

    def prefetch_row(self, j: Expression) -> None:
        """Ask for the cache lines of row j, which will be written soon."""
        w, lanes = self.w, self.w.form.lanes
        base = self.row_base(j)
        for i in range(w.form.vectors):
            start = load(self.vector.out_table, add(self.vector_first, integer(i * lanes)))
            w.emit.emit(Prefetch(self.out, w.emit.let(add(base, start), "at")))

    def prefetch_waiting(self, tile: Scratch, j: Expression) -> None:
        """The same of the partial sums."""
        emit, lanes = self.w.emit, self.w.form.lanes
        start = emit.let(add(tile.row(add(self.scalar_first, j)), self.vector_first), "waiting")
        for i in range(self.w.form.vectors):
            for buffer in tile.buffers:
                emit.emit(Prefetch(buffer, add(start, integer(i * lanes))))

    def write_registers(self, accumulators: Accumulators, columns: Expression) -> None:
        """Vectors straight to the output; later pieces of the sum add to what is there."""
        form = self.w.form
        bases = [self.row_base(integer(j)) for j in range(form.rows)]
        tile = [[accumulators[i, j] for j in range(form.rows)] for i in range(form.vectors)]

        def store(add_to: bool) -> None:
            for i, column in enumerate(tile):
                self._store_valid(i, bases, column, add_to, columns)

        def past_the_cache() -> None:
            for i, column in enumerate(tile):
                self._store_column(i, bases, column, False, 2 if form.in_halves else 1, nontemporal=True)

        if form.nontemporal:
            aligned = self._begins_line(bases[0]) if form.in_halves else self._is_aligned(bases)
            whole = operation("and", operation("eq", columns, integer(self.vector.width)), aligned)
            self.w.branch(whole, past_the_cache, lambda: store(False))
        else:
            self.w.branch(self.first, lambda: store(False), lambda: store(True))

    def _store_valid(
        self, i: int, bases: Sequence[Expression], column: Sequence[Value], add_to: bool, columns: Expression
    ) -> None:
        """What lies inside the output of vector i of each row: the vector, or its quarters."""
        w, lanes = self.w, self.w.form.lanes
        inside = operation("ge", columns, integer((i + 1) * lanes))

        def whole() -> None:
            self._store_column(i, bases, column, add_to, 1)

        def quarters() -> None:
            for part in range(4):
                end = integer(i * lanes + (part + 1) * lanes // 4)
                w.emit.when(
                    operation("ge", columns, end),
                    partial(self._store_column, i, bases, column, add_to, 4, only=part),
                )

        if self._least_run() == WHOLE:
            w.emit.when(inside, whole)
        else:
            mark = run_of(self.vector.out_runs, self.vector_first, i, lanes)
            w.branch(operation("and", inside, run_is(mark, WHOLE)), whole, quarters)

    def _begins_line(self, base: Expression) -> Expression:
        """The first row of the tile begins with a cache line."""
        start = add(base, load(self.vector.out_table, self.vector_first))
        address = add(multiply(start, integer(self.out.element.bytes)), Address(self.out))
        return operation("eq", operation("and", address, integer(LINE - 1)), integer(0))

    def _is_aligned(self, bases: Sequence[Expression]) -> Expression:
        """All vectors of the tile are whole, and each begins at a multiple of its size."""
        form = self.w.form
        lanes, places = form.lanes, list(bases)
        if form.in_whole_lines:  # all do if the first element of the output does
            start = add(multiply(self.bases.out, integer(self.out.element.bytes)), Address(self.out))
            return operation("eq", operation("and", start, integer(LINE - 1)), integer(0))
        condition: Expression = Constant(True, BOOL)
        for i in range(form.vectors):
            places.append(load(self.vector.out_table, add(self.vector_first, integer(i * lanes))))
            condition = operation(
                "and", condition, run_is(run_of(self.vector.out_runs, self.vector_first, i, lanes), WHOLE)
            )
        together: Expression = integer(0)
        for place in places:
            together = operation("or", together, place)
        bytes_ = self.w.form.contraction.out.element.bytes
        remainder = operation("or", multiply(together, integer(bytes_)), Address(self.out))
        return operation(
            "and", condition, operation("eq", operation("and", remainder, integer(lanes * bytes_ - 1)), integer(0))
        )

    def _store_column(
        self,
        i: int,
        bases: Sequence[Expression],
        values: Sequence[Value],
        add_to: bool,
        parts: int,
        nontemporal: bool = False,
        only: int | None = None,
    ) -> None:
        """Vector i of each row, in one or several parts, or one of those parts."""
        lanes = self.w.form.lanes // parts
        for part in range(parts) if only is None else (only,):
            place = add(self.vector_first, integer(i * self.w.form.lanes + part * lanes))
            start = self.w.emit.let(load(self.vector.out_table, place), "out_at")
            for base, value in zip(bases, values, strict=True):
                piece = value if parts == 1 else _part_of(value, part * lanes, lanes)
                at = self.w.emit.let(add(base, start), "at")
                self._store_vector(at, piece, add_to, lanes, nontemporal)

    def _store_vector(self, at: Expression, value: Value, add_to: bool, lanes: int, past: bool = False) -> None:
        """One vector of results, combined with what is there if `add_to`."""
        contraction, emit = self.w.form.contraction, self.w.emit
        if add_to:
            before = load_parts(self.out, contraction.out.element, at, lanes, emit)
            (value,) = lower_lambda_vector(contraction.combine, (before, value), lanes, emit)
        store_parts(self.out, contraction.out.element, at, value, lanes, emit, past)

    def spill(
        self,
        tile: Scratch,
        accumulators: Accumulators,
        j_first: Expression,
        i_first: Expression,
        add_to: bool = False,
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
        (begins, ends), tile = self.edges[-len(tiles)], tiles[0]
        self.w.branch(
            begins,
            lambda: self.spill(tile, accumulators, j_first, i_first),
            lambda: self.spill(tile, accumulators, j_first, i_first, add_to=True),
        )
        if len(tiles) > 1:
            self.w.emit.when(
                ends,
                lambda: self.wait(tiles[1:], self._waiting(tile, accumulators, j_first, i_first), j_first, i_first),
            )

    def write_block(self, tile: Scratch, rows: Expression, columns: Expression) -> None:
        """A whole block from scratch memory, along the dimension next to the innermost (the output's own)."""
        w = self.w
        inner = self.vector.sizes[-1] if self.vector.sizes else integer(1)

        def row(j: Expression) -> None:
            base = self.row_base(j)
            tile_row = w.emit.let(tile.row(j), "tile_row")

            def start(residue: Expression) -> None:
                steps = w.emit.let(
                    operation("floordiv", add(operation("sub", columns, residue), add(inner, integer(-1))), inner),
                    "steps",
                )

                def element(step: Expression) -> None:
                    place = w.emit.let(add(residue, multiply(step, inner)), "i")
                    self.write_element(tile, tile_row, base, place, j)

                w.loop("step", integer(0), steps, element)

            w.loop("residue", integer(0), w.minimum(inner, columns), start)

        w.loop("j", integer(0), rows, row)

    def write_through(self, tile: Scratch, accumulators: Accumulators, rows: Expression, columns: Expression) -> None:
        """Spill the registers to the scratch tile and write it."""
        self.spill(tile, accumulators, integer(0), integer(0))
        self.write_tile(tile, integer(0), integer(0), rows, columns)

    def write_tile(
        self, tile: Scratch, j_first: Expression, i_first: Expression, rows: Expression, columns: Expression
    ) -> None:
        """Write a register tile that lies in scratch memory from element (j_first, i_first) on, in vectors if it can
        be, else by elements.
        """
        w, lanes = self.w, self.w.form.lanes

        def row(j: Expression) -> None:
            base = self.row_base(j)
            tile_row = w.emit.let(add(tile.row(add(j_first, j)), i_first), "tile_row")
            if not has_vector_results(w.form):
                w.loop("i", integer(0), columns, lambda i: self.write_element(tile, tile_row, base, i, j))
                return

            def vector(i: Expression) -> None:
                stop = w.emit.let(operation("min", columns, add(i, integer(lanes))), "stop")
                mark = w.emit.let(load(self.vector.out_runs, self._vector_number(i)), "mark")
                is_whole = operation("eq", operation("sub", stop, i), integer(lanes))
                w.branch(
                    operation("and", is_whole, run_is(mark, self._least_run())),
                    lambda: self._write_vector(tile, tile_row, base, i, j, mark),
                    lambda: w.loop("i", i, stop, lambda at: self.write_element(tile, tile_row, base, at, j)),
                )

            w.loop("i", integer(0), columns, vector, lanes)

        w.loop("j", integer(0), rows, row)

    def _vector_number(self, i: Expression) -> Expression:
        """The number in the block of the vector that begins at element i of this tile."""
        return operation("floordiv", add(self.vector_first, i), integer(self.w.form.lanes))

    def _write_vector(
        self, tile: Scratch, tile_row: Expression, base: Expression, i: Expression, j: Expression, mark: Expression
    ) -> None:
        """A vector of a tile in scratch memory, whole or in quarters."""
        w = self.w

        def write(first: Expression, lanes: int) -> None:
            place = w.emit.let(add(self.vector_first, first), "vector_at")
            at = w.emit.let(add(base, load(self.vector.out_table, place)), "at")
            value: Value = tuple(
                w.emit.let(load(buffer, add(tile_row, first), lanes, aligned=True), "value") for buffer in tile.buffers
            )
            if not self._adds_to_output():
                scalar_place = w.emit.let(add(self.scalar_first, j), "scalar_at")
                sides = self.vector, self.scalar
                value = finished(w, sides, self.further, self.bases, value, (place, scalar_place), lanes)
                self._store_vector(at, value, False, lanes)
                return
            w.branch(
                self.first,
                lambda: self._store_vector(at, value, False, lanes),
                lambda: self._store_vector(at, value, True, lanes),
            )

        lanes = w.form.lanes
        if self._least_run() == WHOLE:
            write(i, lanes)
            return
        quarter = lanes // 4
        w.branch(
            run_is(mark, WHOLE),
            lambda: write(i, lanes),
            lambda: w.loop("part", i, add(i, integer(lanes)), lambda first: write(first, quarter), quarter),
        )

    def _adds_to_output(self) -> bool:
        """Partial sums of several pieces meet in the output."""
        return self.w.form.depth < self.w.form.contracted_total and not self.w.form.levels

    def write_element(
        self, tile: Scratch, tile_row: Expression, base: Expression, i: Expression, j: Expression
    ) -> None:
        """One result from scratch memory, combined with what is there and finished as it must be."""
        w, contraction = self.w, self.w.form.contraction
        emit = w.emit
        vector_at = emit.let(add(self.vector_first, i), "vector_at")
        at = emit.let(add(base, load(self.vector.out_table, vector_at)), "at")
        place = emit.let(add(tile_row, i), "place")
        value: Value = tuple(emit.let(load(buffer, place), "value") for buffer in tile.buffers)
        if self._adds_to_output():
            held = tuple(emit.declare(part, "value") for part in value)

            def add_before() -> None:
                before = load_element(self.out, contraction.out.element, at, emit)
                (total,) = lower_lambda(contraction.combine, (before, held), emit)
                for variable, part in zip(held, total, strict=True):
                    emit.assign(variable, part)

            emit.when(operation("not", self.first), add_before)
            value = held
        sides, places = (self.vector, self.scalar), (vector_at, emit.let(add(self.scalar_first, j), "scalar_at"))
        value = finished(w, sides, self.further, self.bases, value, places, 1)
        store_element(self.out, contraction.out.element, at, value, emit)
