"""Copies between two layouts of an array: what is decided before the kernel of a copy is written.

    target[i1, i2, ...] = source[i1, i2, ...]       with any strides on either side

Bits are moved, not numbers: the elements are seen as machine words of 1, 2, 4 or 8 bytes, a complex one as two words.
Dimensions that are one in both arrays are fused. What is left is one of two cases. Either both arrays (or the source
not at all, or backwards) move along the target's unit stride: rows are copied. Or the source's unit stride is another
dimension's: squares are transposed in registers,

    rows      a strip of the target's unit-stride dimension, four cache lines of the target or more
    columns   a cache line along the source's unit-stride dimension

so that what is read and what is written are whole cache lines. A run of few words that both arrays have in common is
moved as one unit, an atom. A target larger than the caches is written past them, which spares reading it first. Where
what is read and written at once would lie in few sets of the first cache (steps of a power of two), or rows are too
short to be written past the caches, tiles are gathered beside the arrays and written from there. Few rows whose
elements lie between each other on one side are split or merged in registers (`interleaving.py`). On a server's mesh
squares ask for lines of the target ahead, and several matrices that the third cache holds are then better written to it
than past it, unless they are written straight from registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import U8, U16, U32, U64, ScalarType, real_of
from tilewright.machine.model import Machine
from tilewright.passes.permute import form
from tilewright.passes.permute.carried_form import carried_form, is_paired
from tilewright.passes.permute.copied import (
    Copied,
    is_long_row,
    outer_loop,
    parallel_loops,
    past_caches,
    power_of_two_at_most,
    wanted_blocks,
)
from tilewright.passes.permute.form import PermuteForm
from tilewright.passes.permute.interleaving import merged_form, merged_lanes, split_lanes
from tilewright.passes.permute.joined_form import joined_form
from tilewright.passes.permute.overlapped_form import overlapped_form
from tilewright.passes.permute.straight_form import straight_form
from tilewright.passes.permute.tiles import LINE, MANY_WAYS, PAGE, PermuteDimension, tile_extents, tile_of

WORDS = {1: U8, 2: U16, 4: U32, 8: U64}
ROWS_BY_LINES = 128  # of the source, which are read together where each cache line is read once
STREAMED_LINES = 1024  # of each of few rows that are split straight from registers
FEW_VECTORS = 8  # of a row that is copied without a loop
LONG_ROW = 64  # cache lines of a row whose strips are written past the caches one by one
LARGEST_ATOM = 16  # bytes
LONGEST_ATOM = 32  # where no line has to begin with one: past the caches arrays promise no more than 16 bytes
FAR_SHARE = 2  # of the second cache: tiles of a larger target within the caches are not lined up
LEAST_APART = 2 * LINE  # bytes from column to column of lines that are asked for before they are written
LEAST_SETS = 4  # of the first cache, in which these lines lie
LARGEST_ASKED = 8  # bytes of an atom that is written to the third cache rather than past it
GROUPS_AHEAD = 2  # of vectors of the columns, of which the next one is too late for lines of the third cache
PAGES_AT_ONCE = 1024  # of the target, while a page of each row of the source is read


@dataclass(frozen=True)
class _Square:
    """What is transposed in registers: `lanes` atoms of the row by `columns` of the column, until `width` of the latter
    are written out together."""

    lanes: int
    columns: int
    width: int


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
    starts = [offset * words for offset in offsets]
    for position, one in enumerate(dimensions):
        if one.target < 0:
            dimensions[position] = _turned(one, starts)
    atom, dimensions = _atom(fused(dimensions), word, machine)
    row = dimensions.pop() if dimensions else PermuteDimension(1, atom, atom)
    column = None
    if row.source not in (atom, 0) and (atom > 1 or row.source != -1 or row.target != 1):
        column = min((one for one in dimensions if one.source), key=lambda one: abs(one.source), default=None)
    if column is None:
        copied = Copied(word, atom, row, tuple(dimensions), (starts[0], starts[1]), machine)
        return joined_form(copied) or _rows(copied)
    dimensions.remove(column)
    if column.source < 0:
        column = _turned(column, starts)
    copied = Copied(word, atom, row, tuple(dimensions), (starts[0], starts[1]), machine)
    if (lanes := split_lanes(copied, column)) > 1:
        is_long = row.size * copied.size >= LONG_ROW * LINE
        nontemporal = is_long and past_caches(copied.nbytes(column.size), machine)
        return _squares(copied, column, _Square(lanes, column.size, column.size), nontemporal, splits=True)
    if (lanes := merged_lanes(copied, column)) > 1:
        return merged_form(copied, column, lanes)
    square = _square(copied, column)
    past = past_caches(_bytes_far_apart(copied, column), machine)
    is_long = _long_rows(copied, square)
    nontemporal = past and is_long
    # Gathering rows that share few sets within the caches takes longer, whether the third one has the target or not.
    goes_past = past or (_shares_sets(copied, column, square) and _is_far(copied, column))
    if goes_past and (found := overlapped_form(copied, column, is_long)) is not None:
        return found
    # Long rows of a source that begin anywhere in a line are better read in strips, which move each line at once.
    if past and not (nontemporal and row.source * word.bytes % LINE):
        straight = straight_form(copied, column, square.lanes)
        if straight is not None:
            return straight
    if past and _is_near(copied, column) and _groups_ahead(copied, column, square):
        return _squares(copied, column, square, False)
    if (
        past
        and (not nontemporal or _carries_long_rows(copied, column))
        and (found := carried_form(copied, column)) is not None
    ):
        return found
    gathered = not nontemporal if past else _shares_sets(copied, column, square)
    if gathered and row.target == atom == column.source:
        return _tiles(copied, column, square, past)
    return _squares(copied, column, square, nontemporal)


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


def _atom(dimensions: list[PermuteDimension], word: ScalarType, machine: Machine) -> tuple[int, list[PermuteDimension]]:
    """How many words move as one, and the dimensions left (their strides stay in words)."""
    if len(dimensions) < 2:
        return 1, dimensions
    last = dimensions[-1]
    nbytes = math.prod(one.size for one in dimensions) * word.bytes
    one_by_one = last.size.bit_count() > 1 or not past_caches(2 * nbytes, machine)
    if last.source == last.target == 1 and last.size * word.bytes <= (LONGEST_ATOM if one_by_one else LARGEST_ATOM):
        return last.size, dimensions[:-1]
    return 1, dimensions


def _bytes_far_apart(copied: Copied, column: PermuteDimension) -> int:
    """The bytes of the target, counted twice if they are written to many places at once: in the third cache that is so
    slow that half as much is better written past it already."""
    row = copied.row
    plane = row.size * column.size * copied.size
    is_local = (
        column.target == row.size * copied.atom
        and max(plane, row.size * row.source * copied.word.bytes) <= copied.machine.l2_bytes // 4
    )
    return copied.nbytes(column.size) * (1 if is_local else 2)


def _rows(copied: Copied) -> PermuteForm:
    """Copy, turn or fill rows; the loops follow the target."""
    word, row = copied.word, copied.row
    vector = row.target == copied.atom == 1 and row.source in (1, 0, -1)
    lanes = max(1, copied.machine.vector_bytes // word.bytes) if vector else 1
    pieces = 0
    past = (
        vector and is_long_row(row.size * word.bytes, copied.machine) and past_caches(copied.nbytes(), copied.machine)
    )
    if vector and not past and 1 < row.size <= FEW_VECTORS * lanes:
        lanes = power_of_two_at_most(min(lanes, row.size))
        pieces = -(-row.size // lanes)
    wanted = wanted_blocks(copied.nbytes(), copied.machine)
    others = math.prod(one.size for one in copied.others)
    granule = max(1, LINE // word.bytes)
    strip = row.size
    if others < wanted:
        strip = max(granule, -(-row.size // -(-wanted // others)) // granule * granule)
    strips = max(1, row.size // strip)
    every = (
        *map(outer_loop, copied.others),
        form.PermuteLoop(form.STRIPS, strips, strip * row.source, strip * row.target),
    )
    loops = tuple(one for one in every if one.size > 1)
    return PermuteForm(
        word=word,
        atom=copied.atom,
        loops=loops,
        parallel=parallel_loops([one.size for one in loops], wanted),
        row=row,
        strip=strip if strips > 1 else row.size,
        lanes=lanes,
        vector=lanes,
        pieces=pieces,
        nontemporal=past,
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )


def _square(copied: Copied, column: PermuteDimension) -> _Square:
    """As many lanes as a vector has; single atoms where the source's column or the target's row has gaps."""
    row, atom, size = copied.row, copied.atom, copied.size
    lanes = columns = 1
    fits = atom.bit_count() == 1 or copied.machine.vector_bytes == LINE  # Which has masks and picks from two vectors.
    if row.target == atom == column.source and fits:
        lanes = power_of_two_at_most(min(copied.machine.vector_bytes // size, row.size))
        # Narrow types are read in quarters of a line: squares of whole lines would not fit the registers.
        columns = power_of_two_at_most(min(lanes if size > 2 else LARGEST_ATOM // size, lanes, column.size))
        if lanes == 1 or columns * atom == 1:
            lanes = columns = 1
    line = copied.line if lanes == 1 else power_of_two_at_most(copied.line)
    return _Square(lanes, columns, min(max(columns, line), column.size))


def _long_rows(copied: Copied, square: _Square) -> bool:
    """Whether strips of the rows are worth being written past the caches one by one."""
    # Narrow words are read in several pieces of a line, which is not there any more if all rows share its set.
    lost = square.columns < square.width and copied.row.source * copied.word.bytes % PAGE == 0
    is_even = copied.atom.bit_count() == 1  # Else lines begin in the middle of atoms, which strips do not do.
    return square.lanes > 1 and is_even and copied.row.size * copied.size >= LONG_ROW * LINE and not lost


def _carries_long_rows(copied: Copied, column: PermuteDimension) -> bool:
    """Whether rows of the source follow each other and are short, or (unless strips are better) are a matrix's and
    begin alike in a line, or lines of its columns are written in pairs.
    """
    row = copied.row.source
    if not copied.machine.pace.in_strips and (row * copied.word.bytes % LINE == 0 or is_paired(copied)):
        return not copied.others
    return row == column.size * copied.atom and column.size * copied.size <= PAGE // 2


def _shares_sets(copied: Copied, column: PermuteDimension, square: _Square) -> bool:
    """Whether the rows that are read and the columns that are written at once lie in so few sets of the first cache
    that they drive each other out of it."""
    machine = copied.machine

    def in_a_set(step: int, count: int) -> int:
        return max(1, count * math.gcd(step * copied.word.bytes, PAGE) // PAGE)

    lines = in_a_set(copied.row.source, square.lanes) + in_a_set(column.target, square.width)
    ways = machine.l1_bytes // PAGE
    return square.lanes > 1 and lines > ways and copied.nbytes(column.size) > machine.l1_bytes


def _is_far(copied: Copied, column: PermuteDimension) -> bool:
    """Whether the target is much larger than the second cache."""
    return copied.nbytes(column.size) > FAR_SHARE * copied.machine.l2_bytes


def _squares(
    copied: Copied, column: PermuteDimension, square: _Square, nontemporal: bool, splits: bool = False
) -> PermuteForm:
    """Transpose squares: a page of each row of the source, then in the order of the target."""
    word, row, line, width = copied.word, copied.row, copied.line, square.width
    # Where all rows of the source begin at the same place in a line, no line is read twice anyway; and columns that
    # begin at the same place in a page are better written several lines at a time.
    steps = row.source * word.bytes % LINE, column.target * word.bytes % PAGE
    by_lines = nontemporal and square.lanes == square.columns == line and row.source > 0 and all(steps)
    by_lines = by_lines and not splits and not copied.machine.pace.in_strips
    lines = form.SPLIT_LINES if splits else form.STRIP_LINES
    if splits and nontemporal and square.lanes == line:
        lines = STREAMED_LINES
    strip = ROWS_BY_LINES if by_lines else max(lines * line, square.lanes)
    strips = max(1, row.size // strip)
    wanted = wanted_blocks(copied.nbytes(column.size), copied.machine)
    chunk = _chunk(copied, column, width, -(-wanted // (strips * math.prod(one.size for one in copied.others))))
    chunks = max(1, column.size // chunk)
    walked, inside = _within_page(copied.others, word) if chunks == 1 else (copied.others, [])
    loops = [one if isinstance(one, form.PermuteLoop) else outer_loop(one) for one in walked]
    loops.append(form.PermuteLoop(form.STRIPS, strips, strip * row.source, strip * row.target))
    loops.append(form.PermuteLoop(form.CHUNKS, chunks, chunk * column.source, chunk * column.target))
    loops.sort(key=lambda one: -abs(one.target))
    loops = [one for one in (*loops, *inside) if one.size > 1]
    return PermuteForm(
        word=word,
        atom=copied.atom,
        loops=tuple(loops),
        parallel=parallel_loops([one.size for one in takewhile(lambda one: one.over != form.INSIDE, loops)], wanted),
        row=row,
        column=column,
        strip=strip if strips > 1 else row.size,
        chunk=chunk if chunks > 1 else column.size,
        lanes=square.lanes,
        vector=square.lanes * copied.atom,
        columns=square.columns,
        width=width,
        nontemporal=nontemporal,
        groups_ahead=0 if nontemporal else _groups_ahead(copied, column, square),
        splits=splits,
        by_lines=by_lines,
        is_aligned=all(one.target * word.bytes % LINE == 0 for one in (*copied.others, column)),
        reads_aligned=row.source * word.bytes % LINE == 0 and width == line and not splits,
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )


def _is_near(copied: Copied, column: PermuteDimension) -> bool:
    """Whether the third cache holds several matrices and their copies. One matrix is written past it nearly as fast,
    and much faster where its lines have left that cache meanwhile.
    """
    both = 2 * copied.nbytes(column.size)
    return bool(copied.others) and both <= copied.machine.pace.held and copied.size <= LARGEST_ASKED


def _groups_ahead(copied: Copied, column: PermuteDimension, square: _Square) -> int:
    """How far ahead lines of the target are asked for: not at all where the processor foresees them, since columns
    follow each other, or where they drive each other out of few sets of the first cache.
    """
    step = abs(column.target) * copied.word.bytes
    sets = {c * step // LINE % (PAGE // LINE) for c in range(square.width)}
    apart = step >= LEAST_APART and len(sets) >= min(LEAST_SETS, square.width)
    if copied.machine.pace.asks_results == 0 or not apart or square.lanes == 1 or copied.row.size <= square.lanes:
        return 0
    return GROUPS_AHEAD if copied.row.size > GROUPS_AHEAD * square.lanes else 1


def _chunk(copied: Copied, column: PermuteDimension, width: int, wanted: int) -> int:
    """Atoms of the column in a piece: a page of the source, or fewer where so many chunks are wanted."""
    page = max(width, min(PAGES_AT_ONCE, PAGE // copied.size) // width * width)
    chunk = page if column.size >= 2 * page else column.size
    return chunk if wanted <= 1 else min(chunk, max(4 * width, -(-column.size // wanted) // width * width))


def _tiles(copied: Copied, column: PermuteDimension, square: _Square, past: bool) -> PermuteForm:
    """Gather tiles and write them, past the caches or within them, in the order of the target."""
    word, row, atom, machine = copied.word, copied.row, copied.atom, copied.machine
    least = (square.lanes, square.width)
    extents = tile_extents(copied.others, row, column, atom, word.bytes, least, machine, past)
    # Rows in the third cache take longer to come than squares that miss the first one for the half of a line.
    lines_up = past or not _is_far(copied, column) or machine.l2_ways < MANY_WAYS
    tile = tile_of(extents, row, column, atom, word.bytes, machine, past, lines_up)
    loops = []
    for one in (*copied.others, row, column):
        extent = extents.get(one, 1)
        if extent < one.size:
            count = -(-one.size // extent)
            over = form.EDGE if tile.edge is not None and one.target == tile.edge.target else form.TILES
            loops.append(form.PermuteLoop(over, count, one.source, one.target, extent, one.size - extent))
    loops.sort(key=lambda one: -one.target * one.part)
    wanted = wanted_blocks(copied.nbytes(column.size), machine)
    return PermuteForm(
        word=word,
        atom=atom,
        loops=tuple(loops),
        parallel=parallel_loops([one.size for one in loops], wanted),
        row=row,
        column=column,
        strip=row.size,
        chunk=column.size,
        lanes=square.lanes,
        vector=max(1, machine.vector_bytes // word.bytes),
        columns=square.columns,
        width=square.width,
        nontemporal=past,
        tile=tile,
        source_start=copied.starts[0],
        target_start=copied.starts[1],
    )


def _within_page(
    dimensions: Sequence[PermuteDimension], word: ScalarType
) -> tuple[list[PermuteDimension | form.PermuteLoop], list[form.PermuteLoop]]:
    """Dimensions to be walked in the order of the target, and loops inside them that read a page of the source.

    To write all of a page of the target, as many pages of the source are read as the target has neighbours there, and
    the other way round: if a page of either is not done with quickly, addresses have to be looked up for each line.
    """
    rest: list[PermuteDimension | form.PermuteLoop] = sorted(dimensions, key=lambda one: -abs(one.source))
    inside: list[form.PermuteLoop] = []
    while rest:
        one = rest[-1]
        assert isinstance(one, PermuteDimension)
        fitting = PAGE // max(1, abs(one.source) * word.bytes)
        if one.source == 0 or fitting < 2:
            break
        rest.pop()
        if one.size < 2 * fitting:
            inside.insert(0, outer_loop(one))
            continue
        rest.append(form.PermuteLoop(form.BLOCKS, one.size // fitting, fitting * one.source, fitting * one.target))
        inside.insert(0, form.PermuteLoop(form.INSIDE, one.size, one.source, one.target, fitting))
        break
    return rest, inside
