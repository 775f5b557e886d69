"""Statements that one pass over their rows computes together, on processors that run one thread in a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from tilewright.ir.nodes import Body, Statement, Variable
from tilewright.machine.model import Machine
from tilewright.passes.items.lower_general import Points
from tilewright.passes.sweeps.form import Sweep, sweeps_of
from tilewright.passes.sweeps.offset_form import Offsets, reads_of, with_offsets
from tilewright.passes.sweeps.offset_points import guard_points, offset_points
from tilewright.passes.sweeps.scatter_form import MapScatter, reads_of_scatter, scatter_points, with_scatters
from tilewright.passes.sweeps.steps import sweep_step
from tilewright.rewrite.rule import equation_of
from tilewright.runtime.host import KernelStep, Note, Step

Variables: TypeAlias = tuple[Variable, ...]
MakeStep: TypeAlias = Callable[[str, Points, Variables, Variables, int], KernelStep]


OnePass: TypeAlias = Sweep | Offsets | MapScatter


def one_pass_forms(body: Body) -> Iterator[Statement | OnePass]:
    """The statements of a body in an order in which they can run, some of them together."""
    found: list[Statement | Sweep | Offsets] = list(with_offsets(body))
    if not any(isinstance(one, Offsets) for one in found):
        found = list(sweeps_of(body))
    yield from with_scatters(body, found)


def one_pass_step(
    form: OnePass, name: str, machine: Machine, threads: int, make: MakeStep
) -> tuple[Step | None, tuple[KernelStep, ...], Note]:
    """The step of a form, kernels of it to be tried, and what is to be told of it, with the rewrite that has made it.

    There is no step of folds between offsets yet, but two kernels: a guard, and what is done if that holds.
    """
    label, targets = f"{name}_{form.targets[0]}", ", ".join(map(str, form.targets))
    if isinstance(form, Sweep):

        def kernel(suffix: str, points: Points, gives: Variables, reads: Variables) -> KernelStep:
            return make(label + suffix, points, gives, reads, threads)

        step, trials = sweep_step(form, machine, kernel)
        what = "a filter" if form.picks is not None else "maps, a scan, and maps and scatters of it"
        return step, trials, Note(targets, f"{what}: one pass over {form.width} rows", steps=_named(sweeps_of))
    if isinstance(form, MapScatter):
        scatter = make(label, scatter_points(form), form.targets, reads_of_scatter(form), threads)
        text = f"a scatter of what maps give: a kernel over {form.width} points"
        return scatter, (scatter,), Note(targets, text, steps=_named(with_scatters))
    guard = make(f"{label}_guard", guard_points(form), (), (form.starts,), threads)
    folds = make(f"{label}_folds", offset_points(form), form.targets, reads_of(form), threads)
    text = f"{form.count} folds of the rows between {form.starts}, if that ascends; otherwise:"
    return None, (guard, folds), Note(targets, text, steps=_named(with_offsets))


def _named(rewrite: Callable[..., object]) -> tuple[str, ...]:
    """What is told of a rewrite: its name and its equation."""
    return (f"{rewrite.__name__}: {equation_of(rewrite)}",)
