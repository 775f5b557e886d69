"""Statements that are contractions, or views of arrays: all that there is in an einsum.

Programs of nothing else are lowered here, without the many forms that other statements may take (`statements`), which
are imported when there is such a statement, or a contraction whose sizes the tiling declines.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.contraction.form import Contraction, Refusal
from tilewright.contraction.recognise import recognise
from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Literal, Program, Statement, Type, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.sizes import ONE
from tilewright.ir.traversal import replace_bodies, substitute
from tilewright.ir.views import parameter_view
from tilewright.passes.core.used_names import free_variables
from tilewright.runtime.devices import Device
from tilewright.runtime.host import Block, ContractionStep, Note, Step, ViewStep

if TYPE_CHECKING:
    from tilewright.passes.contractions.contraction_launches import Asked

VIEWS = nodes.Alias | nodes.Copy | nodes.Slice | nodes.Rearrange | nodes.Reshape | nodes.Index
_NESTS = nodes.Map | nodes.Reduction


def contraction_step(
    name: str, statement: Statement, device: Device, asked: Asked, iotas: Collection[str], otherwise: Callable[[], Step]
) -> tuple[ContractionStep, Note] | Refusal:
    """The tiled form of a statement of the program `name`, and what is to be told of it; or why it is no contraction.

    Args:
        name: the program's.
        statement: a map or a fold.
        device: where it runs.
        asked: tile sizes fixed by the user, or kernels of any shape.
        iotas: names of arrays that count.
        otherwise: makes the general lowering, for sizes that the tiling declines.
    """
    reads = tuple(one for one in free_variables(statement.expression) if one.name not in iotas)
    found = recognised(statement, device, iotas)
    if isinstance(found, Refusal):
        return found
    from tilewright.passes.contractions.bound_contraction import launches_of  # with all forms of contractions

    (target,) = statement.targets
    kinds = ", ".join(f"{d.name}:{d.kind.value}[{d.size}]" for d in found.dimensions)
    launches, names = launches_of(found, device.machine, asked), tuple(sorted(found.size_names))
    step = ContractionStep(f"{name}_{target}", target, reads, launches, otherwise, names)
    return step, note_of(statement, f"a contraction over {kinds}")


def recognised(statement: Statement, device: Device, iotas: Collection[str]) -> Contraction | Refusal:
    """The contraction that a statement is on a device, or why it is none."""
    reads = free_variables(statement.expression)
    views = {variable.name: parameter_view(variable) for variable in reads if variable.type.rank}
    out = {target.name: parameter_view(target) for target in statement.targets}
    return recognise(statement, views, out, iotas, products=not device.machine.is_gpu_like)


def note_of(statement: Statement, lowered: str, reasons: Sequence[str] = ()) -> Note:
    """How a statement was lowered, and why not otherwise."""
    label = ", ".join(map(str, statement.targets)) + f" = {type(statement.expression).__name__.lower()}"
    return Note(label, lowered, tuple(reasons))


def reading_cells(statement: Statement, scalars: Sequence[Variable]) -> tuple[Statement, ...] | None:
    """A statement that reads scalars from arrays of one element, after those that make these; None if one is a size.

        z = map (\\x -> s * x) y   =>   c = replicate 1 s;  z = map (\\x -> t = c[0]; t * x) y

    So the launches of a contraction are the same whatever the scalars are, which the host need not know.
    """
    cells = {
        one.name: Variable(f"{one.name}.{statement.targets[0]}", Type(one.type.element, (ONE,))) for one in scalars
    }
    count = itertools.count()

    def change(body: Body) -> Body:
        inner = tuple(replace(one, expression=replace_bodies(one.expression, change)) for one in body.statements)
        operands = {
            str(one) for line in inner if isinstance(line.expression, nodes.Apply) for one in line.expression.operands
        }
        read = {
            one.name: Variable(f"{one.name}.{statement.targets[0]}.{next(count)}", one.type)
            for one in scalars
            if one.name in operands
        }
        lines = tuple(
            Statement((one,), nodes.Index(cells[name], (Literal(0, I64),), checked=False)) for name, one in read.items()
        )
        return substitute(Body((*lines, *inner), body.results), read) if read else Body(inner, body.results)

    changed = replace(statement, expression=replace_bodies(statement.expression, change))
    if {one.name for one in free_variables(changed.expression)} & cells.keys():
        return None
    return (*(Statement((cells[one.name],), nodes.Replicate(ONE, one)) for one in scalars), changed)


def contraction_block(
    program: Program, device: Device, asked: Asked, general: Callable[[int], Step]
) -> tuple[Block, tuple[Note, ...]] | None:
    """The steps of a program of contractions and views, and what is to be told of them; None of any other program.

    `general` makes the general lowering of the statement of a number, for sizes that the tiling declines.
    """
    steps: list[Step] = []
    notes: list[Note] = []
    for number, statement in enumerate(program.body.statements):
        expression = statement.expression
        if isinstance(expression, VIEWS):
            steps.append(ViewStep(statement.targets[0], expression))
            continue
        if not isinstance(expression, _NESTS):
            return None
        otherwise = functools.cache(functools.partial(general, number))
        found = contraction_step(program.name, statement, device, asked, (), otherwise)
        if isinstance(found, Refusal):
            return None
        steps.append(found[0])
        notes.append(found[1])
    return Block(tuple(steps), program.body.results), tuple(notes)
