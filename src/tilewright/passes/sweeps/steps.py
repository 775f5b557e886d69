"""The steps of sweeps on a CPU: one kernel for one thread, three for several."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias

from tilewright.ir.nodes import Variable
from tilewright.ir.traversal import used_variables
from tilewright.machine.model import Machine
from tilewright.passes.points.lower_general import Points
from tilewright.passes.segments.choice import ROWS_OF_ONE_PASS, share_out
from tilewright.passes.segments.form import Chunks, chunk_variables
from tilewright.passes.segments.steps import in_strips
from tilewright.passes.sweeps.form import SweepForm
from tilewright.passes.sweeps.points import count_points, sums_points, sweep_points
from tilewright.runtime.cpu_pool import get_num_threads
from tilewright.runtime.host import KernelStep, SegmentPlan, SegmentStep

Variables: TypeAlias = tuple[Variable, ...]
MakeKernel: TypeAlias = Callable[[str, Points, Variables, Variables], KernelStep]


def reads_of_sweep(sweep: SweepForm, copied: bool = False) -> Variables:
    """The arrays and scalars that a sweep uses, with its destinations unless these are `copied` before."""
    inside = (sweep.before, sweep.after, sweep.combine, sweep.neutral)
    made = {one.name for function in (sweep.before, sweep.after, sweep.combine) for one in function.parameters}
    bound = {t.name for f in (sweep.before, sweep.after, sweep.combine) for s in f.body.statements for t in s.targets}
    free = [one for one in used_variables(inside) if one.name not in made | bound]
    atoms = [one.destination for one in sweep.scattered if isinstance(one.destination, Variable) and not copied]
    return tuple(dict.fromkeys((*sweep.arrays, *sweep.again, *atoms, *free)))


def sweep_step(sweep: SweepForm, machine: Machine, make: MakeKernel) -> tuple[SegmentStep, tuple[KernelStep, ...]]:
    """The step of a sweep on a CPU, and a kernel of it that shows whether it can be lowered."""
    reads = reads_of_sweep(sweep)
    name = sweep.targets[0]
    chunks = Chunks(f"%chunks.{name}", f"%length.{name}")
    partial = chunk_variables(sweep.neutral, f"{name}.partial", chunks)
    before = chunk_variables(sweep.neutral, f"{name}.before", chunks)
    whole = make("", sweep_points(sweep), sweep.targets, reads)

    @functools.cache
    def in_chunks() -> tuple[KernelStep, ...]:
        rest = sweep.targets[len(sweep.totals) :]
        counts = make("_chunks", count_points(sweep, chunks), partial, reads)
        sums = make("_before", sums_points(sweep, chunks, partial), (*before, *sweep.totals), (*partial, *reads))
        last = make(
            "_rows", sweep_points(dataclasses.replace(sweep, totals=()), chunks, before), rest, (*reads, *before)
        )
        return counts, sums, last

    @functools.cache
    def in_one_pass() -> KernelStep:
        if sweep.picks is not None:
            return whole
        return make("_pass", sweep_points(sweep, inside=chunks), sweep.targets, reads)

    def choose(values: tuple[int, ...]) -> SegmentPlan:
        sharing = share_out(machine, 1, 1, values[-1], False)
        if sharing.chunks < 2:
            return SegmentPlan((whole,), ())
        sharing = in_strips(sharing, values[-1])
        alone = get_num_threads() == 1 or values[-1] <= ROWS_OF_ONE_PASS
        steps = (in_one_pass(),) if alone else in_chunks()
        return SegmentPlan(steps, ((chunks.count, sharing.chunks), (chunks.length, sharing.length)))

    step = SegmentStep(str(name), sweep.targets, reads, (*partial, *before), (sweep.width,), choose)
    return step, (whole,)
