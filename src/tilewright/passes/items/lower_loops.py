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
from tilewright.passes.items.loop_turns import turns_of
from tilewright.passes.items.lower_items import AnyValue, bind, call, lower_body, lower_expression, value_of
from tilewright.passes.items.lower_scalar import assign_values, declare_value, lower_size
from tilewright.passes.items.split_ranges import emit_first_apart


@lower_expression.register
def _(expression: nodes.Loop, item: Item, targets: tuple[Variable, ...]) -> Sequence[AnyValue]:
    merged: list[tuple[Name, ...] | ArrayView] = []
    spare: list[ArrayView | None] = []
    item.overwrites |= overwriting(nodes.Statement(targets, expression))
    unseen = all_replaced(expression)
    for number, (parameter, atom) in enumerate(zip(expression.parameters, expression.initial, strict=True)):
        value, target = None if number in unseen else value_of(item, atom), targets[number]
        if isinstance(value, tuple):
            merged.append(declare_value(value, parameter.name, item.emit))
            spare.append(None)
        else:
            place = item.target(target)
            if value is not None:
                item.copy(value, place)
            merged.append(place)
            in_place = parameter.name in item.overwrites
            spare.append(place if in_place else item.allocate(target.type, f"{target.name}_next"))
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

    form, moves = expression.form, any(new not in (None, old) for new, old in zip(spare, merged, strict=True))
    together = moves and item.vector_lanes and item.lanes is None and _is_short(expression.body)
    if together and isinstance(form, nodes.ForLoop):
        there = [old if new is None else new for old, new in zip(merged, spare, strict=True)]
        here = [old if isinstance(old, ArrayView) else None for old in merged]
        _write_pairs(form, item, lambda: write_round(merged, spare), lambda: write_round(there, here), copy_back)
        return merged

    turns = turns_of(item, expression, merged, spare) if moves else None
    if turns is not None:
        _write_loop(expression, item, merged, lambda: turns.round(write_round))
        turns.end()
        return merged

    def body() -> tuple[kernel.Statement, ...]:
        with item.emit.scope() as statements:
            write_round(merged, spare)
            copy_back()
        return tuple(statements)

    _write_loop(expression, item, merged, body)
    return merged


def _is_short(body: nodes.Body) -> bool:
    """Whether copies of a round's arrays count beside its work, and its code is small enough to be written twice."""
    kinds = nodes.Loop | nodes.Reduce | nodes.Redomap | nodes.Scan | nodes.Scanomap
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
