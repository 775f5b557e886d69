"""The register tile of the direct form: the whole sum of `width` by `rows` results. store.py stores them.

acc[i][j] = combine(acc[i][j], map(vector side[v + i, k], broadcast scalar side[s + j, k]))    for all k

Of complex numbers either part is broadcast, and multiplied by a vector of its own (pairs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Expression, Name, add, integer, load, multiply, operation
from tilewright.passes.direct.form import LINE, rows_are_one_run
from tilewright.passes.direct.pairs import turned_pairs
from tilewright.passes.direct.panels import Panel
from tilewright.passes.direct.shared_vectors import SharedVectors, combine, neutral_vector
from tilewright.passes.direct.writer import DirectWriter, Step
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.items.sum_trees import PieceLoop, grows_errors, levels_of, tree_loops
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.packed.two_sides import Bases

ZERO = integer(0)
Accumulators: TypeAlias = dict[tuple[int, int], Name]


@dataclass(frozen=True)
class Edge:
    """Which lanes of a vector are inside its dimension: a mask, and whether they are all or any."""

    mask: Expression
    whole: Expression
    some: Expression


@dataclass(frozen=True)
class Place:
    """A tile: where the block's arrays begin, its first element and row, and the panels that it reads.

    `ahead` is where what is prefetched at each step lies, from this tile's vectors on; or `requests` write what
    asks for more at each step. `old_columns` and `old_rows` are
    how many of its first elements and rows the tile before has too. All tiles but the first begin `back` elements
    earlier than they would (None: 0). `edges` tell which lanes of each vector of a tile that sticks out are inside.
    """

    bases: Bases
    v: Expression
    s: Expression
    vectors: Panel | None
    scalars: Panel | None
    old_columns: Expression
    old_rows: Expression
    q: Expression = ZERO
    old_group: Expression = ZERO
    ahead: tuple[Expression, ...] = ()
    requests: tuple[Callable[[Step], None], ...] = ()
    back: Expression | None = None
    edges: tuple[Edge, ...] = ()

    def mask(self, w: DirectWriter, number: int) -> Expression | None:
        """The lanes of a vector of the tile that are inside its dimension; None for all."""
        return self.edges[number].mask if self.edges else w.mask_of(number)


def starts(lanes: Sequence[int]) -> list[int]:
    """Where each vector of the tile begins."""
    return [sum(lanes[:number]) for number in range(len(lanes))]


def accumulate(w: DirectWriter, place: Place, begun: Callable[[Accumulators], None] | None = None) -> Accumulators:
    """The sums of one tile, in registers; `begun` gives them what they begin with."""
    form, emit = w.form, w.emit
    accumulators = {
        (i, j): emit.declare(neutral_vector(w, lanes), "sum")
        for j in range(form.rows)
        for i, lanes in enumerate(form.lanes[: form.own_vectors])
    }
    if begun is not None:
        begun(accumulators)
    shared = SharedVectors(w) if form.shared_rows > 1 else None
    vector_base = emit.let(add(place.bases.vector, multiply(place.v, w.stride(form.vector, "vector"))), "vector_at")
    stride = integer(0) if form.scalar is None else w.stride(form.scalar, "scalar")
    start = add(place.bases.scalar, place.v) if form.elementwise else place.bases.scalar
    scalar_base = emit.let(add(start, multiply(place.s, stride)), "scalar_at")
    rows = [emit.let(multiply(integer(j), stride), "row") for j in range(form.rows)]

    offsets = w.column_offsets("vector", place.q)

    def scalar_element(one: Step, along: Expression, row: int, part: int) -> Expression:
        if place.scalars is None:
            return load(w.scalar_source, add(add(along, rows[row]), integer(part)))
        at = add(multiply(one.number, integer(place.scalars.pitch)), integer(row * form.parts + part))
        return load(place.scalars.buffer, at)

    def step(one: Step) -> None:
        for request in place.requests:
            request(one)
        if form.rows_first:
            along = emit.let(add(scalar_base, one.scalar), "along")
            elements = [_broadcasts(w, scalar_element(one, along, j, 0)) for j in range(form.rows)]
            for i, column in enumerate(_columns(w, place, vector_base, one, offsets)):
                sums = [accumulators[i, j] for j in range(form.rows)]
                for total, element in zip(sums, elements, strict=True):
                    combine(w, total, column, element[i])
                for total in sums:  # with nothing to wait for, LLVM would read all vectors first
                    emit.emit(kernel.Assign(total.name, total, settled=True))
            return
        columns = list(_columns(w, place, vector_base, one, offsets))
        if shared is not None:
            shared.begin(columns.pop())
        along = emit.let(add(scalar_base, one.scalar), "along")
        factors = [columns] if form.parts == 1 else [columns, [turned_pairs(w, column) for column in columns]]
        for j in range(form.rows):
            if form.elementwise:
                wide = _vectors_of_row(w, place, add(along, rows[j]))
                for i, column in enumerate(columns):
                    combine(w, accumulators[i, j], column, wide[i])
                continue
            for part, vectors in enumerate(factors):
                wide = _broadcasts(w, scalar_element(one, along, j, part))
                for i, vector in enumerate(vectors):
                    combine(w, accumulators[i, j], vector, wide[i])
            if shared is not None:
                shared.add(j, wide[-1])

    loops = tree_loops([constant(one.size) for one in form.contracted])
    if grows_errors(form.contraction.combine) and levels_of(loops):
        sums = (*accumulators.values(), *(() if shared is None else shared.sums))
        _accumulate_tree(w, sums, step, loops)
    else:
        w.over_sum(step)
    if shared is not None:
        accumulators |= {(form.own_vectors, j): shared.of_row(j) for j in range(form.rows)}
    return accumulators


def _accumulate_tree(
    w: DirectWriter, sums: Sequence[Name], step: Callable[[Step], None], loops: Sequence[PieceLoop]
) -> None:
    """A long sum as a tree, whose upper levels lie in scratch memory; the registers hold all of it at the end."""
    form, emit = w.form, w.emit
    levels = levels_of(loops)
    element = component_types(form.accumulator)[0]
    room = form.rows * sum(form.lanes)
    memory = [w.level(number, element, room) for number in range(levels)]
    parts = []
    place = 0
    for total in sums:
        assert isinstance(total.type, kernel.VectorType)
        lanes = total.type.lanes
        parts.append((total, integer(place), lanes, emit.let(neutral_vector(w, lanes), "neutral")))
        place += lanes

    def fold(level: int) -> None:
        for total, at, lanes, nothing in parts:
            below: Expression = total
            if level:
                below = emit.let(load(memory[level - 1], at, lanes), "below")
                emit.emit(kernel.Store(memory[level - 1], at, nothing))
            above = emit.let(load(memory[level], at, lanes), "above")
            pair = ((above,), (emit.snapshot(below, "below"),))
            ((joined,),) = lower_lambda_vector(form.contraction.combine, pair, lanes, emit)
            emit.emit(kernel.Store(memory[level], at, joined))
            if not level:
                emit.assign(total, nothing)

    for buffer in memory:
        for _, at, _, nothing in parts:
            emit.emit(kernel.Store(buffer, at, nothing))
    w.over_pieces(step, loops, fold)
    for total, at, lanes, _ in parts:
        emit.assign(total, load(memory[-1], at, lanes))


def request_rows(w: DirectWriter, place: Place, tile: Expression) -> Callable[[Step], None]:
    """What asks at each step of the sum for some of the next tile's rows, along which the sum runs: all at once they
    would wait for each other. `tile` is the number of this tile of vectors among those that have the same rows.
    """
    form, emit = w.form, w.emit
    line = LINE // (form.parts * w.scalar_source.element.bytes)
    stride = integer(0) if form.scalar is None else w.stride(form.scalar, "scalar")
    if form.onward:
        at = add(multiply(place.s, stride), w.stride(form.outer[-1], "scalar"))
    else:
        at = multiply(add(place.s, integer(form.rows)), stride)
    start = emit.let(add(place.bases.scalar, at), "next_rows")
    if rows_are_one_run(form):
        return _request_run(w, w.scalar_source, start, form.parts * form.rows * form.contracted_total, tile)
    rows = [emit.let(multiply(integer(j), stride), "row") for j in range(form.rows)]

    def across(step: Step) -> None:
        def lines() -> None:
            at = emit.let(add(start, multiply(step.number, integer(form.parts))), "ahead")
            for row in rows:
                emit.emit(kernel.Prefetch(w.scalar_source, add(at, row)))

        emit.when(operation("eq", operation("and", step.number, integer(line - 1)), integer(0)), lines)

    return across


def request_output(w: DirectWriter, place: Place, tile: Expression) -> Callable[[Step], None]:
    """What asks at each step of the sum for some of the lines that the next tile's rows are written to, in one run."""
    form = w.form
    assert form.scalar is not None
    rows = multiply(add(place.s, integer(form.rows)), w.stride(form.scalar, "out"))
    start = w.emit.let(add(place.bases.out, rows), "next_results")
    return _request_run(w, w.out, start, form.rows * form.vector_size, tile)


