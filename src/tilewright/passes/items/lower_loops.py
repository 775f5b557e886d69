"""Loops inside one work item. Each array that a loop carries has two memories, unless its rounds write it in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from tilewright.ir import nodes
from tilewright.ir.nodes import Variable
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import all_statements
from tilewright.ir.views import ArrayView
from tilewright.kernel import ir as kernel
from tilewright.kernel.ir import For, Name, integer
from tilewright.passes.core.overwriting import overwriting
from tilewright.passes.items.all_replaced import all_replaced
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lane_arrays import state_of, turned_rows
from tilewright.passes.items.loop_turns import turns_of
from tilewright.passes.items.lower_items import AnyValue, bind, call, lower_body, lower_expression, value_of, write
from tilewright.passes.items.lower_scalar import assign_values, declare_value, lower_size
from tilewright.passes.items.split_ranges import emit_first_apart


@lower_expression.register
def _(expression: nodes.Loop, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    item.overwrites |= overwriting(nodes.Statement(targets, expression))
    with turned_rows(item, expression):
        return _lower_loop(expression, item, targets)


def _lower_loop(expression: nodes.Loop, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    form, unseen = expression.form, all_replaced(expression)
    arrays = {number: one for number, one in enumerate(expression.parameters) if one.type.rank}
    anew = {number: targets[number].type for number, one in arrays.items() if one.name not in item.overwrites}
    together = bool(anew) and item.vector_lanes and item.lanes is None and _is_short(expression.body)
    pairs = form if together and isinstance(form, nodes.ForLoop) else None
    turns = turns_of(item, expression, anew) if pairs is None else None
    merged: list[tuple[Name, ...] | ArrayView] = []
    spare: list[ArrayView | None] = []
    begun: list[AnyValue | None] = []
    for number, (parameter, atom) in enumerate(zip(expression.parameters, expression.initial, strict=True)):
        value, target = None if number in unseen else value_of(item, atom), targets[number]
        begun.append(value)
        if isinstance(value, tuple):
            merged.append(declare_value(value, parameter.name, item.emit))
            spare.append(None)
        elif turns is not None and (first := turns.first(number)) is not None:
            item.destinations.pop(target.name, None)  # it is written when the loop has ended
            merged.append(first)
            spare.append(None)
        else:
            place = state_of(item, expression, number, target)
            merged.append(place)
            spare.append(item.allocate(target.type, f"{target.name}_next") if number in anew else place)
    for value, begin in zip(begun, merged, strict=True):
        if isinstance(begin, ArrayView) and value is not None:
            write(item, value, begin)
    scalars = [value for value in merged if isinstance(value, tuple)]

    def write_round(old: Sequence[AnyValue], new: Sequence[ArrayView | None]) -> None:
        """New arrays are complete before the first old one is overwritten, but for those written where they lie."""
        for parameter, value in zip(expression.parameters, old, strict=True):
            bind(item, parameter, value)
        with nullcontext() if item.round is None else item.round.one():
            values = lower_body(item, expression.body, new)
            assign_values(scalars, [value for value in values if isinstance(value, tuple)], item.emit)

    def copy_back() -> None:
        for old, new in zip(merged, spare, strict=True):
            if isinstance(old, ArrayView) and new is not None:
                item.copy(new, old)

    if pairs is not None:
        there = [old if new is None else new for old, new in zip(merged, spare, strict=True)]
        here = [old if isinstance(old, ArrayView) else None for old in merged]
        _write_pairs(pairs, item, lambda: write_round(merged, spare), lambda: write_round(there, here), copy_back)
        return merged
    if turns is not None:
        _write_loop(expression, item, merged, lambda: turns.round(write_round, merged, spare))
        return turns.end(merged)

    def body() -> tuple[kernel.Statement, ...]:
        with item.emit.scope() as statements:
            write_round(merged, spare)
            copy_back()
        return tuple(statements)

    _write_loop(expression, item, merged, body)
    return merged


def _is_short(body: nodes.Body) -> bool:
    """Whether copies of a round's arrays count beside its work, and its code is small enough to be written twice."""
    kinds = nodes.Loop | nodes.Fold
    return not any(isinstance(one.expression, kinds) for one in all_statements(body))


def _write_pairs(
    form: nodes.ForLoop, item: Item, there: Callable[[], None], again: Callable[[], None], back: Callable[[], None]
) -> None:
    """Two rounds at a time: the second writes where the first one read, so that only an odd last one is copied."""
    emit = item.emit
    bound = emit.let(lower_size(form.bound, emit), "bound")
    index = Name(emit.name(form.index.name), I64)
    item.ranges[form.index.name] = form.bound
    bind(item, form.index, (index,))
    with emit.scope() as body:
        there()
        after = emit.let(kernel.add(index, integer(1)), form.index.name)

        def second() -> None:
            bind(item, form.index, (after,))
            again()

        emit.when(kernel.operation("lt", after, bound), second, back)
    emit.emit(For(index.name, integer(0), bound, tuple(body), integer(2)))


def _write_loop(
    expression: nodes.Loop, item: Item, merged: Sequence[AnyValue], body: Callable[[], tuple[kernel.Statement, ...]]
) -> None:
    form = expression.form
    if isinstance(form, nodes.ForLoop):
        bound = item.emit.let(lower_size(form.bound, item.emit), "bound")
        index = Name(item.emit.name(form.index.name), I64)
        bind(item, form.index, (index,))
        item.ranges[form.index.name] = form.bound
        emit_first_apart(item.emit, bound, index, body())
        return
    statements = body()
    with item.emit.scope() as prelude:
        (holds,) = call(item, form.condition, merged)
        assert isinstance(holds, tuple)
        condition = holds[0]
        intact = item.intact()
        if intact is not None:  # a loop that goes wrong might never end
            condition = kernel.operation("and", condition, intact)
    item.emit.emit(kernel.While(tuple(prelude), condition, statements))
