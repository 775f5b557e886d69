"""The kernel of a `RecordProduct`.

for each vector of records, the last of which reaches back:
    for each sum of a record: for each term: combine(sum, map(left, right))        operands are taken apart when needed
    put the results together, and store them
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.contraction.normalise import constant
from tilewright.ir.scalars import BOOL, I64, real_of
from tilewright.kernel.ir import (
    BlockIndex,
    Broadcast,
    Buffer,
    Comment,
    Expression,
    FirstLanes,
    Load,
    Operation,
    Shuffle,
    Store,
    VectorType,
    add,
    element_of,
    integer,
    load,
    multiply,
    operation,
)
from tilewright.kernel.launch import Launch
from tilewright.passes.items.launch_writer import LaunchWriter
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.items.scalar_values import constant as constant_value
from tilewright.passes.lane_products.records import RecordProduct, Records
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.packed.form import is_multiply_add

BLOCK_BYTES = 1 << 17
"""What a block reads and writes at the least, some microseconds' work."""
ZERO = integer(0)


def write_record_product(form: RecordProduct) -> Launch:
    """The kernel of a form and everything that its launch needs."""
    return _Writer(form).written()


class _Writer(LaunchWriter):
    def __init__(self, form: RecordProduct) -> None:
        super().__init__(form.contraction, I64)
        self.form = form
        self.left, self.right, self.out = (
            _Array(self, one, self.global_buffer(one.operand, hint, hint != "out"))
            for one, hint in zip(form.arrays, ("left", "right", "out"), strict=True)
        )
        self.fused = is_multiply_add(form.contraction)

    def written(self) -> Launch:
        form, lanes = self.form, self.form.lanes
        self.emit.emit(Comment(f"{lanes} records at a time"))
        nbytes = sum(max(1, one.step) * one.operand.element.bytes for one in form.arrays)
        each = max(lanes, BLOCK_BYTES // nbytes // lanes * lanes)
        count = self.parameter("records", form.count)
        for one in (self.left, self.right):
            one.begin()
        first = self.emit.let(multiply(BlockIndex(), self.parameter("each", each)), "first")
        stop = self.minimum(add(first, self.parameter("each", each)), count)
        last = self.emit.let(operation("sub", count, integer(lanes)), "last")
        self.loop("wanted", first, stop, lambda wanted: self._records(self.minimum(wanted, last)), lanes)
        return self.launch("contraction", -(-form.count // each))

    def _records(self, at: Expression) -> None:
        form = self.form
        for one in (self.left, self.right, self.out):
            one.move(at)
        results: dict[int, Value] = {}
        for point in form.points(contracted=False):
            total = self._neutral()
            for term in form.points(contracted=True):
                here = {**point, **term}
                left, right = self.left.value(form.place("left", here)), self.right.value(form.place("right", here))
                total = self._stepped(total, left, right)
            results[form.place("out", point)] = total
        self.out.store(results)

    def _neutral(self) -> Value:
        neutral = self.contraction.neutral
        return tuple(self._everywhere(one) for one in constant_value(neutral.value, neutral.scalar))

    def _everywhere(self, one: Expression) -> Expression:
        return Broadcast(one, VectorType(element_of(one.type), self.form.lanes))

    def _stepped(self, total: Value, left: Value, right: Value) -> Value:
        """combine(total, map(left, right)); of complex numbers re + ac - bd and im + ad + bc."""

        def fma(one: Expression, other: Expression, before: Expression) -> Expression:
            return self.emit.let(Operation("fma", (one, other, before), before.type), "total")

        types = {element_of(one.type) for one in (*total, *left, *right)}
        if self.fused and len(types) == len(left) == len(right) == 1:
            return (fma(left[0], right[0], total[0]),)
        if self.fused and len(total) == len(left) == len(right) == 2:
            real, imaginary = fma(left[0], right[0], total[0]), fma(left[0], right[1], total[1])
            negative = self.emit.let(operation("neg", left[1]), "negative")
            return fma(negative, right[1], real), fma(left[1], right[0], imaginary)
        (mapped,) = lower_lambda_vector(self.contraction.map, [left, right], self.form.lanes, self.emit)
        pair = [tuple(self.emit.let(one, "operand") for one in value) for value in (total, mapped)]
        (result,) = lower_lambda_vector(self.contraction.combine, pair, self.form.lanes, self.emit)
        return tuple(self.emit.let(one, "total") for one in result)


class _Array:
    """An array of records: their elements as vectors, one of each record in each lane."""

    def __init__(self, w: _Writer, records: Records, buffer: Buffer) -> None:
        self.w, self.records, self.buffer = w, records, buffer
        self.lanes = w.form.lanes
        self.vector = VectorType(real_of(records.operand.element), self.lanes)
        self.start = w.parameter("offset", constant(records.operand.offset) * records.parts)
        self.length = records.numbers
        self.held: dict[int, Value] = {}
        self.read: dict[int, list[Expression]] = {}
        self.at: Expression = ZERO

    def begin(self) -> None:
        """Read what all records share."""
        if self.records.step:
            return
        for place in self.records.places:
            first, parts = place * self.records.parts, range(self.records.parts)
            found = [load(self.buffer, add(self.start, integer(first + part))) for part in parts]
            self.held[place] = tuple(self.w.emit.let(Broadcast(one, self.vector), "shared") for one in found)

    def move(self, at: Expression) -> None:
        """Go on to the records from number `at` on."""
        if self.records.step:
            self.held, self.read = {}, {}
            self.at = self.w.emit.let(add(self.start, multiply(at, integer(self.length))), "at")

    def value(self, place: int) -> Value:
        """The elements of all records at a place."""
        if place not in self.held:
            parts = self.records.parts
            if self.records.lies_apart:
                plane = place if self.records.step == 1 else 0
                found = [self._taken(plane, (place - plane) * parts + part) for part in range(parts)]
            else:
                found = [load(self.buffer, add(self.at, integer(place)), self.lanes)]
            self.held[place] = tuple(self.w.emit.let(one, "element") for one in found)
        return self.held[place]

    def _taken(self, plane: int, number: int) -> Expression:
        if plane not in self.read:
            self.read[plane] = self._numbers(plane)
        places = [divmod(lane * self.length + number, self.lanes) for lane in range(self.lanes)]
        return self._gathered(self.read[plane], places)

    def _numbers(self, plane: int) -> list[Expression]:
        """All numbers of the records as they lie, none behind those that the last record has."""
        found: list[Expression] = []
        parts = self.records.parts
        used = parts if self.records.step == 1 else (self.records.places[-1] + 1) * parts
        needed = (self.lanes - 1) * self.length + used
        for first in range(0, needed, self.lanes):
            one = load(self.buffer, add(self.at, integer(plane * parts + first)), self.lanes)
            if first + self.lanes > needed:
                mask = FirstLanes(integer(needed - first), VectorType(BOOL, self.lanes))
                one = Load(one.buffer, one.index, one.type, mask=self.w.emit.let(mask, "mask"))
            found.append(self.w.emit.let(one, "numbers"))
        return found

    def store(self, results: dict[int, Value]) -> None:
        """Write the results of the records by their places."""
        if not self.records.lies_apart:
            for place, (value,) in results.items():
                self.w.emit.emit(Store(self.buffer, add(self.at, integer(place)), value))
            return
        planes = [[one] for one in sorted(results)] if self.records.step == 1 else [sorted(results)]
        for plane in planes:
            numbers = [part for place in plane for part in results[place]]
            for first in range(0, self.length * self.lanes, self.lanes):
                places = [divmod(one, self.length)[::-1] for one in range(first, first + self.lanes)]
                where = add(self.at, integer(plane[0] * self.records.parts + first))
                self.w.emit.emit(Store(self.buffer, where, self._gathered(numbers, places)))

    def _gathered(self, vectors: Sequence[Expression], places: Sequence[tuple[int, int]]) -> Expression:
        """A vector of the lanes at (number of a vector, lane): of two vectors at a time, until one is left."""
        held = [
            (vectors[number], {lane: one[1] for lane, one in enumerate(places) if one[0] == number})
            for number in sorted({number for number, _ in places})
        ]
        while len(held) > 1:
            pairs = zip(held[::2], held[1::2], strict=False)
            held = [*(self._merged(*pair) for pair in pairs), *(held[-1:] if len(held) % 2 else [])]
        ((found, lanes),) = held
        if all(lane == source for lane, source in lanes.items()):
            return found
        return self._shuffled(found, found, tuple(lanes[lane] for lane in range(self.lanes)))

    def _merged(
        self, one: tuple[Expression, dict[int, int]], other: tuple[Expression, dict[int, int]]
    ) -> tuple[Expression, dict[int, int]]:
        both = one[1] | {lane: self.lanes + source for lane, source in other[1].items()}
        lanes = tuple(both.get(lane, lane) for lane in range(self.lanes))
        return self._shuffled(one[0], other[0], lanes), {lane: lane for lane in both}

    def _shuffled(self, one: Expression, other: Expression, lanes: tuple[int, ...]) -> Expression:
        return self.w.emit.let(Shuffle(one, other, lanes, self.vector), "picked")
