"""Copies to another order of dimensions by blocks of threads, a square at a time through shared memory.

    source, along its rows          shared memory           target, along its rows
    threads x, x+1, ... read   ->   [y][x]  ...  [x][y]  ->  threads x, x+1, ... write

Neighbouring threads read neighbours and write neighbours, which the plain copy does on one side only. Rows of the
square are one word longer than it is wide, so that its columns lie in different banks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import field

from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import I32, I64, U8, U16, U32, U64, ScalarType
from tilewright.kernel.ir import (
    Barrier,
    BlockIndex,
    Buffer,
    Constant,
    Expression,
    Kernel,
    Load,
    Name,
    ScalarParameter,
    Space,
    Store,
    ThreadIndex,
    add,
    integer,
    multiply,
    operation,
)
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.items.scalar_values import KernelBuilder

MOST_THREADS = 256
SHORTEST = 8
"""Along fewer elements most threads of a square would have nothing to do."""
_WORDS = {1: U8, 2: U16, 4: U32, 8: U64, 16: U64}


@dataclass(frozen=True)
class Dimension:
    """One dimension of a copy: its size, and the strides of both arrays in elements."""

    size: int
    source: int
    target: int


def transposed_launch(
    element: ScalarType,
    shape: Sequence[int],
    source: Sequence[int],
    target: Sequence[int],
    offsets: tuple[int, int],
    machine: Machine,
) -> Launch | None:
    """The launch that copies an array whose rows lie along different dimensions in `source` and in `target`.

    Args:
        element: the type of the elements; their bits are moved.
        shape: the sizes.
        source, target: the strides in elements.
        offsets: the indices of the first elements.
        machine: it runs blocks of threads.

    Returns:
        None where neighbours are the same in both, or rows are short: the plain copy does as well.

    Example:
        >>> from tilewright.ir.scalars import F32
        >>> from tilewright.machine.named import A100
        >>> transposed_launch(F32, (100, 40), (40, 1), (1, 100), (0, 0), A100).blocks
        8
        >>> transposed_launch(F32, (100, 40), (40, 1), (40, 1), (0, 0), A100) is None
        True
    """
    dimensions = [Dimension(*one) for one in zip(shape, source, target, strict=True) if one[0] != 1]
    along = next((one for one in dimensions if one.source == 1), None)
    across = next((one for one in dimensions if one.target == 1), None)
    if along is None or across is None or along is across or min(along.size, across.size) < SHORTEST:
        return None
    outer = [one for one in dimensions if one is not along and one is not across]
    edge, rows = _square(machine)
    word = _WORDS[element.bytes]
    words = element.bytes // word.bytes
    last = words * sum((*offsets, *((one.size - 1) * (abs(one.source) + abs(one.target)) for one in dimensions), 1))
    kernel = _kernel(word, words, len(outer), edge, edge * rows, I32 if last < 2**31 else I64)
    tiles = [-(-one.size // edge) for one in (along, across)]
    values = [*offsets, along.size, across.size, along.target, across.source, *tiles]
    for one in outer:
        values += [one.size, one.source, one.target]
    blocks = math.prod((*tiles, *(one.size for one in outer)))
    return Launch(kernel, blocks, ("source", "target"), tuple(values))


def _square(machine: Machine) -> tuple[int, int]:
    """The width of a square, a power of two, and how many of its rows the threads of a block have together."""
    bits = min(MOST_THREADS, machine.max_threads_per_block).bit_length() - 1
    edge = 1 << (min(machine.warp.bit_length() - 1, bits) if machine.warp > 1 else (bits + 1) // 2)
    return edge, min(edge, (1 << bits) // edge)


@dataclass
class _Writer:
    """Collects the kernel of squares of one size."""

    index: ScalarType
    emit: KernelBuilder = field(default_factory=KernelBuilder)
    parameters: list[ScalarParameter] = field(default_factory=list)

    def parameter(self, hint: str) -> Name:
        """A number that the launch gives."""
        name = Name(self.emit.name(hint), self.index)
        self.parameters.append(ScalarParameter(name.name, self.index))
        return name

    def integer(self, value: int) -> Constant:
        """A number in the type of indices."""
        return integer(value, self.index)

    def split(self, flat: Expression, extent: Expression, hint: str) -> tuple[Expression, Expression]:
        """The index in the innermost dimension, and that of what is outside of it."""
        inner = self.emit.let(operation("mod", flat, extent), hint)
        return inner, self.emit.let(operation("floordiv", flat, extent), "rest")


@functools.lru_cache(maxsize=64)
def _kernel(word: ScalarType, words: int, outer: int, edge: int, threads: int, index: ScalarType) -> Kernel:
    """A block moves one square of elements of some words each, at one point of the outer dimensions."""
    w = _Writer(index)
    emit = w.emit
    from_start, to_start, along, across, along_step, across_step, along_tiles, across_tiles = map(
        w.parameter,
        ("from_start", "to_start", "along", "across", "along_step", "across_step", "along_tiles", "across_tiles"),
    )
    place, rest = w.split(emit.let(BlockIndex(index), "block"), along_tiles, "tile")
    first_along = emit.let(multiply(place, w.integer(edge)), "first")
    place, rest = w.split(rest, across_tiles, "tile")
    first_across = emit.let(multiply(place, w.integer(edge)), "first")
    read: Expression = from_start
    written: Expression = to_start
    for _ in range(outer):
        extent, from_step, to_step = map(w.parameter, ("extent", "from_step", "to_step"))
        at, rest = w.split(rest, extent, "at")
        read = add(read, multiply(at, from_step))
        written = add(written, multiply(at, to_step))
    read, written = emit.let(read, "read"), emit.let(written, "written")
    thread = emit.let(ThreadIndex(index), "thread")
    rows = threads // edge
    x, y = (emit.let(operation(one, thread, w.integer(edge)), hint) for one, hint in (("mod", "x"), ("floordiv", "y")))
    source, target = Buffer("source", word, read_only=True), Buffer("target", word)
    square = Buffer("square", word, Space.SHARED, words * edge * (edge + 1))

    def move(into: Buffer, to: Expression, out_of: Buffer, of: Expression) -> None:
        to, of = (emit.let(multiply(one, w.integer(words)), "word") for one in (to, of))
        for part in range(words):
            value = Load(out_of, add(of, w.integer(part)), word)
            emit.emit(Store(into, add(to, w.integer(part)), emit.let(value, "value")))

    def step(begin: int, reads: bool) -> None:
        row = emit.let(add(y, w.integer(begin)), "row")
        one, other = (x, row) if reads else (row, x)
        i, j = emit.let(add(first_along, one), "i"), emit.let(add(first_across, other), "j")
        inside = operation("and", operation("lt", i, along), operation("lt", j, across))
        held = add(multiply(other, w.integer(edge + 1)), one)
        at = add(read, add(i, multiply(j, across_step))) if reads else add(written, add(j, multiply(i, along_step)))
        emit.when(inside, lambda: move(square, held, source, at) if reads else move(target, at, square, held))

    for reads in (True, False):
        for begin in range(0, edge, rows):
            step(begin, reads)
        if reads:
            emit.emit(Barrier())
    parts = ("tw_copy_transposed", str(word), *([str(words)] if words > 1 else []), *([str(outer)] if outer else []))
    name = "_".join(parts)
    return Kernel(name, (source, target), tuple(w.parameters), (square,), emit.statements, threads, index)
