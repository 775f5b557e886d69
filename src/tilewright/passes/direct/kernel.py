"""The direct CPU form of a contraction, written from a `DirectForm`.

    for each point of the outer dimensions and chunk of either side (the blocks of the launch):
        for each tile of one side: copy what must be copied into a panel
            for each tile of the other side: the register tile over the whole sum; store

Sizes and strides are launch parameters, so that shapes share kernels; the tile and the kinds of feeding are constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.kernel.ir import BlockIndex, Buffer, Comment, Expression, add, integer, multiply, operation
from tilewright.kernel.launch import Launch
from tilewright.machine.model import power_of_two_at_least
from tilewright.passes.direct.collect import (
    Columns,
    Target,
    block_columns,
    output_target,
    prefetch_collected,
    request_piece,
    store_collected,
)
from tilewright.passes.direct.collected_boxes import box_target, copy_box
from tilewright.passes.direct.form import COLLECTED_ELEMENTS, DirectForm, Results, results_are_one_run
from tilewright.passes.direct.next_pieces import PieceRequests
from tilewright.passes.direct.next_points import PointRequests
from tilewright.passes.direct.panels import Panel, pack_scalars, pack_vectors
from tilewright.passes.direct.store import beyond_vector, edges_at, prefetch_vectors, spill, store_turned, store_vectors
from tilewright.passes.direct.sum_pieces import WaitingSums, in_pieces
from tilewright.passes.direct.tile import Place, accumulate, lines_ahead, request_output, request_rows, request_turned
from tilewright.passes.direct.writer import DirectWriter
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.packed.two_sides import Bases
from tilewright.runtime.flat_plan import IN_PLACE


def write_direct_kernel(form: DirectForm) -> Launch:
    """The kernel of a form and everything that its launch needs."""
    w = DirectWriter(form)
    w.emit.emit(Comment(f"fed directly, register tile of {' + '.join(map(str, form.lanes))} by {form.rows}"))
    vector_panel = w.panel("vector_panel", form.vector_operand) if form.vector_packed else None
    scalar_panel = w.panel("scalar_panel", form.scalar_operand) if form.scalar_packed else None

    def write(number: Expression) -> None:
        bases, ranges, collected = _block_coordinates(w, number)
        points = PointRequests(w, bases) if form.points_asked and form.blocks[-2:] == (1, 1) else None
        block = _Block(w, bases, ranges, vector_panel, scalar_panel, collected, points)
        if form.piece:
            in_pieces(w, bases, lambda part, at, sums: replace(block, w=part, bases=at, waiting=sums).vectors_outside())
        elif form.boxed:
            block.collect_box(scratch_tile(w))
        elif collected is not None:
            block.collect(collected)
        elif form.scalar_outer:
            block.rows_outside()
        else:
            block.vectors_outside()

    blocks = math.prod(form.blocks)
    name = "contraction"
    if w.further and form.results is Results.VECTORS:  # each of which one tile alone stores (`_is_written_once`)
        name = IN_PLACE
    if form.serial and blocks > 1:
        w.loop("block", integer(0), w.parameter("blocks", blocks), write)
        return w.launch(name, 1)
    write(BlockIndex())
    return w.launch(name, blocks)


@dataclass(frozen=True)
class _Collected:
    """The elements along the output's unit stride that this block collects, and the scratch memory for them."""

    tile: Buffer
    first: Expression
    count: Expression


