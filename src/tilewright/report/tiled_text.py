"""The block- and register-tiled form of a contraction as data and as text, for explanations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilewright.kernel.checks import AccessReport, KernelReport, check_kernel
from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.machine.occupancy import occupancy
from tilewright.passes.tiled.choice import TileCost, tile_cost
from tilewright.passes.tiled.form import HeldOperand, StagedOperand, TileForm
from tilewright.passes.tiled.tiling import Place, estimate_resources
from tilewright.report.declined import tiles_text
from tilewright.report.declined_places import places_text
from tilewright.report.text import byte_amount, duration


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


def tiled_details(form: TileForm, machine: Machine, launch: Launch) -> TiledDetails:
    """What is told of a tiled form."""
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


def tiled_lines(tiled: TiledDetails, machine: Machine) -> list[str]:
    """The lines of an explanation."""
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
