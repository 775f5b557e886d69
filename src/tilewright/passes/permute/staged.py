"""The piece of a copy past the caches: a tile is gathered in a stage, and written from there (`permute_tiles`).

gather    some rows of the source at once, from one end of their runs to the other; what comes later is asked for
          while they are read: further on in the same rows, then in the rows after them, then in the next tile
write     run by run, whole cache lines past the caches
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.kernel.ir import (
    Buffer,
    Expression,
    Name,
    Prefetch,
    Space,
    Store,
    add,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.passes.permute.squares import square_columns
from tilewright.passes.permute.tiles import LINE, Tile, TileDimension
from tilewright.passes.permute.writer import PermuteWriter

TOGETHER = 4  # rows that are read at once: in few sets of a cache even if all of them begin in the same one
ASKED = 128  # cache lines of the source that are under way: latency (some 100 ns) times bandwidth needs about half


@dataclass(frozen=True)
class _Ahead:
    """Launch parameters of what is asked for ahead: `far` words on in runs of `run` words; beyond the end of a run,
    `rows_step` on to later rows while the row is below `limit`, and else `wrap` and where the next rows begin.
    """

    far: Name
    run: Name
    rows_step: Name
    wrap: Name
    limit: Name


@dataclass(frozen=True)
class _Edge:
    """How far a tile goes along the edge: the steps that are read, and whether they are the first ones; two `parts` are
    gathered where the spare rows are read too.
    """

    steps: Expression
    is_first: Expression
    parts: Expression


def write_tile(w: PermuteWriter, tile: Tile, source: Expression, target: Expression, begin: Expression | None) -> None:
    """Copy the tile whose first elements lie at `source` and `target`, with step `begin` of its edge."""
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
    loops = w.form.loops
    to_next = w.parameter("to_next", loops[-1].source * loops[-1].part if loops else 0)
    run = w.parameter("run", tile.run)
    if edge is None:
        _ask_for_ends(w, tile, target, run)
    gather = _Gather(w, tile, stage, edge)
    if tile.spare_rows and edge is not None:
        gather.parts(source, run, to_next, edge.parts)
    else:
        gather.outer(0, source, integer(0), to_next)
    _write(w, tile, stage, (target, w.let(add(source, to_next), "later")), run, edge)


@dataclass(frozen=True)
class _Rows:
    """A vector's rows: where their runs begin, and where the next ones do if they are read from the source."""

    buffer: Buffer
    starts: Sequence[Expression]
    beyond: Expression | None


