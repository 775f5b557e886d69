"""How the streams of a nest run on a machine: tiled in shared memory, in lanes of vectors, or neither, and why."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Expression
from tilewright.ir.sizes import Size
from tilewright.machine.model import Machine
from tilewright.passes.core.nests import nest_of
from tilewright.passes.core.variance import variance_of, variance_table
from tilewright.passes.points.lower_general import Points
from tilewright.passes.streams.choice import NotTiled, StreamTiling, stream_tiling, tiling_text
from tilewright.passes.streams.lane_choice import lane_form, lane_text
from tilewright.passes.streams.lanes import with_lanes
from tilewright.passes.streams.tiles import tile_points
from tilewright.runtime.host import KernelStep, SegmentPlan, SegmentStep, Step


@dataclass(frozen=True)
class StreamForm:
    """A kernel for a nest of streams.

    Attributes:
        points: its work. threads: of a block.
        text: what it does, in a line. declined: what it does not, and why, a sentence each.
        least: for each extent that a block takes points of, from how many points on the kernel is used.
    """

    points: Points
    threads: int
    text: str
    least: tuple[tuple[Size, int], ...] = ()
    declined: tuple[str, ...] = ()

    def step(self, streamed: KernelStep, plain: KernelStep) -> Step:
        """The kernel, or the plain one for fewer points than it is made for."""
        if not self.least:
            return streamed
        extents, least = zip(*self.least, strict=True)
        return SegmentStep(streamed.label, plain.targets, plain.reads, (), extents, _choice(least, streamed, plain))


def _choice(least: tuple[int, ...], many: KernelStep, few: KernelStep) -> Callable[[tuple[int, ...]], SegmentPlan]:
    def choose(extents: tuple[int, ...]) -> SegmentPlan:
        enough = all(extent >= one for extent, one in zip(extents, least, strict=True))
        return SegmentPlan((many if enough else few,), ())

    return choose


def stream_form(expression: Expression, points: Points, machine: Machine) -> StreamForm | NotTiled | None:
    """The form of a nest's streams for a machine, or the reasons for none; None if there is no stream.

    Args:
        expression: the nest.
        points: its points, as they are without tiling.
        machine: its blocks have threads that share memory, or it has vectors.
    """
    if machine.max_threads_per_block > 1:
        tiling = stream_tiling(expression, machine)
        if not isinstance(tiling, StreamTiling):
            return tiling
        least = tuple((tiling.nest.space[d], tiling.tile[d] // 2) for d in tiling.block)
        return StreamForm(tile_points(tiling), tiling.points, tiling_text(tiling), least, tiling.declined)
    form = lane_form(expression, machine)
    if form is None or isinstance(form, NotTiled):
        return form
    return StreamForm(with_lanes(points, form), 1, lane_text(form))


def stream_table(expression: Expression) -> tuple[str, ...]:
    """The lines of the variance table of a nest."""
    nest = nest_of(expression)
    return () if nest is None else tuple(variance_table(variance_of(nest)).splitlines())
