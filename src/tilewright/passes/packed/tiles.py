"""Sums in tiles: registers of 16 x 16 sums, to which one instruction adds the products of two tiles of panels.

    total[j][i] += first[j][k][e] * second[k][i][e]     16 rows of the scalar side, 16 lanes of the vector side

The vector side's panels are what vectors are made of, so that 16 steps of one vector are a tile as they lie. Those of
the scalar side are made of tiles as well, each in one run of memory:

    panels[p][k // 16][j][k % 16]       a step k is as many of the sum as lie side by side in 32 bits

Past the end of the sum both sides have zeros, up to whole tiles: 0 times an infinity would be nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, U32
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import (
    Buffer,
    Constant,
    Expression,
    Store,
    VectorType,
    add,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.kernel.tiles import COUNT, LANES, ROWS, TileLoad, TileMultiply, TileStore, TileZero
from tilewright.machine.model import Machine
from tilewright.machine.paces import Pace
from tilewright.passes.packed.waiting import Accumulators, Scratch, Waiting
from tilewright.passes.packed.writer import PackedWriter, Side

ROWS_ASKED = 2  # of the output, for each tile along the sum

_VECTOR = VectorType(U32, LANES)


@dataclass(frozen=True)
class Rows:
    """Where tiles of the scalar side are read: those of each 16 rows from a start on, with rows so far from each other,
    and `along(number)` how far the tile of a number along the sum is from there.
    """

    buffer: Buffer
    starts: Sequence[Expression]
    distance: Expression
    along: Callable[[Expression], Expression]


@dataclass(frozen=True)
class Part:
    """A part of a piece of the sum, as long as the first cache holds what it reads of the scalar side: tiles `begin` to
    `end` along it. Sums of a row of register tiles wait in a strip of memory until the last part.
    """

    strip: Scratch
    begin: Expression
    end: Expression
    is_first: Expression
    is_last: Expression


def shape_in_tiles(totals: tuple[int, int], steps: int, machine: Machine) -> tuple[float, tuple[int, int]]:
    """(vectors, rows) of the register tile whose sums are the fastest in tiles, and the time that all of them take, in
    multiply-adds of vectors.

    Args:
        totals: elements of the vector side and of the scalar side.
        steps: of the sum, of which each is a lane of 32 bits.
        machine: of its pace.

    Example:
        >>> from tilewright.machine.named import CPU_TILES
        >>> [shape_in_tiles(totals, 256, CPU_TILES)[1] for totals in ((512, 512), (16, 512), (512, 16))]
        [(2, 32), (1, 48), (3, 16)]
    """
    best = math.inf, (0, 0)
    for vectors, tiles in ((2, 2), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1)):
        assert vectors * tiles + vectors + tiles <= COUNT
        shape = vectors, tiles * ROWS
        count = -(-totals[0] // (vectors * LANES)) * -(-totals[1] // shape[1])
        time = count * time_in_tiles(shape, steps, 1, machine.pace)
        if time < best[0]:
            best = time, shape
    return best


def time_in_tiles(shape: tuple[int, int], steps: int, pieces: int, pace: Pace) -> float:
    """The time of one register tile (vectors, rows), in multiply-adds of vectors.

    Args:
        shape: of the register tile.
        steps: of the sum, of which each is a lane of 32 bits.
        pieces: of the sum, after each of which sums are brought to where they go.
        pace: of the processor.
    """
    vectors, tiles = shape[0], shape[1] // ROWS
    step = max(pace.tile * vectors * tiles, pace.tile_load * (vectors + tiles))
    return -(-steps // LANES) * step + pieces * pace.tile_end * vectors * tiles


def groups_of(w: PackedWriter, steps: Expression) -> Expression:
    """Tiles along the sum that hold so many steps."""
    return w.emit.let(operation("floordiv", add(steps, integer(LANES - 1)), integer(LANES)), "tile_groups")


def place_in_tiles(side: Side, row: Expression, step: Expression) -> Expression:
    """Where step `step` of row `row` lies in the scalar side's panels."""
    within = operation("mod", row, integer(side.width))
    panel = multiply(operation("sub", row, within), side.pitch)
    inside = operation("and", step, integer(LANES - 1))
    group = multiply(operation("sub", step, inside), integer(side.width))
    return add(add(panel, multiply(within, integer(LANES))), add(group, inside))


