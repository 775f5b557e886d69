"""Products with a small operand, in lanes: where the dimensions of a vector are several, and complex numbers.

    out[a, n, b] = sum over k of large[a, k, b] * small[n, k]                              with |b| below the lanes
    =>  out[a, (n, b)] = sum over k of picked(large[a, (k', b)], k) * coefficients[k, (n, b)]

A vector of the large operand holds all of k and b, one of the output all of n and b. For each k the lanes that belong
to it are picked from the vector, and multiplied by a vector of coefficients, in which the elements of the small operand
stand where they are needed. Real and imaginary part are such dimensions, too, of size 2:

    out[a, n, re] += large[a, k, re] * small[n, k, re]        out[a, n, im] += large[a, k, re] * small[n, k, im]
    out[a, n, re] += large[a, k, im] * -small[n, k, im]       out[a, n, im] += large[a, k, im] * small[n, k, re]

No product is computed that is not in the sum, so that infinities and nan stay where they belong. Dimensions of the sum
and of the small operand that lie further out in memory are loops. Gates on qubits are contractions of this kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.contraction.normalise import constant, normalise
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import C64, C128, F32, F64, ScalarType, real_of
from tilewright.machine.model import Machine, power_of_two_at_least
from tilewright.passes.direct.traffic import written_once
from tilewright.passes.packed.blocks import level_of
from tilewright.passes.packed.form import is_multiply_add

MOST_COEFFICIENTS = 1 << 14
"""Bytes of the coefficients, which stay in the first cache."""
LEAST_LARGE = 16
"""How often the coefficients' bytes the large operand has at the least: they are made anew by each block."""
ACCUMULATORS = 24
"""Vectors of results that are summed together; the rest of 32 registers holds what is picked and coefficients."""
MOST_ROWS, MOST_COLUMNS = 4, 8
MOST_VECTORS_OF_ROW = 2
"""Vectors of the large operand that a sum along its rows reads, where all else is as in a product of matrices."""
PICKED, PICKED_FAR = 1.0, 2.0
"""To pick a vector from one that is as long, or longer or shorter."""
POINT = 6.0
"""What a row costs beside its vectors: addresses, and the share of a loop."""


@dataclass(frozen=True)
class Side:
    """A dimension with its strides, in elements (of a real type: in reals for the large operand and the output)."""

    size: int
    large: int
    small: int
    out: int


