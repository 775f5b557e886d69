"""Strips of the rows of a scan, in vectors: what `scan_lanes.py` and `points.py` are made of.

    x0 x1 x2 ... x31     two vectors, one of the even rows and one of the odd ones
    x0+x1 x2+x3 ...      their combination, whose prefixes are found in log2(lanes) steps
    b (+) prefixes       those of the odd rows; shifted by a lane, and combined with the even rows, those of these
    b (+)= the last      what stands before the next two vectors

The prefixes of a vector are those of Hillis and Steele ["Data parallel algorithms", 1986]: in step s lane l is combined
with lane l - 2^s. The order of rows is kept, so that the operator need not be commutative; that it is associative is
what a scan asks for.

For sums of floats what stands before a strip is itself a tree: `FAN` strips make a sum of the next level, and so many
of those one of the level above. A row of n then goes through so many additions at most: log2(lanes) + 2 in its vectors,
one for each pair of vectors of its strip, FAN on each of the levels below the last, n / (STRIP FAN^(LEVELS - 1)) on
that, and one to join each of these. The error of a sum is so many units of the sum of the magnitudes [Higham, Accuracy
and Stability of Numerical Algorithms, section 4.2], where a chain has n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Lambda
from tilewright.ir.scalars import BOOL, I64, U8, ScalarType, compute_type
from tilewright.ir.sizes import ONE, ZERO, Size, maximum, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Name, add, integer, operation
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Rows
from tilewright.passes.items.lower_items import row_of, write
from tilewright.passes.items.lower_scalar import assign_values, lower_atom, lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.speculation import Speculation
from tilewright.passes.items.sum_trees import grows_errors
from tilewright.passes.lanes.vectorise import as_bytes, as_mask, lower_lambda_vector

STRIP = 512
"""Rows of a strip: a few arrays of them stay in the first cache."""
VECTOR_BYTES = 64
"""Of the widest accumulator. LLVM splits such a vector where registers are smaller."""
FAN, LEVELS = 64, 3
"""Of the tree of strips."""


@dataclass(frozen=True)
class Before:
    """What stands before the rows, from which chunks of `chunk` rows, a multiple of STRIP, go on (None: one chunk)."""

    values: Sequence[Atom]
    chunk: Size | None = None


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
    emit.emit(kernel.For(name.name, Constant(0, I64), stop, tuple(body), independent=independent))
    if checked:
        emit.when(bad, lambda: item.loop(count, "k", write_row))


# --- strips -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strip:
    """`count` rows from row `first` on, whose values lie in private arrays, and what the rows before give.

    Attributes:
        arrays: one for each accumulator; bools lie there as bytes.
        carries: for each accumulator a vector, all lanes of which are what the rows of the strip give so far, and
            those before that `befores` has not.
        befores: likewise what stands before these rows; empty if nothing does.
    """

    item: Item
    combine: Lambda
    neutral: Sequence[Atom]
    first: Size
    count: Size
    lanes: int
    arrays: Sequence[ArrayView]
    carries: Sequence[tuple[Name, ...]]
    befores: Sequence[Value] = ()

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
        pair = integer(2 * self.lanes)
        whole = emit.let(operation("mul", operation("floordiv", count, pair), pair), "whole")
        name, core = item.index("v", self.count)
        with emit.scope() as body:
            self._pair(core, sources, places, None)
        emit.emit(kernel.For(name.name, integer(0), whole, tuple(body), step=pair))
        rest = emit.let(operation("sub", count, whole), "rest")

        def last() -> None:
            emit.values[(last_core := f"%last.{emit.name('last')}")] = (whole,)
            item.inner.add(last_core)
            self._pair(size(last_core), sources, places, rest)

        emit.when(operation("gt", rest, integer(0)), last)

    def _pad(self) -> None:
        item, emit = self.item, self.item.emit
        end = emit.let(lower_size(self.count, emit), "count")
        for array, atom in zip(self.arrays, self.neutral, strict=True):
            # Lanes past the end hold what does no harm.
            wide = emit.let(kernel.Broadcast(held_value(lower_atom(atom, emit))[0], self._type(array)), "neutral")
            for half in (0, 1):
                emit.emit(kernel.Store(item.buffer_of(array), add(end, integer(half * self.lanes)), wide))

    def _type(self, array: ArrayView) -> kernel.VectorType:
        return kernel.VectorType(array.element, self.lanes)

    def _pair(
        self, at: Size, sources: Sequence[ArrayView], places: Sequence[ArrayView] | None, rest: Expression | None
    ) -> None:
        """The rows of two vectors from `at` on; only `rest` of them, if that is given."""
        lanes = self.lanes
        masks = [self._mask(rest, half) for half in (0, 1)]
        halves = [self._loaded(at + half * lanes, sources, mask) for half, mask in enumerate(masks)]
        even, odd = (
            [self._shuffled(one, other, range(side, 2 * lanes, 2)) for one, other in zip(*halves, strict=True)]
            for side in (0, 1)
        )
        prefixes = self._prefixes(self._combine([*even, *odd]))
        if places is not None:
            before = self._combine([*self.befores, *self.carries]) if self.befores else self.carries
            odd = self._combine([*before, *prefixes])
            left = [self._shuffled(one, b, (lanes, *range(lanes - 1))) for one, b in zip(odd, before, strict=True)]
            even = self._combine([*left, *even])
            for half, mask in enumerate(masks):
                order = [lane // 2 + lanes * (lane % 2) + half * lanes // 2 for lane in range(lanes)]
                results = [self._shuffled(one, other, order) for one, other in zip(even, odd, strict=True)]
                for array, place, (value,) in zip(self.arrays, places or self.arrays, results, strict=True):
                    self._store(array, place, at + half * lanes, value, mask)
        # The next vectors wait for no more than this, not for the results.
        last = [self._shuffled(one, one, (lanes - 1,) * lanes) for one in prefixes]
        assign_values(self.carries, self._combine([*self.carries, *last]), self.item.emit)

    def _mask(self, rest: Expression | None, half: int) -> Expression | None:
        if rest is None:
            return None
        left = operation("max", operation("sub", rest, integer(half * self.lanes)), integer(0)) if half else rest
        return self.item.emit.let(kernel.FirstLanes(left, kernel.VectorType(BOOL, self.lanes)), "mask")

    def _loaded(self, at: Size, sources: Sequence[ArrayView], mask: Expression | None) -> list[Value]:
        item, emit = self.item, self.item.emit
        places = [emit.let(lower_size(one.lmad.flat((at,)), emit), "from") for one in sources or self.arrays]
        masks = [mask if sources else None] * len(places)
        given = zip(sources or self.arrays, places, masks, strict=True)
        return [(emit.let(kernel.Load(item.buffer_of(one), to, self._type(one), mask=m), "x"),) for one, to, m in given]

    def _shuffled(self, one: Value, other: Value, places: Sequence[int]) -> Value:
        """The lanes at some places of two vectors that lie behind one another."""
        return (self.item.emit.let(kernel.Shuffle(one[0], other[0], tuple(places), _vector_type(one[0])), "moved"),)

    def _prefixes(self, values: list[Value]) -> list[Value]:
        """The prefixes of the lanes of a vector."""
        distance, lanes = 1, self.lanes
        while distance < lanes:
            moved = [self._shuffled(one, one, [max(lane - distance, 0) for lane in range(lanes)]) for one in values]
            reached = _later_lanes(distance, lanes)
            combined = self._combine([*moved, *values])
            values = [
                (self.item.emit.let(operation("select", reached, new, old), "x"),)
                for (new,), (old,) in zip(combined, values, strict=True)
            ]
            distance *= 2
        return values

    def _store(self, array: ArrayView, place: ArrayView, at: Size, value: Expression, mask: Expression | None) -> None:
        item, emit = self.item, self.item.emit
        if place is array or place.lmad.strides[0] == ONE:
            stored = as_mask(value) if place.element == BOOL else value
            to = emit.let(lower_size(place.lmad.flat((at,)), emit), "to")
            emit.emit(kernel.Store(item.buffer_of(place), to, stored, mask=mask))
            return
        emit.emit(kernel.Store(item.buffer_of(array), emit.let(lower_size(at, emit), "here"), value))
        count = size(self.lanes) if mask is None else maximum(minimum(size(self.lanes), self.count - at), ZERO)

        def put(lane: Size) -> None:
            (held,) = item.load(array, (at + lane,))
            write(item, given_value(item, held, place.element), row_of(place, at + lane))

        item.loop(count, "lane", put)

    def _combine(self, arguments: Sequence[Value]) -> list[Value]:
        results = lower_lambda_vector(self.combine, arguments, self.lanes, self.item.emit)
        return [(self.item.emit.let(as_bytes(value), "y"),) for (value,) in results]


def _vector_type(value: Expression) -> kernel.VectorType:
    assert isinstance(value.type, kernel.VectorType)
    return value.type


def _later_lanes(distance: int, lanes: int) -> Expression:
    """True in the lanes from `distance` on."""
    kind = kernel.VectorType(BOOL, lanes)
    return operation("not", kernel.FirstLanes(integer(distance), kind))


def held_value(value: Value) -> Value:
    """A bool as a byte."""
    return (kernel.Cast(value[0], U8),) if kernel.element_of(value[0].type) == BOOL else value


def given_value(item: Item, held: Expression, element: ScalarType) -> Value:
    """A byte as the bool that it stands for."""
    return (item.emit.let(kernel.Cast(held, BOOL), "flag") if element == BOOL else held,)


def lanes_of(neutral: Sequence[Atom]) -> int:
    """Lanes of the accumulators' vectors."""
    return VECTOR_BYTES // max(4, *(compute_type(atom.type.element).bytes for atom in neutral), 4)


