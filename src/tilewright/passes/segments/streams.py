"""Whether the streams in a segmented map have a form of their own, as it is or as maps of rows."""

from __future__ import annotations

from tilewright.ir.nodes import Expression, Level, SegMap, Statement
from tilewright.ir.traversal import all_statements
from tilewright.machine.model import Machine
from tilewright.passes.core.nest_folds import with_folds
from tilewright.passes.items.lower_general import points_of
from tilewright.passes.segments.rows import as_nested_maps
from tilewright.passes.streams.form import StreamForm, stream_form
from tilewright.rewrite.rules.flatten_regular import SOAC


def form_of_streams(statement: Statement, segmap: SegMap, machine: Machine) -> tuple[tuple[Statement, ...], bool]:
    """Maps that have a form for the streams in a segmented map where that itself has none; and if there is any form.

    A nest is known by its rows: what a map is given as a parameter, a segmented map reads at its index.
    """
    if segmap.level is not Level.THREAD or not any(
        isinstance(one.expression, SOAC) for one in all_statements(segmap.body)
    ):
        return (), False

    def has_form(expression: Expression) -> bool:
        whole = with_folds(expression)
        return isinstance(stream_form(whole, points_of(whole, statement.targets), machine), StreamForm)

    if has_form(segmap):
        return (), True
    rows = as_nested_maps(statement, segmap)
    return (rows, True) if has_form(rows[-1].expression) else ((), False)