@dataclass(frozen=True)
class LaneProduct:
    """The decisions.

    Attributes:
        contraction: normalised, with known sizes.
        left: whether the large operand is the left one.
        parts: 2 of complex numbers, else 1.
        shared, picked, written: dimensions in the lanes: of both vectors, of the large operand's only (they are summed)
            and of the output's only; strides in large and out are numbers of lanes.
        contracted, columns: loops over the rest of the sum, and over the rest of the small operand's own dimensions.
        outer: loops over what the small operand does not have, by falling stride in the output.
    """

    contraction: Contraction
    left: bool
    parts: int
    shared: tuple[Side, ...]
    picked: tuple[Side, ...]
    written: tuple[Side, ...]
    contracted: tuple[Side, ...]
    columns: tuple[Side, ...]
    outer: tuple[Side, ...]

    @property
    def large(self) -> Operand:
        """The operand that vectors are read from."""
        return self.contraction.left if self.left else self.contraction.right

    @property
    def small(self) -> Operand:
        """The operand that the coefficients are made of."""
        return self.contraction.right if self.left else self.contraction.left

    @property
    def element(self) -> ScalarType:
        """The type of a lane."""
        return real_of(self.contraction.out.element)

    @property
    def held(self) -> tuple[int, int]:
        """Numbers that a vector of the large operand holds, and one of the output."""
        held = self.parts * total(self.shared)
        return held * total(self.picked), held * total(self.written)

    @property
    def lanes(self) -> tuple[int, int]:
        """Of these vectors, whose last lanes may be masked."""
        read, written = self.held
        return power_of_two_at_least(read), power_of_two_at_least(written)

    @property
    def picks(self) -> int:
        """How many vectors are picked from one of the large operand."""
        return self.parts * total(self.picked)

    @property
    def along(self) -> Side:
        """The outer dimension of the rows that are computed together: near each other in both arrays, and some."""
        some = [one for one in self.outer if one.size >= MOST_ROWS]
        near = min(some or self.outer, key=lambda one: one.large + one.out if some else -one.size, default=None)
        return near or Side(1, 0, 0, 0)

    @property
    def unrolled(self) -> int:
        """How many of the columns' dimensions, the last ones, are written out together; all others are loops."""
        count = 1
        while count < len(self.columns) and total(self.columns[-count - 1 :]) <= MOST_COLUMNS:
            count += 1
        return min(count, len(self.columns))

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns that are summed together; of one long dimension a part."""
        across = min(total(self.columns[len(self.columns) - self.unrolled :]), MOST_COLUMNS)
        return max(1, min(MOST_ROWS, ACCUMULATORS // across)), across

    @property
    def coefficients(self) -> int:
        """Elements of all vectors of coefficients."""
        return total(self.contracted) * self.picks * total(self.columns) * self.lanes[1]

    def cycles(self, machine: Machine) -> float:
        """What it costs, in the cycles of `direct_cost`."""
        rows, across = self.tile
        points, columns, steps = total(self.outer), total(self.columns), total(self.contracted)
        narrow = machine.pace.narrow * max(self.lanes) / machine.lanes(self.element.bytes)
        picking = PICKED if self.lanes[0] == self.lanes[1] else PICKED_FAR
        times = -(-columns // across)  # that vectors are read, and picked from
        work = steps * (self.picks * (columns + picking * times) + times) * max(narrow, 0.5)
        work += columns * machine.pace.other + POINT * machine.pace.other * columns / across / rows * MOST_ROWS
        left, right, out = self.contraction.array_bytes
        read = left if self.left else right
        memory = read / machine.pace.bytes_from(level_of(read + out, machine)) + written_once(out, read, False, machine)
        return max(points * work, memory) + 0.2 * min(points * work, memory)


def total(sides: Sequence[Side]) -> int:
    """How many points there are."""
    return math.prod(one.size for one in sides)


def lane_product_of(contraction: Contraction, machine: Machine) -> LaneProduct | str:
    """The form for a contraction with known sizes, or why it has none.

    Example:
        >>> from tilewright.cli.stages import follow
        >>> from tilewright.machine.named import CPU_AVX512
        >>> (found,) = follow("akb,nk->anb", {"a": 4096, "b": 2, "k": 2, "n": 2}).found
        >>> form = lane_product_of(found, CPU_AVX512)
        >>> form.lanes, form.picks, [one.size for one in form.outer]
        ((16, 16), 2, [1024])
    """
    contraction = normalise(contraction)
    refused = _refusal(contraction)
    if refused:
        return refused
    left, right, _ = contraction.array_bytes
    found = max(_forms(contraction, left >= right, machine), key=_fullness, default=None)
    if found is None:
        return "no vector of the large operand holds what a vector of the output is made of"
    if found.picks == 1 and len(found.shared) == 1 and not found.written:
        return "its vectors lie along one dimension"
    if _has_plain_rows(found, machine):
        return "its vectors are whole ones of rows, which register tiles ask for ahead"
    nbytes = found.coefficients * found.element.bytes
    if nbytes > MOST_COEFFICIENTS or LEAST_LARGE * nbytes > max(left, right):
        return "the small operand is not small beside the other one"
    return found


def _has_plain_rows(form: LaneProduct, machine: Machine) -> bool:
    """Whether whole vectors of the output lie along one dimension and sums along rows that are some lines long."""
    whole = form.lanes[1] == machine.lanes(form.element.bytes)
    return form.parts == 1 and not form.shared and whole and total(form.contracted) > MOST_VECTORS_OF_ROW


def _fullness(form: LaneProduct) -> tuple[int, int, int]:
    read, written = form.held
    return written, read, -form.picks


def _refusal(contraction: Contraction) -> str:
    elements = {contraction.left.element, contraction.right.element, contraction.out.element, contraction.accumulator}
    if len(elements) > 1 or not elements <= {F32, F64, C64, C128}:
        return "its elements are not all of one floating-point type"
    if not is_multiply_add(contraction) or contraction.epilogue is not None or contraction.scalars:
        return "it is more than a sum of products"
    if contraction.of_kind(Kind.C) or not contraction.of_kind(Kind.K):
        return "an index is in all arrays, or none is summed"
    if any(constant(one.size) == 0 for one in contraction.dimensions):
        return "a dimension is empty"
    if not any(constant(one.size) > 1 for one in contraction.of_kind(Kind.K)):
        return "the sum has one term"
    return ""


def _forms(contraction: Contraction, left: bool, machine: Machine) -> Iterator[LaneProduct]:
    """All ways to fill vectors with the innermost dimensions of the large operand and the output."""
    parts = 2 if contraction.out.element.is_complex else 1
    widest = machine.lanes(real_of(contraction.out.element).bytes)
    sides = {kind: [_side(one, left, parts) for one in contraction.of_kind(kind)] for kind in Kind}
    outer, columns = (sides[Kind.M], sides[Kind.N]) if left else (sides[Kind.N], sides[Kind.M])
    if any(one.large < 0 or one.out < 0 for one in (*outer, *columns, *sides[Kind.K])):
        return
    reads = [*_prefixes([(one.large, one) for one in (*outer, *sides[Kind.K])], parts, widest)]
    writes = [*_prefixes([(one.out, one) for one in (*outer, *columns)], parts, widest)]
    for read, write in itertools.product(reads, writes):
        shared = {one: taken for one, taken in read.items() if one in outer}
        if shared != {one: taken for one, taken in write.items() if one in outer}:
            continue
        yield LaneProduct(
            contraction,
            left,
            parts,
            _taken(shared),
            _taken({one: taken for one, taken in read.items() if one not in outer}),
            _taken({one: taken for one, taken in write.items() if one not in outer}),
            _rest(sides[Kind.K], read),
            tuple(sorted(_rest(columns, write), key=lambda one: one.size)),
            tuple(sorted(_rest(outer, read), key=lambda one: -one.out)),
        )


def _taken(held: Mapping[Side, int]) -> tuple[Side, ...]:
    """The parts of dimensions that are in the lanes."""
    return tuple(replace(one, size=taken) for one, taken in held.items())


def _rest(sides: Sequence[Side], held: Mapping[Side, int]) -> tuple[Side, ...]:
    """What is left of dimensions of which so much is in the lanes."""
    return tuple(
        Side(one.size // taken, one.large * taken, one.small * taken, one.out * taken)
        for one in sides
        for taken in (held.get(one, 1),)
        if one.size > taken
    )


def _side(one: Dimension, left: bool, parts: int) -> Side:
    return Side(
        constant(one.size), parts * constant(one.stride(left)), constant(one.stride(not left)),
        parts * constant(one.stride_out),
    )  # fmt: skip


def _prefixes(strides: Sequence[tuple[int, Side]], parts: int, widest: int) -> Iterator[dict[Side, int]]:
    """What a vector may hold, innermost first, with how much of each dimension: all of it, of the last one a part."""
    held: dict[Side, int] = {}
    run = parts
    while True:
        if 1 < run <= widest:
            yield dict(held)
        following = [one for stride, one in strides if stride == run and one not in held]
        if not following:
            return
        (one, *_) = following
        for part in range(2, min(one.size - 1, widest // run) + 1):
            if one.size % part == 0:
                yield held | {one: part}
        if run * one.size > widest:
            return
        held[one] = one.size
        run *= one.size
