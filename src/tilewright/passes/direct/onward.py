"""Rows of an operand that go on in its memory where the sum ends, along a dimension that the other operand lacks.

Tiles of such rows are gone over along that dimension first: `dabe,ec->dcba` with rows along `a` reads as many streams
as a tile has rows, each of them on and on along `b, e`. The order of the dimensions alone would read a piece as long as
the sum of every row there is, and come back to each for the next piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.contraction.normalise import constant
from tilewright.machine.model import Machine
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.direct.past_caches import array_bytes
from tilewright.passes.packed.blocks import level_of


def onward(form: DirectForm, machine: Machine) -> Iterator[DirectForm]:
    """The form whose rows go on, if there is one and no near cache holds its rows: at most one."""
    if form.scalar is None or form.scalar_tiles == 1 or form.scalar_packed or form.elementwise:
        return
    if form.collected is not None or len(form.contracted) != 1 or form.step("scalar") != form.parts:
        return
    if level_of(array_bytes(form, "scalar"), machine) <= 2:
        return
    row = form.parts * form.contracted_total
    for one in form.outer:
        if form.stride(one, "scalar") == row and form.stride(one, "vector") == 0 and constant(one.size) > 1:
            others = tuple(other for other in form.outer if other != one)
            yield replace(form, outer=(*others, one), onward=True)
            return
