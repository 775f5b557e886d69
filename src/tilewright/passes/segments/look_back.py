"""Long scans in a single pass: each tile looks back at those before it, so that rows are read once and written once.

A block takes the next tile by an atomic counter, so that all tiles before it have begun, scans it in shared memory and
then needs what these give. With T threads in a block, tile k publishes one record for those behind it:

    record k + 1  =  what tile k gives,               if T does not divide k + 1
                     what tiles 0, 1, ..., k give     if it does
    what stands before tile k  =  records b, b + 1, ..., k combined, where b = k - k mod T and record 0 is neutral

Each thread waits for one of these records, and a tree in shared memory combines them. Only every T-th tile lets others
wait for what it waits for itself. A look-back that combines whatever it finds first [Merrill and Garland 2016,
"Single-pass parallel prefix scan with decoupled look-back"] gives sums of floats other bits in every run; here the
brackets depend on sizes alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Type, Variable
from tilewright.ir.scalars import BOOL, I64, U32
from tilewright.ir.sizes import Size, size
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Buffer, Constant, Expression, Load, Name, Store, add, integer, multiply, operation
from tilewright.passes.items.item_memory import WORKER, Item
from tilewright.passes.items.lower_scalar import Value, assign_values, declare_value, lower_atom, lower_size
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.points.point_kernels import decompose
from tilewright.passes.segments.form import Chunks, Segments, partial_variables, space_of
from tilewright.passes.segments.groups import Group, tree
from tilewright.passes.segments.points import scan_points
from tilewright.passes.segments.scans import Tiles, make_tiles
from tilewright.runtime.host import ITEMS

_NOTHING, _PUBLISHED = Constant(0, U32), Constant(1, U32)


@dataclass(frozen=True)
class Records:
    """What the tiles publish: `values` in memory, once `states` says that they are there; and who takes which tile.

    The record k + 1 of a segment is at position k. `tickets` has one element, the number of tiles taken.
    """

    tickets: Variable
    states: Variable
    values: tuple[Variable, ...]

    @property
    def cleared(self) -> tuple[Variable, Variable]:
        """What is zero before the first tile."""
        return self.states, self.tickets


def records_of(segments: Segments, targets: Sequence[Variable], chunks: Chunks) -> Records:
    """The records of a scan whose chunks are tiles."""
    name = targets[0].name
    return Records(
        Variable(f"{name}.tickets", Type(U32, (size(1),))),
        Variable(f"{name}.states", Type(U32, space_of(segments, chunks))),
        tuple(partial_variables(segments, targets, chunks, "records")),
    )


def clearing_points(records: Records) -> Points:
    """Each point clears the state of a tile; the first one the number of tiles taken."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        states, tickets = places
        item.store(states, at, (_NOTHING,))
        total = lower_size(sum(at, size(0)), item.emit)
        is_first = operation("eq", total, integer(0))
        item.emit.when(is_first, lambda: item.store(tickets, (size(0),), (_NOTHING,)))

    return Points(records.states.type.shape, write_point)


def look_back_scan(segments: Segments, threads: int, rows_each: int, chunks: Chunks, records: Records) -> Points:
    """A scan whose chunks are tiles of `threads` times `rows_each` rows; the records' values are its last targets."""

    def write_blocks(item: Item, places: Places, block: int) -> None:
        emit = item.emit
        thread, number = emit.let(kernel.ThreadIndex(), "thread"), emit.let(kernel.BlockIndex(), "block")
        emit.values[WORKER] = (emit.let(operation("add", multiply(number, integer(block)), thread), "worker"),)
        group = Group(threads, block, thread, thread, integer(0), Constant(True, BOOL))
        taken = Buffer(emit.name("taken"), U32, kernel.Space.SHARED, 1)
        item.private.append(taken)
        with emit.scope() as taking:
            emit.when(operation("eq", thread, integer(0)), lambda: _take(item, records, taken))
            emit.emit(kernel.Barrier())
            tile = emit.let(kernel.Cast(Load(taken, integer(0), U32), I64), "tile")
        with emit.scope() as body:
            at = decompose(item, tile, points.space)
            results = places[: len(places) - len(records.values)]
            tiles = make_tiles(item, segments, chunks, group, rows_each, at, results)
            _Tile(item, segments, group, records, at, tiles).write()
        emit.emit(kernel.While(tuple(taking), operation("lt", tile, emit.value_of(ITEMS)[0]), tuple(body)))

    plain = scan_points(segments, chunks)
    points = dataclasses.replace(plain, group=threads, write_blocks=write_blocks, updates=records.cleared)
    return points