class _Gather:
    """From the source into the stage."""

    def __init__(self, w: PermuteWriter, tile: Tile, stage: Buffer, edge: _Edge | None) -> None:
        self.w, self.tile, self.stage, self.edge = w, tile, stage, edge
        self.outside = [one for one in tile.others if not one.is_read]
        self.along = [one for one in tile.others if one.is_read]
        self.row_from = w.parameter("row_from", tile.row.source)
        self.row_stage = w.parameter("row_stage", tile.row.stage)
        self.column_stage = w.parameter("column_stage", tile.column.stage)
        self.is_lined = w.form.columns < w.form.width or tile.shares_set
        self.together = min(TOGETHER, w.form.lanes) if self.is_lined else w.form.lanes
        self.ahead = self._parameters()
        self.pitch = tile.read_pitch
        self.lines = Buffer(w.emit.name("lines"), w.form.word, Space.WORKSPACE, w.form.lanes * self.pitch)
        if self.is_lined:
            w.arrays.append(self.lines)
        self.is_spare: Expression | None = None

    def parts(self, source: Expression, run: Expression, following: Expression, count: Expression) -> None:
        """The tile, and then the rows that complete the last cache lines of its runs."""
        w, edge = self.w, self.tile.edge
        assert edge is not None
        far = w.parameter("spare_from", edge.extent * edge.source)

        def part(number: Expression) -> None:
            self.is_spare = operation("eq", number, integer(1))
            place = w.let(add(source, multiply(number, far)), "source")
            self.outer(0, place, w.let(multiply(number, run), "stage"), following)

        w.loop("part", integer(0), count, part)

    def _parameters(self) -> _Ahead:
        w, row = self.w, self.tile.row
        run = self.tile.read_run
        far = max(1, ASKED // self.together) * max(1, LINE // w.bytes)
        rows = max(1, far // run) * self.together
        return _Ahead(
            w.parameter("far", min(far, run)),
            w.parameter("run", run),
            w.parameter("rows_step", rows * row.source),
            w.parameter("wrap", (rows - row.extent) * row.source),
            w.parameter("limit", row.extent - rows),
        )

    def outer(self, depth: int, source: Expression, stage: Expression, following: Expression) -> None:
        """Loops over dimensions outside the runs; `following`: from this place to the one after its loops' end."""
        w = self.w
        if depth == len(self.outside):
            self.rows(source, stage, following)
            return
        one = self.outside[depth]
        count, step, stage_step = self.steps(one)
        over = w.let(operation("sub", following, multiply(operation("sub", count, integer(1)), step)), "over")

        def body(index: Expression) -> None:
            is_last = operation("eq", add(index, integer(1)), count)
            self.outer(
                depth + 1,
                w.let(add(source, multiply(index, step)), "source"),
                w.let(add(stage, multiply(index, stage_step)), "stage"),
                w.let(operation("select", is_last, over, step), "following"),
            )

        w.loop("i", integer(0), count, body)

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

    def rows(self, source: Expression, stage: Expression, following: Expression) -> None:
        """A vector's rows at a time."""
        w, ahead = self.w, self.ahead
        along = [self.steps(one) for one in self.along]
        columns = self.extent(self.tile.column)
        wrapped = w.let(add(following, ahead.wrap), "wrapped")
        run = self.read_run()

        def beyond(r: Expression) -> Expression:
            later = operation("select", operation("lt", r, ahead.limit), ahead.rows_step, wrapped)
            return w.let(add(operation("sub", ahead.far, ahead.run), later), "beyond")

        def group(r: Expression) -> None:
            place = w.let(add(stage, multiply(r, self.row_stage)), "place")
            first = w.let(add(source, multiply(r, self.row_from)), "first")
            if not self.is_lined:
                starts = [w.let(add(first, multiply(integer(i), self.row_from)), "row") for i in range(w.form.lanes)]
                self.runs(along, columns, (integer(0), place), _Rows(w.source, starts, beyond(r)))
                return
            for number in range(0, w.form.lanes, self.together):
                some = w.let(add(r, integer(number)), "r")
                self.line_up(number, w.let(add(source, multiply(some, self.row_from)), "first"), run, beyond(some))
            starts = [integer(i * self.pitch) for i in range(w.form.lanes)]
            self.runs(along, columns, (integer(0), place), _Rows(self.lines, starts, None))

        w.overlapping("r", self.extent(self.tile.row), w.form.lanes, group)

    def line_up(self, number: int, first: Expression, run: Expression, beyond: Expression) -> None:
        """Runs of some rows of the source, side by side where they share no set of the first cache."""
        w, lanes = self.w, self.tile.read_vector
        starts = [w.let(add(first, multiply(integer(i), self.row_from)), "row") for i in range(self.together)]

        def piece(k: Expression) -> None:
            distance = w.let(add(k, self.distance(k, beyond)), "ahead")
            for i, one in enumerate(starts):
                value = w.let(load(w.source, add(one, k), lanes), "piece")
                w.emit.emit(Prefetch(w.source, add(one, distance), level=2))
                w.emit.emit(Store(self.lines, add(k, integer((number + i) * self.pitch)), value))

        w.overlapping("k", run, lanes, piece)

    def distance(self, at: Expression, beyond: Expression) -> Expression:
        """Words from a place in a run to what is asked for there."""
        ends = operation("ge", add(at, self.ahead.far), self.ahead.run)
        return operation("select", ends, beyond, self.ahead.far)

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
        if rows.beyond is not None:
            ahead = w.let(add(at, self.distance(at, rows.beyond)), "ahead")
            for one in rows.starts:
                w.emit.emit(Prefetch(w.source, add(one, ahead), level=2))
        starts = [add(at, one) for one in rows.starts]
        if form.lanes == 1:
            self.atoms(rows.buffer, starts[0], to)
            return
        for number, vector in square_columns(w, rows.buffer, starts):
            index = w.let(add(to, multiply(integer(number), self.column_stage)), "to")
            w.emit.emit(Store(self.stage, index, vector))

    def atoms(self, buffer: Buffer, read: Expression, to: Expression) -> None:
        """`width` atoms of a row: as vectors that are longer than they, or word by word."""
        w, form = self.w, self.w.form
        step = form.atom + self.tile.spill if self.tile.spill else 1
        for number in range(form.width):
            for word in range(0, form.atom, step):
                value = load(buffer, add(read, integer(number * form.atom + word)), step)
                index = add(add(to, multiply(integer(number), self.column_stage)), integer(word))
                w.emit.emit(Store(self.stage, index, value))


def _ask_for_ends(w: PermuteWriter, tile: Tile, target: Expression, run: Expression) -> None:
    """Ask for the cache lines that runs share with others: stores past the caches would have to wait for them."""

    def ends(_: Expression, to: Expression, __: Expression) -> None:
        w.emit.emit(Prefetch(w.target, to))
        w.emit.emit(Prefetch(w.target, add(to, run)))

    odd = operation("or", w.up_to(target, LINE), w.up_to(w.let(add(target, run), "end"), LINE))
    w.when(operation("ne", odd, integer(0)), lambda: _for_runs(w, tile, target, ends))


def _write(
    w: PermuteWriter,
    tile: Tile,
    stage: Buffer,
    place: tuple[Expression, Expression],
    run: Expression,
    edge: _Edge | None,
) -> None:
    """The runs of the target, one after the other; meanwhile the first rows of the next tile of the source are read.

    `place`: of this tile in the target, and of the next one in the source.
    """
    target, later = place
    rows, each = w.parameter("rows_ahead", tile.rows_ahead), w.parameter("rows_each", tile.rows_each)
    row_from, words = w.parameter("row_from", tile.row.source), w.parameter("words", tile.read_run)
    whole = run
    if edge is not None and tile.spare_rows:
        more = multiply(operation("sub", edge.parts, integer(1)), integer(tile.spare_rows * w.form.atom))
        whole = w.let(add(run, more), "whole")
    elif edge is not None and tile.edge is not None:
        whole = w.let(multiply(edge.steps, w.parameter("edge_step", tile.edge.target)), "whole")

    def ask(r: Expression) -> None:
        first = w.let(add(later, multiply(r, row_from)), "first")
        w.loop("k", integer(0), words, lambda k: w.emit.emit(Prefetch(w.source, add(first, k), level=2)),
               step=max(1, LINE // w.bytes))  # fmt: skip

    def one_run(number: Expression, to: Expression, place: Expression) -> None:
        begin = w.let(multiply(number, each), "begin")
        w.loop("r", begin, w.let(operation("min", add(begin, each), rows), "end"), ask)
        low, high = (integer(0), run) if edge is None else _lines(w, edge, to, run, whole)
        w.run(to, low, high, lambda k, lanes, _: load(stage, add(place, k), lanes))

    _for_runs(w, tile, target, one_run)


def _for_runs(
    w: PermuteWriter, tile: Tile, target: Expression, body: Callable[[Expression, Expression, Expression], None]
) -> None:
    """Loops over the runs of the target; `body` gets a run's number, where it begins there, and where in the stage."""
    apart = tile.apart

    def level(depth: int, number: Expression, to: Expression, place: Expression) -> None:
        if depth == len(apart):
            body(number, to, place)
            return
        one = apart[depth]
        count, step = w.parameter("count", one.extent), w.parameter("step", one.target)
        stage_step = w.parameter("stage_step", one.stage)
        w.loop("i", integer(0), count, lambda i: level(
            depth + 1,
            w.let(add(multiply(number, count), i), "number"),
            w.let(add(to, multiply(i, step)), "to"),
            w.let(add(place, multiply(i, stage_step)), "place"),
        ))  # fmt: skip

    level(0, integer(0), target, integer(0))


def _lines(
    w: PermuteWriter, edge: _Edge, target: Expression, run: Expression, whole: Expression
) -> tuple[Expression, Expression]:
    """The words of a run that a tile writes: from its first cache line to that of the next tile."""
    low = operation("select", edge.is_first, integer(0), w.up_to(target, LINE))
    next_line = add(run, w.up_to(w.let(add(target, run), "next"), LINE))
    return w.let(low, "low"), w.let(operation("min", next_line, whole), "high")
