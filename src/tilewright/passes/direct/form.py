"""The decisions for the direct CPU form of a contraction: a register tile fed from the operands' own strides [S1 5.2].

The *vector side* is the operand whose elements are taken `lanes` at a time, the *scalar side* the other, whose elements
are broadcast. A register tile is `width` elements along one dimension of the vector side times `rows` along one of the
scalar side; all other dimensions are loops, and the whole sum is done in the registers. An operand whose strides do not
suit is first copied into a small panel, for one tile at a time.

A tile that would stick out of its dimension is moved back inside instead, and computes some results a second time;
where the dimension is shorter than the tile, the last vector is masked. So nothing outside an array is touched.
"""

from __future__ import annotations

import math
from enum import Enum

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.passes.packed.two_sides import TwoSidedForm, vectors_of_last_tile

PANEL_ELEMENTS = 1 << 16
"""Elements of the scratch memory for the panels of either operand."""

LINE = 64  # bytes of a cache line
COLLECTED_ELEMENTS = 1 << 17
"""Elements of the scratch memory for collected results."""

BOX_ELEMENTS = 1 << 20
"""Elements of the scratch memory for a box, at the most."""

LEAST_SUM_OF_TAIL = 8
"""Terms of a sum that a narrower last tile is worth: results of shorter ones take longer to write than to compute."""

FUSED_COLUMNS = 1 << 12
"""Elements of the vector side, at the most, that one block computes where they are fused."""


class Results(Enum):
    """How a register tile is stored: its vectors as they are; turned, so that a vector runs along the scalar side;
    or a square of tiles at a time, turned on the way, where the output's unit stride is another dimension's.
    """

    VECTORS = "vectors"
    TURNED = "turned"
    COLLECTED = "collected"


