"""What will be done with a contraction on a machine, and why: from sizes alone, without arrays and without the device.

>>> from tilewright.machine.named import A100
>>> from tilewright.report.examples import matmul
>>> explanation = explain_contraction(matmul(512, 512, 512), A100)
>>> explanation.form, explanation.tiled.partial
('tiled', 'none')
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tilewright.contraction.form import Contraction, Dimension, Kind
from tilewright.contraction.normalise import constant
from tilewright.contraction.split_sum import SplitSum
from tilewright.kernel.checks import AccessReport, KernelReport, check_kernel
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.machine.occupancy import occupancy
from tilewright.passes.direct.form import DirectForm
from tilewright.passes.form_choice import FormChoice
from tilewright.passes.matrix_vector.form import MatrixVectorForm
from tilewright.passes.packed.form import PackedForm
from tilewright.passes.split_sums import split_of
from tilewright.passes.tiled.choice import TileCost, best_by_place, tile_cost
from tilewright.passes.tiled.form import HeldOperand, StagedOperand, TileForm
from tilewright.passes.tiled.kernel import write_kernel
from tilewright.passes.tiled.tile import Tiles, cpu_form, tiled_form, write_cpu_kernel
from tilewright.passes.tiled.tiling import Place, estimate_resources
from tilewright.report.declined import (
    declined_direct,
    declined_on_cpu,
    declined_packed,
    declined_tiled,
    padding_waste,
    tiles_text,
)
from tilewright.report.declined_places import declined_places, places_text
from tilewright.report.direct_text import DirectDetails, direct_details, direct_lines
from tilewright.report.matrix_vector_text import (
    MatrixVectorDetails,
    matrix_vector_details,
    matrix_vector_lines,
)
from tilewright.report.roofline import Roofline, roofline
from tilewright.report.text import amount, byte_amount, duration, table
from tilewright.runtime.speeds import with_measured_speeds


@dataclass(frozen=True)
class AccessSummary:
    """The accesses to one array, by the worst of them.

    Of global memory: `worst` 32-byte sectors that a warp's access touches, `ideal` for consecutive elements. Of shared
    memory: how often an access is repeated for bank conflicts, ideally once. None: not known from sizes alone.
    """

    array: str
    action: str
    worst: int | None
    ideal: int

    def __str__(self) -> str:
        if self.worst is None:
            return f"{self.array} {self.action}: unknown"
        return f"{self.array} {self.action}: {self.worst} (ideal {self.ideal})"


@dataclass(frozen=True)
class TiledDetails:
    """The block- and register-tiled form.

    Attributes:
        tiles: for each dimension (name, T, R), or (name, Q, None) for a contracted one.
        threads: per block. blocks: of the launch. waves: how often all cores are filled.
        blocks_per_core, occupancy, occupancy_limit: predicted from the estimates below.
        shared_bytes: per block. registers: estimated, per thread.
        partial: which tiles stick out of the arrays: "none", "contracted", "outer", "both".
        places: where the elements of the left and the right operand wait.
        padding: elements that pad the rows of the left and the right tile; 0 for one that is not staged.
        vector_bytes: bytes of one copy step of either operand; of an element for one that is not staged.
        global_accesses, bank_conflicts: summaries by array.
        cost: what the tile choice's model says.
    """

    tiles: tuple[tuple[str, int, int | None], ...]
    threads: int
    blocks: int
    waves: float
    blocks_per_core: int
    occupancy: float
    occupancy_limit: str
    shared_bytes: int
    registers: int
    partial: str
    places: tuple[Place, Place]
    padding: tuple[int, int]
    vector_bytes: tuple[int, int]
    global_accesses: tuple[AccessSummary, ...]
    bank_conflicts: tuple[AccessSummary, ...]
    cost: TileCost


@dataclass(frozen=True)
class PackedDetails:
    """The packed form of CPUs.

    Attributes:
        vector_side, scalar_side: the dimensions of either side of the register tile, outermost first.
        lanes: elements of a vector. vectors, rows: the register tile is (vectors * lanes) x rows.
        registers: vector registers that it takes.
        depth: length of the piece of the sum that is packed at once.
        panel_bytes: bytes of the packed panels of the vector and the scalar side.
        blocks: independent parts of the launch.
        waste: share of the work done on padding.
        fused_multiply_add: products and sums are one instruction.
        scalar_inner: the loop over the scalar side's panels is the inner one.
        results: how results are stored: "in place", "buffered" (a block at a time, along the output's unit stride),
            or "past the cache".
    """

    vector_side: tuple[str, ...]
    scalar_side: tuple[str, ...]
    lanes: int
    vectors: int
    rows: int
    registers: int
    depth: int
    panel_bytes: tuple[int, int]
    blocks: int
    waste: float
    fused_multiply_add: bool
    scalar_inner: bool
    results: str


@dataclass(frozen=True)
class Explanation:
    """What `explain_contraction` found; `str()` gives it as text.

    Attributes:
        machine: the machine meant.
        contraction: with its dimensions as they are after dropping, fusing and ordering.
        roofline: the lower bound of its time.
        tiled, packed, direct, streamed: the details of the form that was chosen; the others are None.
        reason: why a CPU gets its form; empty for other machines.
        declined: why each optimisation that did not happen did not.
        split: the pieces of a sum that is split; the form and its dimensions are then those of the pieces.
    """

    machine: Machine
    contraction: Contraction
    roofline: Roofline
    tiled: TiledDetails | None
    packed: PackedDetails | None
    declined: tuple[str, ...]
    direct: DirectDetails | None = None
    reason: str = ""
    streamed: MatrixVectorDetails | None = None
    split: SplitSum | None = None

    @property
    def form(self) -> str:
        """ "tiled", "packed", "direct" or "streamed"."""
        if self.tiled is not None:
            return "tiled"
        if self.streamed is not None:
            return "streamed"
        return "packed" if self.packed is not None else "direct"

    def __str__(self) -> str:
        lines = [f"machine    {self.machine.name} ({self.machine.kind}, {self.machine.cores} cores)"]
        lines += ["dimensions", *_dimension_lines(self.contraction, self.tiled)]
        lines += _bound_lines(self.roofline)
        if self.split is not None:
            lines += _split_lines(self.split)
        if self.tiled is not None:
            lines += _tiled_lines(self.tiled, self.machine)
        if self.packed is not None:
            lines += _packed_lines(self.packed, self.machine)
        if self.direct is not None:
            lines += direct_lines(self.direct, self.machine)
        if self.streamed is not None:
            lines += matrix_vector_lines(self.streamed, self.machine)
        if self.reason:
            lines.append(f"chosen     {self.reason}")
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
    if machine.is_gpu_like:
        tiled = tiled_form(contraction, machine, tiles)
        launch = write_kernel(tiled)
        rivals = best_by_place(tiled.contraction, machine, tiled.tiling if tiles else None)
        reasons = (*declined_places(tiled, machine, rivals), *declined_tiled(tiled, machine, launch.blocks))
        return Explanation(machine, tiled.contraction, bound, _tiled_details(tiled, machine, launch), None, reasons)
    split = split_of(contraction, machine)
    if tiles or isinstance(split, str):
        return _explained(cpu_form(contraction, machine, tiles), machine, bound, "" if tiles else str(split))
    return replace(_explained(cpu_form(split.parts[0], machine), machine, bound), split=split)


def _explained(chosen: FormChoice, machine: Machine, bound: Roofline, not_split: str = "") -> Explanation:
    """The explanation of a form of the CPU; and why the sum is not split, where that would be of use."""
    form, launch = chosen.form, write_cpu_kernel(chosen.form)
    why = (f"the sum is not split: {not_split}",) if not_split and 0 < launch.blocks < machine.cores else ()
    if isinstance(form, DirectForm):
        reasons = declined_direct(form, machine, launch.blocks) + why
        details = direct_details(form, launch)
        return Explanation(machine, form.contraction, bound, None, None, reasons, details, chosen.reason)
    if isinstance(form, MatrixVectorForm):
        reasons = (*declined_on_cpu(form, machine, launch.blocks), *why)
        streamed = matrix_vector_details(form, launch)
        return Explanation(machine, form.contraction, bound, None, None, reasons, None, chosen.reason, streamed)
    reasons = declined_packed(form, machine, launch.blocks) + why
    packed = _packed_details(form, launch)
    return Explanation(machine, form.contraction, bound, None, packed, reasons, None, chosen.reason)


# --- details ----------------------------------------------------------------------------------------------------------


def _tiled_details(form: TileForm, machine: Machine, launch: Launch) -> TiledDetails:
    tiling = form.tiling
    tiles: list[tuple[str, int, int | None]] = [
        (one.name, t, r) for one, t, r in zip(form.parallel, tiling.thread, tiling.register, strict=True)
    ]
    tiles += [(one.name, q, None) for one, q in zip(form.contracted, tiling.sequential, strict=True)]
    registers = estimate_resources(form.contraction, tiling).registers_per_thread
    resident = occupancy(machine, tiling.threads, registers, form.shared_bytes)
    checked = _checked(launch, machine)
    shared = [one for one in checked.bank_conflicts if one.degree is None or one.degree > 0]
    return TiledDetails(
        tuple(tiles),
        tiling.threads,
        launch.blocks,
        launch.blocks / max(1, machine.cores * max(1, resident.blocks_per_core)),
        resident.blocks_per_core,
        resident.fraction,
        resident.limit,
        form.shared_bytes,
        registers,
        form.partial.value,
        (tiling.left, tiling.right),
        (_padding(form.left), _padding(form.right)),
        (_copy_bytes(form.left), _copy_bytes(form.right)),
        summarise(checked.global_accesses, lambda one: "stores" if one.is_store else "loads"),
        summarise(shared, lambda one: "staging stores" if one.staging else "loads") if machine.shared_banks else (),
        tile_cost(form.contraction, tiling, machine),
    )


def _padding(one: StagedOperand | HeldOperand) -> int:
    return one.layout.padding if isinstance(one, StagedOperand) else 0


def _copy_bytes(one: StagedOperand | HeldOperand) -> int:
    return (one.vector if isinstance(one, StagedOperand) else 1) * one.operand.element.bytes


def _checked(launch: Launch, machine: Machine) -> KernelReport:
    """The static checks; scalars that are known only at launch stand in as 1 (they are no part of any index)."""
    pairs = zip(launch.kernel.scalars, launch.scalars, strict=True)
    known = {parameter.name: value if isinstance(value, int) else 1 for parameter, value in pairs}
    return check_kernel(launch.kernel, known, max(machine.warp, 1))


def summarise(accesses: Iterable[AccessReport], action: Callable[[AccessReport], str]) -> tuple[AccessSummary, ...]:
    """One summary for each array and action: the access that is worst against its ideal."""
    found: dict[tuple[str, str], AccessSummary] = {}
    for one in accesses:
        key = (re.sub(r"_\d+$", "", one.buffer), action(one))
        known = found.get(key)
        if known is None or _badness(one.degree, one.ideal) > _badness(known.worst, known.ideal):
            found[key] = AccessSummary(*key, one.degree, one.ideal)
    return tuple(found.values())


def _badness(degree: int | None, ideal: int) -> float:
    return math.inf if degree is None else degree / max(ideal, 1)


def _packed_details(form: PackedForm, launch: Launch) -> PackedDetails:
    element = form.accumulator.bytes
    results = "buffered" if form.buffered else "past the cache" if form.nontemporal else "in place"
    parts = 2 if form.accumulator.is_complex else 1
    return PackedDetails(
        tuple(one.dimension.name for one in form.vector_dimensions),
        tuple(one.dimension.name for one in form.scalar_dimensions),
        form.lanes,
        form.vectors,
        form.rows,
        parts * (form.vectors * form.rows + form.vectors + 1),
        form.pitch,
        (form.vector_block * form.pitch * element, form.scalar_block * form.pitch * element),
        launch.blocks,
        padding_waste(form),
        form.fused_multiply_add,
        form.scalar_inner,
        results,
    )


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


def _tiled_lines(tiled: TiledDetails, machine: Machine) -> list[str]:
    threads = tuple(first for _, first, second in tiled.tiles if second is not None)
    registers = tuple(second for _, _, second in tiled.tiles if second is not None)
    fraction = f", occupancy {tiled.occupancy:.0%}" if tiled.occupancy else ""
    lines = [
        f"form       block and register tiles, {places_text(tiled.places)}",
        f"threads    {tiles_text(threads)} per block, {tiles_text(registers)} results each",
        f"blocks     {tiled.blocks} = {tiled.waves:.2f} waves on {machine.cores} cores",
        f"resident   {tiled.blocks_per_core} blocks per core{fraction}, limited by {tiled.occupancy_limit}",
        f"shared     {byte_amount(tiled.shared_bytes)} per block{_by_operand(tiled, tiled.padding, ', rows padded by')}"
        f"{' elements' if tiled.shared_bytes else ''}",
        f"registers  about {tiled.registers} per thread (estimated)",
        f"partial    {_PARTIAL[tiled.partial]}",
        f"copies    {_by_operand(tiled, tiled.vector_bytes, '', ' bytes')} at a time" if tiled.shared_bytes else "",
    ]
    lines = [one for one in lines if one]
    if machine.warp > 1:
        lines += ["sectors    of 32 bytes per access of a warp", *(f"  {one}" for one in tiled.global_accesses)]
    if tiled.bank_conflicts:
        lines += ["banks      repeats per access of a warp", *(f"  {one}" for one in tiled.bank_conflicts)]
    cost = tiled.cost
    lines.append(
        f"model      {duration(cost.seconds)} (memory {duration(cost.memory_seconds)}, compute"
        f" {duration(cost.compute_seconds)}); for comparing tilings, not a prediction"
    )
    return lines


def _by_operand(tiled: TiledDetails, values: tuple[int, int], before: str, unit: str = "") -> str:
    """Values of the operands that are staged."""
    named = zip(("left", "right"), values, tiled.places, strict=True)
    parts = [f"{value}{unit} ({name})" for name, value, place in named if place is Place.SHARED]
    return f"{before} {' and '.join(parts)}" if parts else ""


_PARTIAL = {
    "none": "none: every tile is full, and nothing is guarded",
    "contracted": "contracted: the last pieces of the sum stick out",
    "outer": "outer: blocks at the border stick out of the result",
    "both": "both: blocks at the border and the last pieces of the sum stick out",
}


def _packed_lines(packed: PackedDetails, machine: Machine) -> list[str]:
    of = f" of {machine.vector_registers}" if machine.vector_registers else ""
    vector, scalar = (" ".join(side) or "(none)" for side in (packed.vector_side, packed.scalar_side))
    return [
        "form       packed panels and a register tile",
        f"sides      vectors along {vector}; broadcasts along {scalar}",
        f"registers  {packed.vectors} vectors of {packed.lanes} x {packed.rows} rows: {packed.registers}{of} registers,"
        f" {packed.waste:.0%} of the work on padding",
        f"packing    pieces of {packed.depth} of the sum; panels of {byte_amount(packed.panel_bytes[0])} (vectors) and"
        f" {byte_amount(packed.panel_bytes[1])} (broadcasts)",
        f"loops      panels of the {'broadcasts' if packed.scalar_inner else 'vectors'} innermost; results stored"
        f" {packed.results}",
        f"blocks     {packed.blocks} on {machine.cores} cores",
        f"multiply   {'fused with add' if packed.fused_multiply_add else 'and combine are separate operations'}",
    ]
