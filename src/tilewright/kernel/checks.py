"""Static checks on kernels for GPUs: bank conflicts, coalescing, divergent barriers and index types.

Nothing is run and nothing is refused here: a report says what was found, and the caller decides. Accesses are judged
by samples (`tilewright.kernel.warp`): the first and the last warp of three blocks, three iterations of every loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tilewright.ir.dataclass import dataclass
from tilewright.kernel import ir
from tilewright.kernel.divergence import divergent_barriers
from tilewright.kernel.ir import Constant, Expression, Kernel, Load, Name, Store
from tilewright.kernel.traversal import expressions, parts, walk
from tilewright.kernel.warp import Place, Sample, Touch, contains, touches

BANKS = 32
WORD_BYTES = 4
SECTOR_BYTES = 32
Addresses: TypeAlias = "np.ndarray[Any, Any] | np.ma.MaskedArray[Any, Any]"
_SAMPLES = ((0, 0), (1, 1), (5, 2))  # (block, iteration of every loop)


@dataclass(frozen=True)
class AccessReport:
    """One access to memory, judged over all samples.

    Of shared memory, `degree` is how many times the hardware must repeat the access (1: no conflict). Of global
    memory it is the number of 32-byte sectors that a warp touches. `ideal` is the same for consecutive elements.
    `degree` is None where the index is unknown, because it was itself loaded from memory, or where no sample came by.
    `inner`: a read at least two loops deep with no barrier in the innermost; `staging`: a write to shared memory.
    """

    buffer: str
    location: str
    degree: int | None
    ideal: int
    is_store: bool
    inner: bool
    staging: bool

    def __str__(self) -> str:
        found = "unknown" if self.degree is None else str(self.degree)
        return f"{self.location}: {found} (ideal {self.ideal})"


@dataclass(frozen=True)
class KernelReport:
    """What the checks found in one kernel; texts name the place in it."""

    bank_conflicts: tuple[AccessReport, ...]
    global_accesses: tuple[AccessReport, ...]
    divergent_barriers: tuple[str, ...]
    index_types: tuple[str, ...]

    @property
    def worst_inner_conflict(self) -> int:
        """The highest degree among the reads of shared memory in inner loops (1: none conflicts)."""
        return max((a.degree for a in self.bank_conflicts if a.inner and a.degree is not None), default=1)


def check_kernel(kernel: Kernel, scalars: Mapping[str, int], warp: int = 32) -> KernelReport:
    """Run all checks. `scalars` gives sample values of the kernel's scalar parameters.

    `bank_conflicts` and `global_accesses` list every access to shared and global memory, good ones too.

    Example:
        >>> from tilewright.kernel.ir import Kernel
        >>> check_kernel(Kernel("nothing", (), (), (), ()), {}).divergent_barriers
        ()
    """
    last = max(0, kernel.threads_per_block - 1) // warp * warp
    samples = [Sample(block, first, warp, iteration) for first in sorted({0, last}) for block, iteration in _SAMPLES]
    found = [touches(kernel, scalars, sample) for sample in samples]
    return KernelReport(
        _judge(found, ir.Space.SHARED, bank_degree),
        _judge(found, ir.Space.GLOBAL, sectors),
        divergent_barriers(kernel),
        check_index_types(kernel),
    )


def _judge(
    found: list[list[Touch]], space: ir.Space, measure: Callable[[Addresses, int], int]
) -> tuple[AccessReport, ...]:
    """The worst over the samples, which list the same accesses in the same order; equal accesses appear once."""
    reports: dict[AccessReport, None] = {}
    known: dict[tuple[bytes, bytes, int], int] = {}

    def measured(addresses: np.ndarray[Any, Any], active: np.ndarray[Any, Any], width: int) -> int:
        """Unrolled loops repeat a pattern; moving all of it by whole sectors changes nothing."""
        addresses = addresses - int(addresses[active][0]) // SECTOR_BYTES * SECTOR_BYTES
        key = (addresses.tobytes(), active.tobytes(), width)
        if key not in known:
            known[key] = measure(np.ma.masked_array(addresses, ~active), width)
        return known[key]

    for same in zip(*found, strict=True):
        first = same[0]
        if first.buffer.space is not space:
            continue
        width = first.lanes * first.buffer.element.bytes
        degrees, ideals = [], [1]
        for touch in same:
            if touch.index is not None and touch.active.any():
                addresses = touch.index.astype(np.int64) * first.buffer.element.bytes
                consecutive = np.arange(len(addresses)) * width
                degrees.append(measured(addresses, touch.active, width))
                ideals.append(measured(consecutive, touch.active, width))
        reports[_report(first, max(degrees, default=None), max(ideals))] = None
    return tuple(reports)


def _report(touch: Touch, degree: int | None, ideal: int) -> AccessReport:
    staging = touch.is_store and touch.buffer.space is ir.Space.SHARED
    inner = not touch.is_store and _is_inner(touch.place)
    lanes = f" x{touch.lanes}" if touch.lanes > 1 else ""
    action = "store" if touch.is_store else "load"
    location = f"{touch.place}{action} {touch.buffer.name}[{describe(touch.expression)}]{lanes}"
    return AccessReport(touch.buffer.name, location, degree, ideal, touch.is_store, inner, staging)


def _is_inner(place: Place) -> bool:
    return len(place.loops) >= 2 and not contains(place.loops[-1].body, ir.Barrier)


def bank_degree(addresses: Addresses, width: int) -> int:
    """How often shared memory is asked to serve a warp's access of `width` bytes per thread at these byte addresses.

    32 banks of 4 bytes; threads that read the same word share it. Accesses of 8 bytes are served by half-warps, of 16
    by quarter-warps; wider ones are several of 16. Threads that take no part are masked.

    Example:
        >>> bank_degree(np.arange(32) * 32 * 4, 4), bank_degree(np.arange(32) * 33 * 4, 4)
        (32, 1)
    """
    worst = 1
    piece = min(width, 16)
    group = BANKS if piece <= WORD_BYTES else BANKS * WORD_BYTES // piece
    for offset in range(0, width, piece):
        for start in range(0, len(addresses), group):
            first = _taking_part(addresses[start : start + group] + offset)
            words = {
                int(word)
                for address in first
                for word in range(address // WORD_BYTES, (address + piece - 1) // WORD_BYTES + 1)
            }
            banks = np.bincount([word % BANKS for word in words], minlength=BANKS)
            worst = max(worst, *banks.tolist())
    return worst


def _taking_part(addresses: Addresses) -> list[int]:
    return [int(address) for address in np.ma.masked_array(addresses).compressed()]


def sectors(addresses: Addresses, width: int) -> int:
    """How many 32-byte sectors of global memory a warp's access touches; buffers begin at a sector's border."""
    touched: set[int] = set()
    for address in _taking_part(addresses):
        touched.update(range(address // SECTOR_BYTES, (address + width - 1) // SECTOR_BYTES + 1))
    return len(touched)


# --- index types ------------------------------------------------------------------------------------------------------


def check_index_types(kernel: Kernel) -> tuple[str, ...]:
    """Where index arithmetic is not done in the kernel's `index_type`: wrong types, and sums widened afterwards."""
    expected = kernel.index_type
    messages: dict[str, None] = {}
    for statement in walk(kernel.body):
        indices = [(statement.buffer.name, statement.index)] if isinstance(statement, Store | ir.AtomicUpdate) else []
        for expression in expressions(statement):
            indices.extend((one.buffer.name, one.index) for one in parts([expression]) if isinstance(one, Load))
        for name, index in indices:
            place = f"{name}[{describe(index)}]"
            if index.type != expected:
                messages[f"{place}: the index is {index.type}, the kernel's index type {expected}"] = None
            for part in _index_parts(index):
                if isinstance(part, ir.BlockIndex | ir.ThreadIndex) and part.type != expected:
                    messages[f"{place}: {describe(part)} is {part.type}, the kernel's index type {expected}"] = None
                if isinstance(part, ir.Cast) and isinstance(part.operand, ir.Operation):
                    messages[f"{place}: computed in {part.operand.type}, then cast to {part.type}"] = None
    return tuple(messages)


