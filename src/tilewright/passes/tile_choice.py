"""Default tile sizes from a cost model, so that no user must ever give one.

The modelled time of a tiling is the largest of three: bytes that the blocks read and write (in whole transactions,
seen by L2 and by main memory), multiply-adds and the shared-memory loads that feed them, all stretched by idle cores in
the last wave and by too few warps to hide latencies. Only ratios between tilings matter.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.machine.occupancy import occupancy
from tilewright.passes.tiling import (
    IllegalTiling,
    TileFacts,
    Tiling,
    broken_limit,
    check_tiling,
    facts_of,
    parallel_dimensions,
    tile_resources,
)

# Used where a machine does not state its speeds; only their ratio matters (a current GPU's).
_DEFAULT_BANDWIDTH, _DEFAULT_FLOPS, _L2_OVER_DRAM = 1.5e12, 2e13, 3.0
_WARPS_TO_HIDE_LATENCY = 12
_CYCLES_PER_PIECE = 8.0
_UNROLLED_MULTIPLY_ADDS = 1024  # a longer body is no faster and takes the compiler seconds
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
    return next(ranked_tilings(contraction, machine))


def ranked_tilings(contraction: Contraction, machine: Machine) -> Iterator[Tiling]:
    """The tilings that a machine can run, by the modelled time.

    Raises:
        IllegalTiling: at the end; a shared layout may need more padding than the model foresees, so that a caller
            has a reason to ask for the next one.
    """
    facts = facts_of(contraction)
    legal = [
        (_cost(facts, tiling, machine).seconds, number, tiling)
        for number, tiling in enumerate(candidates(contraction))
        if broken_limit(tiling, tile_resources(facts, tiling), machine) is None
    ]
    heapq.heapify(legal)
    while legal:
        yield heapq.heappop(legal)[2]
    raise IllegalTiling(f"no tiling of this contraction fits {machine.name}")


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
    depths = sorted({_spread_depth(contraction, depth) for depth in _DEPTHS}, key=math.prod)
    shallowest = depths[0]
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
                    registers = math.prod(key[1])
                    yield from (
                        Tiling(*key, depth)
                        for depth in depths
                        if math.prod(depth) * registers <= _UNROLLED_MULTIPLY_ADDS or depth == shallowest
                    )


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
    return _cost(facts_of(contraction), tiling, machine)


def _cost(facts: TileFacts, tiling: Tiling, machine: Machine) -> TileCost:
    blocks, pieces = facts.blocks(tiling), facts.pieces(tiling)
    resources = tile_resources(facts, tiling)
    resident = occupancy(machine, resources.threads, resources.registers_per_thread, resources.shared_bytes)
    waves = blocks / max(1, machine.cores * max(1, resident.blocks_per_core))
    stretch = math.ceil(waves) / waves if waves else 1.0
    memory, traffic = _memory_seconds(facts, tiling, machine, blocks, pieces)
    cycles = _cycles_per_step(facts, tiling, resources.threads)
    peak = (machine.peak_flops_f32 if facts.accumulator_bytes <= 4 else machine.peak_flops_f64) or _DEFAULT_FLOPS
    hidden = min(1.0, resident.blocks_per_core * resources.threads / 32 / _WARPS_TO_HIDE_LATENCY)
    steps = blocks * resources.threads * pieces * math.prod(tiling.sequential)
    compute = steps * cycles * 4 * 2 / peak / max(hidden, 0.05)
    seconds = max(memory, compute * stretch) + 0.1 * min(memory, compute * stretch)
    return TileCost(seconds, memory, compute, traffic, resident.fraction, blocks, waves)


def _memory_seconds(
    facts: TileFacts, tiling: Tiling, machine: Machine, blocks: int, pieces: int
) -> tuple[float, float]:
    """Seconds of the larger of main memory's traffic and L2's, and L2's bytes.

    A block writes whole runs in the end, which is what main memory sees; but one store instruction of a warp covers
    only the thread part of a run, so L2 sees whole sectors for each of those [measured by `kernel/checks.py`].
    """
    inside, unit = facts.inside(tiling), machine.transaction_bytes
    staged = blocks * pieces * (facts.left.transactions(inside, unit) + facts.right.transactions(inside, unit))
    threads = (*map(min, tiling.thread, facts.sizes), *((1,) * len(facts.contracted)))
    instructions = math.prod(-(-i // max(1, t)) for i, t in zip(inside, threads[: len(facts.sizes)], strict=False))
    stored = blocks * instructions * facts.out.transactions(threads, unit)
    written = blocks * facts.out.transactions(inside, unit)
    extents = (*facts.sizes, *facts.contracted)
    read = sum(array.covered(extents) * array.memory_bytes for array in (facts.left, facts.right))
    bandwidth = machine.dram_bandwidth or _DEFAULT_BANDWIDTH
    return max(read + written, (staged + stored) / _L2_OVER_DRAM) / bandwidth, staged + stored


def _cycles_per_step(facts: TileFacts, tiling: Tiling, threads: int) -> float:
    """Cycles of a core for one step of the sum of one warp.

    Four warps of multiply-adds run per cycle beside one of shared-memory words: those that the step reads, and its
    share of the copies, each word of which is loaded and stored. Barriers and addresses cost something per piece.
    """
    once = (1,) * len(tiling.sequential)
    multiply_adds = math.prod(tiling.register)
    words = 0.0
    for array in (facts.left, facts.right):
        copied = array.covered((*tiling.block, *once)) / threads
        words += (array.covered((*tiling.register, *once)) + 2 * copied) * array.value_bytes / 4
    return max(multiply_adds / 4, words) + 2 + _CYCLES_PER_PIECE / math.prod(tiling.sequential)
