"""Scans by one worker of a CPU, in vectors, reading each row once.

    for each strip of STRIP rows: xs = its rows; for each vector of the strip: ys = prefixes of xs; ys = carry + ys

The rows of a strip are computed by a loop of their own, which LLVM can put into vectors, and lie in the first cache.
The prefixes of a vector are found in log2(lanes) steps [Hillis and Steele 1986, "Data parallel algorithms"]: in step s
lane l is combined with lane l - 2^s. The order of rows is kept, so that the operator need not be commutative; that it
is associative is what a scan asks for. The error of a sum is that of the vectors' trees and of a chain of n / lanes.

Rows may also come in chunks, each of which is scanned by itself; what the chunks before give is combined with that,
`before + ys`. So one worker that takes all chunks agrees in each bit with several that first find what each of them
gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.ir import nodes
from tilewright.ir.lmad import row_major
from tilewright.ir.nodes import Atom, Lambda, Variable
from tilewright.ir.scalars import BOOL, I64, U8, ScalarType, compute_type
from tilewright.ir.sizes import ONE, ZERO, Size, minimum, size
from tilewright.ir.traversal import all_statements
from tilewright.ir.views import ArrayView
from tilewright.kernel.ir import (
    Broadcast,
    Buffer,
    Cast,
    Constant,
    Expression,
    FirstLanes,
    For,
    If,
    Lane,
    Load,
    Name,
    Shuffle,
    Space,
    Store,
    VectorType,
    element_of,
    integer,
    operation,
)
from tilewright.passes import lower_folds
from tilewright.passes.item_memory import Item
from tilewright.passes.lower_folds import Rows
from tilewright.passes.lower_items import AnyValue, lower_expression, row_of, write
from tilewright.passes.lower_scalar import assign_values, lower_atom, lower_size
from tilewright.passes.scalar_values import Value, memory_element
from tilewright.passes.speculation import Speculation
from tilewright.passes.vectorise import as_bytes, as_mask, is_vectorisable, lower_lambda_vector

STRIP = 512
"""Rows of a strip: a few arrays of them stay in the first cache."""
VECTOR_BYTES = 64
"""Of the widest accumulator. LLVM splits such a vector where registers are smaller."""
LEAST_ROWS = 32
"""Fewer rows are scanned one after another."""


def scans_in_lanes(item: Item, combine: Lambda, neutral: Sequence[Atom]) -> bool:
    """Whether the processor has vectors, and the operator is code on real scalars without loops."""
    simple = not any(atom.type.rank or atom.type.element.is_complex for atom in neutral)
    if not simple or not item.vector_lanes or item.lanes is not None:
        return False
    return not any(one.type.rank for one in combine.parameters) and is_vectorisable([combine])


@dataclass(frozen=True)
class Before:
    """What stands before the rows, from which chunks of `chunk` rows, a multiple of STRIP, go on (None: one chunk)."""

    values: Sequence[Atom]
    chunk: Size | None = None


def scan_rows(
    item: Item,
    extent: Size,
    combine: Lambda,
    neutral: Sequence[Atom],
    rows: Rows,
    mapped: Sequence[ArrayView],
    scanned: Sequence[ArrayView],
    start: Size = ZERO,
    lanes: bool = True,
    before: Before | None = None,
    sources: Sequence[Variable] = (),
) -> None:
    """`lower_folds.fold` with the accumulators written to `scanned` after every row; with `lanes` in vectors where
    there are enough rows (always, if something stands before them) and the operator allows it. `sources` are arrays
    whose elements are the rows, if they are no more than that.
    """
    direct = _direct(item, sources)
    nowhere: list[ArrayView | None] = [None] * len(neutral)
    first = neutral if before is None else before.values

    def in_order() -> None:
        lower_folds.fold(item, extent, combine, first, rows, nowhere, mapped, scanned, start=start)

    if not (lanes and scans_in_lanes(item, combine, neutral)):
        in_order()
        return

    def write_strip(strip: Strip) -> None:
        if not direct:
            strip.read(rows, start, mapped)
        loaded = [_part(one, start + strip.first) for one in direct]
        strip.scan([_part(place, start + strip.first) for place in scanned], loaded)

    with item.emit.scope() as in_strips:
        each_strip(item, extent, combine, neutral, write_strip, before)
    if before is not None:
        for one in in_strips:
            item.emit.emit(one)
        return
    with item.emit.scope() as one_by_one:
        in_order()
    many = operation("ge", lower_size(extent, item.emit), integer(LEAST_ROWS))
    item.emit.emit(If(item.emit.let(many, "many"), tuple(in_strips), tuple(one_by_one)))


def _direct(item: Item, sources: Sequence[Variable]) -> list[ArrayView]:
    """The arrays, if all of them can be loaded as vectors; else none."""
    views = [item.arrays.get(one.name) for one in sources]
    found = [
        one
        for one in views
        if isinstance(one, ArrayView) and one.lmad.strides == (ONE,)
        and one.element != BOOL and compute_type(one.element) == one.element
    ]  # fmt: skip
    return found if len(found) == len(views) else []


def total_of_rows(
    item: Item, extent: Size, combine: Lambda, neutral: Sequence[Atom], rows: Rows, start: Size,
    sources: Sequence[Variable] = (),
) -> list[Value]:  # fmt: skip
    """What `scan_rows` in vectors has at the end of a chunk, to the bit, without writing anything.

    That is only so if the extent is a multiple of the lanes; otherwise a neutral element is combined once too often.
    """

    direct = _direct(item, sources)

    def read(strip: Strip) -> list[ArrayView]:
        if not direct:
            strip.read(rows, start, ())
        return [_part(one, start + strip.first) for one in direct]

    return total_of_strips(item, extent, combine, neutral, read)


def total_of_strips(
    item: Item, extent: Size, combine: Lambda, neutral: Sequence[Atom], read: Callable[[Strip], Sequence[ArrayView]]
) -> list[Value]:
    """`total_of_rows` of rows whose values `read` puts into strips, or gives as vectors in memory."""

    def write_strip(strip: Strip) -> None:
        strip.scan(None, read(strip))

    carries = each_strip(item, extent, combine, neutral, write_strip)
    totals = []
    for (carry,), atom in zip(carries, neutral, strict=True):
        value = item.emit.let(Lane(carry, 0, element_of(carry.type)), "total")
        totals.append(given_value(item, value, atom.type.element))
    return totals


@lower_expression.register(nodes.Scan)
@lower_expression.register(nodes.Scanomap)
def _(expression: nodes.Scan | nodes.Scanomap, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    count = len(expression.neutral)
    places = [item.target(target) for target in targets]
    function = expression.function if isinstance(expression, nodes.Scanomap) else None
    rows = lower_folds.function_rows(item, function, lower_folds.arrays_of(item, expression.arrays))
    lanes = function is None or is_plain(function.body)
    given = (item, expression.width, expression.combine, expression.neutral, rows, places[count:], places[:count])
    scan_rows(*given, lanes=lanes, sources=expression.arrays if function is None else ())
    return places


_PLAIN = nodes.Apply | nodes.Cast | nodes.Alias | nodes.SizeValue | nodes.Index | nodes.If


def is_plain(body: nodes.Body) -> bool:
    """Whether a body is code on scalars without loops, which may read elements of arrays."""
    return all(
        isinstance(one.expression, _PLAIN) and all(target.type.rank == 0 for target in one.targets)
        for one in all_statements(body)
    )


def _part(place: ArrayView, first: Size) -> ArrayView:
    """The rows of a vector of results from `first` on."""
    lmad = place.lmad
    return ArrayView(place.buffer, place.element, type(lmad)(lmad.flat((first,)), lmad.shape, lmad.strides))


# --- rows in any order ------------------------------------------------------------------------------------------------


def each_row(item: Item, count: Size, write_row: Callable[[Size], None]) -> None:
    """for k < count: what `write_row(k)` emits, whose rounds neither write what another reads nor anything twice.

    Indices are checked for all rounds together, without branches that would keep LLVM from using vectors; if one is
    out of range, the loop runs once more and records the first.
    """
    emit = item.emit
    stop = emit.let(lower_size(count, emit), "stop")
    bad = emit.declare(Constant(False, BOOL), "any_bad")
    name, core = item.index("k", count)
    around, item.speculation = item.speculation, Speculation(bad)
    memory = len(item.private), len(item.scratch), len(item.checks)
    with emit.scope() as body:
        write_row(core)
    checked, item.speculation = item.speculation.used, around
    independent = memory == (len(item.private), len(item.scratch), len(item.checks))
    emit.emit(For(name.name, Constant(0, I64), stop, tuple(body), independent=independent))
    if checked:
        emit.when(bad, lambda: item.loop(count, "k", write_row))


# --- strips -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strip:
    """`count` rows from row `first` on, whose values lie in private arrays, and what the rows before give.

    Attributes:
        arrays: one for each accumulator; bools lie there as bytes.
        carries: for each accumulator a vector, all lanes of which are what the chunk's rows before the strip give.
        befores: likewise what stands before the chunk; empty if nothing does.
    """

    item: Item
    combine: Lambda
    neutral: Sequence[Atom]
    first: Size
    count: Size
    lanes: int
    arrays: Sequence[ArrayView]
    carries: Sequence[tuple[Name, ...]]
    befores: Sequence[tuple[Name, ...]] = ()

    def read(self, rows: Rows, start: Size, mapped: Sequence[ArrayView]) -> None:
        """Compute the values of the strip's rows, which count from row `start` on."""
        nowhere: list[ArrayView | None] = [None] * len(self.neutral)

        def row(k: Size) -> None:
            at = start + self.first + k
            values = rows(at, nowhere + [row_of(place, at) for place in mapped])
            for array, value in zip(self.arrays, values, strict=False):
                assert isinstance(value, tuple)
                self.item.store(array, (k,), held_value(value))

        each_row(self.item, self.count, row)

    def scan(self, places: Sequence[ArrayView] | None, sources: Sequence[ArrayView] = ()) -> None:
        """Scan the values into `places`, arrays of `count` rows; in place if there are none, and not to be written at
        all but only to be known at the end for None. The values are those of the strip, or of `sources`.
        """
        item, emit = self.item, self.item.emit
        if not sources:
            self._pad()
        count = lower_size(self.count, emit)
        lanes = integer(self.lanes)
        whole = emit.let(operation("mul", operation("floordiv", count, lanes), lanes), "whole")
        name, core = item.index("v", self.count)
        with emit.scope() as body:
            self._vector(core, sources, places, None)
        emit.emit(For(name.name, integer(0), whole, tuple(body), step=lanes))
        rest = emit.let(operation("sub", count, whole), "rest")

        def last() -> None:
            emit.values[(last_core := f"%last.{emit.name('last')}")] = (whole,)
            item.inner.add(last_core)
            mask = emit.let(FirstLanes(rest, VectorType(BOOL, self.lanes)), "mask")
            self._vector(size(last_core), sources, places, mask)

        emit.when(operation("gt", rest, integer(0)), last)

    def _pad(self) -> None:
        item, emit = self.item, self.item.emit
        for array, atom in zip(self.arrays, self.neutral, strict=True):
            # Lanes past the end hold what does no harm.
            value = held_value(lower_atom(atom, emit))[0]
            wide = Broadcast(value, self._type(array))
            emit.emit(Store(item.buffer_of(array), emit.let(lower_size(self.count, emit), "count"), wide))

    def _type(self, array: ArrayView) -> VectorType:
        return VectorType(array.element, self.lanes)

    def _vector(
        self, at: Size, sources: Sequence[ArrayView], places: Sequence[ArrayView] | None, mask: Expression | None
    ) -> None:
        item, emit, lanes = self.item, self.item.emit, self.lanes
        here = emit.let(lower_size(at, emit), "here")
        loads = [Load(item.buffer_of(one), here, self._type(one)) for one in self.arrays]
        if sources:
            flat = [emit.let(lower_size(one.lmad.flat((at,)), emit), "from") for one in sources]
            pairs = zip(sources, flat, strict=True)
            loads = [Load(item.buffer_of(one), place, self._type(one), mask=mask) for one, place in pairs]
        values: list[Value] = [(emit.let(one, "x"),) for one in loads]
        distance = 1
        while distance < lanes:
            places_of = tuple(max(lane - distance, 0) for lane in range(lanes))
            moved: list[Value] = [(emit.let(Shuffle(v, v, places_of, _vector_type(v)), "moved"),) for (v,) in values]
            reached = _later_lanes(distance, lanes)
            combined = self._combine([*moved, *values])
            values = [
                (emit.let(operation("select", reached, new, old), "x"),)
                for (new,), (old,) in zip(combined, values, strict=True)
            ]
            distance *= 2
        results = self._combine([*self.carries, *values])
        for carry, (value,) in zip(self.carries, results, strict=True):
            everywhere = Shuffle(value, value, (lanes - 1,) * lanes, _vector_type(value))
            emit.assign(carry[0], everywhere)
        if places is None:
            return
        if self.befores:
            results = self._combine([*self.befores, *results])
        if not places:
            for array, (value,) in zip(self.arrays, results, strict=True):
                emit.emit(Store(item.buffer_of(array), here, value))
        for array, place, (value,) in zip(self.arrays, places, results, strict=bool(places)):
            self._store(array, place, at, value, mask)

    def _store(self, array: ArrayView, place: ArrayView, at: Size, value: Expression, mask: Expression | None) -> None:
        item, emit = self.item, self.item.emit
        if place.lmad.strides[0] == ONE:
            stored = as_mask(value) if place.element == BOOL else value
            to = emit.let(lower_size(place.lmad.flat((at,)), emit), "to")
            emit.emit(Store(item.buffer_of(place), to, stored, mask=mask))
            return
        emit.emit(Store(item.buffer_of(array), emit.let(lower_size(at, emit), "here"), value))
        count = size(self.lanes) if mask is None else self.count - at

        def put(lane: Size) -> None:
            (held,) = item.load(array, (at + lane,))
            write(item, given_value(item, held, place.element), row_of(place, at + lane))

        item.loop(count, "lane", put)

    def _combine(self, arguments: Sequence[Value]) -> list[Value]:
        results = lower_lambda_vector(self.combine, arguments, self.lanes, self.item.emit)
        return [(self.item.emit.let(as_bytes(value), "y"),) for (value,) in results]


