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
from tilewright.ir.nodes import Apply, Lambda
from tilewright.ir.scalars import BOOL, ScalarType, compute_type, real_of
from tilewright.ir.traversal import canonical
from tilewright.machine.model import Machine, power_of_two_at_least
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.items.sum_trees import FAN, grows_errors
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.packed.blocks import BLOCK, LINE, choose_chunks, even, lines_stay, longest_piece, panel_bytes
from tilewright.passes.packed.operands import with_conversions_in_packing
from tilewright.passes.two_sides import TwoSidedForm

LONGEST_PIECE = 1024
"""Steps of the sum that are packed at once at most, where the errors of their results add up."""
LEAST_DEPTH_CAPACITY = 256
BUFFERED_ELEMENTS = 1 << 17
WAITING_ELEMENTS = 1 << 22  # of a level of partial sums: 2048 by 2048 results are packed for at once
BROKEN_ELEMENT = 1.5  # cycles more to pack an element of the scalar side where panels end in the middle of runs


@dataclass(frozen=True)
class SideDimension:
    """A dimension of one side: size, and strides in that side's operand, the output and the further operands."""

    dimension: Dimension
    size: int
    stride: int
    stride_out: int
    further: tuple[int, ...] = ()


@dataclass(frozen=True)
class PackedForm(TwoSidedForm):
    """The decisions, for a normalised contraction with known sizes.

    `scalar_inner`: the scalar side's panels are the inner loop, since the output moves in smaller strides along it.
    `buffered`: a block of results is collected in scratch memory and written out along the output's unit stride.
    `nontemporal`: the output is larger than the caches and written once, so whole vectors go past them.
    `scalar_rows`: the scalar side's panels keep the sum innermost, as its operand has it; packing copies vectors.
    `scalar_in_place`: nothing is copied even: the register tile reads those rows where they lie.
    `panel_bytes`: memory for the panels of the vector side and of the scalar side.
    `far`: the vector side's operand lies beyond the second cache; packing asks for it ahead, and reads longer pieces.
    `scalar_far`: so does the scalar side's.
    `levels`: of partial sums that wait in scratch memory: none if they are added up in the output; one if that cannot
    hold them; more for sums of many pieces, which are trees: `fan` values of a level are one of the next.
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
    scalar_in_place: bool = False

    @property
    def in_halves(self) -> bool:
        """Whether rows of the output are no whole vectors, but a register tile's are together whole cache lines, which
        halves of vectors fill.
        """
        half, line = self.lanes // 2, LINE // self.contraction.out.element.bytes
        if self.lanes < 8 or not (self.vector_dimensions and self.scalar_dimensions):
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

    @property
    def asks_vectors(self) -> bool:
        """Whether the vector side's operand is asked for ahead, for the next block of the side or of the sum."""
        is_only = self.vector_block >= self.total(self.vector_dimensions) and self.depth >= self.contracted_total
        in_runs = self.vectors_turned or any(one.stride == 1 for one in self.vector_dimensions[-1:])
        return self.far and in_runs and not is_only and self.levels != 1 and self.lanes > 1

    @property
    def asks_scalars(self) -> bool:
        """Whether the scalar side's operand is, for the next piece of the sum."""
        in_runs = self.scalar_rows or any(one.stride == 1 for one in self.scalar_dimensions[-1:])
        more = self.depth < self.contracted_total
        return self.scalar_far and in_runs and more and self.levels != 1 and self.lanes > 1

    @property
    def vectors_turned(self) -> bool:
        """Whether the sum runs along the unit stride of the vector side's operand."""
        sums = self.contraction.of_kind(Kind.K)
        return 1 in (abs(constant(one.stride(left=self.vector_left))) for one in sums)

    @property
    def written_by_blocks(self) -> bool:
        """Whether the output's unit stride is not along the innermost dimension of the vector side."""
        return _is_written_by_blocks(self.vector_dimensions)

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
    def pitch(self) -> int:
        """Steps of the sum that one panel holds."""
        return max(1, min(self.depth, self.contracted_total))

    @property
    def depth_capacity(self) -> int:
        """Steps of the sum that the kernel has room for; of few different values, so that shapes share kernels."""
        return max(LEAST_DEPTH_CAPACITY, power_of_two_at_least(self.depth))

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