def request_turned(w: DirectWriter, place: Place) -> Callable[[Step], None]:
    """What asks at each step of the sum for a line that this tile is written to, where it is turned."""
    form, emit = w.form, w.emit
    stride = w.stride(form.vector, "out")
    at = add(place.bases.out, multiply(place.v, stride))
    if form.scalar is not None:
        at = add(at, multiply(place.s, w.stride(form.scalar, "out")))
    start = emit.let(at, "results")
    each = -(-form.width // form.contracted_total)

    def along(step: Step) -> None:
        for which in range(each):
            number = add(multiply(step.number, integer(each)), integer(which))
            line = operation("min", number, integer(min(form.width, form.vector_size) - 1))
            emit.emit(kernel.Prefetch(w.out, emit.let(add(start, multiply(line, stride)), "ahead")))

    return along


def _request_run(
    w: DirectWriter, buffer: Buffer, start: Expression, length: int, tile: Expression
) -> Callable[[Step], None]:
    """Ask for `length` elements from `start` on, evenly in all steps of all tiles of vectors, of which this is one."""
    form, emit = w.form, w.emit
    advance = -(-length // (form.contracted_total * w.tiles))
    steps: Expression = integer(1)
    for one in w.sums:
        steps = multiply(steps, one)
    begin = emit.let(add(start, multiply(multiply(tile, steps), integer(advance))), "run")

    def along(step: Step) -> None:
        at = emit.let(add(begin, multiply(step.number, integer(advance))), "ahead")
        for place in range(0, advance, LINE // buffer.element.bytes):
            emit.emit(kernel.Prefetch(buffer, add(at, integer(place))))

    return along


def _vectors_of_row(w: DirectWriter, place: Place, at: Expression) -> list[Expression]:
    """The scalar side's vector for each vector of the tile: one for all where these lie side by side elsewhere."""
    lanes = w.form.lanes
    found: list[Expression] = []
    for number, start in enumerate(starts(lanes)):
        if w.form.columns is not None and found:
            found.append(found[0])
            continue
        value = load(w.scalar_source, add(at, integer(start)), lanes[number])
        value = kernel.Load(value.buffer, value.index, value.type, mask=place.mask(w, number))
        found.append(w.emit.let(value, "scalar"))
    return found


def _columns(
    w: DirectWriter, place: Place, base: Expression, step: Step, offsets: Sequence[Expression]
) -> Iterator[Expression]:
    """The vectors of one step of the sum, each read when it is asked for."""
    lanes, panel = w.form.lanes, place.vectors
    if panel is not None:
        at = w.emit.let(add(panel.start, multiply(step.number, integer(panel.pitch))), "at")
        for start, width in zip(starts(lanes), lanes, strict=True):
            value = load(panel.buffer, add(at, integer(start)), width, aligned=True)
            yield w.emit.let(value, "vector")
        return
    at = w.emit.let(add(base, step.vector), "at")
    for number, (offset, width) in enumerate(zip(offsets, lanes, strict=True)):
        value = load(w.vector_source, add(at, offset), width)
        yield w.emit.let(kernel.Load(value.buffer, value.index, value.type, mask=place.mask(w, number)), "vector")
    for further in place.ahead:
        w.emit.emit(kernel.Prefetch(w.vector_source, add(at, further), level=2))


def lines_ahead(w: DirectWriter, distance: Expression, number: Expression) -> tuple[Expression, ...]:
    """What the row tile of this number prefetches at each step of the sum: its share of the lines that the next tile's
    vectors lie on, which begin `distance` after this one's. So requests come evenly, while all row tiles are computed.

    Where the next tile is this one's neighbour, and that spares requests, those are asked for in which its vectors end:
    if tiles begin within a line, the first one has been read.
    """
    form = w.form
    if not form.prefetched:
        return ()
    line = LINE // w.vector_source.element.bytes
    whole = -(-form.width // line)
    most = -(-(form.width - 1) // line) + 1  # a tile that begins within a line lies on one more
    each, fewer = -(-most // form.scalar_tiles), -(-whole // form.scalar_tiles)
    adjacent = form.collected is None and fewer < each
    each = fewer if adjacent else each
    found = []
    for i in range(each):
        place = multiply(add(multiply(number, integer(each)), integer(i)), integer(line))
        place = add(place, integer(line - 1 if adjacent else 0))
        found.append(w.emit.let(add(distance, operation("min", place, integer(form.width - 1))), "ahead"))
    return tuple(found)


def _broadcasts(w: DirectWriter, element: Expression) -> list[Expression]:
    """The element in all lanes, for each vector of the tile; narrower vectors are parts of the widest."""
    form = w.form
    vectors = (*form.lanes[:-1], form.lanes[-1] * form.shared_rows)
    widest = max(vectors)
    type_ = kernel.element_of(element.type)
    wide = w.emit.let(kernel.Broadcast(element, kernel.VectorType(type_, widest)), "scalar")
    return [
        wide if lanes == widest else kernel.Shuffle(wide, wide, tuple(range(lanes)), kernel.VectorType(type_, lanes))
        for lanes in vectors
    ]
