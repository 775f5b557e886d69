"""Statements on tiles: registers of 16 rows of 64 bytes each; in kernels for CPUs only.

A tile holds 16 x 16 sums of 32 bits, or operands that are narrower: the first factor row by row, 64 bytes of the sum
in each; the second one with as many steps of the sum in a row as fit into 32 bits, side by side in each of 16 lanes:

    total[i][j] += first[i][k][e] * second[k][j][e]     for all k < 16, and elements e of a lane

Tiles are numbered from 0 to 7. Their contents are lost where a call of the kernel ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType

if TYPE_CHECKING:
    from tilewright.kernel.ir import Buffer, Expression

ROWS = 16
LANES = 16
"""Of a tile; a lane has 32 bits."""
COUNT = 8


@dataclass(frozen=True)
class TileZero:
    """A tile of zeros."""

    tile: int


@dataclass(frozen=True)
class TileLoad:
    """A tile from memory: its row i begins with `buffer[index + i * pitch]`, all in elements. What is read `once`
    before much else is need not stay in the first cache.
    """

    tile: int
    buffer: Buffer
    index: Expression
    pitch: Expression
    once: bool = False


@dataclass(frozen=True)
class TileStore:
    """A tile to memory, likewise."""

    tile: int
    buffer: Buffer
    index: Expression
    pitch: Expression


@dataclass(frozen=True)
class TileMultiply:
    """The products of tiles `first` and `second`, of elements of these types, are added to the tile `total`. Integers
    wrap around; of bf16, numbers below 2^-126 count as 0, be they elements, products or sums.
    """

    total: int
    first: int
    second: int
    elements: tuple[ScalarType, ScalarType]
