"""The kernel of a `MatrixVectorForm`.

DOTS, for each tile of rows at each point of the outer dimensions:

    part[j][v] = neutral;  for the other contracted dimensions: for each step along the rows, each row j and vector v:
    part[j][v] = combine(part[j][v], map(matrix[row j, step], vector[step]));  then all lanes of a row are folded

and where the other operand has rows of its own, `columns`, so for each of a few of them, c: part[c][j][v].

SUMS, for each piece of the output:

    out[piece] = neutral;  for each few contracted rows j, for each vector of the piece:
    out[...] = combine(out[...], combine over j of map(matrix[row j, ...], vector[row j]))

If the rows that are read together begin at the same place in a cache line, the matrix is read from the beginning of one
on (by DOTS: unless rows are short, few, or so long that their sums are trees), since a vector that lies across lines
takes two accesses to the first cache. So lanes of DOTS sum what others do where rows begin with lines; they are turned
before they are folded, and results have the same bits wherever the matrix lies.

The end of a row that is no whole vector is masked. Either way a result is the fold of several partial results; an
epilogue follows on vectors of results before they are stored, or on the piece when all of it is added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, VectorType, add, element_of, integer, multiply, operation
from tilewright.kernel.launch import Launch
from tilewright.machine.model import power_of_two_at_least
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.sum_trees import levels_of
from tilewright.passes.matrix_vector.form import MatrixVectorForm, Way
from tilewright.passes.matrix_vector.writer import Mask, RowWriter
from tilewright.passes.packed.blocks import LINE

ZERO = integer(0)
STEPS, GROUPS = 128, 64
"""Of a node on the lowest level of the tree of a long sum: steps along rows, and groups of rows that are added up. Rows
that are no whole group are added in the last node.
"""


def write_matrix_vector_kernel(form: MatrixVectorForm, name: str = "contraction") -> Launch:
    """The kernel of a form and everything that its launch needs."""
    w = RowWriter(form)
    what = "sums of rows" if form.way is Way.DOTS else "rows summed"
    w.emit.emit(kernel.Comment(f"{what}, {form.rows} at a time, in steps of {form.vectors} vectors of {form.lanes}"))
    write = _dots if form.way is Way.DOTS else _sums
    if form.serial and form.blocks > 1:
        w.loop("block", ZERO, w.parameter("blocks", form.blocks), lambda block: write(w, block))
        return w.launch(name, 1)
    write(w, kernel.BlockIndex())
    return w.launch(name, form.blocks)


# --- rows along which sums run ----------------------------------------------------------------------------------------


def _dots(w: RowWriter, block: Expression) -> None:
    """The tiles of rows of one block."""
    form, emit = w.form, w.emit
    bases, piece = w.bases(block)
    if form.side_by_side is None or form.pieces == 1:
        _dots_with_columns(w, bases)
        return
    total = w.parameter("tiles", form.pieces)
    first: Expression = ZERO
    stop: Expression = total
    if form.chunk < form.pieces:
        step = w.parameter("chunk", form.chunk)
        first = emit.let(multiply(piece, step), "first")
        stop = emit.let(operation("min", add(first, step), total), "stop")
    last = w.parameter("last_row", form.row_count - form.rows)

    def tile(number: Expression) -> None:
        row = number
        if form.apart == 1:
            row = emit.let(operation("min", multiply(number, integer(form.rows)), last), "row")
        _dots_with_columns(w, w.moved(bases, form.side_by_side, row))

    w.loop("tile", first, stop, tile)


def _dots_with_columns(w: RowWriter, bases: dict[str, Expression]) -> None:
    """The results of `rows` rows with all columns, if the other operand has such; the last few may be moved back."""
    form, emit = w.form, w.emit
    if form.column_count <= form.column_tile:
        _dots_of(w, bases)
        return
    tile = integer(form.column_tile)
    last = w.parameter("last_column", form.column_count - form.column_tile)

    def columns(start: Expression) -> None:
        _dots_of(w, w.moved(bases, form.columns, emit.let(operation("min", start, last), "column")))

    w.loop("columns", ZERO, w.parameter("column_count", form.column_count), columns, tile)


def _dots_of(w: RowWriter, bases: dict[str, Expression]) -> None:
    """The results of `rows` rows and `column_tile` columns, the first of which are at `bases`."""
    form, emit = w.form, w.emit
    tile = [(c, j) for c in range(form.column_tile) for j in range(form.rows)]
    parts = {place: [w.accumulator("part") for _ in range(form.vectors)] for place in tile}
    width = form.step * form.vectors

    def over_row(bases: dict[str, Expression], start: Expression, stop: Expression) -> None:
        places = [_row(w, bases, j) for j in range(form.rows)]
        columns = [_column(w, bases, c)["vector"] for c in range(form.column_tile)]
        shared = form.side_by_side is None or form.stride(form.side_by_side, "vector") == 0

        def step(at: Expression, vectors: int, mask: Mask | None) -> None:
            for v in range(vectors):
                here = add(at, integer(v * form.step))
                held: list[Value | None] = [None] * form.column_tile
                if w.vector is not None and shared:
                    held = [w.read_vector(column, here, mask) for column in columns]
                for j, place in enumerate(places):
                    if w.vector is not None and not shared:
                        held = [w.read_vector(place["vector"], here, mask)]
                    matrix = w.read_row(w.matrix, form.matrix.element, add(place["matrix"], here), mask)
                    for c, vector in enumerate(held):
                        part = parts[c, j][v]
                        # lanes beyond the row keep what they have; products of zeros in them change nothing
                        kept = mask if form.dots is None else None
                        w.assign(part, w.stepped(w.snapshot(part, "before"), matrix, vector), kept)

        if line is not ZERO:
            before = operation("sub", line, integer(form.lanes))  # of the line that the row begins in
            emit.when(operation("lt", ZERO, line), lambda: step(emit.let(before, "at"), 1, w.head_mask(line)))
            w.in_steps(line, w.length, step)
            return
        end = operation("min", multiply(stop, integer(width)), w.length)
        w.in_steps(emit.let(multiply(start, integer(width)), "start"), emit.let(end, "stop"), step)

    steps = -(-form.along_size // width)
    loops = w.tree_of(steps, STEPS)
    depth = range(levels_of(loops))
    levels = [{place: [w.accumulator("level") for _ in row] for place, row in parts.items()} for _ in depth]
    line = ZERO if levels else _first_line(w, bases, ZERO, w.length)

    def fold(level: int) -> None:
        below = levels[level - 1] if level else parts
        for place in tile:
            for total, other in zip(levels[level][place], below[place], strict=True):
                w.assign(total, w.combined(w.snapshot(total, "above"), w.snapshot(other, "below")))
                w.assign(other, w.neutral())

    w.over_tree(loops, bases, w.parameter("steps", steps), over_row, fold)
    if line is not ZERO:
        first = emit.let(operation("sub", integer(form.lanes), line), "first")
        for place in tile:
            (part,) = parts[place][0]
            assert isinstance(part.type, VectorType)
            emit.assign(part, emit.let(kernel.Window(part, part, first, part.type), "turned"))
    totals = levels[-1] if levels else parts
    for c in range(form.column_tile):
        _store_dots(w, _column(w, bases, c), [_one(w, totals[c, j]) for j in range(form.rows)])


def _column(w: RowWriter, bases: dict[str, Expression], c: int) -> dict[str, Expression]:
    return w.moved(bases, w.form.columns, integer(c)) if c else bases


def _row(w: RowWriter, bases: dict[str, Expression], j: int) -> dict[str, Expression]:
    return w.moved(bases, w.form.side_by_side, w.row_starts[j]) if j else bases


def _one(w: RowWriter, parts: Sequence[Sequence[Name]]) -> Value:
    """The partial results of a row in one vector, folded by halves."""
    left = [w.snapshot(one, "part") for one in parts]
    while len(left) > 1:
        half = len(left) // 2
        left = [w.combined(left[i], left[i + half]) for i in range(half)]
    return left[0]


def _store_dots(w: RowWriter, bases: dict[str, Expression], rows: list[Value]) -> None:
    form, side = w.form, w.form.side_by_side
    sums = _folded(w, rows)
    if len(rows) == 1:
        w.store(w.out, bases["out"], w.finished(sums, bases, None))
        return
    assert side is not None
    further = [form.stride(side, str(number)) for number in range(len(form.contraction.epilogue_operands))]
    together = form.apart == 1 and len(rows) & (len(rows) - 1) == 0
    if {0, 1}.issuperset(further) if together else not any(further):
        result = w.finished(sums, bases, side)
        if together and form.stride(side, "out") == 1:
            w.store(w.out, bases["out"], result)
            return
        for j in range(len(rows)):
            w.store(w.out, _row(w, bases, j)["out"], _lane(result, j))
        return
    for j in range(len(rows)):
        place = _row(w, bases, j)
        w.store(w.out, place["out"], w.finished(_lane(sums, j), place, None))


def _lane(value: Value, number: int) -> Value:
    return tuple(kernel.Lane(part, number, element_of(part.type)) for part in value)


def _folded(w: RowWriter, rows: list[Value]) -> Value:
    """All lanes of each vector folded: a vector of one result for each, of one vector a scalar; the last result is
    repeated where they are not a power of two.

    Two vectors are folded into one, which has the halves of either side by side: so each step halves the work.
    """
    width, size = w.form.lanes, w.form.lanes
    held = rows + rows[-1:] * (power_of_two_at_least(len(rows)) - len(rows))
    while len(held) > 1:
        groups = width // size
        size //= 2
        starts = [group * 2 * size for group in range(2 * groups)]  # of both vectors, one after the other
        held = [_halves(w, held[i], held[i + 1], starts, size, width) for i in range(0, len(held), 2)]
    (one,) = held
    while size > 1:
        groups = width // size
        size //= 2
        if groups == 1 and size == 1:
            turned = tuple(kernel.Shuffle(part, part, (1, 0), part.type) for part in one)  # type: ignore[arg-type]
            return tuple(
                w.emit.let(kernel.Lane(part, 0, element_of(part.type)), "sum") for part in w.combined(one, turned)
            )
        width //= 2
        one = _halves(w, one, one, [group * 2 * size for group in range(groups)], size, width)
    return one


def _halves(w: RowWriter, x: Value, y: Value, starts: Sequence[int], size: int, width: int) -> Value:
    """combine(the first halves, the second halves) of the groups of 2*size lanes that begin at `starts`."""
    picked = []
    for half in (0, 1):
        lanes = tuple(start + half * size + lane for start in starts for lane in range(size))
        pairs = zip(x, y, strict=True)
        picked.append(
            tuple(kernel.Shuffle(one, other, lanes, VectorType(element_of(one.type), width)) for one, other in pairs)
        )
    return w.combined(picked[0], picked[1])


# --- rows that are added up -------------------------------------------------------------------------------------------


def _sums(w: RowWriter, block: Expression) -> None:
    """One piece of the output."""
    form, emit = w.form, w.emit
    bases, piece = w.bases(block)
    start: Expression = ZERO
    stop: Expression = w.length
    if form.chunk < form.pieces:
        step = w.parameter("chunk", form.chunk)
        start = emit.let(multiply(piece, step), "start")
        stop = emit.let(operation("min", add(start, step), w.length), "stop")
    groups = max(1, form.groups)
    loops = w.tree_of(groups, GROUPS)
    room = power_of_two_at_least(min(form.chunk, form.along_size))
    levels = [(w.level(room), operation("sub", ZERO, start)) for _ in range(levels_of(loops))]
    sums = _Sums(w, bases, start, stop, ((w.out, bases["out"]), *levels))
    sums.begin()
    count = w.parameter("groups", groups)

    def add_groups(bases: dict[str, Expression], first: Expression, end: Expression) -> None:
        def group(number: Expression) -> None:
            row = number if form.apart > 1 else multiply(number, integer(form.rows))
            _add_few(w, w.moved(bases, form.side_by_side, row), form.rows, start, stop)

        w.loop("group", first, end, group)
        if form.groups * form.rows < form.row_count:
            last = operation("eq", end, count)
            emit.when(emit.let(last, "last"), lambda: _add_rest(w, bases, start, stop))

    w.over_tree(loops, bases, count, add_groups, sums.fold)
    if levels or form.contraction.epilogue is not None:
        sums.end()


@dataclass(frozen=True)
class _Sums:
    """The sums of a piece of the output, from `start` to `stop`.

    Attributes:
        places: where they are and begin, level by level: those of the lowest one lie in the output itself.
    """

    w: RowWriter
    bases: dict[str, Expression]
    start: Expression
    stop: Expression
    places: Sequence[tuple[Buffer, Expression]]

    def _each_vector(self, at: Expression, vectors: int) -> Iterator[Expression]:
        for v in range(vectors):
            yield self.w.emit.let(add(at, integer(v * self.w.form.lanes)), "here")

    def begin(self) -> None:
        """All levels are neutral."""
        w = self.w

        def step(at: Expression, vectors: int, mask: Mask | None) -> None:
            for buffer, origin in self.places:
                for here in self._each_vector(add(origin, at), vectors):
                    w.store(buffer, here, w.neutral(), mask)

        w.in_steps(self.start, self.stop, step)

    def fold(self, level: int) -> None:
        """Add the sums of a level to those of the next one, and begin it anew."""
        w, scalar = self.w, self.w.form.accumulator
        (low, below), (high, above) = self.places[level : level + 2]

        def step(at: Expression, vectors: int, mask: Mask | None) -> None:
            for here in self._each_vector(at, vectors):
                source, target = w.emit.let(add(below, here), "from"), w.emit.let(add(above, here), "to")
                total = w.combined(w.read(high, scalar, target, mask), w.read(low, scalar, source, mask))
                w.store(high, target, total, mask)
                w.store(low, source, w.neutral(), mask)

        w.in_steps(self.start, self.stop, step)

    def end(self) -> None:
        """Write the results of the sums of the highest level."""
        w, form = self.w, self.w.form
        buffer, origin = self.places[-1]

        def step(at: Expression, vectors: int, mask: Mask | None) -> None:
            for here in self._each_vector(at, vectors):
                sums = w.read(buffer, form.accumulator, w.emit.let(add(origin, here), "from"), mask)
                total = w.finished(sums, self.bases, form.along, here, mask)
                w.store(w.out, w.emit.let(add(self.bases["out"], here), "to"), total, mask)

        w.in_steps(self.start, self.stop, step)


def _first_line(w: RowWriter, bases: dict[str, Expression], start: Expression, stop: Expression) -> Expression:
    """Where in a piece of the rows the first cache line of the matrix begins; `start` if it is not read from there."""
    form, emit = w.form, w.emit
    if not (form.turns_lanes if form.way is Way.DOTS else form.begins_with_lines):
        return start
    width = form.matrix.element.bytes
    address = add(multiply(add(bases["matrix"], start), integer(width)), kernel.Address(w.matrix))
    before = operation("and", operation("sub", ZERO, address), integer(LINE - 1))
    line = add(start, operation("floordiv", before, integer(width)))
    return emit.let(operation("min", line, stop), "line")


def _add_rest(w: RowWriter, bases: dict[str, Expression], start: Expression, stop: Expression) -> None:
    """The rows that are no whole group."""
    form = w.form
    first = w.parameter("whole_rows", form.groups * form.rows)
    end = w.parameter("row_count", form.row_count)

    def one(row: Expression) -> None:
        _add_few(w, w.moved(bases, form.side_by_side, row), 1, start, stop)

    w.loop("row", first, end, one)


def _add_few(w: RowWriter, bases: dict[str, Expression], count: int, start: Expression, stop: Expression) -> None:
    form, emit = w.form, w.emit
    line = _first_line(w, bases, start, stop)
    places = [_row(w, bases, j) for j in range(count)]
    scalars = w.vector is not None and form.stride(form.along, "vector") == 0
    fixed: list[Value | None] = [None] * count
    if scalars:
        assert w.vector is not None
        fixed = [w.read_everywhere(w.vector, form.vector.element, place["vector"]) for place in places]

    def step(at: Expression, vectors: int, mask: Mask | None) -> None:
        for v in range(vectors):
            here = emit.let(add(at, integer(v * form.lanes)), "here")
            total: Value | None = None
            for j, place in enumerate(places):
                vector = fixed[j]
                if w.vector is not None and not scalars:
                    vector = w.read_vector(place["vector"], here, mask)
                matrix = w.read(w.matrix, form.matrix.element, add(place["matrix"], here), mask)
                total = w.mapped(matrix, vector) if total is None else w.stepped(total, matrix, vector)
            assert total is not None
            where = add(bases["out"], here)
            w.store(w.out, where, w.combined(w.read(w.out, form.accumulator, where, mask), total), mask)

    if line is not start:
        emit.when(operation("lt", start, line), lambda: step(start, 1, w.tail_mask(line, start)))
    w.in_steps(line, stop, step)
