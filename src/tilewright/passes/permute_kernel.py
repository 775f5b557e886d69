"""The kernel of a copy between two layouts: `permute_launch`.

    block index, loops -> where a piece lies in both arrays
        rows      whole vectors; with non-temporal stores from the target's first full cache line to its last
        squares   for each cache line of columns: read squares, transpose them in registers, write their columns, or,
                  past the caches: keep them until whole cache lines of the target are there

Sizes and strides are launch parameters: a kernel serves all arrays of a kind.

A piece that does not end with a cache line of the target leaves the line to the piece after it, and reads so many rows
more to complete its own last one. What no full vector is left for is reached by a vector that begins earlier and moves
a few elements for the second time; nothing outside the arrays is touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tilewright.ir.scalars import ScalarType
from tilewright.kernel.ir import (
    BlockIndex,
    Broadcast,
    Buffer,
    Expression,
    Kernel,
    Prefetch,
    Shuffle,
    Space,
    Store,
    VectorType,
    add,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.permute_form import (
    BLOCKS,
    CHUNKS,
    INSIDE,
    LINE,
    STRIP_LINES,
    STRIPS,
    PermuteDimension,
    PermuteForm,
    permute_form,
)
from tilewright.passes.permute_writer import SOURCE, TARGET, PermuteWriter

AHEAD = 4  # cache lines of a row of the source that are asked for before their turn


def permute_launch(
    element: ScalarType,
    shape: Sequence[int],
    source: Sequence[int],
    target: Sequence[int],
    offsets: tuple[int, int],
    machine: Machine,
) -> Launch:
    """The launch that copies an array to another layout; its buffers are `source` and `target`.

    Args:
        element: the type of the elements; their bits are moved.
        shape: the sizes.
        source, target: the strides in elements; those of the target do not let elements overlap.
        offsets: the indices of the first elements.
        machine: a CPU.
    """
    return _known_launch(element, tuple(shape), tuple(source), tuple(target), offsets, machine)


@functools.lru_cache(maxsize=256)
def _known_launch(
    element: ScalarType,
    shape: tuple[int, ...],
    source: tuple[int, ...],
    target: tuple[int, ...],
    offsets: tuple[int, int],
    machine: Machine,
) -> Launch:
    """The same launch again for the same copy: a loop of the host makes it in every round."""
    if 0 in shape:
        shape, source, target = (1,), (1,), (1,)
        return _launch(permute_form(element, shape, source, target, machine, offsets), blocks=0)
    return _launch(permute_form(element, shape, source, target, machine, offsets))


def _launch(form: PermuteForm, blocks: int | None = None) -> Launch:
    writer = _Writer(form)
    writer.write()
    what = "rows" if form.column is None else "squares" if form.lanes > 1 else "elements"
    kernel = Kernel(
        name=f"tw_copy_{what}_{form.word}",
        buffers=(writer.source, writer.target),
        scalars=tuple(writer.parameters),
        arrays=tuple(writer.arrays),
        body=writer.emit.statements,
    )
    return Launch(kernel, form.blocks if blocks is None else blocks, (SOURCE, TARGET), tuple(writer.values))


class _Writer(PermuteWriter):
    """The loops, rows, and squares."""

    # --- where a piece lies

    def write(self) -> None:
        """The kernel's body."""
        form = self.form
        place: dict[str, Expression] = {
            SOURCE: self.parameter("source_start", form.source_start),
            TARGET: self.parameter("target_start", form.target_start),
        }
        shared = form.loops[: form.parallel]
        indices: list[Expression] = []
        rest: Expression = BlockIndex()
        for number in reversed(range(len(shared))):
            if number == 0:
                indices.append(self.let(rest, "block"))
                break
            size = self.parameter("size", shared[number].size)
            flat = self.let(rest, "rest")
            indices.append(self.let(operation("mod", flat, size), "index"))
            rest = operation("floordiv", flat, size)
        known: dict[str, Expression] = {}
        self._loops(0, indices[::-1], place, known)

    def _loops(
        self, depth: int, indices: list[Expression], place: dict[str, Expression], known: dict[str, Expression]
    ) -> None:
        form = self.form
        if depth == len(form.loops):
            self._piece(place[SOURCE], place[TARGET], known)
            return
        one = form.loops[depth]
        steps = {SOURCE: self.parameter("source_step", one.source), TARGET: self.parameter("target_step", one.target)}

        def body(index: Expression) -> None:
            inner = {
                array: self.let(add(place[array], multiply(index, steps[array])), array) for array in (SOURCE, TARGET)
            }
            self._loops(depth + 1, indices, inner, {**known, one.over: index})

        if depth < len(indices):
            body(indices[depth])
        elif one.over == INSIDE:
            self.loop("i", integer(0), self._extent(BLOCKS, one.size, one.part, known)[0], body)
        else:
            self.loop("i", integer(0), self.parameter("count", one.size), body)

    def _extent(self, over: str, whole: int, part: int, known: dict[str, Expression]) -> tuple[Expression, Expression]:
        """Atoms of a piece, and those from its beginning to the dimension's end."""
        size = self.parameter("extent", whole)
        if over not in known:
            return size, size
        count = next(one.size for one in self.form.loops if one.over == over)
        step, last = self.parameter("part", part), self.parameter("parts", count - 1)
        left = self.let(operation("sub", size, multiply(known[over], step)), "left")
        is_last = operation("eq", known[over], last)
        return self.let(operation("select", is_last, left, step), "extent"), left

    def _piece(self, source: Expression, target: Expression, known: dict[str, Expression]) -> None:
        form = self.form
        count, left = self._extent(STRIPS, form.row.size, form.strip, known)
        if form.column is None:
            self._row(source, target, count)
            return
        width, _ = self._extent(CHUNKS, form.column.size, form.chunk, known)
        column = form.column
        if form.lanes == 1:
            self._elements(source, target, count, width, column)
            return
        if form.is_aligned and form.nontemporal and not form.is_short and STRIPS in known:
            source, target, count, left = self._on_lines(source, target, count, left, known[STRIPS])

        def squares(past: bool) -> None:
            self.past = past
            self._squares(source, target, (count, left), width, known.get(STRIPS), column)

        if form.nontemporal and form.is_short:
            is_odd = operation("ne", self.to_line(target), integer(0))
            self.when(is_odd, lambda: squares(False), lambda: squares(True))
        else:
            squares(form.nontemporal)

    def _on_lines(
        self, source: Expression, target: Expression, count: Expression, left: Expression, strip: Expression
    ) -> tuple[Expression, Expression, Expression, Expression]:
        """The strip moved so that it begins with a cache line of the target; the first one is longer by as much."""
        form = self.form
        shift = self.let(operation("floordiv", self.to_line(target), integer(form.atom)), "shift")
        is_first = operation("eq", strip, integer(0))
        before = self.let(operation("select", is_first, integer(0), shift), "before")
        rest = self.let(operation("sub", left, before), "left")
        longer = add(operation("sub", count, before), shift)
        count = self.let(operation("select", operation("eq", count, left), rest, longer), "count")
        source = add(source, multiply(before, self.parameter("row_from", form.row.source)))
        target = add(target, multiply(before, integer(form.atom)))
        return self.let(source, "source"), self.let(target, "target"), count, rest

    # --- rows

    def _row(self, source: Expression, target: Expression, count: Expression) -> None:
        form = self.form
        if form.lanes == 1:
            from_step, to_step = (
                self.parameter("from_step", form.row.source),
                self.parameter("to_step", form.row.target),
            )
            self.loop("k", integer(0), count, lambda k: self.atom(
                add(source, multiply(k, from_step)), add(target, multiply(k, to_step))
            ))  # fmt: skip
            return
        if form.row.source == 0:
            value = self.let(load(self.source, source), "value")
            self.run(target, integer(0), count, lambda k, lanes: self._filled(value, lanes))
        elif form.row.source == -1:
            self.run(target, integer(0), count, lambda k, lanes: self._turned(source, k, lanes))
        else:
            self.run(target, integer(0), count, lambda k, lanes: load(self.source, add(source, k), lanes))

    def _filled(self, value: Expression, lanes: int) -> Expression:
        return value if lanes == 1 else Broadcast(value, VectorType(self.form.word, lanes))

    def _turned(self, source: Expression, k: Expression, lanes: int) -> Expression:
        at = operation("sub", source, add(k, integer(lanes - 1)))
        value = load(self.source, at, lanes)
        if lanes == 1:
            return value
        vector = self.let(value, "vector")
        return Shuffle(vector, vector, tuple(range(lanes - 1, -1, -1)), VectorType(self.form.word, lanes))

    # --- columns

    def _elements(
        self, source: Expression, target: Expression, rows: Expression, columns: Expression, column: PermuteDimension
    ) -> None:
        """Atom by atom, in blocks of columns that are read from the same cache lines."""
        form = self.form
        row_from, row_to = self.parameter("row_from", form.row.source), self.parameter("row_to", form.row.target)
        from_step, to_step = self.parameter("from_step", column.source), self.parameter("to_step", column.target)

        def block(start: Expression) -> None:
            stop = self.let(operation("min", add(start, integer(form.width)), columns), "stop")

            def one(c: Expression) -> None:
                read = self.let(add(source, multiply(c, from_step)), "read")
                written = self.let(add(target, multiply(c, to_step)), "written")

                def atom(r: Expression) -> None:
                    self.atom(
                        self.let(add(read, multiply(r, row_from)), "from"),
                        self.let(add(written, multiply(r, row_to)), "to"),
                    )

                self.loop("r", integer(0), rows, atom)

            self.loop("c", start, stop, one)

        self.loop("block", integer(0), columns, block, step=form.width)

    def _squares(
        self,
        source: Expression,
        target: Expression,
        rows: tuple[Expression, Expression],
        columns: Expression,
        strip: Expression | None,
        column: PermuteDimension,
    ) -> None:
        """Blocks of `width` columns and all rows of the strip."""
        form, emit = self.form, self.emit
        step, to_step = self.parameter("row_from", form.row.source), self.parameter("to_step", column.target)
        count, left = rows
        reach = count
        pitch = 0
        if self.past:
            reach = self._reach(count, left)
            # A cache line more than its content, so that the columns do not share a set of the first cache.
            pitch = ((2 * STRIP_LINES + 2) * LINE) // self.bytes
            stage = Buffer(emit.name("stage"), form.word, Space.WORKSPACE, form.width * pitch)
            self.arrays.append(stage)

        def block(start: Expression) -> None:
            read = self.let(add(source, multiply(start, integer(form.atom))), "read")
            written = self.let(add(target, multiply(start, to_step)), "written")

            ahead = self._ahead(start, columns) if self.past else integer(0)

            def group(r: Expression) -> None:
                first = self.let(add(read, multiply(r, step)), "first")
                starts = [self.let(add(first, multiply(integer(i), step)), "row") for i in range(form.lanes)]
                if self.past:
                    for one in starts:
                        emit.emit(Prefetch(self.source, add(one, ahead), level=2))
                at = self.let(multiply(r, integer(form.atom)), "at")
                for c in _covering(form.width, form.columns):
                    for j, vector in enumerate(self._square([add(one, integer(c * form.atom)) for one in starts])):
                        if self.past:
                            emit.emit(Store(stage, add(at, integer((c + j) * pitch)), vector))
                        else:
                            to = add(add(written, at), multiply(integer(c + j), to_step))
                            emit.emit(Store(self.target, self.let(to, "to"), vector))

            self.overlapping("r", reach, form.lanes, group)
            if self.past:
                self.loop("c", integer(0), integer(form.width), lambda c: self._flush(stage, pitch, c, (
                    self.let(add(written, multiply(c, to_step)), "to"), count, left, strip
                )))  # fmt: skip

        self._line_by_line(source, columns, block)

    def _line_by_line(self, source: Expression, columns: Expression, block: Callable[[Expression], None]) -> None:
        """Blocks of `width` columns, which begin with cache lines of the source where its rows do so together."""
        form = self.form
        if not form.reads_aligned:
            self.overlapping("block", columns, form.width, block)
            return
        words = self.up_to(source, LINE, self.source)
        odd = self.let(operation("floordiv", words, integer(form.atom)), "odd")
        none = operation("eq", odd, integer(0))
        begin = operation("select", none, integer(0), operation("sub", odd, integer(form.width)))
        last = self.let(operation("sub", columns, integer(form.width)), "last")
        self.loop("block", self.let(begin, "begin"), columns, lambda c: block(
            self.let(operation("min", operation("max", c, integer(0)), last), "block")
        ), step=form.width)  # fmt: skip

    def _ahead(self, start: Expression, columns: Expression) -> Expression:
        """Words from a place in the source to what is read some steps later: in this piece or in the next one."""
        form = self.form
        far = form.width * AHEAD
        here = add(start, integer(far))
        to_next = self.parameter("to_next", form.loops[-1].source if form.loops else 0)
        beyond = add(operation("sub", integer(far * form.atom), multiply(columns, integer(form.atom))), to_next)
        ends = operation("ge", here, columns)
        return self.let(operation("select", ends, self.let(beyond, "beyond"), integer(far * form.atom)), "ahead")

    def _reach(self, count: Expression, left: Expression) -> Expression:
        """Rows that a strip reads: its own, and those that complete its last cache lines."""
        form = self.form
        if form.is_aligned:
            return count
        return self.let(operation("min", left, add(count, integer(form.granule))), "reach")

    def _flush(
        self,
        stage: Buffer,
        pitch: int,
        c: Expression,
        place: tuple[Expression, Expression, Expression, Expression | None],
    ) -> None:
        """Write one column from its first cache line to that of the next strip."""
        form = self.form
        target, count, left, strip = place
        words = self.let(multiply(count, integer(form.atom)), "words")
        low: Expression = integer(0)
        high = words
        if strip is not None:
            is_first = operation("eq", strip, integer(0))
            low = self.let(operation("select", is_first, integer(0), self.to_line(target)), "low")
            is_last = operation("eq", count, left)
            beyond = add(words, self.to_line(self.let(add(target, words), "next")))
            high = self.let(operation("select", is_last, words, beyond), "high")
        base = self.let(multiply(c, integer(pitch)), "base")
        self.run(target, low, high, lambda k, lanes: load(stage, add(base, k), lanes))

    def _square(self, starts: Sequence[Expression]) -> list[Expression]:
        """A vector for each column, from a piece of each row: pieces side by side, and squares of them transposed."""
        form = self.form
        size = form.columns
        pieces = [self.let(load(self.source, one, size * form.atom), "piece") for one in starts]
        rows = [self._joined(pieces[number::size]) for number in range(size)]
        distance = 1
        while distance < size:
            for number in range(size):
                if not number & distance:
                    one, two = rows[number], rows[number + distance]
                    rows[number] = self._mixed(one, two, distance, False)
                    rows[number + distance] = self._mixed(one, two, distance, True)
            distance *= 2
        return rows

    def _joined(self, pieces: Sequence[Expression]) -> Expression:
        found = list(pieces)
        while len(found) > 1:
            lanes = 2 * self.form.columns * self.form.atom * len(pieces) // len(found)
            kind = VectorType(self.form.word, lanes)
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [self.let(Shuffle(one, two, tuple(range(lanes)), kind), "joined") for one, two in pairs]
        return found[0]

    def _mixed(self, one: Expression, two: Expression, distance: int, upper: bool) -> Expression:
        """Rows i and i + distance of every square, after their blocks off the diagonal changed places."""
        form = self.form
        lanes: list[int] = []
        for lane in range(form.lanes):
            is_upper = bool(lane & distance)
            place = lane + (distance if upper and not is_upper else -distance if is_upper and not upper else 0)
            begin = (place + (form.lanes if is_upper else 0)) * form.atom
            lanes += range(begin, begin + form.atom)
        return self.let(Shuffle(one, two, tuple(lanes), VectorType(form.word, self.vector)), "mixed")


def _covering(count: int, width: int) -> list[int]:
    """Beginnings of pieces of `width` that cover `count`; the last one reaches back where it has to."""
    return [min(start, count - width) for start in range(0, count, width)]
