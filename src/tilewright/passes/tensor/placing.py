"""Placing a tensor operation on a machine: the passes on its dimensions [S1 5.5], with sizes chosen for the machine.

    insert-unit, fuse    as in `contraction.tensor_rewrites`, whatever the size
    identify             whole dimensions: the primitives walk blocks of any size in the order that suits the caches
    order                seq loops
    absorb               gemm inside a contracted loop  =>  brgemm: the output stays in registers
    spread               a primitive dimension  =>  shared blocks of it, where the cores have too few blocks
    parallelise          seq loops other than K  =>  shared

`tensor_rewrites.optimise` is the same with sizes that the caller limits. Compiling an operation makes primitives of
neighbouring loops once more (`regroup`), whoever placed it:

    merge                a loop and the primitive's dimension that are one in memory  =>  one primitive dimension
    coarsen              many shared blocks  =>  fewer of them, each with several in its primitive
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tilewright.contraction.kinds import Kind
from tilewright.contraction.tensor_operation import Execution, Primitive, TensorDimension, TensorOperation
from tilewright.contraction.tensor_rewrites import (
    TensorDerivation,
    divisors,
    fuse,
    identify,
    insert_unit,
    order,
    parallelise,
    run_passes,
)
from tilewright.machine.model import Machine

_BLOCKS_PER_CORE = 16  # at most: small blocks cost starts, few large ones leave cores idle at the end
_LEAST_BLOCKS_PER_CORE = 4
_LEAST_WORK = 1 << 21  # floating-point operations of a block, some 20 microseconds
_LEAST_ELEMENTS = 1 << 16  # the same for elements that are only moved
_LONG_RUN = 16  # vectors that a run should have at the least
_PANEL_COPY = 3.0  # what copying an element of a panel costs, in multiply-adds of a vector
_THREAD_TARGET = 1024
_ANY_SIZE = 1 << 62


def place(operation: TensorOperation, machine: Machine, thread_target: int = _THREAD_TARGET) -> TensorDerivation:
    """The operation with its dimensions fused, given primitives, ordered and shared; and every step on the way.

    Args:
        operation: any; one that has prim dimensions keeps them, but for those that `spread` cuts.
        machine: its cores and vectors.
        thread_target: at most so many blocks are shared among threads; 1 for none.

    Raises:
        ValueError: if `thread_target` is below 1.

    Example:
        >>> from tilewright.machine.named import named_machine
        >>> product = TensorOperation.from_lists("f32", "contraction", "MNK", ["seq"] * 3, (1600, 1600, 1600),
        ...     (1, 0, 1600), (0, 1600, 1), (1, 1600, 0))
        >>> [step.rewrite for step in place(product, named_machine("cpu-avx512")).steps]
        ['identify', 'spread']
    """
    if thread_target < 1:
        raise ValueError(f"thread_target {thread_target} must be at least 1")
    return run_passes(
        operation,
        (
            ("insert-unit", insert_unit),
            ("fuse", lambda one: fuse(one, _ANY_SIZE)),
            ("identify", identify),
            ("order", order),
            ("absorb", absorb),
            ("spread", lambda one: spread(one, machine, thread_target)),
            ("parallelise", lambda one: parallelise(one, thread_target)),
        ),
    )


def regroup(operation: TensorOperation, machine: Machine) -> TensorDerivation:
    """The contraction with loops made part of its primitive, which can then use each panel and register tile longer.

    Only loops that are one in memory with a dimension of the primitive, so that the primitive stays what it is.
    """
    if operation.main.family != "ternary" or not operation.is_placed:
        return TensorDerivation(operation)
    return run_passes(operation, (("merge", merge), ("coarsen", lambda one: coarsen(one, machine))))


def merge(operation: TensorOperation) -> TensorOperation | None:
    """Fuse the first seq loop that is one in memory with a primitive dimension into this one."""
    return _first_fused(operation, Execution.SEQ, lambda size: size)


def coarsen(operation: TensorOperation, machine: Machine) -> TensorOperation | None:
    """Fuse part of a shared dimension into the primitive, where the cores still have blocks enough."""
    blocks = math.prod(one.size for one in operation.of_execution(Execution.SHARED))
    enough = _LEAST_BLOCKS_PER_CORE * machine.cores

    def part(size: int) -> int:
        return max(one for one in divisors(size) if one == 1 or blocks // one >= enough)

    return _first_fused(operation, Execution.SHARED, part)


def _first_fused(
    operation: TensorOperation, execution: Execution, part: Callable[[int], int]
) -> TensorOperation | None:  # fmt: skip
    """`part` tells how many iterations of a loop the primitive dimension takes in."""
    dimensions = operation.dimensions
    for i, loop in enumerate(dimensions):
        for j, inner in enumerate(dimensions):
            if loop.execution is not execution or inner.execution is not Execution.PRIM:
                continue
            together = loop.kind is inner.kind and loop.strides == tuple(inner.size * one for one in inner.strides)
            count = part(loop.size) if together and loop.size > 1 else 1
            if count > 1:
                wide = TensorDimension(inner.kind, inner.execution, inner.size * count, *inner.strides)
                left = TensorDimension(loop.kind, execution, loop.size // count, *(count * n for n in loop.strides))
                rest = () if left.size == 1 else (left,)
                return operation.replace(
                    dimensions=(*dimensions[:i], *rest, *dimensions[i + 1 : j], wide, *dimensions[j + 1 :])
                )
    return None


def absorb(operation: TensorOperation) -> TensorOperation | None:
    """Make the innermost seq loop part of the primitive, if it is contracted and the primitive is a gemm."""
    seq = operation.of_execution(Execution.SEQ)
    if operation.main is not Primitive.GEMM or not operation.is_placed or not seq or seq[-1].kind is not Kind.K:
        return None
    batch = TensorDimension(Kind.K, Execution.PRIM, seq[-1].size, *seq[-1].strides)
    outer = (*operation.of_execution(Execution.SHARED), *seq[:-1])
    return operation.replace(
        main=Primitive.BRGEMM, dimensions=(*outer, batch, *operation.of_execution(Execution.PRIM))
    )  # fmt: skip


def spread(operation: TensorOperation, machine: Machine, thread_target: int) -> TensorOperation | None:
    """Cut primitive dimensions into shared blocks, as many as the cores want and the work allows.

    Among the divisors of the sizes those are taken for which the sum of what is wasted is least: vectors that are not
    full, panels that few rows use, and cores that wait for the last block.
    """
    dimensions = operation.dimensions
    have = math.prod(
        one.size for one in dimensions if one.execution is not Execution.PRIM and one.kind is not Kind.K
    )  # fmt: skip
    contraction = operation.main.family == "ternary"
    most = operation.flops // (_LEAST_WORK if contraction else _LEAST_ELEMENTS)
    most = min(most, _BLOCKS_PER_CORE * machine.cores, thread_target)
    if not operation.is_placed or machine.cores == 1 or have >= most:
        return None
    lanes = machine.lanes(operation.out_dtype.bytes)
    chosen = min(_cuts(operation, most // have), key=lambda cut: _waste(cut, have, machine.cores, lanes, contraction))
    shared = [TensorDimension(d.kind, Execution.SHARED, d.size // n, *(n * s for s in d.strides))
              for d, n in chosen if d.size != n]  # fmt: skip
    if not shared:
        return None
    kept = dict(chosen)
    inner = [
        TensorDimension(one.kind, one.execution, kept.get(one, one.size), *one.strides)
        if one.execution is Execution.PRIM else one
        for one in dimensions
    ]  # fmt: skip
    return operation.replace(dimensions=(*shared, *inner))


Cut = tuple[tuple[TensorDimension, int], ...]


def _cuts(operation: TensorOperation, most: int) -> Iterator[Cut]:
    """Primitive dimensions of the output with the sizes of their blocks, the one for vectors first."""
    written = [one for one in operation.of_execution(Execution.PRIM) if one.kind is not Kind.K]
    written.sort(key=lambda one: (one.stride_out != 1, one.stride_out))
    first, *others = written
    for inner in divisors(first.size):
        if not others:
            if first.size // inner <= most:
                yield ((first, inner),)
            continue
        for other in divisors(others[0].size):
            if (first.size // inner) * (others[0].size // other) <= most:
                yield ((first, inner), (others[0], other))


def _waste(cut: Cut, have: int, cores: int, lanes: int, contraction: bool) -> float:
    (first, inner), *others = cut
    rows = others[0][1] if others else 1
    blocks = have * math.prod(one.size // size for one, size in cut)
    vectors = -(-inner // lanes) * lanes / inner
    if contraction:
        vectors += max(0.0, 4 * lanes / inner - 1) * 0.1 + _PANEL_COPY / rows
    else:  # blocks should be wide: along what is written above all, where lines are only whole within a block
        vectors += 0.3 * (first.size > inner) + 0.1 * (inner < _LONG_RUN * lanes)
        vectors += 0.1 * (bool(others) and others[0][0].size > rows < _LONG_RUN * lanes)
    return vectors * (-(-blocks // cores) * cores / blocks)
