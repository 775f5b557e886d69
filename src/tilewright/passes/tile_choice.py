"""Default tile sizes from a cost model, so that no user must ever give one.

The modelled time of a tiling is the largest of three: bytes that the blocks read and write (in whole transactions,
seen by L2 and by main memory), multiply-adds and the shared-memory loads that feed them, all stretched by idle cores in
the last wave and by too few warps to hide latencies. Only ratios between tilings matter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.machine.occupancy import occupancy
from tilewright.passes.tiling import (
    IllegalTiling,
    Tiling,
    blocks_along,
    check_tiling,
    estimate_resources,
    operand_registers,
    parallel_dimensions,
    value_bytes,
)

# Used where a machine does not state its speeds; only their ratio matters (a current GPU's).
_DEFAULT_BANDWIDTH, _DEFAULT_FLOPS, _L2_OVER_DRAM = 1.5e12, 2e13, 3.0
_WARPS_TO_HIDE_LATENCY = 12
_THREAD_SHAPES = tuple((2**m, 2**n) for m in range(7) for n in range(7) if 5 <= m + n <= 8)
_REGISTER_SHAPES = ((1, 1), (2, 2), (4, 2), (2, 4), (4, 4), (8, 4), (4, 8), (8, 8))
_DEPTHS = (8, 16, 32)


@dataclass(frozen=True)
class TileCost:
    """What the model says of a tiling; times in seconds, traffic in bytes."""

    seconds: float
    memory_seconds: float
    compute_seconds: float
    traffic: float
    occupancy: float
    blocks: int
    waves: float


def choose_tiling(
    contraction: Contraction, machine: Machine, tiles: Mapping[str, tuple[int, int] | int] | None = None
) -> Tiling:
    """The tiling with the smallest modelled time, among those that the machine can run.

    Args:
        contraction: normalised, with known sizes.
        machine: whose limits and speeds count.
        tiles: sizes fixed by the user: (T, R) by parallel dimension, Q by contracted dimension.

    Raises:
        IllegalTiling: if the fixed sizes break a limit or name an unknown dimension.
    """
    if tiles:
        return fixed_tiling(contraction, machine, tiles)
    best: tuple[float, Tiling] | None = None
    for tiling in candidates(contraction):
        try:
            check_tiling(contraction, tiling, machine)
        except IllegalTiling:
            continue
        seconds = tile_cost(contraction, tiling, machine).seconds
        if best is None or seconds < best[0]:
            best = (seconds, tiling)
    if best is None:
        raise IllegalTiling(f"no tiling of this contraction fits {machine.name}")
    return best[1]


def fixed_tiling(contraction: Contraction, machine: Machine, tiles: Mapping[str, tuple[int, int] | int]) -> Tiling:
    """The tiling that the user asks for; dimensions that are not named get T = R = 1, and Q = min(16, size)."""
    names = [one.name for one in contraction.dimensions]
    for name in tiles:
        if name not in names:
            raise IllegalTiling(f"tiles names dimension {name!r}; the contraction has {', '.join(names)}")
    thread, register, sequential = [], [], []
    for one in contraction.dimensions:
        size = tiles.get(one.name)
        if one.kind is Kind.K:
            if isinstance(size, tuple):
                raise IllegalTiling(f"dimension {one.name} is contracted and has one tile size Q, not {size}")
            sequential.append(size if size is not None else max(1, min(16, constant(one.size))))
        else:
            if isinstance(size, int):
                raise IllegalTiling(f"dimension {one.name} is parallel and has two tile sizes (T, R), not {size}")
            t, r = size if size is not None else (1, 1)
            thread.append(t)
            register.append(r)
    tiling = Tiling(tuple(thread), tuple(register), tuple(sequential))
    check_tiling(contraction, tiling, machine)
    return tiling


# --- candidates -------------------------------------------------------------------------------------------------------


def candidates(contraction: Contraction) -> Iterator[Tiling]:
    """Tilings worth costing: powers of two, spread over the dimensions of each operand from the innermost outwards."""
    parallel = parallel_dimensions(contraction)
    left = [p for p, one in enumerate(parallel) if one.kind is Kind.M]
    right = [p for p, one in enumerate(parallel) if one.kind is Kind.N]
    shared = [p for p, one in enumerate(parallel) if one.kind is Kind.C]
    depths = {_spread_depth(contraction, depth) for depth in _DEPTHS}
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for (t_left, t_right), (r_left, r_right) in itertools.product(_THREAD_SHAPES, _REGISTER_SHAPES):
        for one in _spreads(parallel, left, t_left, r_left, "stride_left"):
            for other in _spreads(parallel, right, t_right, r_right, "stride_right"):
                sizes = {**one, **other}
                if not (left and right):
                    missing = t_right if not right else t_left
                    sizes.update(_spread(parallel, shared[::-1], missing, 1))
                key = (
                    tuple(sizes.get(p, (1, 1))[0] for p in range(len(parallel))),
                    tuple(sizes.get(p, (1, 1))[1] for p in range(len(parallel))),
                )
                if key not in seen:
                    seen.add(key)
                    yield from (Tiling(*key, depth) for depth in depths)


def _spreads(
    parallel: tuple[Dimension, ...], members: list[int], threads: int, registers: int, stride: str
) -> list[dict[int, tuple[int, int]]]:
    """Ways of giving a group's T and R to its dimensions: innermost in the output first, or in the operand first."""
    by_output = members[::-1]
    by_operand = sorted(members, key=lambda p: abs(constant(getattr(parallel[p], stride))))
    found = [_spread(parallel, order, threads, registers) for order in (by_output, by_operand)]
    return found[:1] if found[0] == found[1] else found


