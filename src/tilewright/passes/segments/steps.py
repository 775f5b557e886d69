"""The kernels of folds and scans of segments, and which of them are run for given sizes.

A fold in chunks is two kernels: of the chunks, then of what they give. A scan in chunks is three: what each chunk
gives, a scan of that, then each chunk goes on from what stands before it. It reads its rows twice; a single pass of
chunks that look back at others (look_back.py) reads them once, but waits for blocks that have begun, and not every
machine promises that these go on: neither OpenCL nor the queue of a CPU's pool does. One thread of a CPU takes the same
chunks in a single pass: it needs no kernel before, reads its rows once, and gives the same bits (points/scan_lanes.py).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tilewright.ir import nodes
from tilewright.ir.dataclass import dataclass
from tilewright.ir.nodes import Statement, Variable
from tilewright.ir.sizes import Size
from tilewright.ir.traversal import used_variables
from tilewright.ir.views import ArrayView
from tilewright.machine.model import Machine
from tilewright.passes.core.fills import NOTHING, Fills, without_filled
from tilewright.passes.items.item_memory import Item
from tilewright.passes.items.lower_folds import Rows
from tilewright.passes.items.lower_items import AnyValue
from tilewright.passes.lanes.vectorise import is_vectorisable
from tilewright.passes.points.lower_general import Points
from tilewright.passes.points.scan_strips import STRIP
from tilewright.passes.segments.choice import (
    ROWS_OF_ONE_PASS,
    Sharing,
    group_threads,
    rows_each,
    rows_of_tile,
    share_out,
)
from tilewright.passes.segments.column_rows import ScannedRows
from tilewright.passes.segments.columns import with_columns
from tilewright.passes.segments.form import (
    Chunks,
    Segments,
    is_commutative,
    partial_segments,
    partial_variables,
    segments_of,
)
from tilewright.passes.segments.groups import group_fold
from tilewright.passes.segments.look_back import clearing_points, look_back_scan, records_of
from tilewright.passes.segments.points import fold_points, scan_points, total_points
from tilewright.passes.segments.row_folds import column_segments
from tilewright.passes.segments.scans import group_scan
from tilewright.runtime.cpu_pool import get_num_threads
from tilewright.runtime.host import KernelStep, SegmentPlan, SegmentStep

Variables: TypeAlias = tuple[Variable, ...]
MakeKernel: TypeAlias = Callable[[str, Points, Variables, Variables], KernelStep]
"""A step from what its name ends in, its points, targets and reads."""
_READS_TWICE = (
    "long segments are not scanned in a single pass: the device does not promise that blocks that have begun go on "
    "while others wait for them"
)


@dataclass(frozen=True)
class Kernels:
    """What the kernels of one statement have in common.

    Attributes:
        segments: what is folded or scanned.
        targets, reads: what the statement gives and uses.
        chunks: names of sizes for segments in chunks.
        machine, threads: where it runs, and the threads of a block there (1 on a CPU).
        make: makes the step of a kernel.
    """

    segments: Segments
    targets: Variables
    reads: Variables
    chunks: Chunks
    machine: Machine
    threads: int
    make: MakeKernel

    @property
    def count(self) -> int:
        """Accumulators."""
        return len(self.segments.neutral)

    def operator_reads(self, partial: Sequence[Variable]) -> Variables:
        """What a kernel reads that combines `partial` only."""
        used = {one.name for one in used_variables(self.segments.combine)}
        used |= {str(one) for one in (*self.segments.neutral, *self.segments.own_neutral)}
        return (*partial, *(one for one in self.reads if one.name in used))

    def share_out(self, values: Sequence[int], fits: bool) -> Sharing:
        """The sharing for extents of the segments and their width; `fits`: a group has its values in shared memory."""
        *outer, width = values
        number = 1
        for extent in outer:
            number *= extent
        alone = self.segments.adjacent or not fits
        return share_out(self.machine, self.threads, number, width, alone)

    def are_past_caches(self, values: Sequence[int]) -> bool:
        """Whether no cache of a CPU holds results with a value for each row of segments of these extents."""
        nbytes = math.prod(values) * self.targets[0].type.element.bytes
        return self.threads == 1 and nbytes > self.machine.keeps_copies_of

    @property
    def rows_of_tile(self) -> int:
        """Rows of each thread in a scan whose tiles look back at others; 0 where they may not wait for each other."""
        if self.threads == 1 or not self.machine.forward_progress:
            return 0
        return rows_of_tile(self.machine, self.threads, self.segments.bytes_per_row)

    @property
    def in_lanes(self) -> bool:
        """Whether a worker scans one long segment in vectors."""
        segments = self.segments
        kinds = [atom.type.element for atom in segments.neutral]
        vectors = self.threads == 1 and segments.plain and not segments.outer
        return vectors and not any(one.is_complex for one in kinds) and is_vectorisable([segments.combine])


def segment_step(
    statement: Statement, reads: Variables, machine: Machine, threads: int, make: MakeKernel, fills: Fills = NOTHING
) -> tuple[SegmentStep, tuple[KernelStep, ...]] | None:
    """The step of a fold or scan, and kernels of it that show whether it can be lowered.

    None if the statement is neither, or its accumulators are arrays that are not combined element by element. `fills`:
    arrays among `reads` that do not exist, because all their elements are one scalar.
    """
    segments = segments_of(statement.expression) or column_segments(statement.expression, fills)
    reads = without_filled(reads, fills, statement.expression)
    if segments is None:
        return None
    chunks = Chunks(f"%chunks.{statement.targets[0]}", f"%length.{statement.targets[0]}")
    kernels = Kernels(segments, statement.targets, reads, chunks, machine, threads, make)
    is_scan = isinstance(statement.expression, nodes.Scan | nodes.Scanomap | nodes.SegScan)
    return (_scan_step if is_scan else fold_step)(kernels)


def _step(
    kernels: Kernels, temporaries: Sequence[Variable], choose: Callable[[tuple[int, ...]], SegmentPlan]
) -> SegmentStep:
    extents = (*kernels.segments.outer, kernels.segments.width)
    return SegmentStep(str(kernels.targets[0]), kernels.targets, kernels.reads, tuple(temporaries), extents, choose)


def _sizes(kernels: Kernels, sharing: Sharing) -> tuple[tuple[str, int], ...]:
    return (kernels.chunks.count, sharing.chunks), (kernels.chunks.length, sharing.length)


def fold_step(kernels: Kernels, suffix: str = "") -> tuple[SegmentStep, tuple[KernelStep, ...]]:
    """The step of a fold, the names of whose kernels end in `suffix`, and trials."""
    segments, chunks, count = kernels.segments, kernels.chunks, kernels.count
    partial = partial_variables(segments, kernels.targets, chunks, "partial")
    last = partial_segments(segments, partial, chunks)
    fits = kernels.threads * segments.bytes_per_row <= kernels.machine.shared_bytes_per_block

    def points(of: Segments, group: int, cut: Chunks | None = None) -> Points:
        alone = with_columns(fold_points(of, cut), of, cut)
        return alone if group == 1 else group_fold(of, group, cut)

    @functools.cache
    def whole(group: int) -> KernelStep:
        return kernels.make(suffix, points(segments, group), kernels.targets, kernels.reads)

    @functools.cache
    def first(group: int) -> KernelStep:
        targets = (*partial, *kernels.targets[count:])
        return kernels.make(f"{suffix}_chunks", points(segments, group, chunks), targets, kernels.reads)

    @functools.cache
    def end(group: int) -> KernelStep:
        return kernels.make(
            f"{suffix}_end", points(last, group), kernels.targets[:count], kernels.operator_reads(partial)
        )

    def choose(values: tuple[int, ...]) -> SegmentPlan:
        sharing = kernels.share_out(values, fits)
        if sharing.chunks < 2:
            return SegmentPlan((whole(sharing.group),), ())
        group = group_threads(kernels.threads, sharing.chunks) if fits else 1
        return SegmentPlan((first(sharing.group), end(group)), _sizes(kernels, sharing))

    trials = (whole(1),) if kernels.threads == 1 or not fits else (whole(1), whole(kernels.threads))
    return _step(kernels, partial, choose), trials


def _scan_step(kernels: Kernels) -> tuple[SegmentStep, tuple[KernelStep, ...]]:
    segments, chunks, count = kernels.segments, kernels.chunks, kernels.count
    partial = partial_variables(segments, kernels.targets, chunks, "partial")
    before = partial_variables(segments, kernels.targets, chunks, "before")
    folded = _without_mapped(segments, len(kernels.targets) - count)
    in_lanes = kernels.in_lanes
    # What chunks give is combined one after another, as by one thread.
    last = dataclasses.replace(partial_segments(segments, partial, chunks), rows_first=True, chain=in_lanes)
    each = rows_each(kernels.machine, kernels.threads, segments.bytes_per_row)
    records, tile = records_of(segments, kernels.targets, chunks), kernels.rows_of_tile

    def points(
        of: Segments, group: int, cut: Chunks | None = None, start: Sequence[Variable] = (), past: bool = False
    ) -> Points:
        scan = ScannedRows(kernels.machine, past)
        alone = with_columns(scan_points(of, cut, start), of, cut, scan, before=start)
        return alone if group == 1 else group_scan(of, group, each, cut, start)

    @functools.cache
    def whole(group: int, past: bool = False) -> KernelStep:
        return kernels.make("", points(segments, group, past=past), kernels.targets, kernels.reads)

    @functools.cache
    def sums(group: int) -> KernelStep:
        fold_of = total_points if in_lanes else fold_points
        alone = with_columns(fold_of(folded, chunks), folded, chunks)
        fold = alone if group == 1 else group_fold(folded, group, chunks)
        return kernels.make("_chunks", fold, tuple(partial), kernels.reads)

    @functools.cache
    def starts(group: int) -> KernelStep:
        return kernels.make("_before", points(last, group), tuple(before), kernels.operator_reads(partial))

    @functools.cache
    def rest(group: int, past: bool) -> KernelStep:
        reads = (*kernels.reads, *before)
        return kernels.make("_scans", points(segments, group, chunks, before, past), kernels.targets, reads)

    @functools.cache
    def in_one_pass() -> KernelStep:
        return kernels.make("_pass", scan_points(segments, inside=chunks), kernels.targets, kernels.reads)

    @functools.cache
    def looking_back() -> tuple[KernelStep, KernelStep]:
        clear = kernels.make("_clear", clearing_points(records), records.cleared, ())
        one_pass = look_back_scan(segments, kernels.threads, tile, chunks, records)
        targets, reads = (*kernels.targets, *records.values), (*kernels.reads, *records.cleared)
        return clear, kernels.make("_tiles", one_pass, targets, reads)

    def choose(values: tuple[int, ...]) -> SegmentPlan:
        sharing = kernels.share_out(values, each > 0)
        if tile and sharing.group == kernels.threads:
            sharing = _in_tiles(sharing, values[-1], tile * kernels.threads)
        past = kernels.are_past_caches(values)
        if sharing.chunks < 2:
            return SegmentPlan((whole(sharing.group, past),), ())
        if in_lanes:
            sharing = in_strips(sharing, values[-1])
            if get_num_threads() == 1 or values[-1] <= ROWS_OF_ONE_PASS:
                return SegmentPlan((in_one_pass(),), _sizes(kernels, sharing))
        if tile and sharing.group == kernels.threads:
            return SegmentPlan(looking_back(), _sizes(kernels, sharing))
        group = group_threads(kernels.threads, sharing.chunks) if each else 1
        steps = (sums(sharing.group), starts(group), rest(sharing.group, past))
        return SegmentPlan(steps, _sizes(kernels, sharing))

    trials = (whole(1),) if kernels.threads == 1 or not each else (whole(1), whole(kernels.threads))
    step = _step(kernels, (*partial, *before, *records.cleared, *records.values), choose)
    if tile:
        return dataclasses.replace(step, told="; tiles of long ones look back at others"), (*trials, *looking_back())
    refused = () if kernels.threads == 1 or not each else (_READS_TWICE,)
    return dataclasses.replace(step, refused=refused), trials


def _in_tiles(sharing: Sharing, width: int, rows: int) -> Sharing:
    """The sharing with chunks that are tiles, where there are chunks at all."""
    return sharing if sharing.chunks < 2 else dataclasses.replace(sharing, chunks=-(-width // rows), length=rows)


def in_strips(sharing: Sharing, width: int) -> Sharing:
    """The sharing with chunks of whole strips."""
    length = -(-sharing.length // STRIP) * STRIP
    return dataclasses.replace(sharing, chunks=-(-width // length), length=length)


def _without_mapped(segments: Segments, mapped: int) -> Segments:
    """A fold of the rows alone; in any order if the operator is one that is known to commute."""

    def rows(item: Item, at: Sequence[Size]) -> Rows:
        inner = segments.rows(item, at)

        def row(index: Size, destinations: Sequence[ArrayView | None]) -> Sequence[AnyValue]:
            return inner(index, [*destinations, *[None] * mapped])

        return row

    return dataclasses.replace(segments, rows=rows, commutative=is_commutative(segments.combine))
