"""Sums that are split, where a contraction has too few results to give all cores work: how many pieces, and why.

What is decided depends on the sizes, and on how wide vectors are, but never on how many threads there are: a result has
the same bits whatever their number. One thread computes the same pieces one after another, which costs it little, since
a piece is long.
"""

from __future__ import annotations

import math

from tilewright.contraction.form import Contraction, Kind
from tilewright.contraction.normalise import constant, normalise
from tilewright.contraction.split_sum import SplitSum, split_sum
from tilewright.ir.scalars import compute_type, real_of
from tilewright.machine.model import Machine
from tilewright.passes.contractions.relaid import sum_to_turn
from tilewright.passes.items.scalar_values import component_types
from tilewright.passes.items.sum_trees import FAN

MOST_PIECES = 64
"""So many that threads that are late, or share their cores with others, can do fewer of them."""
assert MOST_PIECES < FAN, "partial results, those of a rest too, are a node of a tree of sums"
FEW_RESULTS = 1 << 14
"""More results than that are work for every core."""
LEAST_LENGTH = 1024
"""Steps of a piece, at the least. To write and add up its results takes as long as a few steps."""
PIECE_CYCLES = 16_000
"""Some 5 microseconds, after which a piece is worth a place in the launch."""
BYTES_PER_CYCLE = 8
"""What one core reads from main memory."""
LEAST_TURNED = 128
"""Results of a matrix and few columns, which are copied for the sake of the sum (relaid.py): pieces would not be."""
MOST_BLOCK_PIECES = 256
LEAST_BLOCK_LENGTH = 64
LAUNCH_SECONDS = 3e-6
SPLIT_MARGIN = 1.5
"""Pieces, terms of a piece, and how much faster the model must find them, on devices with blocks of threads."""
ROWS = 8
"""Rows along which sums run that are read together: so many results are a piece of work."""


def split_of(contraction: Contraction, machine: Machine) -> SplitSum | str:
    """The split sum of a contraction with known sizes for a CPU, or why its sum is not split.

    Example:
        >>> from tilewright.machine.named import CPU_AVX512
        >>> from tilewright.report.examples import matmul
        >>> split = split_of(matmul(16, 16, 1_000_000), CPU_AVX512)
        >>> split.pieces, split.length, split.elements
        (64, 15625, 16384)
        >>> split_of(matmul(512, 512, 512), CPU_AVX512)
        'a sum of 512 terms is too short for pieces of 1024'
    """
    contraction = normalise(contraction)
    results = math.prod(constant(one.size) for one in contraction.dimensions if one.kind is not Kind.K)
    sums = contraction.of_kind(Kind.K)
    steps = math.prod(constant(one.size) for one in sums)
    if not results or steps < 2 * LEAST_LENGTH:
        return f"a sum of {steps} terms is too short for pieces of {LEAST_LENGTH}"
    accumulator = contraction.combine.parameters[0].type.element
    if compute_type(real_of(accumulator)) != real_of(accumulator):
        return f"partial results of type {accumulator} would be rounded"
    if results >= LEAST_TURNED and sum_to_turn(contraction, machine) is not None:
        return f"{results} results of rows that are read along the sum are enough for all cores"
    wanted = MOST_PIECES if results <= FEW_RESULTS else 1
    if _reads_rows(contraction):
        wanted = min(wanted, MOST_PIECES * ROWS // results)
    if wanted < 2:
        return f"{results} results are enough for all cores"
    pieces = int(min(wanted, steps // LEAST_LENGTH, _cycles(contraction, results * steps, machine) // PIECE_CYCLES))
    if pieces < 2:
        return "it takes some microseconds only"
    long = [one for one in sums if constant(one.size) >= pieces]
    cut = long[0] if long else max(sums, key=lambda one: constant(one.size))
    extent = constant(cut.size)
    pieces = min(pieces, extent)
    # A number of pieces that leaves no rest spares a launch.
    even = [count for count in range(pieces, pieces // 2, -1) if extent % count == 0]
    return split_sum(contraction, cut.name, even[0] if even else pieces)


def split_over_blocks(contraction: Contraction, machine: Machine) -> SplitSum | str:
    """The split sum of a contraction with known sizes for a device with blocks of threads, or why it is not split.

    Tiles leave each sum to one thread, and a few results fill a few of them. Pieces are as many as give work to every
    fourth thread that the cores hold, at most `MOST_BLOCK_PIECES`, whose results one thread adds up in the end.

    Example:
        >>> from tilewright.machine.named import H100
        >>> from tilewright.report.examples import matmul
        >>> split = split_over_blocks(matmul(16, 16, 1_000_000), H100)
        >>> split.pieces, split.length
        (250, 4000)
        >>> split_over_blocks(matmul(4096, 4096, 4096), H100)
        '16777216 results are work for all threads'
    """
    from tilewright.passes.tiled.choice import choose_tiling, tile_cost

    contraction = normalise(contraction)
    results = math.prod(constant(one.size) for one in contraction.dimensions if one.kind is not Kind.K)
    accumulator = contraction.combine.parameters[0].type.element
    if compute_type(real_of(accumulator)) != real_of(accumulator):
        return f"partial results of type {accumulator} would be rounded"
    threads = machine.cores * machine.max_threads_per_core // 4
    if 2 * results > threads:
        return f"{results} results are work for all threads"
    cut = max(contraction.of_kind(Kind.K), key=lambda one: constant(one.size), default=None)
    extent = 0 if cut is None else constant(cut.size)
    pieces = min(MOST_BLOCK_PIECES, threads // max(1, results), extent // LEAST_BLOCK_LENGTH)
    if cut is None or not results or pieces < 2:
        return f"a sum of {extent} terms is too short for pieces of {LEAST_BLOCK_LENGTH}"
    even = [count for count in range(pieces, pieces // 2, -1) if extent % count == 0]
    split = split_sum(contraction, cut.name, even[0] if even else pieces)

    def seconds(one: Contraction) -> float:
        ready = normalise(one)
        return tile_cost(ready, choose_tiling(ready, machine), machine).seconds

    whole, cut_up = seconds(contraction), sum(seconds(one) + LAUNCH_SECONDS for one in (*split.parts, split.combined))
    if whole < SPLIT_MARGIN * cut_up:
        return f"the model says {whole * 1e6:.3g} us, and {cut_up * 1e6:.3g} us in {split.pieces} pieces"
    return split


def _reads_rows(contraction: Contraction) -> bool:
    """Whether every result is the sum of rows of its own in memory, so that a few results are much to read."""
    for left in (True, False):
        strides = [constant(one.stride_left if left else one.stride_right) for one in contraction.dimensions]
        along = [one.kind for one, stride in zip(contraction.dimensions, strides, strict=True) if abs(stride) == 1]
        if all(strides) and Kind.K in along:
            return True
    return False


def _cycles(contraction: Contraction, points: int, machine: Machine) -> float:
    """What one core takes at the least: to compute, or to read either operand once."""
    parts = component_types(contraction.combine.parameters[0].type.element)
    compute = points * len(parts) ** 2 / (2 * machine.lanes(parts[0].bytes))
    reading = sum(_elements(contraction, left) * one.element.bytes
                  for left, one in ((True, contraction.left), (False, contraction.right)))  # fmt: skip
    return max(compute, reading / BYTES_PER_CYCLE)


def _elements(contraction: Contraction, left: bool) -> int:
    strides = ((constant(one.stride_left if left else one.stride_right), one) for one in contraction.dimensions)
    return math.prod(constant(one.size) for stride, one in strides if stride)
