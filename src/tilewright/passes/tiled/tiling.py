"""Tile sizes of a contraction and what a machine says to them.

Every parallel dimension d is cut into blocks of T_d * R_d: T_d threads, each of which computes R_d elements of it in
registers. Every contracted dimension is cut into pieces of Q that are staged in shared memory one after another
[S0 3.4]. Thread t computes the elements t, t + T, ..., t + (R-1)*T of its block, so that neighbouring threads write
neighbouring elements.

Where an operand's elements wait for their uses follows from the dimensions with which it does not change. If the block
has threads along one of these, they share its elements, which are staged in shared memory. If all its uses are those of
one thread, along its register part, the thread may as well hold the element in a register [S3, Parboil].
"""

from __future__ import annotations

import math
from enum import Enum

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType, compute_type, real_of
from tilewright.machine.model import Machine


class IllegalTiling(ValueError):
    """Tile sizes that a machine cannot run; the message names the limit that they break.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> try:
        ...     tw.einsum("ij,jk->ik", np.eye(4), np.eye(4), tiles={"i": (16, 4)}, target="cpu")
        ... except IllegalTiling as error:
        ...     print(error)
        einsum 'ij,jk->ik': tiles are given for i, but on a CPU the register tile is not chosen by hand
    """


class Place(Enum):
    """Where the elements of an operand are while a piece of the sum is computed."""

    SHARED = "shared memory"
    REGISTERS = "registers"


@dataclass(frozen=True)
class Tiling:
    """T and R for each parallel dimension, Q for each contracted one, in the contraction's order.

    `left` and `right` say where the operands' elements wait: staged by the block in shared memory, or read by each
    thread from main memory into its registers.
    """

    thread: tuple[int, ...]
    register: tuple[int, ...]
    sequential: tuple[int, ...]
    left: Place = Place.SHARED
    right: Place = Place.SHARED

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


def value_bytes(scalar: ScalarType) -> int:
    """Bytes of one value as it is computed on (f16 is carried as f32)."""
    return (2 if scalar.is_complex else 1) * compute_type(real_of(scalar)).bytes


# --- a contraction as plain integers, since a search costs thousands of tilings ---------------------------------------


@dataclass(frozen=True)
class ArrayFacts:
    """An array: bytes of an element in memory and as it is computed on, and which dimensions it has.

    `strides` (absolute values) and `present` follow the parallel dimensions, then the contracted ones.
    """

    memory_bytes: int
    value_bytes: int
    strides: tuple[int, ...]
    present: tuple[bool, ...]
    by_stride: tuple[int, ...]

    def covered(self, extents: tuple[int, ...]) -> int:
        """Elements of a tile with these extents."""
        return math.prod([extent for extent, has in zip(extents, self.present, strict=True) if has])

    def reuse(self, extents: tuple[int, ...]) -> int:
        """How often an element is used along parallel dimensions with these extents."""
        return math.prod([extent for extent, has in zip(extents, self.present, strict=False) if not has])

    def transactions(self, extents: tuple[int, ...], unit: int) -> float:
        """Bytes moved for a tile when every contiguous run costs whole transactions of `unit` bytes."""
        run, elements = 1, 1
        for position in self.by_stride:
            extent = extents[position]
            if self.strides[position] == run:
                run *= extent
            elements *= extent
        return elements / max(run, 1) * math.ceil(run * self.memory_bytes / unit) * unit