def _vector_type(value: Expression) -> VectorType:
    assert isinstance(value.type, VectorType)
    return value.type


def _later_lanes(distance: int, lanes: int) -> Expression:
    """True in the lanes from `distance` on."""
    kind = VectorType(BOOL, lanes)
    return operation("not", FirstLanes(integer(distance), kind))


def held_value(value: Value) -> Value:
    """A bool as a byte."""
    return (Cast(value[0], U8),) if element_of(value[0].type) == BOOL else value


def given_value(item: Item, held: Expression, element: ScalarType) -> Value:
    """A byte as the bool that it stands for."""
    return (item.emit.let(Cast(held, BOOL), "flag") if element == BOOL else held,)


def lanes_of(neutral: Sequence[Atom]) -> int:
    """Lanes of the accumulators' vectors."""
    return VECTOR_BYTES // max(4, *(compute_type(atom.type.element).bytes for atom in neutral), 4)


def each_strip(
    item: Item,
    extent: Size,
    combine: Lambda,
    neutral: Sequence[Atom],
    write_strip: Callable[[Strip], None],
    before: Before | None = None,
) -> Sequence[tuple[Name, ...]]:
    """A loop over strips of `extent` rows; the carries (vectors) at its end."""
    emit, lanes = item.emit, lanes_of(neutral)
    item.scalar_loops = True
    arrays = [strip_array(item, atom.type.element, lanes) for atom in neutral]

    def everywhere(atoms: Sequence[Atom]) -> list[Expression]:
        values = [held_value(lower_atom(atom, emit))[0] for atom in atoms]
        kinds = [VectorType(array.element, lanes) for array in arrays]
        return [Broadcast(value, kind) for value, kind in zip(values, kinds, strict=True)]

    carries = [(emit.declare(value, "carry"),) for value in everywhere(neutral)]
    befores = [] if before is None else [(emit.declare(value, "before"),) for value in everywhere(before.values)]

    def next_chunk() -> None:
        results = lower_lambda_vector(combine, [*befores, *carries], lanes, emit)
        assign_values(befores, [(as_bytes(value),) for (value,) in results], emit)
        assign_values(carries, [(value,) for value in everywhere(neutral)], emit)

    def strip(number: Size) -> None:
        first = number * STRIP
        if before is not None and before.chunk is not None:
            at = lower_size(first, emit)
            rest = operation("mod", at, lower_size(before.chunk, emit))
            begins = operation("and", operation("eq", rest, integer(0)), operation("gt", at, integer(0)))
            emit.when(emit.let(begins, "begins"), next_chunk)
        count = emit.let(lower_size(minimum(size(STRIP), extent - first), emit), "count")
        emit.values[(core := f"%count.{emit.name('count')}")] = (count,)
        item.inner.add(core)
        write_strip(Strip(item, combine, neutral, first, size(core), lanes, arrays, carries, befores))

    item.loop((extent + STRIP - 1) // STRIP, "strip", strip)
    return carries


def strip_array(item: Item, element: ScalarType, lanes: int) -> ArrayView:
    """A private array for the values of a strip; its last vector may begin at the last of them."""
    kept = U8 if element == BOOL else compute_type(element)
    buffer = Buffer(item.emit.name("strip"), memory_element(kept), Space.PRIVATE, STRIP + lanes)
    item.private.append(buffer)
    item.buffers[buffer.name] = buffer
    return ArrayView(buffer.name, kept, row_major((size(STRIP + lanes),)))
