"""A sum cut into pieces that are computed side by side, and whose results are combined afterwards (split-K).

    out[c, m, n] = epilogue(combine over k of map(...))
    =>  partial[p, c, m, n] = combine over the k of piece p of map(...)
        out[c, m, n]        = epilogue(combine over p of partial[p, c, m, n])

Both are contractions again, so that every form, operator, type and epilogue is what it is elsewhere. The pieces follow
each other in the order of the sum; a rest that is shorter than a piece is a contraction of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

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
    parallel = [one for one in contraction.dimensions if one.kind is not Kind.K]
    spans = _spans(parallel)
    results = math.prod(constant(one.size) for one in parallel)
    accumulator = contraction.combine.parameters[0].type.element
    partial = Operand(f"{contraction.out.buffer}.partial", accumulator, size(0))
    piece = _free_name(contraction)
    length = extent // pieces
    rest = extent - pieces * length
    parts = [_part(contraction, cut, spans, partial, (piece, pieces, length))]
    if rest:
        after = _from_step(contraction, cut, pieces * length)
        parts.append(_part(after, cut, spans, replace(partial, offset=size(pieces * results)), (piece, 1, rest)))
    total = len(parts) - 1 + pieces
    combined = _combined(contraction, partial, spans, piece, total)
    return SplitSum(
        name, pieces, length, rest, tuple(parts), combined, partial.buffer, accumulator, total * results
    )  # fmt: skip


def _from_step(contraction: Contraction, cut: Dimension, step: int) -> Contraction:
    """The contraction whose operands begin at a step of a dimension."""
    left, right = contraction.left, contraction.right
    return replace(
        contraction,
        left=replace(left, offset=left.offset + size(step * constant(cut.stride_left))),
        right=replace(right, offset=right.offset + size(step * constant(cut.stride_right))),
    )


def _part(
    contraction: Contraction, cut: Dimension, spans: dict[str, int], partial: Operand, pieces: tuple[str, int, int]
) -> Contraction:
    """The contraction that gives the partial results of pieces: the name of their dimension, how many, how long."""
    name, count, length = pieces
    left, right = (size(length * constant(stride)) for stride in (cut.stride_left, cut.stride_right))
    results = math.prod(constant(one.size) for one in contraction.dimensions if one.kind is not Kind.K)
    outer = [Dimension(name, Kind.C, size(count), left, right, size(results))] if count > 1 else []
    inner = [
        replace(one, stride_out=size(spans[one.name]))
        if one.kind is not Kind.K
        else replace(one, size=size(length))
        if one == cut
        else one
        for one in contraction.dimensions
    ]
    return replace(contraction, dimensions=(*outer, *inner), out=partial, epilogue=None, epilogue_operands=())


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
    return replace(
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
