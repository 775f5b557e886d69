"""The passes on the dimensions of a tensor operation, as named rewrites [S1 5.5].

    insert-unit     a gemm has an M, an N and a K: those that are missing are added with size 1
    fuse            X outside Y with stride(X) = |Y| * stride(Y) in every array  =>  one dimension of |X| * |Y|
    split           X with |X| = a * b  =>  X1 of a outside X0 of b, stride(X1) = b * stride(X)
    identify        some seq dimensions  =>  prim: the block that the main primitive works on
    order           seq loops  =>  larger strides of the output outside, contracted loops inside
    parallelise     some seq dimensions other than K  =>  shared, outermost

Each leaves the meaning as it is, but for the order of the terms of a sum. Sizes are limited by the caller;
`passes/tensor/placing.py` chooses them for a machine.

    >>> from tilewright.contraction.tensor_operation import TensorOperation
    >>> matmul = TensorOperation.from_lists("f32", "contraction", "MNK", ["seq"] * 3, (64, 96, 4000),
    ...     (1, 0, 64), (0, 4000, 1), (1, 64, 0))
    >>> [step.rewrite for step in derive(matmul).steps]
    ['split', 'identify']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tilewright.contraction.kinds import Kind
from tilewright.contraction.tensor_operation import Execution, Primitive, TensorDimension, TensorOperation
from tilewright.ir.dataclass import dataclass

Dimensions = tuple[TensorDimension, ...]

MULTIPLES: Mapping[Kind, tuple[int, ...]] = {Kind.M: (16, 12, 8, 2), Kind.N: (4, 2), Kind.K: (1,), Kind.C: (1,)}
"""The block sizes that suit the micro-kernels, best first: multiples of whole vectors along M, of rows along N."""

EQUATIONS = {
    "insert-unit": "dims => 1, dims",
    "fuse": "X(a, b*s) Y(b, s) => Y(a*b, s)",
    "split": "X(a*b, s) => X1(a, b*s) X0(b, s)",
    "identify": "seq => prim",
    "order": "loops in another order",
    "parallelise": "seq => shared",
    "absorb": "for k: gemm => brgemm over k",
    "merge": "for X(a, b*s): prim X(b, s) => prim X(a*b, s)",
    "coarsen": "shared X1(a*c, b*s) prim X0(b, s) => shared X1(a, b*c*s) prim X0(b*c, s)",
    "spread": "prim X(a*b, s) => shared X1(a, b*s) prim X0(b, s)",
}


@dataclass(frozen=True)
class TensorStep:
    """One application of a rewrite."""

    rewrite: str
    before: TensorOperation
    after: TensorOperation

    def __str__(self) -> str:
        if self.rewrite == "order":
            gone, new = list(self.before.dimensions), list(self.after.dimensions)
        else:
            gone = _without(self.before.dimensions, self.after.dimensions)
            new = _without(self.after.dimensions, self.before.dimensions)
        if self.before.main is not self.after.main:
            names = f"    {self.before.main.value} => {self.after.main.value}"
        else:
            names = ""
        return f"{self.rewrite}    {EQUATIONS[self.rewrite]}{names}\n    {_listed(gone)}\n  =>\n    {_listed(new)}"


def _without(some: Dimensions, others: Dimensions) -> list[TensorDimension]:
    left, kept = list(others), []
    for one in some:
        if one in left:
            left.remove(one)
        else:
            kept.append(one)
    return kept


def _listed(dimensions: Sequence[TensorDimension]) -> str:
    return "; ".join(map(str, dimensions)) or "(nothing)"


@dataclass(frozen=True)
class TensorDerivation:
    """An operation and the steps taken from it."""

    source: TensorOperation
    steps: tuple[TensorStep, ...] = ()

    @property
    def operation(self) -> TensorOperation:
        """Where the steps lead."""
        return self.steps[-1].after if self.steps else self.source

    def __str__(self) -> str:
        """All steps: the rewrite, the dimensions that it takes away, and those that it puts in their place.

        A dimension is printed as kind, execution, size and (strides in in0, in1, out).
        """
        return "\n".join(f"{number}. {step}" for number, step in enumerate(self.steps, 1)) or "no steps"


def optimise(
    operation: TensorOperation,
    min_kernel_size: int = 16,
    max_kernel_size: int = 1024,
    thread_target: int = 1024,
    multiples: Mapping[Kind, tuple[int, ...]] = MULTIPLES,
) -> TensorOperation:
    """The same operation, prepared for its primitives: fused, split, identified, ordered, parallelised.

    Args:
        operation: any; one that has prim dimensions keeps them.
        min_kernel_size: dimensions smaller than this are fused with a neighbour in memory, and no split makes one.
        max_kernel_size: larger dimensions are split.
        thread_target: how many blocks of work the threads are to share.
        multiples: block sizes to prefer, by kind.

    Raises:
        ValueError: unless 1 <= min_kernel_size <= max_kernel_size and 1 <= thread_target.
    """
    return derive(operation, min_kernel_size, max_kernel_size, thread_target, multiples).operation


def derive(
    operation: TensorOperation,
    min_kernel_size: int = 16,
    max_kernel_size: int = 1024,
    thread_target: int = 1024,
    multiples: Mapping[Kind, tuple[int, ...]] = MULTIPLES,
) -> TensorDerivation:
    """`optimise`, with every step on the way."""
    if not 1 <= min_kernel_size <= max_kernel_size or thread_target < 1:
        raise ValueError(
            f"min_kernel_size {min_kernel_size}, max_kernel_size {max_kernel_size} and thread_target {thread_target} "
            "must be at least 1, and the first not above the second"
        )
    passes: Passes = (
        ("insert-unit", insert_unit),
        ("fuse", lambda one: fuse(one, min_kernel_size)),
        ("split", lambda one: split(one, max_kernel_size, min_kernel_size, multiples)),
        ("identify", identify),
        ("order", order),
        ("parallelise", lambda one: parallelise(one, thread_target)),
    )
    return run_passes(operation, passes)


Passes = tuple[tuple[str, Callable[[TensorOperation], TensorOperation | None]], ...]


def run_passes(operation: TensorOperation, passes: Passes) -> TensorDerivation:
    """Apply rewrites by name, each until it finds no more to do."""
    steps: list[TensorStep] = []
    for name, rewrite in passes:
        while (after := rewrite(operation)) is not None:
            steps.append(TensorStep(name, operation, after))
            operation = after
    source = steps[0].before if steps else operation
    return TensorDerivation(source, tuple(steps))


# --- the rewrites: each gives the operation after one step, or None where there is none to take -----------------------


def insert_unit(operation: TensorOperation) -> TensorOperation | None:
    """Add a missing kind to an unplaced contraction (a matrix-vector product has no N), or a first dimension."""
    if operation.is_placed:
        return None
    seq = {one.kind for one in operation.of_execution(Execution.SEQ)}
    wanted = {"unary": (Kind.C,), "binary": (Kind.M,), "ternary": (Kind.M, Kind.N, Kind.K)}[operation.main.family]
    if operation.main.family != "ternary" and seq:
        return None
    for kind in wanted:
        if kind not in seq:
            unit = TensorDimension(kind, "seq", 1, 0, 0, 0)
            return operation.replace(dimensions=(*operation.dimensions, unit))
    if operation.main is Primitive.BRGEMM and _number_of(operation, Kind.K) < 2:
        unit = TensorDimension(Kind.K, "seq", 1, 0, 0, 0)
        return operation.replace(dimensions=(*operation.dimensions, unit))
    return None


def _number_of(operation: TensorOperation, kind: Kind) -> int:
    return sum(one.kind is kind for one in operation.of_execution(Execution.SEQ))


def fuse(operation: TensorOperation, min_kernel_size: int) -> TensorOperation | None:
    """Make one dimension of two of a kind and execution, one of which is below `min_kernel_size` [S1 5.5.4].

    They must be one in memory: stride(X) = |Y| * stride(Y) in every array. The fused one is where the inner one was.
    """
    dimensions = operation.dimensions
    for i, inner in enumerate(dimensions):
        for j, outer in enumerate(dimensions):
            alike = inner.kind is outer.kind and inner.execution is outer.execution is not Execution.PRIM
            if i == j or not alike or min(inner.size, outer.size) >= min_kernel_size:
                continue
            together = outer.strides == tuple(inner.size * stride for stride in inner.strides)
            if together and not _needed(operation, inner):
                fused = _resized(inner, inner.size * outer.size)
                changed = [fused if number == i else one for number, one in enumerate(dimensions) if number != j]
                return operation.replace(dimensions=tuple(changed))
    return None


def _needed(operation: TensorOperation, dimension: TensorDimension) -> bool:
    """A brgemm that is not placed needs two contracted dimensions."""
    contracted = dimension.kind is Kind.K and operation.main is Primitive.BRGEMM and not operation.is_placed
    return contracted and _number_of(operation, Kind.K) == 2


def split(
    operation: TensorOperation,
    max_kernel_size: int,
    min_kernel_size: int = 1,
    multiples: Mapping[Kind, tuple[int, ...]] = MULTIPLES,
) -> TensorOperation | None:
    """Split the first dimension above `max_kernel_size` that has a fitting divisor [S1 5.5.2]."""
    for number, one in enumerate(operation.dimensions):
        if one.size <= max_kernel_size or one.execution is Execution.PRIM:
            continue
        sizes = split_size(one.size, max_kernel_size, min_kernel_size, multiples[one.kind])
        if sizes is not None:
            outer, inner = sizes
            strides = (inner * stride for stride in one.strides)
            parts = (TensorDimension(one.kind, one.execution, outer, *strides), _resized(one, inner))
            dimensions = (*operation.dimensions[:number], *parts, *operation.dimensions[number + 1 :])
            return operation.replace(dimensions=dimensions)
    return None


def split_size(
    size: int, max_kernel_size: int, min_kernel_size: int = 1, multiples: Sequence[int] = (1,)
) -> tuple[int, int] | None:
    """(outer, inner) with outer * inner = size, inner a multiple of the first number in `multiples` for which one fits.

    The inner size is at most `max_kernel_size`. Without a lower bound it is the largest such. With one, both sizes
    keep it, and of those pairs the most even is taken, since a split that leaves either side barely above the bound
    serves it badly. None if no pair fits.

    Example:
        >>> split_size(1600, 1024, 1, (16, 12, 8, 2)), split_size(1600, 1024, 16, (16, 12, 8, 2))
        ((2, 800), (50, 32))
    """
    least, most = max(2, min_kernel_size), min(max_kernel_size, size // 2)
    inners = range(least, most + 1) if most <= math.isqrt(size) else divisors(size)
    fitting = [
        (size // inner, inner)
        for inner in inners
        if size % inner == 0 and least <= inner <= most and size // inner >= min_kernel_size
    ]
    for multiple in multiples:
        pairs = [pair for pair in fitting if pair[1] % multiple == 0]
        if pairs and min_kernel_size == 1:
            return pairs[-1]
        if pairs:
            return min(pairs, key=lambda pair: (abs(math.log(pair[0] / pair[1])), -pair[1]))
    return None


def divisors(size: int) -> list[int]:
    """All divisors, in order.

    Example:
        >>> divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    low = [one for one in range(1, math.isqrt(size) + 1) if size % one == 0]
    return sorted({*low, *(size // one for one in low)})


def identify(operation: TensorOperation) -> TensorOperation | None:
    """Choose the primitive dimensions among the seq dimensions of an unplaced operation [S1 5.5.1].

    Unary: the one with unit stride in the input, and that with unit stride in the output, or else the next smallest.
    A transpose for which there are no such two becomes a copy, which takes any strides.
    Binary: of either kind, M and N, the one with the smallest strides. Ternary: M with unit stride in in0 and out, N
    with the smallest strides, K with unit stride in in1, and for a brgemm a second K; where no stride is 1, the
    smallest. `contraction` becomes brgemm if there is a second K, and gemm if not.
    """
    if operation.is_placed:
        return None
    rest = list(operation.of_execution(Execution.SEQ))
    main = operation.main
    if main.family == "ternary":
        chosen, main = _identify_ternary(rest, main)
    elif main.family == "binary":
        picked = (_smallest(rest, kind, "out", "in0", "in1") for kind in (Kind.N, Kind.M))
        chosen = [one for one in picked if one is not None]
    elif main is Primitive.TRANSPOSE and (crossing := _identify_crossing(rest)) is not None:
        chosen = crossing
    else:
        main = Primitive.COPY if main is Primitive.TRANSPOSE else main
        chosen = _identify_unary(rest, main)
    if not chosen:
        return None
    others = list(operation.dimensions)
    for one in chosen:
        others.remove(one)
    placed = [TensorDimension(one.kind, Execution.PRIM, one.size, *one.strides) for one in chosen]
    return operation.replace(main=main, dimensions=(*others, *placed))


def _identify_crossing(seq: list[TensorDimension]) -> list[TensorDimension] | None:
    """The largest dimension with unit stride in the input and another with unit stride in the output."""
    pairs = [[out, in0] for in0 in seq for out in seq if in0 is not out and in0.stride_in0 == out.stride_out == 1]
    return max(pairs, key=lambda pair: (min(one.size for one in pair), pair[1].size), default=None)


def _identify_unary(seq: list[TensorDimension], main: Primitive) -> list[TensorDimension]:
    read = "out" if main is Primitive.ZERO else "in0"
    first = _smallest(seq, Kind.C, read, "out")
    if first is None:
        return []
    rest = list(seq)
    rest.remove(first)
    crosses = first.stride_out != 1 and any(one.stride_out == 1 for one in rest)
    second = _smallest(rest, Kind.C, "out", "in0") if crosses else _smallest(rest, Kind.C, read, "out")
    return [first] if second is None else [second, first]


def _identify_ternary(seq: list[TensorDimension], main: Primitive) -> tuple[list[TensorDimension], Primitive]:
    m, n = _smallest(seq, Kind.M, "out", "in0"), _smallest(seq, Kind.N, "out", "in1")
    k = _smallest(seq, Kind.K, "in1", "in0")
    if m is None or n is None or k is None:
        return [], main
    rest = list(seq)
    rest.remove(k)
    batch = None if main is Primitive.GEMM else _smallest(rest, Kind.K, "in1", "in0")
    if batch is None:
        return [m, n, k], Primitive.GEMM
    return [batch, m, n, k], Primitive.BRGEMM


def _smallest(seq: Sequence[TensorDimension], kind: Kind, *arrays: str) -> TensorDimension | None:
    """The dimension of a kind with the smallest strides in these arrays; of size 1 or without stride only if alone."""

    def key(one: TensorDimension) -> tuple[object, ...]:
        strides = [dict(zip(("in0", "in1", "out"), one.strides, strict=True))[array] for array in arrays]
        return (one.size == 1, *((stride == 0, stride) for stride in strides))

    return min((one for one in seq if one.kind is kind), key=key, default=None)


def order(operation: TensorOperation) -> TensorOperation | None:
    """Put the seq loops in the order in which memory is used best: far apart in the output outside, contracted inside.

    Then a block of the output stays in the cache until it is complete.
    """

    def key(one: TensorDimension) -> tuple[bool, int]:
        return (True, -max(one.strides)) if one.kind is Kind.K else (False, -one.stride_out)

    seq = sorted(operation.of_execution(Execution.SEQ), key=key)
    ordered = (*operation.of_execution(Execution.SHARED), *seq, *operation.of_execution(Execution.PRIM))
    return None if ordered == operation.dimensions else operation.replace(dimensions=ordered)


def parallelise(operation: TensorOperation, thread_target: int) -> TensorOperation | None:
    """Share the outermost seq dimension that keeps the number of blocks within `thread_target`; never K [S1 5.5.3].

    If nothing is shared yet and all dimensions are larger than the target, the smallest one is.
    """
    blocks = math.prod(one.size for one in operation.of_execution(Execution.SHARED))
    seq = [one for one in operation.of_execution(Execution.SEQ) if one.kind is not Kind.K and one.size > 1]
    fitting = [one for one in seq if blocks * one.size <= thread_target]
    if not fitting and blocks == 1 and seq:
        fitting = [min(seq, key=lambda one: one.size)]
    if not fitting or blocks >= thread_target:
        return None
    chosen = fitting[0]
    rest = list(operation.dimensions)
    rest.remove(chosen)
    count = len(operation.of_execution(Execution.SHARED))
    shared = TensorDimension(chosen.kind, Execution.SHARED, chosen.size, *chosen.strides)
    return operation.replace(dimensions=(*rest[:count], shared, *rest[count:]))


def _resized(dimension: TensorDimension, size: int) -> TensorDimension:
    return TensorDimension(dimension.kind, dimension.execution, size, *dimension.strides)
