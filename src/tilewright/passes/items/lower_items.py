"""Core code that runs inside one work item: every construct becomes sequential loops over memory of the item.

Results of a body can be given a destination (a row of the surrounding map's result, say); a construct that needs
memory for its result takes the destination instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.lmad import LMAD, row_major
from tilewright.ir.nodes import Atom, Body, Expression, Lambda, Statement, Variable, atom_size
from tilewright.ir.scalars import BOOL, I64, ScalarType
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import bound_variables
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import Name
from tilewright.passes.items.checks import checked, checked_count, checked_slice, only_if
from tilewright.passes.items.item_memory import ArrayValue, IotaArray, Item
from tilewright.passes.items.joined_parts import parts_of, place_parts
from tilewright.passes.items.lower_scalar import (
    assign_values,
    declare_value,
    lower_atom,
    lower_scalar_expression,
    lower_size,
)
from tilewright.passes.items.scalar_values import LoweringError, Value, constant
from tilewright.passes.items.speculation import Speculation
from tilewright.passes.items.upper_bounds import defined_size

AnyValue: TypeAlias = Value | ArrayValue


def lower_body(item: Item, body: Body, destinations: Sequence[ArrayView | None] = ()) -> list[AnyValue]:
    """The results of a body; those with a destination are written there."""
    wanted = list(destinations) or [None] * len(body.results)
    bound = {target.name for statement in body.statements for target in statement.targets}
    for atom, place in zip(body.results, wanted, strict=True):
        if place is not None and isinstance(atom, Variable) and atom.type.rank and atom.name in bound:
            item.destinations.setdefault(atom.name, place)
    for position, statement in enumerate(body.statements):
        if isinstance(statement.expression, nodes.Concat):
            place_parts(item, body, position)
    for statement in body.statements:
        lower_statement(item, statement)
    values = [value_of(item, atom) for atom in body.results]
    for atom, value, place in zip(body.results, values, wanted, strict=True):
        if isinstance(atom, Variable):
            item.destinations.pop(atom.name, None)
        if place is not None:
            write(item, value, place)
    return values


def lower_statement(item: Item, statement: Statement) -> None:
    """Bind the targets of a statement."""
    item.inner.update(variable.name for variable in bound_variables(statement))
    _define_size(item, statement)
    for target in statement.targets:
        if target.name in item.overwrites:
            item.destinations[target.name] = view(item, item.overwrites[target.name])
    values = lower_expression(statement.expression, item, statement.targets)
    for target, value in zip(statement.targets, values, strict=True):
        bind(item, target, value)


def _define_size(item: Item, statement: Statement) -> None:
    """Remember what an i64 scalar is as a size, for bounds of extents, and what a comparison of two says."""
    defined = defined_size(statement.expression)
    if defined is not None:
        item.definitions[statement.targets[0].name] = defined
    match statement.expression:
        case nodes.Apply("lt" | "le" | "gt" | "ge" as operator, (left, right)) if left.type == nodes.Type(I64):
            less, more = (left, right) if operator in ("lt", "le") else (right, left)
            negative = atom_size(less) - atom_size(more)
            item.conditions[statement.targets[0].name] = negative if operator in ("lt", "gt") else negative - 1
        case nodes.Apply("and" | "or" | "not" as operator, operands) if operands[0].type == nodes.Type(BOOL):
            item.junctions[statement.targets[0].name] = operator, tuple(map(str, operands))
        case nodes.Apply("mod", (left, right)) if left.type == nodes.Type(I64):
            number, extent = item.resolved(atom_size(left)), item.resolved(atom_size(right))
            # An extent is positive where an index below it is in use.
            if any(item.resolved(item.ranges[name]) == extent for name in number.names & item.ranges.keys()):
                item.ranges[statement.targets[0].name] = extent


def bind(item: Item, variable: Variable, value: AnyValue) -> None:
    """Give a variable its value."""
    item.inner.add(variable.name)
    if isinstance(value, tuple):
        item.emit.values[variable.name] = value
        if variable.type == nodes.Type(I64) and isinstance(value[0], kernel.Name) and value[0].name in item.counted:
            item.definitions[variable.name] = item.counted[value[0].name]
    else:
        item.arrays[variable.name] = value


def bind_index(item: Item, variable: Variable, index: Size, extent: Size) -> None:
    """Let a variable of the program be an index below `extent`."""
    value = item.emit.let(lower_size(index, item.emit), variable.name)
    bind(item, variable, (value,))
    item.ranges[variable.name] = extent


def value_of(item: Item, atom: Atom) -> AnyValue:
    """A scalar's value or an array."""
    if atom.type.rank == 0:
        return lower_atom(atom, item.emit)
    assert isinstance(atom, Variable)
    if atom.name not in item.arrays:
        raise LoweringError(f"array {atom} of type {atom.type} is not in scope of the kernel")
    return item.arrays[atom.name]


def view(item: Item, variable: Variable) -> ArrayView:
    """An array in memory."""
    value = value_of(item, variable)
    assert not isinstance(value, tuple)
    return item.as_view(value, variable.name)