def _index_parts(expression: Expression) -> Iterable[Expression]:
    """The arithmetic of an index, not that of the indices of what it loads."""
    yield expression
    if not isinstance(expression, Load):
        for child in expressions(expression):
            yield from _index_parts(child)


# --- printing ---------------------------------------------------------------------------------------------------------


def describe(expression: Expression) -> str:
    """A short text of an expression, for messages."""
    match expression:
        case Constant(value=value):
            return str(value)
        case Name(name=name):
            return name
        case ir.ThreadIndex():
            return "thread"
        case ir.BlockIndex(after=after):
            return "block after the last" if after else "block"
        case Load(buffer=buffer, index=index, mask=mask, order=order):
            kind = "" if order is ir.Order.PLAIN else f"{order.value} "
            return f"{kind}{buffer.name}[{describe(index)}]" + ("" if mask is None else f" where {describe(mask)}")
        case ir.FirstLanes(count=count):
            return f"first({describe(count)})"
        case ir.PackedLanes(operand=operand, mask=picked):
            return f"packed({describe(operand)}, {describe(picked)})"
        case ir.Window(first=first, second=second, begin=begin):
            return f"window({describe(first)}, {describe(second)}, {describe(begin)})"
        case ir.CountLanes(mask=picked):
            return f"count({describe(picked)})"
        case ir.AnyLane(operand=operand):
            return f"any({describe(operand)})"
        case ir.Operation(operator=operator, operands=(left, right)) if operator in _SIGNS:
            return f"({describe(left)} {_SIGNS[operator]} {describe(right)})"
        case ir.Operation(operator=operator, operands=operands):
            return f"{operator}({', '.join(map(describe, operands))})"
        case ir.Cast(operand=operand, type=type_):
            return f"{type_}({describe(operand)})"
    return f"{type(expression).__name__.lower()}({', '.join(map(describe, expressions(expression)))})"


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
