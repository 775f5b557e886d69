"""The decisions for the CPU form of a contraction: packed panels and a register tile (GETT, [S1]; BLIS's loop nest).

One operand is the *vector side*: the one that has the output's unit-stride dimension, so that a vector of results is a
vector in memory. The other is the *scalar side*, whose elements are broadcast. A register tile is `vectors * lanes`
elements of the vector side times `rows` of the scalar side. All dimensions of a side are walked as one flat index.
"""

from __future__ import annotations

import math

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, compute_type, real_of
from tilewright.kernel.tiles import LANES, ROWS
from tilewright.machine.model import Machine, power_of_two_at_least
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.items.sum_trees import FAN
from tilewright.passes.packed.blocks import LINE, lines_stay, steps_apart
from tilewright.passes.packed.dots import Dots
from tilewright.passes.packed.two_sides import TwoSidedForm, is_operator, vectors_of_last_tile

LEAST_DEPTH_CAPACITY = 256
MOST_STEPS = 512  # of the sum, in the kernel of any shape
BUFFERED_ELEMENTS = 1 << 17

SHORT_ROW = 512  # bytes of a row of the scalar side: a few lines
MANY_OTHERS = 1024  # elements of the vector side that such rows are read for, from which on packing them pays


@dataclass(frozen=True)
class SideDimension:
    """A dimension of one side: size, and strides in that side's operand, the output and the further operands."""

    dimension: Dimension
    size: int
    stride: int
    stride_out: int
    further: tuple[int, ...] = ()


@dataclass(frozen=True)
class Boxes:
    """`vector` elements of the vector side by `scalar` of the scalar side are one run of the output's memory: parts of
    the flat indices that begin with multiples. `scalar_inner`: the next box of the scalar side follows in memory.
    `run`: elements of the vector side that follow each other in memory. `ragged`: these are no whole parts of vectors.
    """

    vector: int
    scalar: int
    scalar_inner: bool
    run: int
    ragged: bool


