"""Which streams of a nest are tiled, and how: the legality and the choice of block tiling for general programs [S3].

A block takes `tile[d]` points of each dimension d. A stream is tiled if all points of a block run through it together
and at least one of its arrays does not change with a dimension of the block: the block then reads that array once, in
pieces of `length` rows.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Expression, Reduction, Statement
from tilewright.machine.model import Machine
from tilewright.passes.core.nests import Nest, nest_of
from tilewright.passes.core.variance import Read, Variance, streams_of, variance_of

WIDEST_ROW = 16
"""Elements of a row that is staged as a whole."""


@dataclass(frozen=True)
class TiledStream:
    """A fold and the arrays of it that are staged, by position."""

    name: str
    staged: tuple[int, ...]


@dataclass(frozen=True)
class StreamTiling:
    """How a nest is tiled.

    Attributes:
        nest, variance: the nest and what its reads change with.
        tile: points of a block in each dimension; 1 for a dimension that the block does not extend in.
        length: rows of a stream that are staged at once.
        streams: the streams that are tiled.
        declined: why others are not, one sentence each.
    """

    nest: Nest
    variance: Variance
    tile: tuple[int, ...]
    length: int
    streams: tuple[TiledStream, ...]
    declined: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """Points of a block."""
        return math.prod(self.tile)

    @property
    def block(self) -> tuple[int, ...]:
        """The dimensions in which a block extends."""
        return tuple(d for d, one in enumerate(self.tile) if one > 1)

    def staged(self, name: str) -> tuple[int, ...]:
        """The positions of the arrays of a stream that are staged."""
        return next((one.staged for one in self.streams if one.name == name), ())


@dataclass(frozen=True)
class NotTiled:
    """Why nothing of a nest is tiled."""

    reasons: tuple[str, ...]


def stream_tiling(expression: Expression, machine: Machine) -> StreamTiling | NotTiled | None:
    """The tiling of a nest for a machine whose blocks have threads that share memory; None if there is no stream.

    Example:
        >>> from tilewright.ir.parser import parse_program
        >>> from tilewright.machine.named import A100
        >>> program = parse_program('''def f (xs: [n]f32, ys: [m]f32) =
        ...   let (r: [n]f32) = map n (\\\\(x: f32) ->
        ...     let (s: f32) = redomap m (\\\\(a: f32, b: f32) -> let (c: f32) = a + b in (c)) (0.0f32)
        ...       (\\\\(y: f32) -> let (p: f32) = max(x, y) in (p)) ys
        ...     in (s)) xs
        ...   in (r)''')
        >>> stream_tiling(program.body.statements[0].expression, A100).tile
        (128,)
    """
    nest = nest_of(expression)
    if nest is None:
        return None
    found = list(streams_of(nest.body))
    if not found:
        return None
    if any(atom.type.rank for atom in nest.body.results):
        return NotTiled(("not tiled: a point gives arrays, which the threads of a block would write in turn",))
    variance = variance_of(nest)
    tilings: list[tuple[tuple[float, int, int], StreamTiling]] = []
    for block in _blocks(len(nest.space), machine):
        tiling = _with_block(nest, variance, found, _tile(block, len(nest.space), machine), machine)
        if tiling.streams:
            outside = 0 if len(nest.space) - 1 in block else 1
            tilings.append(((_traffic(tiling, found), outside, len(block)), tiling))
    if tilings:
        (least, *_), best = min(tilings, key=lambda one: one[0])
        others = [_not_so(other, cost, least) for (cost, *_), other in tilings if other is not best]
        return dataclasses.replace(best, declined=(*best.declined, *others))
    return NotTiled(tuple(dict.fromkeys(_why_not(nest, variance, found))))


def _blocks(rank: int, machine: Machine) -> Iterator[tuple[int, ...]]:
    """Blocks in one dimension, and in two where shared memory has banks of its own.

    Elsewhere it is cached memory like any other, and a thread of a block in two dimensions reads at least two arrays
    from it for each row, which costs more than the copies spare.
    """
    for d in reversed(range(rank)):
        yield (d,)
    if machine.shared_banks:
        yield from itertools.combinations(range(rank), 2)


def _tile(block: tuple[int, ...], rank: int, machine: Machine) -> tuple[int, ...]:
    """Points of a block: as many threads as fill a core with the blocks that it holds, at least four warps."""
    blocks = machine.max_blocks_per_core or 16
    wanted = max((machine.max_threads_per_core or 2048) // blocks, 4 * machine.warp, 64)
    threads = 1 << (min(wanted, 256, machine.max_threads_per_block).bit_length() - 1)
    tile = [1] * rank
    if len(block) == 1:
        tile[block[0]] = threads
        return tuple(tile)
    threads = 1 << (min(256, machine.max_threads_per_block).bit_length() - 1)
    inner = 1 << ((threads.bit_length()) // 2)
    tile[block[1]], tile[block[0]] = inner, threads // inner
    return tuple(tile)


def _not_so(tiling: StreamTiling, cost: float, least: float) -> str:
    """Why a tiling is not the one that is chosen."""
    why = "no less is read, and neighbouring points lie apart" if len(tiling.block) == 1 else "no less is read"
    if cost > least:
        why = f"they read {cost:.3g} elements from memory for each point and row, those chosen {least:.3g}"
    return f"not {_blocks_text(tiling)}: {why}"


def _with_block(
    nest: Nest, variance: Variance, found: Sequence[tuple[Statement, tuple[Statement, ...]]],
    tile: tuple[int, ...], machine: Machine,
) -> StreamTiling:  # fmt: skip
    block = frozenset(d for d, one in enumerate(tile) if one > 1)
    streams: list[TiledStream] = []
    declined: list[str] = []
    bytes_of_row = 0
    for statement, around in found:
        reason = _obstacle(statement, around, variance, block)
        if reason is not None:
            declined.append(reason)
            continue
        staged = []
        for read in _reads(statement, variance):
            if block - read.variant and _fits(read):
                staged.append(read.position or 0)
                rows = math.prod(tile[d] for d in block & read.variant)
                elements = math.prod(extent.constant or 1 for extent in read.array.type.shape[1:])
                bytes_of_row += rows * elements * read.array.type.element.bytes
        if staged:
            streams.append(TiledStream(statement.targets[0].name, tuple(staged)))
    longest = max(tile) if len(block) == 1 else min(one for one in tile if one > 1)
    length = longest
    while length > 1 and bytes_of_row * (length + 1) > _shared_bytes(machine):
        length //= 2
    if bytes_of_row * (length + 1) > _shared_bytes(machine):
        streams = []
    return StreamTiling(nest, variance, tile, length, tuple(streams), tuple(dict.fromkeys(declined)))


def _shared_bytes(machine: Machine) -> int:
    """Shared memory of a block such that four fit on a core, and no block has to ask for more than 48 KiB."""
    return min(machine.shared_bytes_per_block, 48 << 10, max(machine.shared_bytes_per_core // 4, 8 << 10))


def _fits(read: Read) -> bool:
    shape = read.array.type.shape[1:]
    return all(extent.constant is not None for extent in shape) and (
        math.prod(extent.constant or 0 for extent in shape) <= WIDEST_ROW
    )


def _reads(statement: Statement, variance: Variance) -> list[Read]:
    name = statement.targets[0].name
    return [one for one in variance.reads if one.stream == name and one.position is not None]


def _obstacle(
    statement: Statement, around: Sequence[Statement], variance: Variance, block: frozenset[int]
) -> str | None:
    """Why the points of a block cannot run through a stream together, if they cannot."""
    fold, name = statement.expression, statement.targets[0].name
    if not isinstance(fold, Reduction):
        raise TypeError("streams are folds")
    if any(True for body in _bodies(fold) for _ in streams_of(body)):
        return f"the rows of {name} are not staged: each of them is used for a whole stream inside"
    if len(statement.targets) != len(fold.neutral) or any(atom.type.rank for atom in fold.neutral):
        return f"stream {name} is not tiled: it gives more than scalars"
    if variance.of(fold.width) & block:
        return f"stream {name} is not tiled: its length {fold.width} changes within a block"
    for outer in around:
        what = outer.targets[0].name
        match outer.expression:
            case nodes.Map(width=width) | nodes.Reduce(width=width) | nodes.Redomap(width=width):
                if variance.of(width) & block:
                    return f"stream {name} is not tiled: the length {width} of {what} around it changes within a block"
            case nodes.Loop(form=nodes.ForLoop(bound=bound)):
                if variance.of(bound) & block:
                    return f"stream {name} is not tiled: the rounds {bound} of {what} around it change within a block"
            case nodes.If(condition=condition):
                if variance.of(condition) & block:
                    return f"stream {name} is not tiled: the condition of {what} around it changes within a block"
            case other:
                return f"stream {name} is not tiled: it lies inside the {type(other).__name__.lower()} {what}"
    return None


def _bodies(fold: Reduction) -> list[nodes.Body]:
    return [fold.combine.body, *([fold.function.body] if isinstance(fold, nodes.Redomap) else [])]


def _traffic(tiling: StreamTiling, found: Sequence[tuple[Statement, tuple[Statement, ...]]]) -> float:
    """Elements read from memory for each point and row, summed over the arrays of all innermost streams."""
    total = 0.0
    for statement, _ in found:
        staged = tiling.staged(statement.targets[0].name)
        for read in _reads(statement, tiling.variance):
            reuse = math.prod(tiling.tile[d] for d in tiling.block if d not in read.variant)
            total += 1 / reuse if read.position in staged else 1.0
    return total


def _why_not(nest: Nest, variance: Variance, found: Sequence[tuple[Statement, tuple[Statement, ...]]]) -> Iterator[str]:
    every = frozenset(range(len(nest.space)))
    for statement, around in found:
        reads = _reads(statement, variance)
        for read in reads:
            if read.variant == every:
                yield (
                    f"not tiled: array {read.array} is variant to every parallel dimension, so no element is used twice"
                )
            elif not _fits(read):
                yield f"not tiled: rows of {read.array} of type {read.array.type.row} are too large to be staged whole"
        for d in sorted(every):
            reason = _obstacle(statement, around, variance, frozenset((d,)))
            if reason is not None:
                yield reason


def tiling_text(tiling: StreamTiling) -> str:
    """One line for a person."""
    names = {(one.stream, one.position): one.array.name for one in tiling.variance.reads}
    staged = ", ".join(names[stream.name, position] for stream in tiling.streams for position in stream.staged)
    return f"{_blocks_text(tiling)} stage {tiling.length} rows at a time of {staged} in shared memory"


def _blocks_text(tiling: StreamTiling) -> str:
    return f"blocks of {' x '.join(f'{tiling.tile[d]} of {tiling.nest.space[d]}' for d in tiling.block)} points"
