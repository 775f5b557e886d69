"""The decisions for gemm and brgemm: which dimension is vectorised, and how large the register tile is.

The *vector side* is the primitive dimension M or N along which a vector of results is computed; the elements of the
other side, the *scalar side*, are broadcast. Best is the dimension that has unit stride in its input and the output:
then vectors are read and written where they lie. Else the input is gathered into a panel first, or results are
scattered from a small tile.

Vectors that lie ready in the input are copied into a panel all the same, if many rows of results use each of them and
the steps along K lead far: then every step would be a cache line of another page, in few sets of the caches.

A size that is no multiple of the vector's length ends with a vector that overlaps the one before it. Both are in one
register tile, whose elements are all read before any is written, so that computing some twice does no harm.
"""

from __future__ import annotations

import math

from tilewright.contraction.kinds import Kind
from tilewright.contraction.tensor_operation import Execution, TensorDimension, TensorOperation
from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine

PANEL_DEPTH = 512  # contracted elements that a panel holds at the least
_PANEL_SHARE = 2  # a panel takes up to this part of the L2 cache: deep ones touch the output seldom
_LEAST_TILES = 4  # of rows that must use a panel before the copy pays
_CACHE_SHARE = 4  # strided vectors of one tile may span this part of the L2 cache
_UNKNOWN_CACHE = 1 << 19  # bytes of L2 where the machine does not tell
_TILE_START = 24  # cycles around the contracted loop of a tile, roughly
_ADDRESS = 0.05  # cycles for each row whose address finds no register


@dataclass(frozen=True)
class Chunk:
    """`repeat` tiles side by side, each of `size` (vectors or rows), beginning with number `first`.

    `overlaps`: the last vector overlaps the one before it (then `repeat` is 1).
    """

    first: int
    size: int
    repeat: int
    overlaps: bool = False


@dataclass(frozen=True)
class GemmForm:
    """The decisions. Arrays are named; `lanes` counts elements.

    `direct_input`, `direct_output`: vectors are consecutive elements there.
    `panel`: vectors are first copied into a panel of up to `panel_depth` contracted elements; `why_panel` tells why.
    """

    vector: TensorDimension
    vector_array: str
    scalar: TensorDimension
    scalar_array: str
    contracted: TensorDimension
    batch: TensorDimension | None
    lanes: int
    direct_input: bool
    direct_output: bool
    vector_chunks: tuple[Chunk, ...]
    row_chunks: tuple[Chunk, ...]
    why_panel: str = ""
    panel_depth: int = PANEL_DEPTH

    @property
    def panel(self) -> bool:
        """Whether vectors are copied into a panel."""
        return bool(self.why_panel)

    @property
    def largest_tile(self) -> tuple[int, int]:
        """Vectors and rows of the largest register tile."""
        return max(one.size for one in self.vector_chunks), max(one.size for one in self.row_chunks)


