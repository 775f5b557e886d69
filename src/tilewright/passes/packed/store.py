"""Where the results of a register tile go: straight to the output, through scratch memory, or past the cache.

A tile whose vectors (or their quarters) are consecutive in the output is written from the registers; any other goes
through a small scratch tile, from which vectors or single elements are written, the epilogue applied to each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilewright.ir.scalars import BOOL, U8
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, add, integer, load, multiply, operation
from tilewright.passes.items.lower_scalar import lower_lambda
from tilewright.passes.items.scalar_values import Value, load_element, store_element
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.packed.blocks import LINE
from tilewright.passes.packed.chains import Chains, chain_of
from tilewright.passes.packed.epilogue import consecutive_operands, finished, has_vector_results
from tilewright.passes.packed.operands import load_parts, store_parts
from tilewright.passes.packed.runs import QUARTERS, WHOLE
from tilewright.passes.packed.waiting import Accumulators, Scratch, Waiting
from tilewright.passes.packed.writer import PackedWriter, run_is, run_of


def has_fast_path(w: PackedWriter) -> bool:
    """Results are what the output holds, so that registers can be stored as they are."""
    return w.form.contraction.epilogue is None and has_vector_results(w.form)


def _part_of(value: Value, first: int, lanes: int) -> Value:
    picked = tuple(range(first, first + lanes))
    return tuple(
        kernel.Shuffle(part, part, picked, kernel.VectorType(kernel.element_of(part.type), lanes)) for part in value
    )


class Place(Waiting):
    """Where one register tile goes in the output."""

    def write_results(self, tile: Scratch, accumulators: Accumulators, rows: Expression, columns: Expression) -> None:
        """The register tile to the output: from the registers where that can be, else through scratch memory."""
        writable = self._is_writable(rows, columns)
        if writable is None:
            self.write_through(tile, accumulators, rows, columns)
        elif writable == Constant(True, BOOL):
            self.write_registers(accumulators, columns)
        else:
            self.w.branch(
                writable,
                lambda: self.write_registers(accumulators, columns),
                lambda: self.write_through(tile, accumulators, rows, columns),
            )

    def _is_writable(self, rows: Expression, columns: Expression) -> Expression | None:
        """All rows are rows of the output, and its columns end with a whole vector (or quarter), each in one piece;
        None if that is never so.
        """
        lanes, runs = self.w.form.lanes, self.vector.runs
        if not has_fast_path(self.w) or max(runs.out) < self._least_run():
            return None
        condition: Expression = Constant(True, BOOL)
        if self.scalar.runs.ends:
            condition = operation("eq", rows, integer(self.scalar.width))
        if runs.ends and not runs.out_masked:
            unit = self.w.form.least_part
            inside = operation("eq", operation("and", columns, integer(unit - 1)), integer(0))
            condition = operation("and", condition, inside)
        known = min(runs.out) >= self._least_run()
        for i in range(0 if self.w.form.in_whole_lines or known else self.w.form.vectors):
            mark = run_of(self.vector.out_runs, self.vector_first, i, lanes)
            condition = operation("and", condition, run_is(mark, self._least_run()))
        return condition

    def _least_run(self) -> int:
        """The runs of the output that vectors need: of their smallest pieces, if there are such."""
        has_quarters = self.w.form.least_part < self.w.form.lanes and QUARTERS in self.vector.runs.out
        return QUARTERS if has_quarters else WHOLE

    def prefetch_row(self, j: Expression) -> None:
        """Ask for the cache lines of row j, which will be written soon, and of what its epilogue reads."""
        self._prefetch(self.out, self.row_base(j), self.vector.out_table)
        self.prefetch_operands(j)

    def prefetch_operands(self, j: Expression) -> None:
        """Ask for the cache lines that the epilogue of row j reads."""
        for number in consecutive_operands(self.w.form):
            row = load(self.scalar.further_tables[number], add(self.scalar_first, j))
            base = self.w.emit.let(add(self.bases.further[number], row), "row")
            self._prefetch(self.further[number], base, self.vector.further_tables[number])

    def _prefetch(self, buffer: kernel.Buffer, base: Expression, table: kernel.Buffer) -> None:
        w, lanes = self.w, self.w.form.lanes
        for i in range(w.form.vectors):
            start = load(table, add(self.vector_first, integer(i * lanes)))
            w.emit.emit(kernel.Prefetch(buffer, w.emit.let(add(base, start), "at")))

    def prefetch_off_line(self) -> None:
        """Ask for the lines that are written through the caches, if the tile does not begin with one: all of them, or
        those in which chains begin and end.
        """

        def rows() -> None:
            for j in range(self.w.form.rows):
                self.prefetch_row(integer(j))

        off_line = operation("not", self._begins_line(self.row_base(integer(0))))
        chain = chain_of(self.w.form)
        if chain is None:
            self.w.emit.when(off_line, rows)
        else:
            self.w.emit.when(off_line, Chains(self, chain).ask)

    def write_registers(self, accumulators: Accumulators, columns: Expression) -> None:
        """Vectors straight to the output; later pieces of the sum add to what is there."""
        form = self.w.form
        bases = [self.row_base(integer(j)) for j in range(form.rows)]
        tile = [[accumulators[i, j] for j in range(form.rows)] for i in range(form.vectors)]

        def store_all(add_to: bool) -> None:
            for i, column in enumerate(tile):
                self._store_column(i, bases, column, add_to, 1)

        def store_masked(add_to: bool) -> None:
            for i, column in enumerate(tile):
                mask = self.w.first_lanes(columns, i * form.lanes)
                self._store_column(i, bases, column, add_to, 1, mask=mask)

        def store(add_to: bool) -> None:
            if self.vector.runs.out_masked:
                whole = operation("eq", columns, integer(self.vector.width))
                self.w.branch(whole, lambda: store_all(add_to), lambda: store_masked(add_to))
                return
            if self.vector.runs.out == {WHOLE}:
                store_all(add_to)
                return
            for i, column in enumerate(tile):
                self._store_valid(i, bases, column, add_to, columns)

        def past_the_cache() -> None:
            self._store_past(bases, tile)

        if form.nontemporal:
            aligned = self._begins_line(bases[0]) if form.in_halves else self._is_aligned(bases)
            full = operation("eq", columns, integer(self.vector.width))
            whole = operation("and", full, aligned)
            self.w.branch(whole, past_the_cache, lambda: self._store_chains(full, tile, lambda: store(False)))
        elif self._adds_to_output():
            self.w.branch(self.first, lambda: store(False), lambda: store(True))
        else:
            store(False)

    def _store_chains(self, full: Expression, tile: Sequence[Sequence[Value]], otherwise: Callable[[], None]) -> None:
        """Full tiles as whole lines of two vectors, where the output begins within a line and that can be."""
        chain = chain_of(self.w.form)
        if chain is None:
            otherwise()
            return
        within = operation("floordiv", self._bytes_within_line(self.bases.out), integer(self.out.element.bytes))
        chains = Chains(self, chain)
        vectors = [[vector for (vector,) in column] for column in tile]
        self.w.branch(full, lambda: chains.write(vectors, self.w.emit.let(within, "within")), otherwise)

    def _store_past(self, bases: Sequence[Expression], tile: Sequence[Sequence[Value]]) -> None:
        """The tile's vectors, or halves of them, past the caches, in the order of memory: a line that two halves fill
        waits for the second one in a buffer, of which there are few, and so does a page of memory for its next line.
        """
        form, emit = self.w.form, self.w.emit
        parts = 2 if form.in_halves else 1
        lanes = form.lanes // parts
        starts = [
            emit.let(load(self.vector.out_table, add(self.vector_first, integer(number * lanes))), "out_at")
            for number in range(parts * form.vectors)
        ]
        together = form.stored_together(lanes)
        for first in range(0, len(starts), together):
            for j, base in enumerate(bases):
                for number in range(first, min(first + together, len(starts))):
                    value = tile[number // parts][j]
                    piece = value if parts == 1 else _part_of(value, number % parts * lanes, lanes)
                    self._store_vector(emit.let(add(base, starts[number]), "at"), piece, False, lanes, past=True)

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
                    operation("ge", columns, end), partial(self._store_column, i, bases, column, add_to, 4, only=part)
                )

        if self._least_run() == WHOLE:
            w.emit.when(inside, whole)
        elif WHOLE not in self.vector.runs.out:
            quarters()
        else:
            mark = run_of(self.vector.out_runs, self.vector_first, i, lanes)
            w.branch(operation("and", inside, run_is(mark, WHOLE)), whole, quarters)

    def _bytes_within_line(self, place: Expression) -> Expression:
        """How far behind the beginning of a cache line an element of the output lies."""
        address = add(multiply(place, integer(self.out.element.bytes)), kernel.Address(self.out))
        return operation("and", address, integer(LINE - 1))

    def _begins_line(self, base: Expression) -> Expression:
        """The first row of the tile begins with a cache line."""
        start = add(base, load(self.vector.out_table, self.vector_first))
        return operation("eq", self._bytes_within_line(start), integer(0))

    def _is_aligned(self, bases: Sequence[Expression]) -> Expression:
        """All vectors of the tile are whole, and each begins at a multiple of its size."""
        form = self.w.form
        lanes, places = form.lanes, list(bases)
        if form.in_whole_lines:  # all do if the first element of the output does
            return operation("eq", self._bytes_within_line(self.bases.out), integer(0))
        condition: Expression = Constant(max(self.vector.runs.out) == WHOLE, BOOL)
        is_marked = len(self.vector.runs.out) > 1
        for i in range(form.vectors):
            places.append(load(self.vector.out_table, add(self.vector_first, integer(i * lanes))))
            if is_marked:
                mark = run_of(self.vector.out_runs, self.vector_first, i, lanes)
                condition = operation("and", condition, run_is(mark, WHOLE))
        together: Expression = integer(0)
        for place in places:
            together = operation("or", together, place)
        bytes_ = self.w.form.contraction.out.element.bytes
        remainder = operation("or", multiply(together, integer(bytes_)), kernel.Address(self.out))
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
        only: int | None = None,
        mask: Expression | None = None,
    ) -> None:
        """Vector i of each row, whole or where a mask says so, in several parts, or one of those parts."""
        lanes = self.w.form.lanes // parts
        for part in range(parts) if only is None else (only,):
            place = add(self.vector_first, integer(i * self.w.form.lanes + part * lanes))
            start = self.w.emit.let(load(self.vector.out_table, place), "out_at")
            for base, value in zip(bases, values, strict=True):
                piece = value if parts == 1 else _part_of(value, part * lanes, lanes)
                at = self.w.emit.let(add(base, start), "at")
                self._store_vector(at, piece, add_to, lanes, mask=mask)

    def _store_vector(
        self, at: Expression, value: Value, add_to: bool, lanes: int, past: bool = False, mask: Expression | None = None
    ) -> None:
        """One vector of results, combined with what is there if `add_to`."""
        contraction, emit = self.w.form.contraction, self.w.emit
        if add_to:
            before = load_parts(self.out, contraction.out.element, at, lanes, emit, mask)
            (value,) = lower_lambda_vector(contraction.combine, (before, value), lanes, emit)
        store_parts(self.out, contraction.out.element, at, value, lanes, emit, past, mask)

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
        w, lanes, runs, least = self.w, self.w.form.lanes, self.vector.runs, self._least_run()

        def row(j: Expression) -> None:
            base = self.row_base(j)
            tile_row = w.emit.let(add(tile.row(add(j_first, j)), i_first), "tile_row")
            if not has_vector_results(w.form) or max(runs.out) < least:
                w.loop("i", integer(0), columns, lambda i: self.write_element(tile, tile_row, base, i, j))
                return

            def vector(i: Expression) -> None:
                stop = w.emit.let(operation("min", columns, add(i, integer(lanes))), "stop")
                mark: Expression = Constant(max(runs.out), U8)
                if len(runs.out) > 1:
                    mark = w.emit.let(load(self.vector.out_runs, self._vector_number(i)), "mark")
                in_parts = operation("eq", operation("sub", stop, i), integer(lanes))
                if min(runs.out) < least:
                    in_parts = operation("and", in_parts, run_is(mark, least))

                def part() -> None:
                    if not runs.out_masked:
                        return elements()
                    inside = w.first_lanes(operation("sub", stop, i), 0)
                    masked = partial(self._write_vector, tile, tile_row, base, i, j, mark, inside)
                    return masked() if runs.out == {WHOLE} else w.branch(run_is(mark, WHOLE), masked, elements)

                def elements() -> None:
                    w.loop("i", i, stop, lambda at: self.write_element(tile, tile_row, base, at, j))

                w.branch(in_parts, lambda: self._write_vector(tile, tile_row, base, i, j, mark), part)

            w.loop("i", integer(0), columns, vector, lanes)

        w.loop("j", integer(0), rows, row)

    def write_whole_rows(
        self, tile: Scratch, j_first: Expression, i_first: Expression, rows: Expression, columns: Expression
    ) -> None:
        """The same, by vectors without further questions where all of them are whole."""
        w, lanes, runs = self.w, self.w.form.lanes, self.vector.runs

        def write_any() -> None:
            self.write_tile(tile, j_first, i_first, rows, columns)

        def row(j: Expression) -> None:
            base = self.row_base(j)
            tile_row = w.emit.let(add(tile.row(add(j_first, j)), i_first), "tile_row")
            for i in range(w.form.vectors):
                self._write_vector(tile, tile_row, base, integer(i * lanes), j, Constant(WHOLE, U8))

        if not has_vector_results(w.form) or WHOLE not in runs.out:
            return write_any()
        whole = self.has_whole_vectors(columns)
        return w.branch(whole, lambda: w.loop("j", integer(0), rows, row), write_any)

    def has_whole_vectors(self, columns: Expression) -> Expression:
        """The tile's vectors are whole, and each is one piece of the output."""
        condition: Expression = operation("eq", columns, integer(self.vector.width))
        for i in range(0 if self.vector.runs.out == {WHOLE} else self.w.form.vectors):
            mark = run_of(self.vector.out_runs, self.vector_first, i, self.w.form.lanes)
            condition = operation("and", condition, run_is(mark, WHOLE))
        return condition

    def _vector_number(self, i: Expression) -> Expression:
        """The number in the block of the vector that begins at element i of this tile."""
        return operation("floordiv", add(self.vector_first, i), integer(self.w.form.lanes))

    def _write_vector(
        self,
        tile: Scratch,
        tile_row: Expression,
        base: Expression,
        i: Expression,
        j: Expression,
        mark: Expression,
        mask: Expression | None = None,
    ) -> None:
        """A vector of a tile in scratch memory, whole (or what a mask says of it) or in quarters."""
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
                self._store_vector(at, value, False, lanes, mask=mask)
                return
            w.branch(
                self.first,
                lambda: self._store_vector(at, value, False, lanes, mask=mask),
                lambda: self._store_vector(at, value, True, lanes, mask=mask),
            )

        lanes = w.form.lanes
        if self._least_run() == WHOLE:
            write(i, lanes)
            return
        quarter = lanes // 4

        def in_quarters() -> None:
            w.loop("part", i, add(i, integer(lanes)), lambda first: write(first, quarter), quarter)

        if WHOLE in self.vector.runs.out:
            w.branch(run_is(mark, WHOLE), lambda: write(i, lanes), in_quarters)
        else:
            in_quarters()

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