@dataclass(frozen=True)
class DirectForm(TwoSidedForm):
    """The decisions, for a normalised contraction with known sizes.

    Attributes:
        vector: the dimension of the vector side along which the tile runs.
        columns: None where the tile's vectors follow each other along `vector`. Where that is a dimension of all
            arrays, the tile's vectors may lie along this other dimension of the vector side instead.
        scalar: the dimension of the scalar side along which its rows run; None if that side has none.
        collected: with `Results.COLLECTED`, the vector side's dimension that is the output's unit stride.
        fused: the dimensions that `vector` stands for, outermost first, where they are one in the operand but not in
            the output; only collected results can be written so. Else empty.
        contracted: the dimensions of the sum, outermost first.
        outer: all others, outermost first; each point of them is a block of the launch (or several).
        lanes: of each vector of the tile.
        rows: of the tile.
        shared_rows: so many rows have a whole vector for the narrower last vectors of all of them.
        rows_first: a step reads the rows' elements first and then one vector after the other, which takes fewer
            registers where there are more vectors than rows.
        numbers: the contraction of complex numbers (pairs.py) that is one of real numbers here; None if there is none.
        vector_packed, scalar_packed: the operand is copied into panels first.
        results: how the tile is stored.
        fused_multiply_add: products and sums are one instruction.
        scalar_outer: tiles along the scalar side are the outer loop, those along the vector side the inner one.
        onward: each block has one tile of rows, and blocks come by all points of the last outer dimension, along which
            the memory of these rows goes on, before the next tile's (onward.py).
        prefetched: the next tile's vectors are brought to the second cache while this one is computed, since main
            memory is far and their steps are wide.
        in_runs: where results are collected, all tiles of a piece ask for the next piece, row after row of the memory
            and `run_lines` at each step (0: as many as a piece has for each); else each tile for its own part of it,
            evenly. Where they are not collected, tiles ask for the next piece of their rows (next_pieces.py).
        rows_prefetched: so are the next tile's rows, along which the sum runs.
        out_prefetched: so are the lines that results will be written to, before their sums are complete.
        points_asked: so are the operands of the next point of the outer dimensions (next_points.py).
        piece: steps of the sum after which all tiles of a point go on with the next ones (sum_pieces.py); 0 if each
            tile has its whole sum at once.
        boxed: all collected results of a piece of the operand, and those of `joined_chunk` points of `joined` (the
            dimension after the collected one in the output's memory), are assembled before they are written.
        serial: so little work that one block of the launch does all of it.
        nontemporal: the output is larger than the caches, so whole vectors (of collected results, whole lines) go past
            them.
        peeled: where that is so, tiles after the first of a row begin with a whole vector of the output's memory,
            wherever that lies; else they go past the caches only if the output itself does.
        vector_chunk, scalar_chunk: tiles along either side that one block computes. Where results are collected, those
            of the vector side are read together: a longer piece of memory.
    """

    vector: Dimension
    scalar: Dimension | None
    collected: Dimension | None
    contracted: tuple[Dimension, ...]
    outer: tuple[Dimension, ...]
    lanes: tuple[int, ...]
    rows: int
    vector_packed: bool
    scalar_packed: bool
    results: Results
    fused_multiply_add: bool
    scalar_outer: bool = False
    onward: bool = False
    prefetched: bool = False
    in_runs: bool = False
    run_lines: int = 0
    rows_prefetched: bool = False
    out_prefetched: bool = False
    points_asked: bool = False
    piece: int = 0
    serial: bool = False
    columns: Dimension | None = None
    fused: tuple[Dimension, ...] = ()
    nontemporal: bool = False
    peeled: bool = True
    vector_chunk: int = 1
    scalar_chunk: int = 1
    boxed: bool = False
    joined: Dimension | None = None
    joined_chunk: int = 1
    shared_rows: int = 1
    rows_first: bool = False
    numbers: Contraction | None = None

    @property
    def parts(self) -> int:
        """Of each element of a row, which are multiplied one after the other."""
        return 1 if self.numbers is None else 2

    @property
    def width(self) -> int:
        """Elements of the tile along `vector`."""
        return sum(self.lanes) if self.columns is None else self.lanes[0]

    @property
    def pitch(self) -> int:
        """Elements of a row of the vector side's panel: whole vectors of the widest kind."""
        return -(-self.width // self.lanes[0]) * self.lanes[0]

    @property
    def all_vectors_packed(self) -> bool:
        """The panels of all of the block's tiles are made first, since the outer loop comes by each of them."""
        return self.vector_packed and self.scalar_outer and self.collected is None

    @property
    def panel_elements(self) -> tuple[int, int]:
        """Scratch elements that the panels of the vector and the scalar side need."""
        steps = self.contracted_total
        vector = steps * self.pitch * (self.vector_tiles if self.all_vectors_packed else 1) + self.lanes[0] * self.pitch
        return (vector if self.vector_packed else 0, steps * self.rows * self.parts if self.scalar_packed else 0)

    @property
    def collected_elements(self) -> int:
        """Elements of scratch memory for the results that one block collects."""
        return self.vector_chunk * self.scalar_tiles * self.rows * self.lanes[0] * self.pitch

    @property
    def box_run(self) -> int:
        """Elements of the output that lie side by side in a box."""
        assert self.collected is not None
        return self.joined_chunk * constant(self.collected.size)

    @property
    def box_elements(self) -> int:
        """Elements of scratch memory for a box."""
        return min(self.vector_chunk * self.width, self.vector_size) * self.scalar_size * self.box_run

    @property
    def lines_in_runs(self) -> int:
        """Lines that each step of the sum asks for where pieces are asked for in runs."""
        return self.run_lines or -(-self.row_lines // (self.vector_chunk * self.scalar_tiles))

    @property
    def row_lines(self) -> int:
        """Lines of a row of such a piece, at the most; where rows meet none is counted twice."""
        line = LINE // self.vector_operand.element.bytes
        columns = min(self.vector_chunk * self.width, self.vector_size)
        return -(-columns // line) if self.rows_meet else -(-(columns - 1) // line) + 1

    @property
    def rows_meet(self) -> bool:
        """Whether each row of such a piece ends where the next one begins."""
        whole = self.vector_chunk >= self.vector_tiles and len(self.contracted) == 1
        return whole and self.stride(self.contracted[0], "vector") == self.vector_size

    @property
    def own_vectors(self) -> int:
        """Vectors that each row of the tile has for itself."""
        return len(self.lanes) - (self.shared_rows > 1)

    @property
    def sums(self) -> int:
        """Vectors of sums of the tile."""
        return self.own_vectors * self.rows + (self.rows // self.shared_rows if self.shared_rows > 1 else 0)

    @property
    def vector_size(self) -> int:
        """Length of the dimension of the vector side."""
        return constant(self.vector.size)

    @property
    def scalar_size(self) -> int:
        """Length of the dimension of the scalar side."""
        return 1 if self.scalar is None else constant(self.scalar.size)

    @property
    def vector_tiles(self) -> int:
        """Tiles along the vector side; the last may overlap the one before, and where results go past the caches the
        first one may end early, so that the others begin with a whole vector of the output's memory.
        """
        if not self.realigned:
            return self.fitting_tiles
        return -(-(self.vector_size + self.lanes[0] - 1) // self.width)

    @property
    def realigned(self) -> bool:
        """Tiles after the first begin where a whole vector of the output's memory does, which is known when it runs."""
        return self.nontemporal and self.peeled and self.fitting_tiles > 1 and self.collected is None

    @property
    def in_lines(self) -> bool:
        """All tiles begin so, and those at the ends of a row stick out of it: the vectors that do are masked."""
        return self.realigned and self.rows == 1 and self.scalar_outer and not self.vector_packed

    @property
    def fitting_tiles(self) -> int:
        """Tiles along the vector side where the output's rows begin with whole vectors: the others are passed over."""
        return -(-self.vector_size // self.width)

    @property
    def tail(self) -> tuple[int, ...]:
        """Vectors of the last tile along the vector side, where fewer are enough and that saves something: where all
        vectors follow each other and no table says where their results go. Else those of all tiles.
        """
        plain = self.columns is None and self.collected is None and not self.realigned
        short = self.contracted_total < LEAST_SUM_OF_TAIL
        if not plain or short or self.fitting_tiles == 1 or len(set(self.lanes)) > 1:
            return self.lanes
        return self.lanes[: vectors_of_last_tile(self.vector_size, self.lanes[0], len(self.lanes))]

    @property
    def computed_columns(self) -> int:
        """Elements along the vector side that all tiles have together, those that are computed twice or masked too."""
        return self.vector_tiles * self.width - (len(self.lanes) - len(self.tail)) * self.lanes[0]

    @property
    def column_size(self) -> int:
        """Length of `columns`."""
        return len(self.lanes) if self.columns is None else constant(self.columns.size)

    @property
    def column_tiles(self) -> int:
        """Tiles along `columns`."""
        return 1 if self.columns is None else -(-self.column_size // len(self.lanes))

    @property
    def elementwise(self) -> bool:
        """The scalar side has the dimension of the vectors too: its elements are vectors, not broadcasts."""
        return self.vector.kind is Kind.C

    @property
    def scalar_tiles(self) -> int:
        """Tiles along the scalar side; the last may overlap the one before."""
        return -(-self.scalar_size // self.rows)

    @property
    def masked(self) -> bool:
        """The one tile is longer than the dimension: its last vector is not whole."""
        return self.width > self.vector_size

    @property
    def contracted_total(self) -> int:
        """Length of the sum."""
        return math.prod(constant(one.size) for one in self.contracted)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of the launch along the outer dimensions (the last of them after the scalar side where rows go
        onward), the scalar and the vector side; or the vector side and the collected dimension, whose blocks share
        cache lines of the output; or of boxes the joined one.
        """
        vector = -(-self.vector_tiles // self.vector_chunk)
        outer = tuple(constant(one.size) for one in self.outer)
        if self.boxed:
            return (*outer, vector, 1 if self.joined is None else constant(self.joined.size) // self.joined_chunk)
        if self.collected is not None:
            return (*outer, vector, -(-constant(self.collected.size) // self.lanes[0]))
        chunks = -(-self.scalar_tiles // self.scalar_chunk)
        return (*outer[:-1], chunks, outer[-1], vector) if self.onward else (*outer, chunks, vector)

    def stride(self, dimension: Dimension, side: str) -> int:
        """The stride of a dimension in an array: "vector", "scalar" or "out"."""
        if side == "out":
            return constant(dimension.stride_out)
        return constant(dimension.stride(left=(side == "vector") == self.vector_left))

    def step(self, side: str) -> int:
        """The stride of the innermost sum in an operand: "vector" or "scalar"; 0 if there is no sum."""
        return self.stride(self.contracted[-1], side) if self.contracted else 0


def rows_are_one_run(form: DirectForm) -> bool:
    """Each row of the scalar side ends where the next one begins; the sum, of one dimension, runs along them."""
    if form.scalar is None or len(form.contracted) != 1 or form.stride(form.contracted[0], "scalar") != form.parts:
        return False
    return form.stride(form.scalar, "scalar") == form.parts * form.contracted_total


def results_are_one_run(form: DirectForm) -> bool:
    """Each row of the results ends where the next one begins, and so do those of the next tile of rows."""
    if form.scalar is None or form.results is not Results.VECTORS or form.columns is not None or form.elementwise:
        return False
    runs = form.stride(form.vector, "out") == 1 and form.stride(form.scalar, "out") == form.vector_size
    return runs and (form.vector_tiles == 1 or form.scalar_outer)
