"""The kernels of sweeps (form.py): one pass over the rows by each worker of a CPU, strip by strip.

Several workers take chunks of rows. What stands before each chunk they find first: for a filter they count the rows
that are picked, for another sweep they fold what the scan combines.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Atom, Type, Variable
from tilewright.ir.scalars import BOOL, I64, U8, ScalarType, compute_type
from tilewright.ir.sizes import ONE, ZERO, Size, maximum, minimum, size
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Name, add, integer, operation
from tilewright.passes.items import lower_folds
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, bind, call, row_of, value_of, write
from tilewright.passes.items.lower_scalar import declare_value, lower_atom, lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.lanes.vectorise import as_mask
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.points.point_loops import emit_points
from tilewright.passes.points.scan_lanes import total_of_strips
from tilewright.passes.points.scan_strips import STRIP, Before, Strip, each_row, each_strip, given_value, held_value
from tilewright.passes.segments.form import Chunks
from tilewright.passes.sweeps.form import SweepForm


def chunk_rows(sweep: SweepForm, chunks: Chunks | None, at: Sequence[Size]) -> tuple[Size, Size]:
    """The first row of a point, and how many it has."""
    if chunks is None:
        return ZERO, sweep.width
    start = at[0] * size(chunks.length)
    return start, minimum(size(chunks.length), sweep.width - start)


def _space(chunks: Chunks | None) -> tuple[Size, ...]:
    return () if chunks is None else (size(chunks.count),)


def sweep_points(
    sweep: SweepForm, chunks: Chunks | None = None, before: Sequence[Variable] = (), inside: Chunks | None = None
) -> Points:
    """Each point is a chunk of the pass (None: all of it, chunk by chunk if these are given as `inside`).

    `before`: what the chunks up to each of them give, each one included, for every accumulator; of a filter the number
    of rows that are picked.
    """

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        _bind_fills(item, sweep)
        start, length = chunk_rows(sweep, chunks, at)
        writer = _Pass(item, sweep, start, length, places)
        if sweep.picks is None:
            atoms = _atoms_before(item, sweep, before, at)
            chunk = None if inside is None else size(inside.length)
            writer.scan(Before(atoms, chunk) if before or inside else None)
            return
        first: Value = _before_chunk(item, _view(item, before[0]), at) if before else (integer(0),)
        number = writer.filter(first, write_rows=True)
        total = number if chunks is None else item.load(_view(item, before[0]), (size(chunks.count) - 1,))
        writer.fill(total)
        if chunks is None:
            writer.give_totals(total)

    copied = () if sweep.picks is not None else tuple(
        (len(sweep.totals) + number, one.destination)
        for number, one in enumerate(sweep.scattered)
        if isinstance(one.destination, Variable)
    )  # fmt: skip
    return Points(_space(chunks), write_point, copied)


def count_points(sweep: SweepForm, chunks: Chunks) -> Points:
    """Each point is what its chunk gives: of a filter the number of picked rows, else what the scan combines."""

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        start, length = chunk_rows(sweep, chunks, at)
        writer = _Pass(item, sweep, start, length, ())
        values: Sequence[Value]
        if sweep.picks is None:
            values = writer.totals()
        else:
            values = [writer.filter((integer(0),), write_rows=False)]
        for value, place in zip(values, places, strict=True):
            write(item, value, row_of(place, at[0]))

    return Points(_space(chunks), write_point)


def sums_points(sweep: SweepForm, chunks: Chunks, partial: Sequence[Variable]) -> Points:
    """One point that scans what the chunks give; of a filter with its totals behind."""
    count = len(sweep.neutral)

    def write_point(item: Item, at: Sequence[Size], places: Places) -> None:
        rows = lower_folds.function_rows(item, None, [item.arrays[one.name] for one in partial])
        whole = lower_folds.Fold(item, size(chunks.count), sweep.combine, sweep.neutral, rows)
        values = lower_folds.fold(whole, scanned=places[:count], short=True)
        for place in places[count:]:
            write(item, values[0], place)

    return Points((), write_point)


def _bind_fills(item: Item, sweep: SweepForm) -> None:
    """Names of the sweep are the kernel's own."""
    for function in (sweep.before, sweep.after):
        item.inner.update(one.name for one in function.parameters)


def _view(item: Item, variable: Variable) -> ArrayView:
    return item.as_view(item.arrays[variable.name])


def _before_chunk(item: Item, view: ArrayView, at: Sequence[Size]) -> Value:
    """What the chunks before chunk at[0] give; 0 before the first."""
    emit = item.emit
    is_first = emit.let(operation("eq", lower_size(at[0], emit), integer(0)), "is_first")
    (value,) = item.load(view, (maximum(at[0], ONE) - 1,))
    return (emit.let(operation("select", is_first, integer(0), value), "before"),)


