"""Asking for what is packed next while the register tile computes: the wait for main memory hides behind arithmetic.

While a block's panels are multiplied, the cache lines of the operands that the next block's panels are made of are
asked for, a few at a time between equal parts of the sum, so that they neither fill the queue of misses nor come too
late: L lines, of which one turn asks for B, need L / B turns during tiles * depth steps of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I64
from tilewright.kernel.ir import Buffer, Expression, Name, Prefetch, Store, add, integer, load, multiply, operation
from tilewright.passes.packed.blocks import BLOCK, LINE
from tilewright.passes.packed.tables import offset_of, walk
from tilewright.passes.packed.writer import PackedWriter, Side

TOGETHER = 8  # requests of one turn: a third of the misses that a core can have at once
MOST_TOGETHER = 12  # of a block that one turn of so many asks for, where two would ask for some lines twice
LEAST_PERIOD = 8  # steps of the sum between turns, so that these take no tenth of the time


@dataclass(frozen=True)
class Ahead:
    """`ask()` writes one turn of requests; turns are due every `period` steps of the sum."""

    period: Expression
    ask: Callable[[], None]


@dataclass(frozen=True)
class Cut:
    """A piece of the vector side or of the sum: where it begins, how far to the next, and where all of them end."""

    at: Expression
    step: Expression
    stop: Expression

    @property
    def following(self) -> Expression:
        """Where the next one begins."""
        return add(self.at, self.step)


@dataclass(frozen=True)
class _Lines:
    """The lines in which the next block lies: `points` along the side by `steps` along the sum, where `point_step` and
    `depth_step` entries of the offset tables count as one. One turn asks for `together` points at `rows` steps.
    """

    side: Side
    table: Buffer
    depth_table: Buffer
    point_step: int
    depth_step: int
    points: Expression
    steps: Expression
    together: int
    rows: int


def ask_ahead(
    w: PackedWriter,
    sides: tuple[Side, Side],
    depth_sizes: Sequence[Expression],
    vectors: tuple[Expression, Cut],
    piece: Cut,
    vector_base: Expression,
    counts: tuple[Expression, Expression, Expression],
) -> Ahead | None:
    """What to ask for during a block's arithmetic; None if the operands are near, or no block follows another.

    Args:
        w: the kernel.
        sides: the vector side and the scalar side.
        depth_sizes: sizes of the contracted dimensions.
        vectors: where the vector side begins, and its present block.
        piece: the present piece of the sum.
        vector_base: where the vector side's operand begins.
        counts: elements of the vector block, of the scalar block, of the piece of the sum.
    """
    form, emit, zero = w.form, w.emit, integer(0)
    if not (form.asks_vectors or form.asks_scalars):
        return None
    first, block = vectors
    wraps = emit.let(operation("ge", block.following, block.stop), "wraps")
    at = emit.let(operation("select", wraps, first, block.following), "following")
    step = emit.let(operation("select", wraps, piece.following, piece.at), "following_step")
    left = operation("max", operation("sub", piece.stop, step), zero)
    depth = w.minimum(left, piece.step)
    lines = []
    if form.asks_vectors:
        count = w.minimum(operation("sub", block.stop, at), block.step)
        table = w.workspace("v_ahead", I64, BLOCK)
        lines.append(_lines_of(w, sides[0], table, form.vectors_turned, count, depth))

        def fill(position: Expression, indices: list[Expression]) -> None:
            emit.emit(Store(table, position, add(vector_base, offset_of(indices, sides[0].strides))))

        walk(w, at, count, sides[0].sizes, fill)
    if form.asks_scalars:  # packed again for each piece of the sum, before its first block of the vector side
        own = emit.let(operation("select", wraps, depth, zero), "depth")
        lines.append(_lines_of(w, sides[1], sides[1].source_table, form.scalar_rows, counts[1], own))

    def fill_steps(position: Expression, indices: list[Expression]) -> None:
        for one in lines:
            emit.emit(Store(one.depth_table, position, offset_of(indices, one.side.depth_strides)))

    walk(w, step, depth, depth_sizes, fill_steps)
    return _in_turns(w, lines, _period(w, sides, lines, counts))


def _lines_of(
    w: PackedWriter, side: Side, table: Buffer, along_sum: bool, count: Expression, depth: Expression
) -> _Lines:
    """Lines lie along the sum or along the side. Half lines count: where a run ends, another begins anywhere."""
    half = max(1, LINE // side.operand.element.bytes // 2)
    point_step, depth_step = (1, half) if along_sum else (half, 1)
    depth_table = w.workspace(f"{side.name}_depth_ahead", I64, w.form.depth_capacity)
    points = w.emit.let(_ceiling(count, point_step), "points")
    steps = w.emit.let(_ceiling(depth, depth_step), "steps")
    block = w.form.vector_block if side.name == "v" else w.form.scalar_block
    most, rows = -(-block // point_step), w.form.asked_rows
    together = most if TOGETHER < most <= MOST_TOGETHER and rows == 1 else TOGETHER // rows
    return _Lines(side, table, depth_table, point_step, depth_step, points, steps, together, rows)


def _ceiling(count: Expression, unit: int) -> Expression:
    return count if unit == 1 else operation("floordiv", add(count, integer(unit - 1)), integer(unit))


def _period(
    w: PackedWriter, sides: tuple[Side, Side], lines: list[_Lines], counts: tuple[Expression, Expression, Expression]
) -> Expression:
    """Steps of the sum between turns, so that all have been taken when the block is done."""
    turns: Expression = integer(1)
    for one in lines:
        own = multiply(_ceiling(one.steps, one.rows), _ceiling(one.points, one.together))
        turns = w.emit.let(operation("max", turns, own), "turns")
    tiles = multiply(w.panels(counts[0], sides[0].width), w.panels(counts[1], sides[1].width))
    period = operation("floordiv", multiply(tiles, counts[2]), turns)
    return w.emit.let(operation("max", period, integer(LEAST_PERIOD)), "period")


def _in_turns(w: PackedWriter, lines: list[_Lines], period: Expression) -> Ahead:
    zero = integer(0)
    places = [(w.emit.declare(zero, "point"), w.emit.declare(zero, "step")) for _ in lines]

    def ask() -> None:
        for one, (point, step) in zip(lines, places, strict=True):

            def turn(one: _Lines = one, point: Name = point, step: Name = step) -> None:
                _turn(w, one, point, step)

            w.emit.when(operation("lt", step, one.steps), turn)

    return Ahead(period, ask)


def _turn(w: PackedWriter, lines: _Lines, point: Name, step: Name) -> None:
    """Ask for the next lines along the side, at the current steps; after the last ones the next steps begin."""
    emit = w.emit

    def along(row: int) -> Expression:
        number: Expression = step
        if row:
            last_step = operation("sub", lines.steps, integer(1))
            number = emit.let(operation("min", add(step, integer(row)), last_step), "step")
        return emit.let(load(lines.depth_table, multiply(number, integer(lines.depth_step))), "along")

    rows = [along(row) for row in range(lines.rows)]
    last = emit.let(operation("sub", lines.points, integer(1)), "last")
    for number in range(lines.together):
        here = operation("min", add(point, integer(number)), last)
        start = load(lines.table, multiply(here, integer(lines.point_step)))
        for row in rows:
            emit.emit(Prefetch(lines.side.source, emit.let(add(start, row), "at"), level=2))
    emit.assign(point, add(point, integer(lines.together)))

    def next_step() -> None:
        emit.assign(point, integer(0))
        emit.assign(step, add(step, integer(lines.rows)))

    emit.when(operation("gt", point, last), next_step)
