"""In which order a GPU's kernel would rather have the dimensions of an array, and what it saves by that.

The threads of a warp read at the same time. Where neighbours read neighbours, memory is read in whole pieces; where
each reads a row of its own, every element costs a piece. Then the array should lie the other way round:

    a[i][k] by thread i     =>     a'[k][i] by thread i,  a'[k][i] = a[i][k]

What a warp touches is not guessed from the program but counted in the kernel, by samples (`kernel.warp`), whatever has
made it. An array that the kernel itself makes takes the other order at once, which costs nothing until somebody wants
the first one; of one that exists a copy is made, as soon as what was wasted on it so far would have paid for that. So
whatever comes after, never more than twice the least is paid [Karlin et al., Competitive Snoopy Caching, 1988], and an
array that is read in all rounds of a loop is copied once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import ScalarType
from tilewright.kernel.ir import Kernel, Space
from tilewright.kernel.warp import Sample, Touch, touches
from tilewright.machine.model import Machine

COPY_PASSES = 2.0
"""A copy reads the array and writes it."""
LAUNCH_SECONDS = 3e-6
"""Of one kernel more, however little it does."""
LEAST_GAIN = 0.1
"""Of the array's bytes: less is not worth a word."""
LINE_BYTES = 128
LINES_PER_SECOND = 1.98e9
"""The first cache of a core takes a line in one step of its clock (of H100 and H200, to which memory gives a core 13
and 18 bytes in such a step).
"""


