"""Contractions for examples and tests, written down directly."""

from __future__ import annotations

from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.ir.builder import Builder
from tilewright.ir.nodes import Literal, Type
from tilewright.ir.scalars import F32, ScalarType
from tilewright.ir.sizes import size


def matmul(rows: int, columns: int, depth: int, element: ScalarType = F32) -> Contraction:
    """out[i, j] = sum over k of left[i, k] * right[k, j], row-major.

    Example:
        >>> [str(one.size) for one in matmul(2, 3, 4).dimensions]
        ['2', '3', '4']
    """
    builder = Builder()
    multiply, add = (
        builder.function([Type(element)] * 2, lambda a, b, operator=operator: builder.apply(operator, a, b))
        for operator in ("mul", "add")
    )
    one, zero = size(1), size(0)
    return Contraction(
        (
            Dimension("i", Kind.M, size(rows), size(depth), zero, size(columns)),
            Dimension("j", Kind.N, size(columns), zero, one, one),
            Dimension("k", Kind.K, size(depth), one, size(columns), zero),
        ),
        Operand("left", element, zero),
        Operand("right", element, zero),
        Operand("out", element, zero),
        multiply,
        add,
        Literal(0.0, element),
    )