def gemm_form(operation: TensorOperation, machine: Machine, accumulator_bytes: int) -> GemmForm:
    """Choose the form of an operation's primitive.

    Args:
        operation: a placed gemm or brgemm.
        machine: its vectors.
        accumulator_bytes: size of one real accumulator.
    """
    width = 2 if operation.dtype.is_complex else 1
    lanes = max(1, machine.lanes(accumulator_bytes) // width)
    primitive = operation.of_execution(Execution.PRIM)
    m, n = (next(one for one in primitive if one.kind is kind) for kind in (Kind.M, Kind.N))
    *batch, contracted = joined([one for one in primitive if one.kind is Kind.K])
    sides = {"in0": (m, n), "in1": (n, m)}
    quality = {
        array: _quality(side, array, contracted) * min(side.size, lanes) / lanes for array, (side, _) in sides.items()
    }
    array = "in0" if quality["in0"] >= quality["in1"] else "in1"
    vector, scalar = sides[array]
    while lanes > vector.size:
        lanes //= 2
    pieces = -(-vector.size // lanes)
    overlaps = vector.size % lanes != 0
    depth = contracted.size * math.prod(one.size for one in batch)
    registers = max(8, machine.vector_registers)
    vectors, rows = _tile(pieces, scalar.size, overlaps, registers, width, depth, machine.pace.hidden_load)
    why = _why_panel((vector, array, scalar.size), contracted, (lanes * vectors, rows), machine, operation.dtype.bytes)
    return GemmForm(
        vector=vector,
        vector_array=array,
        scalar=scalar,
        scalar_array="in1" if array == "in0" else "in0",
        contracted=contracted,
        batch=batch[0] if batch else None,
        lanes=lanes,
        direct_input=_unit(vector, array),
        direct_output=_unit(vector, "out"),
        vector_chunks=chunks(pieces, vectors, overlaps),
        row_chunks=chunks(scalar.size, rows),
        why_panel=why,
        panel_depth=max(
            PANEL_DEPTH, _l2_bytes(machine) // _PANEL_SHARE // (vectors * lanes * width * accumulator_bytes)
        ),
    )


def joined(contracted: list[TensorDimension]) -> list[TensorDimension]:
    """Two contracted dimensions that are one in memory as one."""
    if len(contracted) == 2:
        outer, inner = contracted
        if outer.strides == tuple(inner.size * stride for stride in inner.strides):
            return [TensorDimension(inner.kind, inner.execution, outer.size * inner.size, *inner.strides)]
    return contracted


def _why_panel(
    vectors: tuple[TensorDimension, str, int], contracted: TensorDimension, tile: tuple[int, int], machine: Machine,
    element_bytes: int,
) -> str:  # fmt: skip
    """Why vectors are copied into a panel; empty if they are not.

    Args:
        vectors: the dimension along which they lie, in which array, and how many rows of results use them.
        contracted: the inner contracted dimension.
        tile: elements of the vectors and rows of the register tile.
        machine: its caches.
        element_bytes: of the input.
    """
    side, array, rows = vectors
    if not _unit(side, array):
        return f"{side.kind.value} has stride {stride_in(side, array)} in {array}"
    stride = stride_in(contracted, array)
    span = min(contracted.size, PANEL_DEPTH) * stride * element_bytes
    cache = _l2_bytes(machine) // _CACHE_SHARE
    if stride < 2 * tile[0] or rows < _LEAST_TILES * tile[1] or span <= cache:
        return ""
    return f"{contracted.kind.value} has stride {stride} in {array}: vectors of one tile lie over {span} bytes"


def _l2_bytes(machine: Machine) -> int:
    return machine.l2_bytes or _UNKNOWN_CACHE


def stride_in(dimension: TensorDimension, array: str) -> int:
    """The stride in an array by name."""
    return dict(zip(("in0", "in1", "out"), dimension.strides, strict=True))[array]


def _unit(dimension: TensorDimension, array: str) -> bool:
    return dimension.size == 1 or stride_in(dimension, array) == 1


def _quality(side: TensorDimension, array: str, contracted: TensorDimension) -> float:
    """How well vectors along a side can be read and written; gathering squares along K is cheaper than elements."""
    match _unit(side, array), _unit(side, "out"):
        case True, True:
            return 4.0
        case False, True:
            return 3.0 if _unit(contracted, array) else 1.5
        case True, False:
            return 2.0
    return 1.0


def chunks(count: int, limit: int, overlaps: bool = False) -> tuple[Chunk, ...]:
    """`count` vectors or rows shared out evenly to tiles of at most `limit`, larger tiles last.

    Example:
        >>> chunks(11, 6), chunks(4, 2, overlaps=True)
        ((Chunk(first=0, size=5, repeat=1, overlaps=False), Chunk(first=5, size=6, repeat=1, overlaps=False)), \
(Chunk(first=0, size=2, repeat=1, overlaps=False), Chunk(first=2, size=2, repeat=1, overlaps=True)))
    """
    tiles = -(-count // limit)
    size, larger = divmod(count, tiles)
    groups = [(size, tiles - larger), (size + 1, larger)]
    found, first = [], 0
    for each, repeat in groups:
        ends = overlaps and first + each * repeat == count and repeat > 0
        for times, last in ((repeat - ends, False), (int(ends), True)):
            if times:
                found.append(Chunk(first, each, times, last))
                first += each * times
    return tuple(found)


def _tile(
    pieces: int, rows: int, overlaps: bool, registers: int, width: int, depth: int, hidden_load: float
) -> tuple[int, int]:
    """Vectors and rows of the register tile that need the fewest cycles on a core with two multiply-adds and loads.

    Registers: `width` accumulators per vector and row, the vectors, and the broadcast elements.
    """
    best: tuple[float, int, int] | None = None
    for vectors in range(1, min(pieces, registers) + 1):
        for tile_rows in range(1, min(rows, registers) + 1):
            if width * vectors * tile_rows + vectors + width > registers:
                break
            parts = chunks(pieces, vectors, overlaps)
            if any(one.overlaps and one.size == 1 and pieces > 1 for one in parts):
                continue
            cycles = sum(
                v.repeat * r.repeat * _cycles(v.size, r.size, width, depth, hidden_load)
                for v in parts
                for r in chunks(rows, tile_rows)
            )
            if best is None or cycles < best[0] - 1e-9:
                best = (cycles, vectors, tile_rows)
    assert best is not None  # one vector and one row always fit, and two vectors where the last one overlaps
    return best[1], best[2]


def _cycles(vectors: int, rows: int, width: int, depth: int, hidden_load: float) -> float:
    """Of a register tile. Where loads that multiply-adds hide take time all the same, tiles of few loads are better
    than those of few rows, whose addresses then take none: products of 32 x 32 x 256 in f32 with 11 rows are 1.05 times
    as fast as with 6 on a Granite Rapids, of 16 x 64 x 128 in f64 with 13 rows 1.07 times. A load counts in cycles
    here, in half ones in direct forms.
    """
    latency, loads = 4.0, vectors + width * rows
    each = max(width * vectors * rows / 2, latency, loads / 2)
    each += hidden_load * loads if hidden_load else _ADDRESS * max(0, rows - 6)
    return each * depth + _TILE_START + vectors * rows


def panel_pieces(batches: int, size: int, depth: int) -> tuple[int, int]:
    """Batches and contracted elements of one panel: even pieces of at most `depth` elements together.

    Example:
        >>> panel_pieces(1, 1600, 512), panel_pieces(40, 40, 512), panel_pieces(8, 32, 512)
        ((1, 400), (10, 40), (8, 32))
    """
    if size >= depth:
        return 1, -(-size // -(-size // depth))
    most = max(1, depth // size)
    return -(-batches // -(-batches // most)), size