@dataclass
class _Carries:
    """What the rows before a strip give, as vectors all lanes of which are alike.

    Attributes:
        strip: what the vectors of a strip give so far; of everything that is not the sum of floats, all rows so far.
        befores: what stands before the chunk of rows.
        levels: of the tree of strips, the lowest first; empty if there is none. upper: `befores` and all levels but
            the lowest. number: of strips that are in the tree.
    """

    item: Item
    combine: Lambda
    neutral: Sequence[Expression]
    strip: list[tuple[Name, ...]]
    befores: list[tuple[Name, ...]]
    levels: list[list[tuple[Name, ...]]] = field(default_factory=list)
    upper: list[tuple[Name, ...]] = field(default_factory=list)
    number: Name | None = None

    def combined(self, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """left (+) right."""
        assert isinstance(self.neutral[0].type, kernel.VectorType)
        results = lower_lambda_vector(self.combine, [*left, *right], self.neutral[0].type.lanes, self.item.emit)
        return [(self.item.emit.let(as_bytes(value), "carried"),) for (value,) in results]

    def variables(self, values: Sequence[Expression], hint: str) -> list[tuple[Name, ...]]:
        """Variables that hold these."""
        return [(self.item.emit.declare(one, hint),) for one in values]

    def begin(self) -> None:
        """The tree of strips, with nothing in it."""
        self.levels = [self.variables(self.neutral, "level") for _ in range(LEVELS)]
        self.upper = self.variables(self.neutral, "upper")
        self.number = self.item.emit.declare(integer(0), "number")
        self._assign(self.upper, self.befores or [(one,) for one in self.neutral])

    def before_strip(self) -> Sequence[Value]:
        """What stands before the rows of a strip beside `strip`; empty if nothing does."""
        return self.combined(self.upper, self.levels[0]) if self.levels else self.befores

    def end_strip(self) -> None:
        """Put the strip into the tree."""
        if self.number is None:
            return
        self._assign(self.levels[0], self.combined(self.levels[0], self.strip))
        self._clear(self.strip)
        self.item.emit.assign(self.number, add(self.number, integer(1)))
        self._fold(0)

    def _fold(self, level: int) -> None:
        """FAN sums of a level are one of the next."""
        emit = self.item.emit
        assert self.number is not None
        full = operation("eq", operation("mod", self.number, integer(FAN ** (level + 1))), integer(0))

        def fold() -> None:
            self._assign(self.levels[level + 1], self.combined(self.levels[level + 1], self.levels[level]))
            self._clear(self.levels[level])
            if level + 2 < LEVELS:
                self._fold(level + 1)
            if not level:
                rest = self._rest()
                self._assign(self.upper, self.combined(self.befores, rest) if self.befores else rest)

        emit.when(emit.let(full, "full"), fold)

    def _rest(self) -> Sequence[Value]:
        """All levels but the lowest."""
        found: Sequence[Value] = self.levels[-1]
        for level in reversed(self.levels[1:-1]):
            found = self.combined(found, level)
        return found

    def total(self) -> Sequence[Value]:
        """What the rows of the chunk give so far."""
        return self.combined(self._rest(), self.levels[0]) if self.levels else self.strip

    def next_chunk(self) -> None:
        """All rows so far stand before the next ones."""
        self._assign(self.befores, self.combined(self.befores, self.total()))
        for one in (self.strip, *self.levels):
            self._clear(one)
        if self.number is not None:
            self.item.emit.assign(self.number, integer(0))
            self._assign(self.upper, self.befores)

    def _assign(self, variables: list[tuple[Name, ...]], values: Sequence[Value]) -> None:
        assign_values(variables, values, self.item.emit)

    def _clear(self, variables: list[tuple[Name, ...]]) -> None:
        self._assign(variables, [(one,) for one in self.neutral])


def each_strip(
    item: Item,
    extent: Size,
    combine: Lambda,
    neutral: Sequence[Atom],
    write_strip: Callable[[Strip], None],
    before: Before | None = None,
) -> Sequence[Value]:
    """A loop over strips of `extent` rows; what the last chunk gives, as vectors."""
    emit, lanes = item.emit, lanes_of(neutral)
    item.scalar_loops = True
    arrays = [strip_array(item, atom.type.element, lanes) for atom in neutral]

    def everywhere(atoms: Sequence[Atom]) -> list[Expression]:
        values = [held_value(lower_atom(atom, emit))[0] for atom in atoms]
        kinds = [kernel.VectorType(array.element, lanes) for array in arrays]
        return [emit.let(kernel.Broadcast(value, kind), "all") for value, kind in zip(values, kinds, strict=True)]

    carries = _Carries(item, combine, everywhere(neutral), [], [])
    carries.strip = carries.variables(carries.neutral, "carry")
    if before is not None:
        carries.befores = carries.variables(everywhere(before.values), "before")
    if grows_errors(combine):
        carries.begin()

    def strip(number: Size) -> None:
        first = number * STRIP
        if before is not None and before.chunk is not None:
            at = lower_size(first, emit)
            rest = operation("mod", at, lower_size(before.chunk, emit))
            begins = operation("and", operation("eq", rest, integer(0)), operation("gt", at, integer(0)))
            emit.when(emit.let(begins, "begins"), carries.next_chunk)
        count = emit.let(lower_size(minimum(size(STRIP), extent - first), emit), "count")
        emit.values[(core := f"%count.{emit.name('count')}")] = (count,)
        item.inner.add(core)
        given = carries.before_strip()
        write_strip(Strip(item, combine, neutral, first, size(core), lanes, arrays, carries.strip, given))
        carries.end_strip()

    item.loop((extent + STRIP - 1) // STRIP, "strip", strip)
    return carries.total()


def strip_array(item: Item, element: ScalarType, lanes: int) -> ArrayView:
    """A private array for the values of a strip; two vectors may begin at its end."""
    kept = U8 if element == BOOL else compute_type(element)
    return item.own("strip", kept, STRIP + 2 * lanes)