@dataclass(frozen=True)
class TileFacts:
    """A contraction with known sizes."""

    sizes: tuple[int, ...]
    contracted: tuple[int, ...]
    accumulator_bytes: int
    left: ArrayFacts
    right: ArrayFacts
    out: ArrayFacts

    def blocks(self, tiling: Tiling) -> int:
        """Blocks of the launch."""
        return math.prod([-(-size // block) for size, block in zip(self.sizes, tiling.block, strict=True)])

    def pieces(self, tiling: Tiling) -> int:
        """Rounds of staging."""
        return math.prod([-(-size // q) for size, q in zip(self.contracted, tiling.sequential, strict=True)])

    def inside(self, tiling: Tiling) -> tuple[int, ...]:
        """Extents of a full tile that lie in the arrays."""
        extents = (*tiling.block, *tiling.sequential)
        return tuple(map(min, extents, (*self.sizes, *self.contracted)))


def facts_of(contraction: Contraction) -> TileFacts:
    """The integers of a contraction with known sizes."""
    parallel, contracted = parallel_dimensions(contraction), contraction.of_kind(Kind.K)
    dimensions = (*parallel, *contracted)

    def array(element: ScalarType, name: str, present: tuple[bool, ...]) -> ArrayFacts:
        strides = tuple(abs(constant(getattr(one, name))) for one in dimensions)
        order = sorted((p for p, has in enumerate(present) if has), key=lambda p: strides[p])
        return ArrayFacts(element.bytes, value_bytes(element), strides, present, tuple(order))

    return TileFacts(
        tuple(constant(one.size) for one in parallel),
        tuple(constant(one.size) for one in contracted),
        value_bytes(contraction.accumulator),
        array(contraction.left.element, "stride_left", tuple(in_left(one) for one in dimensions)),
        array(contraction.right.element, "stride_right", tuple(in_right(one) for one in dimensions)),
        array(contraction.out.element, "stride_out", tuple(one.kind is not Kind.K for one in dimensions)),
    )


# --- what a machine says ----------------------------------------------------------------------------------------------

STEPS_AHEAD = 8
"""Steps of the sum whose elements a thread that holds them in registers has asked for at once."""

UNROLLED_COPY_STEPS = 16
"""Copies of a tile in at most so many steps per thread are written out, their addresses held in registers."""


@dataclass(frozen=True)
class TileResources:
    """What a tiling takes of a core."""

    threads: int
    shared_bytes: int
    registers_per_thread: int


def tile_resources(facts: TileFacts, tiling: Tiling) -> TileResources:
    """Threads, shared memory (with one padding element per row) and registers (accumulators, operands, addresses).

    Elements that a thread reads from main memory itself are asked for several steps ahead.
    """
    threads, depth, once = tiling.threads, math.prod(tiling.sequential), (1,) * len(tiling.sequential)
    words, shared, addresses = math.prod(tiling.register) * facts.accumulator_bytes, 0, 24
    for array, place in ((facts.left, tiling.left), (facts.right, tiling.right)):
        elements = array.covered((*tiling.block, *tiling.sequential))
        held = array.covered((*tiling.register, *once))
        if place is Place.REGISTERS:
            words += held * array.value_bytes * min(depth, STEPS_AHEAD)
            addresses += held
            continue
        shared += (elements + depth) * array.value_bytes
        words += held * array.value_bytes
        steps = -(-elements // threads)
        addresses += min(steps, UNROLLED_COPY_STEPS) // 2
    addresses += 2 * (len(facts.sizes) + len(facts.contracted))
    return TileResources(threads, shared, words // 4 + addresses)


def estimate_resources(contraction: Contraction, tiling: Tiling) -> TileResources:
    """What a tiling of a contraction takes of a core."""
    return tile_resources(facts_of(contraction), tiling)


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
    broken = broken_limit(tiling, resources, machine)
    if broken is not None:
        raise IllegalTiling(broken)
    return resources


def broken_limit(tiling: Tiling, resources: TileResources, machine: Machine) -> str | None:
    """The limit of a machine that a tiling breaks, or None."""
    if resources.threads > machine.max_threads_per_block:
        return (
            f"T = {tiling.thread} makes {resources.threads} threads per block;"
            f" {machine.name} allows {machine.max_threads_per_block}"
        )
    if resources.shared_bytes > machine.shared_bytes_per_block:
        return (
            f"T*R = {tiling.block} and Q = {tiling.sequential} need {resources.shared_bytes} bytes of shared memory"
            f" per block; {machine.name} has {machine.shared_bytes_per_block}"
        )
    accumulators = math.prod(tiling.register)
    if accumulators > 1024:
        return f"R = {tiling.register} makes {accumulators} accumulators per thread; at most 1024"
    return None


def blocks_along(dimension: Dimension, block: int) -> int:
    """Blocks that cover a dimension."""
    return -(-constant(dimension.size) // block)
