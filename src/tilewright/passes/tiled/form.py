"""Every decision about one tiled kernel, taken before a line of it is written.

The kernel depends on the *structure* of a contraction (kinds, which strides are 1, tile sizes, which tiles can be
partial, vector widths); sizes and strides are launch parameters, so that one kernel serves many shapes.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from tilewright.contraction.form import Contraction, Dimension, Kind, Operand
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.interpreter import interpret
from tilewright.ir.nodes import Literal, Program
from tilewright.ir.scalars import BOOL, I32, I64, ScalarType, compute_type, real_of
from tilewright.passes.tiled.groups import find_groups
from tilewright.passes.tiled.shared_layout import SharedLayout, TileAxis, choose_layout, copy_order, operand_axes
from tilewright.passes.tiled.tiling import Place, Tiling, in_left, in_right, parallel_dimensions


class PartialTiles(Enum):
    """Which tiles may stick out of the arrays: one kernel for each, so that full tiles pay for no guard."""

    NONE = "none"
    CONTRACTED = "contracted"
    OUTER = "outer"
    BOTH = "both"

    @property
    def outer(self) -> bool:
        """Parallel dimensions need guards."""
        return self in (PartialTiles.OUTER, PartialTiles.BOTH)

    @property
    def contracted(self) -> bool:
        """Contracted dimensions need guards."""
        return self in (PartialTiles.CONTRACTED, PartialTiles.BOTH)


@dataclass(frozen=True)
class StagedOperand:
    """One operand, where its tile lies in shared memory, and how many elements one copy step moves."""

    name: str
    operand: Operand
    layout: SharedLayout
    strides: tuple[int, ...]
    vector: int

    @property
    def shared_element(self) -> ScalarType:
        """Element type of the staged tile (f16 is widened on the way in)."""
        return compute_type(real_of(self.operand.element))

    @property
    def copy_steps(self) -> int:
        """Vector elements of the tile."""
        total = 1
        for axis in self.layout.axes:
            total *= axis.extent
        return total // self.vector


@dataclass(frozen=True)
class HeldOperand:
    """One operand whose elements each thread reads itself, as it needs them, into its registers."""

    name: str
    operand: Operand
    strides: tuple[int, ...]


@dataclass(frozen=True)
class TileForm:
    """The decisions.

    Of each parallel dimension `groups` elements that a thread computes are neighbours. Where `stored` is a position,
    those along that dimension are written at once.
    """

    contraction: Contraction
    tiling: Tiling
    partial: PartialTiles
    guarded: tuple[bool, ...]
    padding: tuple[Literal, Literal] | None
    left: StagedOperand | HeldOperand
    right: StagedOperand | HeldOperand
    index_type: ScalarType
    groups: tuple[int, ...]
    stored: int | None

    @property
    def parallel(self) -> tuple[Dimension, ...]:
        """Parallel dimensions."""
        return parallel_dimensions(self.contraction)

    @property
    def contracted(self) -> tuple[Dimension, ...]:
        """Contracted dimensions."""
        return self.contraction.of_kind(Kind.K)

    @property
    def staged(self) -> tuple[StagedOperand, ...]:
        """The operands that are staged in shared memory."""
        return tuple(one for one in (self.left, self.right) if isinstance(one, StagedOperand))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one block."""
        return sum(
            one.layout.size * one.shared_element.bytes * (2 if one.operand.element.is_complex else 1)
            for one in self.staged
        )


def make_form(contraction: Contraction, tiling: Tiling) -> TileForm:
    """The form of a contraction with known sizes for a tiling."""
    parallel, contracted = parallel_dimensions(contraction), contraction.of_kind(Kind.K)
    outer = tuple(constant(d.size) % block != 0 for d, block in zip(parallel, tiling.block, strict=True))
    inner = tuple(constant(d.size) % q != 0 for d, q in zip(contracted, tiling.sequential, strict=True))
    partial = {
        (False, False): PartialTiles.NONE,
        (False, True): PartialTiles.CONTRACTED,
        (True, False): PartialTiles.OUTER,
        (True, True): PartialTiles.BOTH,
    }[any(outer), any(inner)]
    dimensions = (*parallel, *contracted)
    left_strides = tuple(constant(d.stride_left) for d in dimensions)
    right_strides = tuple(constant(d.stride_right) for d in dimensions)
    groups, stored = find_groups(contraction, tiling)
    both_held = tiling.left is Place.REGISTERS and tiling.right is Place.REGISTERS
    return TileForm(
        contraction,
        tiling,
        partial,
        (*outer, *inner),
        None if both_held else find_padding(contraction),
        _placed("left", tiling.left, contraction.left, contraction, tiling, left_strides, groups),
        _placed("right", tiling.right, contraction.right, contraction, tiling, right_strides, groups),
        I32 if largest_index(contraction, tiling) < 2**31 else I64,
        groups,
        stored,
    )


