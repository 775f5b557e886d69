"""The piece of a copy that is gathered: a tile, in a stage, and written from there (`permute/tiles.py`).

gather    some rows of the source at once, from one end of their runs to the other
write     run by run, whole cache lines past the caches
ask       for the next tile of the source, line for line: for a part of it beside the squares that are gathered, and for
          the rest between the runs, so that memory is read and written at the same time (within the caches for nothing)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I64
from tilewright.kernel.ir import Buffer, Expression, Prefetch, Space, Store, add, integer, load, multiply, operation
from tilewright.passes.permute.squares import square_columns
from tilewright.passes.permute.tiles import LINE, Tile, TileDimension
from tilewright.passes.permute.writer import PermuteWriter, atom_pieces

TOGETHER = 4  # rows that are read at once: in few sets of a cache even if all of them begin in the same one
ASKED_LINES = 4  # cache lines of a row of the source that are asked for one after the other
EARLY_SHARE = 4  # this part of what is asked for is while squares are gathered, the rest while runs are written
HALVES = 2  # pieces of a line in which squares may read it where it lies
WRITTEN_LINES = 16  # cache lines of a run that are written in one go, before more of the source is asked for


@dataclass(frozen=True)
class _Edge:
    """How far a tile goes along the edge: the steps that are read, and whether they are the first ones; two `parts` are
    gathered where the spare rows are read too.
    """

    steps: Expression
    is_first: Expression
    parts: Expression


def write_tile(
    w: PermuteWriter,
    tile: Tile,
    source: Expression,
    target: Expression,
    following: Expression,
    begin: Expression | None,
) -> None:
    """Copy the tile whose first elements lie at `source` and `target`, with step `begin` of its edge; the next one
    begins at `following` in the source.
    """
    edge = None
    if tile.edge is not None and begin is not None:
        size, extent = w.parameter("size", tile.edge.size), w.parameter("extent", tile.edge.extent)
        left = w.let(operation("sub", size, begin), "left")
        wanted = add(extent, integer(tile.spare))
        if tile.spare_rows:
            parts = operation("select", operation("gt", left, extent), integer(2), integer(1))
            edge = _Edge(extent, operation("eq", begin, integer(0)), w.let(parts, "parts"))
        else:
            edge = _Edge(w.let(operation("min", wanted, left), "steps"), operation("eq", begin, integer(0)), integer(1))
    stage = Buffer(w.emit.name("stage"), w.form.word, Space.WORKSPACE, tile.stage_words)
    w.arrays.append(stage)
    run = w.parameter("run", tile.run)
    if edge is None and w.past:
        _ask_for_ends(w, tile, target, run)
    ask = _Ask(w, tile, following) if w.past else None
    gather = _Gather(w, tile, stage, edge, ask)
    if tile.spare_rows and edge is not None:
        gather.parts(source, run, edge.parts)
    else:
        gather.outer(0, source, integer(0))
    _write(w, tile, stage, target, run, edge, ask)


@dataclass(frozen=True)
class _Rows:
    """A vector's rows: where their runs begin."""

    buffer: Buffer
    starts: Sequence[Expression]