@dataclass(frozen=True)
class PackedForm(TwoSidedForm):
    """The decisions, for a normalised contraction with known sizes.

    `scalar_inner`: the scalar side's panels are the inner loop, since the output moves in smaller strides along it.
    `buffered`: a block of results is collected in scratch memory and written out along the output's unit stride.
    `nontemporal`: the output is larger than the caches and written once, so whole vectors go past them.
    `through_caches`: no cache holds the output, but it is written through them; lines of it are not asked for before.
    `asked_rows`: steps of the sum whose rows are asked for ahead in turns.
    `scalar_rows`: the scalar side's panels keep the sum innermost, as its operand has it; packing copies vectors.
    `scalar_in_place`: nothing is copied even: the register tile reads those rows where they lie.
    `panel_bytes`: memory for the panels of the vector side and of the scalar side.
    `far`: the vector side's operand lies beyond the second cache; packing asks for it ahead, and reads longer pieces.
    `scalar_far`: so does the scalar side's.
    `asks_ahead`: what is packed next is asked for meanwhile, of an operand that is far.
    `boxes`: results are assembled in these pieces of the output's memory, which go past the caches.
    `levels`: of partial sums that wait in scratch memory: none if they are added up in the output; one if that cannot
    hold them; more for sums of many pieces, which are trees: `fan` values of a level are one of the next.
    `tiles_in_place`: its rows are those of tiles, which are read where they lie if they begin with cache lines.
    `strip`: panels of the inner scalar side that all panels of the vector side pass before the next ones do; 0 if all.
    `part`: tiles along the sum that are taken together, where the first cache does not hold a register tile's rows.
    `dots`: several products of narrow elements are summed by one instruction.
    `any_shape`: one kernel serves all sizes and strides (contractions/any_shape.py).
    """

    vector_dimensions: tuple[SideDimension, ...]
    scalar_dimensions: tuple[SideDimension, ...]
    lanes: int
    vectors: int
    rows: int
    vector_block: int
    scalar_block: int
    depth: int
    fused_multiply_add: bool
    scalar_inner: bool
    buffered: bool
    nontemporal: bool
    scalar_rows: bool
    vector_chunk: int
    scalar_chunk: int
    panel_bytes: tuple[int, int]
    levels: int = 0
    fan: int = FAN
    far: bool = False
    scalar_far: bool = False
    asks_ahead: bool = True
    scalar_in_place: bool = False
    boxes: Boxes | None = None
    tiles_in_place: bool = False
    part: int = 0
    strip: int = 0
    dots: Dots | None = None
    through_caches: bool = False
    asked_rows: int = 1
    any_shape: bool = False

    @property
    def together(self) -> int:
        """Steps of the sum that one instruction takes, whose elements lie side by side in the panels."""
        return 1 if self.dots is None else self.dots.together

    @property
    def ragged(self) -> bool:
        """Whether some piece of the sum ends within steps that are taken together."""
        return any(one % self.together for one in (self.contracted_total, self.piece))

    @property
    def in_tiles(self) -> bool:
        """Whether sums are in tiles (tiles.py)."""
        return self.dots is not None and self.dots.in_tiles

    @property
    def row_distance(self) -> int | None:
        """How far rows of a tile of sums lie from each other in the output; None if they are not evenly spaced."""
        return _evenly([(one.size, one.stride_out) for one in self.scalar_dimensions])

    @property
    def source_distance(self) -> int | None:
        """The same in the scalar side's operand."""
        return _evenly([(one.size, one.stride) for one in self.scalar_dimensions])

    @property
    def ends_in_tile(self) -> bool:
        """Whether some piece of the sum ends within a tile."""
        return any(one % (LANES * self.together) for one in (self.contracted_total, self.piece))

    @property
    def in_halves(self) -> bool:
        """Whether rows of the output are no whole vectors, but a register tile's are together whole cache lines, which
        halves of vectors fill.
        """
        half, line = self.lanes // 2, LINE // self.contraction.out.element.bytes
        if self.any_shape or self.lanes < 8 or not (self.vector_dimensions and self.scalar_dimensions):
            return False
        inner, rows = self.vector_dimensions[-1], self.scalar_dimensions[-1]
        between = (*self.vector_dimensions[:-1], *self.scalar_dimensions[:-1])
        return (
            inner.stride_out == 1
            and inner.size % half == 0
            and inner.size % self.lanes != 0
            and self.vector_tile % inner.size == 0
            and rows.stride_out == inner.size
            and rows.size % self.rows == 0
            and self.rows * inner.size % line == 0
            and all(one.stride_out % line == 0 for one in between)
        )

    def stored_together(self, lanes: int) -> int:
        """Vectors of so many lanes of a row of a register tile that are written past the caches before those of its
        next row: those of a run of the output, where the next row is nearer than the next run; else all.
        """
        count = self.vector_tile // lanes
        inner = self.vector_dimensions[-1].size // lanes
        if not self.scalar_dimensions or inner >= count:
            return count
        apart = abs(self.vector_dimensions[-2].stride_out) if len(self.vector_dimensions) > 1 else 0
        return max(1, inner) if abs(self.scalar_dimensions[-1].stride_out) < apart else count

    @property
    def least_part(self) -> int:
        """Elements of the smallest piece of a vector that is written as one: a quarter, from eight lanes on."""
        return self.lanes // 4 if self.lanes >= 8 and not self.any_shape else self.lanes

    @property
    def joins_blocks(self) -> bool:
        """Whether neighbouring blocks are computed as one. Trees of partial sums have room for one at a time."""
        return self.levels < 2

    @property
    def in_whole_lines(self) -> bool:
        """Whether every vector of the output is one piece of it, and begins with a cache line if the output does."""
        line = LINE // self.contraction.out.element.bytes
        if self.any_shape or self.boxes is not None or not self.vector_dimensions or self.lanes % line:
            return False
        inner = self.vector_dimensions[-1]
        others = (one for one in self.contraction.dimensions if one != inner.dimension)
        return (
            inner.stride_out == 1
            and not self.contraction.out.element.is_complex
            and inner.size % self.lanes == 0
            and self.vector_chunk % self.lanes == 0
            and self.vector_block % self.lanes == 0
            and all(constant(one.stride_out) % line == 0 for one in others if one.kind is not Kind.K)
        )

    @property
    def asks_vectors(self) -> bool:
        """Whether the vector side's operand is asked for ahead, for the next block of the side or of the sum."""
        return self.asks_ahead and self.brings_vectors

    @property
    def brings_vectors(self) -> bool:
        """Whether one block of the vector side after another comes from beyond the second cache, in runs."""
        is_only = self.vector_block >= self.total(self.vector_dimensions) and self.depth >= self.contracted_total
        in_runs = self.vectors_turned or any(one.stride == 1 for one in self.vector_dimensions[-1:])
        return self.far and not self.in_tiles and in_runs and not is_only and self.levels != 1 and self.lanes > 1

    @property
    def asks_scalars(self) -> bool:
        """Whether the scalar side's operand is, for the next piece of the sum."""
        in_runs = self.scalar_rows or any(one.stride == 1 for one in self.scalar_dimensions[-1:])
        more = self.depth < self.contracted_total and self.levels != 1
        return self.asks_ahead and self.scalar_far and not self.in_tiles and in_runs and more and self.lanes > 1

    @property
    def vectors_turned(self) -> bool:
        """Whether the sum runs along the unit stride of the vector side's operand."""
        sums = self.contraction.of_kind(Kind.K)
        return 1 in (abs(constant(one.stride(left=self.vector_left))) for one in sums)

    @property
    def written_by_blocks(self) -> bool:
        """Whether the output's unit stride is not along the innermost dimension of the vector side."""
        return is_written_by_blocks(self.vector_dimensions)

    @property
    def scratch_columns(self) -> int:
        """Elements of the vector side whose results are in scratch memory together: those of a block, or where they
        are a tree of partial sums, of all blocks.
        """
        whole = -(-self.vector_chunk // self.vector_tile) * self.vector_tile
        return whole if self.levels > 1 else self.vector_block

    @property
    def scratch_capacity(self) -> int:
        """Elements of that memory for each level; of few different values, so that shapes share kernels."""
        return max(
            2 * BUFFERED_ELEMENTS, power_of_two_at_least((self.scratch_columns + self.lanes) * self.scalar_block)
        )

    @property
    def vector_tiles(self) -> int:
        """Register tiles along the vector side."""
        total = self.total(self.vector_dimensions)
        if self.boxes is None:
            return -(-total // self.vector_tile)
        return total // self.boxes.vector * (self.padded_box // self.vector_tile)

    @property
    def tail(self) -> int:
        """Vectors of the last panel of the vector side that register tiles compute: all of them, where padding is so
        little that it is not worth another loop, or in boxes.
        """
        if self.boxes is not None or self.lanes == 1 or self.any_shape or self.in_tiles:
            return self.vectors
        return vectors_of_last_tile(self.total(self.vector_dimensions), self.lanes, self.vectors)

    @property
    def scalar_tiles(self) -> int:
        """Register tiles along the scalar side."""
        return -(-self.total(self.scalar_dimensions) // self.rows)

    @property
    def padded_box(self) -> int:
        """Elements of the panels of a box's part of the vector side."""
        assert self.boxes is not None
        return -(-self.boxes.vector // self.vector_tile) * self.vector_tile

    @property
    def waiting_elements(self) -> int:
        """Elements of scratch memory for a box before its ragged rows are in the order of the output."""
        assert self.boxes is not None
        return power_of_two_at_least(self.padded_box * self.boxes.scalar + self.lanes)

    @property
    def box_pitch(self) -> int:
        """Elements of scratch memory for a box, of few different values; no power of two, which shares cache sets."""
        assert self.boxes is not None
        return power_of_two_at_least(self.boxes.vector * self.boxes.scalar) + 2 * self.lanes

    @property
    def piece(self) -> int:
        """Steps of the sum that are packed at once."""
        return max(1, min(self.depth, self.contracted_total))

    @property
    def pitch(self) -> int:
        """The same as steps by which panels begin apart: several of the sum together, perhaps, and whole tiles."""
        steps = -(-self.piece // self.together)
        if self.in_tiles:
            return -(-steps // LANES) * LANES
        if self.scalar_inner:  # a panel of vectors stays, and those of scalars may lie side by side
            return steps
        return steps_apart(steps, self.vector_tile * sum(one.bytes for one in component_types(self.accumulator)))

    @property
    def depth_capacity(self) -> int:
        """Steps of the sum that the kernel has room for; of few different values, so that shapes share kernels."""
        return max(
            MOST_STEPS if self.any_shape else LEAST_DEPTH_CAPACITY, power_of_two_at_least(max(self.depth, self.pitch))
        )

    def panel_capacity(self, tile: int, panel_bytes: int) -> int:
        """Elements of a side's panels that the kernel has room for, likewise."""
        parts = component_types(self.accumulator)
        return max(panel_bytes // (len(parts) * parts[0].bytes), tile * self.depth_capacity)

    @property
    def vector_tile(self) -> int:
        """Elements of the register tile along the vector side."""
        return self.vectors * self.lanes

    def total(self, dimensions: tuple[SideDimension, ...]) -> int:
        """Elements of a flat index."""
        return math.prod(one.size for one in dimensions)

    @property
    def contracted_total(self) -> int:
        """Length of the sum."""
        return math.prod(constant(one.size) for one in self.contraction.of_kind(Kind.K))


def is_written_by_blocks(vector: tuple[SideDimension, ...]) -> bool:
    """Whether the output's unit stride is not along the innermost of these dimensions."""
    return len(vector) > 1 and abs(vector[-1].stride_out) > min(abs(one.stride_out) for one in vector)


def run_of_rows(contraction: Contraction, vector_left: bool) -> int:
    """Steps of the sum that follow each other in a row of the scalar side: its innermost dimension, or 0."""
    sums = contraction.of_kind(Kind.K)
    return constant(sums[-1].size) if sums and constant(sums[-1].stride(left=not vector_left)) == 1 else 0


def rows_suit(
    contraction: Contraction,
    scalar: tuple[SideDimension, ...],
    vector_left: bool,
    rows: int,
    piece: int,
    machine: Machine,
) -> bool:
    """Whether panels of the scalar side's rows would be the same rows again: they hold what the map takes, each piece
    of the sum runs along them without a gap, and the first cache has room for a line of each of a tile's.
    """
    operand = contraction.operand(left=not vector_left)
    run = run_of_rows(contraction, vector_left)
    together = run > 0 and (len(contraction.of_kind(Kind.K)) == 1 or run % piece == 0)
    held = contraction.map.parameters[1 if vector_left else 0].type.element
    plain = held == operand.element and held != BOOL and not held.is_complex
    apart = scalar[-1].stride * operand.element.bytes if scalar else 0
    return plain and together and lines_stay(rows, apart, machine)


def _evenly(dimensions: list[tuple[int, int]]) -> int | None:
    """The distance of 16 rows that begin with a multiple, if it is the same for all."""
    size, stride = dimensions[-1] if dimensions else (1, 0)
    return stride if len(dimensions) == 1 or size % ROWS == 0 else None


def tiles_lie_there(contraction: Contraction, scalar: tuple[SideDimension, ...], vector_left: bool, piece: int) -> bool:
    """Whether the scalar side's operand has whole tiles where it lies: evenly spaced rows in multiples of 16, which
    begin with cache lines if one does, and along which the sum is in runs of whole lines.
    """
    run, rows = run_of_rows(contraction, vector_left), math.prod(one.size for one in scalar)
    element_bytes = contraction.operand(left=not vector_left).element.bytes
    strides = [constant(one.stride(left=not vector_left)) for one in contraction.dimensions]
    in_lines = all(one * element_bytes % LINE == 0 for one in (run, piece, *strides) if one != 1)
    evenly = _evenly([(one.size, one.stride) for one in scalar]) is not None
    return run > 0 and in_lines and evenly and rows % ROWS == 0


def rows_are_scattered(contraction: Contraction, scalar: tuple[SideDimension, ...], vector_left: bool) -> bool:
    """Whether the scalar side's rows are short, with gaps between them, which no prefetcher foresees, and many panels
    of the vector side would read them.
    """
    element_bytes = contraction.operand(left=not vector_left).element.bytes
    apart = scalar[-1].stride * element_bytes if scalar else 0
    length = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K)) * element_bytes
    others = math.prod(constant(one.size) for one in contraction.of_kind(Kind.M if vector_left else Kind.N))
    return length <= SHORT_ROW and apart >= 2 * length and others >= MANY_OTHERS


def holds_partial_sums(contraction: Contraction) -> bool:
    """True if the output's elements are sums, in the precision in which they are summed."""
    accumulator = contraction.accumulator
    return (
        contraction.epilogue is None
        and contraction.out.element == accumulator
        and compute_type(real_of(accumulator)) == real_of(accumulator)
    )


def is_multiply_add(contraction: Contraction) -> bool:
    """True if the contraction sums products of real or complex floating-point numbers."""
    return (
        (contraction.neutral.scalar.is_float or contraction.neutral.scalar.is_complex)
        and is_operator(contraction.map, "mul")
        and is_operator(contraction.combine, "add")
    )
