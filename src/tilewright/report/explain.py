"""What will be done with a contraction on a machine, and why: from sizes alone, without arrays and without the device.

>>> from tilewright.machine.named import A100
>>> from tilewright.report.examples import matmul
>>> explanation = explain_contraction(matmul(512, 512, 512), A100)
>>> explanation.form, explanation.tiled.partial
('tiled', 'none')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.contraction.split_sum import SplitSum
from tilewright.machine.model import Machine
from tilewright.passes.contractions.bound_contraction import why_a_fold
from tilewright.passes.contractions.contraction_launches import Tiles, cpu_form, tiled_form, write_cpu_kernel
from tilewright.passes.contractions.form_choice import FormChoice
from tilewright.passes.contractions.lane_choice import LaneChoice, choose_lane_product
from tilewright.passes.contractions.record_choice import choose_record_product
from tilewright.passes.contractions.relaid import Relaid, relaid_of
from tilewright.passes.contractions.split_sums import split_of, split_over_blocks
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.items.scalar_values import LoweringError
from tilewright.passes.lane_products.form import LaneProduct
from tilewright.passes.lane_products.kernel import write_lane_product
from tilewright.passes.lane_products.records import RecordProduct
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.tiled.choice import best_by_place
from tilewright.passes.tiled.kernel import write_kernel
from tilewright.report.cpu_text import direct_lines, lane_lines, matrix_vector_lines, packed_lines, record_lines
from tilewright.report.declined import declined_direct, declined_on_cpu, declined_packed, declined_tiled
from tilewright.report.declined_places import declined_places
from tilewright.report.roofline import Roofline, roofline
from tilewright.report.text import amount, byte_amount, duration, table
from tilewright.report.tiled_text import TiledDetails, tiled_details, tiled_lines
from tilewright.runtime.speeds import with_measured_speeds


@dataclass(frozen=True)
class Explanation:
    """What `explain_contraction` found; `str()` gives it as text.

    Attributes:
        machine: the machine meant.
        contraction: with its dimensions as they are after dropping, fusing and ordering.
        roofline: the lower bound of its time.
        tiled, packed, direct, streamed, lanes, records: the form that was chosen; the others are None, and all are if
            it has no form of its own and is lowered as a general map or fold.
        blocks: independent parts of the launch of one of a CPU's forms (but of records).
        reason: why a CPU gets its form, or none; empty for other machines.
        declined: why each optimisation that did not happen did not.
        split: the pieces of a sum that is split; the form and its dimensions are then those of the pieces.
        relaid: which arrays are copied first, or the output afterwards; the form is then that of the contraction of
            the copies.
    """

    machine: Machine
    contraction: Contraction
    roofline: Roofline
    declined: tuple[str, ...] = ()
    tiled: TiledDetails | None = None
    packed: PackedForm | None = None
    direct: DirectForm | None = None
    streamed: MatrixVectorForm | None = None
    lanes: LaneProduct | None = None
    records: RecordProduct | None = None
    blocks: int = 0
    reason: str = ""
    split: SplitSum | None = None
    relaid: Relaid | None = None

    @property
    def form(self) -> str:
        """ "tiled", "packed", "direct", "streamed", "lanes", "records" or "general"."""
        names = ("tiled", "packed", "direct", "streamed", "lanes", "records")
        return next((name for name in names if getattr(self, name) is not None), "general")

    def __str__(self) -> str:
        lines = [f"machine    {self.machine.name} ({self.machine.kind}, {self.machine.cores} cores)"]
        lines += ["dimensions", *_dimension_lines(self.contraction, self.tiled)]
        lines += _bound_lines(self.roofline)
        if self.split is not None:
            lines += _split_lines(self.split)
        if self.relaid is not None:
            lines += _relaid_lines(self.relaid)
        if self.tiled is not None:
            lines += tiled_lines(self.tiled, self.machine)
        if self.packed is not None:
            lines += packed_lines(self.packed, self.blocks, self.machine)
        if self.direct is not None:
            lines += direct_lines(self.direct, self.blocks, self.machine)
        if self.streamed is not None:
            lines += matrix_vector_lines(self.streamed, self.blocks, self.machine)
        if self.lanes is not None:
            lines += lane_lines(self.lanes, self.blocks)
        if self.records is not None:
            lines += record_lines(self.records)
        if self.form == "general":
            lines.append(f"form       {_GENERAL[bool(self.contraction.of_kind(Kind.K))]}")
        if self.reason:
            lines.append(f"chosen     {self.reason}")
        if self.declined:
            lines += ["declined", *(f"  - {reason}" for reason in self.declined)]
        return "\n".join(lines)


def explain_contraction(contraction: Contraction, machine: Machine, tiles: Tiles | None = None) -> Explanation:
    """The decisions for a contraction on a machine, what they cost, and the reasons for what is not done.

    Args:
        contraction: with known sizes, strides and offsets (see `Contraction.bind`); a further scalar may be unknown.
        machine: any, there or not (`machine.named`).
        tiles: tile sizes fixed by the user, by dimension.

    Raises:
        IllegalTiling: if no tiling fits the machine.
        ValueError: if a size is not known.
    """
    bound = roofline(contraction, with_measured_speeds(machine))
    records = "" if tiles or machine.is_gpu_like else choose_record_product(contraction, machine)
    if not isinstance(records, str) and isinstance(split_of(contraction, machine), str):
        return Explanation(machine, records.contraction, bound, records=records)
    general = "" if tiles else why_a_fold(contraction, machine)
    if general:
        return Explanation(machine, contraction, bound, reason=general)
    if machine.is_gpu_like:
        over_blocks = "" if tiles else split_over_blocks(contraction, machine)
        if isinstance(over_blocks, str):
            return _tiled(contraction, machine, bound, tiles, over_blocks)
        return replace(_tiled(over_blocks.parts[0], machine, bound), split=over_blocks)
    split = split_of(contraction, machine)
    if tiles or isinstance(split, str):
        try:
            chosen = cpu_form(contraction, machine, tiles)
            in_lanes = "tiles are given" if tiles else choose_lane_product(contraction, machine)
            relaid = relaid_of(contraction, machine)
        except LoweringError as error:
            return Explanation(machine, contraction, bound, reason=str(error))
        if not isinstance(in_lanes, str):
            return _in_lanes(in_lanes, machine, bound)
        if isinstance(relaid, str):
            return _explained(chosen, machine, bound, "" if tiles else str(split))
        return replace(_explained(cpu_form(relaid.contraction, machine), machine, bound), relaid=relaid)
    return replace(_explained(cpu_form(split.parts[0], machine), machine, bound), split=split)


def _tiled(
    contraction: Contraction, machine: Machine, bound: Roofline, tiles: Tiles | None = None, not_split: str = ""
) -> Explanation:
    """The explanation of block and register tiles."""
    tiled = tiled_form(contraction, machine, tiles)
    launch = write_kernel(tiled)
    rivals = best_by_place(tiled.contraction, machine, tiled.tiling if tiles else None)
    reasons = (*declined_places(tiled, machine, rivals), *declined_tiled(tiled, machine, launch.blocks, not_split))
    return Explanation(machine, tiled.contraction, bound, reasons, tiled=tiled_details(tiled, machine, launch))


def _explained(chosen: FormChoice, machine: Machine, bound: Roofline, not_split: str = "") -> Explanation:
    """The explanation of a form of the CPU; and why the sum is not split, where that would be of use."""
    form, blocks = chosen.form, write_cpu_kernel(chosen.form).blocks
    why = (f"the sum is not split: {not_split}",) if not_split and 0 < blocks < machine.cores else ()
    explained = Explanation(machine, form.contraction, bound, blocks=blocks, reason=chosen.reason)
    if isinstance(form, DirectForm):
        explained = replace(explained, contraction=form.numbers or form.contraction)
        return replace(explained, direct=form, declined=(*declined_direct(form, machine, blocks), *why))
    if isinstance(form, MatrixVectorForm):
        return replace(explained, streamed=form, declined=(*declined_on_cpu(form, machine, blocks), *why))
    return replace(explained, packed=form, declined=(*declined_packed(form, machine, blocks), *why))


def _in_lanes(chosen: LaneChoice, machine: Machine, bound: Roofline) -> Explanation:
    """The explanation of a product in lanes."""
    form, blocks = chosen.form, write_lane_product(chosen.form).blocks
    return Explanation(machine, form.contraction, bound, lanes=form, blocks=blocks, reason=chosen.reason)


_GENERAL = {
    True: "a fold of each result as any other: the operands are read in vectors, where they lie",
    False: "a map as any other: points in the lanes of vectors where they can be",
}

# --- text -------------------------------------------------------------------------------------------------------------


def _dimension_lines(contraction: Contraction, tiled: TiledDetails | None) -> list[str]:
    head = ["kind", "name", "size", "left", "right", "out"]
    rows: list[Sequence[str]] = [[*head, *(("T", "R", "Q") if tiled else ())]]
    tiles = {name: (first, second) for name, first, second in tiled.tiles} if tiled else {}
    for one in contraction.dimensions:
        row = [one.kind.value, one.name, str(one.size), *_strides(one)]
        if tiled:
            first, second = tiles[one.name]
            row += [str(first), str(second), "-"] if second is not None else ["-", "-", str(first)]
        rows.append(row)
    return table(rows, "  ")


def _strides(one: Dimension) -> list[str]:
    left, right = one.kind is not Kind.N, one.kind is not Kind.M
    return [
        str(constant(one.stride_left)) if left else "-",
        str(constant(one.stride_right)) if right else "-",
        str(constant(one.stride_out)) if one.kind is not Kind.K else "-",
    ]


def _bound_lines(bound: Roofline) -> list[str]:
    text = f"{amount(bound.flops, 'flop')}, {byte_amount(bound.bytes)} at least, {bound.intensity:.1f} flop/byte"
    lines = [f"roofline   {text}"]
    times = [
        f"{what} {duration(seconds)}"
        for what, seconds in (("compute", bound.compute_seconds), ("memory", bound.memory_seconds))
        if seconds is not None
    ]
    if bound.seconds is not None:
        rate = f" = {amount(bound.flops / bound.seconds, 'flop/s')}" if bound.seconds else ""
        lines.append(f"           {', '.join(times)}: bound by {bound.limit}{rate}")
    else:
        known = f"; {', '.join(times)}" if times else ""
        lines.append(f"           no bound on the time: the machine states no peak rate or no bandwidth{known}")
        lines.append("           (`tilewright devices --measure` finds those of the CPU at hand)")
    return lines


def _split_lines(split: SplitSum) -> list[str]:
    rest = f" and a rest of {split.rest}" if split.rest else ""
    return [
        f"split      the sum over {split.dimension} in {split.pieces} pieces of {split.length}{rest}, side by side;"
        f" {split.elements} partial results",
        f"           ({byte_amount(split.elements * split.element.bytes)}) are combined by a launch of their own",
    ]


def _relaid_lines(relaid: Relaid) -> list[str]:
    lines = []
    for one in relaid.copies:
        when = "afterwards, to" if one.array == "out" else "first, from"
        amounts = byte_amount(one.elements * one.copied.element.bytes)
        lines.append(f"copied     {when} {one.original.buffer}: {' x '.join(map(str, one.shape))}, {amounts}")
    name = relaid.dimension.name
    where = "innermost" if relaid.innermost else "outermost"
    if relaid.dimension.kind in (Kind.M, Kind.N):
        lines.append(f"           in the operand's order, instead of collecting results along dimension {name}:")
    else:
        which = "which is summed" if relaid.dimension.kind is Kind.K else "which all arrays have"
        lines.append(f"           so that dimension {name}, {which}, is {where} in each of them:")
    lines.append(
        f"           the model says {relaid.cycles / 1000:.3g} thousand cycles, {relaid.without / 1000:.3g} without"
    )
    return lines
