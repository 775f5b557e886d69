"""A copy between two layouts of an array, decided: what `choose.py` gives and the writers of kernels read."""

from __future__ import annotations

import math

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType
from tilewright.passes.permute.tiles import (
    CarriedTile,
    JoinedRows,
    OverlappedTile,
    PermuteDimension,
    StraightTile,
    Tile,
)

SPLIT_LINES = 16  # of one of few rows that are split
STRIP_LINES = 4  # cache lines of the target that a strip writes in one piece: with one of them it takes twice the time
OUTER, STRIPS, CHUNKS, BLOCKS, INSIDE = "outer", "strips", "chunks", "blocks", "inside"
TILES, EDGE, RUN, COLUMNS = "tiles", "edge", "run", "columns"


@dataclass(frozen=True)
class PermuteLoop:
    """A loop around the piece that is copied at once: over a dimension (`OUTER`), over pieces of the row (`STRIPS`) or
    of the column (`CHUNKS`), or over blocks of a dimension (`BLOCKS`) and inside them (`INSIDE`, whose size is that of
    the dimension, with blocks of `part`); the strides of one step are in words. Over tiles (`TILES`; `EDGE` where they
    share cache lines; straight ones along the run, `RUN`, and the column, `COLUMNS`) they are those of the dimension: a
    tile has `part` steps, and begins with `last` at the latest.
    """

    over: str
    size: int
    source: int
    target: int
    part: int = 1
    last: int = 0


@dataclass(frozen=True, kw_only=True)
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
        pieces: vectors of a row that is copied, the last of which reaches back; 0 where it has more than a few.
        width: atoms of the column that are written out together.
        nontemporal: the target is written past the caches.
        groups_ahead: within the caches, how many groups of vectors of its columns ahead lines of the target are asked
            for; 0 where they are not.
        splits: the columns are rows of the target whose elements lie between each other in the source.
        merges: the rows of the source are elements between each other in the target.
        by_lines: each cache line of either array is read or written once (`permute/lines.py`).
        is_aligned: all rows of the target begin at the same place in a cache line.
        reads_aligned: all rows of the source in a piece begin at the same place in a cache line.
        tile: what is gathered before it is written past the caches, where rows are short.
        straight: what is written past the caches straight from registers, line by line of the target.
        carried: the same where columns begin anywhere in a line of the target, or atoms are no part of one.
        overlapped: what is gathered in the first cache and written past it while the next tile is gathered.
        joined: rows of which whole lines of the target are made, which are written past the caches.
        source_start, target_start: where the first element lies, in words.
    """

    word: ScalarType
    atom: int
    loops: tuple[PermuteLoop, ...]
    parallel: int
    row: PermuteDimension
    column: PermuteDimension | None = None
    strip: int
    chunk: int = 1
    lanes: int
    vector: int
    columns: int = 1
    pieces: int = 0
    width: int = 1
    nontemporal: bool
    groups_ahead: int = 0
    splits: bool = False
    merges: bool = False
    by_lines: bool = False
    is_aligned: bool = False
    reads_aligned: bool = False
    tile: Tile | None = None
    straight: StraightTile | None = None
    carried: CarriedTile | None = None
    overlapped: OverlappedTile | None = None
    joined: JoinedRows | None = None
    source_start: int
    target_start: int

    @property
    def strip_lines(self) -> int:
        """Cache lines of the target in a strip."""
        return SPLIT_LINES if self.splits else STRIP_LINES

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return math.prod(one.size for one in self.loops[: self.parallel])