@dataclass(frozen=True)
class _Block:
    """The loops over the tiles of one block."""

    w: DirectWriter
    bases: Bases
    ranges: list[tuple[Expression, Expression] | None]
    vector_panel: Buffer | None
    scalar_panel: Buffer | None
    collected: _Collected | None
    points: PointRequests | None
    waiting: WaitingSums | None = None

    def rows_outside(self) -> None:
        """For each tile of rows all tiles of vectors, whose panels are made once for all rows."""
        w = self.w
        pitch = self._panel_pitch()
        if self.vector_panel is not None:

            def packed(block: _Block, v: Expression, number: Expression, old: Expression) -> None:
                block._packed(v, multiply(number, pitch))

            self._vector_tiles(packed, self._back(integer(0)))

        def rows(s: Expression, number: Expression, old_rows: Expression) -> None:
            scalars = None if self.scalar_panel is None else pack_scalars(w, self.scalar_panel, self.bases, s)

            back = self._back(s)

            def tile(block: _Block, v: Expression, number: Expression, old: Expression) -> None:
                vectors = None
                if self.vector_panel is not None:
                    start = w.emit.let(multiply(number, pitch), "panel")
                    vectors = Panel(self.vector_panel, start, block.w.form.pitch)
                place = Place(self.bases, v, s, vectors, scalars, old, old_rows, back=back)
                block._write(place, number)

            if w.form.in_lines:
                assert back is not None
                self._in_lines(s, old_rows, scalars, back)
            else:
                self._vector_tiles(tile, back)

        self._scalar_tiles(rows)

    def _in_lines(self, s: Expression, old_rows: Expression, scalars: Panel | None, back: Expression) -> None:
        """The tiles of row `s`, all of which begin with a whole vector of the output's memory."""
        w = self.w
        assert self.ranges[1] is not None

        def at(number: Expression) -> None:
            v = w.emit.let(operation("sub", multiply(number, integer(w.form.width)), back), "v_at")
            place = Place(self.bases, v, s, None, scalars, integer(0), old_rows)
            inside = operation("and", operation("ge", v, integer(0)), operation("le", v, w.last_column))
            w.branch(
                inside,
                lambda: self._write(place, number),
                lambda: self._write(replace(place, edges=edges_at(w, v)), number),
            )

        w.loop("v_tile", *self.ranges[1], at)

    def vectors_outside(self) -> None:
        """For each tile of vectors, whose panel is made first, all tiles of rows."""
        next_tile = integer(self.w.form.width)
        back = self._back(integer(0))
        pieces = PieceRequests(self.w, self.bases) if self.w.form.in_runs else None
        requests = () if pieces is None else (pieces.ask,)

        def columns(block: _Block, v: Expression, v_number: Expression, old_columns: Expression) -> None:
            vectors = block._packed(v, integer(0))
            if pieces is not None:
                pieces.begin(v, v_number)

            def group(q: Expression, number: Expression, old_group: Expression) -> None:
                def tile(s: Expression, number: Expression, old_rows: Expression) -> None:
                    ahead = () if pieces else lines_ahead(block.w, next_tile, number)
                    place = Place(self.bases, v, s, vectors, None, old_columns, old_rows, q, old_group, ahead)
                    which = add(multiply(v_number, integer(block.w.form.scalar_tiles)), number)
                    block._write(replace(place, back=back, requests=requests), integer(0), which)

                self._scalar_tiles(tile)

            self._groups(group)

        self._vector_tiles(columns, back)

    def collect(self, collected: _Collected) -> None:
        """The collected results of the block, and all of them stored."""
        piece = block_columns(self.w, self.ranges[1])
        self._collect(self.bases, collected, piece, output_target(self.w, self.bases, piece, collected.first))

    def collect_box(self, tile: Buffer) -> None:
        """All results of the collected dimension at each point of the joined one in a box, which is copied then."""
        w, form = self.w, self.w.form
        assert form.collected is not None
        box = w.workspace("box", w.out.element, power_of_two_at_least(form.box_elements))
        piece = block_columns(w, self.ranges[1])
        size = w.parameter("w_size", constant(form.collected.size))
        lanes = form.lanes[0]

        def at(joined: Expression) -> None:
            base: Expression = self.bases.vector
            if form.joined is not None:
                base = w.emit.let(add(base, multiply(joined, w.stride(form.joined, "vector"))), "base")

            def group(first: Expression) -> None:
                count = w.emit.let(operation("min", integer(lanes), operation("sub", size, first)), "w_count")
                target = box_target(w, box, piece, joined, first)
                self._collect(replace(self.bases, vector=base), _Collected(tile, first, count), piece, target)

            w.loop("w_first", integer(0), size, group, integer(lanes))

        w.loop("joined", integer(0), integer(form.joined_chunk), at)
        copy_box(w, box, piece, self.bases)

    def _collect(self, at: Bases, collected: _Collected, piece: Columns, target: Target) -> None:
        """For each tile of vectors the collected ones, one after another; then all of them are stored."""
        w, form = self.w, self.w.form
        assert form.collected is not None
        stride = w.stride(form.collected, "vector")
        pitch = form.lanes[0] * form.pitch * form.rows
        tiles = w.parameter("s_tiles_pitch", form.scalar_tiles * pitch)
        zero = integer(0)

        def one(which: Expression) -> None:
            moved = multiply(add(collected.first, which), stride)
            bases = replace(at, vector=w.emit.let(add(at.vector, moved), "base"))
            requests = (request_piece(w, piece, add(bases.vector, stride)),) if form.in_runs else ()

            def columns(_: _Block, v: Expression, group: Expression, old: Expression) -> None:
                vectors = None
                if self.vector_panel is not None:
                    vectors = pack_vectors(w, self.vector_panel, bases.vector, v, zero)
                start = add(multiply(group, tiles), multiply(which, integer(form.pitch)))
                start = w.emit.let(start, "start")

                def rows(s: Expression, number: Expression, old: Expression) -> None:
                    into = w.emit.let(add(start, multiply(number, integer(pitch))), "to")
                    ahead = () if requests else lines_ahead(w, stride, number)
                    place = Place(bases, v, s, vectors, None, zero, zero, ahead=ahead, requests=requests)
                    if form.out_prefetched:
                        prefetch_collected(w, place, piece, which, collected.first)
                    spill(w, collected.tile, into, accumulate(w, place))

                self._scalar_tiles(rows)

            self._vector_tiles(columns)

        w.loop("collected", zero, collected.count, one)

        def turn_columns(_: _Block, v: Expression, group: Expression, old: Expression) -> None:
            def turn(s: Expression, number: Expression, old: Expression) -> None:
                start = w.emit.let(add(multiply(group, tiles), multiply(number, integer(pitch))), "from")
                place = Place(at, v, s, None, None, zero, zero)
                store_collected(w, place, target, collected.tile, start, collected.count)

            self._scalar_tiles(turn)

        self._vector_tiles(turn_columns)

    def _write(self, place: Place, tile: Expression, which: Expression | None = None) -> None:
        """Compute and store a tile; `tile` is its number among those that have the same rows, `which` among all."""
        w, form = self.w, self.w.form
        requests = [request_rows(w, place, tile)] if form.rows_prefetched else []
        if form.out_prefetched and results_are_one_run(form):
            requests.append(request_output(w, place, tile))
        elif form.out_prefetched and form.results is Results.TURNED:
            requests.append(request_turned(w, place))
        elif form.out_prefetched:
            prefetch_vectors(w, place)
        if self.points is not None:
            requests.append(self.points.ask)
        place = replace(place, requests=(*place.requests, *requests))
        store = store_turned if form.results is Results.TURNED else store_vectors
        if self.waiting is None or which is None:
            store(w, place, accumulate(w, place))
            return
        waiting, at = self.waiting, self.waiting.place(which)
        sums = accumulate(w, place, lambda sums: waiting.bring(sums, at))
        w.branch(waiting.is_last, lambda: store(w, place, sums), lambda: waiting.keep(sums, at))

    def _packed(self, v: Expression, into: Expression) -> Panel | None:
        if self.vector_panel is None:
            return None
        return pack_vectors(self.w, self.vector_panel, self.bases.vector, v, self.w.emit.let(into, "into"))

    def _panel_pitch(self) -> Expression:
        form = self.w.form
        return self.w.parameter("panel_size", form.contracted_total * form.pitch) if form.vector_packed else integer(0)

    def _scalar_tiles(self, write: Callable[[Expression, Expression, Expression], None]) -> None:
        form = self.w.form
        _tiles(self.w, "s", self.ranges[0], form.rows, form.scalar_tiles, self.w.last_row, write)

    def _groups(self, write: Callable[[Expression, Expression, Expression], None]) -> None:
        form = self.w.form
        bounds = (integer(0), self.w.parameter("q_tiles", form.column_tiles)) if form.column_tiles > 1 else None
        _tiles(self.w, "q", bounds, len(form.lanes), form.column_tiles, self.w.last_group, write)

    def _back(self, s: Expression) -> Expression | None:
        """How much earlier tiles begin: with whole vectors of the output's memory, at row `s`."""
        form = self.w.form
        return beyond_vector(self.w, self.bases, s) if form.realigned else None

    def _vector_tiles(
        self, write: Callable[[_Block, Expression, Expression, Expression], None], back: Expression | None = None
    ) -> None:
        """`write(block, start, number, old)` for the tiles of vectors; the narrower last one is written by a block of
        such tiles, after the loop over the others.
        """
        w, form, bounds = self.w, self.w.form, self.ranges[1]
        if form.tail == form.lanes:
            _tiles(w, "v", bounds, form.width, form.vector_tiles, w.last_column, partial(write, self), back)
            return
        assert bounds is not None
        last = w.parameter("v_last", form.vector_tiles - 1)
        whole = bounds[0], w.emit.let(operation("min", bounds[1], last), "v_whole")
        _tiles(w, "v", whole, form.width, form.vector_tiles, w.last_column, partial(write, self))
        narrow = replace(self, w=w.of_tail())

        def tail() -> None:
            start = narrow.w.last_column
            old = operation("sub", multiply(last, integer(form.width)), start)
            write(narrow, start, operation("sub", last, bounds[0]), w.emit.let(old, "old"))

        w.emit.when(operation("gt", bounds[1], last), tail)


