"""A sweep inside a point, a loop of the host that has become one kernel, say: its statements one after another."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import nodes
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_items import AnyValue, lower_expression, lower_statement, value_of
from tilewright.passes.sweeps.form import unfolded


@lower_expression.register
def _(expression: nodes.Sweep, item: Item, targets: tuple[nodes.Variable, ...]) -> Sequence[AnyValue]:
    for one in unfolded(nodes.Statement(targets, expression), expression):
        lower_statement(item, one)
    return [value_of(item, target) for target in targets]
