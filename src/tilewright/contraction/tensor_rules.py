"""The rules that a tensor operation must keep, each by its name; a broken one is told with numbers [S1 5.1].

    same-length            the lists of a configuration have one length
    dtype-supported        the element type is one that the operation's family computes on
    primitive-supported    the primitives exist, and touches work in place on the output's type
    first-touch            only what accumulates has a first touch
    clamp-range            a clamp has finite bounds in order, and nothing else has bounds
    size-positive          every size is at least 1
    stride-not-negative    every stride is at least 0: element 0 of an array is its first
    kind-of-family         unary operations have C dimensions only, binary ones M and N, contractions any
    kind-strides           an array has no stride in a dimension that it does not have
    execution-order        shared dimensions first, then seq, then prim
    contracted-in-order    a contracted dimension is never shared among threads
    primitive-count        the primitive dimensions are those that the main primitive needs
    transpose-strides      a transpose moves the unit stride from one primitive dimension to the other
    output-once            no two iterations over dimensions other than K write the same element
    addressable            offsets in bytes are below 2^62
    inside-arrays          no access lies outside an array that a call was given

The last needs the arrays; the others are checked when an operation is made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tilewright.contraction.kinds import Kind
from tilewright.contraction.tensor_primitives import (
    ELEMENTWISE,
    RESULTS,
    TOUCHES,
    Execution,
    Primitive,
    TensorDimension,
)
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType

if TYPE_CHECKING:
    from tilewright.contraction.tensor_operation import TensorOperation

ARRAYS = ("in0", "in1", "out")


@dataclass(frozen=True)
class Broken:
    """A rule that is broken, and how."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


class TensorOperationError(ValueError):
    """A tensor operation breaks rules; `broken` holds them all."""

    def __init__(self, broken: Sequence[Broken]) -> None:
        self.broken = tuple(broken)
        super().__init__("; ".join(map(str, self.broken)))

    def __reduce__(self) -> tuple[type[TensorOperationError], tuple[tuple[Broken, ...]]]:
        """Pickled with the rules, from which the message is made again."""
        return type(self), (self.broken,)


def check_operation(operation: TensorOperation) -> None:
    """Check every rule that does not need the arrays.

    Raises:
        TensorOperationError: with all broken rules.
    """
    broken = list(_types(operation))
    broken += _dimensions(operation)
    if not broken:  # the others take sense in types, sizes and strides for granted
        broken += _placement(operation)
        broken += _memory(operation)
    if broken:
        raise TensorOperationError(broken)