def _tiles(
    w: DirectWriter,
    hint: str,
    bounds: tuple[Expression, Expression] | None,
    step: int,
    tiles: int,
    last: Expression,
    write: Callable[[Expression, Expression, Expression], None],
    back: Expression | None = None,
) -> None:
    """`write(start, number, old)` for the tiles of a range; the last of all ends with its dimension, so that its
    first `old` elements belong to the tile before too. All but the first begin `back` elements earlier.
    """
    if tiles == 1:
        write(integer(0), integer(0), integer(0))
        return
    assert bounds is not None

    def at(number: Expression) -> None:
        wanted = w.emit.let(multiply(number, integer(step)), "wanted")
        if back is not None:
            wanted = w.emit.let(operation("max", operation("sub", wanted, back), integer(0)), "wanted")

        def tile() -> None:
            start = w.emit.let(operation("min", wanted, last), f"{hint}_at")
            write(start, operation("sub", number, bounds[0]), operation("sub", wanted, start))

        if back is None:
            tile()
        else:  # where tiles begin as early as that, the one before may end with the dimension
            w.emit.when(operation("lt", wanted, add(last, integer(step))), tile)

    w.loop(f"{hint}_tile", *bounds, at)


def _block_coordinates(
    w: DirectWriter, rest: Expression
) -> tuple[Bases, list[tuple[Expression, Expression] | None], _Collected | None]:
    """Where the arrays of block number `rest` begin, its tiles along the scalar and the vector side, its collection."""
    form, emit = w.form, w.emit
    ranges: list[tuple[Expression, Expression] | None] = []
    collected = None
    joined: Expression = integer(0)
    sides = [("v", form.vector_tiles, form.vector_chunk), ("s", form.scalar_tiles, form.scalar_chunk)]
    if form.collected is not None:
        if not form.boxed:
            collected, rest = _collection(w, rest)
        elif form.joined is not None:
            joined, rest = _joined_group(w, rest)
        sides[1] = ("s", form.scalar_tiles, form.scalar_tiles)
    outer_total = math.prod(constant(one.size) for one in form.outer)
    coordinates: list[Expression] = []
    for hint, tiles, chunk in sides:
        if hint == "s" and form.onward:
            point, rest = _outer_point(w, len(form.outer) - 1, rest)
            coordinates.append(point)
        if tiles == 1:
            ranges.append(None)
            continue
        count = -(-tiles // chunk)
        total = w.parameter(f"{hint}_tiles", tiles)
        if count == 1:
            ranges.append((integer(0), total))
            continue
        step, chunks = w.parameter(f"{hint}_chunk", chunk), w.parameter(f"{hint}_chunks", count)
        start = emit.let(multiply(operation("mod", rest, chunks), step), f"{hint}_first")
        rest = emit.let(operation("floordiv", rest, chunks), "rest")
        ranges.append((start, emit.let(operation("min", add(start, step), total), f"{hint}_stop")))
    for position in reversed(range(len(form.outer) - len(coordinates))):
        if position == 0:
            coordinates.append(rest if outer_total > 1 else integer(0))
            continue
        point, rest = _outer_point(w, position, rest)
        coordinates.append(point)
    coordinates.reverse()
    bases = w.bases(coordinates)
    if form.joined is not None:
        vector = add(bases.vector, multiply(joined, w.stride(form.joined, "vector")))
        out = add(bases.out, multiply(joined, w.stride(form.joined, "out")))
        bases = replace(bases, vector=emit.let(vector, "base"), out=emit.let(out, "base"))
    return bases, ranges[::-1], collected


def _outer_point(w: DirectWriter, position: int, rest: Expression) -> tuple[Expression, Expression]:
    """The point of an outer dimension in block number `rest`, and what is left of that number."""
    points = w.parameter(f"o{position}_size", constant(w.form.outer[position].size))
    point = w.emit.let(operation("mod", rest, points), f"o{position}")
    return point, w.emit.let(operation("floordiv", rest, points), "rest")


def _joined_group(w: DirectWriter, rest: Expression) -> tuple[Expression, Expression]:
    """The first point of the joined dimension in the box of block number `rest`, and what is left of that number."""
    form = w.form
    groups = w.parameter("j_groups", form.blocks[-1])
    first = w.emit.let(multiply(operation("mod", rest, groups), integer(form.joined_chunk)), "j_first")
    return first, w.emit.let(operation("floordiv", rest, groups), "rest")


def _collection(w: DirectWriter, rest: Expression) -> tuple[_Collected, Expression]:
    """What block number `rest` collects, and the number of its group of blocks."""
    form, emit = w.form, w.emit
    assert form.collected is not None
    lanes, extent = form.lanes[0], constant(form.collected.size)
    size, groups = w.parameter("w_size", extent), w.parameter("w_tiles", -(-extent // lanes))
    first = emit.let(multiply(operation("mod", rest, groups), integer(lanes)), "w_first")
    rest = emit.let(operation("floordiv", rest, groups), "rest")
    taken = emit.let(operation("min", integer(lanes), operation("sub", size, first)), "w_count")
    return _Collected(scratch_tile(w), first, taken), rest


def scratch_tile(w: DirectWriter) -> Buffer:
    """Scratch memory for collected results before they are turned."""
    return w.workspace("tile", component_types(w.form.accumulator)[0], COLLECTED_ELEMENTS)
