"""Packing on the way: register tiles that read the vector side where it lies, and store panels beside the arithmetic.

    first panel of the scalar side:   vector = source[offset(i) + depth offset(k)];  panel[k][i] = vector;  acc += ...
    all others:                       vector = panel[k][i];  acc += ...

A step of a register tile has time for a few more loads and stores, so that packing costs hardly more than waiting for
the operand, which is asked for some steps ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tilewright.kernel.ir import Expression, Prefetch, Store, add, integer, load, operation
from tilewright.passes.packed.joined_runs import JoinedVector, joined_vectors, may_join_runs, read_joined
from tilewright.passes.packed.operands import in_panel_type, load_parts
from tilewright.passes.packed.runs import WHOLE
from tilewright.passes.packed.writer import PackedWriter, Side

Source: TypeAlias = Expression | JoinedVector
"""Where a vector lies: from a place on, or in two runs."""

STEPS_AHEAD = 24
"""Steps of the sum that requests for an operand beyond the second cache are ahead: a step of a full register tile takes
a dozen cycles.
"""


def is_packed_on_the_way(w: PackedWriter, side: Side) -> bool:
    """Whether register tiles pack the full panels of a side: of the vector side, where packing only copies whole
    vectors, or joins such of two runs. Panels that are not full are packed before.
    """
    form = w.form
    if side.name != "v" or form.lanes == 1 or form.boxes is not None or form.dots is not None:
        return False
    copies = side.runs.source == {WHOLE} or may_join_runs(w, side)
    return form.fused_multiply_add and len(side.panels) == 1 and copies


def sources_of_panel(w: PackedWriter, side: Side, first: Expression) -> Sequence[Source]:
    """Where the vectors of the panel that begins with element `first` lie."""
    if side.runs.source != {WHOLE}:
        return joined_vectors(w, side, first)
    places = [add(first, integer(number * w.form.lanes)) for number in range(w.form.vectors)]
    return [w.emit.let(load(side.source_table, place), "from") for place in places]


def packed_step(
    w: PackedWriter, side: Side, sources: Sequence[Source], row: Expression, k: Expression, depth: Expression
) -> list[Expression]:
    """The vectors of step k (of `depth`) of a panel, read where they lie and stored in the panel, from `row` on."""
    emit, lanes, (panel,) = w.emit, w.form.lanes, side.panels
    along = emit.let(load(side.depth_table, k), "along")
    if w.form.far:
        later = operation("min", add(k, integer(STEPS_AHEAD)), operation("sub", depth, integer(1)))
        ahead = emit.let(load(side.depth_table, later), "ahead")
        starts = [one.start if isinstance(one, JoinedVector) else one for one in sources]
        last = sources[-1].following if isinstance(sources[-1], JoinedVector) else sources[-1]
        for start in (*starts, add(last, integer(lanes - 1))):
            emit.emit(Prefetch(side.source, emit.let(add(start, ahead), "at")))
    vectors: list[Expression] = []
    for number, source in enumerate(sources):
        if isinstance(source, JoinedVector):
            element = read_joined(w, side, source, [along])
        else:
            at = emit.let(add(source, along), "at")
            (element,) = load_parts(side.source, side.operand.element, at, lanes, emit)
        vectors.append(emit.let(in_panel_type(element, panel.element), "vector"))
        emit.emit(Store(panel, add(row, integer(number * lanes)), vectors[-1], aligned=True))
    return vectors