class _Gather:
    """From the source into the stage."""

    def __init__(self, w: PermuteWriter, tile: Tile, stage: Buffer, edge: _Edge | None, ask: _Ask | None) -> None:
        self.w, self.tile, self.stage, self.edge, self.ask = w, tile, stage, edge, ask
        self.outside = [one for one in tile.others if not one.is_read]
        self.along = [one for one in tile.others if one.is_read]
        self.row_from = w.parameter("row_from", tile.row.source)
        self.row_stage = w.parameter("row_stage", tile.row.stage)
        self.column_stage = w.parameter("column_stage", tile.column.stage)
        # Two halves of a line are read one soon after the other; more pieces of many lines might not find theirs again.
        self.is_lined = HALVES * w.form.columns < w.form.width or tile.shares_set
        self.together = min(TOGETHER, w.form.lanes) if self.is_lined else w.form.lanes
        self.pitch = tile.read_pitch
        self.lines = Buffer(w.emit.name("lines"), w.form.word, Space.WORKSPACE, w.form.lanes * self.pitch)
        if self.is_lined:
            w.arrays.append(self.lines)
        self.is_spare: Expression | None = None

    def parts(self, source: Expression, run: Expression, count: Expression) -> None:
        """The tile, and then the rows that complete the last cache lines of its runs."""
        w, edge = self.w, self.tile.edge
        assert edge is not None
        far = w.parameter("spare_from", edge.extent * edge.source)

        def part(number: Expression) -> None:
            self.is_spare = operation("eq", number, integer(1))
            place = w.let(add(source, multiply(number, far)), "source")
            self.outer(0, place, w.let(multiply(number, run), "stage"))

        w.loop("part", integer(0), count, part)

    def outer(self, depth: int, source: Expression, stage: Expression) -> None:
        """Loops over dimensions outside the runs."""
        w = self.w
        if depth == len(self.outside):
            self.rows(source, stage)
            return
        count, step, stage_step = self.steps(self.outside[depth])
        w.loop("i", integer(0), count, lambda i: self.outer(
            depth + 1,
            w.let(add(source, multiply(i, step)), "source"),
            w.let(add(stage, multiply(i, stage_step)), "stage"),
        ))  # fmt: skip

    def extent(self, one: TileDimension) -> Expression:
        """How many steps of a dimension are read."""
        count: Expression = self.w.parameter("count", one.extent)
        if self.is_spare is not None and one.is_run:
            some = self.tile.spare_rows if one == self.tile.row else 1
            return self.w.let(operation("select", self.is_spare, integer(some), count), "count")
        return self.edge.steps if self.edge is not None and one == self.tile.edge else count

    def read_run(self) -> Expression:
        """How many words of each row are read; the run's outermost dimension tells it."""
        longest = (self.along or [self.tile.column])[0]
        run: Expression = self.w.parameter("run_words", longest.source * longest.extent)
        if self.is_spare is not None:
            run = operation("select", self.is_spare, self.w.parameter("spare_run", self.tile.spare_run), run)
        elif self.edge is not None and longest == self.tile.edge:
            run = multiply(self.edge.steps, self.w.parameter("run_step", longest.source))
        return self.w.let(run, "run")

    def steps(self, one: TileDimension) -> tuple[Expression, Expression, Expression]:
        """How many steps, and their size in the source and in the stage."""
        w = self.w
        return self.extent(one), w.parameter("step", one.source), w.parameter("stage_step", one.stage)

    def rows(self, source: Expression, stage: Expression) -> None:
        """A vector's rows at a time."""
        w = self.w
        along = [self.steps(one) for one in self.along]
        columns = self.extent(self.tile.column)
        run = self.read_run() if self.is_lined else None

        def group(r: Expression) -> None:
            place = w.let(add(stage, multiply(r, self.row_stage)), "place")
            first = w.let(add(source, multiply(r, self.row_from)), "first")
            if run is None:
                starts = [w.let(add(first, multiply(integer(i), self.row_from)), "row") for i in range(w.form.lanes)]
                self.runs(along, columns, (integer(0), place), _Rows(w.source, starts))
                return
            for number in range(0, w.form.lanes, self.together):
                some = w.let(add(r, integer(number)), "r")
                self.line_up(number, w.let(add(source, multiply(some, self.row_from)), "first"), run)
            starts = [integer(i * self.pitch) for i in range(w.form.lanes)]
            self.runs(along, columns, (integer(0), place), _Rows(self.lines, starts))

        w.overlapping("r", self.extent(self.tile.row), w.form.lanes, group)

    def line_up(self, number: int, first: Expression, run: Expression) -> None:
        """Runs of some rows of the source, side by side where they share no set of the first cache."""
        w, lanes = self.w, self.tile.read_vector
        starts = [w.let(add(first, multiply(integer(i), self.row_from)), "row") for i in range(self.together)]

        def piece(k: Expression) -> None:
            for i, one in enumerate(starts):
                value = w.let(load(w.source, add(one, k), lanes), "piece")
                w.emit.emit(Store(self.lines, add(k, integer((number + i) * self.pitch)), value))

        w.overlapping("k", run, lanes, piece)

    def runs(
        self,
        along: Sequence[tuple[Expression, Expression, Expression]],
        columns: Expression,
        place: tuple[Expression, Expression],
        rows: _Rows,
    ) -> None:
        """From one end of the rows to the other; `place`: in them, and in the stage."""
        w = self.w
        at, stage = place
        if not along:
            w.overlapping("c", columns, w.form.width, lambda c: self.block(c, place, rows))
            return
        count, step, stage_step = along[0]
        w.loop("i", integer(0), count, lambda i: self.runs(
            along[1:],
            columns,
            (w.let(add(at, multiply(i, step)), "at"), w.let(add(stage, multiply(i, stage_step)), "stage")),
            rows,
        ))  # fmt: skip

    def block(self, c: Expression, place: tuple[Expression, Expression], rows: _Rows) -> None:
        """`width` columns of the rows."""
        w, form = self.w, self.w.form
        at = w.let(add(place[0], multiply(c, integer(form.atom))), "at")
        to = w.let(add(place[1], multiply(c, self.column_stage)), "to")
        starts = [add(at, one) for one in rows.starts]
        if form.lanes == 1:
            self.atoms(rows.buffer, starts[0], to)
            return
        if self.ask is not None:
            self.ask.beside_square()
        for number, vector in square_columns(w, rows.buffer, starts):
            index = w.let(add(to, multiply(integer(number), self.column_stage)), "to")
            w.put(self.stage, index, vector)

    def atoms(self, buffer: Buffer, read: Expression, to: Expression) -> None:
        """`width` atoms of a row: as vectors that are longer than they, or piece by piece."""
        w, form = self.w, self.w.form
        spill = self.tile.spill
        for number in range(form.width):
            for word, lanes in [(0, form.atom + spill)] if spill else atom_pieces(form.atom):
                value = load(buffer, add(read, integer(number * form.atom + word)), lanes)
                index = add(add(to, multiply(integer(number), self.column_stage)), integer(word))
                w.emit.emit(Store(self.stage, index, value))


