"""Histograms on a CPU: the bins of some rows are computed in vectors, then the values are combined into copies of bins.

    for the rows of a piece, BATCH at a time:
        for each row, in vectors:  at[r] = its bin, or the one behind the last where that does not exist
        for each row r:            ask for the line of own[.., at[r]], if there are many bins
        for each row r:            own[r % copies, at[r]] = combine(own[r % copies, at[r]], value of r)
    for each bin, in vectors:      the copies are combined

Values that are only read from an array are read row by row; so are bins of 64 bits with copies in the first cache,
where what has just been written in vectors and is read in parts would cost a cycle a row more.

A row that goes into the bin of the row before it would wait until that one's result can be read from memory again:
neighbouring rows have bins of their own. No row is tested by a jump, since those out of range have a bin, too. With one
copy, values are combined where the results lie.

Sums of floats are trees: after max(LEAST_ROWS, ROWS_PER_BIN bins) rows the bins are added to others and begun anew, and
these after FAN times so many rows. A value goes through so many additions at most, but where the values are spread
evenly over the bins only through ROWS_PER_BIN + FAN + n / (FAN ROWS_PER_BIN bins).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tilewright.ir.nodes import Lambda, Type
from tilewright.ir.scalars import BOOL, I32, I64, U32, U64, ScalarType, compute_type
from tilewright.ir.sizes import Size, maximum, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import Cast, Constant, Expression, Let, Load, Name, Prefetch, integer, operation
from tilewright.kernel.traversal import depends_on
from tilewright.machine.model import Machine
from tilewright.passes.items.attempts import ItemState
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, call, row_of, write
from tilewright.passes.items.lower_scalar import Value, lower_atom, lower_size
from tilewright.passes.items.sum_trees import grows_errors
from tilewright.passes.points.asked_ahead import READ_BYTES
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.points.point_loops import emit_points
from tilewright.passes.segments.form import Chunks, Histograms, Row
from tilewright.passes.segments.points import part

BATCH = 256
"""Rows whose bins are computed together: they stay in the first cache, and the next ones are already being fetched."""
COPIES = 4
LEAST_ROWS, ROWS_PER_BIN, FAN = 1024, 64, 64
"""Rows of a node of a tree of sums, at least and for each bin (clearing its bins takes a thirtieth of the time), and
nodes of one above them.
"""
MOST_BINS = 2**31 - 2
"""Bins whose numbers are held in 32 bits."""

Staged: TypeAlias = Callable[[Size], Value]
"""A value of row r of a batch; one that is only read from memory is read again."""


def copies_of_bins(machine: Machine, width: int, bins: int, bytes_per_bin: int) -> int:
    """Copies of the bins that pay: all of them in half of the first cache, and cleared in little of the time.

    Example:
        >>> from tilewright.machine.named import CPU_AVX512
        >>> [copies_of_bins(CPU_AVX512, 100_000, bins, 4) for bins in (256, 100_000)]
        [4, 1]
    """
    fits = 2 * COPIES * bins * bytes_per_bin <= machine.l1_bytes
    return COPIES if fits and bins * COPIES <= 4 * width else 1


def sums_are_trees(combine: Lambda, width: int, bins: int) -> bool:
    """Whether the sums of so many rows are to be trees: they are of floats, and there is more than one node."""
    real = not any(one.type.element.is_complex or one.type.element == BOOL for one in combine.parameters)
    return real and grows_errors(combine) and width > max(LEAST_ROWS, ROWS_PER_BIN * bins)


def in_nodes(
    item: Item,
    extent: Size,
    each: Size,
    write: Callable[[Size, Size], None],
    end: Callable[[], None],
    end_all: Callable[[], None],
) -> None:
    """`write(first, count)` for `each` of the extent's indices at a time, an `end` after each of these nodes of the
    tree, and an `end_all` after each FAN of them.
    """

    def node(first: Size) -> None:
        write(first, minimum(each, extent - first))
        end()

    def nodes(number: Size) -> None:
        first = number * FAN * each
        some = minimum(FAN * each, extent - first)
        item.loop((some + each - 1) // each, "node", lambda k: node(first + k * each))
        end_all()

    item.loop((extent + FAN * each - 1) // (FAN * each), "nodes", nodes)


def cached_points(
    histograms: Histograms, pieces: Chunks | None, copies: int, wide: bool = False, tree: bool = False
) -> Points:
    """Each point combines the rows of a segment, or with `pieces` those of a piece of one into bins of its own.

    The first piece goes on from the given bins. There are more bins than `MOST_BINS` if they are `wide`. As a `tree`,
    the bins are added to others, and cleared, after so many rows that this takes little of the time.
    """

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        mine = [part(place, at) for place in places]
        _Bins(item, histograms, copies, mine, wide, tree).write(at, pieces)

    space = histograms.outer if pieces is None else (size(pieces.count), *histograms.outer)
    return Points(space, write_point)


class _Bins:
    """The work of one point, into the bins at `places`."""

    def __init__(self, item: Item, histograms: Histograms, copies: int, places: Places, wide: bool, tree: bool) -> None:
        self.wide, self.tree = wide, tree
        self.item, self.histograms, self.copies, self.places = item, histograms, copies, places
        self.own: Places = places
        self.middle: Places = ()
        self.apart = copies > 1 or tree
        if self.apart:
            self.own = self._allocated(size(copies), histograms.bins + 1)
        if tree:
            self.middle = self._allocated(histograms.bins)

    def _allocated(self, *shape: Size) -> Places:
        elements = [compute_type(atom.type.element) for atom in self.histograms.neutral]
        return [self.item.allocate(Type(one, shape), "bins") for one in elements]

    def write(self, at: Sequence[Size], pieces: Chunks | None) -> None:
        """Set the bins, combine the rows into them, and the copies."""
        item, histograms = self.item, self.histograms
        start, length, segment = size(0), histograms.width, at
        if pieces is not None:
            segment, start = at[1:], at[0] * size(pieces.length)
            length = minimum(size(pieces.length), histograms.width - start)
        self._begin(segment, at[0] if pieces is not None else None)
        row = (histograms.row if self.wide else histograms.narrow or histograms.row)(item, segment)
        first = self.item.named(lower_size(start, item.emit), "start")
        count = self.item.named(lower_size(length, item.emit), "length")

        def batch(number: Size) -> None:
            begin = number * BATCH
            self._batch(row, first + begin, minimum(size(BATCH), count - begin))

        batches = (count + BATCH - 1) // BATCH
        if self.tree:
            self._in_pieces(batches, batch)
        else:
            item.loop(batches, "batch", batch)
        if self.copies > 1 and not self.tree:
            self._end(self.places)

    def _in_pieces(self, batches: Size, batch: Callable[[Size], None]) -> None:
        """All batches, as a tree."""
        item = self.item
        length = maximum(size(LEAST_ROWS // BATCH), (self.histograms.bins * ROWS_PER_BIN + BATCH - 1) // BATCH)
        each = self.item.named(lower_size(length, item.emit), "each")

        in_nodes(
            item,
            batches,
            each,
            lambda first, count: item.loop(count, "batch", lambda k: batch(first + k)),
            lambda: self._end(self.middle),
            lambda: self._independent(
                self.histograms.bins, "bin", lambda bin_: self._join(self.places, self.middle, bin_)
            ),
        )

    def _join(self, into: Places, other: Places, bin_: Size) -> None:
        """Add the value of a bin to that of another one, and begin it anew."""
        pair = [item_load for one in (into, other) for item_load in (self.item.load(place, (bin_,)) for place in one)]
        neutral = [lower_atom(atom, self.item.emit) for atom in self.histograms.neutral]
        for place, value in zip(into, call(self.item, self.histograms.combine, pair), strict=True):
            write(self.item, value, row_of(place, bin_))
        for place, nothing in zip(other, neutral, strict=True):
            self.item.store(place, (bin_,), nothing)

    def _begin(self, segment: Sequence[Size], piece: Size | None) -> None:
        item, emit = self.item, self.item.emit
        given = [
            part(item.as_view(item.arrays[str(one)]), segment) if one.type.rank else lower_atom(one, emit)
            for one in self.histograms.given
        ]
        neutral = [lower_atom(atom, emit) for atom in self.histograms.neutral]
        first = [self._copy(copy) for copy in range(self.copies)]
        if self.tree:
            first = [self.places, *first]

        def copy(bin_: Size) -> None:
            for place, source in zip(first[0], given, strict=True):
                item.store(place, (bin_,), item.load(source, (bin_,)) if isinstance(source, ArrayView) else source)

        def clear(copies: Sequence[Sequence[ArrayView]]) -> Callable[[Size], None]:
            def clear_one(bin_: Size) -> None:
                for own in copies:
                    for place, value in zip(own, neutral, strict=True):
                        item.store(place, (bin_,), value)

            return clear_one

        bins = self.histograms.bins
        if piece is None:
            self._independent(bins, "bin", copy)
        else:
            is_first = emit.let(operation("eq", lower_size(piece, emit), integer(0)), "is_first")
            emit.when(is_first, lambda: self._independent(bins, "bin", copy))
            emit.when(operation("not", is_first), lambda: self._independent(bins, "bin", clear(first[:1])))
        if self.apart:
            self._independent(bins + 1, "bin", clear(first[1:]))
        if self.copies > 1 and not self.tree:
            clear(first[:1])(bins)
        if self.tree:
            self._independent(bins, "bin", clear([self.middle]))

    def _copy(self, number: int) -> Places:
        """The bins of one copy."""
        return [row_of(one, size(number)) for one in self.own] if self.apart else self.own

    # --- rows

    def _batch(self, row: Row, first: Size, length: Size) -> None:
        """At most BATCH rows."""
        item = self.item
        count = self.item.named(lower_size(length, item.emit), "count")
        bins = item.emit.let(lower_size(self.histograms.bins, item.emit), "bins")
        short = I64 if self.wide else I32
        (bin_again, *again), checked = self._read_again(lambda r: row(first + r), count)
        places = None if bin_again else self._private(short, "at")
        elements = [compute_type(atom.type.element) for atom in self.histograms.neutral]
        memory = [
            None if only_read else self._private(element, "values")
            for element, only_read in zip(elements, again, strict=True)
        ]

        def existing(number: Expression, type_: ScalarType) -> Expression:
            narrow, unsigned = (Cast(bins, I32), U32) if number.type == I32 else (bins, U64)
            exists = operation("lt", Cast(number, unsigned), Cast(narrow, unsigned))
            return Cast(operation("select", exists, number, narrow), type_)

        def stage(r: Size) -> None:
            (number,), *values = [value for value in row(first + r) if isinstance(value, tuple)]
            if places is not None:
                item.store(places, (r,), (existing(number, short),))
            for value, kept in zip(values, memory, strict=True):
                if kept is not None:
                    item.store(kept, (r,), value)

        def staged(position: int) -> Staged:
            kept = memory[position]
            if kept is not None:
                return lambda r: item.load(kept, (r,))

            def read(r: Size) -> Value:
                found = row(first + r)[1 + position]
                assert isinstance(found, tuple)
                return found

            return read

        def bin_of(r: Size) -> Expression:
            if places is not None:
                return Cast(item.load(places, (r,))[0], I64)
            found = row(first + r)[0]
            assert isinstance(found, tuple)
            return existing(found[0], I64)

        if checked:
            stop = item.emit.let(lower_size(count, item.emit), "stop")
            emit_points(item, (integer(0), stop), count, stage, alone=False, machine=None)
        elif not bin_again or any(memory):
            self._independent(count, "r", stage)
        values = [staged(position) for position in range(len(memory))]
        if places is not None and self.copies == 1:
            self._ask(bin_of, count, bins)
        rounds = count // self.copies

        def round_(k: Size) -> None:
            for copy in range(self.copies):
                self._combine(copy, bin_of, values, k * self.copies + copy)

        item.loop(rounds, "k", round_)
        if self.copies > 1:
            done = rounds * self.copies
            item.loop(count - done, "k", lambda k: self._combine(0, bin_of, values, done + k))

    def _ask(self, bin_of: Callable[[Size], Expression], count: Size, bins: Expression) -> None:
        """For the lines of a batch's bins, where no cache near by holds all of these."""
        item = self.item
        for own in self._copy(0):

            def line(r: Size, own: ArrayView = own) -> None:
                at = item.named(bin_of(r), "bin")
                item.emit.emit(Prefetch(item.buffer_of(own), lower_size(own.lmad.flat((at,)), item.emit)))

            many = operation("gt", bins, integer(READ_BYTES // own.element.bytes))
            item.emit.when(item.emit.let(many, "many"), partial(item.loop, count, "r", line))

    def _read_again(self, row: Row, count: Size) -> tuple[list[bool], bool]:
        """For the bin of a row and its values whether they are only read, where the rows lie, so that they can be read
        once more; and whether indices are checked in between.
        """
        item = self.item
        kept, checks = ItemState(item), len(item.checks)
        with item.emit.scope() as computed:
            values = [value for value in row(item.index("r", count)[1]) if isinstance(value, tuple)]
        checked = len(item.checks) > checks
        kept.restore(item)
        read: set[str] = set()  # and what is computed of it
        only_read: set[str] = set()
        for one in computed:
            if isinstance(one, Let) and depends_on(one.value, read):
                if isinstance(one.value, Load) and not depends_on(one.value.index, read):
                    only_read.add(one.name)
                read.add(one.name)
        known = [
            all(isinstance(one, Constant) or (isinstance(one, Name) and one.name in only_read) for one in value)
            for value in values
        ]
        known[0] = known[0] and not checked and self.copies > 1 and values[0][0].type == I64
        return known, checked

    def _combine(self, copy: int, bin_of: Callable[[Size], Expression], staged: Sequence[Staged], r: Size) -> None:
        """Row r of the batch into its bin of one copy."""
        item = self.item
        bin_ = item.emit.let(bin_of(r), "bin")
        own = self._copy(copy)

        def put() -> None:
            at = self.item.named(bin_, "bin")
            values = [one(r) for one in staged]
            old = [item.load(one, (at,)) for one in own]
            for place, value in zip(own, call(item, self.histograms.combine, [*old, *values]), strict=True):
                write(item, value, row_of(place, at))

        if self.apart:
            put()
        else:
            bins = lower_size(self.histograms.bins, item.emit)
            item.emit.when(item.emit.let(operation("ne", bin_, bins), "exists"), put)

    def _end(self, into: Places) -> None:
        """The copies combined by halves; as a tree, with what is there, and begun anew."""
        item = self.item
        neutral = [lower_atom(atom, item.emit) for atom in self.histograms.neutral]

        def total(bin_: Size) -> None:
            values = [[item.load(one, (bin_,)) for one in self._copy(copy)] for copy in range(self.copies)]
            while len(values) > 1:
                pairs = zip(values[::2], values[1::2], strict=True)
                values = [
                    [one for one in call(item, self.histograms.combine, [*a, *b]) if isinstance(one, tuple)]
                    for a, b in pairs
                ]
            found: Sequence[AnyValue] = values[0]
            if self.tree:
                found = call(item, self.histograms.combine, [*(item.load(one, (bin_,)) for one in into), *found])
                for copy in range(self.copies):
                    for place, nothing in zip(self._copy(copy), neutral, strict=True):
                        item.store(place, (bin_,), nothing)
            for place, value in zip(into, found, strict=True):
                write(item, value, row_of(place, bin_))

        self._independent(self.histograms.bins, "bin", total)

    # --- help

    def _private(self, element: ScalarType, hint: str) -> ArrayView:
        """One element for each row of a batch."""
        return self.item.own(hint, element, BATCH)

    def _independent(self, extent: Size, hint: str, write_one: Callable[[Size], None]) -> None:
        """A loop that may run in vectors, unless something inside has memory of its own or is checked."""
        item = self.item
        stop = item.emit.let(lower_size(extent, item.emit), "stop")
        item.loop_in_lanes(stop, extent, hint, write_one)
