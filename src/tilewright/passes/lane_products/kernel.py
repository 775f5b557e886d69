"""The kernel of a `LaneProduct`.

coefficients[k, pick, n, lane] = elements of the small operand, where the output's lanes need them; else 0
for each point of the outer dimensions but one, and each group of rows along that one:
    for each group of columns:
        for each k: for each row: read a vector; for each pick: pick its lanes; for each column: multiply and add
        store
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, I64
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Name, add, integer, load, multiply, operation
from tilewright.kernel.launch import Launch
from tilewright.machine.model import power_of_two_at_least
from tilewright.passes.items.launch_writer import LaunchWriter
from tilewright.passes.lane_products.form import LaneProduct, Side, total

BLOCK_BYTES = 1 << 18
"""What a block reads and writes at the least, some 5 microseconds' work."""
UNROLLED = 4
"""Steps of the sum that are written out."""
ZERO = integer(0)


def write_lane_product(form: LaneProduct) -> Launch:
    """The kernel of a form and everything that its launch needs."""
    return _Writer(form).written()


class _Writer(LaunchWriter):
    def __init__(self, form: LaneProduct) -> None:
        super().__init__(form.contraction, I64)
        self.form = form
        self.large = self.global_buffer(form.large, "large", True)
        self.small = self.global_buffer(form.small, "small", True)
        self.out = self.global_buffer(form.contraction.out, "out", False)
        size = power_of_two_at_least(form.coefficients)
        self.table = self.workspace("coefficients", form.element, size)
        self.vector = kernel.VectorType(form.element, form.lanes[1])
        self.masks = [self._mask(held, lanes) for held, lanes in zip(form.held, form.lanes, strict=True)]
        self.along = form.along
        self.others = [one for one in form.outer if one is not form.along]
        self.strides = {
            one: (self.parameter("large_stride", one.large), self.parameter("out_stride", one.out))
            for one in (self.along, *self.others, *form.contracted, *form.columns)
        }

    def _mask(self, held: int, lanes: int) -> Expression | None:
        if held == lanes:
            return None
        return self.emit.let(kernel.FirstLanes(integer(held), kernel.VectorType(BOOL, lanes)), "mask")

    def written(self) -> Launch:
        form, points = self.form, total(self.others)
        self.emit.emit(
            kernel.Comment(f"lanes of {form.lanes[0]}, picked {form.picks} times for lanes of {form.lanes[1]}")
        )
        self._make_coefficients()
        moved = form.held[0] * total(form.contracted) + form.held[1] * total(form.columns)
        moved *= form.element.bytes
        # A block is some points of the other dimensions, or, if there are few, some rows at each of them.
        rows = min(self.along.size, -(-BLOCK_BYTES // moved))
        each = max(1, BLOCK_BYTES // (moved * rows)) if rows == self.along.size else 1
        pieces, groups = -(-self.along.size // rows), -(-points // each)
        first: Expression = kernel.BlockIndex()
        start: Expression = ZERO
        stop = self.parameter("rows", self.along.size)
        if pieces > 1:
            number = self.parameter("pieces", pieces)
            size = self.parameter("piece", rows)
            start = self.emit.let(multiply(operation("mod", first, number), size), "start")
            stop = self.minimum(add(start, size), stop)
            first = self.emit.let(operation("floordiv", first, number), "rest")
        if points == 1:
            self._rows(ZERO, ZERO, start, stop)
        else:
            by = self.parameter("points_each", each)
            begin = self.emit.let(multiply(first, by), "begin")
            end = self.minimum(add(begin, by), self.parameter("points", points))
            self.loop("point", begin, end, lambda point: self._point(point, start, stop))
        return self.launch("contraction", pieces * groups)

    def _point(self, point: Expression, start: Expression, stop: Expression) -> None:
        large: Expression = ZERO
        out: Expression = ZERO
        rest = point
        for number, one in reversed(list(enumerate(self.others))):
            index = rest
            if number:
                size = self.parameter("size", one.size)
                index = self.emit.let(operation("mod", rest, size), "index")
                rest = self.emit.let(operation("floordiv", rest, size), "rest")
            large, out = self._moved(large, out, one, index)
        self._rows(large, out, start, stop)

    def _moved(self, large: Expression, out: Expression, one: Side, index: Expression) -> tuple[Expression, Expression]:
        large_stride, out_stride = self.strides[one]
        return (
            self.emit.let(add(large, multiply(index, large_stride)), "large_at"),
            self.emit.let(add(out, multiply(index, out_stride)), "out_at"),
        )

    # --- coefficients -------------------------------------------------------------------------------------------------

    def _make_coefficients(self) -> None:
        form, emit = self.form, self.emit
        zero = kernel.Broadcast(Constant(0.0, form.element), self.vector)
        count = integer(form.coefficients)
        self.loop("i", ZERO, count, lambda i: emit.emit(kernel.Store(self.table, i, zero)), form.lanes[1])
        lanes, picks = form.lanes[1], form.picks
        nest: list[tuple[Side, int]] = []  # with the step in the coefficients
        step = lanes
        for one in reversed(form.columns):
            nest.append((one, step))
            step *= one.size
        for one in reversed(form.picked):
            nest.append((one, step * form.parts))
            step *= one.size
        step = lanes * total(form.columns) * picks
        for one in reversed(form.contracted):
            nest.append((one, step))
            step *= one.size
        nest += [(one, one.out) for one in form.written]
        small = self.parameter("small_offset", constant(form.small.offset))
        self._over(nest, small, ZERO)

    def _over(self, nest: Sequence[tuple[Side, int]], small: Expression, into: Expression) -> None:
        if not nest:
            self._place(small, into)
            return
        (one, step), *rest = nest
        stride = self.parameter("small_stride", one.small)

        def at(index: Expression) -> None:
            moved = self.emit.let(add(small, multiply(index, stride)), "small_at")
            self._over(rest, moved, self.emit.let(add(into, multiply(index, integer(step))), "into"))

        self.loop("i", ZERO, integer(one.size), at)

    def _place(self, at: Expression, into: Expression) -> None:
        """One element of the small operand, in all lanes that it is for."""
        form, emit = self.form, self.emit
        parts = [
            emit.let(load(self.small, add(multiply(at, integer(form.parts)), integer(part))), "element")
            for part in range(form.parts)
        ]

        def shared(sides: Sequence[Side], lane: Expression) -> None:
            if sides:
                stride = integer(sides[0].out)
                self.loop("i", ZERO, integer(sides[0].size),
                          lambda i: shared(sides[1:], emit.let(add(lane, multiply(i, stride)), "lane")))  # fmt: skip
                return
            emit.emit(kernel.Store(self.table, lane, parts[0]))
            if form.parts == 2:
                further = form.lanes[1] * total(form.columns)  # where those of the imaginary part begin
                emit.emit(kernel.Store(self.table, add(lane, integer(1)), parts[1]))
                emit.emit(kernel.Store(self.table, add(lane, integer(further)), operation("neg", parts[1])))
                emit.emit(kernel.Store(self.table, add(lane, integer(further + 1)), parts[0]))

        shared(form.shared, into)

    # --- results ------------------------------------------------------------------------------------------------------

    def _rows(self, large: Expression, out: Expression, start: Expression, stop: Expression) -> None:
        rows, _ = self.form.tile
        large = self._offset(large, constant(self.form.large.offset))
        out = self._offset(out, constant(self.form.contraction.out.offset))
        if self.along.size < rows or self.along.size == 1:
            self._columns(large, out, [integer(row) for row in range(self.along.size)])
            return

        def group(wanted: Expression) -> None:
            last = operation("sub", stop, integer(rows))
            first = self.emit.let(operation("max", operation("min", wanted, last), ZERO), "row")
            # The last rows may be computed twice, those of a short piece too: nothing is added to what was there.
            self._columns(large, out, [add(first, integer(row)) for row in range(rows)])

        self.loop("group", start, stop, group, rows)

    def _offset(self, place: Expression, offset: int) -> Expression:
        return self.emit.let(add(place, self.parameter("offset", offset * self.form.parts)), "base")

    def _columns(self, large: Expression, out: Expression, rows: Sequence[Expression]) -> None:
        """All columns of some rows: loops over the outer dimensions, the others unrolled, or one in tiles."""
        places = [self._moved(large, out, self.along, row) for row in rows]
        form, across = self.form, self.form.tile[1]
        loops = len(form.columns) - form.unrolled
        unrolled = form.columns[loops:]

        def over(sides: Sequence[Side], at: Expression, coefficient: Expression) -> None:
            if sides:
                stride, step = self.strides[sides[0]][1], integer(total((*sides[1:], *unrolled)))

                def inner(index: Expression) -> None:
                    moved = self.emit.let(add(at, multiply(index, stride)), "column_at")
                    over(sides[1:], moved, self.emit.let(add(coefficient, multiply(index, step)), "column"))

                self.loop("n", ZERO, integer(sides[0].size), inner)
                return
            if total(unrolled) == across:
                points = itertools.product(*(range(one.size) for one in unrolled))
                self._tile(places, [self._column(at, unrolled, map(integer, one)) for one in points], coefficient)
                return
            (one,) = unrolled

            def tile(wanted: Expression) -> None:
                first = self.emit.let(operation("min", wanted, integer(one.size - across)), "first")
                moved = [self._column(at, unrolled, [add(first, integer(number))]) for number in range(across)]
                self._tile(places, moved, self.emit.let(add(coefficient, first), "column"))

            self.loop("n", ZERO, integer(one.size), tile, across)

        over(form.columns[:loops], ZERO, ZERO)

    def _column(self, at: Expression, sides: Sequence[Side], indices: Iterable[Expression]) -> Expression:
        for one, index in zip(sides, indices, strict=True):
            at = add(at, multiply(index, self.strides[one][1]))
        return self.emit.let(at, "column_at")

    def _tile(
        self, places: Sequence[tuple[Expression, Expression]], columns: Sequence[Expression], first: Expression
    ) -> None:
        """Rows by columns of results; `first` is the number of the first column among all coefficients of a pick."""
        form, emit = self.form, self.emit
        lanes, every = form.lanes[1], total(form.columns)
        zero = kernel.Broadcast(Constant(0.0, form.element), self.vector)
        sums = [[emit.declare(zero, "sum") for _ in columns] for _ in places]
        patterns = _patterns(form)

        def step(number: Expression, moved: Expression) -> None:
            begin = add(multiply(number, integer(form.picks * every * lanes)), multiply(first, integer(lanes)))
            begin = emit.let(begin, "coefficient")
            vectors = [emit.let(self._vector_at(add(place, moved)), "vector") for place, _ in places]
            for pick, pattern in enumerate(patterns):
                held = [self._picked(vector, pattern) for vector in vectors]
                for column in range(len(columns)):
                    where = add(begin, integer((pick * every + column) * lanes))
                    coefficient = emit.let(load(self.table, where, lanes), "coefficients")
                    for row, one in enumerate(held):
                        self._multiply_add(sums[row][column], one, coefficient)

        self._over_sum(form.contracted, ZERO, ZERO, step)
        for (_, out), row in zip(places, sums, strict=True):
            for column, value in zip(columns, row, strict=True):
                emit.emit(kernel.Store(self.out, add(out, column), value, mask=self.masks[1]))

    def _vector_at(self, at: Expression) -> Expression:
        found = load(self.large, at, self.form.lanes[0])
        return kernel.Load(found.buffer, found.index, found.type, mask=self.masks[0])

    def _picked(self, vector: Expression, pattern: tuple[int, ...]) -> Expression:
        if pattern == tuple(range(self.form.lanes[0])):
            return vector
        return self.emit.let(kernel.Shuffle(vector, vector, pattern, self.vector), "picked")

    def _multiply_add(self, total_: Name, vector: Expression, coefficient: Expression) -> None:
        self.emit.assign(total_, kernel.Operation("fma", (vector, coefficient, total_), total_.type))

    def _over_sum(
        self,
        sides: Sequence[Side],
        number: Expression,
        moved: Expression,
        step: Callable[[Expression, Expression], None],
    ) -> None:
        """`step(number, offset in the large operand)` for all points of the sum that are no lanes."""
        if not sides:
            step(number, moved)
            return
        stride, inner = self.strides[sides[0]][0], integer(total(sides[1:]))

        def at(index: Expression) -> None:
            further = self.emit.let(add(moved, multiply(index, stride)), "sum_at")
            counted = self.emit.let(add(number, multiply(index, inner)), "number")
            self._over_sum(sides[1:], counted, further, step)

        if total(sides) <= UNROLLED:
            for index in range(sides[0].size):
                at(integer(index))
        else:
            self.loop("k", ZERO, integer(sides[0].size), at)


def _patterns(form: LaneProduct) -> list[tuple[int, ...]]:
    """For each pick the lane of the large operand's vector that each lane of the output's is multiplied with; any one
    for those that are masked.
    """
    found = []
    for point in itertools.product(*(range(one.size) for one in form.picked), range(form.parts)):
        start = point[-1] + sum(index * one.large for index, one in zip(point, form.picked, strict=False))
        lanes = [start] * form.lanes[1]
        for shared in itertools.product(*(range(one.size) for one in form.shared)):
            source = sum(index * one.large for index, one in zip(shared, form.shared, strict=True))
            target = sum(index * one.out for index, one in zip(shared, form.shared, strict=True))
            for written in itertools.product(*(range(one.size) for one in form.written), range(form.parts)):
                own = written[-1] + sum(index * one.out for index, one in zip(written, form.written, strict=False))
                lanes[target + own] = start + source
        found.append(tuple(lanes))
    return found
