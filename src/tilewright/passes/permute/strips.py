"""The piece of a copy past the caches whose rows of the target are long: strips, in the order of the target.

A strip is a few cache lines of many rows of the target. For each cache line of columns its squares are kept until whole
cache lines of the target are there. A strip that does not end with a cache line of the target leaves the line to the
strip after it, and reads so many rows more to complete its own last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.ir.dataclass import dataclass
from tilewright.kernel.ir import Buffer, Expression, Prefetch, Space, Store, add, integer, load, multiply, operation
from tilewright.passes.permute.interleaved import split
from tilewright.passes.permute.squares import square_columns
from tilewright.passes.permute.tiles import LINE, PermuteDimension
from tilewright.passes.permute.writer import PermuteWriter

AHEAD = 4  # cache lines of a row of the source that are asked for before their turn


@dataclass(frozen=True)
class Strip:
    """Rows of a strip: how many, how many from its beginning to the last one of all, and its number (None: one strip).

    `columns` are those of the chunk.
    """

    rows: Expression
    left: Expression
    number: Expression | None
    columns: Expression


Blocks = Callable[[Expression, Expression, Callable[[Expression], None]], None]


def write_strip(
    w: PermuteWriter,
    source: Expression,
    target: Expression,
    strip: Strip,
    column: PermuteDimension,
    line_by_line: Blocks,
) -> None:
    """Copy the strip whose first elements lie at `source` and `target`; `line_by_line` loops over its columns."""
    form = w.form
    if form.is_aligned and strip.number is not None:
        source, target, strip = _on_lines(w, source, target, strip, strip.number)
    step, to_step = w.parameter("row_from", form.row.source), w.parameter("to_step", column.target)
    reach = _reach(w, strip)
    # A cache line more than its content, so that the columns do not share a set of the first cache.
    pitch = ((2 * form.strip_lines + 2) * LINE) // w.bytes
    stage = Buffer(w.emit.name("stage"), form.word, Space.WORKSPACE, form.width * pitch)
    w.arrays.append(stage)

    def block(start: Expression) -> None:
        read = w.let(add(source, multiply(start, integer(form.atom))), "read")
        written = w.let(add(target, multiply(start, to_step)), "written")
        ahead = words_ahead(w, start, strip.columns, AHEAD)

        def group(r: Expression) -> None:
            first = w.let(add(read, multiply(r, step)), "first")
            at = w.let(multiply(r, integer(form.atom)), "at")
            if form.splits:  # a stream, which the processor reads ahead by itself
                columns: Iterable[tuple[int, Expression]] = enumerate(split(w, first, form.width))
            else:
                starts = [w.let(add(first, multiply(integer(i), step)), "row") for i in range(form.lanes)]
                for one in starts:
                    w.emit.emit(Prefetch(w.source, add(one, ahead), level=2))
                columns = square_columns(w, w.source, starts)
            for c, vector in columns:
                w.emit.emit(Store(stage, add(at, integer(c * pitch)), vector))

        w.overlapping("r", reach, form.lanes, group)
        w.loop("c", integer(0), integer(form.width), lambda c: _flush(
            w, stage, w.let(multiply(c, integer(pitch)), "base"), w.let(add(written, multiply(c, to_step)), "to"), strip
        ))  # fmt: skip

    line_by_line(source, strip.columns, block)


def _on_lines(
    w: PermuteWriter, source: Expression, target: Expression, strip: Strip, number: Expression
) -> tuple[Expression, Expression, Strip]:
    """The strip moved so that it begins with a cache line of the target; the first one is longer by as much."""
    atom = integer(w.form.atom)
    shift = w.let(operation("floordiv", w.up_to(target, LINE), atom), "shift")
    before = w.let(operation("select", operation("eq", number, integer(0)), integer(0), shift), "before")
    left = w.let(operation("sub", strip.left, before), "left")
    longer = add(operation("sub", strip.rows, before), shift)
    rows = w.let(operation("select", operation("eq", strip.rows, strip.left), left, longer), "rows")
    source = add(source, multiply(before, w.parameter("row_from", w.form.row.source)))
    target = add(target, multiply(before, atom))
    return w.let(source, "source"), w.let(target, "target"), Strip(rows, left, number, strip.columns)


def _reach(w: PermuteWriter, strip: Strip) -> Expression:
    """Rows that a strip reads: its own, and those that complete its last cache lines."""
    if w.form.is_aligned:
        return strip.rows
    granule = max(1, LINE // (w.form.atom * w.bytes))
    return w.let(operation("min", strip.left, add(strip.rows, integer(granule))), "reach")


def words_ahead(w: PermuteWriter, start: Expression, columns: Expression, steps: int) -> Expression:
    """Words from a place in the source to what is read some steps later: in this piece or in the next one."""
    form = w.form
    far = form.width * steps
    here = add(start, integer(far))
    to_next = w.parameter("to_next", form.loops[-1].source if form.loops else 0)
    beyond = add(operation("sub", integer(far * form.atom), multiply(columns, integer(form.atom))), to_next)
    ends = operation("ge", here, columns)
    return w.let(operation("select", ends, w.let(beyond, "beyond"), integer(far * form.atom)), "ahead")


def _flush(w: PermuteWriter, stage: Buffer, base: Expression, target: Expression, strip: Strip) -> None:
    """Write one column from its first cache line to that of the next strip."""
    words = w.let(multiply(strip.rows, integer(w.form.atom)), "words")
    low: Expression = integer(0)
    high = words
    if strip.number is not None:
        is_first = operation("eq", strip.number, integer(0))
        low = w.let(operation("select", is_first, integer(0), w.up_to(target, LINE)), "low")
        is_last = operation("eq", strip.rows, strip.left)
        beyond = add(words, w.up_to(w.let(add(target, words), "next"), LINE))
        high = w.let(operation("select", is_last, words, beyond), "high")
    w.run(target, low, high, lambda k, lanes, _: load(stage, add(base, k), lanes))
