"""The decisions for contractions that read one operand once, and hardly anything else: a matrix times a vector, say.

One operand, the *matrix*, has all dimensions of the index space, so that each of its elements is used once; then memory
limits the speed, and it is read in the order in which it lies there, several rows side by side. `along` is the
dimension of its unit stride:

* contracted: vectors of partial sums run along it, which are folded across their lanes at the end of a row (DOTS);
  the other operand is read by its own stride, one element for each lane, where none of its elements is used twice;
* a dimension of the output: sums wait in the output, a piece of which stays in the caches, while the rows are
  added to it several at a time (SUMS).

Long sums of few results whose operands both lie along the sum are DOTS too, of each row of one with each row of the
other, its `columns` (row_products.py).
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum

from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.contraction.normalise import constant
from tilewright.contraction.recognise import is_commutative
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, U32, ScalarType, compute_type
from tilewright.ir.traversal import free_names
from tilewright.machine.model import Machine, power_of_two_at_least
from tilewright.machine.paces import Pace
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.packed.blocks import LINE
from tilewright.passes.packed.dots import Dots, choose_dots
from tilewright.passes.packed.form import is_multiply_add
from tilewright.passes.packed.operands import with_conversions_in_packing

ROWS = 8  # that are read together, of both operands: more streams than that are followed by no prefetcher
MASKED_BYTES = 64  # of the vectors of processors that mask bytes
SHORT_ROW = 4096  # bytes: prefetchers look ahead in one page
MOST_LEFT = 16  # one row of so many, at the most, is read by itself so that the others can be read in lines,
MOST_TWICE = 8  # or one of so many computed twice
LEAST_TURNED = 4  # vectors of a row that is read from a line on: a masked one more takes some of their time
LEAST_SUM = 4  # terms: shorter sums wait in registers
SERIAL_BYTES = 1 << 18  # reading so much takes some 10 microseconds: less is not worth waking other threads


class Way(Enum):
    """What the matrix's unit stride belongs to: a contracted dimension, or one of the output."""

    DOTS = "dots"
    SUMS = "sums"


