"""From statements to steps: which lowering each top-level statement of a program gets.

A statement that is a contraction goes to the tiling; any other one becomes a kernel whose outer maps are parallel, a
view, or scalar code of the host. `if` and `loop` around parallel code are run by the host. What was chosen and why is
noted for `Executable.explain`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.contraction.form import Refusal
from tilewright.ir import nodes
from tilewright.ir.nodes import Body, Program, Statement, Variable
from tilewright.ir.scalars import I64
from tilewright.ir.traversal import all_statements, sub_bodies
from tilewright.passes import further_forms as forms
from tilewright.passes.contractions.array_folds import fold_of_one_array, with_streams
from tilewright.passes.contractions.contraction_steps import VIEWS, contraction_step, note_of, reading_cells, recognised
from tilewright.passes.core.fills import without_fills
from tilewright.passes.core.nest_folds import with_folds
from tilewright.passes.core.overwriting import with_overwriting
from tilewright.passes.core.rows_of_none import with_rows_of_none
from tilewright.passes.core.used_names import free_variables
from tilewright.passes.host_control import control_step
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.kernel_steps import computes_scalar, kernel_step, read_by, threads_per_block
from tilewright.passes.known import Known
from tilewright.passes.lanes.vectorise import NotVectorisable, is_vectorisable
from tilewright.passes.pipelines import machine_pipeline, run_pipeline
from tilewright.passes.points import lower_reduction  # noqa: F401  # folds inside work items
from tilewright.passes.points.lower_general import Points, points_of
from tilewright.passes.segments.rows import as_nested_maps
from tilewright.passes.streams.choice import NotTiled
from tilewright.passes.streams.form import stream_form, stream_table
from tilewright.passes.sweeps import inside_points  # noqa: F401  # sweeps inside work items
from tilewright.passes.sweeps.form import sweep_form, unfolded
from tilewright.passes.unread_steps import without_notes, without_unread
from tilewright.rewrite.rules.flatten_distribute import map_and_fold
from tilewright.runtime import host
from tilewright.runtime.devices import Device
from tilewright.runtime.host import Block, KernelPlan, KernelStep, Later, Layout, Note, Step

if TYPE_CHECKING:
    from tilewright.passes.contractions.contraction_launches import Asked
    from tilewright.passes.sweeps.one_pass import MakeStep


class Statements:
    """Statements to steps, with notes."""

    def __init__(self, name: str, device: Device, asked: Asked, known: Known) -> None:
        """For code of the program of this name, of which so much is `known`."""
        self.name = name
        self.asked = asked
        self.device = device
        self.threads = threads_per_block(device)
        self.known = known
        self.notes: list[Note | Later] = []

    def as_now(self) -> Statements:
        """What lowers code at this place later; what it notes is not told here."""
        return Statements(self.name, self.device, self.asked, self.known.copy())

    def block(self, body: Body) -> Block:
        """The steps of a body, without those of iotas, of arrays full of one scalar and of scalars that none reads."""
        steps: list[Step] = []
        if self.threads == 1:
            body, fills = without_fills(body, forms.takes_fills(self.device.machine))
            self.known.fills |= fills
        for one in body.statements:
            steps += self.steps(one)
        kept = without_unread(steps, body.results, self.known.iotas | self.known.fills.keys() | self.known.chained)
        self.notes = without_notes(self.notes, steps, kept)
        return Block(kept, body.results)

    def _sweep(self, statement: Statement, sweep: nodes.Sweep) -> list[Step]:
        """The step of a sweep: one pass over its rows where there is a form of it, else those of its parts."""
        form = sweep_form(statement.targets, sweep, self.known.fills) if self.threads == 1 else None
        if form is None:
            return [step for one in unfolded(statement, sweep) for step in self.steps(one)]
        step, trials, note = forms.sweep_steps(form, self.device.machine, self._maker(form.targets[0]))
        return [self._tried(step, form.targets, trials, note)]

    def _offsets(self, targets: tuple[Variable, ...], folds: nodes.OffsetFolds) -> list[Step]:
        """The step of folds between offsets: which way is known when these are."""
        original = forms.statements_otherwise(targets, folds)
        if self.threads > 1 or not is_vectorisable([folds.combine]):
            return [step for one in original for step in self.steps(one)]
        (guard, kernel), note = forms.offset_steps(targets, folds, self._maker(targets[0]))
        self._tried(kernel, targets, (guard, kernel), note)
        steps = [step for one in original for step in self.steps(one)]
        return [host.GuardedStep(guard, Block((kernel,), ()), Block(tuple(steps), ()))]

    def _maker(self, target: Variable) -> MakeStep:
        """What makes the kernels of a statement; their names end in the first argument."""
        name, counted, computed = f"{self.name}_{target}", frozenset(self.known.iotas), dict(self.known.computed)
        extents = self.known.extents

        def make(suffix: str, points: Points, targets: tuple[Variable, ...], uses: tuple[Variable, ...]) -> KernelStep:
            made = kernel_step(
                name + suffix, points, targets, uses, self.threads, counted, computed=computed, extents=extents
            )
            return dataclasses.replace(made, reads=tuple(one for one in made.reads if one.name not in counted))

        return make

    def _tried(self, step: Step, targets: Sequence[Variable], trials: Sequence[KernelStep], note: Note) -> Step:
        """The step, after a trial that its kernels can be lowered."""
        for one in trials:
            self._try(one)
        self.mark_cells(targets)
        self.notes.append(note)
        return step

    def steps(self, statement: Statement) -> list[Step]:
        """The steps of one statement. Of rows that only the host can compute, a fold becomes a map and a fold, and a
        segmented map nested maps.
        """
        statement = with_rows_of_none(statement, self.known.extents.__contains__)
        expression = statement.expression
        if isinstance(expression, nodes.Sweep):
            return self._sweep(statement, expression)
        if isinstance(expression, nodes.OffsetFolds):
            return self._offsets(statement.targets, expression)
        if (cells := self._with_cells(statement)) is not None:
            return [step for one in cells for step in self.steps(one)]
        if not isinstance(expression, nodes.Redomap | nodes.Scanomap | nodes.SegMap):
            return [self.statement(statement)]
        if isinstance(expression, nodes.SegMap):
            rows = forms.nest_of_streams(statement, expression, self.device.machine)
            if rows:
                return [*map(self.statement, rows[:-1]), self._nest(rows[-1])]
        kept = list(self.notes)
        try:
            return [self.statement(statement)]
        except LoweringError:
            self.notes = kept
            if isinstance(expression, nodes.SegMap):
                return [self.statement(one) for one in as_nested_maps(statement, expression)]
            return [self.statement(one) for one in map_and_fold(statement, expression, "{}.rows".format)]

    def note(self, statement: Statement, lowered: str, reasons: Sequence[str] = ()) -> None:
        """Tell how a statement was lowered."""
        self.notes.append(note_of(statement, lowered, reasons))

    def statement(self, statement: Statement) -> Step:
        """The step of one statement."""
        expression, targets = statement.expression, statement.targets
        if not isinstance(expression, nodes.ScalarCode | VIEWS):
            self.known.chain.clear()  # arrays may be written over by what follows
        if isinstance(expression, nodes.Iota) and expression.scalar == I64:
            self.known.iotas.add(targets[0].name)
        match expression:
            case nodes.SizeValue(value):
                self.known.sizes[targets[0].name] = value
                self.known.note_count(statement)
                return host.ScalarStep(targets, expression)
            case nodes.Apply() | nodes.Cast():
                given = {*self.known.arguments, *self.known.counting, *self.known.computed, *self.known.sizes}
                if computes_scalar(statement, given):
                    self.known.computed[targets[0].name] = statement
                elif not self.known.on_host and computes_scalar(statement, given, self.known.cells):
                    step = self.general(statement)
                    self.known.continue_chain(statement)
                    return step
                self.known.note_question(statement)
                self.known.note_count(statement)
                return host.ScalarStep(targets, expression)
            case nodes.Threshold(name, parallelism):
                self.known.asked.add(targets[0].name)
                return host.ThresholdStep(targets[0], name, parallelism)
            case _ if isinstance(expression, VIEWS):
                self.mark_cells(targets)
                return host.ViewStep(targets[0], expression)
            case nodes.Replicate(_, value) if value.type.rank:
                return host.ViewStep(targets[0], expression)
            case nodes.Concat(axis, arrays):
                self.note(statement, "copies of the parts")
                return host.ConcatStep(targets[0], axis, arrays)
            case nodes.Update(array, indices, value, line):
                self.note(statement, "a copy and a part written over it")
                return host.UpdateStep(targets[0], array, indices, value, line)
            case nodes.If() | nodes.Loop():
                return control_step(self, statement)
            case nodes.Reduce() | nodes.Redomap():
                waits = self._waits(statement)
                if waits is not None:
                    return self._segments(statement, waits.reasons)
                found = self._contraction(statement)
                if not isinstance(found, Refusal):
                    return found
                step = self._segments(statement, found.reasons)
                return with_streams(f"{self.name}_{targets[0]}", statement, step, self.device.machine)
            case nodes.Map():
                found = self._contraction(statement)
                return self._nest(statement, found.reasons) if isinstance(found, Refusal) else found
            case nodes.Scan() | nodes.Scanomap() | nodes.SegRed() | nodes.SegScan() | nodes.Hist() | nodes.SegHist():
                return self._segments(statement)
        return self.general(statement)

    def mark_cells(self, targets: Sequence[Variable]) -> None:
        """Note the scalars that lie in memory."""
        self.known.cells.update(target.name for target in targets if target.type.rank == 0)

    # kernels

    def kernel(self, statement: Statement, points: Points, suffix: str = "") -> KernelStep:
        """The step, after a trial that the points can be lowered."""
        targets = statement.targets
        reads = read_by(statement.expression, points)
        counted = frozenset(self.known.iotas)
        label = f"{self.name}_{targets[0]}{suffix}"
        step = kernel_step(
            label,
            points,
            targets,
            reads,
            self.threads,
            counted,
            dict(self.known.sizes),
            self.known.computed | self.known.chain,
            self.known.extents,
        )
        step = dataclasses.replace(step, reads=tuple(one for one in step.reads if one.name not in counted))
        self._try(step)
        self.mark_cells(targets)
        return step

    def _try(self, step: KernelStep) -> KernelPlan:
        """The plan for the layouts to be expected; LoweringError if there is none."""
        expected: list[tuple[str, Layout]] = []
        for variable in (*step.reads, *step.targets):
            if variable.type.rank or variable.name in self.known.cells or variable in step.targets:
                expected.append((variable.name, Layout((), dense=True, at_start=True)))
        return step.lower(tuple(expected))

    def _nest(self, nest: Statement, reasons: Sequence[str] = ()) -> Step:
        """A map as one kernel, by itself or with what tiles its streams."""
        label = f"{self.name}_{nest.targets[0]}"
        return with_streams(label, nest, self.general(nest, reasons), self.device.machine)

    def general(self, statement: Statement, reasons: Sequence[str] = ()) -> Step:
        """A statement as one kernel, whatever it is; of a map that no kernel can be, its rows on the host."""
        statement = Statement(statement.targets, with_folds(statement.expression))
        expression = statement.expression
        try:
            points = dataclasses.replace(points_of(expression, statement.targets), machine=self.device.machine)
            plain = self.kernel(statement, points)
        except LoweringError as error:
            if not isinstance(expression, nodes.Map):
                raise LoweringError(f"{self.name}: {_shown(statement)} cannot be lowered: {error}") from error
            self.note(statement, "row by row on the host", [*reasons, str(error)])
            return self._rows(statement, expression)
        work = " x ".join(map(str, points.space))
        step, text, refusals = self._streamed(statement, points, plain)
        plan = self._try(plain)
        if step is plain:
            refusals = (*refusals, *plan.refused)
        text = text or (f", {plan.together} of them at once in the lanes of vectors" if plan.together > 1 else "")
        self.note(
            statement, f"a kernel over {work} points{text}" if work else "a sequential kernel", (*reasons, *refusals)
        )
        return step

    def _streamed(self, statement: Statement, points: Points, plain: KernelStep) -> tuple[Step, str, Sequence[str]]:
        """The kernel that tiles the streams of a nest, and what it does; else the plain one, and why."""
        form = stream_form(statement.expression, points, self.device.machine)
        if form is None:
            return plain, "", ()
        table = "".join(f"\n      {line}" for line in stream_table(statement.expression))
        if isinstance(form, NotTiled):
            return plain, table, form.reasons
        plain = dataclasses.replace(plain, reads=free_variables(statement.expression))
        label, computed = f"{plain.label}_streams", dict(self.known.computed)
        step = kernel_step(
            label, form.points, plain.targets, plain.reads, form.threads, computed=computed, extents=self.known.extents
        )
        try:
            self._try(step)
        except (LoweringError, NotVectorisable) as error:
            return plain, table, (str(error),)
        return form.step(step, plain), f": {form.text}{table}", form.declined

    def _rows(self, statement: Statement, expression: nodes.Map) -> Step:
        function = expression.function
        self.mark_cells(function.parameters)
        body = self.block(self._swept(function.body))
        return host.RowsStep(statement.targets, expression.width, function.parameters, expression.arrays, body)

    def _swept(self, body: Body) -> Body:
        """The body of a function whose statements the host runs after all, through the machine's own passes."""
        return run_pipeline(Program(self.name, (), body), machine_pipeline(self.device.machine), verify=False).body

    def _segments(self, statement: Statement, reasons: Sequence[str] = ()) -> Step:
        """A fold, scan or histogram of segments: which kernels do it is chosen when its sizes are known."""
        reads, make = free_variables(statement.expression), self._maker(statement.targets[0])
        counted = frozenset(self.known.iotas)
        is_histogram = isinstance(statement.expression, nodes.Hist | nodes.SegHist)
        arrays = any(one.type.rank for one in getattr(statement.expression, "neutral", ()))
        step_of = functools.partial(forms.segment_step, fills=self.known.fills)
        try:
            found = step_of(statement, reads, self.device.machine, self.threads, make)
            if found is None:
                why = ["not shared out among workers: what is combined are arrays"] if arrays else []
                return self.general(statement, [*reasons, *why])
            step, trials = found
            step = dataclasses.replace(step, reads=tuple(one for one in step.reads if one.name not in counted))
            reasons = (*reasons, *step.refused)
            reasons = (*reasons, *dict.fromkeys(why for one in trials for why in self._try(one).refused))
        except LoweringError as error:
            return self.general(statement, [*reasons, str(error)])
        self.mark_cells(statement.targets)
        *outer, width = map(str, step.extents)
        bins = f" into {outer.pop()} bins" if is_histogram else ""
        segments = f"{' x '.join(outer)} segments" if outer else "one segment"
        lowered = f"{segments} of {width} rows{bins}, shared out when the sizes are known{step.told}"
        self.note(statement, lowered, reasons)
        return step

    def _contraction(self, statement: Statement) -> Step | Refusal:
        """The tiled form of a contraction, if the statement is one; else why it is not."""
        otherwise = functools.cache(functools.partial(self.as_now().without_tiling, statement))
        # Maps around reductions that are reduced in turn are nested reductions to a contraction.
        nested = Statement(statement.targets, with_folds(statement.expression))
        found = contraction_step(self.name, nested, self.device, self.asked, self.known.iotas, otherwise)
        if isinstance(found, Refusal):
            return Refusal(tuple(f"not a contraction: {reason}" for reason in found.reasons))
        step, note = found
        self.notes.append(note)
        self.mark_cells(statement.targets)
        return step

    def _waits(self, statement: Statement) -> Refusal | None:
        """Why a fold to scalars is no contraction where it uses scalars that kernels compute: folds read them from
        memory, while the launches of a contraction are given them.
        """
        if any(one.type.rank for one in statement.targets):
            return None
        scalars = [one for one in free_variables(statement.expression) if one.name in self.known.cells]
        told = [f"not a contraction: the host would have to read {one} first" for one in scalars if not one.type.rank]
        return Refusal(tuple(told)) if told else None

    def _with_cells(self, statement: Statement) -> Sequence[Statement] | None:
        """The statements of a contraction with scalars that kernels compute; None if it is none, or has none."""
        inside = (one.expression for body in sub_bodies(statement.expression) for one in all_statements(body))
        if self.known.on_host or not any(isinstance(one, nodes.Reduction) for one in inside):
            return None
        made = self.known.cells | self.known.computed.keys()
        scalars = [one for one in free_variables(statement.expression) if not one.type.rank and one.name in made]
        cells = reading_cells(statement, scalars) if scalars else None
        if cells is None:
            return None
        nested = Statement(statement.targets, with_folds(cells[-1].expression))
        is_contraction = not isinstance(recognised(nested, self.device, self.known.iotas), Refusal)
        alone = not self.device.machine.is_gpu_like and fold_of_one_array(cells[-1]) is not None
        return cells if is_contraction or alone else None

    def step_without_tiling(self, body: Body, number: int) -> Step:
        """The general lowering of a statement of a body, as things stand after those before it."""
        self.block(Body(body.statements[:number], ()))
        return self.without_tiling(body.statements[number])

    def without_tiling(self, statement: Statement) -> Step:
        """The general lowering of a statement that may be a contraction."""
        is_fold = isinstance(statement.expression, nodes.Reduction)
        return self._segments(statement) if is_fold else self.general(statement)


def lower_program(program: Program, device: Device, asked: Asked) -> tuple[Block, tuple[Note | Later, ...]]:
    """The steps of a program, and how each was lowered."""
    compiler = statements_of(program, device, asked)
    return with_overwriting(compiler.block(program.body)), tuple(compiler.notes)


def statements_of(program: Program, device: Device, asked: Asked) -> Statements:
    """What lowers the statements of a program."""
    arguments = frozenset(one.name for one in program.parameters if one.type.rank == 0)
    return Statements(program.name, device, asked, Known(arguments, extents=frozenset(program.size_names)))


def _shown(statement: Statement) -> str:
    targets = ", ".join(f"{target}: {target.type}" for target in statement.targets)
    return f"{targets} = {type(statement.expression).__name__.lower()}"