def _placed(
    name: str,
    place: Place,
    operand: Operand,
    contraction: Contraction,
    tiling: Tiling,
    strides: tuple[int, ...],
    groups: tuple[int, ...],
) -> StagedOperand | HeldOperand:
    if place is Place.REGISTERS:
        return HeldOperand(name, operand, strides)
    parallel, contracted = parallel_dimensions(contraction), contraction.of_kind(Kind.K)
    has = in_left if name == "left" else in_right
    axes = operand_axes(
        tuple(zip(parallel, tiling.thread, tiling.register, strict=True)),
        tuple(zip(contracted, tiling.sequential, strict=True)),
        tuple(has(one) for one in parallel),
        strides,
        groups,
    )
    sizes = tuple(constant(d.size) for d in (*parallel, *contracted))
    vector = _vector_width(operand, axes, strides, sizes)
    layout = choose_layout(axes, tiling.thread, compute_type(real_of(operand.element)).bytes, vector)
    return StagedOperand(name, operand, layout, strides, vector)


def axis_place(axis: TileAxis, parallel_count: int) -> int:
    """Position of an axis' dimension in parallel + contracted."""
    return axis.position + (parallel_count if axis.contracted else 0)


def _vector_width(
    operand: Operand, axes: tuple[TileAxis, ...], strides: tuple[int, ...], sizes: tuple[int, ...]
) -> int:
    """Elements of a 16-byte copy step where every row starts aligned and lies in one piece, else 1.

    The unit-stride dimension, every other stride and the offset must be multiples of the width.
    """
    if operand.element.is_complex or operand.element == BOOL or not axes:
        return 1
    parallel_count = len(sizes) - sum(axis.contracted for axis in axes)
    unit = axes[copy_order(axes)[-1]]
    place = axis_place(unit, parallel_count)
    if strides[place] != 1:
        return 1
    in_thread_part = unit.thread * unit.group if not unit.contracted else unit.register
    others = [stride for position, stride in enumerate(strides) if position != place]
    numbers = [*others, sizes[place], in_thread_part, constant(operand.offset)]
    for width in (16 // operand.element.bytes, 8 // operand.element.bytes):
        if width > 1 and all(number % width == 0 for number in numbers):
            return width
    return 1


def largest_index(contraction: Contraction, tiling: Tiling) -> int:
    """The largest number that index arithmetic sees: flat indices (in machine scalars), sizes and strides.

    Tiles sticking out are included; so are strides that nothing is multiplied with, since they are parameters too.
    """
    extents = [
        max(1, -(-constant(d.size) // step)) * step
        for d, step in zip(
            (*parallel_dimensions(contraction), *contraction.of_kind(Kind.K)),
            (*tiling.block, *tiling.sequential),
            strict=True,
        )
    ]
    ordered = (*parallel_dimensions(contraction), *contraction.of_kind(Kind.K))
    positions = {d.name: place for place, d in enumerate(contraction.dimensions)}
    arrays = [
        (contraction.left, [d.stride_left for d in ordered]),
        (contraction.right, [d.stride_right for d in ordered]),
        (contraction.out, [d.stride_out for d in ordered]),
        *((one.operand, [one.strides[positions[d.name]] for d in ordered]) for one in contraction.epilogue_operands),
    ]
    largest = max(extents, default=0)
    for operand, strides in arrays:
        reach = abs(constant(operand.offset)) + sum(
            extent * abs(constant(stride)) for extent, stride in zip(extents, strides, strict=True)
        )
        largest = max(largest, reach * (2 if operand.element.is_complex else 1))
    blocks = 1
    for extent, step in zip(extents, tiling.block, strict=False):
        blocks *= extent // step
    return max(largest, blocks * tiling.threads)


def find_padding(contraction: Contraction) -> tuple[Literal, Literal] | None:
    """Values (a, b) with map(a, b) == neutral, which may stand for elements outside the arrays; None if none is found.

    Both operands are staged along every contracted dimension, so outside it both are padded and nothing more is needed
    than this one equation (weaker than the condition of [S0 4.3.1], which asks for a value that absorbs any other).
    """
    left, right = (parameter.type.element for parameter in contraction.map.parameters)
    target = np.asarray(contraction.neutral.value, dtype=contraction.neutral.scalar.numpy)
    if contraction.scalars:
        return None
    program = Program("map", contraction.map.parameters, contraction.map.body)
    for a in _candidates(left):
        for b in _candidates(right):
            (value,) = interpret(program, [left.numpy.type(a), right.numpy.type(b)])
            if np.array_equal(np.asarray(value, dtype=target.dtype), target) and not np.isnan(target):
                return Literal(a, left), Literal(b, right)
    return None


def _candidates(scalar: ScalarType) -> tuple[bool | int | float, ...]:
    if scalar == BOOL:
        return (False, True)
    if scalar.is_integer:
        limits = np.iinfo(scalar.numpy)
        return (0, int(limits.max), int(limits.min), 1)
    if scalar.is_complex:
        return (0.0, 1.0)
    return (0.0, float("inf"), float("-inf"), 1.0)
