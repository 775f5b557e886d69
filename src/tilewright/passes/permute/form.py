"""Copies between two layouts of an array: what is decided before the kernel of a copy is written.

    target[i1, i2, ...] = source[i1, i2, ...]       with any strides on either side

Bits are moved, not numbers: the elements are seen as machine words of 1, 2, 4 or 8 bytes, a complex one as two words.
Dimensions that are one in both arrays are fused. What is left is one of two cases. Either both arrays (or the source
not at all, or backwards) move along the target's unit stride: rows are copied. Or the source's unit stride is another
dimension's: squares are transposed in registers,

    rows      a strip of the target's unit-stride dimension, four cache lines of the target or more
    columns   a cache line along the source's unit-stride dimension

so that what is read and what is written are whole cache lines. A run of few words that both arrays have in common is
moved as one unit, an atom. A target larger than the caches is written past them, which spares reading it first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.scalars import U8, U16, U32, U64, ScalarType, real_of
from tilewright.machine.model import Machine
from tilewright.passes.permute.tiles import LINE, PAGE, PermuteDimension, Tile, tile_extents, tile_of

WORDS = {1: U8, 2: U16, 4: U32, 8: U64}
STRIP_LINES = 4  # cache lines of the target that a strip writes in one piece: with one of them it takes twice the time
ROWS_BY_LINES = 128  # of the source, which are read together where each cache line is read once
LONG_LINES = 16  # cache lines of a row that is written past the caches wherever it begins
LONG_ROW = 64  # cache lines of a row whose strips are written past the caches one by one
LARGEST_ATOM = 16  # bytes
GRAIN_BYTES = 1 << 15  # what a block should copy at the least, for the cost of finding its place
SERIAL_BYTES = 1 << 19  # copied within some 10 microseconds: less is not worth waking another thread
BLOCKS_PER_CORE = 16
PAGES_AT_ONCE = 1024  # of the target, while a page of each row of the source is read
OUTER, STRIPS, CHUNKS, BLOCKS, INSIDE = "outer", "strips", "chunks", "blocks", "inside"
TILES, EDGE = "tiles", "edge"


@dataclass(frozen=True)
class PermuteLoop:
    """A loop around the piece that is copied at once: over a dimension (`OUTER`), over pieces of the row (`STRIPS`) or
    of the column (`CHUNKS`), or over blocks of a dimension (`BLOCKS`) and inside them (`INSIDE`, whose size is that of
    the dimension, with blocks of `part`); the strides of one step are in words. Over tiles (`TILES`, and `EDGE` where
    they share cache lines) they are those of the dimension: a tile has `part` steps, and begins with `last` at the
    latest.
    """

    over: str
    size: int
    source: int
    target: int
    part: int = 1
    last: int = 0


@dataclass(frozen=True)
class PermuteForm:
    """A copy, decided.

    Attributes:
        word: the type that is moved.
        atom: words that lie together in both arrays and are moved together.
        loops: the loops around a piece, outermost first; the first `parallel` of them are shared out to blocks.
        row: the dimension along which the target is written.
        column: the dimension along which the source is read; None where that is `row` too, and rows are copied.
        strip: atoms of the row in a piece; the last piece takes the rest as well.
        chunk: the same for the column.
        lanes: atoms of the row in a vector that is read; 1 where nothing is read in vectors.
        vector: words of a vector of the target.
        columns: atoms of the column in a vector.
        width: atoms of the column that are written out together.
        nontemporal: the target is written past the caches.
        by_lines: each cache line of either array is read or written once (`permute_lines`).
        is_aligned: all rows of the target begin at the same place in a cache line.
        reads_aligned: all rows of the source in a piece begin at the same place in a cache line.
        tile: what is gathered before it is written past the caches, where rows are short.
        source_start, target_start: where the first element lies, in words.
    """

    word: ScalarType
    atom: int
    loops: tuple[PermuteLoop, ...]
    parallel: int
    row: PermuteDimension
    column: PermuteDimension | None
    strip: int
    chunk: int
    lanes: int
    vector: int
    columns: int
    width: int
    nontemporal: bool
    by_lines: bool
    is_aligned: bool
    reads_aligned: bool
    tile: Tile | None
    source_start: int
    target_start: int

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return math.prod(one.size for one in self.loops[: self.parallel])


def permute_form(
    element: ScalarType,
    shape: Sequence[int],
    source: Sequence[int],
    target: Sequence[int],
    machine: Machine,
    offsets: tuple[int, int] = (0, 0),
) -> PermuteForm:
    """Decide how an array is copied.

    Args:
        element: the type of the elements.
        shape: the sizes, none of them 0.
        source, target: the strides in elements; with those of the target no two elements may be one.
        machine: a CPU.
        offsets: where the first elements lie.

    Example:
        >>> from tilewright.ir.scalars import F32
        >>> from tilewright.machine.named import named_machine
        >>> form = permute_form(F32, (64, 8, 100), (800, 100, 1), (1, 6400, 64), named_machine("cpu-avx512"))
        >>> form.row.size, form.column.size, form.lanes, form.columns
        (64, 800, 16, 16)
    """
    words = 2 if element.is_complex else 1
    word = WORDS[real_of(element).bytes]
    dimensions = [
        PermuteDimension(n, s * words, t * words) for n, s, t in zip(shape, source, target, strict=True) if n > 1
    ]
    if words == 2:
        dimensions.append(PermuteDimension(2, 1, 1))
    nbytes = math.prod(one.size for one in dimensions) * word.bytes
    starts = [offset * words for offset in offsets]
    for position, one in enumerate(dimensions):
        if one.target < 0:
            dimensions[position] = _turned(one, starts)
    atom, dimensions = _atom(fused(dimensions), word)
    row = dimensions.pop() if dimensions else PermuteDimension(1, atom, atom)
    column = None
    if row.source not in (atom, 0) and (atom > 1 or row.source != -1 or row.target != 1):
        column = min((one for one in dimensions if one.source), key=lambda one: abs(one.source), default=None)
    if column is None:
        return _rows(word, atom, dimensions, row, starts, nbytes, machine)
    dimensions.remove(column)
    if column.source < 0:
        column = _turned(column, starts)
    return _squares(word, atom, dimensions, row, column, starts, nbytes, machine)


def _turned(one: PermuteDimension, starts: list[int]) -> PermuteDimension:
    """The dimension walked from its other end."""
    starts[0] += (one.size - 1) * one.source
    starts[1] += (one.size - 1) * one.target
    return PermuteDimension(one.size, -one.source, -one.target)


def fused(dimensions: Sequence[PermuteDimension]) -> list[PermuteDimension]:
    """In the order of the target's strides, the largest first; neighbours that are one in both arrays made one."""
    found: list[PermuteDimension] = []
    for one in sorted(dimensions, key=lambda one: one.target):
        last = found[-1] if found else PermuteDimension(0, 0, 0)
        if (one.source, one.target) == (last.size * last.source, last.size * last.target):
            found[-1] = PermuteDimension(last.size * one.size, last.source, last.target)
        else:
            found.append(one)
    return found[::-1]


