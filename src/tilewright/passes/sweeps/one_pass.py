"""The steps of what one pass over rows computes, on processors that run one thread in a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tilewright.ir.nodes import OffsetFolds, Variable
from tilewright.machine.model import Machine
from tilewright.passes.points.lower_general import Points
from tilewright.passes.sweeps.form import SweepForm
from tilewright.passes.sweeps.map_points import map_points
from tilewright.passes.sweeps.offset_points import guard_points, offset_points, reads_of_folds
from tilewright.passes.sweeps.steps import reads_of_sweep, sweep_step
from tilewright.rewrite.rules.offsets import offset_folds
from tilewright.rewrite.rules.sweeps import sweep_scan, sweep_scatter
from tilewright.runtime.host import KernelStep, Note, Step

Variables: TypeAlias = tuple[Variable, ...]
MakeStep: TypeAlias = Callable[[str, Points, Variables, Variables], KernelStep]


def sweep_steps(form: SweepForm, machine: Machine, make: MakeStep) -> tuple[Step, tuple[KernelStep, ...], Note]:
    """The step of a sweep, kernels of it to be tried, and what is to be told of it, with the rule that makes it."""
    targets = ", ".join(map(str, form.targets))
    if not form.neutral:
        step = make("", map_points(form), form.targets, reads_of_sweep(form, copied=True))
        text = f"a scatter of what maps give: a kernel over {form.width} points"
        return step, (step,), Note(targets, text, steps=(str(sweep_scatter),))
    what = "a filter" if form.picks is not None else "maps, a scan, and maps and scatters of it"
    told = Note(targets, f"{what}: one pass over {form.width} rows", steps=(str(sweep_scan),))
    return *sweep_step(form, machine, make), told


def offset_steps(targets: Variables, folds: OffsetFolds, make: MakeStep) -> tuple[tuple[KernelStep, KernelStep], Note]:
    """Two kernels of folds between offsets, a guard and what is done if that holds, and what is to be told of them."""
    guard = make("_guard", guard_points(folds), (), (folds.starts,))
    kernel = make("_folds", offset_points(folds), targets, reads_of_folds(folds))
    text = f"{folds.count} folds of the rows between {folds.starts}, if that ascends; otherwise:"
    return (guard, kernel), Note(", ".join(map(str, targets)), text, steps=(str(offset_folds),))
