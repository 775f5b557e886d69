"""`if` and `loop` as steps: without parallel code inside they are sequential kernels; the host runs any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Statement
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.points.whole_loops import control_points, with_whole
from tilewright.runtime.host import Block, IfStep, Later, LoopStep, Note, Step

if TYPE_CHECKING:
    from tilewright.passes.statements import Statements

_COMBINATORS = (
    nodes.Map, nodes.Reduce, nodes.Scan, nodes.Redomap, nodes.Scanomap, nodes.Scatter, nodes.Hist, nodes.StreamSeq,
    nodes.Sweep, nodes.OffsetFolds,
    nodes.SegMap, nodes.SegRed, nodes.SegScan, nodes.SegHist,
)  # fmt: skip


def control_step(lowering: Statements, statement: Statement) -> Step:
    """The step of an `if` or `loop`; `lowering` makes those of the statements inside, and is told of it."""
    expression = statement.expression
    parallel = any(
        isinstance(one.expression, _COMBINATORS) for body in sub_bodies(expression) for one in all_statements(body)
    )
    reasons: list[str] = []
    if not parallel:
        try:
            points = control_points(statement, lowering.known.iotas, lowering.device.machine)
            step = lowering.kernel(statement, points)
            lowering.note(statement, "a sequential kernel")
            return step
        except LoweringError as error:
            reasons.append(str(error))
    lowering.mark_cells(statement.targets)
    if isinstance(expression, nodes.Loop):
        return _loop_step(lowering, statement, expression, reasons)
    assert isinstance(expression, nodes.If)
    lowering.note(statement, "run by the host", reasons)
    wait = lowering.known.may_wait(expression)
    branches = [_later(lowering, one) if wait else lowering.block(one) for one in sub_bodies(expression)]
    return IfStep(expression.condition, statement.targets, branches[0], branches[1])


def _later(lowering: Statements, body: Body) -> Later:
    """A block that is lowered when it is first run, as things stand here."""
    now = lowering.as_now()

    def make() -> tuple[Block, tuple[Note | Later, ...]]:
        return now.block(body), tuple(now.notes)

    later = Later(body.results, lowering.known.mentioned_in(body), make)
    lowering.notes.append(later)
    return later


def _loop_step(lowering: Statements, statement: Statement, loop: nodes.Loop, reasons: Sequence[str]) -> Step:
    known, on_cpu = lowering.known, lowering.threads == 1
    lowering.mark_cells(loop.parameters)
    place, outer, on_host, counting = len(lowering.notes), known.in_loop, known.on_host, known.counting
    known.in_loop = True
    if isinstance(loop.form, nodes.ForLoop):
        known.counting |= {loop.form.index.name}
    body = lowering.block(loop.body)
    known.in_loop, known.on_host, known.counting = outer, on_host, counting
    common = (statement.targets, loop.parameters, loop.initial, body)
    if isinstance(loop.form, nodes.ForLoop):
        step = LoopStep(*common, index=loop.form.index, bound=loop.form.bound)
    else:
        asked = loop.form.condition
        lowering.mark_cells(asked.parameters)
        known.on_host = True
        condition = _one_kernel(lowering, asked.body) if on_cpu else lowering.block(asked.body)
        known.on_host = on_host
        step = LoopStep(*common, condition_parameters=asked.parameters, condition=condition)
    further = ""
    if on_cpu:  # a lane of a GPU would be far slower than the launches
        step, further = with_whole(step, statement, known.iotas, lowering.device.machine, lowering.kernel)
    lowering.note(statement, "run by the host" + further, reasons)
    lowering.notes.insert(place, lowering.notes.pop())
    return step


def _one_kernel(lowering: Statements, body: Body) -> Block:
    """A body whose last scalar statements, those after all others, are one kernel: the host asks for nothing."""
    tail: dict[str, Statement] = {}
    for one in reversed(body.statements):
        if not isinstance(one.expression, nodes.Apply | nodes.Cast):
            break
        tail[one.targets[0].name] = one
    asked = tail.pop(str(body.results[0]), None)
    if asked is None:
        return lowering.block(body)
    first = lowering.block(Body(body.statements[: -1 - len(tail)], ()))
    computed = dict(lowering.known.computed)
    lowering.known.computed |= reversed(tail.items())
    step = lowering.general(asked)
    lowering.known.computed = computed
    return Block((*first.steps, step), body.results)
