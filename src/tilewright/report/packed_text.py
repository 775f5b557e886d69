"""The packed form of a contraction as data and as text, for explanations."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kernel.launch import Launch
from tilewright.machine.model import Machine
from tilewright.passes.packed.dots import Dots
from tilewright.passes.packed.form import PackedForm
from tilewright.report.declined import padding_waste
from tilewright.report.text import byte_amount


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
        dots: several products of narrow elements and their sum are, or None.
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
    dots: Dots | None = None


def packed_details(form: PackedForm, launch: Launch) -> PackedDetails:
    """What is told of a packed form."""
    element = form.accumulator.bytes
    results = "buffered" if form.buffered else "past the cache" if form.nontemporal else "in place"
    if form.boxes is not None:
        results = f"past the cache, in boxes of {form.boxes.vector} x {form.boxes.scalar}"
    parts = 2 if form.accumulator.is_complex else 1
    return PackedDetails(
        tuple(one.dimension.name for one in form.vector_dimensions),
        tuple(one.dimension.name for one in form.scalar_dimensions),
        form.lanes,
        form.vectors,
        form.rows,
        parts * (form.vectors * form.rows + form.vectors + 1),
        form.piece,
        (form.vector_block * form.pitch * element, form.scalar_block * form.pitch * element),
        launch.blocks,
        padding_waste(form),
        form.fused_multiply_add,
        form.scalar_inner,
        results,
        form.dots,
    )


def multiply_text(dots: Dots | None, fused: bool) -> str:
    """How products are summed."""
    if dots is not None:
        first, second = dots.elements
        return f"{dots.together} products of {first} and {second} are added by one instruction"
    return "fused with add" if fused else "and combine are separate operations"


def packed_lines(packed: PackedDetails, machine: Machine) -> list[str]:
    """The lines of an explanation."""
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
        f"multiply   {multiply_text(packed.dots, packed.fused_multiply_add)}",
    ]
