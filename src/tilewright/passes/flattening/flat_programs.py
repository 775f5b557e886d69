"""Which programs are flat as they are written, so that there are no other versions of them."""

from __future__ import annotations

from tilewright.ir.nodes import Hist, Iota, Map, Program, Scatter, Statement
from tilewright.ir.traversal import bound, host_statements, sub_bodies
from tilewright.rewrite.rules.flatten_fusion import CHEAP
from tilewright.rewrite.rules.flatten_regular import SOAC, exploitable, holds_parallelism


def is_flat(program: Program) -> bool:
    """Whether nothing in a program has further parallelism inside."""
    return all(is_flat_statement(one) for one in host_statements(program.body) if isinstance(one.expression, SOAC))


def is_flat_statement(statement: Statement) -> bool:
    """Whether all parallelism of a statement is its own; scalars between the maps of a nest are no parallelism."""
    expression = statement.expression
    names = bound(expression)
    if isinstance(expression, Hist | Scatter):  # with operators on rows too: the histogram of each column is no more
        return True
    if not isinstance(expression, Map):
        return not any(holds_parallelism(one, names) for one in sub_bodies(expression))
    body = expression.function.body
    inside = [one for one in body.statements if exploitable(one, names)]
    if len(inside) != 1:
        return not inside
    (deeper,) = inside
    cheap = all(isinstance(one.expression, CHEAP | Iota) for one in body.statements if one is not deeper)
    is_nest = isinstance(deeper.expression, Map) and body.results == deeper.targets
    return cheap and is_nest and is_flat_statement(deeper)
