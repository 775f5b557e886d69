"""The canonical contraction: what every einsum, map nest or rewritten expression that is one becomes.

    out[c, m, n] = epilogue( combine over k of map(left[c, m, k], right[c, n, k]), further operands[c, m, n] )

where c, m, n and k each stand for any number of dimensions. A dimension is known by its size and by the stride with
which each array moves along it (0 where the array does not have it) [S1 5.5].
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from tilewright.contraction.kinds import Kind
from tilewright.ir.arguments import PREVIOUS
from tilewright.ir.cached import cached_property
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Lambda, Literal, Variable
from tilewright.ir.scalars import ScalarType
from tilewright.ir.sizes import Size, size

__all__ = ["Contraction", "Dimension", "EpilogueOperand", "Kind", "Operand", "Refusal", "UsedIndex"]


@dataclass(frozen=True)
class Dimension:
    """One dimension of the iteration space; strides are in elements, 0 where the array does not have it."""

    name: str
    kind: Kind
    size: Size
    stride_left: Size
    stride_right: Size
    stride_out: Size

    def stride(self, left: bool) -> Size:
        """The stride in the left operand, or in the right one."""
        return self.stride_left if left else self.stride_right


@dataclass(frozen=True)
class Operand:
    """An array (by the name of its buffer), its element type, and the flat index where it starts."""

    buffer: str
    element: ScalarType
    offset: Size


@dataclass(frozen=True)
class EpilogueOperand:
    """A further array read once per output element; `strides` follow the contraction's dimensions (0 for K)."""

    operand: Operand
    strides: tuple[Size, ...]


@dataclass(frozen=True)
class UsedIndex:
    """An index of the user's into a dimension of size `extent`: `start` plus, for each dimension of the contraction
    that it follows, a stride times a number below the size.
    """

    start: Size
    strides: tuple[tuple[Size, Size], ...]
    extent: Size

    def is_inside(self, values: Mapping[str, int]) -> bool:
        """Whether it is in range at every point, if sizes and scalars have these values.

        Example:
            >>> from tilewright.ir.sizes import size
            >>> shifted = UsedIndex(size("k"), ((size(-1), size(4)),), size(4))  # k - i for i < 4
            >>> [shifted.is_inside({"k": k}) for k in (2, 3, 4)]
            [False, True, False]
        """
        low = high = self.start.evaluate(values)
        for stride, width in self.strides:
            last = stride.evaluate(values) * (width.evaluate(values) - 1)
            low, high = low + min(last, 0), high + max(last, 0)
        return low >= 0 and high < self.extent.evaluate(values)


@dataclass(frozen=True)
class Contraction:
    """The canonical form. Dimensions: those of the output in its order, outermost first, then the contracted ones.

    `map` takes (left element, right element), `combine` two accumulators, `neutral` is combine's neutral element,
    `epilogue` takes (accumulator, one scalar per epilogue operand) and gives the output element. `scalars` are the
    scalar variables that these functions use from outside; the launch hands them over. `indices` are to be in range,
    which is known when the sizes and these scalars are.
    """

    dimensions: tuple[Dimension, ...]
    left: Operand
    right: Operand
    out: Operand
    map: Lambda
    combine: Lambda
    neutral: Literal
    epilogue: Lambda | None = None
    epilogue_operands: tuple[EpilogueOperand, ...] = ()
    scalars: tuple[Variable, ...] = ()
    indices: tuple[UsedIndex, ...] = ()

    @property
    def accumulator(self) -> ScalarType:
        """The type that is combined in."""
        return self.combine.parameters[0].type.element

    @property
    def updates(self) -> bool:
        """Whether the epilogue reads what the output held."""
        return any(one.operand.buffer == PREVIOUS for one in self.epilogue_operands)

    def operand(self, left: bool) -> Operand:
        """The left operand, or the right one."""
        return self.left if left else self.right

    @cached_property
    def array_bytes(self) -> tuple[int, int, int]:
        """Bytes of the elements of the left operand, the right one and the output that are read or written, where all
        sizes are known.
        """
        left = right = out = 1
        for one in self.dimensions:
            extent = one.size.evaluate({})
            left *= extent if one.stride_left.evaluate({}) else 1
            right *= extent if one.stride_right.evaluate({}) else 1
            out *= extent if one.stride_out.evaluate({}) else 1
        return left * self.left.element.bytes, right * self.right.element.bytes, out * self.out.element.bytes

    def of_kind(self, kind: Kind) -> tuple[Dimension, ...]:
        """The dimensions of one kind, in order."""
        return tuple(one for one in self.dimensions if one.kind is kind)

    @property
    def size_names(self) -> frozenset[str]:
        """The names in sizes, strides, offsets and indices: what the launches depend on."""
        operands = [self.left, self.right, self.out, *(one.operand for one in self.epilogue_operands)]
        sizes = [one.offset for one in operands]
        for d in self.dimensions:
            sizes += [d.size, d.stride_left, d.stride_right, d.stride_out]
        for further in self.epilogue_operands:
            sizes += further.strides
        for index in self.indices:
            sizes += [index.start, index.extent, *itertools.chain.from_iterable(index.strides)]
        return frozenset().union(*(one.names for one in sizes))

    def bind(self, values: Mapping[str, int]) -> Contraction:
        """The contraction with every size, stride and offset a constant; sizes below 0 are 0."""

        def known(value: Size) -> Size:
            return size(value.evaluate(values))

        def bound(one: Operand) -> Operand:
            return dataclasses.replace(one, offset=known(one.offset))

        return dataclasses.replace(
            self,
            dimensions=tuple(
                Dimension(
                    d.name,
                    d.kind,
                    size(max(0, d.size.evaluate(values))),
                    *map(known, (d.stride_left, d.stride_right, d.stride_out)),
                )
                for d in self.dimensions
            ),
            left=bound(self.left),
            right=bound(self.right),
            out=bound(self.out),
            epilogue_operands=tuple(
                EpilogueOperand(bound(one.operand), tuple(map(known, one.strides))) for one in self.epilogue_operands
            ),
        )


@dataclass(frozen=True)
class Refusal:
    """Why something is not a contraction; the reasons are shown to the user by `explain`."""

    reasons: tuple[str, ...]