def _ask_for_ends(w: PermuteWriter, tile: Tile, target: Expression, run: Expression) -> None:
    """Ask for the cache lines that runs share with others: stores past the caches would have to wait for them."""

    def ends(to: Expression, _: Expression) -> None:
        w.emit.emit(Prefetch(w.target, to))
        w.emit.emit(Prefetch(w.target, add(to, run)))

    odd = operation("or", w.up_to(target, LINE), w.up_to(w.let(add(target, run), "end"), LINE))
    w.when(operation("ne", odd, integer(0)), lambda: _for_runs(w, tile, target, ends))


def _write(
    w: PermuteWriter,
    tile: Tile,
    stage: Buffer,
    target: Expression,
    run: Expression,
    edge: _Edge | None,
    ask: _Ask | None,
) -> None:
    """The runs of the target, one after the other; meanwhile the next tile of the source is asked for."""
    whole = run
    if edge is not None and tile.spare_rows:
        more = multiply(operation("sub", edge.parts, integer(1)), integer(tile.spare_rows * w.form.atom))
        whole = w.let(add(run, more), "whole")
    elif edge is not None and tile.edge is not None:
        whole = w.let(multiply(edge.steps, w.parameter("edge_step", tile.edge.target)), "whole")

    def one_run(to: Expression, place: Expression) -> None:
        low, high = (integer(0), run) if edge is None else _lines(w, edge, to, run, whole)
        if ask is None or ask.pieces == 1:
            if ask is not None:
                ask.beside_run()
            w.run(to, low, high, lambda k, lanes, _: load(stage, add(place, k), lanes))
            return
        odd, pieces = w.up_to(to, LINE), w.parameter("pieces", ask.pieces)

        def piece(p: Expression) -> None:
            ask.beside_run()
            begin = w.let(add(multiply(p, ask.words), odd), "begin")
            is_last = operation("eq", add(p, integer(1)), pieces)
            start = w.let(operation("select", operation("eq", p, integer(0)), low, begin), "low")
            stop = w.let(operation("select", is_last, high, operation("min", high, add(begin, ask.words))), "high")
            w.run(to, start, stop, lambda k, lanes, _: load(stage, add(place, k), lanes))

        w.loop("p", integer(0), pieces, piece)

    _for_runs(w, tile, target, one_run)