def _atom(dimensions: list[PermuteDimension], word: ScalarType) -> tuple[int, list[PermuteDimension]]:
    """How many words move as one, and the dimensions left (their strides stay in words)."""
    if len(dimensions) < 2:
        return 1, dimensions
    last = dimensions[-1]
    if last.source == last.target == 1 and last.size * word.bytes <= LARGEST_ATOM:
        return last.size, dimensions[:-1]
    return 1, dimensions


def _power_of_two(limit: int) -> int:
    return 1 << (max(1, limit).bit_length() - 1)


def _past_caches(nbytes: int, machine: Machine) -> bool:
    """Whether an output does not stay in the caches anyway.

    Squares of arrays that lie far apart count twice: in the third cache, writing to many places at once is so slow
    that half as much is better written past it already.
    """
    return nbytes > max(machine.l2_bytes, machine.l3_bytes // 4)


def _rows(
    word: ScalarType,
    atom: int,
    dimensions: list[PermuteDimension],
    row: PermuteDimension,
    starts: Sequence[int],
    nbytes: int,
    machine: Machine,
) -> PermuteForm:
    """Copy, turn or fill rows; the loops follow the target."""
    vector = row.target == atom == 1 and row.source in (1, 0, -1)
    lanes = max(1, machine.vector_bytes // word.bytes) if vector else 1
    wanted = _wanted_blocks(nbytes, machine)
    others = math.prod(one.size for one in dimensions)
    granule = max(1, LINE // word.bytes)
    strip = row.size
    if others < wanted:
        strip = max(granule, -(-row.size // -(-wanted // others)) // granule * granule)
    strips = max(1, row.size // strip)
    loops = [_loop(one) for one in dimensions]
    loops.append(PermuteLoop(STRIPS, strips, strip * row.source, strip * row.target))
    return PermuteForm(
        word,
        atom,
        tuple(one for one in loops if one.size > 1),
        _parallel([one.size for one in loops if one.size > 1], wanted),
        row,
        None,
        strip if strips > 1 else row.size,
        1,
        lanes,
        lanes,
        1,
        1,
        _past_caches(nbytes, machine) and vector and row.size * word.bytes >= LONG_LINES * LINE,
        False,
        False,
        False,
        None,
        starts[0],
        starts[1],
    )


def _squares(
    word: ScalarType,
    atom: int,
    dimensions: list[PermuteDimension],
    row: PermuteDimension,
    column: PermuteDimension,
    starts: Sequence[int],
    nbytes: int,
    machine: Machine,
) -> PermuteForm:
    """Transpose squares: a page of each row of the source, then in the order of the target."""
    size = atom * word.bytes
    line = max(1, LINE // size)
    lanes = columns = 1
    if row.target == atom == column.source and atom.bit_count() == 1:
        lanes = _power_of_two(min(machine.vector_bytes // size, row.size))
        # Narrow types are read in quarters of a line: squares of whole lines would not fit the registers.
        columns = _power_of_two(min(lanes if size >= 4 else LARGEST_ATOM // size, lanes, column.size))
        if lanes == 1 or columns * atom == 1:
            lanes = columns = 1
    width = min(max(columns, line), column.size)
    plane = row.size * column.size * size
    is_local = (
        column.target == row.size * atom and max(plane, row.size * row.source * word.bytes) <= machine.l2_bytes // 4
    )
    past = _past_caches(nbytes if is_local else 2 * nbytes, machine)
    # Narrow words are read in several pieces of a line, which is not there any more if all rows share its set.
    lost = columns < width and row.source * word.bytes % PAGE == 0
    nontemporal = past and lanes > 1 and row.size * size >= LONG_ROW * LINE and not lost
    # Where all rows of the source begin at the same place in a line, no line is read twice anyway; and columns that
    # begin at the same place in a page are better written several lines at a time.
    steps = row.source * word.bytes % LINE, column.target * word.bytes % PAGE
    by_lines = nontemporal and lanes == columns == line and row.source > 0 and all(steps)
    if past and not nontemporal and row.target == atom == column.source:
        return _tiles(word, atom, dimensions, (row, column), (lanes, columns, width), starts, nbytes, machine)
    strip = ROWS_BY_LINES if by_lines else max(STRIP_LINES * line, lanes)
    strips = max(1, row.size // strip)
    wanted = _wanted_blocks(nbytes, machine)
    others = strips * math.prod(one.size for one in dimensions)
    page = max(width, min(PAGES_AT_ONCE, PAGE // size) // width * width)
    chunk = page if column.size >= 2 * page else column.size
    if others < wanted:
        chunk = min(chunk, max(4 * width, -(-column.size // -(-wanted // others)) // width * width))
    chunks = max(1, column.size // chunk)
    walked, inside = _within_page(dimensions, word) if chunks == 1 else (dimensions, [])
    loops = [one if isinstance(one, PermuteLoop) else _loop(one) for one in walked]
    loops.append(PermuteLoop(STRIPS, strips, strip * row.source, strip * row.target))
    loops.append(PermuteLoop(CHUNKS, chunks, chunk * column.source, chunk * column.target))
    loops.sort(key=lambda one: -abs(one.target))
    loops = [one for one in (*loops, *inside) if one.size > 1]
    return PermuteForm(
        word,
        atom,
        tuple(loops),
        _parallel([one.size for one in loops if one.over != INSIDE], wanted),
        row,
        column,
        strip if strips > 1 else row.size,
        chunk if chunks > 1 else column.size,
        lanes,
        lanes * atom,
        columns,
        width,
        nontemporal,
        by_lines,
        all(one.target * word.bytes % LINE == 0 for one in (*dimensions, column)),
        row.source * word.bytes % LINE == 0 and width == line,
        None,
        starts[0],
        starts[1],
    )


def _tiles(
    word: ScalarType,
    atom: int,
    dimensions: list[PermuteDimension],
    ends: tuple[PermuteDimension, PermuteDimension],
    pieces: tuple[int, int, int],
    starts: Sequence[int],
    nbytes: int,
    machine: Machine,
) -> PermuteForm:
    """Gather tiles and write them past the caches, in the order of the target."""
    (row, column), (lanes, columns, width) = ends, pieces
    extents = tile_extents(dimensions, row, column, atom, word.bytes, (lanes, width), machine.l2_bytes)
    tile = tile_of(extents, row, column, atom, word.bytes, machine)
    loops = []
    for one in (*dimensions, row, column):
        extent = extents.get(one, 1)
        if extent < one.size:
            count = -(-one.size // extent)
            over = EDGE if tile.edge is not None and one.target == tile.edge.target else TILES
            loops.append(PermuteLoop(over, count, one.source, one.target, extent, one.size - extent))
    loops.sort(key=lambda one: -one.target * one.part)
    return PermuteForm(
        word,
        atom,
        tuple(loops),
        _parallel([one.size for one in loops], _wanted_blocks(nbytes, machine)),
        row,
        column,
        row.size,
        column.size,
        lanes,
        max(1, machine.vector_bytes // word.bytes),
        columns,
        width,
        True,
        False,
        False,
        False,
        tile,
        starts[0],
        starts[1],
    )


def _loop(one: PermuteDimension) -> PermuteLoop:
    return PermuteLoop(OUTER, one.size, one.source, one.target)


def _within_page(
    dimensions: Sequence[PermuteDimension], word: ScalarType
) -> tuple[list[PermuteDimension | PermuteLoop], list[PermuteLoop]]:
    """Dimensions to be walked in the order of the target, and loops inside them that read a page of the source.

    To write all of a page of the target, as many pages of the source are read as the target has neighbours there, and
    the other way round: if a page of either is not done with quickly, addresses have to be looked up for each line.
    """
    rest: list[PermuteDimension | PermuteLoop] = sorted(dimensions, key=lambda one: -abs(one.source))
    inside: list[PermuteLoop] = []
    while rest:
        one = rest[-1]
        assert isinstance(one, PermuteDimension)
        fitting = PAGE // max(1, abs(one.source) * word.bytes)
        if one.source == 0 or fitting < 2:
            break
        rest.pop()
        if one.size < 2 * fitting:
            inside.insert(0, _loop(one))
            continue
        rest.append(PermuteLoop(BLOCKS, one.size // fitting, fitting * one.source, fitting * one.target))
        inside.insert(0, PermuteLoop(INSIDE, one.size, one.source, one.target, fitting))
        break
    return rest, inside


def _wanted_blocks(nbytes: int, machine: Machine) -> int:
    if nbytes < SERIAL_BYTES:
        return 1
    return max(1, min(nbytes // GRAIN_BYTES, BLOCKS_PER_CORE * machine.cores))


def _parallel(sizes: Sequence[int], wanted: int) -> int:
    """How many of the outermost loops give as many blocks as are wanted."""
    blocks, count = 1, 0
    while blocks < wanted and count < len(sizes):
        blocks *= sizes[count]
        count += 1
    return count
