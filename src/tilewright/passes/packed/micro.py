"""The register tile of the packed form: a panel of either side in, a tile of the output out.

    acc[i][j] = combine(acc[i][j], map(vector[k][i], broadcast scalar[k][j]))    for all k of the piece

Where the results go is the matter of store.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tilewright.ir.dataclass import dataclass
from tilewright.kernel.ir import Buffer, Expression, Prefetch, add, integer, load, multiply, operation
from tilewright.passes.items.launch_writer import STEPS_OF_ROUND
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.packed.ahead import TOGETHER, Ahead
from tilewright.passes.packed.assemble import start_assembly
from tilewright.passes.packed.blocks import BLOCK, LINE
from tilewright.passes.packed.combine import results, start
from tilewright.passes.packed.epilogue import consecutive_operands
from tilewright.passes.packed.on_the_way import is_packed_on_the_way
from tilewright.passes.packed.register_tile import steps_are_short, tile_at
from tilewright.passes.packed.runs import WHOLE
from tilewright.passes.packed.store import Place, has_fast_path
from tilewright.passes.packed.tiles import Part, groups_of, store_results, store_sums, sum_in_tiles, sums_of
from tilewright.passes.packed.turned import is_turned, write_turned
from tilewright.passes.packed.waiting import Accumulators, Edges, Scratch, Target
from tilewright.passes.packed.writer import PackedWriter, Side

LINES_OF_NEXT = 2  # cache lines of each of the next rows of the scalar side that are asked for
MOST_NEXT_ROWS = 8  # of more, the beginnings would take too much of the first cache, and of the time


@dataclass(frozen=True)
class PanelPair:
    """A block of either side in panels, whose products are summed over a piece of the sum.

    Attributes:
        w, vector, scalar, target: the kernel's parts.
        counts: elements of the vector block, of the scalar block, of the piece of the sum.
        start: the block's first element of the vector side, and where its results are in a row of scratch memory.
        edges: whether this piece is the first of each level of partial sums, and whether it is the last.
        no_nan: whether the map gives no nan on these panels, where that matters (see combine.py).
        ahead: what is asked for meanwhile, for the next block.
        begun: what the sums of each element of the vector block begin with, where that is not the neutral element.
    """

    w: PackedWriter
    vector: Side
    scalar: Side
    target: Target
    counts: tuple[Expression, Expression, Expression]
    start: tuple[Expression, Expression]
    edges: Edges
    no_nan: Expression | None
    ahead: Ahead | None
    begun: Buffer | None

    def place(self, first: tuple[Expression, Expression], target: Target | None = None) -> Place:
        """The register tile that begins there in either side."""
        return Place(self.w, (self.vector, self.scalar), target or self.target, first, self.edges, self.counts[:2])


def write_micro_kernels(pair: PanelPair) -> None:
    """The two loops over panels around the register tile, and the results."""
    w, form, zero = pair.w, pair.w.form, integer(0)
    tiles = _scratch(pair)
    if form.boxes is not None:
        _write_boxes(pair)
        return
    vector_panels, scalar_panels = (
        w.panels(pair.counts[0], pair.vector.width),
        w.panels(pair.counts[1], pair.scalar.width),
    )

    def tile(v: Expression, s: Expression) -> None:
        (_write_in_tiles if form.in_tiles else _write_tile)(pair, tiles, v, s)

    if form.part and not form.scalar_inner:
        w.loop("s", zero, scalar_panels, lambda s: _write_row_in_parts(pair, tiles, s, vector_panels))
    elif form.scalar_inner:
        _in_strips(w, vector_panels, scalar_panels, tile)
    else:
        w.loop("s", zero, scalar_panels, lambda s: w.loop("v", zero, vector_panels, lambda v: tile(v, s)))
    block = pair.place((zero, zero))

    def write_block() -> None:
        if is_turned(w, tiles[-1], block):
            write_turned(w, block, tiles[-1], pair.counts[1], pair.counts[0], pair.start[0])
        else:
            block.write_block(tiles[-1], pair.counts[1], pair.counts[0])

    if form.levels and form.written_by_blocks:
        w.emit.when(pair.edges[-1][1], write_block)
    elif form.buffered:
        write_block()


def _in_strips(
    w: PackedWriter,
    vector_panels: Expression,
    scalar_panels: Expression,
    tile: Callable[[Expression, Expression], None],
) -> None:
    """All tiles, panels of the scalar side innermost: of one strip after another, which the first cache holds."""
    zero = integer(0)

    def strip(begin: Expression, stop: Expression) -> None:
        w.loop("v", zero, vector_panels, lambda v: w.loop("s", begin, stop, lambda s: tile(v, s)))

    if not w.form.strip:
        strip(zero, scalar_panels)
        return
    length = w.parameter("strip", w.form.strip)

    def begun(begin: Expression) -> None:
        strip(begin, w.emit.let(operation("min", scalar_panels, add(begin, length)), "strip_end"))

    w.loop("strip", zero, scalar_panels, begun, length)


def _scratch(pair: PanelPair) -> list[Scratch]:
    """Where results wait: one for each level of partial sums."""
    w, form = pair.w, pair.w.form
    pitch: Expression = integer(form.vector_tile)
    held = form.vector_tile * form.rows
    if form.buffered or form.levels > 0:  # one more vector per row, so that rows do not share a cache set
        pitch, held = w.parameter("buffer_pitch", form.scratch_columns + form.lanes), form.scratch_capacity
    types = component_types(form.accumulator)
    return [
        Scratch(tuple(w.workspace("tile", one, held) for one in types), pitch, pair.start[1])
        for _ in range(max(1, form.levels))
    ]


def _write_tile(pair: PanelPair, tiles: Sequence[Scratch], v: Expression, s: Expression) -> None:
    """The register tile of panel v of the vector side and panel s of the scalar side."""
    w, form, vector, scalar = pair.w, pair.w.form, pair.vector, pair.scalar
    vector_first = w.emit.let(multiply(v, integer(vector.width)), "vector_first")
    scalar_first = w.emit.let(multiply(s, integer(scalar.width)), "scalar_first")
    place = pair.place((vector_first, scalar_first))
    collected = form.buffered or form.levels > 0
    late = collected or form.nontemporal or form.through_caches or form.lanes == 1 or form.any_shape
    soon = None if late else place.prefetch_row
    if late and not collected and consecutive_operands(form):
        soon = place.prefetch_operands
    if form.levels > 1 and form.lanes > 1:
        soon = partial(place.prefetch_waiting, tiles[0])
    asks_rows = form.scalar_rows and form.rows <= MOST_NEXT_ROWS
    follow = partial(_ask_next_rows, w, scalar, scalar_first, pair.counts[1]) if asks_rows else None
    narrow = None
    if form.tail < form.vectors:
        left = operation("sub", pair.counts[0], vector_first)
        narrow = w.emit.let(operation("le", left, integer(form.tail * form.lanes)), "narrow")
    ready = None
    if is_packed_on_the_way(w, vector):
        sticks_out = operation("gt", add(vector_first, integer(vector.width)), pair.counts[0])
        ready = w.emit.let(operation("or", operation("gt", s, integer(0)), sticks_out), "ready")
    if form.nontemporal and form.lanes > 1:
        place.prefetch_off_line()
    accumulators = _accumulate(pair, (vector_first, scalar_first), soon, follow, narrow, ready)
    rows, columns = _inside(pair, vector_first, scalar_first)
    tile, last = tiles[-1], pair.edges[-1][1]
    if form.levels:
        place.wait(tiles, accumulators, scalar_first, vector_first)
        if not form.written_by_blocks:
            w.emit.when(last, lambda: place.write_tile(tile, scalar_first, vector_first, rows, columns))
    elif form.buffered:
        place.spill(tile, accumulators, scalar_first, vector_first)
    else:
        place.write_results(tile, accumulators, rows, columns)


def _inside(pair: PanelPair, vector_first: Expression, scalar_first: Expression) -> tuple[Expression, Expression]:
    """Rows and columns of a register tile that are results."""
    w, vector, scalar = pair.w, pair.vector, pair.scalar
    rows = w.minimum(operation("sub", pair.counts[1], scalar_first), integer(scalar.width))
    return rows, w.minimum(operation("sub", pair.counts[0], vector_first), integer(vector.width))


def _write_row_in_parts(pair: PanelPair, tiles: Sequence[Scratch], s: Expression, panels: Expression) -> None:
    """All register tiles of panel s of the scalar side in tiles, over one part of the sum after another."""
    w, form, zero = pair.w, pair.w.form, integer(0)
    pitch = w.parameter("strip_pitch", -(-form.vector_block // form.vector_tile) * form.vector_tile + form.lanes)
    held = w.workspace("strip", form.accumulator, form.rows * (BLOCK + form.vector_tile + form.lanes))
    groups, length = groups_of(w, pair.counts[2]), w.parameter("part", form.part)

    def of_part(begin: Expression) -> None:
        end = w.emit.let(operation("min", groups, add(begin, length)), "part_end")
        first, last = operation("eq", begin, zero), operation("eq", end, groups)
        part = Part(Scratch((held,), pitch, zero), begin, end, w.emit.let(first, "first"), w.emit.let(last, "last"))
        w.loop("v", zero, panels, lambda v: _write_in_tiles(pair, tiles, v, s, part))

    w.loop("part", zero, groups, of_part, length)


def _write_in_tiles(
    pair: PanelPair, tiles: Sequence[Scratch], v: Expression, s: Expression, part: Part | None = None
) -> None:
    """The same where sums are in tiles, which give them to scratch memory only."""
    w, form, zero = pair.w, pair.w.form, integer(0)
    vector_first = w.emit.let(multiply(v, integer(pair.vector.width)), "vector_first")
    scalar_first = w.emit.let(multiply(s, integer(pair.scalar.width)), "scalar_first")
    place, sides = pair.place((vector_first, scalar_first)), (pair.vector, pair.scalar)
    collected = form.buffered or form.levels > 0
    at = (scalar_first, vector_first) if collected else (zero, zero)
    soon = None if collected else place.prefetch_row
    sum_in_tiles(w, sides, (vector_first, scalar_first), pair.counts, soon, part)
    if part is None:
        _bring_sums(pair, place, tiles, at)
    else:
        strip = partial(store_sums, w, part.strip, (zero, vector_first))
        w.branch(part.is_last, lambda: _bring_sums(pair, place, tiles, at), strip)


def _bring_sums(pair: PanelPair, place: Place, tiles: Sequence[Scratch], at: tuple[Expression, Expression]) -> None:
    """Sums in tiles to where they go: element `at` of scratch memory, or the output."""
    w, form, zero = pair.w, pair.w.form, integer(0)
    rows, columns = _inside(pair, place.vector_first, place.scalar_first)
    tile = tiles[-1]
    if form.levels:
        held = w.workspace("sums", form.accumulator, form.vector_tile * form.rows)
        sums = Scratch((held,), integer(form.vector_tile), zero)

        def add_sums() -> None:
            store_sums(w, sums, (zero, zero))
            place.spill(tiles[0], sums_of(w, sums), *at, add_to=True)

        w.branch(pair.edges[-len(tiles)][0], lambda: store_sums(w, tiles[0], at), add_sums)
        place.pass_on(tiles, sums_of(w, sums), *at)
        if not form.written_by_blocks:
            w.emit.when(pair.edges[-1][1], lambda: place.write_whole_rows(tile, *at, rows, columns))
    elif form.buffered:
        store_sums(w, tile, at)
    else:
        _write_tiles(pair, place, tile, rows, columns)


def _write_tiles(pair: PanelPair, place: Place, tile: Scratch, rows: Expression, columns: Expression) -> None:
    """Sums in tiles to the output: straight, where nothing is to be done with them, and all of them are results."""
    w, form, zero = pair.w, pair.w.form, integer(0)

    def through_memory() -> None:
        store_sums(w, tile, (zero, zero))
        place.write_whole_rows(tile, zero, zero, rows, columns)

    distance = form.row_distance
    if not has_fast_path(w) or distance is None or WHOLE not in pair.vector.runs.out:
        through_memory()
        return
    straight = operation("eq", rows, integer(form.rows))
    straight = operation("and", straight, place.has_whole_vectors(columns))
    if form.depth < form.contracted_total:
        straight = operation("and", straight, place.first)
    pitch = w.parameter("row_distance", distance)
    w.branch(straight, lambda: store_results(w, place, pitch), through_memory)


def _write_boxes(pair: PanelPair) -> None:
    """The loops over boxes, and over their panels, around the register tile."""
    w, vector, scalar, out = pair.w, pair.vector, pair.scalar, pair.target.out
    form, emit, counts, zero = w.form, w.emit, pair.counts, integer(0)
    boxes = form.boxes
    assert boxes is not None
    assembly = start_assembly(w, out)
    padded, size = w.parameter("v_box_padded", form.padded_box), w.parameter("v_box", boxes.vector)
    scalar_size = w.parameter("s_box", boxes.scalar)
    waiting = w.workspace("waiting", out.element, w.form.waiting_elements) if boxes.ragged else None
    tiles = form.padded_box // form.vector_tile * (boxes.scalar // form.rows)
    share = w.parameter("share", -(-boxes.vector * boxes.scalar // (form.lanes * tiles)))

    def box(vector_first: Expression, scalar_first: Expression) -> None:
        offsets = load(vector.out_table, vector_first), load(scalar.out_table, scalar_first)
        to = emit.let(add(pair.target.bases.out, add(*offsets)), "to")
        bases = replace(pair.target.bases, out=assembly.place(emit.let(add(*offsets), "offset")))
        target = Target(assembly.buffer, (), bases)

        def tile(i: Expression, j: Expression) -> None:
            at = emit.let(add(vector_first, i), "vector_at"), emit.let(add(scalar_first, j), "scalar_at")
            place = pair.place(at, target)
            accumulators = _accumulate(pair, at)
            assembly.share(share)
            if waiting is not None:
                place.spill(Scratch((waiting,), padded, zero), accumulators, j, i)
                return
            columns = w.minimum(operation("sub", size, i), integer(vector.width))
            place.write_registers(accumulators, columns)

        def columns(i: Expression) -> None:
            w.loop("s", zero, scalar_size, lambda j: tile(i, j), integer(scalar.width))

        w.loop("v", zero, padded, columns, integer(vector.width))
        if waiting is not None:
            assembly.spread(waiting, (vector, scalar), (vector_first, scalar_first))
        assembly.turn(to)

    def across(first: Expression) -> None:
        w.loop("s_box", zero, counts[1], lambda other: box(first, other), scalar_size)

    def along(first: Expression) -> None:
        w.loop("v_box", zero, counts[0], lambda other: box(other, first), padded)

    if boxes.scalar_inner:
        w.loop("v_box", zero, counts[0], across, padded)
    else:
        w.loop("s_box", zero, counts[1], along, scalar_size)
    assembly.rest()


def _accumulate(
    pair: PanelPair,
    first: tuple[Expression, Expression],
    soon: Callable[[Expression], None] | None = None,
    follow: Callable[[], None] | None = None,
    narrow: Expression | None = None,
    ready: Expression | None = None,
) -> Accumulators:
    """The sums of a register tile over a piece of the sum; of a `narrow` one only the first vectors, the others are
    padding. One whose vectors are not `ready` in their panel packs them on the way (on_the_way.py).

    `soon(j)` asks for the cache lines of row j of the output. A few rows are asked for between equal parts of the
    piece: all at once they would hold up the panels, which come through the same queue of misses, and the end of each
    part is a branch guessed wrong. The operands' lines for the next block are asked for there, too,
    and once all rows have been, `follow()` asks for what the next register tile begins with.
    """
    w, form, emit, ahead, depth = pair.w, pair.w.form, pair.w.emit, pair.ahead, pair.counts[2]
    accumulators = {
        (i, j): start(w, pair.begun, add(first[0], integer(i * form.lanes)))
        for j in range(form.rows)
        for i in range(form.vectors)
    }
    tile = tile_at(w, (pair.vector, pair.scalar), first, depth, accumulators, ready)

    def steps(no_nan: bool, vectors: int) -> None:
        if soon is None and ahead is None:
            tile.run(integer(0), depth, no_nan, vectors)
            return
        length: Expression = depth if ahead is None else operation("min", depth, ahead.period)
        together = min(form.rows, max(1, TOGETHER // form.vectors))
        if soon is not None:
            turns = -(-form.rows // together)
            part = operation("max", operation("floordiv", depth, integer(turns + 1)), integer(1))
            length = operation("min", length, part)
        if steps_are_short(w):
            rounds = operation("floordiv", length, integer(STEPS_OF_ROUND))
            length = operation("max", multiply(rounds, integer(STEPS_OF_ROUND)), integer(STEPS_OF_ROUND))
        length = emit.let(length, "length")
        row = emit.declare(integer(0), "row")

        def rows_from(first: Expression) -> None:
            assert soon is not None
            for number in range(together):
                soon(operation("min", add(first, integer(number)), integer(form.rows - 1)))

        def next_tile() -> None:
            if follow is not None and vectors == form.vectors:
                emit.when(operation("lt", row, integer(form.rows + together)), follow)

        def part_of(start: Expression) -> None:
            if soon is not None:
                w.branch(operation("lt", row, integer(form.rows)), lambda: rows_from(row), next_tile)
                emit.assign(row, add(row, integer(together)))
            if ahead is not None:
                ahead.ask()
            stop = emit.let(operation("min", depth, add(start, length)), "stop")
            tile.run(start, stop, no_nan, vectors)

        w.loop("part", integer(0), depth, part_of, length)

    def either(vectors: int) -> None:
        if pair.no_nan is None:
            steps(False, vectors)
        else:
            w.branch(pair.no_nan, lambda: steps(True, vectors), lambda: steps(False, vectors))

    if narrow is None:
        either(form.vectors)
    else:
        w.branch(narrow, lambda: either(form.tail), lambda: either(form.vectors))
    return {place: results(w, one) for place, one in accumulators.items()}


def _ask_next_rows(w: PackedWriter, scalar: Side, scalar_first: Expression, count: Expression) -> None:
    """Ask for where the scalar side's next rows begin: a processor finds out by itself how a row goes on, but waits for
    the beginning of each.
    """
    last = operation("sub", count, integer(1))
    for j in range(w.form.rows):
        row = w.emit.let(operation("min", add(scalar_first, integer(w.form.rows + j)), last), "next_row")
        start = w.row_start(scalar, row)
        for panel in scalar.panels:
            for line in range(LINES_OF_NEXT):
                w.emit.emit(Prefetch(panel, add(start, integer(line * LINE // panel.element.bytes))))