class _Ask:
    """Asks for the next tile of the source, some cache lines of a row before each piece of a run is written."""

    def __init__(self, w: PermuteWriter, tile: Tile, following: Expression) -> None:
        self.w = w
        self.line = max(1, LINE // w.bytes)
        self.pieces = max(1, tile.run // (WRITTEN_LINES * self.line))
        self.words = w.parameter("piece", tile.run // self.pieces // self.line * self.line)
        self.asked = min(ASKED_LINES * self.line, tile.read_run)
        outside = [one for one in tile.others if not one.is_read]
        rows = tile.row.extent + (tile.spare if tile.edge == tile.row else 0)
        whole = [*((one.extent, one.source) for one in outside), (rows, tile.row.source), self._run(tile.read_run)]
        parts = [(0, whole)]
        if tile.edge is not None and tile.spare_rows:
            some = [(1 if one.is_run else one.extent, one.source) for one in outside]
            some += [(tile.spare_rows, tile.row.source), self._run(tile.spare_run)]
            parts.append((tile.edge.extent * tile.edge.source, some))
        numbers = [math.prod(count for count, _ in counts) for _, counts in parts]
        writes = self.pieces * math.prod(one.extent for one in tile.apart)
        squares = -(-tile.row.extent // w.form.lanes) * -(-tile.column.extent // w.form.width)
        squares *= math.prod(one.extent for one in tile.others)
        early = sum(numbers) // EARLY_SHARE if w.form.lanes > 1 else 0
        self.squares = w.parameter("early", early), w.parameter("each", -(-early // squares))
        self.runs = w.parameter("total", sum(numbers)), w.parameter("each", -(-(sum(numbers) - early) // writes))
        self.asked_for = w.emit.declare(integer(0), "asked")
        self.places = Buffer(w.emit.name("places"), I64, Space.WORKSPACE, 1 << (sum(numbers) - 1).bit_length())
        w.arrays.append(self.places)
        first: Expression = integer(0)
        for (distance, counts), number in zip(parts, numbers, strict=True):
            begin = w.let(add(following, w.parameter("distance", distance)), "begin")
            self._find(counts, first, begin)
            first = w.parameter("first", number)

    def _run(self, words: int) -> tuple[int, int]:
        """How often some lines of a run of so many words are asked for, and their distance."""
        return -(-words // self.asked), self.asked

    def _find(self, counts: Sequence[tuple[int, int]], first: Expression, begin: Expression) -> None:
        """Where the parts begin, found once for all pieces: loops of so many steps of that size in the source."""
        w = self.w
        loops = [(w.parameter("count", count), w.parameter("step", step)) for count, step in counts]

        def level(depth: int, number: Expression, place: Expression) -> None:
            if depth == len(loops):
                w.emit.emit(Store(self.places, add(first, number), place))
                return
            count, step = loops[depth]
            w.loop("i", integer(0), count, lambda i: level(
                depth + 1,
                w.let(add(multiply(number, count), i), "number"),
                w.let(add(place, multiply(i, step)), "place"),
            ))  # fmt: skip

        level(0, integer(0), begin)

    def beside_square(self) -> None:
        """With a square of the tile."""
        self._some(*self.squares)

    def beside_run(self) -> None:
        """Before a piece of a run is written."""
        self._some(*self.runs)

    def _some(self, end: Expression, each: Expression) -> None:
        """The next ones, of those before the end."""
        w = self.w

        def part(number: Expression) -> None:
            place = w.let(load(self.places, number), "place")
            ends = [*range(0, self.asked, self.line), self.asked - 1]
            for k in ends:
                w.emit.emit(Prefetch(w.source, add(place, integer(k)), level=2))

        begin = w.emit.snapshot(self.asked_for, "begin")
        stop = w.let(operation("min", add(begin, each), end), "stop")
        w.loop("part", begin, stop, part)
        w.emit.assign(self.asked_for, operation("max", begin, stop))


def _for_runs(w: PermuteWriter, tile: Tile, target: Expression, body: Callable[[Expression, Expression], None]) -> None:
    """Loops over the runs of the target; `body` gets where a run begins there, and where in the stage."""
    apart = tile.apart

    def level(depth: int, to: Expression, place: Expression) -> None:
        if depth == len(apart):
            body(to, place)
            return
        one = apart[depth]
        count, step = w.parameter("count", one.extent), w.parameter("step", one.target)
        stage_step = w.parameter("stage_step", one.stage)
        w.loop("i", integer(0), count, lambda i: level(
            depth + 1,
            w.let(add(to, multiply(i, step)), "to"),
            w.let(add(place, multiply(i, stage_step)), "place"),
        ))  # fmt: skip

    level(0, target, integer(0))


def _lines(
    w: PermuteWriter, edge: _Edge, target: Expression, run: Expression, whole: Expression
) -> tuple[Expression, Expression]:
    """The words of a run that a tile writes: from its first cache line to that of the next tile."""
    low = operation("select", edge.is_first, integer(0), w.up_to(target, LINE))
    next_line = add(run, w.up_to(w.let(add(target, run), "next"), LINE))
    return w.let(low, "low"), w.let(operation("min", next_line, whole), "high")