def _atoms_before(item: Item, sweep: SweepForm, before: Sequence[Variable], at: Sequence[Size]) -> list[Atom]:
    """What the chunks before this one give, as atoms; without chunks the neutral element."""
    if not before:
        return list(sweep.neutral)
    emit = item.emit
    is_first = emit.let(operation("eq", lower_size(at[0], emit), integer(0)), "is_first")
    atoms: list[Atom] = []
    for variable, neutral in zip(before, sweep.neutral, strict=True):
        values = item.load(_view(item, variable), (maximum(at[0], ONE) - 1,))
        pairs = zip(lower_atom(neutral, emit), values, strict=True)
        atom = Variable(f"%before.{emit.name('before')}", Type(neutral.type.element))
        bind(item, atom, tuple(emit.let(operation("select", is_first, a, b), "before") for a, b in pairs))
        atoms.append(atom)
    return atoms


@dataclass(frozen=True)
class _Pass:
    """Rows start .. start + length - 1 of a sweep; `places` are those of its targets."""

    item: Item
    sweep: SweepForm
    start: Size
    length: Size
    places: Places

    @property
    def _scattered(self) -> Places:
        first = len(self.sweep.totals)
        return self.places[first : first + len(self.sweep.scattered)]

    @property
    def _mapped(self) -> Places:
        return self.places[len(self.sweep.totals) + len(self.sweep.scattered) :]

    def _array(self, element: ScalarType, hint: str, room: int) -> ArrayView:
        kept = U8 if element == BOOL else compute_type(element)
        return self.item.own(hint, kept, room)

    def _before(self, at: Size) -> list[AnyValue]:
        """The results of the first function for a row."""
        rows = [self.item.row(one, at) for one in lower_folds.arrays_of(self.item, self.sweep.arrays)]
        return call(self.item, self.sweep.before, rows)

    def _after(self, at: Size, known: Sequence[AnyValue]) -> list[AnyValue]:
        """The results of the second function for a row; its mapped ones are written."""
        rows = [self.item.row(one, at) for one in lower_folds.arrays_of(self.item, self.sweep.again)]
        results = call(self.item, self.sweep.after, [*known, *rows])
        first = len(results) - len(self._mapped)
        for value, place in zip(results[first:], self._mapped, strict=True):
            write(self.item, value, row_of(place, at))
        return results[:first]

    def _put(self, arrays: Sequence[ArrayView], k: Size, values: Sequence[AnyValue]) -> None:
        for array, value in zip(arrays, values, strict=True):
            assert isinstance(value, tuple)
            self.item.store(array, (k,), held_value(value))

    # --- filters

    def filter(self, first: Value, write_rows: bool) -> Value:
        """Pack the rows that are picked from place `first` on; the place behind the last one."""
        item, sweep, emit = self.item, self.sweep, self.item.emit
        assert sweep.picks is not None
        item.scalar_loops = True
        kept = len(sweep.neutral)
        elements = [one.target.type.element for one in sweep.scattered] if write_rows else []
        lanes = 64 // max([4, *(compute_type(one).bytes for one in elements)])
        flags = self._array(BOOL, "flags", STRIP + lanes)
        arrays = [self._array(one, "picked", STRIP + lanes) for one in elements]
        (place,) = declare_value(first, "place", emit)

        def strip(number: Size) -> None:
            begin = number * STRIP
            count = self._named(lower_size(minimum(size(STRIP), self.length - begin), emit))

            def row(k: Size) -> None:
                at = self.start + begin + k
                results = self._before(at)
                self._put([flags], k, [results[kept + (sweep.picks or 0)]])
                if write_rows:
                    neutral = [lower_atom(atom, emit) for atom in sweep.neutral]  # prefixes are not asked for
                    self._put(arrays, k, self._after(at, [*neutral, *results[kept:]]))

            each_row(item, count, row)
            nothing = kernel.Broadcast(Constant(0, U8), kernel.VectorType(U8, lanes))
            emit.emit(kernel.Store(item.buffer_of(flags), emit.let(lower_size(count, emit), "count"), nothing))
            self._pack(flags, arrays, count, lanes, place)

        item.loop((self.length + STRIP - 1) // STRIP, "strip", strip)
        return (place,)

    def _named(self, value: Expression) -> Size:
        return self.item.named(value, "rows")

    def _pack(self, flags: ArrayView, arrays: Sequence[ArrayView], count: Size, lanes: int, place: Name) -> None:
        """Store the picked values of a strip."""
        item, emit = self.item, self.item.emit
        index = Name(emit.name("v"), I64)
        with emit.scope() as body:
            bytes_ = emit.let(kernel.Load(item.buffer_of(flags), index, kernel.VectorType(U8, lanes)), "flags")
            mask = emit.let(as_mask(bytes_), "mask")
            number = emit.let(kernel.CountLanes(mask), "number")
            first = emit.let(kernel.FirstLanes(number, kernel.VectorType(BOOL, lanes)), "first")
            for array, target in zip(arrays, self._scattered if arrays else (), strict=True):
                kind = kernel.VectorType(array.element, lanes)
                values = emit.let(kernel.Load(item.buffer_of(array), index, kind), "values")
                packed = emit.let(kernel.PackedLanes(values, mask, kind), "packed")
                self._store(array, target, packed, place, first, number)
            emit.assign(place, add(place, number))
        emit.emit(kernel.For(index.name, integer(0), lower_size(count, emit), tuple(body), step=integer(lanes)))

    def _store(
        self, array: ArrayView, target: ArrayView, packed: Expression, place: Expression, first: Expression,
        number: Expression,
    ) -> None:  # fmt: skip
        """The first lanes to a target from a place on."""
        item, emit = self.item, self.item.emit
        if target.lmad.strides[0] == ONE:
            at = self._named(emit.snapshot(place, "at"))
            value = as_mask(packed) if target.element == BOOL else packed
            to = emit.let(lower_size(target.lmad.flat((at,)), emit), "to")
            emit.emit(kernel.Store(item.buffer_of(target), to, value, mask=first))
            return
        assert isinstance(packed.type, kernel.VectorType)
        memory = self._array(array.element, "lanes", packed.type.lanes)
        emit.emit(kernel.Store(item.buffer_of(memory), integer(0), packed))
        start = self._named(emit.snapshot(place, "at"))

        def put(lane: Size) -> None:
            value = given_value(item, item.load(memory, (lane,))[0], target.element)
            write(item, value, row_of(target, start + lane))

        item.loop(self._named(number), "lane", put)

    def fill(self, total: Value) -> None:
        """The places of these rows that no picked row takes, as they were in the destinations."""
        item, emit = self.item, self.item.emit
        end = self._named(total[0])
        low = self._named(lower_size(minimum(maximum(end, self.start), self.start + self.length), emit))
        for one, place in zip(self.sweep.scattered, self._scattered, strict=True):
            destination = one.destination

            def put(k: Size, destination: Atom = destination, place: ArrayView = place) -> None:
                source = value_of(item, destination)
                value = source if isinstance(source, tuple) else item.row(source, low + k)
                write(item, value, row_of(place, low + k))

            each_row(item, self.start + self.length - low, put)

    def give_totals(self, total: Value) -> None:
        """The number of picked rows to the targets that it is asked for."""
        for place in self.places[: len(self.sweep.totals)]:
            write(self.item, total, place)

    # --- scans

    def _read(self, strip: Strip, kept: Sequence[ArrayView]) -> tuple[ArrayView, ...]:
        """Put the values of the strip's rows there, and what is kept of them; nothing is to be loaded otherwise."""
        count = len(self.sweep.neutral)
        begin = self.start + strip.first

        def row(at: Size) -> None:
            results = self._before(at)
            self._put([*strip.arrays, *kept], at - begin, results[: count + len(kept)])

        emit = self.item.emit
        first, stop = (emit.let(lower_size(one, emit), "row") for one in (begin, begin + strip.count))
        emit_points(self.item, (first, stop), self.sweep.width, row, alone=False, machine=None, short=True)
        return ()

    def totals(self) -> list[Value]:
        """What the scan gives at the end of these rows."""
        sweep = self.sweep
        return total_of_strips(self.item, self.length, sweep.combine, sweep.neutral, lambda one: self._read(one, ()))

    def scan(self, before: Before | None) -> None:
        """All of the pass, on from what stands before."""
        item, sweep = self.item, self.sweep
        count = len(sweep.neutral)
        kept_types = [atom.type.element for atom in sweep.before.body.results[count:]]
        kept = [self._array(one, "kept", STRIP) for one in kept_types]
        places = [self._array(I64, "indices", STRIP) for _ in sweep.scattered]
        values = [self._array(one.target.type.element, "values", STRIP) for one in sweep.scattered]
        pairs = [array for pair in zip(places, values, strict=True) for array in pair]

        def write_strip(strip: Strip) -> None:
            self._read(strip, kept)
            strip.scan(())

            def row(k: Size) -> None:
                elements = [*(atom.type.element for atom in sweep.neutral), *kept_types]
                known = [
                    given_value(item, item.load(array, (k,))[0], element)
                    for array, element in zip([*strip.arrays, *kept], elements, strict=True)
                ]
                self._put(pairs, k, self._after(self.start + strip.first + k, known))

            each_row(item, strip.count, row)
            for place, value, target in zip(places, values, self._scattered, strict=True):
                self._scatter(strip.count, place, value, target)

        each_strip(item, self.length, sweep.combine, sweep.neutral, write_strip, before)

    def _scatter(self, count: Size, places: ArrayView, values: ArrayView, target: ArrayView) -> None:
        item = self.item

        def put(k: Size) -> None:
            (at,) = item.load(places, (k,))
            value = given_value(item, item.load(values, (k,))[0], target.element)
            lower_folds.when_bin_exists(
                item, at, target.lmad.shape[0], lambda bin_: write(item, value, row_of(target, bin_))
            )

        item.loop(count, "k", put)
