"""Segmented maps with sequential parallelism inside: how they are lowered, and whether the streams have a form."""

from __future__ import annotations

from tilewright.ir.nodes import Expression, Level, SegMap, Statement, Variable
from tilewright.ir.traversal import all_statements
from tilewright.machine.model import Machine
from tilewright.passes.core.nest_folds import with_folds
from tilewright.passes.points.lower_general import points_of
from tilewright.passes.segments.rows import as_nested_maps
from tilewright.passes.streams.form import StreamForm, stream_form
from tilewright.rewrite.rules.flatten_regular import SOAC


def nest_of_streams(statement: Statement, segmap: SegMap, machine: Machine) -> tuple[Statement, ...]:
    """Maps of rows that do what a segmap with combinators inside does: the nest as it was before it became flat.

    So the version of a nest whose points are all its parallelism is the kernel that the nest as written is. Nothing,
    where there is no such thing inside, or only the segmap itself has a form for its streams.
    """
    if not _holds_streams(segmap):
        return ()
    rows = as_nested_maps(statement, segmap)
    alone = has_stream_form(segmap, statement.targets, machine)
    return () if alone and not has_stream_form(rows[-1].expression, statement.targets, machine) else rows


def form_of_streams(statement: Statement, segmap: SegMap, machine: Machine) -> bool:
    """Whether the streams in a segmap have a form, read from it as it is or as maps of rows.

    A nest is known by its rows: what a map is given as a parameter, a segmented map reads at its index.
    """
    if not _holds_streams(segmap):
        return False
    nests = (segmap, as_nested_maps(statement, segmap)[-1].expression)
    return any(has_stream_form(one, statement.targets, machine) for one in nests)


def has_stream_form(nest: Expression, targets: tuple[Variable, ...], machine: Machine) -> bool:
    """Whether the streams in a nest have a form of their own (`streams.form`)."""
    whole = with_folds(nest)
    return isinstance(stream_form(whole, points_of(whole, targets), machine), StreamForm)


def _holds_streams(segmap: SegMap) -> bool:
    inside = all_statements(segmap.body)
    return segmap.level is Level.THREAD and any(isinstance(one.expression, SOAC) for one in inside)
