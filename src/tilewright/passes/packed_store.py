"""Where the results of a register tile go: straight to the output, through scratch memory, or past the cache.

A tile whose vectors (or their quarters) are consecutive in the output is written from the registers; any other goes
through a small scratch tile, from which vectors or single elements are written, the epilogue applied to each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tilewright.ir.scalars import BOOL
from tilewright.kernel.ir import (
    Address,
    Buffer,
    Constant,
    Expression,
    Name,
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
from tilewright.passes.lower_scalar import lower_lambda
from tilewright.passes.packed_writer import QUARTERS, WHOLE, Bases, PackedWriter, Side, run_is, run_of
from tilewright.passes.scalar_values import Value, load_element, store_element
from tilewright.passes.vectorise import lower_lambda_vector

Accumulators: TypeAlias = dict[tuple[int, int], tuple[Name, ...]]


@dataclass(frozen=True)
class Scratch:
    """Results waiting to be written: element (j, i) of each component at j * pitch + i."""

    buffers: tuple[Buffer, ...]
    pitch: Expression


def has_fast_path(w: PackedWriter) -> bool:
    """Results are what the output holds, so that registers can be stored as they are."""
    contraction = w.form.contraction
    return (
        w.form.lanes > 1
        and contraction.epilogue is None
        and not w.form.accumulator.is_complex
        and contraction.out.element == w.form.accumulator
    )


def _part_of(value: Expression, first: int, lanes: int) -> Expression:
    vector = VectorType(element_of(value.type), lanes)
    return Shuffle(value, value, tuple(range(first, first + lanes)), vector)


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
        edges: tuple[Expression, Expression],
    ) -> None:
        self.w, self.vector, self.scalar, self.out, self.further, self.bases = w, vector, scalar, out, further, bases
        self.vector_first, self.scalar_first = vector_first, scalar_first
        self.first, self.last = edges

    def is_writable(self, rows: Expression, columns: Expression) -> Expression:
        """All rows are rows of the output, and its columns end with a whole vector (or quarter), each in one piece."""
        lanes = self.w.form.lanes
        unit = self._least_part()
        condition = operation(
            "and",
            operation("eq", rows, integer(self.scalar.width)),
            operation("eq", operation("and", columns, integer(unit - 1)), integer(0)),
        )
        for i in range(self.w.form.vectors):
            mark = run_of(self.vector.out_runs, self.vector_first, i, lanes)
            condition = operation("and", condition, run_is(mark, self._least_run()))
        return condition

    def _least_run(self) -> int:
        """Vectors can be written in quarters from eight lanes on."""
        return QUARTERS if self.w.form.lanes >= 8 else WHOLE

    def _least_part(self) -> int:
        """Elements of the smallest piece that is written as a vector."""
        return self.w.form.lanes // 4 if self._least_run() == QUARTERS else self.w.form.lanes

    def _row_base(self, j: Expression) -> Expression:
        return self.w.emit.let(add(self.bases.out, load(self.scalar.out_table, add(self.scalar_first, j))), "out_row")

    def write_registers(self, accumulators: Accumulators, columns: Expression) -> None:
        """Vectors straight to the output; later pieces of the sum add to what is there."""
        form = self.w.form
        bases = [self._row_base(integer(j)) for j in range(form.rows)]
        tile = [[accumulators[i, j] for j in range(form.rows)] for i in range(form.vectors)]

        def store(add_to: bool) -> None:
            for i, column in enumerate(tile):
                self._store_valid(i, bases, column, add_to, columns)

        def past_the_cache() -> None:
            for i, column in enumerate(tile):
                self._store_column(i, bases, column, False, 1, nontemporal=True)

        if form.nontemporal:
            whole = operation("and", operation("eq", columns, integer(self.vector.width)), self._is_aligned(bases))
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

    def _is_aligned(self, bases: Sequence[Expression]) -> Expression:
        """All vectors of the tile are whole, and each begins at a multiple of its size."""
        form = self.w.form
        lanes, places = form.lanes, list(bases)
        condition: Expression = Constant(True, BOOL)
        for i in range(form.vectors):
            places.append(load(self.vector.out_table, add(self.vector_first, integer(i * lanes))))
            condition = operation(
                "and", condition, run_is(run_of(self.vector.out_runs, self.vector_first, i, lanes), WHOLE)
            )
        together: Expression = integer(0)
        for place in places:
            together = operation("or", together, place)
        bytes_ = self.out.element.bytes
        remainder = operation("or", multiply(together, integer(bytes_)), Address(self.out))
        return operation(
            "and", condition, operation("eq", operation("and", remainder, integer(lanes * bytes_ - 1)), integer(0))
        )

    def _branch_on_run(self, i: int, write: Callable[[int], None]) -> None:
        """`write(1)` where vector i is consecutive in the output, `write(4)` where its quarters are."""
        if self._least_run() == WHOLE:
            write(1)
            return
        mark = run_of(self.vector.out_runs, self.vector_first, i, self.w.form.lanes)
        self.w.branch(run_is(mark, WHOLE), lambda: write(1), lambda: write(4))

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
                piece = value if parts == 1 else (_part_of(value[0], part * lanes, lanes),)
                at = self.w.emit.let(add(base, start), "at")
                if nontemporal:
                    self.w.emit.emit(Store(self.out, at, piece[0], aligned=True, nontemporal=True))
                else:
                    self._store_vector(at, piece, add_to, lanes)

    def _store_vector(self, at: Expression, value: Value, add_to: bool, lanes: int) -> None:
        if add_to:
            before = (self.w.emit.let(load(self.out, at, lanes), "before"),)
            (value,) = lower_lambda_vector(self.w.form.contraction.combine, (before, value), lanes, self.w.emit)
        self.w.emit.emit(Store(self.out, at, value[0]))

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
        start = w.emit.let(add(multiply(j_first, tile.pitch), i_first), "tile_start")
        for (i, j), accumulator in accumulators.items():
            value: Value = accumulator
            at = add(add(start, multiply(integer(j), tile.pitch)), integer(i * lanes))
            if add_to:
                before = tuple(w.emit.let(load(b, at, lanes, aligned=lanes > 1), "before") for b in tile.buffers)
                (value,) = lower_lambda_vector(w.form.contraction.combine, (before, value), lanes, w.emit)
            for buffer, part in zip(tile.buffers, value, strict=True):
                w.emit.emit(Store(buffer, at, part, aligned=lanes > 1))

    def write_block(self, tile: Scratch, rows: Expression, columns: Expression) -> None:
        """A whole block from scratch memory, along the dimension next to the innermost (the output's own)."""
        w = self.w
        inner = self.vector.sizes[-1] if self.vector.sizes else integer(1)

        def row(j: Expression) -> None:
            base = self._row_base(j)
            tile_row = w.emit.let(multiply(j, tile.pitch), "tile_row")

            def start(residue: Expression) -> None:
                steps = w.emit.let(
                    operation("floordiv", add(operation("sub", columns, residue), add(inner, integer(-1))), inner),
                    "steps",
                )

                def element(step: Expression) -> None:
                    place = w.emit.let(add(residue, multiply(step, inner)), "i")
                    self._write_element(tile, tile_row, base, place, j)

                w.loop("step", integer(0), steps, element)

            w.loop("residue", integer(0), w.minimum(inner, columns), start)

        w.loop("j", integer(0), rows, row)

    def write_through(self, tile: Scratch, accumulators: Accumulators, rows: Expression, columns: Expression) -> None:
        """Spill the registers to the scratch tile, then write elements, or vectors where consecutive."""
        w, lanes = self.w, self.w.form.lanes
        self.spill(tile, accumulators, integer(0), integer(0))

        def row(j: Expression) -> None:
            base = self._row_base(j)
            tile_row = w.emit.let(multiply(j, tile.pitch), "tile_row")
            if not has_fast_path(w):
                w.loop("i", integer(0), columns, lambda i: self._write_element(tile, tile_row, base, i, j))
                return
            for i in range(w.form.vectors):
                stop = w.emit.let(operation("min", columns, integer((i + 1) * lanes)), "stop")
                mark = run_of(self.vector.out_runs, self.vector_first, i, lanes)
                whole = operation(
                    "and", operation("ge", columns, integer((i + 1) * lanes)), run_is(mark, self._least_run())
                )
                w.branch(
                    whole,
                    lambda i=i: self._write_vector(tile.buffers[0], tile_row, base, i),  # type: ignore[misc]
                    lambda i=i, stop=stop: w.loop(  # type: ignore[misc]
                        "i", integer(i * lanes), stop, lambda at: self._write_element(tile, tile_row, base, at, j)
                    ),
                )

        w.loop("j", integer(0), rows, row)

    def _write_vector(self, tile: Buffer, tile_row: Expression, base: Expression, i: int) -> None:
        w, lanes = self.w, self.w.form.lanes
        value = (w.emit.let(load(tile, add(tile_row, integer(i * lanes)), lanes, aligned=True), "value"),)

        def write(parts: int) -> None:
            w.branch(
                self.first,
                lambda: self._store_column(i, [base], [value], False, parts),
                lambda: self._store_column(i, [base], [value], True, parts),
            )

        self._branch_on_run(i, write)

    def _write_element(
        self, tile: Scratch, tile_row: Expression, base: Expression, i: Expression, j: Expression
    ) -> None:
        w, contraction = self.w, self.w.form.contraction
        emit = w.emit
        vector_at = emit.let(add(self.vector_first, i), "vector_at")
        at = emit.let(add(base, load(self.vector.out_table, vector_at)), "at")
        place = emit.let(add(tile_row, i), "place")
        value: Value = tuple(emit.let(load(buffer, place), "value") for buffer in tile.buffers)
        single_piece = w.form.depth >= w.form.contracted_total
        if not single_piece and not w.form.waiting:
            held = tuple(emit.declare(part, "value") for part in value)

            def add_before() -> None:
                before = load_element(self.out, contraction.out.element, at, emit)
                (total,) = lower_lambda(contraction.combine, (before, held), emit)
                for variable, part in zip(held, total, strict=True):
                    emit.assign(variable, part)

            emit.when(operation("not", self.first), add_before)
            value = held
        if contraction.epilogue is not None:
            operands = []
            for number, buffer in enumerate(self.further):
                scalar_part = load(self.scalar.further_tables[number], add(self.scalar_first, j))
                vector_part = load(self.vector.further_tables[number], vector_at)
                where = emit.let(add(add(self.bases.further[number], scalar_part), vector_part), "where")
                element = contraction.epilogue_operands[number].operand.element
                operands.append(load_element(buffer, element, where, emit))
            (value,) = lower_lambda(contraction.epilogue, (value, *operands), emit)
        store_element(self.out, contraction.out.element, at, value, emit)