@dataclass(frozen=True)
class MatrixVectorForm:
    """The decisions.

    Attributes:
        contraction: normalised, with known sizes.
        matrix_left: the matrix is the left operand (the map's first argument).
        way: how the matrix is read.
        along: the dimension of its unit stride.
        side_by_side: the dimension whose rows are read together: of the output for DOTS, contracted for SUMS; None if
            there is none.
        contracted: the other contracted dimensions, outermost first.
        outer: the other dimensions of the output, outermost first; each point is a block of the launch (or several).
        lanes: of each vector; a complex element takes a lane of two vectors.
        vectors: vectors of a row in one step.
        rows: rows that are read together.
        apart: how many rows those that are read together are apart: short rows are read as several streams, each of
            which goes on from row to row.
        reads_vector: the map uses the other operand at all.
        fused_multiply_add: products and sums are one instruction.
        chunk: what one block takes: tiles of rows for DOTS, elements along `along` for SUMS.
        serial: so little work that one block of the launch does all of it.
        columns: the other operand's own dimension, with each of whose rows those of the matrix are multiplied; else
            None.
        column_tile: how many of those are read together.
        dots: several products of narrow elements, which lie along the sum in both operands, are summed by one
            instruction.
    """

    contraction: Contraction
    matrix_left: bool
    way: Way
    along: Dimension
    side_by_side: Dimension | None
    contracted: tuple[Dimension, ...]
    outer: tuple[Dimension, ...]
    lanes: int
    vectors: int
    rows: int
    reads_vector: bool
    fused_multiply_add: bool
    apart: int = 1
    chunk: int = 1
    serial: bool = False
    columns: Dimension | None = None
    column_tile: int = 1
    dots: Dots | None = None

    @property
    def step(self) -> int:
        """Elements of a row that one vector takes."""
        return self.lanes * (1 if self.dots is None else self.dots.together)

    @property
    def matrix(self) -> Operand:
        """The operand that has all dimensions, or all but `columns`."""
        return self.contraction.operand(left=self.matrix_left)

    @property
    def vector(self) -> Operand:
        """The other operand."""
        return self.contraction.operand(left=not self.matrix_left)

    @property
    def accumulator(self) -> ScalarType:
        """The type that is summed in."""
        return self.contraction.accumulator

    @property
    def has_complex(self) -> bool:
        """Whether complex elements are read or written."""
        further = (one.operand for one in self.contraction.epilogue_operands)
        operands = (self.matrix, self.vector, self.contraction.out, *further)
        return self.accumulator.is_complex or any(one.element.is_complex for one in operands)

    @property
    def rows_begin_alike(self) -> bool:
        """Whether vectors are cache lines, and all rows that are read together begin at the same place in one."""
        if not self._takes_lines:
            return False
        starts = [self.stride(one, "matrix") for one in self.contracted if self.way is Way.DOTS]
        if self.side_by_side is not None:
            stride = self.stride(self.side_by_side, "matrix")
            starts += [self.row_start(number) * stride for number in range(1, self.rows)]
        return all(one * self.matrix.element.bytes % LINE == 0 for one in starts)

    @property
    def groups(self) -> int:
        """Of SUMS: how many times so many rows are read together; the other rows follow one by one."""
        return self.row_count // self.rows if self.apart == 1 else self.apart

    @property
    def begins_with_lines(self) -> bool:
        """Whether SUMS read pieces of rows from the beginning of a line on: of pieces that have some vectors."""
        return self.rows_begin_alike and min(self.chunk, self.along_size) >= LEAST_TURNED * self.lanes

    @property
    def _takes_lines(self) -> bool:
        """Whether vectors are cache lines."""
        return self.lanes * self.matrix.element.bytes == LINE and not self.matrix.element.is_complex

    def with_rows_alike(self) -> MatrixVectorForm:
        """The same with rows so far apart that they begin at the same place in a cache line, if that can be: of 300 f32
        in a row it is every fourth row that does. DOTS compute a few more rows twice then; SUMS read more one by one.
        """
        short = self.along_size < LEAST_TURNED * self.lanes
        if self.apart == 1 or short or not self._takes_lines or self.side_by_side is None:
            return self
        distance = self.stride(self.side_by_side, "matrix") * self.matrix.element.bytes
        period = LINE // math.gcd(distance, LINE)
        up, down = -(-self.apart // period) * period, self.apart // period * period
        if self.way is Way.DOTS:
            further, more = replace(self, apart=up), self.rows * (up - self.apart)
            return further if MOST_TWICE * more <= self.row_count and further.turns_lanes else self
        further = replace(self, apart=down)
        left = self.row_count - further.groups * self.rows
        return further if down > 1 and MOST_LEFT * left <= self.row_count and further.rows_begin_alike else self

    @property
    def turns_lanes(self) -> bool:
        """Whether DOTS read the matrix from the beginning of a line on, wherever rows begin: of rows that have one
        vector of sums each, which is no tree.
        """
        is_plain = self.columns is None and self.dots is None and not self.has_complex
        one_vector = self.vectors == 1 and self.along_size >= LEAST_TURNED * self.lanes
        return self.rows_begin_alike and is_plain and one_vector

    @property
    def along_size(self) -> int:
        """Length of the rows."""
        return constant(self.along.size)

    @property
    def row_count(self) -> int:
        """How many rows there are at a point of the other dimensions."""
        return 1 if self.side_by_side is None else constant(self.side_by_side.size)

    @property
    def column_count(self) -> int:
        """Length of `columns`."""
        return 1 if self.columns is None else constant(self.columns.size)

    @property
    def pieces(self) -> int:
        """What the blocks at one point of the outer dimensions share out: see `chunk`."""
        if self.way is Way.SUMS:
            return self.along_size
        return self.apart if self.apart > 1 else -(-self.row_count // self.rows)

    def row_start(self, number: int) -> int:
        """How far the row of that number is from the first of those that are read together. Where they are far apart,
        the last streams of DOTS begin so early that all have one length: some rows are then computed twice.
        """
        start = number * self.apart
        return start if self.apart == 1 or self.way is Way.SUMS else min(start, self.row_count - self.apart)

    @property
    def blocks(self) -> int:
        """Blocks of the launch, unless it is serial."""
        return math.prod(constant(one.size) for one in self.outer) * -(-self.pieces // self.chunk)

    def stride(self, dimension: Dimension, side: str) -> int:
        """The stride of a dimension in an array: "matrix", "vector", "out", or the number of an epilogue's operand."""
        if side.isdigit():
            position = self.contraction.dimensions.index(dimension)
            return constant(self.contraction.epilogue_operands[int(side)].strides[position])
        if side == "out":
            return constant(dimension.stride_out)
        left = (side == "matrix") == self.matrix_left
        return constant(dimension.stride(left))


def choose_matrix_vector_form(contraction: Contraction, machine: Machine) -> MatrixVectorForm | str:
    """The form of a normalised contraction with known sizes, or why it has none."""
    refused = refusal(contraction, machine)
    if refused:
        return refused
    sides = [left for left in (True, False) if _has_all(contraction, left)]
    forms = [form for form in (_placed(contraction, left, machine) for left in sides) if form is not None]
    if forms:
        return _shared_out(max(forms, key=lambda form: form.along_size), machine)
    if not sides:
        return "elements of either operand are used several times"
    return "what has all dimensions, or the epilogue, does not lie so that vectors can run along its unit stride"


def refusal(contraction: Contraction, machine: Machine) -> str:
    """Why such elements or functions are not computed; empty if they are."""
    accumulator = contraction.accumulator
    elements = (contraction.left.element, contraction.right.element, contraction.out.element, accumulator)
    if BOOL in (*elements, *(one.operand.element for one in contraction.epilogue_operands)):
        return "elements are bools"
    if compute_type(contraction.out.element) != accumulator:
        return f"sums of type {accumulator} are stored as {contraction.out.element}"
    if 0 in (constant(one.size) for one in contraction.dimensions):
        return "a dimension is empty"
    if machine.lanes(component_types(accumulator)[0].bytes) < 4:
        return f"{machine.name} has no vector registers for {accumulator}"
    if not is_commutative(contraction.combine):
        return "the operator is not plainly commutative"
    functions = [contraction.map, contraction.combine]
    if not is_vectorisable(functions if contraction.epilogue is None else [*functions, contraction.epilogue]):
        return "its functions have control flow, which vectors cannot follow"
    return ""


def _has_all(contraction: Contraction, left: bool) -> bool:
    """Whether an operand moves along every dimension."""
    return all(constant(one.stride(left)) for one in contraction.dimensions)


def _placed(contraction: Contraction, left: bool, machine: Machine) -> MatrixVectorForm | None:
    accumulator = contraction.accumulator
    lanes = machine.lanes(component_types(accumulator)[0].bytes)
    unit = [one for one in contraction.dimensions if constant(one.stride(left)) == 1]
    if len(unit) != 1:
        return None
    (along,) = unit
    way = Way.DOTS if along.kind is Kind.K else Way.SUMS
    if way is Way.SUMS and contraction.out.element != accumulator:
        return None  # where sums wait
    terms = math.prod(constant(one.size) for one in contraction.of_kind(Kind.K))
    used_once = not contraction.of_kind(Kind.M) and not contraction.of_kind(Kind.N)
    if way is Way.DOTS and used_once:
        lanes = min(lanes, max(2, power_of_two_at_least(constant(along.size))))  # no other form is for short rows
    elif terms < LEAST_SUM or (way is Way.DOTS and constant(along.size) < lanes):
        return None
    other = contraction.map.parameters[1 if left else 0].name
    reads = other in _used(contraction)
    form = MatrixVectorForm(
        contraction, left, way, along, None, (), (), lanes, 1, 1, reads, is_multiply_add(contraction)
    )
    step = form.stride(along, "vector")
    if way is Way.DOTS and step == 1:
        form = replace(form, dots=dots_along(form, machine))
    if reads and step != 1 and not (step == 0 if way is Way.SUMS else used_once):
        return None
    if way is Way.SUMS and form.stride(along, "out") != 1:
        return None
    further = [form.stride(along, str(number)) for number in range(len(contraction.epilogue_operands))]
    if way is Way.SUMS and not {0, 1}.issuperset(further):
        return None
    return _with_rows(form, machine.pace)


def dots_along(form: MatrixVectorForm, machine: Machine) -> Dots | None:
    """The instruction for rows of both operands; of narrow elements, masked ends of rows take vectors of 64 bytes."""
    dots = choose_dots(with_conversions_in_packing(form.contraction), form.matrix_left, machine)
    if dots is None or dots.flipped or machine.vector_bytes < MASKED_BYTES or form.lanes != machine.lanes(U32.bytes):
        return None
    return dots if form.along_size >= form.lanes * dots.together else None


def _used(contraction: Contraction) -> set[str]:
    """Names that the map's body mentions."""
    body = contraction.map.body
    used = {one.name for one in body.results if hasattr(one, "name")}
    for statement in body.statements:
        used |= free_names(statement.expression)
    return used


def _with_rows(form: MatrixVectorForm, pace: Pace) -> MatrixVectorForm:
    """The dimension whose rows are read together: neighbours in the output, or those that share the vector."""
    dots = form.way is Way.DOTS
    others = [one for one in form.contraction.dimensions if one != form.along]
    found = [one for one in others if (one.kind is not Kind.K) == dots]
    # Rows share what is read of the vector where it does not move along them; else neighbours in memory are best.
    found.sort(key=lambda one: (dots and form.stride(one, "vector") != 0, abs(form.stride(one, "matrix"))))
    side = found[0] if found else None
    most = 1 if side is None else constant(side.size)
    one_stream = side is not None and _is_one_stream(form, side)
    both_move = dots and side is not None and form.stride(side, "vector") != 0
    parts = len(component_types(form.accumulator))  # each of which takes registers of its own
    streams = (_row_pairs(form, pace) if both_move else ROWS) // parts
    limit = form.lanes // parts if one_stream and (most % form.lanes == 0 or most >= 4 * form.lanes) else streams
    rows = max(1 << power for power in range(8) if 1 << power <= max(1, min(most, form.lanes, limit)))
    steps = form.along_size // form.step
    most_vectors = 8 // (rows * parts) if dots else 2 // parts
    vectors = max(count for count in (1, 2, 4) if count <= max(1, min(steps // 2, most_vectors)))
    row_bytes = form.along_size * form.matrix.element.bytes
    short = row_bytes < SHORT_ROW <= row_bytes * most // rows  # and each of the streams would go on for a page
    apart = 1 if one_stream or not short or rows == 1 else -(-most // rows) if dots else most // rows
    form = replace(form, side_by_side=side, rows=rows, vectors=vectors, apart=apart)
    contracted = tuple(one for one in others if one.kind is Kind.K and one != side)
    outer = tuple(one for one in others if one.kind is not Kind.K and one != side)
    return replace(form, contracted=contracted, outer=outer).with_rows_alike()


def _row_pairs(form: MatrixVectorForm, pace: Pace) -> int:
    """Rows of each operand that are read together, of which shorter ones than a page are continued by others.

    One of 4000 f32 at a time comes from memory at 32 GB/s on a Zen 4, four at 27, and one of 1000 f64 from its third
    cache at 80, four at 55.
    """
    long = form.along_size * form.matrix.element.bytes >= SHORT_ROW
    return pace.row_pairs if long else min(ROWS // 2, 2 * pace.row_pairs)


def _is_one_stream(form: MatrixVectorForm, side: Dimension) -> bool:
    """Rows of one vector each that follow each other in memory; so many as a vector has lanes fold into a vector."""
    short = form.way is Way.DOTS and form.along_size < 2 * form.lanes
    return short and form.stride(side, "matrix") == form.along_size


def _shared_out(form: MatrixVectorForm, machine: Machine) -> MatrixVectorForm:
    """How much one block takes. A piece of the output that sums wait in takes a quarter of the second cache."""
    outer = math.prod(constant(one.size) for one in form.outer)
    total = form.matrix.element.bytes * math.prod(constant(one.size) for one in form.contraction.dimensions)
    pieces = form.pieces
    wanted = 1 if total < SERIAL_BYTES or machine.cores == 1 else -(-4 * machine.cores // outer)
    if form.way is Way.DOTS:
        return replace(form, chunk=max(1, -(-pieces // wanted)), serial=total < SERIAL_BYTES)
    # Shorter pieces of rows than a page are read a third slower; as many for each core.
    pages = -(-pieces * form.matrix.element.bytes // SHORT_ROW)
    wanted = min(wanted, max(1, pages // machine.cores) * machine.cores)
    step = form.lanes * form.vectors
    most = max(step, machine.l2_bytes // 4 // form.contraction.out.element.bytes // step * step)
    even = -(-pieces // max(wanted, -(-pieces // most)))  # pieces of one size
    chunk = min(most, -(-even // step) * step)
    return replace(form, chunk=chunk, serial=total < SERIAL_BYTES)
