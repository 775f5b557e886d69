"""Rewrites on the dimension list of a contraction with known sizes: drop, reclassify, fuse, order.

Each is a plain function; `normalise` runs them in the order in which one makes room for the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tilewright.contraction.form import Contraction, Dimension, EpilogueOperand, Kind
from tilewright.ir.cached import remembered
from tilewright.ir.sizes import Size


def constant(value: Size) -> int:
    """The value of a size that is known.

    Raises:
        ValueError: if it still has names (the contraction was not bound).
    """
    if value.constant is None:
        raise ValueError(f"the size {value} is not known yet; bind the contraction first")
    return value.constant


@remembered
def normalise(contraction: Contraction) -> Contraction:
    """reclassify, drop unit dimensions, fuse what is one dimension in memory, order for coalesced writes."""
    return order_dimensions(fuse_dimensions(drop_unit_dimensions(reclassify(contraction))))


def _with_dimensions(contraction: Contraction, kept: Iterable[tuple[Dimension, tuple[Size, ...]]]) -> Contraction:
    """The contraction with other dimensions; beside each dimension, the strides of the epilogue operands along it."""
    pairs = tuple(kept)
    operands = tuple(
        EpilogueOperand(one.operand, tuple(strides[which] for _, strides in pairs))
        for which, one in enumerate(contraction.epilogue_operands)
    )
    return dataclasses.replace(
        contraction, dimensions=tuple(dimension for dimension, _ in pairs), epilogue_operands=operands
    )


def _pairs(contraction: Contraction) -> list[tuple[Dimension, tuple[Size, ...]]]:
    return [
        (dimension, tuple(one.strides[position] for one in contraction.epilogue_operands))
        for position, dimension in enumerate(contraction.dimensions)
    ]


def reclassify(contraction: Contraction) -> Contraction:
    """Kinds by the actual strides: C whose left stride is 0 ⇒ N, C whose right stride is 0 ⇒ M, and so on."""

    def kind(one: Dimension) -> Kind:
        if one.kind is Kind.K:
            return Kind.K
        left, right = constant(one.stride_left) != 0, constant(one.stride_right) != 0
        if left and right:
            return Kind.C
        return Kind.N if right else Kind.M

    return dataclasses.replace(
        contraction, dimensions=tuple(dataclasses.replace(one, kind=kind(one)) for one in contraction.dimensions)
    )


def drop_unit_dimensions(contraction: Contraction) -> Contraction:
    """A dimension of size 1 ⇒ nothing; of contracted dimensions one always stays."""
    kept = [pair for pair in _pairs(contraction) if constant(pair[0].size) != 1]
    if not any(dimension.kind is Kind.K for dimension, _ in kept):
        kept += [pair for pair in _pairs(contraction) if pair[0].kind is Kind.K][-1:]
    return _with_dimensions(contraction, kept)


def _fused(
    outer: tuple[Dimension, tuple[Size, ...]], inner: tuple[Dimension, tuple[Size, ...]]
) -> tuple[Dimension, tuple[Size, ...]] | None:
    (x, x_strides), (y, y_strides) = outer, inner
    strides_x = (x.stride_left, x.stride_right, x.stride_out, *x_strides)
    strides_y = (y.stride_left, y.stride_right, y.stride_out, *y_strides)
    if x.kind is not y.kind or any(a != b * y.size for a, b in zip(strides_x, strides_y, strict=True)):
        return None
    return Dimension(
        f"{x.name}{y.name}", x.kind, x.size * y.size, y.stride_left, y.stride_right, y.stride_out
    ), y_strides


def _with_free_name(
    pair: tuple[Dimension, tuple[Size, ...]], pairs: list[tuple[Dimension, tuple[Size, ...]]]
) -> tuple[Dimension, tuple[Size, ...]]:
    taken = {dimension.name for dimension, _ in pairs}
    name = pair[0].name
    while name in taken:
        name += "_"
    return dataclasses.replace(pair[0], name=name), pair[1]


def fuse_dimensions(contraction: Contraction) -> Contraction:
    """X, Y of one kind with stride(X) == size(Y) * stride(Y) in every array ⇒ XY of size(X) * size(Y) [S1 5.5.4]."""
    pairs = _pairs(contraction)
    changed = True
    while changed:
        changed = False
        for i, outer in enumerate(pairs):
            for j, inner in enumerate(pairs):
                fused = _fused(outer, inner) if i != j else None
                if fused is not None:
                    pairs[j] = _with_free_name(fused, pairs)
                    del pairs[i]
                    changed = True
                    break
            if changed:
                break
    return _with_dimensions(contraction, pairs)


def order_dimensions(contraction: Contraction) -> Contraction:
    """Output dimensions by falling stride in the output, then contracted ones by falling stride in the operands."""

    def place(pair: tuple[Dimension, tuple[Size, ...]]) -> tuple[int, int]:
        one = pair[0]
        if one.kind is Kind.K:
            strides = [abs(constant(s)) for s in (one.stride_left, one.stride_right) if constant(s)]
            return (1, -min(strides, default=0))
        return (0, -abs(constant(one.stride_out)))

    return _with_dimensions(contraction, sorted(_pairs(contraction), key=place))