def _take(item: Item, records: Records, taken: Buffer) -> None:
    """The number of the next tile into shared memory."""
    tickets = item.buffer_of(item.as_view(item.arrays[records.tickets.name]))
    old = Name(item.emit.name("old"), U32)
    item.emit.emit(kernel.AtomicUpdate(old.name, "add", tickets, integer(0), Constant(1, U32)))
    item.emit.emit(Store(taken, integer(0), old))


@dataclass(frozen=True)
class _Tile:
    """One tile, number at[0] of the segment at[1:]."""

    item: Item
    segments: Segments
    group: Group
    records: Records
    at: Sequence[Size]
    tiles: Tiles

    def write(self) -> None:
        """Read and scan it, publish, look back, write."""
        emit, tiles, group = self.item.emit, self.tiles, self.group
        number = emit.let(lower_size(self.at[0], emit), "number")
        place = emit.let(operation("mod", number, integer(group.threads)), "place")
        ends = emit.let(operation("eq", place, integer(group.threads - 1)), "ends")
        leads = operation("eq", group.thread, integer(0))
        tiles.read(tiles.where.begin)
        tiles.scan_threads()
        emit.when(operation("and", leads, operation("not", ends)), lambda: self._publish(tiles.total()))
        before = self._look_back(emit.let(operation("sub", number, place), "line"), place)
        emit.when(operation("and", leads, ends), lambda: self._publish(tiles.joined(before, tiles.total())))
        tiles.put(before)
        tiles.write(tiles.where.begin)

    def _look_back(self, line: Expression, place: Expression) -> list[Value]:
        """What stands before the tile: this thread's record, combined with those of the others."""
        item, emit, thread = self.item, self.item.emit, self.group.thread
        values = [declare_value(lower_atom(atom, emit), "record", emit) for atom in self.segments.neutral]
        position = emit.let(operation("sub", operation("add", line, thread), integer(1)), "position")
        exists = operation("and", operation("ge", position, integer(0)), operation("le", thread, place))
        emit.when(exists, lambda: assign_values(values, self._await(item.named(position, "place")), emit))
        shared = self.tiles.spare_sums()
        mine = item.named(thread, "place")
        for array, value in zip(shared, values, strict=True):
            item.store(array, (mine,), value)
        emit.emit(kernel.Barrier())
        tree(item, self.segments, self.group, shared)
        return [item.load(array, (size(0),)) for array in shared]

    def _publish(self, values: Sequence[Value]) -> None:
        """The record that this tile gives."""
        emit = self.item.emit
        for variable, value in zip(self.records.values, values, strict=True):
            buffer, places = self._places(variable, self.at)
            for place, part in zip(places, value, strict=True):
                emit.emit(Store(buffer, place, part, order=kernel.Order.COHERENT))
        buffer, (place,) = self._places(self.records.states, self.at)
        emit.emit(Store(buffer, place, _PUBLISHED, order=kernel.Order.ORDERED))

    def _await(self, position: Size) -> list[Value]:
        """The record at a position, once it has been published."""
        emit, at = self.item.emit, (position, *self.at[1:])
        buffer, (place,) = self._places(self.records.states, at)
        with emit.scope() as looking:
            state = emit.let(Load(buffer, place, U32, order=kernel.Order.ORDERED), "state")
        emit.emit(kernel.While(tuple(looking), operation("eq", state, _NOTHING), ()))
        values: list[Value] = []
        for variable, atom in zip(self.records.values, self.segments.neutral, strict=True):
            buffer, places = self._places(variable, at)
            kinds = [part.type for part in lower_atom(atom, emit)]
            loads = [
                Load(buffer, one, kind, order=kernel.Order.COHERENT) for one, kind in zip(places, kinds, strict=True)
            ]
            values.append(tuple(emit.let(load, "record") for load in loads))
        return values

    def _places(self, variable: Variable, at: Sequence[Size]) -> tuple[Buffer, list[Expression]]:
        """The buffer and where in it an element's components lie."""
        emit, view = self.item.emit, self.item.as_view(self.item.arrays[variable.name])
        flat = emit.let(lower_size(view.lmad.flat(at), emit), "at")
        parts = 2 if view.element.is_complex else 1
        first = emit.let(multiply(flat, integer(parts)), "at")
        return self.item.buffer_of(view), [add(first, integer(part)) for part in range(parts)]
