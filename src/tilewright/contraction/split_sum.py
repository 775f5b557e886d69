"""A sum cut into pieces that are computed side by side, and whose results are combined afterwards (split-K).

    out[c, m, n] = epilogue(combine over k of map(...))
    =>  partial[p, c, m, n] = combine over the k of piece p of map(...)
        out[c, m, n]        = epilogue(combine over p of partial[p, c, m, n])

Both are contractions again, so that every form, operator, type and epilogue is what it is elsewhere. The pieces follow
each other in the order of the sum; a rest that is shorter than a piece is a contraction of its own.
"""

from __future__ import annotations

import dataclasses
import math

from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind, Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Body, Lambda, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import size


@dataclass(frozen=True)
class SplitSum:
    """What a split sum consists of.

    Attributes:
        dimension: the name of the contracted dimension that is cut.
        pieces: how many whole pieces there are, of `length` steps of that dimension each; `rest` steps are left over.
        parts: the contractions that give partial results: of all whole pieces, and of the rest if there is one.
        combined: the contraction that makes the output of them.
        partial: the name of the array of partial results.
        element, elements: its type, in which is summed, and its length.
    """

    dimension: str
    pieces: int
    length: int
    rest: int
    parts: tuple[Contraction, ...]
    combined: Contraction
    partial: str
    element: ScalarType
    elements: int


def split_sum(contraction: Contraction, name: str, pieces: int) -> SplitSum:
    """A contraction with known sizes whose dimension of that name is cut into so many pieces of one length.

    Raises:
        ValueError: if the dimension is not contracted, or too short for so many pieces.
    """
    cut = next((one for one in contraction.of_kind(Kind.K) if one.name == name), None)
    if cut is None:
        raise ValueError(f"there is no contracted dimension {name} to be split")
    extent = constant(cut.size)
    if not 1 <= pieces <= extent:
        raise ValueError(f"dimension {name} of size {extent} cannot be split into {pieces} pieces")
    length = extent // pieces
    parallel = [one for one in contraction.dimensions if one.kind is not Kind.K]
    spans = _spans(parallel)
    results = math.prod(constant(one.size) for one in parallel)
    accumulator = contraction.combine.parameters[0].type.element
    partial = f"{contraction.out.buffer}.partial"
    piece = _free_name(contraction)

    def part(count: int, steps: int, start: int) -> Contraction:
        """The contraction of `count` pieces of so many steps, from a step on."""

        def moved(operand: Operand, stride: int) -> Operand:
            return dataclasses.replace(operand, offset=operand.offset + size(start * stride))

        def inner(one: Dimension) -> Dimension:
            if one.kind is not Kind.K:
                return dataclasses.replace(one, stride_out=size(spans[one.name]))
            return dataclasses.replace(one, size=size(steps)) if one == cut else one

        outer = Dimension(
            piece,
            Kind.C,
            size(count),
            size(steps * constant(cut.stride_left)),
            size(steps * constant(cut.stride_right)),
            size(results),
        )
        return dataclasses.replace(
            contraction,
            dimensions=(*([outer] if count > 1 else []), *map(inner, contraction.dimensions)),
            left=moved(contraction.left, constant(cut.stride_left)),
            right=moved(contraction.right, constant(cut.stride_right)),
            out=Operand(partial, accumulator, size(start // length * results)),
            epilogue=None,
            epilogue_operands=(),
        )

    rest = extent - pieces * length
    parts = (part(pieces, length, 0), *([part(1, rest, pieces * length)] if rest else []))
    total = pieces + (rest > 0)
    return SplitSum(
        name,
        pieces,
        length,
        rest,
        parts,
        _combined(contraction, Operand(partial, accumulator, size(0)), spans, piece, total),
        partial,
        accumulator,
        total * results,
    )


def _combined(
    contraction: Contraction, partial: Operand, spans: dict[str, int], piece: str, pieces: int
) -> Contraction:
    """The output from partial results; the second operand is the first one, without strides, and the map ignores it."""
    kept = [(place, one) for place, one in enumerate(contraction.dimensions) if one.kind is not Kind.K]
    results = math.prod(constant(one.size) for _, one in kept)
    dimensions = [
        Dimension(one.name, Kind.M, one.size, size(spans[one.name]), size(0), one.stride_out) for _, one in kept
    ]
    summed = Dimension(piece, Kind.K, size(pieces), size(results), size(0), size(0))
    accumulator = contraction.combine.parameters[0]
    given, ignored = Variable("partial", accumulator.type), Variable("ignored", accumulator.type)
    return dataclasses.replace(
        contraction,
        dimensions=(*dimensions, summed),
        left=partial,
        right=partial,
        map=Lambda((given, ignored), Body((), (given,))),
        epilogue_operands=tuple(
            EpilogueOperand(one.operand, (*(one.strides[place] for place, _ in kept), size(0)))
            for one in contraction.epilogue_operands
        ),
    )


def _spans(parallel: list[Dimension]) -> dict[str, int]:
    """Strides of a dense array whose dimensions lie in the order of the output's."""
    spans, span = {}, 1
    for one in sorted(parallel, key=lambda one: abs(constant(one.stride_out))):
        spans[one.name] = span
        span *= constant(one.size)
    return spans


def _free_name(contraction: Contraction) -> str:
    name = "piece"
    while any(one.name == name for one in contraction.dimensions):
        name += "_"
    return name
