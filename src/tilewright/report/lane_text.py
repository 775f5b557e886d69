"""Products in lanes, as data and as text, for explanations."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kernel.launch import Launch
from tilewright.passes.lane_products.form import LaneProduct
from tilewright.report.text import byte_amount


@dataclass(frozen=True)
class LaneDetails:
    """The form of CPUs in which several dimensions share the lanes of vectors.

    Attributes:
        large: the operand whose vectors are read ("left", "right"); the other one is in the coefficients.
        lanes: real numbers in a vector of the large operand, and in one of the output.
        picks: how many vectors for the output are picked from one of the large operand.
        coefficients: bytes that the vectors of coefficients take.
        tile: rows and columns of vectors of the output that are summed together.
        blocks: independent parts of the launch.
    """

    large: str
    lanes: tuple[int, int]
    picks: int
    coefficients: int
    tile: tuple[int, int]
    blocks: int


def lane_details(form: LaneProduct, launch: Launch) -> LaneDetails:
    """What is told of such a form."""
    nbytes = form.coefficients * form.element.bytes
    return LaneDetails("left" if form.left else "right", form.held, form.picks, nbytes, form.tile, launch.blocks)


def lane_lines(details: LaneDetails) -> list[str]:
    """The lines of an explanation."""
    read, written = details.lanes
    other = "right" if details.large == "left" else "left"
    picked = "1 vector" if details.picks == 1 else f"{details.picks} vectors"
    return [
        f"form       a product in lanes: vectors of {read} real numbers of the {details.large} operand, from each of",
        f"           which {picked} of {written} for the output are picked, and multiplied by coefficients",
        f"panels     coefficients, of the {other} operand, {byte_amount(details.coefficients)}",
        f"registers  {details.tile[0]} x {details.tile[1]} vectors of the output are summed together",
        f"blocks     {details.blocks}",
    ]
