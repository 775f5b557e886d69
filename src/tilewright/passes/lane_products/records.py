"""Products of records: short sums of what lies together in memory, for so many records that these are the lanes.

    out[n, i] = sum over j of matrices[n, i, j] * vectors[n, j]                          with i, j of a few elements
    =>  for so many n as a vector has lanes: matrices and vectors are read as they lie, and taken apart in registers, so
        that each element is a vector; the sums are written out; the results are put together and written as they lie

The index of the records is not summed. Of each array it moves a whole record on, or one element (planes), or nothing:
then all records share the array, whose elements fill vectors of their own before the first record.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.contraction.normalise import constant, normalise
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import BOOL, ScalarType, compute_type, real_of
from tilewright.machine.model import Machine
from tilewright.passes.lanes.vectorise import is_vectorisable

MOST_PRODUCTS = 64
"""Terms of the sums of a record, all of which are written out."""
LONGEST = 18
"""Numbers of a record, which take as many vectors."""
LEAST_RECORDS = 64

Point = Mapping[Dimension, int]


@dataclass(frozen=True)
class Records:
    """How the records of one array lie.

    Attributes:
        operand: the array.
        step: elements from a record to the next one; 1: planes, 0: there is one record.
        places: of the elements that a record has, counted from its first one.
    """

    operand: Operand
    step: int
    places: tuple[int, ...]

    @property
    def parts(self) -> int:
        """Numbers of an element."""
        return 2 if self.operand.element.is_complex else 1

    @property
    def numbers(self) -> int:
        """From a record to the next one."""
        return self.step * self.parts

    @property
    def lies_apart(self) -> bool:
        """Whether neighbours are no lanes of one vector."""
        return self.numbers > 1


@dataclass(frozen=True)
class RecordProduct:
    """The decisions.

    Attributes:
        contraction: normalised, with known sizes.
        along: the dimension of the records.
        lanes: records that are computed together.
    """

    contraction: Contraction
    along: Dimension
    lanes: int

    @property
    def count(self) -> int:
        """How many records there are."""
        return constant(self.along.size)

    @property
    def inner(self) -> tuple[Dimension, ...]:
        """The dimensions of a record."""
        return tuple(one for one in self.contraction.dimensions if one != self.along)

    @property
    def shuffles(self) -> float:
        """How many there are for a record: each number is picked from vectors, or put into some, of all its numbers."""
        apart = [one for one in self.arrays if one.lies_apart]
        planes = [len(one.places) if one.step == 1 else 1 for one in apart]
        several = zip(apart, planes, strict=True)
        return sum(count * one.numbers * (one.numbers - 1) for one, count in several) / self.lanes

    def points(self, contracted: bool) -> Iterator[Point]:
        """All terms of a sum, or all sums of a record."""
        dimensions = [one for one in self.inner if (one.kind is Kind.K) == contracted]
        for at in itertools.product(*(range(constant(one.size)) for one in dimensions)):
            yield dict(zip(dimensions, at, strict=True))

    @property
    def arrays(self) -> tuple[Records, Records, Records]:
        """Of the left and the right operand, and of the result."""
        left, right = (self._records(side) for side in ("left", "right"))
        return left, right, self._records("out")

    def _records(self, side: str) -> Records:
        contraction = self.contraction
        operand = {"left": contraction.left, "right": contraction.right, "out": contraction.out}[side]
        every = [{**one, **other} for one in self.points(False) for other in self.points(True)]
        places = sorted({self.place(side, one) for one in every})
        return Records(operand, stride_of(self.along, side), tuple(places))

    @staticmethod
    def place(side: str, point: Point) -> int:
        """Where the element of a point lies in a record of an array."""
        return sum(index * stride_of(one, side) for one, index in point.items())


def stride_of(dimension: Dimension, side: str) -> int:
    """The stride of a dimension in the "left" or "right" operand, or "out"."""
    return constant(dimension.stride_out if side == "out" else dimension.stride(side == "left"))


def record_product_of(contraction: Contraction, machine: Machine) -> RecordProduct | str:
    """The form for a contraction with known sizes, or why it has none.

    Example:
        >>> from tilewright.cli.stages import follow
        >>> from tilewright.machine.named import CPU_AVX512
        >>> (found,) = follow("nij,nj->ni", {"n": 1000, "i": 3, "j": 3}).found
        >>> form = record_product_of(found, CPU_AVX512)
        >>> form.lanes, [one.step for one in form.arrays]
        (16, [9, 3, 3])
    """
    contraction = normalise(contraction)
    refused = _refusal(contraction)
    if refused:
        return refused
    along = max((one for one in contraction.dimensions if one.kind is not Kind.K), key=lambda one: constant(one.size))
    elements = (contraction.left.element, contraction.right.element, contraction.out.element)
    lanes = min(machine.lanes(real_of(one).bytes) for one in elements)
    if lanes < 4 or constant(along.size) < max(LEAST_RECORDS, lanes):
        return "there are too few records"
    form = RecordProduct(contraction, along, lanes)
    if math.prod(constant(one.size) for one in form.inner) > MOST_PRODUCTS:
        return "records have too many products"
    if any(stride_of(one, side) < 0 for one in contraction.dimensions for side in ("left", "right", "out")):
        return "an array lies backwards"
    for one in form.arrays:
        if one.step > 1 and (one.places[-1] >= one.step or one.numbers > LONGEST):
            return "elements of a record do not lie together"
        if len(one.places) * one.parts > LONGEST:
            return "records have too many elements"
    out = form.arrays[2]
    if out.step == 0 or (out.step > 1 and len(out.places) < out.step):
        return "there are gaps between the results"
    if not any(one.lies_apart for one in form.arrays):
        return "vectors run along all arrays"
    return form


def _refusal(contraction: Contraction) -> str:
    out = contraction.out.element
    if contraction.epilogue is not None or contraction.scalars:
        return "it is more than a sum of functions of two elements"
    if any(not _is_plain(one) for one in (contraction.left.element, contraction.right.element, out)):
        return "elements are converted when they are read"
    if out != contraction.accumulator:
        return "sums are converted when they are written"
    if any(constant(one.size) == 0 for one in contraction.dimensions):
        return "a dimension is empty"
    if all(one.kind is Kind.K for one in contraction.dimensions):
        return "there is one result"
    if not is_vectorisable([contraction.map, contraction.combine]):
        return "its functions have control flow, which vectors cannot follow"
    return ""


def _is_plain(element: ScalarType) -> bool:
    return element != BOOL and compute_type(element) == element and real_of(element).bytes >= 4