@dataclass(frozen=True)
class Lying:
    """How an array lies in memory: extents, strides in elements, bytes of an element, where its first element is."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_bytes: int
    offset: int = 0

    @property
    def bytes(self) -> int:
        """Of all elements."""
        return int(np.prod(self.shape, dtype=object)) * self.element_bytes

    def indices(self, elements: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """The index in each dimension of the elements at these places of the buffer."""
        found = [np.zeros_like(elements)] * len(self.shape)
        rest = elements - self.offset
        for dimension in sorted(range(len(self.shape)), key=lambda d: -self.strides[d]):
            if self.shape[dimension] > 1:
                found[dimension], rest = np.divmod(rest, self.strides[dimension])
        return found


@dataclass(frozen=True)
class Wish:
    """The dimension of an array that should be the innermost, and the bytes of traffic that this saves a launch."""

    dimension: int
    saved: float


def wishes(
    kernel: Kernel, scalars: Mapping[str, int], blocks: int, arrays: Mapping[str, Lying], machine: Machine
) -> dict[str, Wish]:
    """What a launch would gain, by the name of the kernel's buffer.

    Args:
        kernel: what is launched.
        scalars: the values of its scalars, as far as they are integers.
        blocks: how many blocks of it.
        arrays: how those of its buffers lie that could lie in another way.
        machine: warps, pieces of memory and the first cache.

    Example:
        >>> from tilewright.ir.scalars import F32
        >>> from tilewright.kernel.ir import Buffer, For, Let, Load, Name, ThreadIndex, add, integer, multiply
        >>> from tilewright.ir.scalars import I64
        >>> from tilewright.machine.named import A100
        >>> rows = Buffer("rows", F32)
        >>> at = add(multiply(ThreadIndex(), integer(64)), Name("k", I64))
        >>> body = For("k", integer(0), integer(64), (Let("value", Load(rows, at, F32)),))
        >>> kernel = Kernel("sums", (rows,), (), (), (body,), 256)
        >>> wishes(kernel, {}, 1, {"rows": Lying((256, 64), (64, 1), 4)}, A100)["rows"].dimension
        0
    """
    samples = [touches(kernel, scalars, Sample(0, 0, machine.warp, number)) for number in (0, 1)]
    seen = [
        (one, following)
        for one, following in zip(*samples, strict=True)
        if one.buffer.space is Space.GLOBAL and one.buffer.name in arrays and one.lanes == 1
    ]
    warps = blocks * -(-kernel.threads_per_block // machine.warp)
    resident = machine.max_threads_per_core or machine.max_threads_per_block
    threads = min(resident, -(-blocks * kernel.threads_per_block // machine.cores))
    walked = {(one.buffer.name, one.expression) for one, following in seen if _walks(one, following, machine)}
    kept = len(walked) * threads * machine.transaction_bytes <= machine.l1_bytes // 2
    gained: dict[str, dict[int, float]] = {}
    for one, following in seen:
        by_dimension = gained.setdefault(one.buffer.name, {})
        cached = kept and _walks(one, following, machine)
        for dimension, bytes_ in _gains(one, arrays[one.buffer.name], machine, cached).items():
            by_dimension[dimension] = by_dimension.get(dimension, 0.0) + bytes_ * one.times * warps
    best = {name: max(found.items(), key=lambda pair: pair[1]) for name, found in gained.items() if found}
    least = {name: LEAST_GAIN * arrays[name].bytes for name in best}
    return {name: Wish(dimension, saved) for name, (dimension, saved) in best.items() if saved > least[name]}


def copy_bytes(lying: Lying, machine: Machine) -> float:
    """What a copy costs, as bytes of traffic.

    Example:
        >>> from tilewright.machine.named import A100
        >>> round(copy_bytes(Lying((1 << 10, 1 << 10), (1 << 10, 1), 4), A100) / 2**23, 3)
        1.556
    """
    return COPY_PASSES * lying.bytes + LAUNCH_SECONDS * machine.dram_bandwidth


def turned_strides(shape: Sequence[int], dimension: int) -> tuple[int, ...]:
    """Strides of an array with one dimension innermost and the others in their order.

    Example:
        >>> turned_strides((5, 3, 2), 0)
        (1, 10, 5)
    """
    strides, step = [0] * len(shape), 1
    for d in (dimension, *(d for d in reversed(range(len(shape))) if d != dimension)):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def _walks(one: Touch, following: Touch, machine: Machine) -> bool:
    """Whether a thread goes on to the next element, which the first cache may have kept."""
    if one.index is None or following.index is None or one.is_store:
        return False
    steps = np.abs(following.index - one.index)[one.active & following.active]
    return steps.size > 0 and 0 < int(steps.max()) * one.buffer.element.bytes < machine.transaction_bytes


def _gains(one: Touch, lying: Lying, machine: Machine, kept: bool) -> dict[int, float]:
    """For each dimension the bytes that one access of a warp saves (or, negative, wastes) if that is the innermost."""
    if one.index is None or one.active.sum() < 2:
        return {}
    width, words = one.buffer.element.bytes, lying.element_bytes // one.buffer.element.bytes
    elements, part = np.divmod(one.index.astype(np.int64)[one.active], words)

    def touched(places: np.ndarray[Any, Any], size: int) -> int:
        return len(np.unique((places * words + part) * width // size))

    now = float(touched(elements, machine.transaction_bytes) * machine.transaction_bytes)
    if kept and machine.dram_bandwidth:
        step = machine.dram_bandwidth / machine.cores / LINES_PER_SECOND  # what main memory gives a core meanwhile
        now = min(now, touched(elements, LINE_BYTES) * step)
    indices = lying.indices(elements)
    found = {}
    for dimension, (extent, stride) in enumerate(zip(lying.shape, lying.strides, strict=True)):
        if extent > 1 and stride != 1:
            steps = turned_strides(lying.shape, dimension)
            turned = np.sum([index * step for index, step in zip(indices, steps, strict=True)], axis=0)
            found[dimension] = now - float(touched(turned, machine.transaction_bytes) * machine.transaction_bytes)
    return found


def lying_of(shape: Sequence[int], strides: Sequence[int], element: ScalarType, offset: int = 0) -> Lying | None:
    """How an array lies, if its dimensions could be in another order: all in one piece, along more than one of them.

    Example:
        >>> from tilewright.ir.scalars import F32
        >>> lying_of((4, 5), (1, 4), F32).bytes, lying_of((4, 5), (10, 1), F32)
        (80, None)
    """
    step, long = 1, sorted((stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent != 1)
    for stride, extent in long:
        if stride != step:
            return None
        step *= extent
    return Lying(tuple(shape), tuple(strides), element.bytes, offset) if len(long) > 1 else None
