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
from typing import TypeAlias

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.ir.dataclass import dataclass
from tilewright.machine.model import Machine, power_of_two_at_least
from tilewright.machine.occupancy import occupancy
from tilewright.passes.tiled.tiling import (
    STEPS_AHEAD,
    ArrayFacts,
    IllegalTiling,
    Place,
    TileFacts,
    Tiling,
    broken_limit,
    check_tiling,
    facts_of,
    in_left,
    in_right,
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
# Threads along the one operand's dimensions and registers along the other's [S3, Parboil]; and the other way round.
_ONE_SIDED = tuple(
    shape for t, r in itertools.product((64, 128, 256), (2, 4, 8, 16)) for shape in (((t, 1), (1, r)), ((1, t), (r, 1)))
)
_SHAPES = tuple(itertools.product(_THREAD_SHAPES, _REGISTER_SHAPES))
ONE_SIDED_MARGIN = 1.2
"""How much faster than a square register tile the model must find one along a single dimension, which reuses less."""
_DEPTHS = (8, 16, 32)
Shapes: TypeAlias = tuple[tuple[tuple[int, int], tuple[int, int]], ...]


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
        (seconds, number, tiling)
        for number, (seconds, tiling) in enumerate(_placed_candidates(contraction, facts, machine))
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
    legal = placements(facts_of(contraction), tiling, machine) if min((1, *thread, *register, *sequential)) > 0 else []
    check_tiling(contraction, legal[0][1] if legal else tiling, machine)
    return legal[0][1]


# --- candidates -------------------------------------------------------------------------------------------------------


def _placed_candidates(contraction: Contraction, facts: TileFacts, machine: Machine) -> Iterator[tuple[float, Tiling]]:
    """Legal tilings with the times by which they are ranked.

    A register tile along one dimension is for operands held in registers: staged as well, they would be read from
    shared memory more often than square tiles read them.
    """
    square = tuple(candidates(contraction, _SHAPES))
    known = set(square)
    for sizes in square:
        yield from placements(facts, sizes, machine)[:1]
    for sizes in (one for one in candidates(contraction, _ONE_SIDED) if one not in known):
        legal = placements(facts, sizes, machine)
        held = [one for one in legal if Place.REGISTERS in (one[1].left, one[1].right)]
        yield from [(seconds * ONE_SIDED_MARGIN, tiling) for seconds, tiling in held[:1]]


def candidates(contraction: Contraction, shapes: Shapes) -> Iterator[Tiling]:
    """Tilings worth costing: powers of two, spread over the dimensions of each operand from the innermost outwards."""
    parallel = parallel_dimensions(contraction)
    left = [p for p, one in enumerate(parallel) if one.kind is Kind.M]
    right = [p for p, one in enumerate(parallel) if one.kind is Kind.N]
    shared = [p for p, one in enumerate(parallel) if one.kind is Kind.C]
    depths = sorted({_spread_depth(contraction, depth) for depth in _DEPTHS}, key=math.prod)
    shallowest = depths[0]
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for (t_left, t_right), (r_left, r_right) in shapes:
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
        t = min(threads, power_of_two_at_least(extent))
        r = min(registers, power_of_two_at_least(-(-extent // t)))
        sizes[position] = (t, r)
        threads //= t
        registers //= r
    return sizes


def _spread_depth(contraction: Contraction, depth: int) -> tuple[int, ...]:
    sizes: list[int] = []
    for one in reversed(contraction.of_kind(Kind.K)):
        q = min(depth, power_of_two_at_least(constant(one.size)))
        sizes.append(q)
        depth = max(1, depth // q)
    return tuple(reversed(sizes))


# --- where operands wait ----------------------------------------------------------------------------------------------


def placements(facts: TileFacts, sizes: Tiling, machine: Machine) -> list[tuple[float, Tiling]]:
    """The ways of placing the operands of a tile that a machine can run, with their modelled times, best first.

    What the block's threads share waits in shared memory; what one thread alone uses may wait in its registers.
    """
    places = [
        (Place.SHARED, Place.REGISTERS) if _may_be_held(array, sizes) else (Place.SHARED,)
        for array in (facts.left, facts.right)
    ]
    found = [Tiling(sizes.thread, sizes.register, sizes.sequential, *one) for one in itertools.product(*places)]
    legal = [one for one in found if broken_limit(one, tile_resources(facts, one), machine) is None]
    return sorted(((_cost(facts, one, machine).seconds, one) for one in legal), key=lambda one: one[0])


def best_by_place(
    contraction: Contraction, machine: Machine, sizes: Tiling | None = None
) -> dict[tuple[Place, Place], tuple[float, Tiling]]:
    """For each way of placing left and right the modelled time of its best tiling, or of that with the sizes given."""
    facts = facts_of(contraction)
    shapes = (candidates(contraction, _SHAPES), candidates(contraction, _ONE_SIDED))
    found: dict[tuple[Place, Place], tuple[float, Tiling]] = {}
    for one in [sizes] if sizes is not None else itertools.chain(*shapes):
        for seconds, tiling in placements(facts, one, machine):
            places = (tiling.left, tiling.right)
            if places not in found or seconds < found[places][0]:
                found[places] = seconds, tiling
    return found


def _may_be_held(array: ArrayFacts, tiling: Tiling) -> bool:
    """No two threads share an element, and a thread needs one at a time: the register tile extends along others."""
    return array.reuse(tiling.thread) == 1 and array.covered((*tiling.register, *((1,) * len(tiling.sequential)))) == 1


def not_held(contraction: Contraction, tiling: Tiling, side: str) -> str | None:
    """Why an operand ("left" or "right") may not wait in the registers of single threads; None if it may."""
    has = in_left if side == "left" else in_right
    parallel = parallel_dimensions(contraction)
    shared = [(d.name, t) for d, t in zip(parallel, tiling.thread, strict=True) if t > 1 and not has(d)]
    if shared:
        name, threads = shared[0]
        return f"{side} does not change with {name}, along which {threads} threads of a block would each read it again"
    several = [(d.name, r) for d, r in zip(parallel, tiling.register, strict=True) if r > 1 and has(d)]
    if several:
        name, registers = several[0]
        return (
            f"each thread needs {registers} elements of {side} along {name} at once; one is held where the register "
            "tile extends along the other operand's dimensions only"
        )
    return None


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
    peak = machine.peak_flops_f32 or _DEFAULT_FLOPS
    slower = peak / (machine.peak_flops_f64 or peak) if facts.accumulator_bytes > 4 else 1.0
    cycles = _cycles_per_step(facts, tiling, resources.threads, slower)
    warps = -(-resources.threads // machine.warp)  # threads that a warp lacks take as long as others
    hidden = min(1.0, resident.blocks_per_core * warps * machine.warp / 32 / _WARPS_TO_HIDE_LATENCY)
    steps = blocks * warps * machine.warp * pieces * math.prod(tiling.sequential)
    compute = steps * cycles * 4 * 2 / peak / max(hidden, 0.05)
    seconds = max(memory, compute * stretch) + 0.1 * min(memory, compute * stretch)
    return TileCost(seconds, memory, compute, traffic, resident.fraction, blocks, waves)


def _memory_seconds(
    facts: TileFacts, tiling: Tiling, machine: Machine, blocks: int, pieces: int
) -> tuple[float, float]:
    """Seconds of the larger of main memory's traffic and L2's, and L2's bytes.

    A thread that reads an operand itself reads one element at each step of the sum, so that a warp's load covers the
    thread part of a run and no more.

    A block writes whole runs in the end, which is what main memory sees; but one store instruction of a warp covers
    only the thread part of a run, so L2 sees whole sectors for each of those [measured by `kernel/checks.py`].
    """
    inside, unit = facts.inside(tiling), machine.transaction_bytes
    threads = (*map(min, tiling.thread, facts.sizes), *((1,) * len(facts.contracted)))
    instructions = tuple(-(-i // max(1, t)) for i, t in zip(inside, threads, strict=True))

    def fetched(array: ArrayFacts, place: Place) -> float:
        if place is Place.SHARED:
            return array.transactions(inside, unit)
        return array.covered(instructions) * array.transactions(threads, unit)

    staged = blocks * pieces * (fetched(facts.left, tiling.left) + fetched(facts.right, tiling.right))
    stored = blocks * facts.out.covered(instructions) * facts.out.transactions(threads, unit)
    written = blocks * facts.out.transactions(inside, unit)
    extents = (*facts.sizes, *facts.contracted)
    read = sum(array.covered(extents) * array.memory_bytes for array in (facts.left, facts.right))
    bandwidth = machine.dram_bandwidth or _DEFAULT_BANDWIDTH
    return max(read + written, (staged + stored) / _L2_OVER_DRAM) / bandwidth, staged + stored


def _cycles_per_step(facts: TileFacts, tiling: Tiling, threads: int, slower: float) -> float:
    """Cycles of a core for one step of the sum of one warp.

    Four warps of multiply-adds (in f32; f64 is so much `slower`) run per cycle beside one of shared-memory words: those
    that the step reads, and its share of the copies, each word of which is loaded and stored. Barriers and addresses
    cost something per piece; waiting for the elements that a thread reads itself as much each time. Where all threads
    read the same elements, these are neighbours, four words of which are loaded at once.
    """
    once = (1,) * len(tiling.sequential)
    multiply_adds = math.prod(tiling.register)
    words = 0.0
    for array, place in ((facts.left, tiling.left), (facts.right, tiling.right)):
        read = array.covered((*tiling.register, *once)) * array.value_bytes / 4
        if place is Place.SHARED:
            copied = array.covered((*tiling.block, *once)) * array.value_bytes / 4 / threads
            at_once = 4 if array.covered((*tiling.thread, *once)) == 1 else 1
            read = max(1.0, read / at_once) + 2 * copied
        else:
            read += _CYCLES_PER_PIECE / STEPS_AHEAD
        words += read
    return max(multiply_adds / 4 * slower, words) + 2 + _CYCLES_PER_PIECE / math.prod(tiling.sequential)