def check_lengths(lists: dict[str, int]) -> None:
    """The rule same-length, on the lengths of the lists by name.

    Raises:
        TensorOperationError: with the lengths.
    """
    if len(set(lists.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lists.items())
        raise TensorOperationError([Broken("same-length", f"the lists differ in length: {told}")])


def check_sizes(operation: TensorOperation, sizes: dict[str, int]) -> None:
    """The rule inside-arrays, on the arrays' numbers of elements by name.

    Raises:
        TensorOperationError: for each array that is too short.
    """
    needed = dict(zip(ARRAYS, operation.extents, strict=True))
    broken = [
        Broken("inside-arrays", f"{name} has {count} elements, the operation reaches {needed[name]}")
        for name, count in sizes.items()
        if count < needed[name]
    ]
    if broken:
        raise TensorOperationError(broken)


# --- types and primitives ---------------------------------------------------------------------------------------------


def _types(operation: TensorOperation) -> Iterator[Broken]:
    main, dtype = operation.main, operation.dtype
    if main is Primitive.NONE:
        yield Broken("primitive-supported", "the main primitive is none; an operation must do something")
    allowed: tuple[ScalarType, ...] = tuple(RESULTS) if main.family == "ternary" else ELEMENTWISE
    if dtype not in allowed:
        names = ", ".join(map(str, allowed))
        yield Broken("dtype-supported", f"{main.value} does not compute on {dtype}; it does on {names}")
        return
    for place, touch in (("first touch", operation.first_touch), ("last touch", operation.last_touch)):
        possible = TOUCHES[operation.out_dtype.kind]
        if touch is not Primitive.NONE and touch not in possible:
            names = ", ".join(sorted(one.value for one in possible))
            yield Broken(
                "primitive-supported",
                f"{touch.value} as {place} cannot change a block of {operation.out_dtype} in place; possible are none, "
                f"{names}",
            )
    if main.family != "ternary" and operation.first_touch is not Primitive.NONE:
        yield Broken(
            "first-touch", f"{main.value} overwrites the output: {operation.first_touch.value} before it would be lost"
        )
    yield from _clamp(operation)


def _clamp(operation: TensorOperation) -> Iterator[Broken]:
    uses = Primitive.CLAMP in (operation.first_touch, operation.main, operation.last_touch)
    if uses != (operation.clamp is not None):
        told = "a clamp needs its bounds (lower, upper)" if uses else f"bounds {operation.clamp} without a clamp"
        yield Broken("clamp-range", told)
    elif operation.clamp is not None:
        lower, upper = operation.clamp
        if not (math.isfinite(lower) and math.isfinite(upper) and lower <= upper):
            yield Broken("clamp-range", f"the bounds {lower} and {upper} are not finite numbers in order")
        elif operation.out_dtype.is_integer and not all(
            float(bound).is_integer() and -(2**31) <= bound < 2**31 for bound in (lower, upper)
        ):
            yield Broken("clamp-range", f"the bounds {lower} and {upper} are no values of {operation.out_dtype}")


# --- single dimensions ------------------------------------------------------------------------------------------------

_KINDS = {"unary": (Kind.C,), "binary": (Kind.M, Kind.N), "ternary": tuple(Kind), "none": tuple(Kind)}
_ABSENT = {Kind.M: ("in1",), Kind.N: ("in0",), Kind.K: ("out",), Kind.C: ()}


def _absent(operation: TensorOperation, dimension: TensorDimension) -> tuple[str, ...]:
    """The arrays that cannot have a stride in the dimension."""
    if operation.main.family == "unary":
        return ("in0", "in1") if operation.main is Primitive.ZERO else ("in1",)
    return _ABSENT[dimension.kind] if operation.main.family == "ternary" else ()


def _dimensions(operation: TensorOperation) -> Iterator[Broken]:
    family = operation.main.family
    for number, dimension in enumerate(operation.dimensions):
        which = f"dimension {number} ({dimension})"
        if dimension.size < 1:
            yield Broken("size-positive", f"{which} has size {dimension.size}")
        strides = dict(zip(ARRAYS, dimension.strides, strict=True))
        for array, stride in strides.items():
            if stride < 0:
                yield Broken("stride-not-negative", f"{which} has stride {stride} in {array}")
        if dimension.kind not in _KINDS[family]:
            kinds = ", ".join(kind.value for kind in _KINDS[family])
            yield Broken(
                "kind-of-family",
                f"{which}: {operation.main.value} is a {family} operation, whose dimensions are of kind {kinds}",
            )
            continue
        for array in _absent(operation, dimension):
            if strides[array] != 0:
                yield Broken(
                    "kind-strides",
                    f"{which} has stride {strides[array]} in {array}, which has no such dimension in {family} "
                    f"{operation.main.value}",
                )


# --- which dimension runs where ---------------------------------------------------------------------------------------


def _placement(operation: TensorOperation) -> Iterator[Broken]:
    ranks = [(Execution.SHARED, Execution.SEQ, Execution.PRIM).index(one.execution) for one in operation.dimensions]
    if ranks != sorted(ranks):
        order = ", ".join(one.execution.value for one in operation.dimensions)
        yield Broken("execution-order", f"shared dimensions come first, then seq, then prim; these are {order}")
    for number, dimension in enumerate(operation.dimensions):
        if dimension.kind is Kind.K and dimension.execution is Execution.SHARED:
            yield Broken(
                "contracted-in-order",
                f"dimension {number} ({dimension}) is contracted and shared: threads would add to one output at once",
            )
    primitive = operation.of_execution(Execution.PRIM)
    if primitive:
        yield from _primitive_dimensions(operation, primitive)


def _primitive_dimensions(operation: TensorOperation, primitive: tuple[TensorDimension, ...]) -> Iterator[Broken]:
    main, kinds = operation.main, Counter(one.kind.value for one in primitive)
    have = " and ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    if main.family == "ternary":
        wanted = {Primitive.GEMM: 1, Primitive.BRGEMM: 2}.get(main)
        if wanted is None:
            yield Broken("primitive-count", f"{main.value} has no primitive dimensions until it is gemm or brgemm")
        elif kinds != Counter({"M": 1, "N": 1, "K": wanted}):
            yield Broken("primitive-count", f"{main.value} needs primitive 1 M, 1 N and {wanted} K, got {have}")
    elif main.family == "binary" and (kinds["M"] > 1 or kinds["N"] > 1):
        yield Broken("primitive-count", f"{main.value} takes at most primitive 1 M and 1 N, got {have}")
    elif len(primitive) > 2 or (main is Primitive.TRANSPOSE and len(primitive) != 2):
        few = "2" if main is Primitive.TRANSPOSE else "1 or 2"
        yield Broken("primitive-count", f"{main.value} needs {few} primitive dimensions, got {have}")
    elif main is Primitive.TRANSPOSE:
        one, two = primitive
        if not (one.stride_in0 == two.stride_out == 1 or two.stride_in0 == one.stride_out == 1):
            yield Broken(
                "transpose-strides",
                f"one of ({one}) and ({two}) must have unit stride in in0 and the other in out; a copy takes any",
            )


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(operation: TensorOperation) -> Iterator[Broken]:
    types = (operation.dtype, operation.dtype, operation.out_dtype)
    for array, extent, scalar in zip(ARRAYS, operation.extents, types, strict=True):
        if extent * scalar.bytes >= 2**62:
            yield Broken("addressable", f"{array} would span {extent} elements of {scalar}")
    written = [one for one in operation.dimensions if one.kind is not Kind.K and one.size > 1]
    for dimension in written:
        if dimension.stride_out == 0:
            yield Broken("output-once", f"dimension ({dimension}) has stride 0 in out: {_how(dimension)}")
    if all(one.stride_out for one in written):
        overlap = overlapping(tuple((one.size, one.stride_out) for one in written))
        if overlap is not None:
            which = [one for one, distance in zip(written, overlap, strict=True) if distance]
            names = ", ".join(f"({one})" for one in which)
            parallel = next((one for one in which if one.execution is Execution.SHARED), which[0])
            yield Broken("output-once", f"dimensions {names} meet in one element of out: {_how(parallel)}")


def _how(dimension: TensorDimension) -> str:
    if dimension.execution is Execution.SHARED:
        return "threads would write it at the same time"
    return "it would be written more than once"


def overlapping(dimensions: tuple[tuple[int, int], ...]) -> tuple[int, ...] | None:
    """Whether two different points of a box have the same offset: the difference of two such points, else None.

    Exact: looks for distances d with |d_i| < size_i and sum of d_i * stride_i = 0, from the largest stride on. A
    distance is possible only while the remaining dimensions can make up for it, which leaves few to try.

    Args:
        dimensions: (size, stride) with positive strides.

    Example:
        >>> overlapping(((3, 2), (2, 3))), overlapping(((4, 2), (2, 4)))
        (None, (-2, 1))
    """
    order = sorted(range(len(dimensions)), key=lambda index: -dimensions[index][1])
    boxes = [dimensions[index] for index in order]
    reach = [sum((size - 1) * stride for size, stride in boxes[level:]) for level in range(len(boxes) + 1)]

    @cache
    def make_up(level: int, rest: int, moved: bool) -> tuple[int, ...] | None:
        if level == len(boxes):
            return () if rest == 0 and moved else None
        size, stride = boxes[level]
        # rest + d * stride must be within reach of the dimensions below; of d and -d, the first to move is positive.
        low = max(-(size - 1) if moved else 0, -((rest + reach[level + 1]) // stride))
        high = min(size - 1, (reach[level + 1] - rest) // stride)
        for distance in range(low, high + 1):
            below = make_up(level + 1, rest + distance * stride, moved or distance != 0)
            if below is not None:
                return (distance, *below)
        return None

    found = make_up(0, 0, False)
    if found is None:
        return None
    distances = dict(zip(order, found, strict=True))
    return tuple(distances[index] for index in range(len(dimensions)))
