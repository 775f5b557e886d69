"""The code of a nest of streams with neighbouring points in the lanes of vectors (the choice: streams/lane_choice.py).

    for j: for k: acc = combine(acc, f(x[j], y[k]))
    =>  for each group of points: for k: for each vector of the group: acc = combine(acc, f(x[its points], y[k]))

What does not differ between points stays scalar and is computed once for the group. The last points of a chunk are
done one vector at a time with the lanes past the end masked. Long folds are cut into pieces of `PIECE` rows, whose
results are folded in turn, so that the error of a sum grows with the root of its length and not with its length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from tilewright.ir import nodes
from tilewright.ir.nodes import Atom, Body, Lambda, Reduction, Statement, Variable, atom_size
from tilewright.ir.scalars import BOOL, I64, ScalarType, compute_type
from tilewright.ir.sizes import ONE, Size, minimum, size
from tilewright.ir.traversal import all_statements, mentioned, sub_bodies, used_variables
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Constant, Expression, Load, Name, Store, VectorType, add, element_of, operation
from tilewright.passes.core.narrow_indices import MOST
from tilewright.passes.items import lower_folds
from tilewright.passes.items.checks import checked
from tilewright.passes.items.item_memory import ArrayValue, IotaArray, Item
from tilewright.passes.items.lower_items import bind, bind_index, lower_statement, value_of
from tilewright.passes.items.lower_scalar import assign_values, lower_atom, lower_size
from tilewright.passes.items.scalar_values import Value
from tilewright.passes.lanes.vectorise import lower_lambda_vector
from tilewright.passes.points.lower_general import Places, Points
from tilewright.passes.streams.lane_choice import LaneForm, function_of, is_lane_load
from tilewright.passes.streams.rows import Group, side_by_side

PIECE = 256


def with_lanes(points: Points, form: LaneForm) -> Points:
    """The points of a nest, those of the innermost dimension in vectors where there are enough of them."""

    def columns(
        item: Item,
        at: Sequence[Size],
        bounds: tuple[Expression, Expression],
        places: Places,
        one_by_one: Callable[[], None],
    ) -> None:
        low, high = bounds
        _bind_outer(item, form, at)
        with item.emit.scope() as together:
            group, lanes = form.lanes * form.vectors, form.lanes
            whole = operation("mul", operation("floordiv", operation("sub", high, low), _i64(group)), _i64(group))
            middle = item.emit.let(add(low, whole), "middle")
            _groups(item, form, at, places, (low, middle), form.vectors, None)
            _groups(item, form, at, places, (middle, high), 1, high)
        with item.emit.scope() as single:
            one_by_one()
        enough = operation("ge", operation("sub", high, low), _i64(lanes // 2))
        for extent in form.narrow:
            enough = operation("and", enough, operation("le", lower_size(extent, item.emit), _i64(MOST)))
        item.emit.emit(kernel.If(item.emit.let(enough, "together"), tuple(together), tuple(single)))

    return dataclasses.replace(points, columns=columns, flat=None, together=form.lanes * form.vectors)


def _i64(value: int) -> Constant:
    return Constant(value, I64)


def _bind_outer(item: Item, form: LaneForm, at: Sequence[Size]) -> None:
    for variable, index, extent in zip(form.nest.indices, at, form.nest.space, strict=False):
        bind_index(item, variable, index, extent)
    for (function, variables, prefix), index in zip(form.nest.levels[:-1], at, strict=False):
        for parameter, array in zip(function.parameters, lower_folds.arrays_of(item, variables), strict=True):
            bind(item, parameter, item.row(array, index))
        for statement in prefix:
            lower_statement(item, statement)


def _groups(
    item: Item, form: LaneForm, at: Sequence[Size], places: Places,
    bounds: tuple[Expression, Expression], vectors: int, end: Expression | None,
) -> None:  # fmt: skip
    """A loop over groups of points; with `end` the points from there on are masked."""
    name, first = item.index("first", form.nest.space[-1])
    with item.emit.scope() as body:
        count = None if end is None else item.emit.let(operation("sub", end, name), "count")
        _Group(item, form, vectors, first, count).write(at, places)
    step = _i64(vectors * form.lanes)
    item.emit.emit(kernel.For(name.name, bounds[0], bounds[1], tuple(body), step=step))


class _Group:
    """The code of one group. `vectors` holds, by name, the values that differ between points: one for each vector."""

    def __init__(self, item: Item, form: LaneForm, count: int, first: Size, points: Expression | None) -> None:
        self.item, self.form, self.first, self.points = item, form, first, points
        self.count = count
        self.vectors: dict[str, list[Value]] = {}
        self.rows: dict[str, ArrayView] = {}
        self.inside = 0  # folds around
        lanes = VectorType(BOOL, form.lanes)
        self.mask = None if points is None else item.emit.let(kernel.FirstLanes(points, lanes), "mask")

    def write(self, at: Sequence[Size], places: Places) -> None:
        """Compute the points and store their results."""
        nest = self.form.nest
        for function, variables, _ in nest.levels[-1:]:
            used = mentioned(nest.body)
            for parameter, array in zip(function.parameters, lower_folds.arrays_of(self.item, variables), strict=True):
                if parameter.type.rank == 0 and parameter.name in used:
                    self.vectors[parameter.name] = self._loaded(parameter, array)
                elif parameter.name in self.form.staged and isinstance(array, ArrayView):
                    last = None if self.points is None else operation("sub", self.points, _i64(1))
                    group = Group(self.form.lanes, self.count, self.first, last)
                    self.rows[parameter.name] = side_by_side(self.item, array, group)
        for index in nest.indices[-1:]:
            if _computes_with(index.name, nest.body, self.form):
                self.vectors[index.name] = self._loaded(index, IotaArray(nest.space[-1], I64))
        results = self.body(nest.body)
        for position, values in zip(self.form.nest.order, results, strict=True):
            if position is not None:
                place = places[position]
                self._store(ArrayView(place.buffer, place.element, place.lmad.fix(at)), values)

    # --- memory

    def _type(self, variable_element: object) -> VectorType:
        return VectorType(variable_element, self.form.lanes)  # type: ignore[arg-type]

    def _loaded(self, parameter: Variable, array: ArrayValue) -> list[Value]:
        """The rows of an array at the group's points."""
        element = parameter.type.element
        type_ = self._type(compute_type(element))
        lanes = self.form.lanes
        if isinstance(array, ArrayView) and array.lmad.strides[0] == ONE:
            buffer = self.item.buffer_of(array)
            places = [lower_size(array.lmad.flat((self.first + r * lanes,)), self.item.emit) for r in range(self.count)]
            return [(self.item.emit.let(Load(buffer, at, type_, mask=self.mask), parameter.name),) for at in places]
        memory = self._memory(compute_type(element))

        def gather(lane: Size) -> None:
            index = self.first + lane
            if self.points is not None:  # the last point stands for those past the end
                last = self.item.emit.let(operation("sub", self.points, _i64(1)), "last")
                index = self.first + self._core(operation("min", lower_size(lane, self.item.emit), last))
            value = self.item.row(array, index)
            assert isinstance(value, tuple)
            self.item.store(memory, (lane,), value)

        self.item.loop(size(lanes * self.count), "lane", gather)
        buffer = self.item.buffer_of(memory)
        return [(self.item.emit.let(Load(buffer, _i64(r * lanes), type_), parameter.name),) for r in range(self.count)]

    def _row(self, statement: Statement) -> list[Value]:
        """An element of a row for each point."""
        index = statement.expression
        assert isinstance(index, nodes.Index)
        source = value_of(self.item, index.array)
        assert not isinstance(source, tuple)
        if isinstance(source, ArrayView):
            outer = [
                checked(self.item, atom_size(one), extent, index, d)
                for d, (one, extent) in enumerate(zip(index.indices[:-1], index.array.type.shape, strict=False))
            ]
            source = ArrayView(source.buffer, source.element, source.lmad.fix(outer))
        return self._loaded(statement.targets[0], source)

    def _core(self, value: Expression) -> Size:
        return self.item.named(value, "at")

    def _memory(self, element: ScalarType) -> ArrayView:
        return self.item.own("lanes", element, self.form.lanes * self.count)

    def _store(self, place: ArrayView, values: Sequence[Value]) -> None:
        """Write the results of the points to a row of a target."""
        emit, lanes = self.item.emit, self.form.lanes
        if place.lmad.strides[0] == ONE:
            buffer = self.item.buffer_of(place)
            for r, (value,) in enumerate(values):
                at = lower_size(place.lmad.flat((self.first + r * lanes,)), emit)
                emit.emit(Store(buffer, at, value, mask=self.mask))
            return
        memory = self._memory(compute_type(place.element))
        buffer = self.item.buffer_of(memory)
        for r, (value,) in enumerate(values):
            emit.emit(Store(buffer, _i64(r * lanes), value))
        points = _i64(lanes * self.count)
        stop = points if self.points is None else operation("min", points, self.points)

        def scatter(lane: Size) -> None:
            self.item.store(place, (self.first + lane,), self.item.load(memory, (lane,)))

        self.item.loop(self._core(stop), "lane", scatter)

    # --- values

    def values_of(self, atom: Atom) -> list[Value]:
        """A vector for each vector of points."""
        if isinstance(atom, Variable) and atom.name in self.vectors:
            return self.vectors[atom.name]
        uniform = lower_atom(atom, self.item.emit)
        whole = tuple(kernel.Broadcast(part, self._type(element_of(part.type))) for part in uniform)
        return [whole] * self.count

    def body(self, body: Body) -> list[list[Value]]:
        """The results of a body."""
        for statement in body.statements:
            if not self.form.changes(statement):
                lower_statement(self.item, statement)
            elif isinstance(statement.expression, Reduction):
                self._fold(statement, statement.expression)
            elif is_lane_load(self.form, statement):
                self.vectors[statement.targets[0].name] = self._row(statement)
            else:
                names = mentioned(statement.expression)
                variables = _used(statement.expression, names & self.vectors.keys())
                results = self._apply(function_of(statement, variables), [self.vectors[one.name] for one in variables])
                for target, values in zip(statement.targets, results, strict=True):
                    self.vectors[target.name] = values
        return [self.values_of(atom) for atom in body.results]

    def _apply(self, function: Lambda, arguments: Sequence[Sequence[Value]]) -> list[list[Value]]:
        """The results of a function, each for every vector of points."""
        emit, lanes = self.item.emit, self.form.lanes
        found = [lower_lambda_vector(function, [one[r] for one in arguments], lanes, emit) for r in range(self.count)]
        kept = [[tuple(emit.let(part) for part in value) for value in values] for values in found]
        return [[values[position] for values in kept] for position in range(len(function.body.results))]

    # --- folds

    def _fold(self, statement: Statement, fold: Reduction) -> None:
        arrays = [None if one.name in self.rows else value_of(self.item, one) for one in fold.arrays]
        function = fold.function if isinstance(fold, nodes.Redomap) else None
        nested = function is not None and any(isinstance(one.expression, Reduction) for one in function.body.statements)
        neutral = [self.values_of(atom) for atom in fold.neutral]
        parameters = fold.combine.parameters[len(neutral) :] if function is None else function.parameters

        def step(into: Sequence[Sequence[tuple[Name, ...]]], index: Size) -> None:
            for parameter, variable, array in zip(parameters, fold.arrays, arrays, strict=True):
                if array is None:
                    self.vectors[parameter.name] = self._own(variable, index)
                else:
                    assert not isinstance(array, tuple)
                    bind(self.item, parameter, self.item.row(array, index))
            self.inside += 1
            values = [self.values_of(one) for one in parameters] if function is None else self.body(function.body)
            self.inside -= 1
            self._combine(fold, into, values)

        def piece(number: Size) -> None:
            start = number * PIECE
            part = self._declared(neutral)
            self.item.loop(minimum(size(PIECE), fold.width - start), "k", lambda k: step(part, start + k))
            self._combine(fold, total, part)

        total = self._declared(neutral)
        pieces = (fold.width + PIECE - 1) // PIECE
        if nested or (fold.width.constant is not None and fold.width.constant <= PIECE):
            self.item.loop(fold.width, "k", lambda k: step(total, k))
        elif self.inside:  # short ones are frequent there, and must not pay for pieces
            is_short = operation("le", lower_size(fold.width, self.item.emit), _i64(PIECE))
            self.item.emit.when(
                self.item.emit.let(is_short, "is_short"),
                lambda: self.item.loop(fold.width, "k", lambda k: step(total, k)),
                lambda: self.item.loop(pieces, "piece", piece),
            )
        else:
            self.item.loop(pieces, "piece", piece)
        for target, values in zip(statement.targets, total, strict=True):
            self.vectors[target.name] = list(values)

    def _own(self, variable: Variable, index: Size) -> list[Value]:
        """Element `index` of the points' own rows."""
        memory, lanes = self.rows[variable.name], self.form.lanes
        buffer, type_ = self.item.buffer_of(memory), self._type(memory.element)
        places = [lower_size(memory.lmad.flat((index, size(r * lanes))), self.item.emit) for r in range(self.count)]
        return [(self.item.emit.let(Load(buffer, at, type_), variable.name),) for at in places]

    def _declared(self, values: Sequence[Sequence[Value]]) -> list[list[tuple[Name, ...]]]:
        """Variables that begin with these values."""
        declare = self.item.emit.declare
        return [[tuple(declare(part, "acc") for part in value) for value in one] for one in values]

    def _combine(
        self, fold: Reduction, into: Sequence[Sequence[tuple[Name, ...]]], values: Sequence[Sequence[Value]]
    ) -> None:
        """into = combine(into, values); the operator may use values of the points."""
        free = _used(fold.combine, self.vectors.keys())
        combine = Lambda((*fold.combine.parameters, *free), fold.combine.body)
        results = self._apply(combine, [*into, *values, *(self.vectors[one.name] for one in free)])
        for r in range(self.count):
            assign_values([one[r] for one in into], [one[r] for one in results], self.item.emit)


def _computes_with(name: str, body: Body, form: LaneForm) -> bool:
    """Whether a body uses the index of a point otherwise than to read rows."""
    for statement in all_statements(body):
        own: object = statement.expression
        if isinstance(own, Reduction):
            own = (own.neutral, *(inner.results for inner in sub_bodies(own)))
        elif list(sub_bodies(own)) or is_lane_load(form, statement):
            continue  # what is inside comes by itself
        if name in mentioned(own):
            return True
    return name in mentioned(body.results)


def _used(node: object, names: Collection[str]) -> list[Variable]:
    """The variables of these names in a node, each once."""
    found = {one.name: one for one in used_variables(node) if one.name in names}
    return list(found.values())
