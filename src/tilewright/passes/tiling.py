"""Tile sizes of a contraction and what a machine says to them.

Every parallel dimension d is cut into blocks of T_d * R_d: T_d threads, each of which computes R_d elements of it in
registers. Every contracted dimension is cut into pieces of Q that are staged in shared memory one after another
[S0 3.4]. Thread t computes the elements t, t + T, ..., t + (R-1)*T of its block, so that neighbouring threads write
neighbouring elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import ScalarType, compute_type, real_of
from tilewright.machine.model import Machine


class IllegalTiling(ValueError):
    """Tile sizes that a machine cannot run; the message names the limit that they break."""


@dataclass(frozen=True)
class Tiling:
    """T and R for each parallel dimension, Q for each contracted one, in the contraction's order."""

    thread: tuple[int, ...]
    register: tuple[int, ...]
    sequential: tuple[int, ...]

    @property
    def block(self) -> tuple[int, ...]:
        """T * R: what one block covers of each parallel dimension."""
        return tuple(t * r for t, r in zip(self.thread, self.register, strict=True))

    @property
    def threads(self) -> int:
        """Threads per block."""
        return math.prod(self.thread)


def parallel_dimensions(contraction: Contraction) -> tuple[Dimension, ...]:
    """The dimensions of the output, in the contraction's order."""
    return tuple(one for one in contraction.dimensions if one.kind is not Kind.K)


def in_left(dimension: Dimension) -> bool:
    """True if the left operand's tile extends along the dimension."""
    return dimension.kind in (Kind.M, Kind.C, Kind.K)


def in_right(dimension: Dimension) -> bool:
    """True if the right operand's tile extends along the dimension."""
    return dimension.kind in (Kind.N, Kind.C, Kind.K)


def components(scalar: ScalarType) -> int:
    """Machine scalars that one value needs: 2 for complex numbers."""
    return 2 if scalar.is_complex else 1


def value_bytes(scalar: ScalarType) -> int:
    """Bytes of one value as it is computed on (f16 is carried as f32)."""
    return components(scalar) * compute_type(real_of(scalar)).bytes


@dataclass(frozen=True)
class TileResources:
    """What a tiling takes of a core."""

    threads: int
    shared_bytes: int
    registers_per_thread: int


def operand_registers(contraction: Contraction, tiling: Tiling) -> tuple[int, int]:
    """Elements of the left and the right operand that one thread holds at a time."""
    pairs = list(zip(parallel_dimensions(contraction), tiling.register, strict=True))
    return (
        math.prod(r for one, r in pairs if in_left(one)),
        math.prod(r for one, r in pairs if in_right(one)),
    )


def tile_elements(contraction: Contraction, tiling: Tiling) -> tuple[int, int]:
    """Elements of the staged tiles of the left and the right operand, without padding."""
    pairs = list(zip(parallel_dimensions(contraction), tiling.block, strict=True))
    depth = math.prod(tiling.sequential)
    return (
        depth * math.prod(extent for one, extent in pairs if in_left(one)),
        depth * math.prod(extent for one, extent in pairs if in_right(one)),
    )


def estimate_resources(contraction: Contraction, tiling: Tiling) -> TileResources:
    """Threads, shared memory (with one padding element per row) and registers (accumulators, operands, addresses)."""
    accumulator = value_bytes(contraction.combine.parameters[0].type.element)
    left, right = (value_bytes(one.element) for one in (contraction.left, contraction.right))
    left_elements, right_elements = tile_elements(contraction, tiling)
    depth = math.prod(tiling.sequential)
    left_registers, right_registers = operand_registers(contraction, tiling)
    words = math.prod(tiling.register) * accumulator + left_registers * left + right_registers * right
    addresses = 24 + 2 * len(contraction.dimensions)
    return TileResources(
        tiling.threads, (left_elements + depth) * left + (right_elements + depth) * right, words // 4 + addresses
    )


def check_tiling(contraction: Contraction, tiling: Tiling, machine: Machine) -> TileResources:
    """The resources of a tiling.

    Raises:
        IllegalTiling: if a size is not positive or a limit of the machine is broken; says which and by how much.
    """
    names = [one.name for one in parallel_dimensions(contraction)]
    contracted = contraction.of_kind(Kind.K)
    if len(tiling.thread) != len(names) or len(tiling.register) != len(names):
        raise IllegalTiling(f"{len(names)} parallel dimensions ({', '.join(names)}) need as many T and R sizes")
    if len(tiling.sequential) != len(contracted):
        raise IllegalTiling(f"{len(contracted)} contracted dimensions need as many Q sizes")
    for label, sizes in (("T", tiling.thread), ("R", tiling.register), ("Q", tiling.sequential)):
        if any(one < 1 for one in sizes):
            raise IllegalTiling(f"tile sizes {label} = {sizes} must all be at least 1")
    resources = estimate_resources(contraction, tiling)
    if resources.threads > machine.max_threads_per_block:
        raise IllegalTiling(
            f"T = {tiling.thread} makes {resources.threads} threads per block;"
            f" {machine.name} allows {machine.max_threads_per_block}"
        )
    if resources.shared_bytes > machine.shared_bytes_per_block:
        raise IllegalTiling(
            f"T*R = {tiling.block} and Q = {tiling.sequential} need {resources.shared_bytes} bytes of shared memory"
            f" per block; {machine.name} has {machine.shared_bytes_per_block}"
        )
    accumulators = math.prod(tiling.register)
    if accumulators > 1024:
        raise IllegalTiling(f"R = {tiling.register} makes {accumulators} accumulators per thread; at most 1024")
    return resources


def blocks_along(dimension: Dimension, block: int) -> int:
    """Blocks that cover a dimension."""
    return -(-constant(dimension.size) // block)