def sum_in_tiles(
    w: PackedWriter,
    sides: tuple[Side, Side],
    first: tuple[Expression, Expression],
    counts: tuple[Expression, Expression, Expression],
    soon: Callable[[Expression], None] | None,
    part: Part | None,
) -> None:
    """The sums of the register tile that begins with elements `first` of the vector and of the scalar side, over a
    piece of the sum or part of it, in tiles, where blocks have `counts` elements and steps. `soon(j)` asks for the
    lines of row j of the output, of a few rows in each round.
    """
    form, emit, (vector, scalar) = w.form, w.emit, sides
    assert form.dots is not None
    elements = form.dots.elements
    (vector_panel,) = vector.panels
    columns, rows = range(form.vectors), range(form.rows // ROWS)
    of_rows, of_columns = form.vectors * len(rows), form.vectors * len(rows) + len(rows)
    vector_base = emit.let(multiply(first[0], vector.pitch), "vector_panel")
    begin, end = (integer(0), groups_of(w, counts[2])) if part is None else (part.begin, part.end)

    def zeros() -> None:
        for number in range(of_rows):
            emit.emit(TileZero(number))

    if part is None:
        zeros()
    else:
        w.branch(part.is_first, zeros, partial(_load_sums, w, part.strip, first[0]))

    def ask(number: Expression) -> None:
        assert soon is not None
        for row in range(ROWS_ASKED):
            soon(add(multiply(number, integer(ROWS_ASKED)), integer(row)))

    def group(number: Expression, from_rows: Rows) -> None:
        if soon is not None:
            passed = operation("sub", number, begin)
            asks = operation("lt", passed, integer(form.rows // ROWS_ASKED))
            emit.when(asks if part is None else operation("and", asks, part.is_last), lambda: ask(passed))
        along = emit.let(add(vector_base, multiply(number, integer(LANES * vector.width))), "vector_tile")
        across = emit.let(from_rows.along(number), "scalar_tile")
        for j in rows:
            here = add(across, from_rows.starts[j])
            emit.emit(TileLoad(of_rows + j, from_rows.buffer, here, from_rows.distance, once=form.scalar_inner))
            for i in columns:
                if j == 0:
                    here = add(along, integer(i * LANES))
                    width, once = integer(vector.width), not form.scalar_inner
                    emit.emit(TileLoad(of_columns + i, vector_panel, here, width, once))
                emit.emit(TileMultiply(j * form.vectors + i, of_rows + j, of_columns + i, elements))

    def run(from_rows: Rows) -> None:
        w.loop("group", begin, end, lambda number: group(number, from_rows))

    if w.tiles_lie_there is None:
        run(_rows_in_panel(w, scalar, first[1]))
    else:
        in_place = partial(_rows_in_place, w, scalar, first[1], counts[1])
        w.branch(w.tiles_lie_there, lambda: run(in_place()), lambda: run(_rows_in_panel(w, scalar, first[1])))


def _rows_in_panel(w: PackedWriter, side: Side, first: Expression) -> Rows:
    """The rows from row `first` on of the scalar side, in its panel."""
    base = w.emit.let(multiply(first, side.pitch), "scalar_panel")
    starts = [add(base, integer(j * ROWS * LANES)) for j in range(w.form.rows // ROWS)]
    return Rows(side.panels[0], starts, integer(LANES), lambda number: multiply(number, integer(LANES * side.width)))


def _rows_in_place(w: PackedWriter, side: Side, first: Expression, count: Expression) -> Rows:
    """The same in the operand; past the last ones these again."""
    starts: list[Expression] = []
    for j in range(w.form.rows // ROWS):
        row = operation("min", add(first, integer(j * ROWS)), operation("sub", count, integer(ROWS)))
        starts.append(w.emit.let(load(side.source_table, w.emit.let(row, "row")), "rows"))
    assert w.form.source_distance is not None
    distance, steps = w.parameter("source_distance", w.form.source_distance), integer(LANES * w.form.together)
    return Rows(side.source, starts, distance, lambda number: load(side.depth_table, multiply(number, steps)))


def _load_sums(w: PackedWriter, strip: Scratch, column: Expression) -> None:
    """The sums of the parts before."""
    (source,) = strip.buffers
    for j, i, number in _numbers(w):
        here = add(add(strip.row(integer(j * ROWS)), column), integer(i * LANES))
        w.emit.emit(TileLoad(number, source, here, strip.pitch))


def store_sums(w: PackedWriter, to: Scratch, at: tuple[Expression, Expression]) -> None:
    """The sums in tiles to scratch memory, from element `at` (row, column) on."""
    start = w.emit.let(add(to.row(at[0]), at[1]), "tile_start")
    (target,) = to.buffers
    for j, i, number in _numbers(w):
        here = add(add(start, multiply(integer(j * ROWS), to.pitch)), integer(i * LANES))
        w.emit.emit(TileStore(number, target, here, to.pitch))


def store_results(w: PackedWriter, place: Waiting, distance: Expression) -> None:
    """The sums in tiles to the output, whose rows lie so far apart."""
    bases = [place.row_base(integer(j * ROWS)) for j in range(w.form.rows // ROWS)]
    starts = [load(place.vector.out_table, add(place.vector_first, integer(i * LANES))) for i in range(w.form.vectors)]
    for j, i, number in _numbers(w):
        w.emit.emit(TileStore(number, place.out, w.emit.let(add(bases[j], starts[i]), "at"), distance))


def _numbers(w: PackedWriter) -> list[tuple[int, int, int]]:
    """Row, column and number of each tile of sums."""
    vectors = w.form.vectors
    return [(j, i, j * vectors + i) for j in range(w.form.rows // ROWS) for i in range(vectors)]


def sums_of(w: PackedWriter, held: Scratch) -> Accumulators:
    """A register tile's sums that lie in scratch memory, each read where it is used: there are more than registers."""
    (buffer,) = held.buffers
    return {
        (i, j): (load(buffer, add(held.row(integer(j)), integer(i * LANES)), LANES, aligned=True),)
        for j in range(w.form.rows)
        for i in range(w.form.vectors)
    }


def clear_to_whole_tiles(w: PackedWriter, side: Side, count: Expression, steps: Expression) -> None:
    """Zeros for the steps past the end of the sum in the last tile along it."""
    emit, (panel,) = w.emit, side.panels
    nothing = kernel.Broadcast(Constant(0, U32), _VECTOR)
    padded = emit.let(multiply(groups_of(w, steps), integer(LANES)), "padded_steps")
    elements = emit.let(multiply(w.panels(count, side.width), integer(side.width)), "padded")
    last = emit.let(operation("sub", padded, integer(LANES)), "last_tile")

    def step(first: Expression) -> None:
        within = operation("mod", first, integer(side.width))
        base = emit.let(add(multiply(operation("sub", first, within), side.pitch), within), "column")
        w.loop("k", steps, padded, lambda k: _store(w, side, add(base, multiply(k, integer(side.width))), nothing))

    def row(j: Expression) -> None:
        at = emit.let(place_in_tiles(side, j, last), "at")
        kept = operation("select", inside, load(panel, at, LANES, aligned=True), nothing)
        _store(w, side, at, kept)

    def clear() -> None:
        if side.name == "v":
            w.loop("column", integer(0), elements, step, LANES)
        else:
            w.loop("row", integer(0), elements, row)

    left = emit.let(operation("sub", steps, last), "steps_of_last")
    inside = emit.let(kernel.FirstLanes(left, VectorType(BOOL, LANES)), "inside")
    emit.when(operation("lt", steps, padded), clear)


def _store(w: PackedWriter, side: Side, at: Expression, value: Expression) -> None:
    w.emit.emit(Store(side.panels[0], at, value, aligned=True))
