"""Statements with several results of which one alone may have no elements, since an extent of it is below zero."""

from __future__ import annotations

from tilewright.ir import nodes
from tilewright.ir.counts import Natural, is_natural
from tilewright.ir.nodes import Statement, Type, Variable
from tilewright.ir.sizes import ZERO, Size, maximum
from tilewright.ir.traversal import rebuild


def with_rows_of_none(statement: Statement, natural: Natural) -> Statement:
    """(ys: [k][m - 4], zs: [k]) = map k f xs  =>  (ys: [k][max(0, m - 4)], zs: [k]) = map k f xs

    A kernel expects no extent below zero. Where all results have it there is nothing to do for such a one, and the
    kernel is not launched; others would be left as their memory was. `natural`: of which names sizes are 0 at least.
    """
    if len(statement.targets) < 2 or isinstance(statement.expression, nodes.If | nodes.Loop):
        return statement
    shapes = [target.type.shape for target in statement.targets]
    doubtful = {one for shape in shapes for one in shape if not is_natural(one, natural)}
    apart = {one: maximum(ZERO, one) for one in doubtful if not all(one in shape for shape in shapes)}
    if not apart:
        return statement

    def on_size(one: Size) -> Size:
        return apart.get(one, one)

    def on_variable(one: Variable) -> Variable:
        return Variable(one.name, Type(one.type.element, tuple(map(on_size, one.type.shape))))

    return rebuild(statement, on_variable, on_size)
