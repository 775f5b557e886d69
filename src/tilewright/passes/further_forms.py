"""Forms that some statements have, each imported when the first statement comes that may have it.

The functions are those of the same names that they import; what most programs do without takes a while to import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewright.ir import nodes
from tilewright.ir.nodes import Statement, Variable
from tilewright.machine.model import Machine
from tilewright.runtime.host import KernelStep, Note, SegmentStep, Step

if TYPE_CHECKING:
    from tilewright.passes.core.fills import Fills
    from tilewright.passes.segments.steps import MakeKernel, Variables
    from tilewright.passes.sweeps.form import SweepForm
    from tilewright.passes.sweeps.one_pass import MakeStep


def takes_fills(machine: Machine) -> Callable[[nodes.Expression], bool]:
    """Which histograms, folds of rows and filters can be told what bins, neutral rows or destinations are."""

    def takes(expression: nodes.Expression) -> bool:
        if isinstance(expression, nodes.Sweep):
            from tilewright.passes.sweeps.form import is_filter

            return is_filter(expression)
        if isinstance(expression, nodes.Hist | nodes.SegHist):
            from tilewright.passes.segments.hist import takes_bins

            return takes_bins(expression, machine)
        from tilewright.passes.segments.row_folds import is_fold_of_rows

        return is_fold_of_rows(expression)

    return takes


def segment_step(
    statement: Statement, reads: Variables, machine: Machine, threads: int, make: MakeKernel, fills: Fills
) -> tuple[SegmentStep, tuple[KernelStep, ...]] | None:
    """See `segments.steps`, and `histogram_step` of `segments.hist` for histograms."""
    if isinstance(statement.expression, nodes.Hist | nodes.SegHist):
        from tilewright.passes.segments import hist

        return hist.histogram_step(statement, reads, machine, threads, make, fills)
    from tilewright.passes.segments import steps

    return steps.segment_step(statement, reads, machine, threads, make, fills)


def nest_of_streams(statement: Statement, segmap: nodes.SegMap, machine: Machine) -> tuple[Statement, ...]:
    """See `segments.streams`."""
    from tilewright.passes.segments import streams

    return streams.nest_of_streams(statement, segmap, machine)


def sweep_steps(form: SweepForm, machine: Machine, make: MakeStep) -> tuple[Step, tuple[KernelStep, ...], Note]:
    """See `sweeps.one_pass`."""
    from tilewright.passes.sweeps import one_pass

    return one_pass.sweep_steps(form, machine, make)


def offset_steps(
    targets: tuple[Variable, ...], folds: nodes.OffsetFolds, make: MakeStep
) -> tuple[tuple[KernelStep, KernelStep], Note]:
    """See `sweeps.one_pass`."""
    from tilewright.passes.sweeps import one_pass

    return one_pass.offset_steps(targets, folds, make)


def statements_otherwise(targets: Sequence[Variable], offsets: nodes.OffsetFolds) -> tuple[Statement, ...]:
    """See `sweeps.offset_points`."""
    from tilewright.passes.sweeps import offset_points

    return offset_points.statements_otherwise(targets, offsets)
