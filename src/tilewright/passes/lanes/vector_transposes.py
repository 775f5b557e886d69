"""Squares of vectors turned in registers."""

from __future__ import annotations

from tilewright.kernel.ir import Expression, Shuffle, VectorType
from tilewright.passes.items.scalar_values import KernelBuilder


def transposed(emit: KernelBuilder, rows: list[Expression], unit: int = 1) -> list[Expression]:
    """The columns of a square of vectors: n rows of n lanes (a power of two), by log2(n) rounds of shuffles.

    Round by round, blocks of 1, 2, 4, ... lanes off the diagonal change places with their mirror images. In rows of
    more lanes each n of them are a square of their own, with its columns in their place. `unit` lanes stay together.
    """
    count, lanes, distance = len(rows), lanes_of(rows[0]), 1
    while distance < count:
        keep_low = tuple(
            lane if not lane // unit & distance else lanes + lane - distance * unit for lane in range(lanes)
        )  # lanes of the first row, with the second's moved up
        keep_high = tuple(
            lane + distance * unit if not lane // unit & distance else lanes + lane for lane in range(lanes)
        )
        moved = list(rows)
        for row in range(count):
            if not row & distance:
                one, two = rows[row], rows[row | distance]
                moved[row] = emit.let(_shuffle(one, two, keep_low), "low")
                moved[row | distance] = emit.let(_shuffle(one, two, keep_high), "high")
        rows, distance = moved, distance * 2
    return rows


def lanes_of(value: Expression) -> int:
    """Lanes of a vector."""
    assert isinstance(value.type, VectorType)
    return value.type.lanes


def _shuffle(one: Expression, two: Expression, lanes: tuple[int, ...]) -> Expression:
    assert isinstance(one.type, VectorType)
    return Shuffle(one, two, lanes, one.type)