def _spread(
    parallel: tuple[Dimension, ...], order: list[int], threads: int, registers: int
) -> dict[int, tuple[int, int]]:
    sizes: dict[int, tuple[int, int]] = {}
    for position in order:
        extent = constant(parallel[position].size)
        t = min(threads, _power_of_two_at_least(extent))
        r = min(registers, _power_of_two_at_least(-(-extent // t)))
        sizes[position] = (t, r)
        threads //= t
        registers //= r
    return sizes


def _spread_depth(contraction: Contraction, depth: int) -> tuple[int, ...]:
    sizes: list[int] = []
    for one in reversed(contraction.of_kind(Kind.K)):
        q = min(depth, _power_of_two_at_least(constant(one.size)))
        sizes.append(q)
        depth = max(1, depth // q)
    return tuple(reversed(sizes))


def _power_of_two_at_least(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


# --- cost -------------------------------------------------------------------------------------------------------------


def tile_cost(contraction: Contraction, tiling: Tiling, machine: Machine) -> TileCost:
    """The modelled time of a tiling."""
    parallel, contracted = parallel_dimensions(contraction), contraction.of_kind(Kind.K)
    blocks = math.prod(blocks_along(d, b) for d, b in zip(parallel, tiling.block, strict=True))
    pieces = math.prod(blocks_along(d, q) for d, q in zip(contracted, tiling.sequential, strict=True))
    resources = estimate_resources(contraction, tiling)
    resident = occupancy(machine, resources.threads, resources.registers_per_thread, resources.shared_bytes)
    slots = max(1, machine.cores * max(1, resident.blocks_per_core))
    waves = blocks / slots
    stretch = math.ceil(waves) / waves if waves else 1.0

    staged = blocks * pieces * _staged_bytes(contraction, tiling, machine)
    written = blocks * _run_bytes(contraction, tiling, machine, "stride_out", lambda one: one.kind is not Kind.K)
    bandwidth = machine.dram_bandwidth or _DEFAULT_BANDWIDTH
    once, through_l2 = _compulsory_bytes(contraction) + written, (staged + written) / _L2_OVER_DRAM
    memory = max(once, through_l2) / bandwidth

    accumulator = value_bytes(contraction.combine.parameters[0].type.element)
    peak = (machine.peak_flops_f32 if accumulator <= 4 else machine.peak_flops_f64) or _DEFAULT_FLOPS
    left, right = operand_registers(contraction, tiling)
    operations = blocks * resources.threads * pieces * math.prod(tiling.sequential)
    multiply_adds = math.prod(tiling.register)
    loads = left * value_bytes(contraction.left.element) + right * value_bytes(contraction.right.element)
    cycles = max(multiply_adds / 4, loads / 4) + 2  # four warps of multiply-adds per cycle beside one of shared loads
    hidden = min(1.0, resident.blocks_per_core * resources.threads / 32 / _WARPS_TO_HIDE_LATENCY)
    compute = operations * cycles * 4 * 2 / peak / max(hidden, 0.05)
    seconds = max(memory, compute * stretch) + 0.1 * min(memory, compute * stretch)
    return TileCost(seconds, memory, compute, staged + written, resident.fraction, blocks, waves)


def _staged_bytes(contraction: Contraction, tiling: Tiling, machine: Machine) -> float:
    left = _run_bytes(contraction, tiling, machine, "stride_left", lambda one: one.kind is not Kind.N)
    right = _run_bytes(contraction, tiling, machine, "stride_right", lambda one: one.kind is not Kind.M)
    return left + right


def _run_bytes(
    contraction: Contraction, tiling: Tiling, machine: Machine, stride: str, has: Callable[[Dimension], bool]
) -> float:
    """Bytes moved for one tile of an array when every contiguous run costs whole transactions."""
    arrays = {"stride_left": contraction.left, "stride_right": contraction.right, "stride_out": contraction.out}
    width = arrays[stride].element.bytes
    extents = dict(zip(parallel_dimensions(contraction), tiling.block, strict=True))
    extents |= dict(zip(contraction.of_kind(Kind.K), tiling.sequential, strict=True))
    along = sorted(
        ((abs(constant(getattr(d, stride))), min(extent, constant(d.size))) for d, extent in extents.items() if has(d)),
    )
    run, elements = 1, 1
    for step, extent in along:
        if step == run:
            run *= extent
        elements *= extent
    unit = machine.transaction_bytes
    return elements / max(run, 1) * math.ceil(run * width / unit) * unit


def _compulsory_bytes(contraction: Contraction) -> float:
    left = math.prod(constant(d.size) for d in contraction.dimensions if d.kind is not Kind.N)
    right = math.prod(constant(d.size) for d in contraction.dimensions if d.kind is not Kind.M)
    return float(left * contraction.left.element.bytes + right * contraction.right.element.bytes)