def make_packed_form(contraction: Contraction, machine: Machine) -> PackedForm:
    """The form of a normalised contraction with known sizes."""
    contraction = with_conversions_in_packing(contraction)
    vector_left = _vector_side_is_left(contraction)
    vector = _side(contraction, Kind.M if vector_left else Kind.N, vector_left)
    scalar = _side(contraction, Kind.N if vector_left else Kind.M, not vector_left)
    accumulator = contraction.accumulator
    lanes = _lanes(contraction, machine, accumulator)
    vector_total = math.prod(one.size for one in vector)
    scalar_total = math.prod(one.size for one in scalar)
    scalar_rows = lanes > 1 and _sum_is_contiguous(contraction, scalar, vector_left)
    run = 0 if scalar_rows else _run(scalar)
    vectors, rows = _register_tile(machine, lanes, len(component_types(accumulator)), (vector_total, scalar_total), run)
    contracted = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K))
    parts = component_types(accumulator)
    element_bytes = len(parts) * parts[0].bytes
    tile = vectors * lanes
    depth = _depth(contraction, contracted, lanes, longest_piece(machine, tile, rows, element_bytes))
    batch = math.prod(constant(one.size) for one in contraction.of_kind(Kind.C))
    chunks = choose_chunks(machine.cores, batch, (vector_total, scalar_total), (tile, rows), lanes, contracted)
    levels = _levels(contraction, -(-contracted // depth))
    memory = panel_bytes(machine)
    step_bytes = max(1, min(depth, contracted)) * element_bytes
    scalar_block = even(chunks[1], min(BLOCK, memory[1] // step_bytes), rows)
    if levels > 1:
        chunks = even(chunks[0], WAITING_ELEMENTS // scalar_block, tile), chunks[1]
    vector_block = even(chunks[0], min(BLOCK, memory[0] // step_bytes), tile)
    if levels == 1:
        scalar_block = even(chunks[1], min(scalar_block, 2 * BUFFERED_ELEMENTS // (vector_block + lanes)), rows)
    buffered = (
        depth >= contracted
        and _is_written_by_blocks(vector)
        and (vector_block + lanes) * scalar_block <= 2 * BUFFERED_ELEMENTS
    )
    return PackedForm(
        contraction,
        vector_left,
        vector,
        scalar,
        lanes,
        vectors,
        rows,
        vector_block,
        scalar_block,
        depth,
        is_multiply_add(contraction),
        _scalar_side_is_inner(vector, scalar, step_bytes * scalar_block <= memory[0]),
        buffered,
        depth >= contracted and not buffered and _output_bytes(contraction) > max(machine.l3_bytes // 2, 1 << 23),
        scalar_rows,
        *chunks,
        memory,
        levels,
        FAN,
        _is_far(contraction, vector_left, machine),
        _is_far(contraction, not vector_left, machine),
        scalar_rows and _rows_suit(contraction, scalar, vector_left, rows, machine),
    )


def _rows_suit(
    contraction: Contraction, scalar: tuple[SideDimension, ...], vector_left: bool, rows: int, machine: Machine
) -> bool:
    """Whether panels of the scalar side's rows would be the same rows again: they hold what the map takes, the sum runs
    along them without a gap, and the first cache has room for a line of each of a tile's.
    """
    operand = contraction.operand(left=not vector_left)
    sums = contraction.of_kind(Kind.K)
    strides = [constant(one.stride(left=not vector_left)) for one in sums]
    held = contraction.map.parameters[1 if vector_left else 0].type.element
    plain = held == operand.element and held != BOOL and not held.is_complex
    apart = scalar[-1].stride * operand.element.bytes if scalar else 0
    return plain and strides == [1] and lines_stay(rows, apart, machine)


def _is_far(contraction: Contraction, left: bool, machine: Machine) -> bool:
    operand = contraction.operand(left)
    return _elements(contraction, Kind.N if left else Kind.M) * operand.element.bytes > machine.l2_bytes


def _sum_is_contiguous(contraction: Contraction, scalar: tuple[SideDimension, ...], vector_left: bool) -> bool:
    """True if the scalar side's operand has its unit stride along the sum."""
    along = [abs(constant(d.stride(left=not vector_left))) for d in contraction.of_kind(Kind.K)]
    return 1 in along and all(abs(one.stride) != 1 for one in scalar)


def _is_written_by_blocks(vector: tuple[SideDimension, ...]) -> bool:
    return len(vector) > 1 and abs(vector[-1].stride_out) > min(abs(one.stride_out) for one in vector)


def _output_bytes(contraction: Contraction) -> int:
    return _elements(contraction, Kind.K) * contraction.out.element.bytes


def _vector_side_is_left(contraction: Contraction) -> bool:
    """True if the output's innermost dimension of a side belongs to the left operand."""
    sides = [one for one in contraction.dimensions if one.kind in (Kind.M, Kind.N)]
    if not sides:
        return True
    return min(sides, key=lambda one: abs(constant(one.stride_out))).kind is Kind.M


def _side(contraction: Contraction, kind: Kind, left: bool) -> tuple[SideDimension, ...]:
    """A side's dimensions, outermost first. Innermost is the unit stride of the larger array, be it the operand (then
    packing reads whole vectors) or the output (then whole vectors are written); next to it the other array's, so that
    a block of the side covers whole cache lines of both.
    """
    positions = {one.name: place for place, one in enumerate(contraction.dimensions)}
    members = [
        SideDimension(
            one,
            constant(one.size),
            constant(one.stride(left)),
            constant(one.stride_out),
            tuple(constant(further.strides[positions[one.name]]) for further in contraction.epilogue_operands),
        )
        for one in contraction.of_kind(kind)
    ]
    members.sort(key=lambda one: -abs(one.stride_out))
    if len(members) > 1:
        own = min(members, key=lambda one: abs(one.stride))
        contracted = [abs(constant(d.stride(left))) for d in contraction.of_kind(Kind.K)]
        operand, out = _elements(contraction, Kind.N if left else Kind.M), _elements(contraction, Kind.K)
        leads = operand >= out and abs(own.stride) < min(contracted)
        if 4 * operand > out:
            members.remove(own)
            members.insert(len(members) if leads or own.stride_out == 1 else len(members) - 1, own)
    return tuple(members)


def _scalar_side_is_inner(
    vector: tuple[SideDimension, ...], scalar: tuple[SideDimension, ...], stays_in_l2: bool
) -> bool:
    """True if the output moves in smaller strides along the scalar side, and that side's panels stay in L2."""
    along_scalar = min((abs(one.stride_out) for one in scalar), default=0)
    along_vector = min((abs(one.stride_out) for one in vector[:-1]), default=0)
    return along_scalar < along_vector and stays_in_l2


def _elements(contraction: Contraction, missing: Kind) -> int:
    """Elements of the array that lacks the dimensions of one kind."""
    return math.prod(constant(one.size) for one in contraction.dimensions if one.kind is not missing)


def _lanes(contraction: Contraction, machine: Machine, accumulator: ScalarType) -> int:
    """Lanes of a vector of the accumulator; of what the map takes, where the accumulator is one bool."""
    functions = (contraction.map, contraction.combine)
    if not is_vectorisable(functions):
        return 1
    deciding = {accumulator, *(one.type.element for one in contraction.map.parameters if accumulator == BOOL)}
    return machine.lanes(max(component_types(one)[0].bytes for one in deciding))


def _run(side: tuple[SideDimension, ...]) -> int:
    """Elements of a side that lie side by side in its operand, of its innermost dimensions."""
    run = 1
    for one in reversed(side):
        if one.stride != run:
            break
        run *= one.size
    return run if run > 1 else 0


def _register_tile(
    machine: Machine, lanes: int, parts: int, totals: tuple[int, int], scalar_run: int
) -> tuple[int, int]:
    """(vectors, rows) with the least padding among the tiles that fill the registers: v*r + v + 1 <= registers.

    Panels of rows that end in the middle of a run of the scalar side's operand are copied by elements.
    """
    vector_total, scalar_total = totals
    registers = (machine.vector_registers or 16) // parts
    best: tuple[float, tuple[int, int]] | None = None
    for rows in (1, 2, 4, 5, 6, 8, 12, 24):
        vectors = min(8, (registers - 1) // (rows + 1), max(1, math.ceil(vector_total / lanes)))
        if vectors == 0:
            continue
        steps = math.ceil(vector_total / (vectors * lanes)) * math.ceil(scalar_total / rows)
        # Cycles of one step of the sum: two multiply-add units with a latency of four (so eight chains keep them
        # busy), one vector per 1.5 cycles from L2, where the vector panels lie, and cheap broadcasts from L1; and the
        # loop itself, of which small tiles need more.
        multiply_adds = max(vectors * rows, 8) / 2
        cost = steps * (max(multiply_adds, 1.5 * vectors + 0.25 * rows) + 0.02 * (vectors + rows) + 0.1)
        if scalar_run % rows and scalar_total > rows:
            cost += BROKEN_ELEMENT * scalar_total
        if best is None or cost < best[0]:
            best = (cost, (vectors, rows))
    assert best is not None
    return best[1]


def _depth(contraction: Contraction, contracted: int, lanes: int, longest: int) -> int:
    """Length of the sum that is packed at once: all of a sum of middle length that cannot wait in the output, and no
    chain of additions longer than that.
    """
    if not _holds_partial_sums(contraction) and contracted <= LONGEST_PIECE:
        longest = LONGEST_PIECE
    elif grows_errors(contraction.combine):
        longest = min(longest, LONGEST_PIECE)
    return even(contracted, longest, lanes)


def _levels(contraction: Contraction, pieces: int) -> int:
    """Levels of partial sums in scratch memory, for a sum of so many pieces."""
    levels = 0 if pieces <= 1 or _holds_partial_sums(contraction) else 1
    if pieces > FAN and grows_errors(contraction.combine):
        levels = 2
        while FAN**levels < pieces:
            levels += 1
    return levels


def _holds_partial_sums(contraction: Contraction) -> bool:
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
        and _is_operator(contraction.map, "mul")
        and _is_operator(contraction.combine, "add")
    )


def _is_operator(function: Lambda, operator: str) -> bool:
    """True if a function of two parameters is one operator on them."""
    plain = canonical(function)
    if len(plain.body.statements) != 1 or plain.body.results != plain.body.statements[0].targets:
        return False
    expression = plain.body.statements[0].expression
    return (
        isinstance(expression, Apply)
        and expression.operator == operator
        and set(expression.operands) == set(plain.parameters)
        and len(plain.parameters) == 2
    )
