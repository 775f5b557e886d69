"""The code of a tiled nest on machines whose blocks share memory [S3].

    for each block of points:                                  -- one point for each thread
      for each piece of `length` rows of the stream:
        the threads copy the piece of each staged array to shared memory; barrier
        for each row of the piece: every thread folds it; barrier

Threads past the end of a dimension compute what its last point does, so that all meet at every barrier, and write
nothing. An array that changes with a dimension of the block has a piece for each of the block's points along it, whose
rows are padded by one row against bank conflicts [S3, second observation].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.lmad import LMAD
from tilewright.ir.nodes import Reduction
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE, ZERO, Size, product, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Barrier, Constant, Expression, For, If, Name, Space, ThreadIndex, operation
from tilewright.passes.core.variance import Read
from tilewright.passes.items import lower_folds
from tilewright.passes.items.accumulators import Accumulators
from tilewright.passes.items.item_memory import ArrayValue, Item
from tilewright.passes.items.lower_items import AnyValue, bind, bind_index, call, lower_body, lower_statement
from tilewright.passes.items.lower_scalar import lower_size
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.points import lower_reduction  # noqa: F401  # folds are registered there
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.streams.choice import StreamTiling


def tile_points(tiling: StreamTiling) -> Points:
    """The blocks of a nest as points, each the work of one block of threads."""
    space = tuple(
        extent if tile == 1 else (extent + tile - 1) // tile
        for extent, tile in zip(tiling.nest.space, tiling.tile, strict=True)
    )
    return Points(space, lambda item, at, places: _Block(item, tiling, at).write(places), by_block=True)


@dataclass(frozen=True)
class _Piece:
    """Memory for a piece of an array: its view for the thread at hand, and what is copied into it."""

    position: int
    source: ArrayView
    shared: ArrayView
    along: tuple[int, ...]  # dimensions of the block with which the array changes


class _Block:
    """The code of one block: `index[d]` is this thread's point, `first[d]` the block's first one."""

    def __init__(self, item: Item, tiling: StreamTiling, at: Sequence[Size]) -> None:
        self.item, self.tiling = item, tiling
        self.thread = item.emit.let(ThreadIndex(), "thread")
        self.inside: list[Expression] = []
        self.first: dict[int, Size] = {}
        self.lane: dict[int, Size] = {}
        self.index: list[Size] = list(at)
        rest: Expression = self.thread
        for d in reversed(tiling.block):
            tile = Constant(tiling.tile[d], I64)
            lane = rest if d == tiling.block[0] else operation("mod", rest, tile)
            rest = rest if d == tiling.block[0] else item.emit.let(operation("floordiv", rest, tile), "rest")
            self.lane[d] = self._core(lane, "lane")
            self.first[d] = at[d] * tiling.tile[d]
            place = item.emit.let(lower_size(self.first[d] + self.lane[d], item.emit), "place")
            extent = item.emit.let(lower_size(tiling.nest.space[d], item.emit), "extent")
            self.inside.append(operation("lt", place, extent))
            last = operation("sub", extent, Constant(1, I64))
            self.index[d] = self._core(operation("min", place, last), "point", tiling.nest.space[d])

    def _core(self, value: Expression, hint: str, extent: Size | None = None) -> Size:
        """A value of the kernel as a size."""
        name = self.item.emit.let(value, hint)
        core = f"%{hint}.{self.item.emit.name('of')}"
        self.item.emit.values[core] = (name,)
        self.item.inner.add(core)
        if extent is not None:
            self.item.ranges[core] = extent
        return size(core)

    def write(self, places: Places) -> None:
        """All points of the block; their results are written by the threads that are inside."""
        item = self.item
        for stream in self.tiling.streams:
            item.streams[stream.name] = functools.partial(self.stream, name=stream.name, staged=stream.staged)
        values = self._values()
        if item.scratch:
            raise LoweringError("the points need memory of their own, which a block of threads does not have")
        store = [(place, value) for place, value in zip(self._places(places), values, strict=True) if place is not None]
        inside = functools.reduce(lambda a, b: operation("and", a, b), self.inside)

        def write_results() -> None:
            for place, value in store:
                assert isinstance(value, tuple)
                item.store(place, tuple(self.index), value)

        item.emit.when(item.emit.let(inside, "inside"), write_results)

    def _values(self) -> Sequence[AnyValue]:
        """The results of this thread's point."""
        item, nest = self.item, self.tiling.nest
        for (function, variables, prefix), index in zip(nest.levels, self.index, strict=False):
            rows = [item.row(array, index) for array in lower_folds.arrays_of(item, variables)]
            if function is nest.levels[-1][0]:
                return call(item, function, rows)
            for parameter, row in zip(function.parameters, rows, strict=True):
                bind(item, parameter, row)
            for statement in prefix:
                lower_statement(item, statement)
        for variable, index, extent in zip(nest.indices, self.index, nest.space, strict=True):
            bind_index(item, variable, index, extent)
        return lower_body(item, nest.body)

    def _places(self, places: Places) -> list[ArrayView | None]:
        return [None if position is None else places[position] for position in self.tiling.nest.order]

    # --- streams

    def stream(self, fold: Reduction, item: Item, name: str, staged: Sequence[int]) -> Sequence[AnyValue]:
        """The accumulators of a stream, piece by piece."""
        emit, length = item.emit, self.tiling.length
        arrays = lower_folds.arrays_of(item, fold.arrays)
        reads = {one.position: one for one in self.tiling.variance.reads if one.stream == name}
        pieces = [self._piece(reads[position], arrays[position]) for position in staged]
        accumulators = Accumulators(item)
        nowhere = [None] * len(fold.neutral)
        accumulators.begin(fold.neutral, [atom.type for atom in fold.neutral], nowhere)
        function = fold.function if isinstance(fold, nodes.Redomap) else None
        shared = {one.position: one.shared for one in pieces}

        def row(start: Size, k: Size) -> None:
            elements = [
                item.row(shared[position], k) if position in shared else item.row(array, start + k)
                for position, array in enumerate(arrays)
            ]
            values = elements if function is None else call(item, function, elements)
            accumulators.update(fold.combine, [*accumulators.values, *values])

        def piece(number: Size) -> None:
            start = self._core(lower_size(number * length, emit), "start")
            rest = operation("sub", lower_size(fold.width, emit), lower_size(start, emit))
            count = emit.let(operation("min", Constant(length, I64), rest), "count")
            for one in pieces:
                self._copy(one, start, count)
            emit.emit(Barrier())
            branches = []
            for stop in (size(length), self._core(count, "rows")):
                with emit.scope() as statements:
                    item.loop(stop, "k", lambda k: row(start, k))
                branches.append(tuple(statements))
            emit.emit(If(operation("eq", count, Constant(length, I64)), *branches))
            emit.emit(Barrier())

        item.loop((fold.width + length - 1) // length, "piece", piece)
        return accumulators.values

    def _piece(self, read: Read, array: ArrayValue) -> _Piece:
        """Shared memory for a piece of an array, with all of its points along the block where it changes with them."""
        item, tiling = self.item, self.tiling
        source = item.as_view(array)
        along = self._along(read, source)
        row = product(source.lmad.shape[1:])
        assert row.constant is not None
        pitch = (tiling.length + (1 if along else 0)) * row.constant
        points = math.prod(tiling.tile[d] for d in along)
        buffer = item.buffer_of(item.own("staged", source.element, points * pitch, Space.SHARED))
        offset, step = ZERO, pitch
        for d in reversed(along):
            offset = offset + self.lane[d] * step
            step *= tiling.tile[d]
        strides = [ONE]
        for extent in reversed(source.lmad.shape[1:]):
            strides.insert(0, strides[0] * extent)
        lmad = LMAD(offset, (size(tiling.length), *source.lmad.shape[1:]), tuple(strides))
        return _Piece(read.position or 0, source, ArrayView(buffer.name, source.element, lmad), along)

    def _along(self, read: Read, view: ArrayView) -> tuple[int, ...]:
        """The dimensions of the block at whose next point an array is another one.

        Raises:
            LoweringError: if where it lies at other points is not known from their indices.
        """
        if self.item.buffer_of(view).space is not Space.GLOBAL or any(
            one.name == view.buffer for one in self.item.scratch
        ):
            raise LoweringError(f"not tiled: array {read.array} is computed by each thread")
        changing = [d for d in self.tiling.block if d in read.variant]
        names = {one for part in (view.lmad.offset, *view.lmad.shape, *view.lmad.strides) for one in part.names}
        own = {d: self._names(d) for d in changing}
        known = self.tiling.variance.names
        for name in sorted(names.difference(*own.values())) if changing else ():
            if name in self.item.inner and (name not in known or known[name] & set(changing)):
                raise LoweringError(f"not tiled: where array {read.array} lies changes within a block, with {name}")
        return tuple(d for d in changing if names & own[d])

    def _names(self, d: int) -> set[str]:
        """The names of this thread's index in a dimension."""
        names = set(self.index[d].names)
        if self.tiling.nest.indices:
            names.add(self.tiling.nest.indices[d].name)
        return names

    def _copy(self, piece: _Piece, start: Size, count: Expression) -> None:
        """The threads copy rows start .. start+count, of every point of the block along which the array changes."""
        item, tiling, emit = self.item, self.tiling, self.item.emit
        points = math.prod(tiling.tile[d] for d in piece.along)
        number = Name(emit.name("copied"), I64)
        with emit.scope() as body:
            rest: Expression = number
            row: Expression = number
            at: dict[str, Size] = {}
            lanes = {name: ZERO for d in piece.along for name in self.lane[d].names}
            if piece.along:
                length = Constant(tiling.length, I64)
                row = emit.let(operation("mod", number, length), "row")
                rest = emit.let(operation("floordiv", number, length), "rest")
            target = piece.shared.lmad.substitute(lanes).offset
            for d in reversed(piece.along):
                tile = Constant(tiling.tile[d], I64)
                lane = rest if d == piece.along[0] else operation("mod", rest, tile)
                other = self._core(lane, "other")
                rest = rest if d == piece.along[0] else emit.let(operation("floordiv", rest, tile), "rest")
                extent = lower_size(tiling.nest.space[d], emit)
                place = operation("min", lower_size(self.first[d] + other, emit), _minus_one(extent))
                there = self._core(place, "there")
                at |= dict.fromkeys(self._names(d), there)
                (name,) = self.lane[d].names
                target = target + other * (piece.shared.lmad.offset.substitute({name: ONE}) - _without(piece, name))
            where = self._core(row, "row")
            source = piece.source.lmad.substitute(at)
            view = ArrayView(piece.source.buffer, piece.source.element, source)
            shared = ArrayView(
                piece.shared.buffer,
                piece.shared.element,
                LMAD(target, piece.shared.lmad.shape, piece.shared.lmad.strides),
            )

            def copy_row() -> None:
                shape = source.shape[1:]
                item.each(shape, lambda one: item.store(shared, (where, *one), item.load(view, (start + where, *one))))

            emit.when(operation("lt", row, count), copy_row)
        stop = Constant(points * tiling.length, I64)
        emit.emit(For(number.name, self.thread, stop, tuple(body), step=Constant(tiling.points, I64)))


def _without(piece: _Piece, name: str) -> Size:
    return piece.shared.lmad.offset.substitute({name: ZERO})


def _minus_one(extent: Expression) -> Expression:
    return operation("sub", extent, Constant(1, I64))