def write(item: Item, value: AnyValue, place: ArrayView) -> None:
    """Copy a scalar or an array to a place."""
    if isinstance(value, tuple):
        item.store(place, (), value)
    else:
        item.copy(value, place)


def row_of(place: ArrayView, index: Size) -> ArrayView:
    """place[index]."""
    return ArrayView(place.buffer, place.element, place.lmad.fix([index]))


def call(
    item: Item, function: Lambda, arguments: Sequence[AnyValue], destinations: Sequence[ArrayView | None] = ()
) -> list[AnyValue]:
    """The results of a function on these arguments."""
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        bind(item, parameter, argument)
    item.inner.update(variable.name for variable in bound_variables(function))
    return lower_body(item, function.body, destinations)


# --- expressions ------------------------------------------------------------------------------------------------------


@singledispatch
def lower_expression(expression: Expression, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    """The values of an expression; arrays that need memory take `item.target` of their target."""
    return lower_scalar_expression(expression, item.emit)


@lower_expression.register
def _(expression: nodes.Apply, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    """(i + c * n) mod n is i mod n, whatever n is: by 0 both are 0."""
    if expression.operator == "mod" and targets[0].type == nodes.Type(I64):
        number, extent = (item.resolved(atom_size(one)) for one in expression.operands)
        rounds = dict(number.terms).get(extent.terms[0][0]) if len(extent.terms) == 1 and extent.names else None
        if rounds is not None and extent.terms[0][1] == 1:
            less, by = (lower_size(one, item.emit) for one in (number - extent * rounds, extent))
            return ((item.emit.let(kernel.operation("mod", less, by)),),)
    return lower_scalar_expression(expression, item.emit)


@lower_expression.register
def _(expression: nodes.Alias, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    return (value_of(item, expression.atom),)


@lower_expression.register
def _(expression: nodes.Index, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    array = expression.array
    indices = [
        checked(item, atom_size(index), extent, expression, d)
        for d, (index, extent) in enumerate(zip(expression.indices, array.type.shape, strict=False))
    ]
    source = value_of(item, array)
    if not indices:
        return (source,)
    if isinstance(source, IotaArray):
        return (item.row(source, indices[0]),)
    found = view(item, array)
    if len(indices) == array.type.rank:
        return (item.load(found, indices),)
    return (ArrayView(found.buffer, found.element, found.lmad.fix(indices)),)


@lower_expression.register(nodes.Slice)
@lower_expression.register(nodes.Rearrange)
def _(expression: nodes.Slice | nodes.Rearrange, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    if expression.array.type.rank == 0:
        return (value_of(item, expression.array),)
    base = view(item, expression.array)
    if isinstance(expression, nodes.Slice):
        safe = [
            checked_slice(item, one, extent, expression, d)
            for d, (one, extent) in enumerate(zip(expression.dimensions, expression.array.type.shape, strict=True))
        ]
        lmad = base.lmad.slice([one for one, _ in safe])
        lmad = LMAD(lmad.offset, lmad.shape, tuple(s * ok for s, (_, ok) in zip(lmad.strides, safe, strict=True)))
    else:
        lmad = base.lmad.rearrange(expression.permutation)
    return (ArrayView(base.buffer, base.element, lmad),)


@lower_expression.register
def _(expression: nodes.Reshape, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    if expression.array.type.rank == 0:
        value = value_of(item, expression.array)
        assert isinstance(value, tuple)
        if not expression.shape:
            return (value,)
        source = one_element(item, expression.array.type.element, value)
    else:
        source = view(item, expression.array)
    right = None if expression.array.type.rank == 0 else checked_count(item, expression.array, expression.shape)
    found = reshaped(source, expression.shape)
    if found is not None:
        return (only_if(right, found),)
    memory = item.target(targets[0])
    same = reshaped(memory, source.lmad.shape) if right is None else None
    if same is not None:
        item.copy(source, same)
        return (memory,)
    if item.lanes is not None:
        raise LoweringError("a reshape that copies is not written for several points together")
    dense = item.allocate(nodes.Type(source.element, source.lmad.shape), "dense")
    item.copy(source, dense)
    item.copy(only_if(right, _dense_as(dense, expression.shape)), memory)
    return (memory,)


def reshaped(source: ArrayView, shape: Sequence[Size]) -> ArrayView | None:
    """The same elements under another shape, without a copy, where that is possible."""
    if source.lmad.is_row_major:
        return _dense_as(source, shape)
    lmad = source.lmad.reshape(shape)
    return None if lmad is None else ArrayView(source.buffer, source.element, lmad)


def _dense_as(source: ArrayView, shape: Sequence[Size]) -> ArrayView:
    return ArrayView(source.buffer, source.element, row_major(tuple(shape), source.lmad.offset))


@lower_expression.register
def _(expression: nodes.Replicate, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    value = value_of(item, expression.value)
    if isinstance(value, tuple):
        place = item.destinations.pop(targets[0].name, None)
        if place is not None:
            item.each(place.lmad.shape, lambda indices: item.store(place, indices, value))
            return (place,)
        cell = one_element(item, expression.value.type.element, value)
    else:
        cell = item.as_view(value)
    return (ArrayView(cell.buffer, cell.element, cell.lmad.broadcast(expression.count)),)


def one_element(item: Item, element: ScalarType, value: Value) -> ArrayView:
    """A scalar in private memory, as an array of rank 0."""
    if item.lanes is not None:
        cell = item.allocate(nodes.Type(element), "one")
        item.store(cell, (), value)
        return cell
    cell = ArrayView(item.own("one", element, 1).buffer, element, row_major(()))
    item.store(cell, (), value)
    return cell


@lower_expression.register
def _(expression: nodes.Iota, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    return (IotaArray(expression.count, expression.scalar),)


@lower_expression.register
def _(expression: nodes.Copy, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    # Values never change, so that a copy inside a work item need not be made.
    return (value_of(item, expression.array),)


@lower_expression.register
def _(expression: nodes.Concat, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    sources = [view(item, one) for one in expression.arrays]
    memory = item.target(targets[0])
    parts = parts_of(memory, expression.axis, [one.lmad.shape for one in sources])
    for source, part in zip(sources, parts, strict=True):
        at, of = source.lmad, part.lmad
        if (source.buffer, at.offset, at.strides) != (part.buffer, of.offset, of.strides):  # else it was made there
            item.copy(source, part)
    return (memory,)


@lower_expression.register
def _(expression: nodes.Update, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    array = expression.array
    source = view(item, array)
    value = value_of(item, expression.value)
    indices = [
        checked(item, atom_size(index), extent, expression, d)
        for d, (index, extent) in enumerate(zip(expression.indices, array.type.shape, strict=False))
    ]
    memory = item.target(targets[0])
    item.copy(source, memory)
    place = ArrayView(memory.buffer, memory.element, memory.lmad.fix(indices))
    intact = item.intact()
    if intact is not None:  # nothing is written after a failed check: index 0 need not exist
        item.emit.when(intact, lambda: write(item, value, place))
    else:
        write(item, value, place)
    return (memory,)


# --- control ----------------------------------------------------------------------------------------------------------


@lower_expression.register
def _(expression: nodes.If, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    condition = lower_atom(expression.condition, item.emit)[0]
    scalar = not any(target.type.rank for target in targets)
    if scalar and item.speculation is not None and is_cheap(expression):
        return _both_sides(expression, item, item.speculation, condition)
    places: list[ArrayView | None] = []
    scalars: list[tuple[Name, ...]] = []
    for target in targets:
        places.append(item.target(target) if target.type.rank else None)
        if target.type.rank == 0:
            scalars.append(declare_value(constant(0, target.type.element), "chosen", item.emit))
    branches = []
    for body, holds in ((expression.then, True), (expression.otherwise, False)):
        with item.given(str(expression.condition), holds), item.emit.scope() as statements:
            values = lower_body(item, body, places)
            assign_values(scalars, [value for value in values if isinstance(value, tuple)], item.emit)
        branches.append(tuple(statements))
    item.emit.emit(kernel.If(condition, *branches))
    remaining = iter(scalars)
    return [place if place is not None else next(remaining) for place in places]


_CHEAP = {
    "add", "sub", "mul", "min", "max", "neg", "abs", "and", "or", "xor", "not", "eq", "ne", "lt", "le", "gt", "ge",
    "select",
}  # fmt: skip
MOST_CHEAP = 16


def is_cheap(expression: nodes.If) -> bool:
    """Whether both branches are a few operations on scalars and reads of elements, so that both may be computed."""
    inside = [*expression.then.statements, *expression.otherwise.statements]
    return len(inside) <= MOST_CHEAP and all(
        not any(target.type.rank for target in one.targets)
        and (
            isinstance(one.expression, nodes.Cast | nodes.Alias | nodes.SizeValue | nodes.Index)
            or (isinstance(one.expression, nodes.Apply) and one.expression.operator in _CHEAP)
            or (isinstance(one.expression, nodes.If) and is_cheap(one.expression))
        )
        for one in inside
    )


def _both_sides(
    expression: nodes.If, item: Item, speculation: Speculation, condition: kernel.Expression
) -> Sequence[AnyValue]:
    """Both branches, and a choice between their results; an index counts as wrong only where its branch is taken."""
    emit, around = item.emit, speculation.guard
    chosen = emit.let(condition, "chosen")
    sides = []
    for body, holds in ((expression.then, chosen), (expression.otherwise, kernel.operation("not", chosen))):
        guard = holds if around is None else kernel.operation("and", around, holds)
        speculation.guard = emit.let(guard, "guard")
        sides.append([value for value in lower_body(item, body) if isinstance(value, tuple)])
    speculation.guard = around
    return [
        tuple(emit.let(kernel.operation("select", chosen, a, b), "either") for a, b in zip(yes, no, strict=True))
        for yes, no in zip(*sides, strict=True)
    ]
