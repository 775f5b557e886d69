"""The kernel of a copy between two layouts: `permute_launch`.

    block index, loops -> where a piece lies in both arrays
        rows      whole vectors; with non-temporal stores from the target's first full cache line to its last
        joined    past the caches: rows that follow each other in the target
        squares   for each cache line of columns: read squares, transpose them in registers, write their columns
        split     a vector of each of few rows whose elements lie between each other in the source, instead of squares
        merged    a vector of each of few rows, whose elements come to lie between each other in the target
        straight  past the caches: squares whose columns are whole cache lines of the target, written as they are
        overlapped  past the caches, where the second one has few ways: squares are gathered in the first one, and each
                  tile is written while the next one is transposed
        carried   past the caches: of columns that begin anywhere in a line, each line a window over two squares
        strip     past the caches, of long rows: the same, kept until whole cache lines of the target are there
        lines     past the caches, of long rows that begin anywhere in a line: each line is read and written once
        tile      past the caches, of short rows, or within them where rows share few sets of the first one: squares are
                  gathered in a stage until runs of the target are long

Sizes and strides are launch parameters: a kernel serves all arrays of a kind. What no full vector is left for is
reached by a vector that begins earlier and moves a few elements for the second time; nothing outside the arrays is
touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilewright.ir.scalars import BOOL, ScalarType
from tilewright.kernel.ir import (
    BlockIndex,
    Broadcast,
    Expression,
    Kernel,
    Prefetch,
    Shuffle,
    Store,
    VectorType,
    add,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine, power_of_two_at_least
from tilewright.passes.permute.carried import write_carried
from tilewright.passes.permute.choose import permute_form
from tilewright.passes.permute.form import BLOCKS, CHUNKS, COLUMNS, EDGE, INSIDE, OUTER, RUN, STRIPS, TILES, PermuteForm
from tilewright.passes.permute.interleaved import has_lines, split, write_merged, write_split
from tilewright.passes.permute.joined import write_joined
from tilewright.passes.permute.lines import write_lines
from tilewright.passes.permute.overlapped import OverlappedCopy
from tilewright.passes.permute.squares import square_columns
from tilewright.passes.permute.staged import write_tile
from tilewright.passes.permute.straight import write_straight
from tilewright.passes.permute.strips import Strip, write_strip
from tilewright.passes.permute.tiles import LINE, PermuteDimension
from tilewright.passes.permute.writer import SOURCE, TARGET, PermuteWriter, RunValue

ROW_BYTES = range(1 << 11, 1 << 17)  # of rows of which the next one is asked for
FOLLOWING = "following"  # where the tile after this one lies in the source
AFTER = "after"  # where in the run it does


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

    _overlapped: OverlappedCopy | None = None

    # --- where a piece lies

    def write(self) -> None:
        """The kernel's body."""
        form = self.form
        start = self.parameter("source_start", form.source_start)
        place: dict[str, Expression] = {
            SOURCE: start,
            TARGET: self.parameter("target_start", form.target_start),
            FOLLOWING: start,
            RUN: integer(0),
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
        if form.overlapped is not None:
            place[AFTER] = integer(0)
            self._overlapped = OverlappedCopy(self, form.overlapped)
        self._loops(0, indices[::-1], place, known)
        if self._overlapped is not None:
            self._overlapped.finish()

    def _loops(
        self, depth: int, indices: list[Expression], place: dict[str, Expression], known: dict[str, Expression]
    ) -> None:
        form = self.form
        if depth == len(form.loops):
            self._piece(place, known)
            return
        one = form.loops[depth]
        steps = {SOURCE: self.parameter("source_step", one.source), TARGET: self.parameter("target_step", one.target)}

        last = self.parameter("last", one.last) if one.over in (TILES, EDGE, RUN, COLUMNS) else None

        def body(index: Expression) -> None:
            inner = dict(place)
            if last is not None:
                part = self.parameter("part", one.part)
                later = self.let(operation("min", multiply(add(index, integer(1)), part), last), "later")
                index = self.let(operation("min", multiply(index, part), last), "begin")
                inner[FOLLOWING] = self.let(operation("select", operation("eq", index, last), place[FOLLOWING], add(
                    place[SOURCE], multiply(later, steps[SOURCE])
                )), "following")  # fmt: skip
                if AFTER in place:
                    more = multiply(later, steps[TARGET]) if one.over == RUN else integer(0)
                    inner[AFTER] = self.let(operation("select", operation("eq", index, last), place[AFTER], add(
                        place[RUN], more
                    )), "after")  # fmt: skip
            if one.over == RUN:
                inner[RUN] = self.let(add(place[RUN], multiply(index, steps[TARGET])), "row")
            for array in (SOURCE, TARGET):
                inner[array] = self.let(add(place[array], multiply(index, steps[array])), array)
            self._loops(depth + 1, indices, inner, {**known, one.over: index})

        if depth < len(indices):
            body(indices[depth])
        elif one.over == INSIDE:
            self.loop("i", integer(0), self._extent(BLOCKS, one.size, one.part, known)[0], body)
        else:
            self.loop("i", integer(0), self.parameter("count", one.size), body)

    def _extent(self, over: str, whole: int, part: int, known: dict[str, Expression]) -> tuple[Expression, Expression]:
        """Steps of a piece (the last one has the rest as well), and those from its beginning to the dimension's end."""
        size = self.parameter("extent", whole)
        if over not in known:
            return size, size
        count = next(one.size for one in self.form.loops if one.over == over)
        step, last = self.parameter("part", part), self.parameter("parts", count - 1)
        left = self.let(operation("sub", size, multiply(known[over], step)), "left")
        return self.let(operation("select", operation("eq", known[over], last), left, step), "extent"), left

    def _piece(self, place: dict[str, Expression], known: dict[str, Expression]) -> None:
        form, source, target = self.form, place[SOURCE], place[TARGET]
        if self._overlapped is not None:
            run = place[RUN], place[AFTER]
            self._overlapped.piece(source, target, place[FOLLOWING], run, known.get(COLUMNS, integer(0)))
            return
        if form.straight is not None:
            write_straight(self, form.straight, source, target, place[FOLLOWING], place[RUN], known.get(COLUMNS))
            return
        if form.carried is not None:
            write_carried(self, form.carried, source, target, place[FOLLOWING], known.get(RUN, integer(0)))
            return
        if form.tile is not None:
            write_tile(self, form.tile, source, target, place[FOLLOWING], known.get(EDGE))
            return
        if form.joined is not None:
            write_joined(self, form.joined, source, target, known.get(RUN, integer(0)))
            return
        count, left = self._extent(STRIPS, form.row.size, form.strip, known)
        if form.column is None:
            self._row(source, target, count)
            return
        width, _ = self._extent(CHUNKS, form.column.size, form.chunk, known)
        if form.merges:
            write_merged(self, source, target, width)
        elif form.lanes == 1:
            self._elements(source, target, count, width, form.column)
        elif form.splits and form.nontemporal and has_lines(self):
            write_split(self, source, target, count, form.column)
        elif form.nontemporal:
            strip = Strip(count, left, known.get(STRIPS), width)
            if form.by_lines:
                write_lines(self, source, target, strip, form.column)
                return
            write_strip(self, source, target, strip, form.column, self._line_by_line)
        else:
            self._squares(source, target, count, width, form.column)

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
        write = self._few if form.pieces else self.run
        if form.row.source == 0:
            value = self.let(load(self.source, source), "value")
            write(target, integer(0), count, lambda k, lanes, _: self._filled(value, lanes))
        elif form.row.source == -1:
            write(target, integer(0), count, lambda k, lanes, mask: self._turned(source, k, lanes, mask))
        else:
            self._copied_row(source, target, count)

    def _copied_row(self, source: Expression, target: Expression, count: Expression) -> None:
        """A row as it is; meanwhile the next one of a loop is asked for, where it lies apart and is neither so short
        that all of it is on its way before this one is written nor so long that the caches do not keep both."""
        form = self.form

        def read(k: Expression, lanes: int, mask: Expression | None) -> Expression:
            return self._read(add(source, k), lanes, mask)

        if form.pieces:
            self._few(target, integer(0), count, read)
            return
        step = form.loops[-1].source if form.loops and form.loops[-1].over == OUTER else 0
        if not (form.nontemporal and abs(step) > form.row.size and form.row.size * self.bytes in ROW_BYTES):
            self.run(target, integer(0), count, read)
            return
        far = self.let(add(source, self.parameter("ahead", step + form.lanes - 1)), "far")
        self.run(target, integer(0), count, read, lambda k: self.emit.emit(
            Prefetch(self.source, add(far, k), level=2)
        ))  # fmt: skip

    def _few(self, target: Expression, low: Expression, high: Expression, value: RunValue) -> None:
        """The same as `run` of few vectors, without a loop: all are read before they are written."""
        form = self.form
        starts = [add(low, integer(number * form.lanes)) for number in range(form.pieces - 1)]
        starts.append(self.let(operation("sub", high, integer(form.lanes)), "last"))
        found = [self.let(value(k, form.lanes, None), "piece") for k in starts]
        for k, one in zip(starts, found, strict=True):
            self.emit.emit(Store(self.target, add(target, k), one))

    def _filled(self, value: Expression, lanes: int) -> Expression:
        return value if lanes == 1 else Broadcast(value, VectorType(self.form.word, lanes))

    def _turned(self, source: Expression, k: Expression, lanes: int, mask: Expression | None) -> Expression:
        at = operation("sub", source, add(k, integer(lanes - 1)))
        if lanes == 1:
            return load(self.source, at)
        backwards = tuple(range(lanes - 1, -1, -1))
        if mask is not None:
            mask = self.let(Shuffle(mask, mask, backwards, VectorType(BOOL, lanes)), "backwards")
        vector = self.let(self._read(at, lanes, mask), "vector")
        return Shuffle(vector, vector, backwards, VectorType(self.form.word, lanes))

    def _read(self, at: Expression, lanes: int, mask: Expression | None) -> Expression:
        return replace(load(self.source, at, lanes), mask=mask)

    # --- columns

    def _elements(
        self, source: Expression, target: Expression, rows: Expression, columns: Expression, column: PermuteDimension
    ) -> None:
        """Atom by atom, in blocks of columns that are read from the same cache lines."""
        form = self.form
        row_from, row_to = self.parameter("row_from", form.row.source), self.parameter("row_to", form.row.target)
        from_step, to_step = self.parameter("from_step", column.source), self.parameter("to_step", column.target)

        # A vector is a power of two long: words after an atom go where the next one of the row will be written.
        longer = power_of_two_at_least(form.atom)
        spilled = longer if form.row.source >= longer > form.row.target == form.atom else 0

        def block(start: Expression) -> None:
            stop = self.let(operation("min", add(start, integer(form.width)), columns), "stop")

            def one(c: Expression) -> None:
                read = self.let(add(source, multiply(c, from_step)), "read")
                written = self.let(add(target, multiply(c, to_step)), "written")

                def atom(r: Expression, spilled: int = 0) -> None:
                    self.atom(
                        self.let(add(read, multiply(r, row_from)), "from"),
                        self.let(add(written, multiply(r, row_to)), "to"),
                        spilled,
                    )

                if not spilled:
                    self.loop("r", integer(0), rows, atom)
                    return
                last = self.let(operation("sub", rows, integer(1)), "last")
                self.loop("r", integer(0), last, lambda r: atom(r, spilled))
                atom(last)

            self.loop("c", start, stop, one)

        self.loop("block", integer(0), columns, block, step=form.width)

    def _squares(
        self, source: Expression, target: Expression, rows: Expression, columns: Expression, column: PermuteDimension
    ) -> None:
        """Blocks of `width` columns and all rows of the strip."""
        form = self.form
        step, to_step = self.parameter("row_from", form.row.source), self.parameter("to_step", column.target)

        def block(start: Expression) -> None:
            read = self.let(add(source, multiply(start, integer(form.atom))), "read")
            written = self.let(add(target, multiply(start, to_step)), "written")

            def group(r: Expression) -> None:
                first = self.let(add(read, multiply(r, step)), "first")
                to = self.let(add(written, multiply(r, integer(form.atom))), "to")
                if form.groups_ahead:
                    self._ask(to, to_step)
                if form.splits:
                    columns: Iterable[tuple[int, Expression]] = enumerate(split(self, first, form.width))
                else:
                    starts = [self.let(add(first, multiply(integer(i), step)), "row") for i in range(form.lanes)]
                    columns = square_columns(self, self.source, starts)
                for c, vector in columns:
                    place = add(to, multiply(integer(c), to_step))
                    self.put(self.target, self.let(place, "to"), vector)

            self.overlapping("r", rows, form.lanes, group)

        self._line_by_line(source, columns, block)

    def _ask(self, to: Expression, to_step: Expression) -> None:
        """Ask for the lines of the target that a later group of these columns is written to."""
        form = self.form
        ahead = self.let(add(to, integer(form.groups_ahead * form.lanes * form.atom)), "ahead")
        for c in range(form.width):
            self.emit.emit(Prefetch(self.target, add(ahead, multiply(integer(c), to_step))))

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
